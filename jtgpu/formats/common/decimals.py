"""Numbers in bulk: blank-separated decimals of a text as one array, at the speed that files of many megabytes ask for.

Every number is the double nearest to what is written. Short plain ones (``0``, ``12``, ``0.0375``), most of what
networks hold, are put together by NumPy from their digits, all of one length at once: a whole number below 2**53
divided by a power of ten up to 10**22 is rounded once, hence correctly (Clinger, "How to read floating point numbers
accurately", PLDI 1990). The others are left to Python's own `float`. The text is taken in parts, so that nothing
but the result grows with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["bulk", "count_tokens", "token_offsets"]

PART = 1 << 16  # characters taken at a time: what is made of them stays in a cache
LONGEST = 12  # characters of what counts as short
FEW = 0.5  # where fewer tokens than this share are short and plain, all are left to `float`

_BLANK = re.compile(r"[ \t\r\n\f\v]")
_ALLOWED = b"0123456789eE+-. \t\r\n\f\v"  # float() takes more than files may say: 1_000, nan, other scripts' digits
_DOT = np.uint8((ord(".") - ord("0")) & 0xFF)


def _parts(text: str, begin: int, end: int, blanks: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of parts that end where a token does; raises UnicodeEncodeError on what is not ASCII."""
    # A translation keeps every character's place, and saves the copies that str.replace would make.
    table = bytes.maketrans(blanks, b" " * len(blanks)) if blanks else None
    ends = re.compile(rf"[ \t\r\n\f\v{re.escape(blanks.decode())}]") if blanks else _BLANK
    while begin < end:
        found = ends.search(text, begin + PART, end) if begin + PART < end else None
        stop = found.start() if found else end
        part = text[begin:stop].encode("ascii")
        yield begin, part.translate(table) if table else part
        begin = stop


def _edges(part: bytes) -> NDArray[np.intp]:
    """First and past-the-last place of every token, alternating."""
    inside = np.zeros(len(part) + 2, np.bool_)
    np.greater(np.frombuffer(part, np.uint8), 32, out=inside[1:-1])
    return np.flatnonzero(inside[1:] != inside[:-1])


def count_tokens(text: str, begin: int = 0, end: int | None = None, blanks: str = "") -> int:
    """How many blank-separated tokens stand in a stretch of ASCII text; ``blanks`` are further characters to skip."""
    parts = _parts(text, begin, len(text) if end is None else end, blanks.encode())
    return sum(_edges(part).size // 2 for _, part in parts)


def token_offsets(text: str, which: NDArray[np.int64], begin: int = 0, end: int | None = None) -> NDArray[np.int64]:
    """Offsets of some of the tokens of a stretch of ASCII text, (n,) int64.

    Parameters
    ----------
    which : (n,) int64
        The tokens' numbers, ascending, from 0; one past the last token gets the end of the stretch.
    """
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


def bulk(text: str, begin: int, end: int, blanks: str = "") -> NDArray[np.float64] | None:
    """All numbers of a stretch of text, shape (n,); None where something else stands in it.

    Parameters
    ----------
    text : str
    begin, end : int
        The stretch; no token may reach over its ends.
    blanks : str
        ASCII characters that separate as blanks do, as ``","``.
    """
    extra = blanks.encode()
    try:
        out = np.empty(count_tokens(text, begin, end, blanks))
        at = 0
        for _, part in _parts(text, begin, end, extra):
            if part.translate(None, _ALLOWED):
                return None
            n = _numbers(part, out[at:])
            at += n
    except ValueError:  # a token that is no number, or a character that is not ASCII
        return None
    return out


def _numbers(part: bytes, out: NDArray[np.float64]) -> int:
    """Fill `out` with the numbers of a part; how many there are. Raises ValueError for what is none."""
    edges = _edges(part)
    start, n = edges[::2], edges.size // 2
    length = edges[1::2] - start
    counts = np.bincount(np.minimum(length, LONGEST + 1), minlength=LONGEST + 2)
    signs = sum(map(part.count, (b"e", b"E", b"-")))  # of an exponent twice as a rule: an estimate is enough
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
    digits: NDArray[np.uint8], start: NDArray[np.intp], which: NDArray[np.intp], size: int, out: NDArray[np.float64]
) -> Iterator[NDArray[np.intp]]:
    """Numbers of `size` characters: whole ones, and those with one digit before the point; yields which are neither.

    Parameters
    ----------
    digits : (characters,) uint8
        Less the code of ``0``: what is above 9 is no digit.
    start : (tokens,) intp
    which : (n,) intp
        The tokens of this length.
    """
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
