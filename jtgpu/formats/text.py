"""Functions for text formats: decoding, positions in a file, a token cursor, numbers in bulk, quoted strings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import NetworkError, ParseError, shown
from ..util.arrays import Floats, Ints

# Fast conversion of decimals, separated by white space, to an array, for files of many megabytes.
#
# Every number becomes the nearest float64. Short plain numbers (``0``, ``12``, ``0.0375``), the majority in networks,
# are computed by NumPy from their digits, all numbers of equal length at once: an integer below 2**53 divided by a
# power of ten up to 10**22 is rounded once, hence correctly (Clinger, "How to read floating point numbers
# accurately", PLDI 1990). The others are converted by `float`. The text is processed in parts, so that only the
# result grows with it.

PART = 1 << 16  # characters processed at a time, so that temporary arrays stay in the cache
LONGEST = 12  # characters of a short number
FEW = 0.5  # if the share of short plain numbers is smaller, `float` converts all

_BLANK = re.compile(r"[ \t\r\n\f\v]")
# float() accepts more than file formats do: 1_000, nan, digits of other scripts
_ALLOWED = b"0123456789eE+-. \t\r\n\f\v"
_DOT = np.uint8((ord(".") - ord("0")) & 0xFF)


def _parts(text: str, begin: int, end: int, blanks: bytes) -> Iterator[tuple[int, bytes]]:
    """Offsets and bytes of parts that end at the end of a token; raises UnicodeEncodeError if not ASCII."""
    # bytes.translate preserves offsets and avoids the copies of str.replace
    table = bytes.maketrans(blanks, b" " * len(blanks)) if blanks else None
    ends = re.compile(rf"[ \t\r\n\f\v{re.escape(blanks.decode())}]") if blanks else _BLANK
    while begin < end:
        match = ends.search(text, begin + PART, end) if begin + PART < end else None
        stop = match.start() if match else end
        part = text[begin:stop].encode("ascii")
        yield begin, part.translate(table) if table else part
        begin = stop


def _edges(part: bytes) -> NDArray[np.intp]:
    """Begin and end of every token, alternating."""
    inside = np.zeros(len(part) + 2, np.bool_)
    np.greater(np.frombuffer(part, np.uint8), 32, out=inside[1:-1])
    return np.flatnonzero(inside[1:] != inside[:-1])


def count_tokens(text: str, begin: int = 0, end: int | None = None, blanks: str = "") -> int:
    """Number of tokens in a range of ASCII text; ``blanks`` are further separators."""
    parts = _parts(text, begin, len(text) if end is None else end, blanks.encode())
    return sum(_edges(part).size // 2 for _, part in parts)


def token_offsets(text: str, which: Ints, begin: int = 0, end: int | None = None) -> Ints:
    """Offsets of some tokens of a range of ASCII text, (n,) int64."""
    # which: (n,) int64: Indices of the tokens, ascending from 0; one past the last token gives the end of the range
    end = len(text) if end is None else end
    out = np.full(which.size, end, np.int64)
    first = done = 0
    for offset, part in _parts(text, begin, end, b""):
        start = _edges(part)[::2]
        upto = int(np.searchsorted(which, first + start.size))
        out[done:upto] = start[which[done:upto] - first] + offset
        first += start.size
        done = upto
        if done == which.size:
            break
    return out


def bulk(text: str, begin: int, end: int, blanks: str = "") -> Floats | None:
    """All numbers of a range of a text, shape (n,); None if it contains anything else."""
    # begin, end: The range; no token may extend beyond it
    # blanks: Further ASCII characters that separate numbers, such as ``","``
    extra = blanks.encode()
    try:
        out = np.empty(count_tokens(text, begin, end, blanks))
        at = 0
        for _, part in _parts(text, begin, end, extra):
            if part.translate(None, _ALLOWED):
                return None
            n = _numbers(part, out[at:])
            at += n
    except ValueError:  # a token that is not a number, or a character that is not ASCII
        return None
    return out


def _numbers(part: bytes, out: Floats) -> int:
    """Write the numbers of a part to `out`; their number. Raises ValueError if a token is not a number."""
    edges = _edges(part)
    start, n = edges[::2], edges.size // 2
    length = edges[1::2] - start
    counts = np.bincount(np.minimum(length, LONGEST + 1), minlength=LONGEST + 2)
    signs = sum(map(part.count, (b"e", b"E", b"-")))  # two per exponent as a rule; an estimate suffices
    if n - counts[-1] - signs < FEW * n:
        out[:n] = np.fromiter(map(float, part.split()), np.float64, n)
        return n
    digits = np.frombuffer(part, np.uint8) - np.uint8(ord("0"))
    left = [np.flatnonzero(length > LONGEST)] if counts[-1] else []
    for size in np.flatnonzero(counts[:-1]).tolist():
        left += _of_one_length(digits, start, np.flatnonzero(length == size), size, out)
    for which in left:
        first = start[which]
        last = first + length[which]
        out[which] = [float(part[a:b]) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return n


def _of_one_length(
    digits: NDArray[np.uint8], start: NDArray[np.intp], which: NDArray[np.intp], size: int, out: Floats
) -> Iterator[NDArray[np.intp]]:
    """Convert numbers of `size` characters, integers and those with one digit before the point; yields the others."""
    # digits: (characters,) uint8: Character codes minus that of ``0``; values above 9 are not digits
    # start: (tokens,) intp
    # which: (n,) intp: The tokens of this length
    whole, pointed = which, which[:0]
    if size > 1:
        point = digits[start[which] + 1] == _DOT
        whole, pointed = which[~point], which[point]
    for chosen, places, scale in (
        (whole, range(size), 1.0),
        (pointed, (0, *range(2, size)), float(10 ** max(size - 2, 0))),
    ):
        if not chosen.size:
            continue
        at = start[chosen]
        value = np.zeros(chosen.size)
        most = np.zeros(chosen.size, np.uint8)
        for place in places:
            digit = digits[at + place]
            np.maximum(most, digit, out=most)
            value *= 10.0
            value += digit
        if scale != 1.0:
            value /= scale
        out[chosen] = value
        if most.max() > 9:
            yield chosen[most > 9]


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


class SourceText:
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

    def __init__(self, source: SourceText, pattern: re.Pattern[str]):
        self.source = source
        self._match = pattern.match
        self.kind = self.text = ""
        self.start = self.end = 0
        self.advance()

    def advance(self) -> None:
        """Move to the next token."""
        match = self._match(self.source.text, self.end)
        if match is None or match.lastgroup is None:  # pragma: no cover - excluded by the pattern
            raise AssertionError("a token pattern has to match everywhere")
        self.kind = match.lastgroup
        self.text = match[self.kind]
        self.start, self.end = match.span(self.kind)

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


def nth_word(source: SourceText, pattern: re.Pattern[str], begin: int, end: int, n: int) -> int:
    """Offset of word n of a range, for the position of an error; `begin` if there are fewer."""
    at = begin
    while at < end:
        token = pattern.match(source.text, at, end)
        if token is None or token.lastgroup in (None, "end"):
            break
        at = token.end()
        if token.lastgroup == "word":
            if n == 0:
                return token.start("word")
            n -= 1
    return begin


_NUMERIC = re.compile(rf"[0-9eE+\-.{BLANKS}]*+")
SHORT = 4096  # characters up to which `float` is faster than `bulk`


def floats(text: str, begin: int = 0, end: int | None = None, blanks: str = "") -> Floats | None:
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


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 8) & 0xFF) if match[1] else _ESCAPED[match[2]]


def unquote(token: str) -> str:
    r"""The text of a quoted string.

    ``\"``, ``\\``, ``\n``, ``\t``, ``\r`` and octal ``\242`` (taken as Latin-1) are replaced, a backslash before a
    line break joins the lines, and any other backslash is an ordinary character.
    """
    return _ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1]


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _TO_ESCAPED.get(character) or f"\\{ord(character):03o}"


def quote(text: str, escape: Callable[[re.Match[str]], str] = _escape) -> str:
    """The inverse of `unquote`, on one line."""
    return f'"{_TO_ESCAPE.sub(escape, text)}"'


# JSON of networks.

EXACT_DIGITS = 15  # of integers; longer ones are not exact as float64


def load_json(text: str) -> Any:
    """The value of a JSON text, in which every number is finite and no key occurs twice in an object."""
    # raises NetworkError, json.JSONDecodeError, RecursionError

    def constant(word: str) -> float:
        raise NetworkError(f"found {word}, expected a finite number")

    def integer(word: str) -> float:
        return int(word) if len(word) <= EXACT_DIGITS else float(word)

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise NetworkError(f"{twice!r} occurs twice in an object")
        return made

    return json.loads(text, parse_constant=constant, parse_int=integer, object_pairs_hook=distinct)


def json_text(value: object) -> str:
    """JSON in one line, with letters of every script as they are."""
    return json.dumps(value, ensure_ascii=False)
