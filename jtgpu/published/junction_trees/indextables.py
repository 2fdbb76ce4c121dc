"""Index tables: the positions in a clique's table of the entries of each separator configuration.

The published method (A. Gottoli, F. Pettenuzzo, 2014, section 2; after Zheng, Mengshoel, Chong, UAI 2011) stores the
map from separator configurations to clique entries explicitly. For a separator of n configurations, and m entries of
the clique for each of them, cell ``[i, j]`` of the (m, n) table is the index into the clique's table of the i-th entry
of configuration j, so that neighbouring threads (j) read neighbouring cells, and the entries to be summed are n cells
apart. Both sides are padded to the next power of two; padding holds the largest number of the type (all bits one, the
published ``SIZE_MAX``), which kernels skip.

A table depends only on the clique's extents and on which of its axes the separator keeps: its `Shape`. Axes of one
state are dropped, adjacent axes that are both kept or both summed are merged, and cliques of equal `Shape` share one
table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError, TableTooLarge, format_bytes
from ...plans.plan import Plan
from ...util.arrays import Ints
from ...util.system import free_memory

MAX_ENTRIES = 100_000_000  # the published program rejects larger clique tables
_ALIGNMENT = 256  # bytes; as cudaMalloc guarantees, so that consecutive tables stay aligned on a device
_NARROW = 16  # tables of fewer columns are written column by column: NumPy's inner loop would be too short


class Shape(NamedTuple):
    """The merged axes of a clique, and which of them the separator keeps: all that an index table depends on."""

    extents: tuple[int, ...]  # states of each merged axis, slowest first; no axis of one state
    kept: tuple[bool, ...]  # whether the separator has it

    @property
    def n(self) -> int:
        """Configurations of the separator: columns."""
        return math.prod(e for e, k in zip(self.extents, self.kept, strict=True) if k)

    @property
    def m(self) -> int:
        """Entries of the clique for each configuration: rows."""
        return math.prod(e for e, k in zip(self.extents, self.kept, strict=True) if not k)

    @property
    def entries(self) -> int:
        """Entries of the clique's table, n * m."""
        return math.prod(self.extents)

    @property
    def padded_entries(self) -> int:
        """Cells of the index table, padding included."""
        return padded(self.n) * padded(self.m)


@dataclass(frozen=True, eq=False)
class IndexTable:
    """One index table."""

    # (m_pad, n_pad) uint32 or uint64: Read-only. ``index[i, j]`` for i < m, j < n: the i-th entry of configuration j;
    #     `sentinel` elsewhere.
    index: NDArray[np.unsignedinteger]
    # n, m: Configurations of the separator, entries of the clique for each
    n: int
    m: int

    @property
    def n_pad(self) -> int:
        """Columns, a power of two."""
        return int(self.index.shape[1])

    @property
    def m_pad(self) -> int:
        """Rows, a power of two."""
        return int(self.index.shape[0])

    @property
    def sentinel(self) -> int:
        """The value of padding cells: all bits one."""
        return int(np.iinfo(self.index.dtype).max)

    @property
    def inner(self) -> NDArray[np.unsignedinteger]:
        """The (m, n) part without padding, a view."""
        return self.index[: self.m, : self.n]


def padded(count: int) -> int:
    """The power of two at or above `count` (at least 1)."""
    return 1 << max(count - 1, 0).bit_length()


def shape_of(table: Iterable[int], kept: Iterable[int], cardinality: Ints) -> Shape:
    """The `Shape` of the table over the variables `table` seen from the variables `kept`."""
    # table: iterable of int: Variables of the clique in the order of its axes
    # kept: iterable of int: Variables of the separator: a subsequence of `table`
    # cardinality: (V,) int64
    # raises PlanError: If `kept` is not a subsequence of `table`.
    table, kept = [int(v) for v in table], [int(v) for v in kept]
    wanted = set(kept)
    if [v for v in table if v in wanted] != kept:
        raise PlanError(f"separator {kept} is not an ordered subsequence of clique {table}")
    extents: list[int] = []
    flags: list[bool] = []
    for v in table:
        extent, flag = int(cardinality[v]), v in wanted
        if extent == 1:
            continue
        if flags and flags[-1] == flag:
            extents[-1] *= extent
        else:
            extents.append(extent)
            flags.append(flag)
    return Shape(tuple(extents), tuple(flags))


def separator_shapes(plan: Plan) -> tuple[list[Shape | None], list[Shape | None]]:
    """For each clique, the shapes of its own and of its parent's table seen from the separator between them."""
    # returns child, parent: lists of C: None for a root, which has no separator
    card = plan.cardinality
    child: list[Shape | None] = []
    parent: list[Shape | None] = []
    for clique, separator, up in zip(plan.cliques, plan.separators, plan.clique_parent.tolist(), strict=True):
        child.append(None if up < 0 else shape_of(clique, separator, card))
        parent.append(None if up < 0 else shape_of(plan.cliques[up], separator, card))
    return child, parent


def offsets(shape: Shape) -> tuple[Ints, Ints]:
    """The two factors of an index table: ``index[i, j] = rows[i] + columns[j]``."""
    # returns rows: (m,) int64
    # returns columns: (n,) int64
    parts = {False: np.zeros(1, np.int64), True: np.zeros(1, np.int64)}
    stride = shape.entries
    for extent, kept in zip(shape.extents, shape.kept, strict=True):
        stride //= extent
        axis = np.arange(extent, dtype=np.int64) * stride
        parts[kept] = (parts[kept][:, None] + axis).reshape(-1)
    return parts[False], parts[True]


def index_dtype(entries: int) -> np.dtype[np.unsignedinteger]:
    """The index type for tables of up to `entries` entries: uint32 unless that needs its largest number."""
    return np.dtype(np.uint32 if entries <= np.iinfo(np.uint32).max else np.uint64)


def build(shape: Shape, out: NDArray[np.unsignedinteger] | None = None) -> IndexTable:
    """Write one index table."""
    # out: (m_pad, n_pad) uint32 or uint64: C-contiguous array to write into; None: a new one of the smallest type that
    #     fits
    n, m = shape.n, shape.m
    if out is None:
        out = np.empty((padded(m), padded(n)), index_dtype(shape.entries))
    rows, columns = (x.astype(out.dtype) for x in offsets(shape))
    sentinel = np.iinfo(out.dtype).max
    out[m:] = sentinel
    out[:m, n:] = sentinel
    if n < _NARROW:
        for j, column in enumerate(columns):
            np.add(rows, column, out=out[:m, j])
    else:
        np.add(rows[:, None], columns, out=out[:m, :n])
    out.flags.writeable = False
    return IndexTable(out, n, m)


def build_all(
    shapes: Sequence[Shape],
    *,
    max_entries: int | None = MAX_ENTRIES,
    memory_limit: int | None = None,
    buffer: NDArray[np.uint8] | None = None,
) -> list[IndexTable]:
    """Index tables of all `shapes`, one for each distinct shape, consecutive in one buffer."""
    # max_entries: Size limit of a clique table; None: no limit
    # memory_limit: Bytes allowed for all tables together; None: the free memory of the machine
    # buffer: (bytes,) uint8: Memory for the tables, at least as large as `layout` returns; None: allocated here
    # returns list of IndexTable: In the order of `shapes`; equal shapes give the same object. All tables have one index
    #     type.
    # raises TableTooLarge: Before memory is allocated, if a table or the sum of all is over its limit.
    largest = max((s.entries for s in shapes), default=0)
    if max_entries is not None and largest > max_entries:
        raise TableTooLarge(
            f"a clique table of {largest:,} entries is over the limit of {max_entries:,}", entries=largest
        )
    starts, needed = layout(shapes)
    limit = free_memory() if memory_limit is None else memory_limit
    if buffer is None:
        if needed > limit:
            raise TableTooLarge(
                f"the index tables need {format_bytes(needed)}, and {format_bytes(limit)} may be used",
                entries=largest,
                needed=needed,
                limit=limit,
            )
        buffer = np.empty(needed, np.uint8)
    dtype = index_dtype(largest)
    made: dict[Shape, IndexTable] = {}
    for shape, start in starts.items():
        cells = buffer[start : start + shape.padded_entries * dtype.itemsize].view(dtype)
        made[shape] = build(shape, cells.reshape(padded(shape.m), padded(shape.n)))
    return [made[s] for s in shapes]


def layout(shapes: Sequence[Shape]) -> tuple[dict[Shape, int], int]:
    """The first byte of each distinct shape's table in the buffer of `build_all`, and the bytes of all tables."""
    itemsize = index_dtype(max((s.entries for s in shapes), default=0)).itemsize
    starts: dict[Shape, int] = {}
    end = 0
    for shape in shapes:
        if shape not in starts:
            starts[shape] = end
            end += -(-shape.padded_entries * itemsize // _ALIGNMENT) * _ALIGNMENT
    return starts, end
