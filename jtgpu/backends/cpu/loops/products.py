"""Compiled loops of a large contraction of two tables as products of matrices.

By the tables that have them, the variables of a contraction form groups: *batch* (both inputs and the output), *left*
(A and the output), *right* (B and the output), *common* (both inputs; eliminated), and those of one input alone, which
are eliminated while that input is copied. For each batch index the output is the product of a matrix, left x common,
with another, common x right. Blocks of both are copied to *panels*, whose cells stand in the order in which they are
read: 8 cells of A and 6 or 4 of B a term. A tile of 8 x 6 cells of the output stays in registers over all terms of a
block: two vector loads and six broadcasts for twelve multiply-adds of four lanes. `kernels` loads a row of A for every
multiply-add, and far strides miss the caches.

Every cell of the output adds its terms one after the other, in the order of the record's loops: blocks, slices for
threads and the choice of A do not change its bits. See `kernels` for arguments that occur everywhere.
"""

from __future__ import annotations

from ....util.jit import compiled, inlined
from .. import records as rec
from . import panels as pn
from .vector import LANES, accumulate, largest, load, maximum, peek, peek_int, poke, splat, store, zero


@compiled()
def _begin(block, o, rows, m, by_row):  # type: ignore[no-untyped-def]
    """Present values of m cells of the output, as a vector; zeros if these are the first terms."""
    if not block.add:
        return zero()
    if by_row:
        return load(block.arena, o + peek_int(rows, 0), m)
    store(block.room, 0, LANES, zero())
    for i in range(m):
        poke(block.room, i, peek(block.arena, o + peek_int(rows, i)))
    return load(block.room, 0, LANES)


@compiled()
def _end(block, o, rows, m, by_row, x):  # type: ignore[no-untyped-def]
    """Write the first m lanes of x to a column of the output."""
    if by_row:
        store(block.arena, o + peek_int(rows, 0), m, x)
        return
    store(block.room, 0, LANES, x)
    for i in range(m):
        poke(block.arena, o + peek_int(rows, i), peek(block.room, i))


@compiled()
def _tile_wide(op, block, right, columns, o, rows, m, by_row, n):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """A tile of m rows and n <= 6 columns; returns the lanewise maximum of what was written."""
    # right: Address of the panel of B
    # columns, rows: Addresses of the offsets in the output
    o0, o1 = o + peek_int(columns, 0), o + peek_int(columns, 1)
    o2, o3 = o + peek_int(columns, 2), o + peek_int(columns, 3)
    o4, o5 = o + peek_int(columns, 4), o + peek_int(columns, 5)
    x0 = x1 = x2 = x3 = x4 = x5 = zero()
    if block.add:
        x0, x1 = _begin(block, o0, rows, m, by_row), _begin(block, o1, rows, m, by_row)
        x2, x3 = _begin(block, o2, rows, m, by_row), _begin(block, o3, rows, m, by_row)
        x4 = _begin(block, o4, rows, m, by_row)
        if n == pn.WIDE:
            x5 = _begin(block, o5, rows, m, by_row)
    left = block.room + 8 * pn.LEFT_PANEL
    for t in range(block.terms):
        y, p = load(left, LANES * t, LANES), pn.WIDE * t
        x0 = accumulate(op, y, splat(peek(right, p)), x0)
        x1 = accumulate(op, y, splat(peek(right, p + 1)), x1)
        x2 = accumulate(op, y, splat(peek(right, p + 2)), x2)
        x3 = accumulate(op, y, splat(peek(right, p + 3)), x3)
        x4 = accumulate(op, y, splat(peek(right, p + 4)), x4)
        x5 = accumulate(op, y, splat(peek(right, p + 5)), x5)
    _end(block, o0, rows, m, by_row, x0)
    _end(block, o1, rows, m, by_row, x1)
    _end(block, o2, rows, m, by_row, x2)
    _end(block, o3, rows, m, by_row, x3)
    _end(block, o4, rows, m, by_row, x4)
    if n == pn.WIDE:
        _end(block, o5, rows, m, by_row, x5)
    return maximum(maximum(maximum(x0, x1), maximum(x2, x3)), maximum(x4, x5))


@compiled()
def _tile_narrow(op, block, right, columns, o, rows, m, by_row, n):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """`_tile_wide` of at most 4 columns."""
    x0 = x1 = x2 = x3 = zero()
    o0 = o + peek_int(columns, 0)
    o1, o2 = o + peek_int(columns, 1), o + peek_int(columns, 2)
    o3 = o + peek_int(columns, 3)
    if block.add:
        x0 = _begin(block, o0, rows, m, by_row)
        if n > 1:
            x1 = _begin(block, o1, rows, m, by_row)
        if n > 2:
            x2 = _begin(block, o2, rows, m, by_row)
        if n > 3:
            x3 = _begin(block, o3, rows, m, by_row)
    left = block.room + 8 * pn.LEFT_PANEL
    for t in range(block.terms):
        y, p = load(left, LANES * t, LANES), pn.NARROW * t
        x0 = accumulate(op, y, splat(peek(right, p)), x0)
        x1 = accumulate(op, y, splat(peek(right, p + 1)), x1)
        x2 = accumulate(op, y, splat(peek(right, p + 2)), x2)
        x3 = accumulate(op, y, splat(peek(right, p + 3)), x3)
    _end(block, o0, rows, m, by_row, x0)
    if n > 1:
        _end(block, o1, rows, m, by_row, x1)
    if n > 2:
        _end(block, o2, rows, m, by_row, x2)
    if n > 3:
        _end(block, o3, rows, m, by_row, x3)
    return maximum(maximum(x0, x1), maximum(x2, x3))


@inlined
def _is_swapped(record, room):  # type: ignore[no-untyped-def]
    """Whether the second input is better A: its rows are then the lanes of vectors."""
    shape, n = pn.sort(record, room, False)
    left, right = room + 8 * (pn.GROUPS + 4 * (pn.LEFT * pn.MOST_LOOPS + n[pn.LEFT] - 1)), 0
    right = room + 8 * (pn.GROUPS + 4 * (pn.RIGHT * pn.MOST_LOOPS + n[pn.RIGHT] - 1))
    rows = (peek_int(left, 2) == 1) + 2 * (peek_int(left, 1) == 1) if n[pn.LEFT] > 0 else 3
    columns = (peek_int(right, 3) == 1) + 2 * (peek_int(right, 1) == 1) if n[pn.RIGHT] > 0 else 3
    common = shape.common
    return pn.cost(shape.right, shape.left, common, columns) < pn.cost(shape.left, shape.right, common, rows)


@inlined
def _run_left(op, block, a, o, n_columns, left, n_alone, panel):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Make the output's rows `left` (first, number) of one batch index, tile after tile."""
    first, m = left
    rows_o = block.room + 8 * (pn.LEFT_O + first)
    pn.pack_left(op, block, a, block.room + 8 * (pn.LEFT_A + first), m, n_alone)
    by_row, high = pn.are_neighbours(rows_o, m), zero()
    for j in range(0, n_columns, pn.WIDE):
        columns, right, n = block.room + 8 * (pn.RIGHT_O + j), panel + 8 * block.terms * j, min(n_columns - j, pn.WIDE)
        if n <= pn.NARROW:
            high = maximum(high, _tile_narrow(op, block, right, columns, o, rows_o, m, by_row, n))
        else:
            high = maximum(high, _tile_wide(op, block, right, columns, o, rows_o, m, by_row, n))
    return high


@inlined
def _run_columns(op, block, cells, shape, n, columns):  # type: ignore[no-untyped-def]
    """Make some columns of every batch index over the terms of one block."""
    o, a, b = cells
    n_columns, size, most_batch = columns
    room, high = block.room, zero()
    if shape.left <= pn.MOST_LEFT:
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 1, 0, shape.left, pn.LEFT_O)
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 2, 0, shape.left, pn.LEFT_A)
    for s in range(0, shape.batch, pn.MOST_BATCH):
        n_listed = min(shape.batch - s, pn.MOST_BATCH)
        pn.offsets(room, pn.BATCH, n[pn.BATCH], 1, s, n_listed, pn.BATCH_O)
        pn.offsets(room, pn.BATCH, n[pn.BATCH], 2, s, n_listed, pn.BATCH_A)
        pn.offsets(room, pn.BATCH, n[pn.BATCH], 3, s, n_listed, pn.BATCH_B)
        for f in range(0, n_listed, most_batch):
            end = min(f + most_batch, n_listed)
            for i in range(f, end):
                panel = pn.RIGHT_PANEL + (i - f) * size
                pn.pack_right(op, block, b + peek_int(room, pn.BATCH_B + i), n_columns, panel, shape.only_b)
            for r in range(0, shape.left, pn.MOST_LEFT):
                n_rows = min(shape.left - r, pn.MOST_LEFT)
                if shape.left > pn.MOST_LEFT:
                    pn.offsets(room, pn.LEFT, n[pn.LEFT], 1, r, n_rows, pn.LEFT_O)
                    pn.offsets(room, pn.LEFT, n[pn.LEFT], 2, r, n_rows, pn.LEFT_A)
                for q in range(0, n_rows, LANES):
                    left = q, min(n_rows - q, LANES)
                    for i in range(f, end):
                        in_a, in_o = a + peek_int(room, pn.BATCH_A + i), o + peek_int(room, pn.BATCH_O + i)
                        panel = room + 8 * (pn.RIGHT_PANEL + (i - f) * size)
                        high = maximum(high, _run_left(op, block, in_a, in_o, n_columns, left, shape.only_a, panel))
    return high


@compiled()
def _tile_lanes(op, block, right, o, cells, m, n_rows, n_columns):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Two rows and three columns of the output for m <= 8 batch indices; returns the lanewise maximum."""
    # cells: Addresses of the rows' and the columns' offsets in the output
    rows, columns = cells
    o0, o1 = o + peek_int(rows, 0), o + peek_int(rows, n_rows - 1)
    c1, c2 = min(1, n_columns - 1), n_columns - 1
    p0, p1, p2 = peek_int(columns, 0), peek_int(columns, c1), peek_int(columns, c2)
    x0 = x1 = x2 = x3 = x4 = x5 = zero()
    if block.add:
        x0, x1 = load(block.arena, o0 + p0, m), load(block.arena, o0 + p1, m)
        x2, x3 = load(block.arena, o0 + p2, m), load(block.arena, o1 + p0, m)
        x4, x5 = load(block.arena, o1 + p1, m), load(block.arena, o1 + p2, m)
    left = block.room + 8 * pn.LEFT_PANEL
    second, step = (n_rows - 1) * LANES, LANES * n_columns
    q = 0
    for t in range(block.terms):
        y0, y1 = load(left, 2 * LANES * t, LANES), load(left, 2 * LANES * t + second, LANES)
        z = load(right, q, LANES)
        x0, x3 = accumulate(op, y0, z, x0), accumulate(op, y1, z, x3)
        z = load(right, q + LANES * c1, LANES)
        x1, x4 = accumulate(op, y0, z, x1), accumulate(op, y1, z, x4)
        z = load(right, q + LANES * c2, LANES)
        x2, x5 = accumulate(op, y0, z, x2), accumulate(op, y1, z, x5)
        q += step
    store(block.arena, o0 + p0, m, x0)
    store(block.arena, o0 + p1, m, x1)
    store(block.arena, o0 + p2, m, x2)
    store(block.arena, o1 + p0, m, x3)
    store(block.arena, o1 + p1, m, x4)
    store(block.arena, o1 + p2, m, x5)
    return maximum(maximum(maximum(x0, x1), maximum(x2, x3)), maximum(x4, x5))


@inlined
def _run_lanes(op, block, cells, shape, n, columns, m):  # type: ignore[no-untyped-def]
    """Make some columns of m <= 8 neighbouring batch indices over the terms of one block."""
    o, a, b = cells
    room, high = block.room, zero()
    for j in range(0, columns, 3):
        width = min(columns - j, 3)
        for c in range(width):
            panel = room + 8 * (pn.RIGHT_PANEL + LANES * (block.terms * j + c))
            in_b = b + peek_int(room, pn.RIGHT_B + j + c)
            pn.copy_rows(
                op, block, in_b, m, panel, LANES * width, room + 8 * pn.COMMON_B, room + 8 * pn.ALONE_B, shape.only_b
            )
    for r in range(0, shape.left, pn.MOST_LEFT):
        n_rows = min(shape.left - r, pn.MOST_LEFT)
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 1, r, n_rows, pn.LEFT_O)
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 2, r, n_rows, pn.LEFT_A)
        for i in range(0, n_rows, 2):
            two = min(n_rows - i, 2)
            for c in range(two):
                panel, in_a = room + 8 * (pn.LEFT_PANEL + LANES * c), a + peek_int(room, pn.LEFT_A + i + c)
                pn.copy_rows(
                    op, block, in_a, m, panel, 2 * LANES, room + 8 * pn.COMMON_A, room + 8 * pn.ALONE_A, shape.only_a
                )
            for j in range(0, columns, 3):
                at = room + 8 * (pn.LEFT_O + i), room + 8 * (pn.RIGHT_O + j)
                right = room + 8 * (pn.RIGHT_PANEL + LANES * block.terms * j)
                high = maximum(high, _tile_lanes(op, block, right, o, at, m, two, min(columns - j, 3)))
    return high


@compiled()
def _contract_lanes(op, arena, record, room):  # type: ignore[no-untyped-def]
    """`contract_packed` where the row runs over neighbouring batch indices, which are the lanes of vectors."""
    shape, n = pn.sort(record, room, False)
    o, a, b = peek_int(record, rec.OUT), peek_int(record, rec.A), peek_int(record, rec.B)
    row, high, most = peek_int(record, rec.ROW), zero(), pn.MOST_COMMON // 2
    pn.offsets(room, pn.ONLY_A, n[pn.ONLY_A], 2, 0, shape.only_a, pn.ALONE_A)
    pn.offsets(room, pn.ONLY_B, n[pn.ONLY_B], 3, 0, shape.only_b, pn.ALONE_B)
    for k in range(0, shape.common, most):
        terms = min(shape.common - k, most)
        block = pn.Block(arena, room, terms, k > 0)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 2, k, terms, pn.COMMON_A)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 3, k, terms, pn.COMMON_B)
        most_columns = min(pn.MOST_RIGHT, pn.RIGHT_CELLS // (terms * LANES))
        for c in range(0, shape.right, most_columns):
            n_columns = min(shape.right - c, most_columns)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 1, c, n_columns, pn.RIGHT_O)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 3, c, n_columns, pn.RIGHT_B)
            for s in range(0, shape.batch, row):
                pn.offsets(room, pn.BATCH, n[pn.BATCH], 1, s, 1, pn.BATCH_O)
                pn.offsets(room, pn.BATCH, n[pn.BATCH], 2, s, 1, pn.BATCH_A)
                pn.offsets(room, pn.BATCH, n[pn.BATCH], 3, s, 1, pn.BATCH_B)
                in_o, in_a = o + peek_int(room, pn.BATCH_O), a + peek_int(room, pn.BATCH_A)
                in_b = b + peek_int(room, pn.BATCH_B)
                for i in range(0, row, LANES):
                    cells, m = (in_o + i, in_a + i, in_b + i), min(row - i, LANES)
                    high = maximum(high, _run_lanes(op, block, cells, shape, n, n_columns, m))
    return largest(high)


@compiled()
def contract_packed(op, arena, record, room):  # type: ignore[no-untyped-def]
    """Run a contraction of two tables by products of matrices; returns the largest entry of its output (float64)."""
    # room: Address of `panels.CELLS` cells, scratch memory
    room = (room + 63) // 64 * 64
    if peek_int(record, rec.ROW_OUT) * peek_int(record, rec.ROW_A) * peek_int(record, rec.ROW_B) == 1:
        return _contract_lanes(op, arena, record, room)
    swapped = _is_swapped(record, room)
    shape, n = pn.sort(record, room, swapped)
    o, a, b = peek_int(record, rec.OUT), peek_int(record, rec.A), peek_int(record, rec.B)
    if swapped:
        a, b = b, a
    last = pn.GROUPS + 4 * (pn.BATCH * pn.MOST_LOOPS + n[pn.BATCH] - 1)
    # neighbouring batch indices share cache lines: they follow each other for a few rows; others one after another
    near = n[pn.BATCH] > 0 and (peek_int(room, last + 2) == 1 or peek_int(room, last + 3) == 1)
    pn.offsets(room, pn.ONLY_A, n[pn.ONLY_A], 2, 0, shape.only_a, pn.ALONE_A)
    pn.offsets(room, pn.ONLY_B, n[pn.ONLY_B], 3, 0, shape.only_b, pn.ALONE_B)
    high = zero()
    for k in range(0, shape.common, pn.MOST_COMMON):
        terms = min(shape.common - k, pn.MOST_COMMON)
        block = pn.Block(arena, room, terms, k > 0)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 2, k, terms, pn.COMMON_A)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 3, k, terms, pn.COMMON_B)
        most_columns = min(pn.MOST_RIGHT, pn.RIGHT_CELLS // terms // pn.WIDE * pn.WIDE)
        for c in range(0, shape.right, most_columns):
            n_columns = min(shape.right - c, most_columns)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 1, c, n_columns, pn.RIGHT_O)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 3, c, n_columns, pn.RIGHT_B)
            size = terms * pn.tile_columns(n_columns)
            most_batch = max(1, min(pn.MOST_BATCH if near else 1, pn.RIGHT_CELLS // size))
            high = maximum(high, _run_columns(op, block, (o, a, b), shape, n, (n_columns, size, most_batch)))
    return largest(high)
