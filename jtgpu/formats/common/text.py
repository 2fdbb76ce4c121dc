"""What every text format shares: decoding, places in a file, a token cursor, numbers in bulk, quoted strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ...errors import ParseError, closest
from .decimals import bulk

__all__ = ["Source", "Tokens", "decode", "floats", "near", "number", "quote", "shortened", "shown", "unquote"]

# Only ASCII blanks: str.split() and re's \s know more, and no format here gives those a meaning.
BLANKS = " \t\r\n\f\v"


def decode(raw: bytes) -> str:
    """Bytes of a file as text: UTF-8 where it is valid, else Latin-1; a byte order mark is dropped."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def shown(text: str, most: int = 40) -> str:
    """`text` quoted for an error message, cut where it is long."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}..."


def shortened(message: str, most: int = 700) -> str:
    """`message` with its middle left out where names of absurd length would make it unreadable."""
    return message if len(message) <= most else f"{message[: most - 200]} [...] {message[-200:]}"


def near(word: str, known: Iterable[str]) -> str:
    """`jtgpu.errors.closest` for names out of files, whose number and length nobody has bounded.

    Comparing is quadratic in a name's length and takes every name, so only short ones and not too many take part.
    """
    short = [k for k in islice(known, 5000) if abs(len(k) - len(word)) < 20]
    return closest(word, short) if len(word) <= 60 else ""


class Source:
    """A decoded text and the name it is known by; turns offsets into places when somebody asks.

    Parameters
    ----------
    text : str
    name : str
        As the user gave it; starts every error message.
    """

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
    """A cursor over a text: the token under it, and one step at a time forward.

    Parameters
    ----------
    source : Source
    pattern : compiled regular expression
        Skips blanks and comments, then matches exactly one of its top-level named groups, which is the kind of
        the token. It has to match everywhere: a group ``end`` at the end of the text, a group ``other`` for any
        single character. Repeats in it are possessive, so that no text makes it slow.

    Attributes
    ----------
    kind, text : str
        The current token's group and characters.
    start, end : int
        Its offsets in the source.
    """

    __slots__ = ("_match", "end", "kind", "source", "start", "text")

    def __init__(self, source: Source, pattern: re.Pattern[str]):
        self.source = source
        self._match = pattern.match
        self.kind = self.text = ""
        self.start = self.end = 0
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        found = self._match(self.source.text, self.end)
        if found is None or found.lastgroup is None:  # pragma: no cover - the pattern's own contract
            raise AssertionError("a token pattern has to match everywhere")
        self.kind = found.lastgroup
        self.text = found[self.kind]
        self.start, self.end = found.span(self.kind)

    def jump(self, offset: int) -> None:
        """Go to the first token at or after an offset."""
        self.end = offset
        self.advance()

    def take(self) -> str:
        """The current token's text; goes on to the next."""
        text = self.text
        self.advance()
        return text

    def at(self, *texts: str) -> bool:
        """Is the current token one of these, and no quoted string?"""
        return self.text in texts and self.kind != "string"

    def expect(self, text: str, why: str = "") -> int:
        """Go past a token that has to be there, and give its offset."""
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
SHORT = 4096  # characters up to which one pass of `float` beats the set-up of `jtgpu.formats.common.decimals.bulk`


def floats(text: str, begin: int = 0, end: int | None = None, blanks: str = "") -> NDArray[np.float64] | None:
    """All the blank-separated decimal numbers of `text`, shape (n,); None where something else stands in it.

    Every number is the double nearest to what is written. A number too large for a double comes out as infinity,
    which the network's own checks refuse.

    Parameters
    ----------
    text : str
    begin, end : int
        The stretch of it that counts; no number may reach over its ends.
    blanks : str
        ASCII characters that separate as blanks do, as ``","``.
    """
    end = len(text) if end is None else end
    if end - begin > SHORT:
        return bulk(text, begin, end, blanks)
    text = text[begin:end]
    for character in blanks:
        text = text.replace(character, " ")
    if _NUMERIC.fullmatch(text) is None:  # float() takes more than files may say: 1_000, nan, other scripts' digits
        return None
    try:
        return np.fromiter(map(float, text.split()), np.float64)
    except ValueError:
        return None


def number(x: float) -> str:
    """The shortest decimal that reads back as the same double."""
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
    r"""The text that a quoted string stands for.

    ``\"``, ``\\``, ``\n``, ``\t``, ``\r`` and octal ``\242`` (taken as Latin-1) are undone, a backslash before a
    line's end joins the lines, and any other backslash is a plain character.
    """
    return _ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1]


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return _TO_ESCAPED.get(character) or f"\\{ord(character):03o}"


def quote(text: str, escape: Callable[[re.Match[str]], str] = _escape) -> str:
    """The opposite of `unquote`, on one line."""
    return f'"{_TO_ESCAPE.sub(escape, text)}"'
