"""Read and copy large tables on several threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .arrays import Cell

Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # `map`, or that of a pool of threads

LARGE = 16 << 20  # bytes of a table from which threads pay
OWN = 8 << 20  # least bytes of each thread: reading them takes a millisecond or two, starting a thread a tenth
PIECE = 1 << 20  # bytes that are read at a time, so that they are still in the cache the second time
PIECES = 4  # of those, that form one task: each task takes the interpreter's lock
THREADS = 16  # with 64 on 64 cores, most wait for the interpreter's lock


@contextmanager
def thread_map(nbytes: int) -> Iterator[Mapper]:
    """A function that maps over the pieces of a table of this size, on several threads if that is faster."""
    if nbytes < LARGE:
        yield map
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, THREADS, nbytes // OWN), "jtgpu-rows") as pool:
        yield pool.map


def extremes(table: NDArray[Cell]) -> tuple[NDArray[Cell], NDArray[Cell]]:
    """The smallest and the largest number of each column of a (B, V) table, and 0."""
    n = len(table)
    if table.nbytes < LARGE:
        return table.min(axis=0, initial=0), table.max(axis=0, initial=0)
    step = max(PIECE // max(table.nbytes // n, 1), 1)

    def look(first: int) -> tuple[NDArray[Cell], NDArray[Cell]]:
        low = high = np.zeros(table.shape[1], table.dtype)
        for at in range(first, min(first + PIECES * step, n), step):
            part = table[at : min(at + step, first + PIECES * step)]
            low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
        return low, high

    with thread_map(table.nbytes) as mapper:
        low, high = zip(*mapper(look, range(0, n, PIECES * step)), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


def take_rows(table: NDArray[Cell], rows: NDArray[np.int64]) -> NDArray[Cell]:
    """``table[rows]``; fresh memory is slow to touch, so several threads copy large ones."""
    taken = np.empty((len(rows), *table.shape[1:]), table.dtype)
    step = max(PIECES * PIECE // max(taken.nbytes // max(len(rows), 1), 1), 1)

    def copy(first: int) -> None:
        some = slice(first, first + step)
        np.take(table, rows[some], axis=0, out=taken[some], mode="clip")  # "raise" would copy twice

    with thread_map(taken.nbytes) as mapper:
        list(mapper(copy, range(0, len(rows), step)))
    return taken


def take_columns(table: NDArray[Cell], columns: NDArray[np.int64]) -> NDArray[Cell]:
    """``table[:, columns]``, C-contiguous, on several threads if it is large."""
    taken = np.empty((len(table), len(columns)), table.dtype)

    def copy(row: int) -> None:
        np.take(table[row], columns, out=taken[row], mode="clip")

    with thread_map(taken.nbytes) as mapper:
        list(mapper(copy, range(len(table))))
    return taken


# Find equal rows of a table: 64-bit hashes first, then a comparison cell by cell. NumPy arrays only; multithreaded.
#
# Tables of cases use it to answer equal cases once, by rows and by columns; the pattern cache uses it to group cases
# that observe the same variables. (The CPU engine has a compiled loop for that, `jtgpu.backends.cpu.batch`, which is
# ten times as fast on tables of a hundred cases.)

BLOCK = 1 << 14  # rows that a thread hashes or compares at a time: they stay in its cache
FEW = 256  # rows of small tables
BLOCKS = 4  # consecutive blocks of one task, since each task takes the interpreter's lock
SEED, MULTIPLIER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD)


class EqualRows(NamedTuple):
    """The different rows of a table of n rows."""

    first: NDArray[np.int64]  # (k,) the first row of each kind, ascending
    kind: NDArray[np.int64]  # (n,) kind of each row: it equals the row ``first[kind]``


def find_equal_rows(
    *tables: NDArray[np.generic], min_saving: float = 0.0, mapper: Mapper | None = None
) -> EqualRows | None:
    """Find the rows that are equal in all of some tables."""
    # *tables: (n, k) arrays: Integers or float64, C-contiguous or Fortran-contiguous (pass ``columns.T``). Floats are
    #     compared as numbers.
    # min_saving: Least share of rows that must equal earlier ones for the result to be of use. A sample of about
    #     ``2 sqrt(n / min_saving)`` rows is hashed first; the search ends if it suggests a smaller share. 0: no sample.
    # mapper: Maps a function over pieces of work, such as ``pool.map``. Default: a few threads of its own for large
    #     tables.
    # returns None if all rows differ, or if fewer than `min_saving` are equal to earlier ones.
    n = len(tables[0])
    if n < 2 or min_saving >= 1.0:
        return None
    size = math.ceil(2.0 * math.sqrt(n / min_saving)) if min_saving else n
    if size < n:
        sample = _hashes([t[:: n // size] for t in tables], map)
        different = 1 + int(np.count_nonzero(np.diff(np.sort(sample))))  # np.unique takes ten times as long
        if _expected_saving(len(sample), different, n) < min_saving:
            return None
    with thread_map(sum(t.nbytes for t in tables)) as own:
        mapped = mapper or own
        equal_to = _equal_hash(_hashes(tables, mapped))
        equal = _numbered(equal_to)
        if len(equal.first) == n or n - len(equal.first) < min_saving * n:
            return None
        if _is_exact(tables):
            return equal
        wrong = _differing(tables, equal_to, mapped)
    if len(wrong):  # equal hashes of different rows: each of these rows becomes a kind of its own
        equal_to[wrong] = wrong
        equal = _numbered(equal_to)
    return equal


def _is_exact(tables: Sequence[NDArray[np.generic]]) -> bool:
    """Whether rows of equal hashes are equal: the hash of a single word is one to one."""
    first = tables[0]
    return len(tables) == 1 and first.dtype.itemsize <= 2 and first.shape[1] * first.dtype.itemsize <= 8


def _expected_saving(sample: int, different: int, n: int) -> float:
    """Expected share of n rows that equal earlier ones, if a sample of rows has so many different ones.

    By the birthday problem: s draws among N equally frequent rows have about s^2 / 2N duplicates, n draws
    N (1 - exp(-n / N)) different ones. Rows that are not equally frequent have more duplicates.
    """
    if different == sample:
        return 0.0
    kinds = sample**2 / (2.0 * (sample - different))
    return float(1.0 + kinds / n * math.expm1(-n / kinds))


def _hashes(tables: Sequence[NDArray[np.generic]], mapper: Mapper) -> NDArray[np.uint64]:
    """A hash of each row, (n,); the same in every process."""
    n = len(tables[0])
    hashes = np.full(n, SEED, np.uint64)
    if n <= FEW:  # all words at once: most of the time would be that of calls, a few for every word
        for table in tables:
            words = _words(table) * MULTIPLIER
            words ^= words >> np.uint64(32)
            words *= SEED * np.arange(1, 2 * words.shape[1], 2, dtype=np.uint64)
            hashes = hashes * MULTIPLIER ^ words.sum(axis=1, dtype=np.uint64)
        return hashes

    def add(start: int) -> None:
        for at in range(start, min(start + BLOCKS * BLOCK, n), BLOCK):
            h = hashes[at : at + BLOCK]
            for table in tables:
                for word in _words(table[at : at + BLOCK]).T:
                    h ^= word
                    h *= MULTIPLIER
                    h ^= h >> np.uint64(32)
                    h *= MULTIPLIER  # else words of small numbers that differ in single bytes would cancel out

    list(mapper(add, range(0, n, BLOCKS * BLOCK)))
    return hashes


def _words(block: NDArray[Any]) -> NDArray[np.uint64]:
    """The rows of a block as words of 64 bits, (b, w). Integers are truncated to 16 bits, which a hash may do."""
    if block.dtype.kind == "f":
        return (block + 0.0).view(np.uint64)  # -0.0 equals 0.0
    small = np.dtype(np.uint8 if block.dtype.itemsize == 1 else np.uint16)
    b, k = block.shape
    packed = np.zeros((b, -(-k * small.itemsize // 8) * (8 // small.itemsize)), small)
    if block.strides[0] >= block.strides[1]:
        packed[:, :k] = block
    else:
        for j in range(k):
            packed[:, j] = block[:, j]
    return packed.view(np.uint64)


def _equal_hash(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each row the first row with an equal hash, (n,).

    A hash table, filled in rounds: of the rows that share a place the first takes it, and those of its hash are done;
    the others go to the next round, in which other bits of their hashes select the place.
    """
    n = len(hashes)
    bits = n.bit_length() + 1
    taker, earliest = np.empty(1 << bits, np.int64), np.empty(n, np.int64)
    rows, left = np.arange(n), hashes
    while len(rows):
        place = (left >> np.uint64(64 - bits)).astype(np.int64)
        taker[place[::-1]] = rows[::-1]  # of several assignments to one place the last one stays
        first = taker[place]
        done = hashes[first] == hashes[rows]
        earliest[rows[done]] = first[done]
        rows = rows[~done]
        left = left[~done] * MULTIPLIER
    return earliest


def _numbered(equal_to: NDArray[np.int64]) -> EqualRows:
    """Kinds in the order of their first rows."""
    is_first = equal_to == np.arange(len(equal_to))
    return EqualRows(np.flatnonzero(is_first), (np.cumsum(is_first) - 1)[equal_to])


def _differing(tables: Sequence[NDArray[np.generic]], equal_to: NDArray[np.int64], mapper: Mapper) -> NDArray[np.int64]:
    """Rows that differ from those that they are said to equal."""

    def compare(start: int) -> NDArray[np.int64]:
        to = equal_to[start : start + BLOCK]
        wrong = np.zeros(len(to), np.bool_)
        for table in tables:
            some = table[start : start + BLOCK]
            if table.strides[0] >= table.strides[1]:
                wrong |= (table[to] != some).any(axis=1)
            else:
                for j in range(table.shape[1]):
                    wrong |= table[:, j][to] != some[:, j]
        return np.flatnonzero(wrong) + start

    return np.concatenate(list(mapper(compare, range(0, len(equal_to), BLOCK))))
