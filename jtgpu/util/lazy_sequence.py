"""Columns of tables whose cells are computed when they are read: printed tables show few of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np


class LazySequence(Sequence[Any]):
    """A column whose cells are computed when they are read."""
    # n: Number of cells
    # cell: The cell of a row
    # whole: Computes all cells at once, for a data frame. Default: one after the other.

    def __init__(self, n: int, cell: Callable[[int], Any], whole: Callable[[], Any] | None = None):
        self._n, self._cell = n, cell
        self.whole: Callable[[], Any] = whole or (lambda: [*self])

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self._cell(i) for i in range(*row.indices(self._n))]
        return self._cell(row)

    def __iter__(self) -> Iterator[Any]:
        return map(self._cell, range(self._n))


def configurations(states: Sequence[Sequence[str]]) -> list[LazySequence]:
    """Columns of a table with a row for each configuration of some variables; the last one varies fastest."""
    # states: of each variable, by name
    n = stride = math.prod(map(len, states))

    def column(names: Sequence[str], stride: int) -> LazySequence:
        def whole() -> Any:
            return np.resize(np.repeat(np.array(names, object), stride), n)

        return LazySequence(n, lambda i: names[i // stride % len(names)], whole)

    columns = []
    for names in states:
        stride //= len(names)
        columns.append(column(names, stride))
    return columns
