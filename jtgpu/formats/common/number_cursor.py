"""Formats that are little else than numbers (UAI, libDAI, Ergo): all numbers of a file at once, and a cursor on them.

A place in the file is only looked for when something is wrong, by counting tokens up to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import ParseError
from ...model.cpts import ROW_TOLERANCE
from .decimals import bulk, token_offsets
from .draft import MAX_AXES
from .text import BLANKS, Source, floats, shown

__all__ = ["MAX_AXES", "NumberCursor", "refuse_turned", "state_names", "without_comments"]

MAX_STATES = 1 << 22  # of all variables of a file together: a short file shall not ask for all the names there are
CHUNK = 1 << 12
ROWS_OFF = 1e-3  # rows further than this from 1 make one look whether they are meant the other way round

_TOKEN = re.compile(rf"[^{BLANKS}]++")
_COMMENT = re.compile(r"(?:#|(?:\A|(?<=[\r\n]))c)[^\r\n]*+")


def without_comments(text: str) -> str:
    """A text with blanks for lines that begin with ``c`` and for what follows a ``#``: every offset stays."""
    if "#" not in text and "c" not in text:
        return text
    return _COMMENT.sub(lambda found: " " * (found.end() - found.start()), text)


class NumberCursor:
    """The numbers of a stretch of a text, and a place among them.

    Parameters
    ----------
    source : Source
    text : str
        What is read: the source's text, or a copy in which blanks stand for what does not count.
    begin, end : int
        The stretch.

    Attributes
    ----------
    values : (n,) float64
    at : int
        Number of the token that is next.

    Raises
    ------
    ParseError
        At the first token that is no number.
    """

    def __init__(self, source: Source, text: str, begin: int = 0, end: int | None = None):
        self.source, self.text, self.begin = source, text, begin
        self.end = len(text) if end is None else end
        values = bulk(text, begin, self.end)
        if values is None:
            raise self._bad()
        self.values: NDArray[np.float64] = values
        self.at = 0
        self._chunk: list[float] = []  # the values from `_first` on, as Python has them: quicker one by one
        self._first = 0

    def _bad(self) -> ParseError:
        begin = self.begin
        while begin < self.end:  # by halves: a part of the text, then a token of it
            stop = min(begin + (1 << 16), self.end)
            blank = next((i for i in range(stop, self.end) if self.text[i] in BLANKS), self.end)
            if floats(self.text, begin, blank) is None:
                for found in _TOKEN.finditer(self.text, begin, blank):
                    if floats(found[0]) is None:
                        return self.source.error(found.start(), f"found {shown(found[0])}, expected a number")
            begin = blank
        raise AssertionError("every token is a number after all")  # pragma: no cover

    def offset(self, position: int) -> int:
        """Offset of the token with a number; the end of the stretch for one behind the last."""
        return int(self.offsets(np.array([position], np.int64))[0])

    def offsets(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets of several tokens, ascending, in one go over what stands before them."""
        return token_offsets(self.text, positions, self.begin, self.end)

    def locator(self, first: int) -> Callable[[int], int]:
        """Where the numbers of a table stand, its first being token number `first`."""
        return lambda position: self.offset(first + position)

    def found(self, position: int) -> str:
        """A token for an error message."""
        if position >= self.values.size:
            return "the end of the file" if self.end >= len(self.text) else "the end of the numbers"
        word = _TOKEN.match(self.text, self.offset(position))
        return shown(word[0] if word else "")

    def error(self, position: int, message: str) -> ParseError:
        """A `ParseError` at a token, to be raised by the caller."""
        return self.source.error(self.offset(position), message)

    def expected(self, position: int, what: str) -> ParseError:
        """A `ParseError` that says what stands at a token, and what should."""
        return self.error(position, f"found {self.found(position)}, expected {what}")

    def whole(self, what: str, least: int = 0, most: int | None = None) -> int:
        """The next token, which has to be a whole number from `least` to `most`."""
        at = self.at
        i = at - self._first
        if not 0 <= i < len(self._chunk):
            if at >= self.values.size:
                raise self.expected(at, what)
            self._chunk, self._first, i = self.values[at : at + CHUNK].tolist(), at, 0
        value = self._chunk[i]
        if not value.is_integer() or value < least or (most is not None and value > most) or value > 2**53:
            raise self.expected(at, what)
        self.at = at + 1
        return int(value)

    def take(self, n: int, what: str) -> NDArray[np.float64]:
        """The next `n` numbers, (n,), a view."""
        if n > self.values.size - self.at:
            left = self.values.size - self.at
            raise self.error(self.values.size, f"found {left} numbers for {what} before the end, expected {n}")
        self.at += n
        return self.values[self.at - n : self.at]

    def finish(self) -> None:
        """Nothing may be left."""
        if self.at < self.values.size:
            raise self.expected(self.at, "the end of the file")

    def probabilities(self, first: int, n: int, what: str) -> None:
        """Are these numbers finite and not negative? Raises at the first that is not."""
        values = self.values[first : first + n]
        if not (values.min(initial=0.0) >= 0 and values.max(initial=0.0) < np.inf):
            at = int((~((values >= 0) & (values < np.inf))).argmax())
            raise self.error(first + at, f"found {self.found(first + at)} in {what}, expected a number >= 0")


def state_names(numbers: NumberCursor, cardinality: Sequence[int], tokens: Sequence[int]) -> list[tuple[str, ...]]:
    """Names ``"0"``, ``"1"`` ... for the states of every variable.

    Parameters
    ----------
    cardinality : sequence of int
    tokens : sequence of int
        The token that says each of them.
    """
    total = 0
    made: dict[int, tuple[str, ...]] = {}
    names = []
    for c, token in zip(cardinality, tokens, strict=True):
        total += c
        if total > MAX_STATES:
            raise numbers.error(token, f"found {c:,} states, expected no more than {MAX_STATES:,} of all variables")
        if c not in made:
            made[c] = tuple(map(str, range(c)))
        names.append(made[c])
    return names


def refuse_turned(numbers: NumberCursor, first: int, table: NDArray[np.float64], what: str) -> None:
    """Refuse a table that is one of probabilities only if its child is the slowest variable, and not the fastest.

    To divide its rows by their sums would make another network of it without a word.

    Parameters
    ----------
    first : int
        The token of the table's first number.
    table : float64 array
        As it would be taken: the child last.
    """
    if table.ndim == 1 or np.abs(table.sum(axis=-1) - 1.0).max(initial=0.0) <= ROWS_OFF:
        return
    turned = table.reshape(table.shape[-1], -1).sum(axis=0)
    if np.abs(turned - 1.0).max(initial=0.0) <= ROW_TOLERANCE:
        raise numbers.error(
            first,
            f"the numbers of {what} sum to 1 with the child slowest, and not with the child fastest, as this format "
            "has it: refused",
        )
