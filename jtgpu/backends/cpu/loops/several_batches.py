"""Products of matrices whose vectors have lanes of several batch indices; see `products`.

Where the cells of the output that are neighbours belong to several batch indices, and those of one input (A, below) are
neighbours too, eight of them are the lanes of a vector, and B's panel has a vector for each term and column: two rows
and three columns stay in registers, five vector loads for twelve multiply-adds of four lanes.
"""

from __future__ import annotations

from ....util.jit import compiled, inlined
from .. import records as rec
from . import panels as pn
from .vector import LANES, accumulate, largest, load, maximum, peek_int, store, zero

# Of a block: terms and columns at most, and cells of B's panel for one vector
MOST_TERMS, MOST_COLUMNS, PANEL_CELLS = 64, 24, 4096
FEW_CELLS = 2048  # of B's panels: 16 KiB
SHORT_RUN = 16  # neighbouring cells of one batch index from which `products` is as quick


@inlined
def _inner(record, i):  # type: ignore[no-untyped-def]
    """The loop that is the i-th of the output's, the innermost first."""
    n_kept, row_kept = peek_int(record, rec.KEPT), peek_int(record, rec.ROW_OUT)
    if row_kept != 0:
        return n_kept + peek_int(record, rec.REDUCED) if i == 0 else n_kept - i
    return n_kept - 1 - i


@compiled()
def choose_lanes(record):  # type: ignore[no-untyped-def]
    """How many of the output's innermost loops are the lanes of vectors, 0 for none; whether the second input is A."""
    # Neighbouring cells of the output and of A, some of them of different batch indices; those of B lie anywhere
    n_kept, row_kept = peek_int(record, rec.KEPT), 1 if peek_int(record, rec.ROW_OUT) != 0 else 0
    n, batch, left, right = n_kept + row_kept, 1, 1, 1
    for i in range(n):
        extent, _, a, b = pn.loop_of(record, _inner(record, i))
        if b == 0:
            left *= extent
        elif a == 0:
            right *= extent
        else:
            batch *= extent
    common = 1
    for j in range(n_kept, n_kept + peek_int(record, rec.REDUCED) + 1 - row_kept):
        extent, _, a, b = pn.loop_of(record, j)
        if a != 0 and b != 0:
            common *= extent
    width, dense_a, dense_b, rows_a, rows_b, rest = 1, True, True, left, right, batch
    best, least, swapped = 0, 1 << 62, False
    first, _, a, b = pn.loop_of(record, _inner(record, 0))
    if a == 0 or b == 0:  # neighbours are cells of one batch index: see whether `products` is quicker
        short, other = (left, right) if b == 0 else (right, left)
        quick = pn.cost(short, other, common, 3 if short == first else 0)
        least = batch * min(quick, pn.cost(other, short, common, 0))
    for i in range(n):
        extent, o, a, b = pn.loop_of(record, _inner(record, i))
        dense_a, dense_b = dense_a and a == width, dense_b and b == width
        if o != width or not (dense_a or dense_b) or (rest == batch and (a == 0 or b == 0) and extent >= SHORT_RUN):
            break
        width *= extent
        if b == 0:
            rows_a //= extent
        elif a == 0:
            rows_b //= extent
        else:
            rest //= extent
        if rest == batch:
            continue
        for s in range(2):
            if dense_b if s == 1 else dense_a:
                rows, columns = (rows_b, left) if s == 1 else (rows_a, right)
                # in eighths of a cycle a term: multiply-adds, copies of A, copies of B
                spread = 4 if dense_a and dense_b else 12
                work = (-(-rows // 2) * 2) * (-(-columns // 3) * 3) + 4 * rows + spread * columns
                work = rest * (-(-width // LANES) * LANES * common * work + 2 * width * rows * columns)
                if work < least:
                    best, least, swapped = i + 1, work, s == 1
    return best, swapped


@compiled()
def _pack_lanes(op, block, b, m, lanes, panel, step, n_alone):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Copy m <= 8 cells of B at the listed offsets of lanes, for each term, to a panel."""
    common, alone, same = block.room + 8 * pn.COMMON_B, block.room + 8 * pn.ALONE_B, True
    for i in range(1, m):
        same = same and peek_int(lanes, i) == peek_int(lanes, 0) + i
    if same:
        pn.copy_rows(op, block, b + peek_int(lanes, 0), m, panel, step, 0, common, alone, n_alone)
    else:
        pn.copy_cells(op, block, b, lanes, m, LANES, step, panel, common, alone, n_alone)


@compiled()
def _tile_lanes(op, block, right, o, cells, m, shape):  # type: ignore[no-untyped-def]
    """Two rows and three columns of the output for m <= 8 lanes; returns the lanewise maximum."""
    # cells: Addresses of the panel of A, and of the rows' and the columns' offsets in the output
    # shape: rows and columns that there are
    left, rows, columns = cells
    n_rows, n_columns = shape
    o0, o1 = o + peek_int(rows, 0), o + peek_int(rows, n_rows - 1)
    c1, c2 = min(1, n_columns - 1), n_columns - 1
    p0, p1, p2 = peek_int(columns, 0), peek_int(columns, c1), peek_int(columns, c2)
    x0 = x1 = x2 = x3 = x4 = x5 = zero()
    if block.add:
        x0, x1 = load(block.arena, o0 + p0, m), load(block.arena, o0 + p1, m)
        x2, x3 = load(block.arena, o0 + p2, m), load(block.arena, o1 + p0, m)
        x4, x5 = load(block.arena, o1 + p1, m), load(block.arena, o1 + p2, m)
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
def _run_lanes(op, block, cells, shape, n, columns, n_lanes):  # type: ignore[no-untyped-def]
    """Make some columns of n_lanes neighbouring cells over the terms of one block."""
    o, a, b = cells
    room, terms, high = block.room, block.terms, zero()
    for q in range(0, n_lanes, LANES):
        for j in range(0, columns, 3):
            width = min(columns - j, 3)
            for c in range(width):
                panel = room + 8 * (pn.RIGHT_PANEL + terms * columns * q + LANES * (terms * j + c))
                in_b, lanes = b + peek_int(room, pn.RIGHT_B + j + c), room + 8 * (pn.LANE_B + q)
                _pack_lanes(op, block, in_b, min(n_lanes - q, LANES), lanes, panel, LANES * width, shape.only_b)
    for r in range(0, shape.left, pn.MOST_LEFT):
        n_rows = min(shape.left - r, pn.MOST_LEFT)
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 1, r, n_rows, pn.LEFT_O)
        pn.offsets(room, pn.LEFT, n[pn.LEFT], 2, r, n_rows, pn.LEFT_A)
        most = max(2, pn.LEFT_CELLS // (2 * terms * (n_lanes + LANES)) * 2)
        if terms * columns * n_lanes <= FEW_CELLS:  # all of B's panels stay there: so should A's
            most = 2
        for f in range(0, n_rows, most):
            many = min(n_rows - f, most)
            far = LANES * terms * (many + many % 2)
            common, alone = room + 8 * pn.COMMON_A, room + 8 * pn.ALONE_A
            for i in range(many):
                panel = room + 8 * (pn.LEFT_PANEL + LANES * (i // 2 * 2 * terms + i % 2))
                in_a = a + peek_int(room, pn.LEFT_A + f + i)
                pn.copy_rows(op, block, in_a, n_lanes, panel, 2 * LANES, far, common, alone, shape.only_a)
            for q in range(0, n_lanes, LANES):  # B's panels of one q stay in the fastest cache
                m = min(n_lanes - q, LANES)
                for i in range(0, many, 2):
                    left = room + 8 * (pn.LEFT_PANEL + far * (q // LANES) + LANES * terms * i)
                    rows = room + 8 * (pn.LEFT_O + f + i)
                    for j in range(0, columns, 3):
                        at = left, rows, room + 8 * (pn.RIGHT_O + j)
                        right = room + 8 * (pn.RIGHT_PANEL + terms * columns * q + LANES * terms * j)
                        n_tile = min(many - i, 2), min(columns - j, 3)
                        high = maximum(high, _tile_lanes(op, block, right, o + q, at, m, n_tile))
    return high


@compiled()
def contract_batches(op, arena, record, room, lanes, swapped):  # type: ignore[no-untyped-def]
    """`contract_packed` where lanes of vectors are neighbouring cells of the output, of several batch indices."""
    shape, n = pn.sort(record, room, swapped, lanes)
    o, a, b = peek_int(record, rec.OUT), peek_int(record, rec.A), peek_int(record, rec.B)
    if swapped:
        a, b = b, a
    high = zero()
    pn.offsets(room, pn.ONLY_A, n[pn.ONLY_A], 2, 0, shape.only_a, pn.ALONE_A)
    pn.offsets(room, pn.ONLY_B, n[pn.ONLY_B], 3, 0, shape.only_b, pn.ALONE_B)
    most_columns = min(shape.right, MOST_COLUMNS)
    most_terms = min(PANEL_CELLS // (LANES * most_columns), MOST_TERMS)
    most_terms = -(-shape.common // -(-shape.common // most_terms))  # blocks of about the same size
    for k in range(0, shape.common, most_terms):
        terms = min(shape.common - k, most_terms)
        block = pn.PanelBlock(arena, room, terms, k > 0)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 2, k, terms, pn.COMMON_A)
        pn.offsets(room, pn.COMMON, n[pn.COMMON], 3, k, terms, pn.COMMON_B)
        most = min(-(-shape.lane // LANES) * LANES, pn.MOST_LANES)
        for c in range(0, shape.right, most_columns):
            n_columns = min(shape.right - c, most_columns)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 1, c, n_columns, pn.RIGHT_O)
            pn.offsets(room, pn.RIGHT, n[pn.RIGHT], 3, c, n_columns, pn.RIGHT_B)
            for s in range(shape.batch):
                pn.offsets(room, pn.BATCH, n[pn.BATCH], 1, s, 1, pn.BATCH_O)
                pn.offsets(room, pn.BATCH, n[pn.BATCH], 2, s, 1, pn.BATCH_A)
                pn.offsets(room, pn.BATCH, n[pn.BATCH], 3, s, 1, pn.BATCH_B)
                in_o, in_a = o + peek_int(room, pn.BATCH_O), a + peek_int(room, pn.BATCH_A)
                in_b = b + peek_int(room, pn.BATCH_B)
                for i in range(0, shape.lane, most):
                    m = min(shape.lane - i, most)
                    pn.offsets(room, pn.LANE, n[pn.LANE], 3, i, m, pn.LANE_B)
                    high = maximum(high, _run_lanes(op, block, (in_o + i, in_a + i, in_b), shape, n, n_columns, m))
    return largest(high)
