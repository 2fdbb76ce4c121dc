"""Count the tables of all sets of at most k + 1 variables, and sum the functions of a score over their cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import TableTooLarge, format_bytes
from ....util import late_imports
from ....util.arrays import Bools, Floats, Ints
from ....util.loops import loops
from ....util.system import cores, free_memory
from ..chain_records import BY_CELLS, BY_FAMILY, BY_ROWS
from .ranks import binomial_table
from .rules import AVAILABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .coded import CodedTable
    from .rules import CellFunctions

# A table of states as bit planes: one bit for each row, one plane for each state of a variable but the last.

ALIGNMENT = 4  # words of a plane are a multiple of this


class BitPlanes(NamedTuple):
    """Bit planes of a table."""

    # (P, W) bit t % 64 of word t // 64 is set if row t is in the plane's state. Bits beyond the last row are 0.
    words: NDArray[np.uint64]
    ptr: Ints  # (n,) first plane of each variable


def bit_planes(codes: NDArray[np.uint8], card: Ints) -> BitPlanes:
    """Make the bit planes of a table."""
    # codes (n, N), card (n,)
    ptr = np.concatenate([[0], np.cumsum(card - 1)])
    n_bytes = -(-codes.shape[1] // (64 * ALIGNMENT)) * 8 * ALIGNMENT
    packed = np.zeros((int(ptr[-1]), n_bytes), np.uint8)
    used = -(-codes.shape[1] // 8)
    for v, column in enumerate(codes):
        for s in range(int(card[v]) - 1):
            packed[ptr[v] + s, :used] = np.packbits(column == s, bitorder="little")
    return BitPlanes(packed.view("<u8").astype(np.uint64, copy=False), ptr[:-1].astype(np.int64))


# The same for GPUs, as words of 32 rows.


class Planes(NamedTuple):
    """Bit planes of a table, variables by ascending number of states, words of 32 rows."""

    words: NDArray[np.uint32]  # (W, P) the plane of variable v in state s, not its last one, is column ``start[s] + v``
    lasts: NDArray[np.uint32]  # (W, n) the planes of the last states
    start: NDArray[np.int32]  # (S,)
    # (B + 1,) first words of the rows whose weights have a bit, the most significant bit first
    segments: NDArray[np.uint32]


def planes_of(codes: NDArray[np.uint8], cards: Ints, weights: Ints | None) -> Planes:
    """Make the planes of a table whose variables are sorted by their number of states."""
    most = int(cards[-1])
    first = np.searchsorted(cards, np.arange(1, most) + 1)  # of the variables that have a plane of each state
    counts = len(cards) - first
    start = np.concatenate([[0], np.cumsum(counts)[:-1]]) - first
    parts = [np.ones(codes.shape[1], np.bool_)]
    if weights is not None:
        n_bits = int(weights.max()).bit_length()
        parts = [(weights >> bit & 1).astype(np.bool_) for bit in range(n_bits - 1, -1, -1)]
    words, lasts, segments = [], [], [0]
    for part in parts:
        rows = codes if weights is None else codes[:, part]
        packed = [_pack(rows[first[s] :] == s) for s in range(most - 1)]
        words.append(np.concatenate(packed))
        lasts.append(_pack(rows == (cards - 1)[:, None]))
        segments.append(segments[-1] + words[-1].shape[1])
    return Planes(
        np.ascontiguousarray(np.concatenate(words, axis=1).T),
        np.ascontiguousarray(np.concatenate(lasts, axis=1).T),
        start.astype(np.int32),
        np.array(segments, np.uint32),
    )


def _pack(bits: Bools) -> NDArray[np.uint32]:
    """Rows of bits as words of 32."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded = np.zeros((len(bits), -(-packed.shape[1] // 4) * 4), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u4").astype(np.uint32, copy=False)


_counts = loops("jtgpu.learn.dags.loops.counts")
_formulas = loops("jtgpu.learn.dags.loops.scores")

MAX_CELLS = 1_000_000  # of a family's table
CHUNKS = 16  # of each thread
FEW = 3000  # sets that one thread counts as fast as several


def set_values(  # noqa: PLR0913
    table: CodedTable, functions: CellFunctions, max_parents: int, *, ess: float = 1.0, max_cells: int = MAX_CELLS,
    memory_limit: int | None = None, threads: int | None = None, only_last: bool = False,
    prefixes: tuple[int, int] | None = None,
) -> list[Floats]:  # fmt: skip
    """Count the sets of at most ``max_parents + 1`` variables."""
    # functions: Made for these variables, or more
    # ess: Of BDs scores
    # max_cells: Larger tables are left out; their values are -inf
    # only_last: Of the largest sets, only those with the last variable are counted; the values of the others are
    #     undefined
    # prefixes: (int, int) of the largest sets, only those are counted whose larger members, all but the smallest, have
    #     these ranks; only their values are returned
    # returns list of (K, C(n, l)) Sums over the cells of the tables of the sets of l = 0, 1, ..., ``max_parents + 1``
    #     variables, by rank; see `jtgpu.learn.dags.loops.counts.count_sets`.
    if functions.mode == AVAILABLE:
        return _available_values(table, functions, max_parents, max_cells, memory_limit, threads, only_last, prefixes)
    card, n, sizes = table.cardinality, len(table.names), max_parents + 1
    by_family = functions.mode == BY_FAMILY
    n_values = 1 if functions.mode == BY_CELLS else len(functions.shapes)
    cells = _cells_of_sets(card, sizes, max_cells)
    _require_memory([int(c[-1]) for c in cells[:-1]], n, sizes, sizes if by_family else n_values, memory_limit)
    planes = BitPlanes(np.zeros((0, 1), np.uint64), np.zeros(n, np.int64))
    if table.weights is None:
        planes = bit_planes(table.codes, card)
    weights = np.zeros(0, np.int64) if table.weights is None else table.weights
    codes = np.ascontiguousarray(table.codes)
    binomials = binomial_table(n, sizes + 1)
    below = np.array([table.n_cases], np.int32)
    values = [_values_of_empty_set(functions, ess, table.n_cases)]
    for size in range(1, sizes + 1):
        n_sets, n_prefixes = math.comb(n, size), math.comb(n, size - 1)
        is_last = size == sizes
        own = np.empty(0 if is_last else cells[size][-1], np.int32)
        sums = np.empty((size if by_family else n_values, n_sets))

        data = codes, weights, card, planes.words, planes.ptr, binomials, below, cells[size - 1], own, cells[size]

        def count(chunk: tuple[int, int], size: int = size, data: Any = data, out: Any = sums) -> None:
            _counts.count_sets(
                size, *chunk, *data, functions.mode, functions.shapes, functions.values, functions.products, ess,
                max_cells, out,
            )  # fmt: skip

        first, end = math.comb(n - 1, size - 1) if only_last and is_last and size > 1 else 0, n_prefixes
        if is_last and prefixes is not None:
            first, end = prefixes
        run_chunks(count, first, end, n_sets, threads)
        values.append(sums)
        below = own
    if prefixes is not None:
        values[-1] = values[-1][:, slice(*_columns(prefixes, n, sizes))].copy()
    return values


def _columns(prefixes: tuple[int, int], n: int, size: int) -> tuple[int, int]:
    """Ranks of the first set with one of these ranks of larger members, and of the first one beyond."""
    n_prefixes, n_sets = math.comb(n, size - 1), math.comb(n, size)
    first, end = (n_sets if rank == n_prefixes else _first_set(rank, n, size) for rank in prefixes)
    return first, end


def _first_set(prefix: int, n: int, size: int) -> int:
    """Rank of the smallest set whose larger members have a rank; of the next one, if there is none."""
    column, c = 0, n
    for j in range(size - 1, 0, -1):
        c -= 1
        while math.comb(c, j) > prefix:
            c -= 1
        prefix -= math.comb(c, j)
        column += math.comb(c, j + 1)
    return column


def _available_values(  # noqa: PLR0913
    table: CodedTable, functions: CellFunctions, max_parents: int, max_cells: int, memory_limit: int | None,
    threads: int | None, only_last: bool, prefixes: tuple[int, int] | None,
) -> list[Floats]:  # fmt: skip
    """`set_values` of a table with missing cells: scores with each member as the child."""
    card, n, sizes = table.cardinality, len(table.names), max_parents + 1
    _require_memory([], n, sizes, sizes, memory_limit)
    weights = np.zeros(0, np.int64) if table.weights is None else table.weights
    data = np.ascontiguousarray(table.codes), weights, card, binomial_table(n, sizes + 1)
    options = float(table.n_cases), float(functions.shapes[0]), max_cells
    values = [np.zeros((1, 1))]
    for size in range(1, sizes + 1):
        n_sets = math.comb(n, size)
        scores = np.full((size, n_sets), -np.inf)

        def count(chunk: tuple[int, int], size: int = size, out: Any = scores) -> None:
            _formulas.score_sets(size, *chunk, *data, *options, out)

        first, end = math.comb(n - 1, size) if only_last and size == sizes else 0, n_sets
        if size == sizes and prefixes is not None:
            first, end = _columns(prefixes, n, size)
            scores = scores[:, first:end]
        run_chunks(count, first, end, n_sets, threads)
        values.append(scores)
    return values


def score_child(
    v: int, card: Ints, functions: CellFunctions, values: list[Floats], penalty: float, binomials: Ints, scores: Floats
) -> None:
    """Scores of a variable with every parent set, by size and rank, from the values of sets."""
    row, begin = functions.parent_row(int(card[v])), 0
    for size in range(len(values) - 1):
        end = begin + math.comb(len(card) - 1, size)
        part = scores[begin:end]
        _formulas.fill_scores(v, size, card, binomials, values[size + 1], values[size], row, penalty, part)
        begin = end


def run_chunks(work: Callable[[tuple[int, int]], None], begin: int, end: int, cost: int, threads: int | None) -> None:
    """Divide begin..end - 1 into ranges, and run them on several threads if the cost is worth it."""
    threads = threads or cores()
    if threads == 1 or cost < FEW or end - begin < 2:
        work((begin, end))
        return
    bounds = np.linspace(begin, end, min(end - begin, CHUNKS * threads) + 1).astype(np.int64).tolist()
    chunks = list(itertools.pairwise(bounds))
    with ThreadPoolExecutor(threads, "jtgpu-learn") as pool:
        list(pool.map(work, reversed(chunks)))  # the last ones are the largest


def _cells_of_sets(card: Ints, sizes: int, max_cells: int) -> list[Ints]:
    """First cell of each set's table, by size and rank, and the end of the last one. Large tables have no cells."""
    n = len(card)
    cells = [np.ones(1, np.int64)]
    for size in range(1, sizes + 1):
        parts = [cells[-1][: math.comb(m, size - 1)] * card[m] for m in range(n)]
        n_cells = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        n_cells[n_cells > max_cells] = 0
        cells.append(n_cells)
    return [np.concatenate([[0], np.cumsum(c)]) for c in cells]


def _require_memory(cells: list[int], n: int, sizes: int, n_values: int, limit: int | None) -> None:
    limit = int(0.8 * free_memory()) if limit is None else limit
    n_sets = sum(math.comb(n, size) for size in range(sizes + 1))
    needed = 4 * sum(cells) + 8 * (n_values + 2) * n_sets
    if needed > limit:
        raise TableTooLarge(
            f"counting all families of {n} variables with up to {sizes - 1} parents needs {format_bytes(needed)}, more "
            f"than the limit of {format_bytes(limit)}; lower max_parents",
            n_sets,
            needed,
            limit,
        )


def _values_of_empty_set(functions: CellFunctions, ess: float, n: int) -> Floats:
    """Values of the empty set, whose table has a single cell."""
    if functions.mode == BY_ROWS and n < functions.values.shape[1]:
        return np.ascontiguousarray(functions.values[:, n : n + 1])
    shapes = np.array([ess]) if functions.mode == BY_CELLS else functions.shapes
    sums = np.zeros((max(len(shapes), 1), 1))
    _formulas.tabulate(shapes, n, sums)
    return sums


# Score tables on a cluster: each worker counts a range of the largest sets, and all sets that are smaller.

PARTS = 4  # of each worker
MIN_SETS = 1000  # of a part


class _Job(NamedTuple):
    """The arguments of a worker; sent once."""

    table: CodedTable
    functions: CellFunctions
    max_parents: int
    ess: float
    max_cells: int


def set_values_on(  # noqa: PLR0913
    cluster: object, table: CodedTable, functions: CellFunctions, max_parents: int, *, ess: float, max_cells: int,
    memory_limit: int | None = None, threads: int | None = None,
) -> list[Floats]:  # fmt: skip
    """`set_values`, bit-identical: the sets of ``max_parents + 1`` variables are counted on a cluster."""
    options: dict[str, Any] = {"ess": ess, "max_cells": max_cells, "memory_limit": memory_limit, "threads": threads}
    if max_parents == 0:
        return set_values(table, functions, 0, **options)
    n, size = len(table.names), max_parents + 1
    n_sets = math.comb(n, size)

    def divide(n_workers: int) -> list[tuple[int, int]]:
        n_parts = max(min(PARTS * n_workers, n_sets // MIN_SETS), 1)
        ends = sorted({_first_prefix(n_sets * i // n_parts, n, size) for i in range(1, n_parts)} - {0})
        last = math.comb(n, max_parents)
        return list(zip([0, *ends], [*ends, last], strict=True))

    job = _Job(table, functions, max_parents, ess, max_cells)
    parts = list(late_imports.cluster().run_tasks(cluster, _count_part, job, divide, "cpu"))
    return [*set_values(table, functions, max_parents - 1, **options), np.concatenate(parts, axis=1)]


def _first_prefix(column: int, n: int, size: int) -> int:
    """Rank of the larger members of the set with a rank."""
    binomials, rank, c = binomial_table(n, size), 0, n
    for j in range(size, 0, -1):
        c -= 1
        while binomials[c, j] > column:
            c -= 1
        column -= int(binomials[c, j])
        rank += int(binomials[c, j - 1]) if j > 1 else 0
    return rank


def _count_part(job: _Job, prefixes: tuple[int, int], threads: int) -> Floats:
    """The task of a worker."""
    table = job.table
    codes = np.array(table.codes)  # arrays of the object store are read-only, which compiled loops do not take
    weights = None if table.weights is None else np.array(table.weights)
    f = job.functions
    functions = replace(
        f, shapes=np.array(f.shapes), products=np.array(f.products), arities=np.array(f.arities),
        values=np.array(f.values),
    )  # fmt: skip
    values = set_values(
        replace(table, codes=codes, weights=weights), functions, job.max_parents, ess=job.ess,
        max_cells=job.max_cells, threads=threads, prefixes=prefixes,
    )  # fmt: skip
    return values[-1]
