"""A program run in extended numbers, for a case in which ordinary ones lose digits.

Tables are scaled by powers of two, so their largest entries never underflow. But a state may fall below 1e-308 of
another one and come back: 150 findings that say no, then 149 that say yes. Here every cell is a mantissa, float64 in
[.5, 1), and an exponent, int64; zero has both 0. A product has the product of the mantissas and the sum of the
exponents; of a sum, the smaller term is shifted by a power of two. So no cell underflows, whatever the others are, and
the relative error is that of ordinary numbers.
"""

from __future__ import annotations

import math

import numpy as np

from ....util.jit import compiled, inlined
from .. import records as rec
from ..records import ExtendedArena, ExtendedWeights, Records
from .fields import input_field
from .sweep import LOG2, states_by_rank
from .vector import LANES

__all__ = ["contract", "run"]

FEW = 500  # factors: a product of fewer mantissas is an ordinary number


@inlined
def _added(x, e, y, f, powers):  # type: ignore[no-untyped-def]
    """x * 2**e + y * 2**f, as a pair; `powers`: see `records.Extended`."""
    if y == 0.0:
        return x, e
    if x == 0.0 or f - e >= rec.FAR:
        return y, f
    if e >= f:
        return (x + y * powers[e - f], e) if e - f < rec.FAR else (x, e)
    return x * powers[f - e] + y, f


@inlined
def _larger(x, e, y, f):  # type: ignore[no-untyped-def]
    """The larger of two pairs, the first of equal ones; y need not be in [.5, 1)."""
    if y == 0.0:
        return x, e
    y, shift = math.frexp(y)
    f += shift
    return (y, f) if x == 0.0 or f > e or (f == e and y > x) else (x, e)


@inlined
def _combined(maximal, x, e, y, f, powers):  # type: ignore[no-untyped-def]
    return _larger(x, e, y, f) if maximal else _added(x, e, y, f, powers)


@inlined
def _put(t, o, x, e):  # type: ignore[no-untyped-def]
    """Write a pair to cell o, normalised."""
    x, shift = math.frexp(x)
    t.cell[o], t.power[o] = x, e + shift if x > 0.0 else 0


@compiled(allocates=False)
def _product(t, at, first, k):  # type: ignore[no-untyped-def]
    """The product of the k cells whose places stand at `at[first:]`, as a pair."""
    x, e = t.cell[at[first]], np.int64(t.power[at[first]])
    for j in range(1, k):
        x *= t.cell[at[first + j]]
        e += t.power[at[first + j]]
        if j % FEW == 0:
            x, shift = math.frexp(x)
            e += shift
    return x, e


@compiled(allocates=False)
def _listed(t, record, maximal):  # type: ignore[no-untyped-def]
    """`kernels._contract_listed`."""
    k = record[rec.INPUTS]
    at = rec.FIRST_LOOP + 3 * (k - 2)
    for o in range(record[rec.OUT], record[rec.OUT] + record[rec.SIZE]):
        x, e = 0.0, 0
        for _ in range(record[rec.LISTED]):
            y, f = _product(t, record, at, k)
            x, e = _combined(maximal, x, e, y, f, t.powers)
            at += k
        _put(t, o, x, e)


@inlined
def _sparse_cell(t, record, o, first, terms, i_a, i_b):  # type: ignore[no-untyped-def]
    """Write the sum of listed terms of two cells to cell o; see `records.SPARSE`."""
    x, e = 0.0, 0
    for j in range(first, first + terms):
        a, b = (record[j] & 0xFFFFFFFF) + i_a, (record[j] >> 32) + i_b
        x, e = _added(x, e, t.cell[a] * t.cell[b], np.int64(t.power[a]) + t.power[b], t.powers)
    _put(t, o, x, e)


@compiled(allocates=False)
def _sparse(t, record):  # type: ignore[no-untyped-def]
    """`kernels._contract_sparse`."""
    o, n = record[rec.OUT], record[rec.ROW]
    for i in range(o, o + record[rec.SIZE]):
        t.cell[i], t.power[i] = 0.0, 0
    at = rec.FIRST_LOOP + 2
    for _ in range(record[rec.FIRST_LOOP]):
        if record[rec.ROW_OUT] != 1:
            terms = LANES * record[at + 1]
            _sparse_cell(t, record, record[at], at + 2, terms, 0, 0)
            at += 2 + terms
            continue
        terms, cells = record[at], record[at + 1]
        at += 2
        for _ in range(cells):
            for i in range(n):
                _sparse_cell(t, record, record[at] + i, at + 1, terms, i * record[rec.ROW_A], i * record[rec.ROW_B])
            at += 1 + terms


@inlined
def _advance(record, loops, k, first, last, count, at):  # type: ignore[no-untyped-def]
    """`kernels._advance_many` on arrays; returns how far the output moves."""
    moved = 0
    for j in range(last - 1, first - 1, -1):
        loop = loops + j * (k + 2)
        count[j] += 1
        rounds = 1
        if count[j] == record[loop]:
            count[j] = 0
            rounds -= record[loop]
        moved += rounds * record[loop + 1]
        for i in range(k):
            at[i] += rounds * record[loop + 2 + i]
        if rounds == 1:
            break
    return moved


@compiled(allocates=False)
def _looped(t, record, maximal, kept_at, at, count):  # type: ignore[no-untyped-def]
    """`kernels._contract_many`, for two tables, too."""
    # kept_at, at: Room for a number an input; count: one a loop
    k, n_kept, n, row_out = record[rec.INPUTS], record[rec.KEPT], record[rec.ROW], record[rec.ROW_OUT]
    n_loops, loops, o = n_kept + record[rec.REDUCED], rec.FIRST_LOOP + 3 * (k - 2), record[rec.OUT]
    cells, terms = 1, 1
    for i in range(k):
        kept_at[i] = record[input_field(i)]
    for j in range(n_loops):
        count[j] = 0
        if j < n_kept:
            cells *= record[loops + j * (k + 2)]
        else:
            terms *= record[loops + j * (k + 2)]
    for _ in range(cells):
        for i in range(k):
            at[i] = kept_at[i]
        x, e = 0.0, np.int64(0)
        for s in range(terms):
            for i in range(n):
                y, f = _product(t, at, 0, k)
                if row_out == 1:
                    x, e = (0.0, np.int64(0)) if s == 0 else (t.cell[o + i], np.int64(t.power[o + i]))
                x, e = _combined(maximal, x, e, y, f, t.powers)
                if row_out == 1:
                    _put(t, o + i, x, e)
                for j in range(k):
                    at[j] += record[input_field(j) + 2]
            for j in range(k):
                at[j] -= n * record[input_field(j) + 2]
            _advance(record, loops, k, n_kept, n_loops, count, at)
        if row_out != 1:
            _put(t, o, x, e)
        o += _advance(record, loops, k, 0, n_kept, count, kept_at)


@inlined
def _highest(t, first, size):  # type: ignore[no-untyped-def]
    """The largest exponent of a table's cells that are not zero; -1 << 40 if all are."""
    top = np.int64(-1 << 40)
    for i in range(first, first + size):
        if t.cell[i] > 0.0:
            top = max(top, np.int64(t.power[i]))
    return top


@inlined
def _write_plain(t, arena, first, size):  # type: ignore[no-untyped-def]
    """Write a table to an ordinary arena, with the sum 1."""
    top, total = _highest(t, first, size), 0.0
    for i in range(first, first + size):
        arena[i] = math.ldexp(t.cell[i], max(t.power[i] - top, -rec.FAR)) if t.cell[i] > 0.0 else 0.0
        total += arena[i]
    for i in range(first, first + size):
        arena[i] /= total


@compiled(allocates=False)
def _load(t, load, states, weights, count):  # type: ignore[no-untyped-def]
    """`sweep._load_table`; returns whether an entry is above 0."""
    to, cells, source, at = load[rec.LOAD_OUT], load[rec.LOAD_CELLS], load[rec.LOAD_FACTOR], rec.LOAD_FIELDS
    for _ in range(load[rec.LOAD_OBSERVED]):
        source += states[load[at]] * load[at + 1]
        at += 2
    n_loops, possible = load[rec.LOAD_LOOPS], False
    for j in range(n_loops):
        count[j] = 0
    for i in range(cells):
        x, e = t.cell[source], np.int64(t.power[source])
        w = at + 2 * n_loops
        for _ in range(load[rec.LOAD_WEIGHTS]):
            first, card, inner = weights.first[load[w]], load[w + 1], load[w + 2]
            first += i if inner == 0 else i // inner % card
            x *= weights.value[first]
            e += weights.power[first]
            w += 3
            x, shift = math.frexp(x)
            e += shift
        _put(t, to + i, x, e)
        possible = possible or x > 0.0
        for j in range(n_loops - 1, -1, -1):
            count[j] += 1
            if count[j] < load[at + 2 * j]:
                source += load[at + 2 * j + 1]
                break
            count[j] = 0
            source -= (load[at + 2 * j] - 1) * load[at + 2 * j + 1]
    return possible


@compiled()
def contract(t, record, kept_at, at, count):  # type: ignore[no-untyped-def]
    """Run a contraction; returns whether its output has an entry above 0."""
    # t: `records.Extended`
    # record: (n,) int64: See `records`
    # kept_at, at, count: Scratch memory, a number an input or a loop
    maximal = record[rec.MAXIMAL] == 1
    if record[rec.LISTED] > 0:
        _listed(t, record, maximal)
    elif record[rec.LISTED] < 0:
        _sparse(t, record)
    else:
        _looped(t, record, maximal, kept_at, at, count)
    return _highest(t, record[rec.OUT], record[rec.SIZE]) > -1 << 40


@compiled("ExtendedArena, Records, const(i8[:]), const(i4[:]), const(i8[:]), ExtendedWeights, b1, f8[:]")
def run(t, code, by_rank, state, mapped, weights, zeros, arena):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """`sweep.run` in extended numbers."""
    # t: Its first cells are the model's factors
    # arena: Gets the distributions, normalised
    # others: See `sweep.run`
    # returns ln P(e); `IMPOSSIBLE` if it is zero.
    states = states_by_rank(by_rank, state, mapped)
    if len(states) < len(by_rank):
        return rec.IMPOSSIBLE
    most, longest = 2, 2
    for p in range(len(code.record_ptr) - 1):
        longest = max(longest, code.record_ptr[p + 1] - code.record_ptr[p])
        most = max(most, code.records[code.record_ptr[p] + rec.INPUTS])
    for p in range(len(code.load_ptr) - 1):
        longest = max(longest, code.load_ptr[p + 1] - code.load_ptr[p])
    kept_at, at, count = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(longest, np.int64)
    for p in range(len(code.load_ptr) - 1):
        if not _load(t, code.loads[code.load_ptr[p] : code.load_ptr[p + 1]], states, weights, count) and not zeros:
            return rec.IMPOSSIBLE
    for p in range(len(code.record_ptr) - 1):
        record = code.records[code.record_ptr[p] : code.record_ptr[p + 1]]
        if not contract(t, record, kept_at, at, count) and not zeros:
            return rec.IMPOSSIBLE
        if record[rec.ANSWER] >= 0:
            _write_plain(t, arena, record[rec.OUT], record[rec.SIZE])
    log_evidence = 0.0
    for r in range(len(code.roots)):
        x = t.cell[code.roots[r, 0]]
        if not x > 0.0:
            return rec.IMPOSSIBLE
        log_evidence += math.log(x) + t.power[code.roots[r, 0]] * LOG2
    return log_evidence
