"""Compiled loops of one contraction; see `records` for the records that they follow.

A contraction's loops, outermost first:

    kept but one | summed but one | last kept | last summed | row

where the row runs over neighbouring cells. Eight cells of an output row are held in registers while everything that
adds to them is summed, so an output is written once and read never; nothing of Python is in the loop.
"""

from __future__ import annotations

from ...util.numba_cache import compiled
from .records import (
    INPUTS,
    KEPT,
    LISTED,
    LOOPS,
    OUT,
    ROW,
    ROW_A,
    ROW_B,
    ROW_OUT,
    SIZE,
    SUMMED,
    A,
    B,
)
from .vector import LANES, fma, fma1, largest, load, maximum, note, number, peek, poke, splat, store, total, zero

__all__ = ["LIST", "contract", "step_loops"]

LIST = 2048  # offsets of summed cells that a contraction lists at a time

_fast = {"reassoc", "nsz", "contract", "nnan", "ninf", "arcp"}  # sums may be reordered; still the same bits every run


@compiled()
def _rows4(arena, o, io, a, ia, b, ib, n, sb, off_a, off_b, terms, add):  # type: ignore[no-untyped-def]
    """Four rows of the output, each the sum of `terms` products of a row of A with a row (sb = 1) or a number (sb = 0)
    of B; returns their largest lanes. With `add` the sums go on from what the cells hold."""
    top = zero()
    for i in range(0, n, LANES):
        m = n - i
        x0 = x1 = x2 = x3 = zero()
        if add:
            x0, x1 = load(arena, o + i, m), load(arena, o + io + i, m)
            x2, x3 = load(arena, o + 2 * io + i, m), load(arena, o + 3 * io + i, m)
        if sb == 0:
            if ia == 0:
                for t in range(terms):
                    p, q = a + i + number(off_a, t), b + number(off_b, t)
                    y = load(arena, p, m)
                    x0 = fma(y, splat(peek(arena, q)), x0)
                    x1 = fma(y, splat(peek(arena, q + ib)), x1)
                    x2 = fma(y, splat(peek(arena, q + 2 * ib)), x2)
                    x3 = fma(y, splat(peek(arena, q + 3 * ib)), x3)
            elif ib == 0:
                for t in range(terms):
                    p, q = a + i + number(off_a, t), b + number(off_b, t)
                    y = splat(peek(arena, q))
                    x0 = fma(load(arena, p, m), y, x0)
                    x1 = fma(load(arena, p + ia, m), y, x1)
                    x2 = fma(load(arena, p + 2 * ia, m), y, x2)
                    x3 = fma(load(arena, p + 3 * ia, m), y, x3)
            else:
                for t in range(terms):
                    p, q = a + i + number(off_a, t), b + number(off_b, t)
                    x0 = fma(load(arena, p, m), splat(peek(arena, q)), x0)
                    x1 = fma(load(arena, p + ia, m), splat(peek(arena, q + ib)), x1)
                    x2 = fma(load(arena, p + 2 * ia, m), splat(peek(arena, q + 2 * ib)), x2)
                    x3 = fma(load(arena, p + 3 * ia, m), splat(peek(arena, q + 3 * ib)), x3)
        elif ib == 0:
            for t in range(terms):
                p, q = a + i + number(off_a, t), b + i + number(off_b, t)
                y = load(arena, q, m)
                x0 = fma(load(arena, p, m), y, x0)
                x1 = fma(load(arena, p + ia, m), y, x1)
                x2 = fma(load(arena, p + 2 * ia, m), y, x2)
                x3 = fma(load(arena, p + 3 * ia, m), y, x3)
        else:
            for t in range(terms):
                p, q = a + i + number(off_a, t), b + i + number(off_b, t)
                x0 = fma(load(arena, p, m), load(arena, q, m), x0)
                x1 = fma(load(arena, p + ia, m), load(arena, q + ib, m), x1)
                x2 = fma(load(arena, p + 2 * ia, m), load(arena, q + 2 * ib, m), x2)
                x3 = fma(load(arena, p + 3 * ia, m), load(arena, q + 3 * ib, m), x3)
        store(arena, o + i, m, x0)
        store(arena, o + io + i, m, x1)
        store(arena, o + 2 * io + i, m, x2)
        store(arena, o + 3 * io + i, m, x3)
        top = maximum(top, maximum(maximum(x0, x1), maximum(x2, x3)))
    return top


@compiled()
def _row1(arena, o, a, b, n, sb, off_a, off_b, terms, add):  # type: ignore[no-untyped-def]
    """One row of the output; see `_rows4`."""
    top = zero()
    for i in range(0, n, LANES):
        m = n - i
        x = zero()
        if add:
            x = load(arena, o + i, m)
        if sb == 0:
            for t in range(terms):
                x = fma(load(arena, a + i + number(off_a, t), m), splat(peek(arena, b + number(off_b, t))), x)
        else:
            for t in range(terms):
                x = fma(load(arena, a + i + number(off_a, t), m), load(arena, b + i + number(off_b, t), m), x)
        store(arena, o + i, m, x)
        top = maximum(top, x)
    return top


@compiled()
def _cells4(arena, o, io, a, ia, b, ib, n, sb, off_a, off_b, terms, add):  # type: ignore[no-untyped-def]
    """Four cells of the output, each the sum of `terms` rows of products; returns the largest."""
    x0 = x1 = x2 = x3 = zero()
    if sb == 0:
        for t in range(terms):
            p, q = a + number(off_a, t), b + number(off_b, t)
            y0, y1 = splat(peek(arena, q)), splat(peek(arena, q + ib))
            y2, y3 = splat(peek(arena, q + 2 * ib)), splat(peek(arena, q + 3 * ib))
            for i in range(0, n, LANES):
                m = n - i
                x0 = fma(load(arena, p + i, m), y0, x0)
                x1 = fma(load(arena, p + i + ia, m), y1, x1)
                x2 = fma(load(arena, p + i + 2 * ia, m), y2, x2)
                x3 = fma(load(arena, p + i + 3 * ia, m), y3, x3)
    elif n <= LANES:
        for t in range(terms):
            p, q = a + number(off_a, t), b + number(off_b, t)
            x0 = fma(load(arena, p, n), load(arena, q, n), x0)
            x1 = fma(load(arena, p + ia, n), load(arena, q + ib, n), x1)
            x2 = fma(load(arena, p + 2 * ia, n), load(arena, q + 2 * ib, n), x2)
            x3 = fma(load(arena, p + 3 * ia, n), load(arena, q + 3 * ib, n), x3)
    else:
        for t in range(terms):
            p, q = a + number(off_a, t), b + number(off_b, t)
            for i in range(0, n, LANES):
                m = n - i
                x0 = fma(load(arena, p + i, m), load(arena, q + i, m), x0)
                x1 = fma(load(arena, p + i + ia, m), load(arena, q + i + ib, m), x1)
                x2 = fma(load(arena, p + i + 2 * ia, m), load(arena, q + i + 2 * ib, m), x2)
                x3 = fma(load(arena, p + i + 3 * ia, m), load(arena, q + i + 3 * ib, m), x3)
    s0, s1, s2, s3 = total(x0), total(x1), total(x2), total(x3)
    if add:
        s0, s1 = s0 + peek(arena, o), s1 + peek(arena, o + io)
        s2, s3 = s2 + peek(arena, o + 2 * io), s3 + peek(arena, o + 3 * io)
    poke(arena, o, s0)
    poke(arena, o + io, s1)
    poke(arena, o + 2 * io, s2)
    poke(arena, o + 3 * io, s3)
    return max(max(s0, s1), max(s2, s3))


@compiled()
def _cell1(arena, o, a, b, n, sb, off_a, off_b, terms, add):  # type: ignore[no-untyped-def]
    """One cell of the output; see `_cells4`."""
    x = zero()
    for t in range(terms):
        p, q = a + number(off_a, t), b + number(off_b, t)
        if sb == 0:
            y = splat(peek(arena, q))
            for i in range(0, n, LANES):
                x = fma(load(arena, p + i, n - i), y, x)
        else:
            for i in range(0, n, LANES):
                x = fma(load(arena, p + i, n - i), load(arena, q + i, n - i), x)
    s = total(x)
    if add:
        s += peek(arena, o)
    poke(arena, o, s)
    return s


@compiled()
def _contract_pair(arena, record, count, off_a, off_b):  # type: ignore[no-untyped-def]
    """Run a contraction of two tables; returns the largest entry of its output."""
    n_kept, n_summed, n = number(record, KEPT), number(record, SUMMED), number(record, ROW)
    so, sa, sb = number(record, ROW_OUT), number(record, ROW_A), number(record, ROW_B)
    o, a, b = number(record, OUT), number(record, A), number(record, B)
    n_loops = n_kept + n_summed
    inner, io, ia, ib = 1, 0, 0, 0
    outer_kept = max(n_kept - 1, 0)
    fa, fb = LOOPS + 2, LOOPS + 3  # where the strides of A and B stand in the first loop
    if n_kept > 0:
        at = 4 * outer_kept
        inner, io = number(record, LOOPS + at), number(record, LOOPS + at + 1)
        ia, ib = number(record, fa + at), number(record, fb + at)
    if sa == 0 or (sb != 0 and ia == 0):  # rows of A are vectors; what several output rows share is B's
        a, b, sb, fa, fb, ia, ib = b, a, sa, fb, fa, ib, ia
    # the innermost summed loops as one list of offsets
    terms, first_summed = 1, n_loops
    while first_summed > n_kept and terms * number(record, LOOPS + 4 * (first_summed - 1)) <= LIST:
        first_summed -= 1
        terms *= number(record, LOOPS + 4 * first_summed)
    note(off_a, 0, 0)
    note(off_b, 0, 0)
    made = 1
    for j in range(n_loops - 1, first_summed - 1, -1):
        extent, ta, tb = number(record, LOOPS + 4 * j), number(record, fa + 4 * j), number(record, fb + 4 * j)
        for t in range(made, made * extent):
            note(off_a, t, number(off_a, t - made) + ta)
            note(off_b, t, number(off_b, t - made) + tb)
        made *= extent
    rounds, sums = 1, 1
    for j in range(outer_kept):
        note(count, j, 0)
        rounds *= number(record, LOOPS + 4 * j)
    for j in range(n_kept, first_summed):
        note(count, j, 0)
        sums *= number(record, LOOPS + 4 * j)
    high = zero()
    top = 0.0
    fours = inner - inner % 4
    for _ in range(rounds):
        for s in range(sums):
            add = s > 0
            if so == 1:
                for k in range(0, fours, 4):
                    x = _rows4(
                        arena, o + k * io, io, a + k * ia, ia, b + k * ib, ib, n, sb, off_a, off_b, terms, add
                    )
                    high = maximum(high, x)
                for k in range(fours, inner):
                    x = _row1(arena, o + k * io, a + k * ia, b + k * ib, n, sb, off_a, off_b, terms, add)
                    high = maximum(high, x)
            else:
                for k in range(0, fours, 4):
                    y = _cells4(
                        arena, o + k * io, io, a + k * ia, ia, b + k * ib, ib, n, sb, off_a, off_b, terms, add
                    )
                    top = max(top, y)
                for k in range(fours, inner):
                    y = _cell1(arena, o + k * io, a + k * ia, b + k * ib, n, sb, off_a, off_b, terms, add)
                    top = max(top, y)
            for j in range(first_summed - 1, n_kept - 1, -1):
                note(count, j, number(count, j) + 1)
                if number(count, j) < number(record, LOOPS + 4 * j):
                    a += number(record, fa + 4 * j)
                    b += number(record, fb + 4 * j)
                    break
                note(count, j, 0)
                a -= (number(record, LOOPS + 4 * j) - 1) * number(record, fa + 4 * j)
                b -= (number(record, LOOPS + 4 * j) - 1) * number(record, fb + 4 * j)
        for j in range(outer_kept - 1, -1, -1):
            note(count, j, number(count, j) + 1)
            if number(count, j) < number(record, LOOPS + 4 * j):
                o += number(record, LOOPS + 4 * j + 1)
                a += number(record, fa + 4 * j)
                b += number(record, fb + 4 * j)
                break
            note(count, j, 0)
            o -= (number(record, LOOPS + 4 * j) - 1) * number(record, LOOPS + 4 * j + 1)
            a -= (number(record, LOOPS + 4 * j) - 1) * number(record, fa + 4 * j)
            b -= (number(record, LOOPS + 4 * j) - 1) * number(record, fb + 4 * j)
    return max(top, largest(high))


@compiled()
def _contract_listed(arena, record):  # type: ignore[no-untyped-def]
    """Run a contraction whose cells are listed term by term; returns the largest entry of its output."""
    k, terms, size, o = number(record, INPUTS), number(record, LISTED), number(record, SIZE), number(record, OUT)
    at = LOOPS + 3 * (k - 2)
    top = 0.0
    for i in range(o, o + size):
        x = 0.0
        if k == 2:
            for _ in range(terms):
                x += peek(arena, number(record, at)) * peek(arena, number(record, at + 1))
                at += 2
        else:
            for _ in range(terms):
                y = peek(arena, number(record, at)) * peek(arena, number(record, at + 1))
                for t in range(2, k):
                    y *= peek(arena, number(record, at + t))
                x += y
                at += k
        poke(arena, i, x)
        top = max(top, x)
    return top


@compiled()
def _contract_sparse(arena, record, sums):  # type: ignore[no-untyped-def]
    """Run a contraction of the terms that are not zero; returns the largest entry of its output. Terms are added in the
    order of `_contract_pair`, so that the bits are the same: where a row is summed, each of its eight `sums` by itself.
    """
    o, size, n, so = number(record, OUT), number(record, SIZE), number(record, ROW), number(record, ROW_OUT)
    sa, sb = number(record, ROW_A), number(record, ROW_B)
    for i in range(0, size, LANES):
        store(arena, o + i, size - i, zero())
    at = LOOPS + 2
    top, high = 0.0, zero()
    for _ in range(number(record, LOOPS)):
        cell, terms = number(record, at), number(record, at + 1)
        at += 2
        if n == 1:
            x = 0.0
            if so == 1:
                for t in range(at, at + 2 * terms, 2):
                    x = fma1(peek(arena, number(record, t)), peek(arena, number(record, t + 1)), x)
            else:
                store(sums, 0, LANES, zero())
                for t in range(at, at + 2 * terms, 2):
                    a, lane = number(record, t) // LANES, number(record, t) % LANES
                    poke(sums, lane, fma1(peek(arena, a), peek(arena, number(record, t + 1)), peek(sums, lane)))
                x = total(load(sums, 0, LANES))
            poke(arena, cell, x)
            top = max(top, x)
        else:
            for i in range(0, n, LANES):
                y = zero()
                for t in range(at, at + 2 * terms, 2):
                    a, b = number(record, t), number(record, t + 1)
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


@compiled(fastmath=_fast)
def _row(arena, o, n, so, k, at, strides, buffer, first):  # type: ignore[no-untyped-def]
    """Add the product of the inputs' rows to the output's row (so = 1), or their sum to its cell (so = 0)."""
    constant = 1.0
    for t in range(k):
        if number(strides, t) == 0:
            constant *= peek(arena, number(at, t))
    for i in range(n):
        poke(buffer, i, constant)
    for t in range(k):
        if number(strides, t) == 1:
            a = number(at, t)
            for i in range(n):
                poke(buffer, i, peek(buffer, i) * peek(arena, a + i))
    if so == 1:
        for i in range(n):
            poke(arena, o + i, peek(buffer, i) + (0.0 if first else peek(arena, o + i)))
    else:
        sum_ = 0.0 if first else peek(arena, o)
        for i in range(n):
            sum_ += peek(buffer, i)
        poke(arena, o, sum_)


@compiled(fastmath=_fast)
def _contract_many(arena, record, work, buffer):  # type: ignore[no-untyped-def]
    """Run a contraction of more than two tables, row by row; returns the largest entry of its output."""
    k, n_kept, n_summed = number(record, INPUTS), number(record, KEPT), number(record, SUMMED)
    n, so, o = number(record, ROW), number(record, ROW_OUT), number(record, OUT)
    width = k + 2  # of a loop: extent, stride of the output, strides of the inputs
    kept_at, at, strides, count = work, work + 8 * k, work + 16 * k, work + 24 * k  # addresses of k cells each
    for t in range(k):
        where = A if t == 0 else B if t == 1 else LOOPS + 3 * (t - 2)
        note(kept_at, t, number(record, where))
        note(strides, t, number(record, where + 2))
    loops = LOOPS + 3 * (k - 2)
    cells, terms = 1, 1
    for j in range(n_kept + n_summed):
        note(count, j, 0)
        if j < n_kept:
            cells *= number(record, loops + j * width)
        else:
            terms *= number(record, loops + j * width)
    top = 0.0
    for _ in range(cells):
        for t in range(k):
            note(at, t, number(kept_at, t))
        for s in range(terms):
            _row(arena, o, n, so, k, at, strides, buffer, s == 0)
            step_loops(record, loops, width, k, n_kept, n_kept + n_summed, count, at)
        for i in range(n if so == 1 else 1):
            top = max(top, peek(arena, o + i))
        o += step_loops(record, loops, width, k, 0, n_kept, count, kept_at)
    return top


@compiled()
def step_loops(record, loops, width, k, first, last, count, at):  # type: ignore[no-untyped-def]
    """Go on to the next round of some loops: move the cells `at` of the inputs; returns how far the output moves."""
    moved = 0
    for j in range(last - 1, first - 1, -1):
        loop = loops + j * width
        note(count, j, number(count, j) + 1)
        rounds = 1
        if number(count, j) == number(record, loop):
            note(count, j, 0)
            rounds -= number(record, loop)
        moved += rounds * number(record, loop + 1)
        for t in range(k):
            note(at, t, number(at, t) + rounds * number(record, loop + 2 + t))
        if rounds == 1:
            break
    return moved


@compiled()
def contract(arena, record, work, offsets, buffer):  # type: ignore[no-untyped-def]
    """Run a contraction; returns the largest entry of its output. Everything by its address; the last three are scratch
    memory."""
    if number(record, LISTED) > 0:
        return _contract_listed(arena, record)
    if number(record, LISTED) < 0:
        return _contract_sparse(arena, record, offsets)
    if number(record, INPUTS) == 2:
        return _contract_pair(arena, record, work, offsets, offsets + 8 * LIST)
    return _contract_many(arena, record, work, buffer)
