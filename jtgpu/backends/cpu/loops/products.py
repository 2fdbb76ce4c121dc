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
from .several_batches import choose_lanes, contract_batches
from .vector import LANES, accumulate, largest, load, maximum, peek, peek_int, poke, scatter, splat, store, zero


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


@inlined
def _end(block, o, rows, m, by_row, x):  # type: ignore[no-untyped-def]
    """Write the first m lanes of x to a column of the output."""
    if m == LANES:
        if by_row:
            store(block.arena, o + peek_int(rows, 0), LANES, x)
        else:
            scatter(block.arena, o, rows, x)
    elif by_row:
        store(block.arena, o + peek_int(rows, 0), m, x)
    else:
        store(block.room, 0, LANES, x)
        for i in range(m):
            poke(block.arena, o + peek_int(rows, i), peek(block.room, i))


@compiled()
def _tiles_wide(op, block, right, columns, o, rows, n_rows, n):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Tiles of n_rows rows and n = 5 or 6 columns; returns the lanewise maximum of what was written."""
    # right: Address of the panel of B
    # columns, rows: Addresses of the offsets in the output
    o0, o1 = o + peek_int(columns, 0), o + peek_int(columns, 1)
    o2, o3 = o + peek_int(columns, 2), o + peek_int(columns, 3)
    o4, o5 = o + peek_int(columns, 4), o + peek_int(columns, 5)
    high = zero()
    for q in range(0, n_rows, LANES):
        at, m, left = rows + 8 * q, min(n_rows - q, LANES), block.room + 8 * (pn.LEFT_PANEL + q * block.terms)
        by_row = pn.are_neighbours(at, m)
        x0 = x1 = x2 = x3 = x4 = x5 = zero()
        if block.add:
            x0, x1 = _begin(block, o0, at, m, by_row), _begin(block, o1, at, m, by_row)
            x2, x3 = _begin(block, o2, at, m, by_row), _begin(block, o3, at, m, by_row)
            x4 = _begin(block, o4, at, m, by_row)
            if n == pn.WIDE:
                x5 = _begin(block, o5, at, m, by_row)
        for t in range(block.terms):
            y, p = load(left, LANES * t, LANES), pn.WIDE * t
            x0 = accumulate(op, y, splat(peek(right, p)), x0)
            x1 = accumulate(op, y, splat(peek(right, p + 1)), x1)
            x2 = accumulate(op, y, splat(peek(right, p + 2)), x2)
            x3 = accumulate(op, y, splat(peek(right, p + 3)), x3)
            x4 = accumulate(op, y, splat(peek(right, p + 4)), x4)
            x5 = accumulate(op, y, splat(peek(right, p + 5)), x5)
        _end(block, o0, at, m, by_row, x0)
        _end(block, o1, at, m, by_row, x1)
        _end(block, o2, at, m, by_row, x2)
        _end(block, o3, at, m, by_row, x3)
        _end(block, o4, at, m, by_row, x4)
        if n == pn.WIDE:
            _end(block, o5, at, m, by_row, x5)
        high = maximum(high, maximum(maximum(maximum(x0, x1), maximum(x2, x3)), maximum(x4, x5)))
    return high


@compiled()
def _tiles_narrow(op, block, right, columns, o, rows, n_rows, n):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """`_tiles_wide` of at most 4 columns."""
    o0, o1 = o + peek_int(columns, 0), o + peek_int(columns, 1)
    o2, o3 = o + peek_int(columns, 2), o + peek_int(columns, 3)
    high = zero()
    for q in range(0, n_rows, LANES):
        at, m, left = rows + 8 * q, min(n_rows - q, LANES), block.room + 8 * (pn.LEFT_PANEL + q * block.terms)
        by_row = pn.are_neighbours(at, m)
        x0 = x1 = x2 = x3 = zero()
        if block.add:
            x0 = _begin(block, o0, at, m, by_row)
            if n > 1:
                x1 = _begin(block, o1, at, m, by_row)
            if n > 2:
                x2 = _begin(block, o2, at, m, by_row)
            if n > 3:
                x3 = _begin(block, o3, at, m, by_row)
        for t in range(block.terms):
            y, p = load(left, LANES * t, LANES), pn.NARROW * t
            x0 = accumulate(op, y, splat(peek(right, p)), x0)
            x1 = accumulate(op, y, splat(peek(right, p + 1)), x1)
            x2 = accumulate(op, y, splat(peek(right, p + 2)), x2)
            x3 = accumulate(op, y, splat(peek(right, p + 3)), x3)
        _end(block, o0, at, m, by_row, x0)
        if n > 1:
            _end(block, o1, at, m, by_row, x1)
        if n > 2:
            _end(block, o2, at, m, by_row, x2)
        if n > 3:
            _end(block, o3, at, m, by_row, x3)
        high = maximum(high, maximum(maximum(x0, x1), maximum(x2, x3)))
    return high


@inlined
def _is_swapped(record, room):  # type: ignore[no-untyped-def]
    """Whether the second input is better A: its rows are then the lanes of vectors."""
    shape, n = pn.sort(record, room, False, 0)
    left, right = room + 8 * (pn.GROUPS + 4 * (pn.LEFT * pn.MOST_LOOPS + n[pn.LEFT] - 1)), 0
    right = room + 8 * (pn.GROUPS + 4 * (pn.RIGHT * pn.MOST_LOOPS + n[pn.RIGHT] - 1))
    rows = (peek_int(left, 2) == 1) + 2 * (peek_int(left, 1) == 1) if n[pn.LEFT] > 0 else 3
    columns = (peek_int(right, 3) == 1) + 2 * (peek_int(right, 1) == 1) if n[pn.RIGHT] > 0 else 3
    common = shape.common
    return pn.cost(shape.right, shape.left, common, columns) < pn.cost(shape.left, shape.right, common, rows)


@inlined
def _run_left(op, block, a, o, n_columns, left, n_alone, panel):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Make the output's rows `left` (first, number) of one batch index, tile after tile."""
    first, n_rows = left
    rows, high = block.room + 8 * (pn.LEFT_O + first), zero()
    pn.pack_left(op, block, a, block.room + 8 * (pn.LEFT_A + first), n_rows, n_alone)
    for j in range(0, n_columns, pn.WIDE):
        columns, right, n = block.room + 8 * (pn.RIGHT_O + j), panel + 8 * block.terms * j, min(n_columns - j, pn.WIDE)
        if n <= pn.NARROW:
            high = maximum(high, _tiles_narrow(op, block, right, columns, o, rows, n_rows, n))
        else:
            high = maximum(high, _tiles_wide(op, block, right, columns, o, rows, n_rows, n))
    return high


@inlined
def _run_columns(op, block, cells, shape, n, columns):  # type: ignore[no-untyped-def]
    """Make some columns of every batch index over the terms of one block."""
    o, a, b = cells
    n_columns, size, most_batch, most_rows = columns
    room, high = block.room, zero()
    if shape.left <= pn.MOST_LEFT:
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 1, 0, shape.left, pn.LEFT_O)
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 2, 0, shape.left, pn.LEFT_A)
        pn.repeat_last(room, shape.left, pn.LEFT_A, LANES)
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
                    pn.repeat_last(room, n_rows, pn.LEFT_A, LANES)
                for q in range(0, n_rows, most_rows):
                    left = q, min(n_rows - q, most_rows)
                    for i in range(f, end):
                        in_a, in_o = a + peek_int(room, pn.BATCH_A + i), o + peek_int(room, pn.BATCH_O + i)
                        panel = room + 8 * (pn.RIGHT_PANEL + (i - f) * size)
                        high = maximum(high, _run_left(op, block, in_a, in_o, n_columns, left, shape.only_a, panel))
    return high


@compiled()
def contract_packed(op, arena, record, room):  # type: ignore[no-untyped-def]
    """Run a contraction of two tables by products of matrices; returns the largest entry of its output (float64)."""
    # room: Address of `panels.CELLS` cells, scratch memory
    room = (room + 63) // 64 * 64
    lanes, swapped = choose_lanes(record)
    if lanes > 0:
        return contract_batches(op, arena, record, room, lanes, swapped)
    swapped = _is_swapped(record, room)
    shape, n = pn.sort(record, room, swapped, 0)
    o, a, b = peek_int(record, rec.OUT), peek_int(record, rec.A), peek_int(record, rec.B)
    if swapped:
        a, b = b, a
    last = pn.GROUPS + 4 * (pn.BATCH * pn.MOST_LOOPS + n[pn.BATCH] - 1)
    # neighbouring batch indices share cache lines: they follow each other for a few rows; others one after another
    step = min(peek_int(room, last + 2), peek_int(room, last + 3)) if n[pn.BATCH] > 0 else pn.NEAR + 1
    few = step <= pn.NEAR and shape.left * shape.right <= pn.FEW_CELLS
    near, most_terms = step == 1 or few, pn.MOST_COMMON_NEAR if few else pn.MOST_COMMON
    pn.offsets(room, pn.ONLY_A, n[pn.ONLY_A], 2, 0, shape.only_a, pn.ALONE_A)
    pn.offsets(room, pn.ONLY_B, n[pn.ONLY_B], 3, 0, shape.only_b, pn.ALONE_B)
    high = zero()
    for k in range(0, shape.common, most_terms):
        terms = min(shape.common - k, most_terms)
        block = pn.PanelBlock(arena, room, terms, k > 0)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 2, k, terms, pn.COMMON_A)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 3, k, terms, pn.COMMON_B)
        most_columns = min(pn.MOST_RIGHT, pn.RIGHT_CELLS // terms // pn.WIDE * pn.WIDE)
        for c in range(0, shape.right, most_columns):
            n_columns = min(shape.right - c, most_columns)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 1, c, n_columns, pn.RIGHT_O)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 3, c, n_columns, pn.RIGHT_B)
            pn.repeat_last(room, n_columns, pn.RIGHT_B, pn.WIDE)
            size = terms * pn.tile_columns(n_columns)
            most_batch = max(1, min(pn.MOST_BATCH if near else 1, pn.RIGHT_CELLS // size))
            most_rows = max(LANES, pn.LEFT_CELLS // (LANES * terms) * LANES)
            high = maximum(high, _run_columns(op, block, (o, a, b), shape, n, (n_columns, size, most_batch, most_rows)))
    return largest(high)
