"""Panels of a large contraction of two tables, which is computed as products of matrices; see `products`."""

from __future__ import annotations

from typing import NamedTuple

from ....util.jit import compiled, inlined
from .. import records as rec
from .vector import (
    LANES,
    accumulate,
    combine,
    copy_transposed,
    load,
    peek,
    peek_int,
    poke,
    poke_int,
    splat,
    store,
)

WIDE, NARROW = 6, 4  # columns of a tile; the last one is narrow where that is enough
MOST_COMMON = 256  # terms of a block: its panels, 8 x 256 and 6 x 256 cells, fit a cache of 32 KiB
MOST_LEFT, MOST_RIGHT, MOST_BATCH = 1024, 510, 32  # rows and columns of a block, and batch indices
NEAR = 64  # cells between batch indices up to which several run side by side
FEW_CELLS, MOST_COMMON_NEAR = 1024, 64  # of the output in each of them, up to which their blocks have fewer terms
MOST_LANES = 64  # neighbouring cells of the output in a block of `several_batches`
MOST_ALONE = 512  # cells of one input that are added to one cell of its panel
LEFT_CELLS, RIGHT_CELLS = 8192, 32768  # of all panels of A and of B in a block: 64 and 256 KiB
MOST_LOOPS = 32  # of a group
# Of a contraction that is packed; measured on the bundled networks and those of the UAI competition of 2014: copying
# a cell takes as long as two to eight multiply-adds
FEWEST_TERMS, FEWEST_ROWS, FEWEST_REDUCED = 8192, 7, 8
# The same of a contraction whose row is short, where `pairs` spends its time between rows; the terms of each of its
# batch indices, and the most cells of its inputs; and the terms of one input alone from which copying it, summed, saves
# multiplications
SHORT_ROW, FEWEST_TERMS_SHORT, FEWEST_ROWS_SHORT, FEWEST_REDUCED_SHORT = 24, 4096, 3, 3
FEWEST_OF_BATCH, MOST_CELLS_SHORT, FEWEST_ALONE = 256, 1 << 20, 3

# cells of scratch memory: panels, then lists of offsets, then the loops of each group
LEFT_PANEL = LANES
RIGHT_PANEL = LEFT_PANEL + LEFT_CELLS
LEFT_O = RIGHT_PANEL + RIGHT_CELLS + WIDE * MOST_COMMON
LEFT_A = LEFT_O + MOST_LEFT
RIGHT_O = LEFT_A + MOST_LEFT
RIGHT_B = RIGHT_O + MOST_RIGHT + WIDE
COMMON_A = RIGHT_B + MOST_RIGHT + WIDE
COMMON_B = COMMON_A + MOST_COMMON
BATCH_O = COMMON_B + MOST_COMMON
BATCH_A = BATCH_O + MOST_BATCH
BATCH_B = BATCH_A + MOST_BATCH
LANE_B = BATCH_B + MOST_BATCH
ALONE_A = LANE_B + MOST_LANES
ALONE_B = ALONE_A + MOST_ALONE
GROUPS = ALONE_B + MOST_ALONE
BATCH, LEFT, RIGHT, COMMON, ONLY_A, ONLY_B, LANE, NONE = range(8)
CELLS = GROUPS + 7 * 4 * MOST_LOOPS + LANES  # in all, with room to begin at a cache line


class PanelShape(NamedTuple):
    """Extents of the groups."""

    batch: int
    left: int
    right: int
    common: int
    only_a: int
    only_b: int
    lane: int  # loops that the lanes of vectors run over


class PanelBlock(NamedTuple):
    """Values that all tiles of a block share; all int64."""

    arena: int
    room: int  # address of the scratch memory
    terms: int
    add: int  # whether to continue from what the output's cells hold


@inlined
def group_of(o, a, b):  # type: ignore[no-untyped-def]
    """The group of a loop with these strides of the output, A and B."""
    if o != 0:
        return (BATCH if b != 0 else LEFT) if a != 0 else (RIGHT if b != 0 else NONE)
    return (COMMON if b != 0 else ONLY_A) if a != 0 else (ONLY_B if b != 0 else NONE)


@inlined
def tile_columns(n):  # type: ignore[no-untyped-def]
    """Columns of the tiles of n columns (int64), those of zeros included."""
    rest = n % WIDE
    return n - rest + (0 if rest == 0 else NARROW if rest <= NARROW else WIDE)


@inlined
def cost(left, right, common, by_row):  # type: ignore[no-untyped-def]
    """Time of one product of matrices (int64), in eighths of a cycle."""
    # by_row: bits: 1: neighbouring rows are neighbours in A, 2: in the output
    rows = -(-left // LANES) * LANES
    copied = (2 if by_row & 1 else 10) * left * common + 10 * right * common
    return rows * tile_columns(right) * common + copied + (2 if by_row & 2 else 12) * left * right


@compiled(allocates=False)
def is_packed(loops, n):  # type: ignore[no-untyped-def]
    """Whether panels pay for a contraction of two tables: 1 or 0."""
    # loops: (n, 4) int64: Extent, stride of the output, of A and of B
    left, right, reduced, alone, batch, terms, in_a, in_b = 1, 1, 1, 1, 1, 1, 1, 1
    for j in range(n):
        group, extent = group_of(loops[j, 1], loops[j, 2], loops[j, 3]), loops[j, 0]
        terms *= extent
        if group == LEFT:
            left *= extent
        elif group == RIGHT:
            right *= extent
        elif group == BATCH:
            batch *= extent
        else:
            reduced *= extent
        if group in (ONLY_A, ONLY_B):
            alone *= extent
        in_a *= extent if loops[j, 2] != 0 else 1
        in_b *= extent if loops[j, 3] != 0 else 1
    if alone > MOST_ALONE or min(left, right) < 2:
        return 0
    enough = terms >= FEWEST_TERMS and min(left, right) >= FEWEST_ROWS and reduced >= FEWEST_REDUCED
    if loops[n - 1, 0] <= SHORT_ROW and terms >= max(FEWEST_TERMS_SHORT, FEWEST_OF_BATCH * batch):
        fits = max(in_a, in_b) <= MOST_CELLS_SHORT and min(left, right) >= FEWEST_ROWS_SHORT
        enough = enough or alone >= FEWEST_ALONE or (fits and reduced >= FEWEST_REDUCED_SHORT)
    return 1 if enough else 0


@inlined
def loop_of(record, j):  # type: ignore[no-untyped-def]
    """Extent and strides of loop j, those of the record first, then the row."""
    if j < peek_int(record, rec.KEPT) + peek_int(record, rec.REDUCED):
        at = record + 8 * (rec.FIRST_LOOP + 4 * j)
        return peek_int(at, 0), peek_int(at, 1), peek_int(at, 2), peek_int(at, 3)
    row, row_out = peek_int(record, rec.ROW), peek_int(record, rec.ROW_OUT)
    return row, row_out, peek_int(record, rec.ROW_A), peek_int(record, rec.ROW_B)


@inlined
def sort(record, room, swapped, lanes):  # type: ignore[no-untyped-def]
    """Write the loops of each group to the scratch memory, slowest first; returns a `PanelShape` and their numbers."""
    # lanes: The output's innermost loops that are a group of their own
    n_batch, n_left, n_right, n_common, n_a, n_b, n_lane = 0, 0, 0, 0, 0, 0, 0
    batch, left, right, common, only_a, only_b, lane = 1, 1, 1, 1, 1, 1, 1
    n_kept = peek_int(record, rec.KEPT)
    n = n_kept + peek_int(record, rec.REDUCED)
    row_kept = 1 if peek_int(record, rec.ROW_OUT) != 0 else 0
    for j in range(n + 1):
        extent, o, a, b = loop_of(record, j)
        if swapped:
            a, b = b, a
        group = group_of(o, a, b)
        if lanes > 0 and ((j == n and row_kept == 1) or (j < n_kept and j >= n_kept + row_kept - lanes)):
            group = LANE
        place = 0
        if group == BATCH:
            place, n_batch, batch = n_batch, n_batch + 1, batch * extent
        elif group == LEFT:
            place, n_left, left = n_left, n_left + 1, left * extent
        elif group == RIGHT:
            place, n_right, right = n_right, n_right + 1, right * extent
        elif group == COMMON:
            place, n_common, common = n_common, n_common + 1, common * extent
        elif group == ONLY_A:
            place, n_a, only_a = n_a, n_a + 1, only_a * extent
        elif group == ONLY_B:
            place, n_b, only_b = n_b, n_b + 1, only_b * extent
        elif group == LANE:
            place, n_lane, lane = n_lane, n_lane + 1, lane * extent
        if group != NONE:
            to = room + 8 * (GROUPS + 4 * (group * MOST_LOOPS + place))
            poke_int(to, 0, extent)
            poke_int(to, 1, o)
            poke_int(to, 2, a)
            poke_int(to, 3, b)
    shape = PanelShape(batch, left, right, common, only_a, only_b, lane)
    return shape, (n_batch, n_left, n_right, n_common, n_a, n_b, n_lane)


@compiled()
def offsets(room, group, n, column, first, count, to):  # type: ignore[no-untyped-def]
    """List the offsets of indices ``first..first+count-1`` of a group of n loops at cell `to` of the scratch memory."""
    # column: 1: of the output, 2: of A, 3: of B
    loops, to = room + 8 * (GROUPS + 4 * group * MOST_LOOPS), room + 8 * to
    if n == 0:
        poke_int(to, 0, 0)
        return
    inner, step = peek_int(loops, 4 * n - 4), peek_int(loops, 4 * n - 4 + column)
    i = 0
    while i < count:
        rest = (first + i) // inner
        skip = first + i - rest * inner
        cell = skip * step
        for j in range(n - 2, -1, -1):
            above = rest // peek_int(loops, 4 * j)
            cell += (rest - above * peek_int(loops, 4 * j)) * peek_int(loops, 4 * j + column)
            rest = above
        run = min(inner - skip, count - i)
        for r in range(run):
            poke_int(to, i + r, cell + r * step)
        i += run


@inlined
def repeat_last(room, n, to, width):  # type: ignore[no-untyped-def]
    """List the last of n offsets at cell `to` again up to a multiple of `width`.

    Lanes and columns that do not exist are then copies of the last one, not to be written: they change no maximum.
    """
    for i in range(n, -(-n // width) * width):
        poke_int(room + 8 * to, i, peek_int(room + 8 * to, n - 1))


@inlined
def are_neighbours(offsets, m):  # type: ignore[no-untyped-def]
    """Whether m offsets, which ascend, follow each other by 1."""
    return peek_int(offsets, m - 1) - peek_int(offsets, 0) == m - 1


@compiled()
def pack_left(op, block, a, rows, n_rows, n_alone):  # type: ignore[no-untyped-def]
    """Copy rows of A, whose offsets stand at the address `rows`, to panels of 8; see `repeat_last` for the last one."""
    arena, terms = block.arena, block.terms
    panel, common, alone = block.room + 8 * LEFT_PANEL, block.room + 8 * COMMON_A, block.room + 8 * ALONE_A
    if are_neighbours(rows, n_rows):
        copy_rows(op, block, a + peek_int(rows, 0), n_rows, panel, LANES, LANES * terms, common, alone, n_alone)
        return
    for q in range(0, n_rows, LANES):
        m, to, of = min(n_rows - q, LANES), panel + 8 * q * terms, rows + 8 * q
        if are_neighbours(of, m):
            copy_rows(op, block, a + peek_int(of, 0), m, to, LANES, 0, common, alone, n_alone)
        elif n_alone == 1:
            r0, r1, r2, r3 = peek_int(of, 0), peek_int(of, 1), peek_int(of, 2), peek_int(of, 3)
            r4, r5, r6, r7 = peek_int(of, 4), peek_int(of, 5), peek_int(of, 6), peek_int(of, 7)
            t = 0
            while t < terms:
                cell, p = a + peek_int(common, t), LANES * t
                if t + 4 <= terms and are_neighbours(common + 8 * t, 4):
                    copy_transposed(arena, cell, of, to + 8 * p, LANES)
                    copy_transposed(arena, cell, of + 32, to + 8 * p + 32, LANES)
                    t += 4
                    continue
                poke(to, p, peek(arena, cell + r0))
                poke(to, p + 1, peek(arena, cell + r1))
                poke(to, p + 2, peek(arena, cell + r2))
                poke(to, p + 3, peek(arena, cell + r3))
                poke(to, p + 4, peek(arena, cell + r4))
                poke(to, p + 5, peek(arena, cell + r5))
                poke(to, p + 6, peek(arena, cell + r6))
                poke(to, p + 7, peek(arena, cell + r7))
                t += 1
        else:
            copy_cells(op, block, a, of, m, LANES, LANES, to, common, alone, n_alone)


@compiled()
def copy_rows(op, block, cell, n, panel, step, far, common, alone, n_alone):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Copy n neighbouring cells of each term to panels of 8, `far` cells apart, whose terms are `step` cells apart."""
    arena, full = block.arena, n - n % LANES
    for t in range(block.terms):
        at, p = cell + peek_int(common, t), step * t  # term by term: far cells, those of each term in one piece
        if n_alone == 1:
            at += peek_int(alone, 0)
            for q in range(0, full, LANES):
                store(panel, p, LANES, load(arena, at + q, LANES))
                p += far
            if full < n:
                store(panel, p, LANES, load(arena, at + full, n - full))
            continue
        for q in range(0, n, LANES):
            x = load(arena, at + q + peek_int(alone, 0), n - q)
            for e in range(1, n_alone):
                x = accumulate(op, load(arena, at + q + peek_int(alone, e), n - q), splat(1.0), x)
            store(panel, p, LANES, x)
            p += far


@compiled()
def copy_cells(op, block, cell, rows, m, width, step, panel, common, alone, n_alone):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Copy m cells of each term to a panel, whose terms are `step` cells apart; zeros up to `width` cells."""
    for t in range(block.terms):
        at, p = cell + peek_int(common, t), step * t
        for i in range(m):
            x = peek(block.arena, at + peek_int(rows, i) + peek_int(alone, 0))
            for e in range(1, n_alone):
                x = combine(op, x, peek(block.arena, at + peek_int(rows, i) + peek_int(alone, e)))
            poke(panel, p + i, x)
        for i in range(m, width):
            poke(panel, p + i, 0.0)


@compiled()
def pack_right(op, block, b, n, to, n_alone):  # type: ignore[no-untyped-def]
    """Copy the n columns of B that are listed to panels at cell `to`; see `repeat_last` for the last one."""
    arena, room, terms = block.arena, block.room, block.terms
    common, alone = room + 8 * COMMON_B, room + 8 * ALONE_B
    for j in range(0, n, WIDE):
        panel, columns, m = room + 8 * (to + terms * j), room + 8 * (RIGHT_B + j), min(n - j, WIDE)
        width = NARROW if m <= NARROW else WIDE
        if n_alone > 1:
            copy_cells(op, block, b, columns, m, width, width, panel, common, alone, n_alone)
            continue
        c0, c1, c2 = peek_int(columns, 0), peek_int(columns, 1), peek_int(columns, 2)
        c3, c4, c5 = peek_int(columns, 3), peek_int(columns, 4), peek_int(columns, 5)
        if are_neighbours(columns, m):  # the zeros behind are overwritten by the next term; there is room for the last
            for t in range(terms):
                store(panel, width * t, LANES, load(arena, b + peek_int(common, t) + c0, m))
            continue
        t = 0
        while t < terms:
            cell, p = b + peek_int(common, t), width * t
            if t + 4 <= terms and are_neighbours(common + 8 * t, 4):
                copy_transposed(arena, cell, columns, panel + 8 * p, width)
                if width == WIDE:
                    for i in range(4):
                        poke(panel, p + WIDE * i + 4, peek(arena, cell + c4 + i))
                        poke(panel, p + WIDE * i + 5, peek(arena, cell + c5 + i))
                t += 4
                continue
            poke(panel, p, peek(arena, cell + c0))
            poke(panel, p + 1, peek(arena, cell + c1))
            poke(panel, p + 2, peek(arena, cell + c2))
            poke(panel, p + 3, peek(arena, cell + c3))
            if width == WIDE:
                poke(panel, p + 4, peek(arena, cell + c4))
                poke(panel, p + 5, peek(arena, cell + c5))
            t += 1
