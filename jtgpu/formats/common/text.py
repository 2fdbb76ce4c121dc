"""Functions for text formats: decoding, positions in a file, a token cursor, numbers in bulk, quoted strings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ...errors import ParseError, shown
from .decimals import bulk

# ASCII white space only: str.split() and \s also match other characters, which have no meaning in these formats.
BLANKS = " \t\r\n\f\v"


def decode(raw: bytes) -> str:
    """Decode the bytes of a file: UTF-8 if valid, otherwise Latin-1; a byte order mark is removed."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def shortened(message: str, most: int = 700) -> str:
    """`message` without its middle if very long names would make it unreadable."""
    return message if len(message) <= most else f"{message[: most - 200]} [...] {message[-200:]}"


class Source:
    """A decoded text and its name in error messages; converts offsets to lines and columns."""
    # name: As given by the user; every error message begins with it

    __slots__ = ("name", "text")

    def __init__(self, text: str, name: str = "<text>"):
        self.text, self.name = text, name

    def place(self, offset: int) -> tuple[int, int]:
        """One-based line and column of an offset; LF, CR and CR LF all end a line."""
        text = self.text
        line = text.count("\n", 0, offset) + text.count("\r", 0, offset) - text.count("\r\n", 0, offset) + 1
        start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
        return line, offset - start + 1

    def error(self, offset: int, message: str) -> ParseError:
        """A `ParseError` at an offset, to be raised by the caller."""
        return ParseError(shortened(message), self.name, *self.place(offset))


class Tokens:
    """A cursor over the tokens of a text."""
    # pattern: Skips white space and comments, then matches exactly one of its top-level named groups, which is the kind
    #     of the token. It has to match everywhere: a group ``end`` matches the end of the text, a group ``other`` any
    #     single character. Its repetitions are possessive, so that no text makes it slow.
    # kind, text: The current token's group and characters
    # start, end: Its offsets in the source

    __slots__ = ("_match", "end", "kind", "source", "start", "text")

    def __init__(self, source: Source, pattern: re.Pattern[str]):
        self.source = source
        self._match = pattern.match
        self.kind = self.text = ""
        self.start = self.end = 0
        self.advance()

    def advance(self) -> None:
        """Move to the next token."""
        found = self._match(self.source.text, self.end)
        if found is None or found.lastgroup is None:  # pragma: no cover - excluded by the pattern
            raise AssertionError("a token pattern has to match everywhere")
        self.kind = found.lastgroup
        self.text = found[self.kind]
        self.start, self.end = found.span(self.kind)

    def jump(self, offset: int) -> None:
        """Move to the first token at or after an offset."""
        self.end = offset
        self.advance()

    def take(self) -> str:
        """Return the current token's text and move to the next token."""
        text = self.text
        self.advance()
        return text

    def at(self, *texts: str) -> bool:
        """Whether the current token is one of `texts` and not a quoted string."""
        return self.text in texts and self.kind != "string"

    def expect(self, text: str, why: str = "") -> int:
        """Move past a required token; its offset."""
        if not self.at(text):
            self.fail(f"{text!r}{why and ' ' + why}")
        start = self.start
        self.advance()
        return start

    def found(self) -> str:
        """The current token for an error message."""
        if self.kind == "end":
            return "the end of the file"
        if self.kind == "other" and self.text == '"':
            return 'a string whose closing " is missing'
        if self.kind == "other" and self.source.text.startswith("/*", self.start):
            return "a comment whose closing */ is missing"
        return shown(self.text)

    def fail(self, expected: str) -> NoReturn:
        """Raise "found ..., expected ..." at the current token."""
        raise self.source.error(self.start, f"found {self.found()}, expected {expected}")


_NUMERIC = re.compile(rf"[0-9eE+\-.{BLANKS}]*+")
SHORT = 4096  # characters up to which `float` is faster than `jtgpu.formats.common.decimals.bulk`


def floats(text: str, begin: int = 0, end: int | None = None, blanks: str = "") -> NDArray[np.float64] | None:
    """The decimal numbers of a text, separated by white space, shape (n,); None if it contains anything else.

    Every number is the nearest float64. Numbers beyond the range of float64 become infinity, which the checks of the
    network reject.
    """
    # begin, end: The range to parse; no number may extend beyond it
    # blanks: Further ASCII characters that separate numbers, such as ``","``
    end = len(text) if end is None else end
    if end - begin > SHORT:
        return bulk(text, begin, end, blanks)
    text = text[begin:end]
    for character in blanks:
        text = text.replace(character, " ")
    if _NUMERIC.fullmatch(text) is None:  # float() accepts more: 1_000, nan, digits of other scripts
        return None
    try:
        return np.fromiter(map(float, text.split()), np.float64)
    except ValueError:
        return None


def number(x: float) -> str:
    """The shortest decimal that reads back as the same float64."""
    text = repr(x)
    return text[:-2] if text.endswith(".0") else text


# Strings in double quotes -------------------------------------------------------------------------------------

_ESCAPE = re.compile(r'\\(?:([0-7]{1,3})|(\r\n|["\\ntr\n\r]))')
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "\n": "", "\r": "", "\r\n": ""}
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f\x7f]')
_TO_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _unescape(found: re.Match[str]) -> str:
    return chr(int(found[1], 8) & 0xFF) if found[1] else _ESCAPED[found[2]]


def unquote(token: str) -> str:
    r"""The text of a quoted string.

    ``\"``, ``\\``, ``\n``, ``\t``, ``\r`` and octal ``\242`` (taken as Latin-1) are replaced, a backslash before a
    line break joins the lines, and any other backslash is an ordinary character.
    """
    return _ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1]


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return _TO_ESCAPED.get(character) or f"\\{ord(character):03o}"


def quote(text: str, escape: Callable[[re.Match[str]], str] = _escape) -> str:
    """The inverse of `unquote`, on one line."""
    return f'"{_TO_ESCAPE.sub(escape, text)}"'
