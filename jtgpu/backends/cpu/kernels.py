"""Compiled loops of one contraction; see `records` for the records that they follow.

A contraction's loops, outermost first:

    kept but one | summed but one | last kept | last summed | row

where the row runs over neighbouring cells. Eight cells of an output row are held in registers while everything that
adds to them is summed, so an output is written once and read never; nothing of Python is in the loop.
"""

from __future__ import annotations

from numba import njit

from .records import (
    INPUTS,
    KEPT,
    LOOPS,
    OUT,
    ROW,
    ROW_A,
    ROW_B,
    ROW_OUT,
    SUMMED,
    A,
    B,
)
from .vector import LANES, fma, largest, load, maximum, splat, store, total, zero

__all__ = ["contract"]

_fast = {"reassoc", "nsz", "contract", "nnan", "ninf", "arcp"}  # sums may be reordered; still the same bits every run


@njit(cache=True, nogil=True, error_model="numpy")
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
                    p, q = a + i + off_a[t], b + off_b[t]
                    y = load(arena, p, m)
                    x0 = fma(y, splat(arena[q]), x0)
                    x1 = fma(y, splat(arena[q + ib]), x1)
                    x2 = fma(y, splat(arena[q + 2 * ib]), x2)
                    x3 = fma(y, splat(arena[q + 3 * ib]), x3)
            elif ib == 0:
                for t in range(terms):
                    p, q = a + i + off_a[t], b + off_b[t]
                    y = splat(arena[q])
                    x0 = fma(load(arena, p, m), y, x0)
                    x1 = fma(load(arena, p + ia, m), y, x1)
                    x2 = fma(load(arena, p + 2 * ia, m), y, x2)
                    x3 = fma(load(arena, p + 3 * ia, m), y, x3)
            else:
                for t in range(terms):
                    p, q = a + i + off_a[t], b + off_b[t]
                    x0 = fma(load(arena, p, m), splat(arena[q]), x0)
                    x1 = fma(load(arena, p + ia, m), splat(arena[q + ib]), x1)
                    x2 = fma(load(arena, p + 2 * ia, m), splat(arena[q + 2 * ib]), x2)
                    x3 = fma(load(arena, p + 3 * ia, m), splat(arena[q + 3 * ib]), x3)
        elif ib == 0:
            for t in range(terms):
                p, q = a + i + off_a[t], b + i + off_b[t]
                y = load(arena, q, m)
                x0 = fma(load(arena, p, m), y, x0)
                x1 = fma(load(arena, p + ia, m), y, x1)
                x2 = fma(load(arena, p + 2 * ia, m), y, x2)
                x3 = fma(load(arena, p + 3 * ia, m), y, x3)
        else:
            for t in range(terms):
                p, q = a + i + off_a[t], b + i + off_b[t]
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


@njit(cache=True, nogil=True, error_model="numpy")
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
                x = fma(load(arena, a + i + off_a[t], m), splat(arena[b + off_b[t]]), x)
        else:
            for t in range(terms):
                x = fma(load(arena, a + i + off_a[t], m), load(arena, b + i + off_b[t], m), x)
        store(arena, o + i, m, x)
        top = maximum(top, x)
    return top


@njit(cache=True, nogil=True, error_model="numpy")
def _cells4(arena, o, io, a, ia, b, ib, n, sb, off_a, off_b, terms, add):  # type: ignore[no-untyped-def]
    """Four cells of the output, each the sum of `terms` rows of products; returns the largest."""
    x0 = x1 = x2 = x3 = zero()
    if sb == 0:
        for t in range(terms):
            p, q = a + off_a[t], b + off_b[t]
            y0, y1, y2, y3 = splat(arena[q]), splat(arena[q + ib]), splat(arena[q + 2 * ib]), splat(arena[q + 3 * ib])
            for i in range(0, n, LANES):
                m = n - i
                x0 = fma(load(arena, p + i, m), y0, x0)
                x1 = fma(load(arena, p + i + ia, m), y1, x1)
                x2 = fma(load(arena, p + i + 2 * ia, m), y2, x2)
                x3 = fma(load(arena, p + i + 3 * ia, m), y3, x3)
    elif n <= LANES:
        for t in range(terms):
            p, q = a + off_a[t], b + off_b[t]
            x0 = fma(load(arena, p, n), load(arena, q, n), x0)
            x1 = fma(load(arena, p + ia, n), load(arena, q + ib, n), x1)
            x2 = fma(load(arena, p + 2 * ia, n), load(arena, q + 2 * ib, n), x2)
            x3 = fma(load(arena, p + 3 * ia, n), load(arena, q + 3 * ib, n), x3)
    else:
        for t in range(terms):
            p, q = a + off_a[t], b + off_b[t]
            for i in range(0, n, LANES):
                m = n - i
                x0 = fma(load(arena, p + i, m), load(arena, q + i, m), x0)
                x1 = fma(load(arena, p + i + ia, m), load(arena, q + i + ib, m), x1)
                x2 = fma(load(arena, p + i + 2 * ia, m), load(arena, q + i + 2 * ib, m), x2)
                x3 = fma(load(arena, p + i + 3 * ia, m), load(arena, q + i + 3 * ib, m), x3)
    s0, s1, s2, s3 = total(x0), total(x1), total(x2), total(x3)
    if add:
        s0, s1 = s0 + arena[o], s1 + arena[o + io]
        s2, s3 = s2 + arena[o + 2 * io], s3 + arena[o + 3 * io]
    arena[o], arena[o + io], arena[o + 2 * io], arena[o + 3 * io] = s0, s1, s2, s3
    return max(max(s0, s1), max(s2, s3))


@njit(cache=True, nogil=True, error_model="numpy")
def _cell1(arena, o, a, b, n, sb, off_a, off_b, terms, add):  # type: ignore[no-untyped-def]
    """One cell of the output; see `_cells4`."""
    x = zero()
    for t in range(terms):
        p, q = a + off_a[t], b + off_b[t]
        if sb == 0:
            y = splat(arena[q])
            for i in range(0, n, LANES):
                x = fma(load(arena, p + i, n - i), y, x)
        else:
            for i in range(0, n, LANES):
                x = fma(load(arena, p + i, n - i), load(arena, q + i, n - i), x)
    s = total(x)
    if add:
        s += arena[o]
    arena[o] = s
    return s


@njit(cache=True, nogil=True, error_model="numpy")
def _contract_pair(arena, record, count, off_a, off_b):  # type: ignore[no-untyped-def]
    """Run a contraction of two tables; returns the largest entry of its output."""
    n_kept, n_summed, n = record[KEPT], record[SUMMED], record[ROW]
    so, sa, sb = record[ROW_OUT], record[ROW_A], record[ROW_B]
    o, a, b = record[OUT], record[A], record[B]
    n_loops = n_kept + n_summed
    inner, io, ia, ib = 1, 0, 0, 0
    outer_kept = max(n_kept - 1, 0)
    fa, fb = LOOPS + 2, LOOPS + 3  # where the strides of A and B stand in the first loop
    if n_kept > 0:
        at = 4 * outer_kept
        inner, io, ia, ib = record[LOOPS + at], record[LOOPS + at + 1], record[fa + at], record[fb + at]
    if sa == 0 or (sb != 0 and ia == 0):  # rows of A are vectors; what several output rows share is B's
        a, b, sb, fa, fb, ia, ib = b, a, sa, fb, fa, ib, ia
    # the innermost summed loops as one list of offsets
    terms, first_summed = 1, n_loops
    while first_summed > n_kept and terms * record[LOOPS + 4 * (first_summed - 1)] <= len(off_a):
        first_summed -= 1
        terms *= record[LOOPS + 4 * first_summed]
    off_a[0], off_b[0] = 0, 0
    made = 1
    for j in range(n_loops - 1, first_summed - 1, -1):
        extent, ta, tb = record[LOOPS + 4 * j], record[fa + 4 * j], record[fb + 4 * j]
        for t in range(made, made * extent):
            off_a[t], off_b[t] = off_a[t - made] + ta, off_b[t - made] + tb
        made *= extent
    rounds, sums = 1, 1
    for j in range(outer_kept):
        count[j] = 0
        rounds *= record[LOOPS + 4 * j]
    for j in range(n_kept, first_summed):
        count[j] = 0
        sums *= record[LOOPS + 4 * j]
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
                count[j] += 1
                if count[j] < record[LOOPS + 4 * j]:
                    a += record[fa + 4 * j]
                    b += record[fb + 4 * j]
                    break
                count[j] = 0
                a -= (record[LOOPS + 4 * j] - 1) * record[fa + 4 * j]
                b -= (record[LOOPS + 4 * j] - 1) * record[fb + 4 * j]
        for j in range(outer_kept - 1, -1, -1):
            count[j] += 1
            if count[j] < record[LOOPS + 4 * j]:
                o += record[LOOPS + 4 * j + 1]
                a += record[fa + 4 * j]
                b += record[fb + 4 * j]
                break
            count[j] = 0
            o -= (record[LOOPS + 4 * j] - 1) * record[LOOPS + 4 * j + 1]
            a -= (record[LOOPS + 4 * j] - 1) * record[fa + 4 * j]
            b -= (record[LOOPS + 4 * j] - 1) * record[fb + 4 * j]
    return max(top, largest(high))


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy")
def _row(arena, o, n, so, k, at, strides, buffer, first):  # type: ignore[no-untyped-def]
    """Add the product of the inputs' rows to the output's row (so = 1), or their sum to its cell (so = 0)."""
    constant = 1.0
    for t in range(k):
        if strides[t] == 0:
            constant *= arena[at[t]]
    for i in range(n):
        buffer[i] = constant
    for t in range(k):
        if strides[t] == 1:
            for i in range(n):
                buffer[i] *= arena[at[t] + i]
    if so == 1:
        if first:
            for i in range(n):
                arena[o + i] = buffer[i]
        else:
            for i in range(n):
                arena[o + i] += buffer[i]
    else:
        total = 0.0
        for i in range(n):
            total += buffer[i]
        if first:
            arena[o] = total
        else:
            arena[o] += total


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy")
def _contract_many(arena, record, work, buffer):  # type: ignore[no-untyped-def]
    """Run one contraction; returns the largest entry of its output."""
    k, n_kept, n_summed, n = record[INPUTS], record[KEPT], record[SUMMED], record[ROW]
    width = k + 2  # of a loop: extent, stride of the output, strides of the inputs
    so, o = record[ROW_OUT], record[OUT]
    kept_at, at, strides = work[0:k], work[k : 2 * k], work[2 * k : 3 * k]
    count = work[3 * k : 3 * k + n_kept + n_summed]
    kept_at[0], kept_at[1], strides[0], strides[1] = record[A], record[B], record[ROW_A], record[ROW_B]
    for t in range(2, k):
        kept_at[t], strides[t] = record[LOOPS + 3 * (t - 2)], record[LOOPS + 3 * (t - 2) + 2]
    loops = record[LOOPS + 3 * (k - 2) :]
    count[:] = 0
    cells, terms = 1, 1
    for j in range(n_kept):
        cells *= loops[j * width]
    for j in range(n_kept, n_kept + n_summed):
        terms *= loops[j * width]
    top = 0.0
    for _ in range(cells):
        for t in range(k):
            at[t] = kept_at[t]
        for s in range(terms):
            _row(arena, o, n, so, k, at, strides, buffer, s == 0)
            for j in range(n_kept + n_summed - 1, n_kept - 1, -1):
                count[j] += 1
                if count[j] < loops[j * width]:
                    for t in range(k):
                        at[t] += loops[j * width + 2 + t]
                    break
                count[j] = 0
                for t in range(k):
                    at[t] -= (loops[j * width] - 1) * loops[j * width + 2 + t]
        if so == 1:
            for i in range(n):
                top = max(top, arena[o + i])
        else:
            top = max(top, arena[o])
        for j in range(n_kept - 1, -1, -1):
            count[j] += 1
            if count[j] < loops[j * width]:
                o += loops[j * width + 1]
                for t in range(k):
                    kept_at[t] += loops[j * width + 2 + t]
                break
            count[j] = 0
            o -= (loops[j * width] - 1) * loops[j * width + 1]
            for t in range(k):
                kept_at[t] -= (loops[j * width] - 1) * loops[j * width + 2 + t]
    return top


@njit(cache=True, nogil=True, error_model="numpy")
def contract(arena, record, work, off_a, off_b, buffer):  # type: ignore[no-untyped-def]
    """Run one contraction; returns the largest entry of its output. The last four are scratch memory."""
    if record[INPUTS] == 2:
        return _contract_pair(arena, record, work, off_a, off_b)
    return _contract_many(arena, record, work, buffer)
