"""Fast conversion of decimals, separated by white space, to an array, for files of many megabytes.

Every number becomes the nearest float64. Short plain numbers (``0``, ``12``, ``0.0375``), the majority in networks, are
computed by NumPy from their digits, all numbers of equal length at once: an integer below 2**53 divided by a power of
ten up to 10**22 is rounded once, hence correctly (Clinger, "How to read floating point numbers accurately", PLDI 1990).
The others are converted by `float`. The text is processed in parts, so that only the result grows with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

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
        found = ends.search(text, begin + PART, end) if begin + PART < end else None
        stop = found.start() if found else end
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


def token_offsets(text: str, which: NDArray[np.int64], begin: int = 0, end: int | None = None) -> NDArray[np.int64]:
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


def bulk(text: str, begin: int, end: int, blanks: str = "") -> NDArray[np.float64] | None:
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


def _numbers(part: bytes, out: NDArray[np.float64]) -> int:
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
    digits: NDArray[np.uint8], start: NDArray[np.intp], which: NDArray[np.intp], size: int, out: NDArray[np.float64]
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
