"""Compiled loops of one contraction, by sum or by maximum; see `records` for the records that they follow.

A contraction's loops, outermost first:

    kept but one | reduced but one | last kept | last reduced | row

where a *reduced* variable is summed out (or maximised out) and the row runs over neighbouring cells. Eight cells of an
output row stay in registers while everything that contributes to them is accumulated: an output is written once and
never read.

Every function with an argument `op` is compiled twice, for `vector.by_sum` and for `vector.by_maximum`. Both
specialisations take the same products in the same order, so the maximum over a table is, bit for bit, the product that
the backward pass finds again. Entries are never negative: zero is the neutral element of both.

Arguments that occur everywhere: `arena` (int64), address of the tables' cells, float64; `record` (int64), address of
a record; `o`, `a`, `b` (int64), cells of the output and of the two inputs. Memory is given by address because Numba
passes an array as seven arguments.
"""

from __future__ import annotations

from typing import NamedTuple

from ....util.jit import compiled, inlined
from .. import records as rec
from .fields import input_field
from .products import contract_packed
from .vector import (
    LANES,
    accumulate,
    by_maximum,
    by_sum,
    call,
    combine,
    fma,
    fma1,
    is_maximum,
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
    total,
    zero,
)

__all__ = ["contract", "contract_maximum", "contract_sum"]

_fast = {"reassoc", "nsz", "contract", "nnan", "ninf", "arcp"}  # sums may be reordered; still the same bits every run


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
    for k in range(fours, inner):
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
def _contract_pair(op, arena, record, count, off_a, off_b):  # type: ignore[no-untyped-def]
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


@compiled()
def _contract_listed(op, arena, record):  # type: ignore[no-untyped-def]
    """Run a contraction whose cells are listed term by term; returns the largest entry of its output (float64)."""
    k, terms, size = peek_int(record, rec.INPUTS), peek_int(record, rec.LISTED), peek_int(record, rec.SIZE)
    o = peek_int(record, rec.OUT)
    at = rec.FIRST_LOOP + 3 * (k - 2)
    top = 0.0
    for i in range(o, o + size):
        x = 0.0
        if k == 2:
            for _ in range(terms):
                x = combine(op, x, peek(arena, peek_int(record, at)) * peek(arena, peek_int(record, at + 1)))
                at += 2
        else:
            for _ in range(terms):
                y = peek(arena, peek_int(record, at)) * peek(arena, peek_int(record, at + 1))
                for t in range(2, k):
                    y *= peek(arena, peek_int(record, at + t))
                x = combine(op, x, y)
                at += k
        poke(arena, i, x)
        top = max(top, x)
    return top


@inlined
def _sparse_cell(arena, record, at, terms, reduced, sums):  # type: ignore[no-untyped-def]
    """The sum of the listed terms of one cell (float64)."""
    # at, terms: First field of the terms, and their number
    # reduced: Whether the row is summed: then a term is added to the lane in which `_contract_pair` adds it
    # sums: Address of eight float64, scratch memory
    x = 0.0
    if not reduced:
        for t in range(at, at + 2 * terms, 2):
            x = fma1(peek(arena, peek_int(record, t)), peek(arena, peek_int(record, t + 1)), x)
        return x
    store(sums, 0, LANES, zero())
    for t in range(at, at + 2 * terms, 2):
        a, lane = peek_int(record, t) // LANES, peek_int(record, t) % LANES
        poke(sums, lane, fma1(peek(arena, a), peek(arena, peek_int(record, t + 1)), peek(sums, lane)))
    return total(load(sums, 0, LANES))


@compiled()
def _contract_sparse(arena, record, sums):  # type: ignore[no-untyped-def]
    """Run a contraction of the terms that are structurally non-zero; returns the largest entry of its output (float64).

    Terms are added in the order of `_contract_pair`, so that the bits are the same. `sums`: see `_sparse_cell`.
    """
    o, size, n = peek_int(record, rec.OUT), peek_int(record, rec.SIZE), peek_int(record, rec.ROW)
    sa, sb, reduced = peek_int(record, rec.ROW_A), peek_int(record, rec.ROW_B), peek_int(record, rec.ROW_OUT) != 1
    for i in range(0, size, LANES):
        store(arena, o + i, size - i, zero())
    at = rec.FIRST_LOOP + 2
    top, high = 0.0, zero()
    for _ in range(peek_int(record, rec.FIRST_LOOP)):
        cell, terms = peek_int(record, at), peek_int(record, at + 1)
        at += 2
        if n == 1:
            x = _sparse_cell(arena, record, at, terms, reduced, sums)
            poke(arena, cell, x)
            top = max(top, x)
        else:
            for i in range(0, n, LANES):
                y = zero()
                for t in range(at, at + 2 * terms, 2):
                    a, b = peek_int(record, t), peek_int(record, t + 1)
                    if sb == 0:
                        y = fma(load(arena, a + i, n - i), splat(peek(arena, b)), y)
                    elif sa == 0:
                        y = fma(load(arena, b + i, n - i), splat(peek(arena, a)), y)
                    else:
                        y = fma(load(arena, a + i, n - i), load(arena, b + i, n - i), y)
                store(arena, cell + i, n - i, y)
                high = maximum(high, y)
        at += 2 * terms
    return max(top, largest(high))


class Many(NamedTuple):
    """Scratch memory and shape of a contraction of more than two tables; all int64."""

    k: int  # inputs
    n: int  # cells of a row
    row_out: int  # 1: the output has a row; 0: the row is reduced to a cell
    at: int  # address of k int64: present cell of each input
    strides: int  # address of k int64: step of each input along the row, 0 or 1
    buffer: int  # address of n float64


@compiled(fastmath=_fast)
def _sum_row(arena, m, o, first):  # type: ignore[no-untyped-def]
    """Add the product of the inputs' rows to the output's row, or its sum to the output's cell."""
    # first: Whether these are the first terms: what the output holds is overwritten
    constant = 1.0
    for t in range(m.k):
        if peek_int(m.strides, t) == 0:
            constant *= peek(arena, peek_int(m.at, t))
    for i in range(m.n):
        poke(m.buffer, i, constant)
    for t in range(m.k):
        if peek_int(m.strides, t) == 1:
            a = peek_int(m.at, t)
            for i in range(m.n):
                poke(m.buffer, i, peek(m.buffer, i) * peek(arena, a + i))
    if m.row_out == 1:
        for i in range(m.n):
            poke(arena, o + i, peek(m.buffer, i) + (0.0 if first else peek(arena, o + i)))
    else:
        sum_ = 0.0 if first else peek(arena, o)
        for i in range(m.n):
            sum_ += peek(m.buffer, i)
        poke(arena, o, sum_)


@compiled()
def _maximise_row(arena, m, o, first):  # type: ignore[no-untyped-def]
    """`_sum_row` by maximum. Products are taken in the inputs' order, as the backward pass takes them."""
    x = 0.0 if first or m.row_out == 1 else peek(arena, o)
    for i in range(m.n):
        y = peek(arena, peek_int(m.at, 0) + i * peek_int(m.strides, 0))
        for t in range(1, m.k):
            y *= peek(arena, peek_int(m.at, t) + i * peek_int(m.strides, t))
        if m.row_out == 1:
            poke(arena, o + i, y if first else max(y, peek(arena, o + i)))
        else:
            x = max(x, y)
    if m.row_out != 1:
        poke(arena, o, x)


@compiled()
def _advance_many(loops, k, first, last, count, at):  # type: ignore[no-untyped-def]
    """Go on to the next round of the loops ``first..last-1`` of a contraction of k tables; see `_advance`."""
    # loops: Address of int64: (extent, stride of the output, stride of each input) a loop
    # count: Address of int64: rounds done of each loop
    # at: Address of k int64: present cells of the inputs, which are moved
    # returns How far the output moves.
    width, moved = k + 2, 0
    for j in range(last - 1, first - 1, -1):
        loop = loops + 8 * j * width
        poke_int(count, j, peek_int(count, j) + 1)
        rounds = 1
        if peek_int(count, j) == peek_int(loop, 0):
            poke_int(count, j, 0)
            rounds -= peek_int(loop, 0)
        moved += rounds * peek_int(loop, 1)
        for t in range(k):
            poke_int(at, t, peek_int(at, t) + rounds * peek_int(loop, 2 + t))
        if rounds == 1:
            break
    return moved


@compiled()
def _contract_many(op, arena, record, work, buffer):  # type: ignore[no-untyped-def]
    """Run a contraction of more than two tables, row by row; returns the largest entry of its output (float64)."""
    # work: Address of int64, scratch memory: 3 numbers an input and one a loop
    # buffer: Address of float64, scratch memory: a number a cell of a row
    k, n_kept, n = peek_int(record, rec.INPUTS), peek_int(record, rec.KEPT), peek_int(record, rec.ROW)
    n_loops, row_out = n_kept + peek_int(record, rec.REDUCED), peek_int(record, rec.ROW_OUT)
    o = peek_int(record, rec.OUT)
    kept_at, at, strides, count = work, work + 8 * k, work + 16 * k, work + 24 * k
    m = Many(k, n, row_out, at, strides, buffer)
    for t in range(k):
        poke_int(kept_at, t, peek_int(record, input_field(t)))
        poke_int(strides, t, peek_int(record, input_field(t) + 2))
    loops = record + 8 * (rec.FIRST_LOOP + 3 * (k - 2))
    cells, terms = 1, 1
    for j in range(n_loops):
        poke_int(count, j, 0)
        if j < n_kept:
            cells *= peek_int(loops, j * (k + 2))
        else:
            terms *= peek_int(loops, j * (k + 2))
    top = 0.0
    for _ in range(cells):
        for t in range(k):
            poke_int(at, t, peek_int(kept_at, t))
        for s in range(terms):
            if is_maximum(op):
                _maximise_row(arena, m, o, s == 0)
            else:
                _sum_row(arena, m, o, s == 0)
            _advance_many(loops, k, n_kept, n_loops, count, at)
        for i in range(n if row_out == 1 else 1):
            top = max(top, peek(arena, o + i))
        o += _advance_many(loops, k, 0, n_kept, count, kept_at)
    return top


@inlined
def _contract_by(op, arena, record, work, offsets, buffer):  # type: ignore[no-untyped-def]
    """`contract` for one way of combining terms."""
    if peek_int(record, rec.LISTED) > 0:
        return _contract_listed(op, arena, record)
    if peek_int(record, rec.PACKED) == 1:
        return contract_packed(op, arena, record, buffer)
    if peek_int(record, rec.INPUTS) == 2:
        return _contract_pair(op, arena, record, work, offsets, offsets + 8 * rec.LIST)
    return _contract_many(op, arena, record, work, buffer)


@compiled("i8, i8, i8, i8, i8")
def contract_sum(arena, record, work, offsets, buffer):  # type: ignore[no-untyped-def]
    """`contract` by sum with the addresses of its scratch memory."""
    if peek_int(record, rec.LISTED) < 0:
        return _contract_sparse(arena, record, offsets)
    return _contract_by(by_sum(), arena, record, work, offsets, buffer)


@compiled("i8, i8, i8, i8, i8")
def contract_maximum(arena, record, work, offsets, buffer):  # type: ignore[no-untyped-def]
    """`contract` by maximum with the addresses of its scratch memory."""
    return _contract_by(by_maximum(), arena, record, work, offsets, buffer)


@compiled()
def contract(arena, record, scratch):  # type: ignore[no-untyped-def]
    """Run a contraction; returns the largest entry of its output (float64)."""
    # arena: Address of float64: cells of all tables
    # record: Address of int64: a record, see `records`
    # scratch: Address of `workspace.Scratch.block`
    maximal = peek_int(record, rec.MAXIMAL)
    if maximal == 0 and peek_int(record, rec.LISTED) > 0:  # small: a call would take as long
        return _contract_listed(by_sum(), arena, record)
    return call(
        peek_int(scratch, rec.CONTRACT + maximal), arena, record, peek_int(scratch, rec.WORK),
        peek_int(scratch, rec.OFFSETS), peek_int(scratch, rec.BUFFER),
    )  # fmt: skip
