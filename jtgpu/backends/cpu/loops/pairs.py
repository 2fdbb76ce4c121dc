"""Compiled loops of a contraction of two tables, row by row; see `kernels` for their order and their arguments."""

from __future__ import annotations

from typing import NamedTuple

from ....util.jit import compiled, inlined
from .. import records as rec
from .vector import (
    LANES,
    accumulate,
    combine,
    largest,
    load,
    maximum,
    peek,
    peek_int,
    poke,
    poke_int,
    reduce_lanes,
    splat,
    store,
    zero,
)


class Pair(NamedTuple):
    """Numbers that all cells of a contraction of two tables share; all int64."""

    arena: int
    n: int  # cells of a row
    by_row: int  # 1: a row of A is multiplied with a row of B; 0: with a number of B
    io: int  # step of the output from one row to the next
    ia: int  # step of A
    ib: int  # step of B
    off_a: int  # address of int64: offsets of A's reduced cells
    off_b: int  # address of int64: offsets of B's reduced cells
    terms: int  # number of these offsets


@compiled()
def _rows4(op, p, o, a, b, add):  # type: ignore[no-untyped-def]
    """Four rows of the output, each accumulated over `terms` products of a row of A with a row or a number of B."""
    # add: Whether to continue from what the output's cells hold
    # returns The lanewise maximum of what was written.
    arena, io, ia, ib = p.arena, p.io, p.ia, p.ib
    top = zero()
    for i in range(0, p.n, LANES):
        m = p.n - i
        x0 = x1 = x2 = x3 = zero()
        if add:
            x0, x1 = load(arena, o + i, m), load(arena, o + io + i, m)
            x2, x3 = load(arena, o + 2 * io + i, m), load(arena, o + 3 * io + i, m)
        if p.by_row == 0 and ia == 0:
            for t in range(p.terms):
                c, d = a + i + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
                y = load(arena, c, m)
                x0 = accumulate(op, y, splat(peek(arena, d)), x0)
                x1 = accumulate(op, y, splat(peek(arena, d + ib)), x1)
                x2 = accumulate(op, y, splat(peek(arena, d + 2 * ib)), x2)
                x3 = accumulate(op, y, splat(peek(arena, d + 3 * ib)), x3)
        elif p.by_row == 0 and ib == 0:
            for t in range(p.terms):
                c, d = a + i + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
                y = splat(peek(arena, d))
                x0 = accumulate(op, load(arena, c, m), y, x0)
                x1 = accumulate(op, load(arena, c + ia, m), y, x1)
                x2 = accumulate(op, load(arena, c + 2 * ia, m), y, x2)
                x3 = accumulate(op, load(arena, c + 3 * ia, m), y, x3)
        elif p.by_row == 0:
            for t in range(p.terms):
                c, d = a + i + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
                x0 = accumulate(op, load(arena, c, m), splat(peek(arena, d)), x0)
                x1 = accumulate(op, load(arena, c + ia, m), splat(peek(arena, d + ib)), x1)
                x2 = accumulate(op, load(arena, c + 2 * ia, m), splat(peek(arena, d + 2 * ib)), x2)
                x3 = accumulate(op, load(arena, c + 3 * ia, m), splat(peek(arena, d + 3 * ib)), x3)
        elif ib == 0:
            for t in range(p.terms):
                c, d = a + i + peek_int(p.off_a, t), b + i + peek_int(p.off_b, t)
                y = load(arena, d, m)
                x0 = accumulate(op, load(arena, c, m), y, x0)
                x1 = accumulate(op, load(arena, c + ia, m), y, x1)
                x2 = accumulate(op, load(arena, c + 2 * ia, m), y, x2)
                x3 = accumulate(op, load(arena, c + 3 * ia, m), y, x3)
        else:
            for t in range(p.terms):
                c, d = a + i + peek_int(p.off_a, t), b + i + peek_int(p.off_b, t)
                x0 = accumulate(op, load(arena, c, m), load(arena, d, m), x0)
                x1 = accumulate(op, load(arena, c + ia, m), load(arena, d + ib, m), x1)
                x2 = accumulate(op, load(arena, c + 2 * ia, m), load(arena, d + 2 * ib, m), x2)
                x3 = accumulate(op, load(arena, c + 3 * ia, m), load(arena, d + 3 * ib, m), x3)
        store(arena, o + i, m, x0)
        store(arena, o + io + i, m, x1)
        store(arena, o + 2 * io + i, m, x2)
        store(arena, o + 3 * io + i, m, x3)
        top = maximum(top, maximum(maximum(x0, x1), maximum(x2, x3)))
    return top


@compiled()
def _rows3(op, p, o, a, b, add, third):  # type: ignore[no-untyped-def]
    """Two rows of the output, or with `third` three; others see `_rows4`."""
    arena, io, ia, ib = p.arena, p.io, p.ia, p.ib
    top = zero()
    for i in range(0, p.n, LANES):
        m = p.n - i
        x0 = x1 = x2 = zero()
        if add:
            x0, x1 = load(arena, o + i, m), load(arena, o + io + i, m)
            if third:
                x2 = load(arena, o + 2 * io + i, m)
        for t in range(p.terms):
            c, d = a + i + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
            if p.by_row != 0 and ib == 0:
                y = load(arena, d + i, m)
                x0, x1 = accumulate(op, load(arena, c, m), y, x0), accumulate(op, load(arena, c + ia, m), y, x1)
                if third:
                    x2 = accumulate(op, load(arena, c + 2 * ia, m), y, x2)
            elif p.by_row == 0:
                x0 = accumulate(op, load(arena, c, m), splat(peek(arena, d)), x0)
                x1 = accumulate(op, load(arena, c + ia, m), splat(peek(arena, d + ib)), x1)
                if third:
                    x2 = accumulate(op, load(arena, c + 2 * ia, m), splat(peek(arena, d + 2 * ib)), x2)
            else:
                x0 = accumulate(op, load(arena, c, m), load(arena, d + i, m), x0)
                x1 = accumulate(op, load(arena, c + ia, m), load(arena, d + ib + i, m), x1)
                if third:
                    x2 = accumulate(op, load(arena, c + 2 * ia, m), load(arena, d + 2 * ib + i, m), x2)
        store(arena, o + i, m, x0)
        store(arena, o + io + i, m, x1)
        if third:
            store(arena, o + 2 * io + i, m, x2)
        top = maximum(top, maximum(maximum(x0, x1), x2))
    return top


@compiled()
def _row1(op, p, o, a, b, add):  # type: ignore[no-untyped-def]
    """One row of the output; see `_rows4`."""
    top = zero()
    for i in range(0, p.n, LANES):
        m = p.n - i
        x = zero()
        if add:
            x = load(p.arena, o + i, m)
        if p.by_row == 0:
            for t in range(p.terms):
                y = splat(peek(p.arena, b + peek_int(p.off_b, t)))
                x = accumulate(op, load(p.arena, a + i + peek_int(p.off_a, t), m), y, x)
        else:
            for t in range(p.terms):
                y = load(p.arena, b + i + peek_int(p.off_b, t), m)
                x = accumulate(op, load(p.arena, a + i + peek_int(p.off_a, t), m), y, x)
        store(p.arena, o + i, m, x)
        top = maximum(top, x)
    return top


@compiled()
def _cells4(op, p, o, a, b, add):  # type: ignore[no-untyped-def]
    """Four cells of the output, each accumulated over `terms` rows of products; returns the largest (float64).

    Parameters as for `_rows4`.
    """
    arena, n, ia, ib = p.arena, p.n, p.ia, p.ib
    x0 = x1 = x2 = x3 = zero()
    if p.by_row == 0:
        for t in range(p.terms):
            c, d = a + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
            y0, y1 = splat(peek(arena, d)), splat(peek(arena, d + ib))
            y2, y3 = splat(peek(arena, d + 2 * ib)), splat(peek(arena, d + 3 * ib))
            for i in range(0, n, LANES):
                m = n - i
                x0 = accumulate(op, load(arena, c + i, m), y0, x0)
                x1 = accumulate(op, load(arena, c + i + ia, m), y1, x1)
                x2 = accumulate(op, load(arena, c + i + 2 * ia, m), y2, x2)
                x3 = accumulate(op, load(arena, c + i + 3 * ia, m), y3, x3)
    elif n <= LANES:
        for t in range(p.terms):
            c, d = a + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
            x0 = accumulate(op, load(arena, c, n), load(arena, d, n), x0)
            x1 = accumulate(op, load(arena, c + ia, n), load(arena, d + ib, n), x1)
            x2 = accumulate(op, load(arena, c + 2 * ia, n), load(arena, d + 2 * ib, n), x2)
            x3 = accumulate(op, load(arena, c + 3 * ia, n), load(arena, d + 3 * ib, n), x3)
    else:
        for t in range(p.terms):
            c, d = a + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
            for i in range(0, n, LANES):
                m = n - i
                x0 = accumulate(op, load(arena, c + i, m), load(arena, d + i, m), x0)
                x1 = accumulate(op, load(arena, c + i + ia, m), load(arena, d + i + ib, m), x1)
                x2 = accumulate(op, load(arena, c + i + 2 * ia, m), load(arena, d + i + 2 * ib, m), x2)
                x3 = accumulate(op, load(arena, c + i + 3 * ia, m), load(arena, d + i + 3 * ib, m), x3)
    s0 = _put_cell(op, arena, o, reduce_lanes(op, x0), add)
    s1 = _put_cell(op, arena, o + p.io, reduce_lanes(op, x1), add)
    s2 = _put_cell(op, arena, o + 2 * p.io, reduce_lanes(op, x2), add)
    s3 = _put_cell(op, arena, o + 3 * p.io, reduce_lanes(op, x3), add)
    return max(max(s0, s1), max(s2, s3))


@inlined
def _put_cell(op, arena, o, x, add):  # type: ignore[no-untyped-def]
    """Write x (float64) to an output cell, combined with what it holds if `add`; returns what was written."""
    if add:
        x = combine(op, x, peek(arena, o))
    poke(arena, o, x)
    return x


@compiled()
def _cell1(op, p, o, a, b, add):  # type: ignore[no-untyped-def]
    """One cell of the output; see `_cells4`."""
    x = zero()
    for t in range(p.terms):
        c, d = a + peek_int(p.off_a, t), b + peek_int(p.off_b, t)
        if p.by_row == 0:
            y = splat(peek(p.arena, d))
            for i in range(0, p.n, LANES):
                x = accumulate(op, load(p.arena, c + i, p.n - i), y, x)
        else:
            for i in range(0, p.n, LANES):
                x = accumulate(op, load(p.arena, c + i, p.n - i), load(p.arena, d + i, p.n - i), x)
    return _put_cell(op, p.arena, o, reduce_lanes(op, x), add)


@inlined
def _inner_rows(op, p, o, a, b, inner, add):  # type: ignore[no-untyped-def]
    """`inner` rows of the output, four at a time; returns the lanewise maximum of what was written."""
    high = zero()
    fours = inner - inner % 4
    for k in range(0, fours, 4):
        high = maximum(high, _rows4(op, p, o + k * p.io, a + k * p.ia, b + k * p.ib, add))
    if inner - fours > 1:
        k, third = fours, inner - fours == 3
        high = maximum(high, _rows3(op, p, o + k * p.io, a + k * p.ia, b + k * p.ib, add, third))
    elif fours < inner:
        k = fours
        high = maximum(high, _row1(op, p, o + k * p.io, a + k * p.ia, b + k * p.ib, add))
    return high


@inlined
def _inner_cells(op, p, o, a, b, inner, add):  # type: ignore[no-untyped-def]
    """`inner` cells of the output, four at a time; returns the largest (float64)."""
    top = 0.0
    fours = inner - inner % 4
    for k in range(0, fours, 4):
        top = max(top, _cells4(op, p, o + k * p.io, a + k * p.ia, b + k * p.ib, add))
    for k in range(fours, inner):
        top = max(top, _cell1(op, p, o + k * p.io, a + k * p.ia, b + k * p.ib, add))
    return top


@inlined
def _advance(loops, swapped, first, last, count):  # type: ignore[no-untyped-def]
    """Go on to the next round of the loops ``first..last-1`` of a contraction of two tables."""
    # loops: Address of int64: (extent, stride of the output, of the first input, of the second) a loop
    # swapped: 1 where A is the second input, else 0
    # count: Address of int64: rounds done of each loop
    # returns tuple of int64: How far the output, A and B move.
    moved_o, moved_a, moved_b = 0, 0, 0
    for j in range(last - 1, first - 1, -1):
        extent = peek_int(loops, 4 * j)
        done, rounds = peek_int(count, j) + 1, 1
        if done == extent:
            done, rounds = 0, 1 - extent
        poke_int(count, j, done)
        moved_o += rounds * peek_int(loops, 4 * j + 1)
        moved_a += rounds * peek_int(loops, 4 * j + 2 + swapped)
        moved_b += rounds * peek_int(loops, 4 * j + 3 - swapped)
        if rounds == 1:
            break
    return moved_o, moved_a, moved_b


@inlined
def _list_offsets(loops, swapped, n_kept, n_loops, off_a, off_b):  # type: ignore[no-untyped-def]
    """List the offsets of the innermost reduced loops, as many as have at most `LIST` rounds.

    Parameters as for `_advance`; `off_a` and `off_b` are addresses of int64 that are written.
    """
    # returns tuple of int64: The first loop that is listed, and the number of offsets.
    terms, listed = 1, n_loops
    while listed > n_kept and terms * peek_int(loops, 4 * (listed - 1)) <= rec.LIST:
        listed -= 1
        terms *= peek_int(loops, 4 * listed)
    poke_int(off_a, 0, 0)
    poke_int(off_b, 0, 0)
    n = 1
    for j in range(n_loops - 1, listed - 1, -1):
        extent = peek_int(loops, 4 * j)
        step_a, step_b = peek_int(loops, 4 * j + 2 + swapped), peek_int(loops, 4 * j + 3 - swapped)
        for t in range(n, n * extent):
            poke_int(off_a, t, peek_int(off_a, t - n) + step_a)
            poke_int(off_b, t, peek_int(off_b, t - n) + step_b)
        n *= extent
    return listed, terms


@compiled()
def contract_pair(op, arena, record, count, off_a, off_b):  # type: ignore[no-untyped-def]
    """Run a contraction of two tables; returns the largest entry of its output (float64)."""
    # count, off_a, off_b: Addresses of int64, scratch memory: a number a loop, and `LIST` numbers each
    n_kept = peek_int(record, rec.KEPT)
    n_loops = n_kept + peek_int(record, rec.REDUCED)
    sa, sb = peek_int(record, rec.ROW_A), peek_int(record, rec.ROW_B)
    o, a, b = peek_int(record, rec.OUT), peek_int(record, rec.A), peek_int(record, rec.B)
    loops = record + 8 * rec.FIRST_LOOP
    inner, io, ia, ib = 1, 0, 0, 0
    outer, swapped = max(n_kept - 1, 0), 0
    if n_kept > 0:
        inner, io = peek_int(loops, 4 * outer), peek_int(loops, 4 * outer + 1)
        ia, ib = peek_int(loops, 4 * outer + 2), peek_int(loops, 4 * outer + 3)
    if sa == 0 or (sb != 0 and ia == 0):  # rows of A are vectors; what several output rows share is B's
        a, b, sb, ia, ib, swapped = b, a, sa, ib, ia, 1
    listed, terms = _list_offsets(loops, swapped, n_kept, n_loops, off_a, off_b)
    rounds, again = 1, 1
    for j in range(listed):
        poke_int(count, j, 0)
        if j < outer:
            rounds *= peek_int(loops, 4 * j)
        elif j >= n_kept:
            again *= peek_int(loops, 4 * j)
    p = Pair(arena, peek_int(record, rec.ROW), sb, io, ia, ib, off_a, off_b, terms)
    high, top = zero(), 0.0
    for _ in range(rounds):
        for s in range(again):
            if peek_int(record, rec.ROW_OUT) == 1:
                high = maximum(high, _inner_rows(op, p, o, a, b, inner, s > 0))
            else:
                top = max(top, _inner_cells(op, p, o, a, b, inner, s > 0))
            _, moved_a, moved_b = _advance(loops, swapped, n_kept, listed, count)
            a, b = a + moved_a, b + moved_b
        moved_o, moved_a, moved_b = _advance(loops, swapped, 0, outer, count)
        o, a, b = o + moved_o, a + moved_a, b + moved_b
    return max(top, largest(high))
