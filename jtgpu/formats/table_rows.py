"""The rows of a table in braces, each after its parents' states (BIF, DSC): reading all at once, and assembling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from .block_reader import BlockReader
from .draft import Family
from .text import floats

_BLANKS = b" \t\r\n\f\v"
MAX_FILL = 1 << 24  # numbers that all `default` entries of a file may imply
PART = 1 << 16  # characters of rows parsed at a time


class TableRows:
    """The rows of one probability block."""

    # labels: of each parent, its states as they are written
    # colon: what follows the parents' states
    def __init__(self, reader: BlockReader, family: Family, labels: Sequence[Sequence[str]], colon: str = ""):
        self.reader, self.tokens, self.source, self.family = reader, reader.tokens, reader.source, family
        self.labels, self.colon = labels, colon
        self.cards = [len(states) for states in labels]
        self.n_rows, self.width = math.prod(self.cards), len(reader.draft.states[family.child])
        self.at: list[int] = []  # offset of each row that is listed
        self.values: list[NDArray[np.float64]] = []  # its numbers

    def fill(self, rows: Sequence[int], default: NDArray[np.float64] | None, otherwise: int, end: int) -> None:
        """Make the table of the rows listed, by number, and of `default`; `otherwise` is the offset of the others."""
        family, width = self.family, self.width
        n_missing = self.n_rows - len(rows)
        self.reader.n_filled += n_missing * width
        if self.reader.n_filled > MAX_FILL:
            raise self.source.error(end, f"the 'default' of {family.child!r} would fill {n_missing * width} numbers")
        table = np.empty((self.n_rows, width))
        if default is not None:
            table[:] = default
        if self.values:
            table[np.array(rows)] = np.concatenate(self.values).reshape(-1, width)
        family.numbers = table.ravel()
        places = dict(zip(rows, self.at, strict=True))
        family.locate = lambda position: places.get(position // width, otherwise)

    def all_at_once(self, begin: int, end: int) -> bool:
        """Read the whole block if its rows are plain and in one of the two orders; False, without effect, if not."""
        text = self.source.text
        # a number takes at least two characters; limits the memory that a short file can claim
        if 2 * self.n_rows * self.width > end - begin or any(len(set(s)) < len(s) for s in self.labels):
            return False
        second = text.find(";", begin, end) + 1
        head = text[begin:second], text[second : text.find(";", second, end) + 1].lstrip()
        for forward, comma in product((True, False), (", ", ",")):
            first = islice(self.heads(forward, comma), 2)
            if all(row.startswith(key) for row, key in zip(head, first, strict=False)):
                table = self.in_order(begin, end, self.heads(forward, comma), forward)
                if table is not None:
                    self.family.numbers = table
                return table is not None
        return False

    def heads(self, forward: bool, comma: str) -> Iterator[str]:
        """The beginnings of all rows, with the last or the first parent fastest."""
        if forward:
            return (f"({comma.join(key)}){self.colon}" for key in product(*self.labels))
        return (f"({comma.join(key[::-1])}){self.colon}" for key in product(*self.labels[::-1]))

    def in_order(self, begin: int, end: int, keys: Iterator[str], forward: bool) -> NDArray[np.float64] | None:
        """The numbers of rows that begin with `keys`, in the order of the network; None if a row does not."""
        text, width = self.source.text, self.width
        out = np.empty((self.n_rows, width))
        done, at = 0, begin
        while at < end:
            stop = text.find(";", at + PART, end)
            stop = end if stop < 0 else stop + 1
            rows = list(map(str.lstrip, text[at:stop].split(";")))
            at = stop
            if rows.pop():
                return None
            numbers = [row[len(key) :] for row, key in zip(rows, islice(keys, len(rows)), strict=False)
                       if row.startswith(key)]  # fmt: skip
            if len(numbers) != len(rows) or [part for part in numbers if part.count(",") != width - 1]:
                return None
            values = one_each(",".join(numbers), len(rows) * width)
            if values is None:
                return None
            out[self.places(done, len(rows), forward)] = values.reshape(-1, width)
            done += len(rows)
        if done != self.n_rows:
            return None
        order = None if forward else self.places(0, self.n_rows, forward)
        self.family.locate = lambda position: self.nth_row(begin, position // width, order)
        return out.ravel()

    def places(self, first: int, n: int, forward: bool) -> slice | NDArray[np.intp]:
        """Positions in the table of `n` rows of the file, beginning with row `first`."""
        if forward:
            return slice(first, first + n)
        at = np.unravel_index(np.arange(first, first + n), self.cards[::-1])
        return np.ravel_multi_index(at[::-1], self.cards)

    def nth_row(self, begin: int, row: int, order: slice | NDArray[np.intp] | None) -> int:
        """Offset of a row of the table in a block that `in_order` read."""
        text = self.source.text
        nth = row if not isinstance(order, np.ndarray) else int(np.flatnonzero(order == row)[0])
        at = begin
        for _ in range(nth):
            at = text.find(";", at) + 1
        return text.find("(", at)


def one_each(text: str, n: int) -> NDArray[np.float64] | None:
    """The `n` numbers of a text with single commas between them; None if it contains anything else.

    Commas are white space in this format, and a row may have any number of them. If there are as many numbers as
    expected and none is missing between two commas, no number belongs to a neighbouring row.
    """
    values = floats(text, blanks=",")
    if values is None or values.size != n:
        return None
    bare = b"," + text.encode().translate(None, _BLANKS) + b","
    return None if b",," in bare else values
