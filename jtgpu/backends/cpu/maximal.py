"""Compiled loops of one contraction that takes variables out by maximum; see `kernels`, which sums.

The same records, the same order of loops and the same products, so that the maximum over a table is, bit for bit, the
product that a way back down finds again. Numbers are never negative: zero is less than or equal to all of them.
"""

from __future__ import annotations

from ...util.numba_cache import compiled
from .kernels import LIST, step_loops
from .records import INPUTS, KEPT, LISTED, LOOPS, OUT, ROW, ROW_A, ROW_B, ROW_OUT, SIZE, SUMMED, A, B
from .vector import LANES, fma, largest, load, maximum, note, number, peek, poke, splat, store, zero

__all__ = ["contract_maximal"]


@compiled()
def _rows4(arena, o, io, a, ia, b, ib, n, sb, off_a, off_b, terms, more):  # type: ignore[no-untyped-def]
    """Four rows of the output, each the largest of `terms` products of a row of A with a row (sb = 1) or a number
    (sb = 0) of B; returns their largest lanes. With `more` they go on from what the cells hold."""
    top, nothing = zero(), zero()
    for i in range(0, n, LANES):
        m = n - i
        x0 = x1 = x2 = x3 = zero()
        if more:
            x0, x1 = load(arena, o + i, m), load(arena, o + io + i, m)
            x2, x3 = load(arena, o + 2 * io + i, m), load(arena, o + 3 * io + i, m)
        if sb == 0:
            for t in range(terms):
                p, q = a + i + number(off_a, t), b + number(off_b, t)
                y0 = splat(peek(arena, q))
                y1, y2, y3 = y0, y0, y0
                if ib != 0:
                    y1, y2 = splat(peek(arena, q + ib)), splat(peek(arena, q + 2 * ib))
                    y3 = splat(peek(arena, q + 3 * ib))
                z0 = load(arena, p, m)
                z1, z2, z3 = z0, z0, z0
                if ia != 0:
                    z1, z2, z3 = load(arena, p + ia, m), load(arena, p + 2 * ia, m), load(arena, p + 3 * ia, m)
                x0, x1 = maximum(fma(z0, y0, nothing), x0), maximum(fma(z1, y1, nothing), x1)
                x2, x3 = maximum(fma(z2, y2, nothing), x2), maximum(fma(z3, y3, nothing), x3)
        else:
            for t in range(terms):
                p, q = a + i + number(off_a, t), b + i + number(off_b, t)
                y0 = load(arena, q, m)
                y1, y2, y3 = y0, y0, y0
                if ib != 0:
                    y1, y2, y3 = load(arena, q + ib, m), load(arena, q + 2 * ib, m), load(arena, q + 3 * ib, m)
                x0 = maximum(fma(load(arena, p, m), y0, nothing), x0)
                x1 = maximum(fma(load(arena, p + ia, m), y1, nothing), x1)
                x2 = maximum(fma(load(arena, p + 2 * ia, m), y2, nothing), x2)
                x3 = maximum(fma(load(arena, p + 3 * ia, m), y3, nothing), x3)
        store(arena, o + i, m, x0)
        store(arena, o + io + i, m, x1)
        store(arena, o + 2 * io + i, m, x2)
        store(arena, o + 3 * io + i, m, x3)
        top = maximum(top, maximum(maximum(x0, x1), maximum(x2, x3)))
    return top


@compiled()
def _row1(arena, o, a, b, n, sb, off_a, off_b, terms, more):  # type: ignore[no-untyped-def]
    """One row of the output; see `_rows4`."""
    top, nothing = zero(), zero()
    for i in range(0, n, LANES):
        m = n - i
        x = zero()
        if more:
            x = load(arena, o + i, m)
        for t in range(terms):
            y = splat(peek(arena, b + number(off_b, t))) if sb == 0 else load(arena, b + i + number(off_b, t), m)
            x = maximum(fma(load(arena, a + i + number(off_a, t), m), y, nothing), x)
        store(arena, o + i, m, x)
        top = maximum(top, x)
    return top


@compiled()
def _cell(arena, o, a, b, n, sb, off_a, off_b, terms, more):  # type: ignore[no-untyped-def]
    """One cell of the output, the largest of `terms` rows of products."""
    x, nothing = zero(), zero()
    for t in range(terms):
        p, q = a + number(off_a, t), b + number(off_b, t)
        if sb == 0:
            y = splat(peek(arena, q))
            for i in range(0, n, LANES):
                x = maximum(fma(load(arena, p + i, n - i), y, nothing), x)
        else:
            for i in range(0, n, LANES):
                x = maximum(fma(load(arena, p + i, n - i), load(arena, q + i, n - i), nothing), x)
    high = largest(x)
    if more:
        high = max(high, peek(arena, o))
    poke(arena, o, high)
    return high


@compiled()
def _advance(record, fa, fb, first, last, count, moved):  # type: ignore[no-untyped-def]
    """Go on to the next round of some loops; how far the output, A and B move is noted in `moved`."""
    for t in range(3):
        note(moved, t, 0)
    for j in range(last - 1, first - 1, -1):
        note(count, j, number(count, j) + 1)
        rounds, at = 1, LOOPS + 4 * j
        if number(count, j) == number(record, at):
            note(count, j, 0)
            rounds -= number(record, at)
        note(moved, 0, number(moved, 0) + rounds * number(record, at + 1))
        note(moved, 1, number(moved, 1) + rounds * number(record, fa + 4 * j))
        note(moved, 2, number(moved, 2) + rounds * number(record, fb + 4 * j))
        if rounds == 1:
            break


@compiled()
def _pair(arena, record, work, off_a, off_b):  # type: ignore[no-untyped-def]
    """Run a contraction of two tables; returns the largest entry of its output."""
    n_kept, n, so = number(record, KEPT), number(record, ROW), number(record, ROW_OUT)
    n_loops = n_kept + number(record, SUMMED)
    sa, sb = number(record, ROW_A), number(record, ROW_B)
    o, a, b = number(record, OUT), number(record, A), number(record, B)
    moved, count = work, work + 8 * 3
    inner, io, ia, ib = 1, 0, 0, 0
    outer = max(n_kept - 1, 0)
    fa, fb = LOOPS + 2, LOOPS + 3  # where the strides of A and B stand in the first loop
    if n_kept > 0:
        at = 4 * outer
        inner, io = number(record, LOOPS + at), number(record, LOOPS + at + 1)
        ia, ib = number(record, fa + at), number(record, fb + at)
    if sa == 0 or (sb != 0 and ia == 0):  # rows of A are vectors; what several output rows share is B's
        a, b, sb, fa, fb, ia, ib = b, a, sa, fb, fa, ib, ia
    # the innermost loops that are taken out, as one list of offsets
    terms, listed = 1, n_loops
    while listed > n_kept and terms * number(record, LOOPS + 4 * (listed - 1)) <= LIST:
        listed -= 1
        terms *= number(record, LOOPS + 4 * listed)
    note(off_a, 0, 0)
    note(off_b, 0, 0)
    made = 1
    for j in range(n_loops - 1, listed - 1, -1):
        extent, ta, tb = number(record, LOOPS + 4 * j), number(record, fa + 4 * j), number(record, fb + 4 * j)
        for t in range(made, made * extent):
            note(off_a, t, number(off_a, t - made) + ta)
            note(off_b, t, number(off_b, t - made) + tb)
        made *= extent
    rounds, again = 1, 1
    for j in range(listed):
        note(count, j, 0)
        if j < outer:
            rounds *= number(record, LOOPS + 4 * j)
        elif j >= n_kept:
            again *= number(record, LOOPS + 4 * j)
    high, top = zero(), 0.0
    for _ in range(rounds):
        for s in range(again):
            more, k = s > 0, 0
            if so == 1:
                while k + 4 <= inner:
                    high = maximum(
                        high,
                        _rows4(arena, o + k * io, io, a + k * ia, ia, b + k * ib, ib, n, sb, off_a, off_b, terms, more),
                    )
                    k += 4
                while k < inner:
                    high = maximum(
                        high, _row1(arena, o + k * io, a + k * ia, b + k * ib, n, sb, off_a, off_b, terms, more)
                    )
                    k += 1
            else:
                while k < inner:
                    x = _cell(arena, o + k * io, a + k * ia, b + k * ib, n, sb, off_a, off_b, terms, more)
                    top = max(top, x)
                    k += 1
            _advance(record, fa, fb, n_kept, listed, count, moved)
            a += number(moved, 1)
            b += number(moved, 2)
        _advance(record, fa, fb, 0, outer, count, moved)
        o += number(moved, 0)
        a += number(moved, 1)
        b += number(moved, 2)
    return max(top, largest(high))


@compiled()
def _listed(arena, record):  # type: ignore[no-untyped-def]
    """Run a contraction whose cells are listed term by term; returns the largest entry of its output."""
    k, terms, size, o = number(record, INPUTS), number(record, LISTED), number(record, SIZE), number(record, OUT)
    at = LOOPS + 3 * (k - 2)
    top = 0.0
    for i in range(o, o + size):
        x = 0.0
        for _ in range(terms):
            y = peek(arena, number(record, at)) * peek(arena, number(record, at + 1))
            for t in range(2, k):
                y *= peek(arena, number(record, at + t))
            x = max(x, y)
            at += k
        poke(arena, i, x)
        top = max(top, x)
    return top


@compiled()
def _many(arena, record, work):  # type: ignore[no-untyped-def]
    """Run a contraction of more than two tables, row by row; returns the largest entry of its output."""
    k, n_kept, n_out = number(record, INPUTS), number(record, KEPT), number(record, SUMMED)
    n, so, o = number(record, ROW), number(record, ROW_OUT), number(record, OUT)
    width = k + 2  # of a loop: extent, stride of the output, strides of the inputs
    at, strides, count = work, work + 8 * k, work + 16 * k
    loops = LOOPS + 3 * (k - 2)
    rounds, terms = 1, 1
    for t in range(k):
        where = A if t == 0 else B if t == 1 else LOOPS + 3 * (t - 2)
        note(at, t, number(record, where))
        note(strides, t, number(record, where + 2))
    for j in range(n_kept + n_out):
        note(count, j, 0)
        if j < n_kept:
            rounds *= number(record, loops + j * width)
        else:
            terms *= number(record, loops + j * width)
    top = 0.0
    for _ in range(rounds):
        for s in range(terms):
            x = 0.0 if s == 0 or so == 1 else peek(arena, o)
            for i in range(n):
                y = peek(arena, number(at, 0) + i * number(strides, 0))
                for t in range(1, k):
                    y *= peek(arena, number(at, t) + i * number(strides, t))
                if so == 1:
                    poke(arena, o + i, y if s == 0 else max(y, peek(arena, o + i)))
                else:
                    x = max(x, y)
            if so != 1:
                poke(arena, o, x)
            step_loops(record, loops, width, k, n_kept, n_kept + n_out, count, at)
        for i in range(n if so == 1 else 1):
            top = max(top, peek(arena, o + i))
        o += step_loops(record, loops, width, k, 0, n_kept, count, at)
    return top


@compiled()
def contract_maximal(arena, record, work, offsets):  # type: ignore[no-untyped-def]
    """Run a contraction; returns the largest entry of its output. As `jtgpu.backends.cpu.kernels.contract`."""
    if number(record, LISTED) > 0:
        return _listed(arena, record)
    if number(record, INPUTS) == 2:
        return _pair(arena, record, work, offsets, offsets + 8 * LIST)
    return _many(arena, record, work)
