"""Read and copy large tables on several threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # `map`, or that of a pool of threads

LARGE = 16 << 20  # bytes of a table from which threads pay
OWN = 8 << 20  # least bytes of each thread: reading them takes a millisecond or two, starting a thread a tenth
PIECE = 1 << 20  # bytes that are read at a time, so that they are still in the cache the second time
PIECES = 4  # of those, that form one task: each task takes the interpreter's lock
THREADS = 16  # with 64 on 64 cores, most wait for the interpreter's lock


@contextmanager
def thread_map(nbytes: int) -> Iterator[Each]:
    """A function that maps over the pieces of a table of this size, on several threads if that is faster."""
    if nbytes < LARGE:
        yield map
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, THREADS, nbytes // OWN), "jtgpu-rows") as pool:
        yield pool.map


def extremes(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The smallest and the largest number of each column of a (B, V) table, and 0."""
    n = len(table)
    if table.nbytes < LARGE:
        return table.min(axis=0, initial=0), table.max(axis=0, initial=0)
    step = max(PIECE // max(table.nbytes // n, 1), 1)

    def look(first: int) -> tuple[NDArray[Any], NDArray[Any]]:
        low = high = np.zeros(table.shape[1], table.dtype)
        for at in range(first, min(first + PIECES * step, n), step):
            part = table[at : min(at + step, first + PIECES * step)]
            low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
        return low, high

    with thread_map(table.nbytes) as each:
        low, high = zip(*each(look, range(0, n, PIECES * step)), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


def take_rows(table: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """``table[rows]``; fresh memory is slow to touch, so several threads copy large ones."""
    found = np.empty((len(rows), *table.shape[1:]), table.dtype)
    step = max(PIECES * PIECE // max(found.nbytes // max(len(rows), 1), 1), 1)

    def copy(first: int) -> None:
        some = slice(first, first + step)
        np.take(table, rows[some], axis=0, out=found[some], mode="clip")  # "raise" would copy twice

    with thread_map(found.nbytes) as each:
        list(each(copy, range(0, len(rows), step)))
    return found


def take_columns(table: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[Any]:
    """``table[:, columns]``, C-contiguous, on several threads if it is large."""
    found = np.empty((len(table), len(columns)), table.dtype)

    def copy(row: int) -> None:
        np.take(table[row], columns, out=found[row], mode="clip")

    with thread_map(found.nbytes) as each:
        list(each(copy, range(len(table))))
    return found
