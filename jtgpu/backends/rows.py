"""Tables of states on the host, looked through by as many threads as their size is worth: arrays only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Each", "extremes"]

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # `map`, or that of a pool of threads

LARGE = 16 << 20  # bytes of a table from which threads pay
PIECE = 1 << 20  # bytes that a thread looks through at a time
THREADS = 16


def extremes(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The smallest and the largest number of each column of a (B, V) table, and 0."""
    n = len(table)
    if table.nbytes < LARGE:
        return table.min(axis=0, initial=0), table.max(axis=0, initial=0)
    step = max(PIECE // max(table.nbytes // n, 1), 1)

    def look(first: int) -> tuple[NDArray[Any], NDArray[Any]]:
        part = table[first : first + step]
        return part.min(axis=0, initial=0), part.max(axis=0, initial=0)

    with ThreadPoolExecutor(min(os.cpu_count() or 1, THREADS), "jtgpu-rows") as pool:
        low, high = zip(*pool.map(look, range(0, n, step)), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)
