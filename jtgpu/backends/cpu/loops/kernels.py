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
from .pairs import contract_pair
from .products import contract_packed
from .vector import (
    LANES,
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
    splat,
    store,
    total,
    zero,
)

_fast = {"reassoc", "nsz", "contract", "nnan", "ninf", "arcp"}  # sums may be reordered; still the same bits every run


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
def _add_term(arena, term, x):  # type: ignore[no-untyped-def]
    """x plus a listed product (float64)."""
    # term: The cell of A in the lower half, that of B in the upper one
    return fma1(peek(arena, term & 0xFFFFFFFF), peek(arena, term >> 32), x)


@compiled()
def _sparse_sums(arena, record, sums):  # type: ignore[no-untyped-def]
    """`_contract_sparse` where the row is summed: a term is added to the lane in which `contract_pair` adds it."""
    at, top = rec.FIRST_LOOP + 2, 0.0
    for _ in range(peek_int(record, rec.FIRST_LOOP)):
        cell, end = peek_int(record, at), at + 2 + LANES * peek_int(record, at + 1)
        x0 = x1 = x2 = x3 = x4 = x5 = x6 = x7 = 0.0
        for t in range(at + 2, end, LANES):
            x0, x1 = _add_term(arena, peek_int(record, t), x0), _add_term(arena, peek_int(record, t + 1), x1)
            x2, x3 = _add_term(arena, peek_int(record, t + 2), x2), _add_term(arena, peek_int(record, t + 3), x3)
            x4, x5 = _add_term(arena, peek_int(record, t + 4), x4), _add_term(arena, peek_int(record, t + 5), x5)
            x6, x7 = _add_term(arena, peek_int(record, t + 6), x6), _add_term(arena, peek_int(record, t + 7), x7)
        poke(sums, 0, x0)
        poke(sums, 1, x1)
        poke(sums, 2, x2)
        poke(sums, 3, x3)
        poke(sums, 4, x4)
        poke(sums, 5, x5)
        poke(sums, 6, x6)
        poke(sums, 7, x7)
        x = total(load(sums, 0, LANES))
        poke(arena, cell, x)
        top, at = max(top, x), end
    return top


@compiled()
def _sparse_cells(arena, record):  # type: ignore[no-untyped-def]
    """`_contract_sparse` of single cells: those with as many terms follow each other, so that branches are foreseen."""
    at, top = rec.FIRST_LOOP + 2, 0.0
    for _ in range(peek_int(record, rec.FIRST_LOOP)):
        terms, cells = peek_int(record, at), peek_int(record, at + 1)
        at += 2
        for first in range(at, at + cells * (1 + terms), 1 + terms):
            x = 0.0
            for t in range(first + 1, first + 1 + terms):
                x = _add_term(arena, peek_int(record, t), x)
            poke(arena, peek_int(record, first), x)
            top = max(top, x)
        at += cells * (1 + terms)
    return top


@compiled()
def _contract_sparse(arena, record, sums):  # type: ignore[no-untyped-def]
    """Run a contraction of the terms that are structurally non-zero; returns the largest entry of its output (float64).

    Terms are added in the order of `contract_pair`, so that the bits are the same. `sums`: address of eight float64,
    scratch memory.
    """
    o, size, n = peek_int(record, rec.OUT), peek_int(record, rec.SIZE), peek_int(record, rec.ROW)
    whole = size - size % LANES
    for i in range(0, whole, LANES):
        store(arena, o + i, LANES, zero())
    store(arena, o + whole, size - whole, zero())
    if peek_int(record, rec.ROW_OUT) != 1:
        return _sparse_sums(arena, record, sums)
    if n == 1:
        return _sparse_cells(arena, record)
    sa, sb, at, high = peek_int(record, rec.ROW_A), peek_int(record, rec.ROW_B), rec.FIRST_LOOP + 2, zero()
    for _ in range(peek_int(record, rec.FIRST_LOOP)):
        terms, cells = peek_int(record, at), peek_int(record, at + 1)
        at += 2
        for _ in range(cells):
            cell = peek_int(record, at)
            for i in range(0, n, LANES):
                y = zero()
                for t in range(at + 1, at + 1 + terms):
                    a, b = peek_int(record, t) & 0xFFFFFFFF, peek_int(record, t) >> 32
                    if sb == 0:
                        y = fma(load(arena, a + i, n - i), splat(peek(arena, b)), y)
                    elif sa == 0:
                        y = fma(load(arena, b + i, n - i), splat(peek(arena, a)), y)
                    else:
                        y = fma(load(arena, a + i, n - i), load(arena, b + i, n - i), y)
                store(arena, cell + i, n - i, y)
                high = maximum(high, y)
            at += 1 + terms
    return largest(high)


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
    """Go on to the next round of the loops ``first..last-1`` of a contraction of k tables; see `pairs`."""
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
        return contract_pair(op, arena, record, work, offsets, offsets + 8 * rec.LIST)
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
    # scratch: Address of `workspace.KernelScratch.block`
    maximal = peek_int(record, rec.MAXIMAL)
    if maximal == 0 and peek_int(record, rec.LISTED) > 0:  # small: a call would take as long
        return _contract_listed(by_sum(), arena, record)
    return call(
        peek_int(scratch, rec.CONTRACT + maximal), arena, record, peek_int(scratch, rec.WORK),
        peek_int(scratch, rec.OFFSETS), peek_int(scratch, rec.BUFFER),
    )  # fmt: skip
