"""A program run for many cases at once; see `jtgpu.backends.cpu.records`."""

from __future__ import annotations

import math

from ....util.jit import compiled, inlined
from .. import records as rec
from ..records import Cases, CountedCells, LaneMemory, PosteriorCells, Records
from .fields import input_field
from .kernels import contract
from .lane_loads import load_lanes
from .vector import LANES as WIDE
from .vector import (
    largest,
    load,
    lost_digits,
    maximum,
    plain_arithmetic,
    poke,
    restore_arithmetic,
    store,
    zero,
)

LOG2 = math.log(2.0)
BLOCK = 8  # numbers of a cache line


@compiled(allocates=False)
def _tops(arena, start, size, lanes, top):  # type: ignore[no-untyped-def]
    """Write the largest entry of each lane of a table to `top`; one lane, or a multiple of eight."""
    # arena, top: Addresses of float64
    # start, size, lanes: First cell and cells of the table, all lanes included
    end = start + size
    x0 = x1 = x2 = x3 = zero()
    if lanes == 1:
        for at in range(start, end, WIDE):
            x0 = maximum(x0, load(arena, at, end - at))
        poke(top, 0, largest(x0))
        return
    fours = lanes - lanes % (4 * WIDE)
    for i in range(0, fours, 4 * WIDE):
        x0 = x1 = x2 = x3 = zero()
        for at in range(start + i, end, lanes):
            x0, x1 = maximum(x0, load(arena, at, WIDE)), maximum(x1, load(arena, at + WIDE, WIDE))
            x2 = maximum(x2, load(arena, at + 2 * WIDE, WIDE))
            x3 = maximum(x3, load(arena, at + 3 * WIDE, WIDE))
        store(top, i, WIDE, x0)
        store(top, i + WIDE, WIDE, x1)
        store(top, i + 2 * WIDE, WIDE, x2)
        store(top, i + 3 * WIDE, WIDE, x3)
    for i in range(fours, lanes, WIDE):
        x0 = zero()
        for at in range(start + i, end, lanes):
            x0 = maximum(x0, load(arena, at, WIDE))
        store(top, i, WIDE, x0)


@inlined
def _is_wrong(top, lanes, limit):  # type: ignore[no-untyped-def]
    """Whether the largest entry of some lane, `top` (float64), is out of bounds; `limit`: see `sweep.run`."""
    lowest, highest = math.ldexp(1.0, -limit), math.ldexp(1.0, limit)
    wrong = 0
    for i in range(lanes):
        wrong += 0 if (top[i] >= lowest) & (top[i] <= highest) else 1
    return wrong > 0


@compiled(allocates=False)
def _rescale(arena, start, size, lanes, top, dead, exponent, limit):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Scale the lanes of a table whose largest entry is out of bounds; mark lanes of zeros as dead."""
    # start, size, lanes: First cell and cells of the table, all lanes included
    # top: (L,) float64: The largest entry of each lane
    # dead: (L,) bool
    # exponent: (L,) int64: The table's
    # limit: See `sweep.run`
    # returns Whether a lane was scaled.
    lowest, highest = math.ldexp(1.0, -limit), math.ldexp(1.0, limit)
    scaled = False
    for i in range(lanes):
        if top[i] == 0.0:
            dead[i] = True
        elif not lowest <= top[i] <= highest:
            shift = math.frexp(top[i])[1]
            half, rest = math.ldexp(1.0, -shift // 2), math.ldexp(1.0, -shift - -shift // 2)
            for at in range(start + i, start + size, lanes):
                arena[at] = arena[at] * half * rest
            exponent[i] += shift
            scaled = True
    return scaled


@inlined
def _own_exponents(exponent, scaled, e, lanes):  # type: ignore[no-untyped-def]
    """Row e of `exponent`, (L,) int64: zeros if it is not set."""
    if not scaled[e]:
        for i in range(lanes):
            exponent[e, i] = 0
    return exponent[e]


@inlined
def _bound(m, start, size, e, limit):  # type: ignore[no-untyped-def]
    """Scale the lanes of a table whose largest entry is out of bounds; see `_rescale`."""
    # e: Place of its exponents
    lanes = len(m.dead)
    _tops(m.arena.ctypes.data, start, size, lanes, m.top.ctypes.data)
    if _is_wrong(m.top, lanes, limit):
        own = _own_exponents(m.exponent, m.scaled, e, lanes)
        if _rescale(m.arena, start, size, lanes, m.top, m.dead, own, limit):
            m.scaled[e] = True


@inlined
def _load_all_lanes(m, code, limit, bounded):  # type: ignore[no-untyped-def]
    """Run every load; parameters as for `chunk`."""
    lanes = len(m.dead)
    for p in range(len(code.load_ptr) - 1):
        load = code.loads[code.load_ptr[p] : code.load_ptr[p + 1]]
        load_lanes(m, load)
        e, size = load[rec.LOAD_OUT_EXP], load[rec.LOAD_CELLS] * lanes
        m.scaled[e] = m.scaled[load[rec.LOAD_FACTOR_EXP]]
        if m.scaled[e]:
            for i in range(lanes):
                m.exponent[e, i] = m.exponent[load[rec.LOAD_FACTOR_EXP], i]
        if bounded:
            _bound(m, load[rec.LOAD_OUT], size, e, limit)


@inlined
def _exponents(record, exponent, scaled, lanes):  # type: ignore[no-untyped-def]
    """Set the output's exponents to the sum of the inputs', lane by lane; only where one of them is not zero."""
    # exponent: (E, L) int64
    # scaled: (E,) bool
    out = record[rec.OUT_EXP]
    scaled[out] = False
    for t in range(record[rec.INPUTS]):
        e = record[input_field(t) + 1]
        if scaled[e]:
            if not scaled[out]:
                scaled[out] = True
                for i in range(lanes):
                    exponent[out, i] = 0
            for i in range(lanes):
                exponent[out, i] += exponent[e, i]


@inlined
def _finish_shared(m, record, top, limit):  # type: ignore[no-untyped-def]
    """Normalise or scale a table that does not depend on the case; `top` (float64): its largest entry."""
    start, size, out, lanes = record[rec.OUT], record[rec.SIZE], record[rec.OUT_EXP], len(m.dead)
    if record[rec.ANSWER] >= 0:
        total = 0.0
        for i in range(start, start + size):
            total += m.arena[i]
        for i in range(start, start + size):
            m.arena[i] /= total
        return
    m.top[:] = top
    own = _own_exponents(m.exponent, m.scaled, out, lanes)
    # one number for all lanes: scaled as a table of one lane
    if _is_wrong(m.top, 1, limit) and _rescale(m.arena, start, size, 1, m.top[:1], m.dead[:1], own[:1], limit):
        m.scaled[out] = True
        own[:] = own[0]


@compiled(allocates=False)
def chunk(m, code, limit, first, bounded):  # type: ignore[no-untyped-def]
    """Make every table for one chunk of lanes."""
    # limit: See `sweep.run`
    # first: Whether tables that do not depend on the case are made, too
    # bounded: Whether tables whose numbers are far out are scaled; if not, the caller looks at the results
    # returns Whether the model allows anything at all.
    lanes = len(m.dead)
    _load_all_lanes(m, code, limit, bounded)
    for p in range(len(code.record_ptr) - 1):
        record = code.records[code.record_ptr[p] : code.record_ptr[p + 1]]
        by_case = record[rec.BY_CASE] == 1
        if not by_case and not first:
            continue
        top = contract(m.arena.ctypes.data, record.ctypes.data, m.scratch.ctypes.data)
        _exponents(record, m.exponent, m.scaled, lanes)
        if not by_case:
            if top == 0.0:
                return False
            _finish_shared(m, record, top, limit)
        elif bounded and record[rec.ANSWER] < 0:
            _bound(m, record[rec.OUT], record[rec.SIZE], record[rec.OUT_EXP], limit)
    return True


@inlined
def note_evidence(m, roots, cases, begin, n, possible):  # type: ignore[no-untyped-def]
    """Write ln P(e) of n lanes; mark the dead ones."""
    # roots: (components, 3) int64: See `records.Records`
    # begin, n: Places in ``cases.rows``
    # possible: Whether the model allows anything at all
    for i in range(n):
        row = cases.rows[begin + i]
        m.dead[i] = m.dead[i] or not possible
        log_evidence = 0.0
        for r in range(len(roots)):
            value = m.arena[roots[r, 0] + (i if roots[r, 2] > 0 else 0)]
            if value > 0.0:
                log_evidence += math.log(value)
                if m.scaled[roots[r, 1]]:
                    log_evidence += m.exponent[roots[r, 1], i] * LOG2
            else:
                m.dead[i] = True
        cases.impossible[row] = m.dead[i]
        cases.log_evidence[row] = -math.inf if m.dead[i] else log_evidence


@inlined
def note_loss(cases, begin, n, first, always):  # type: ignore[no-untyped-def]
    """Mark n rows if digits were lost; returns whether those of later chunks are to be marked, too."""
    # begin, n: Places in ``cases.rows``
    # first: Whether the first chunk has run, whose tables that do not depend on the case serve the others
    lost = lost_digits() or always
    if lost:
        for i in range(begin, begin + n):
            cases.lost[cases.rows[i]] = True
    return always or (lost and first)


@inlined
def fill_chunk(m, cases, begin, n):  # type: ignore[no-untyped-def]
    """Copy the states and likelihoods of n rows to the lanes; the last row fills the lanes that are left over."""
    lanes, n_vars = m.chunk.shape
    for i in range(lanes):
        row = cases.rows[begin + min(i, n - 1)]
        m.dead[i] = False
        for r in range(n_vars):
            m.chunk[i, r] = cases.states[row, cases.by_rank[r]]
    for start in range(0, lanes, BLOCK):  # a few rows at a time: both sides stay in the cache
        for c in range(cases.weights.shape[1]):
            for i in range(start, min(start + BLOCK, lanes)):
                m.weights[c * lanes + i] = cases.weights[cases.rows[begin + min(i, n - 1)], c]


@inlined
def _write_observed(m, cases, out, begin, n):  # type: ignore[no-untyped-def]
    """Write the posteriors of observed variables; parameters as for `_write`."""
    for i in range(n):
        row = cases.rows[begin + i]
        for v in out.hard:
            if out.place[v] >= 0:
                for d in range(out.cards[v]):
                    out.cells[row, out.place[v] + d] = 0.0
                if not m.dead[i]:
                    out.cells[row, out.place[v] + m.chunk[i, v]] = 1.0


@inlined
def _write(m, answers, cases, out, begin, n):  # type: ignore[no-untyped-def]
    """Write the posteriors of n lanes, normalised, to their rows; zeros for the dead."""
    # answers: (targets, 3) int64: See `records.Records`
    # begin, n: Places in ``cases.rows``
    lanes, top = len(m.dead), m.top
    _write_observed(m, cases, out, begin, n)
    for j in range(len(answers)):
        v, cell = answers[j, 0], answers[j, 1]
        column, card = out.place[v], out.cards[v]
        if column < 0:
            continue
        if answers[j, 2] == 0:
            for i in range(n):
                for d in range(card):
                    out.cells[cases.rows[begin + i], column + d] = 0.0 if m.dead[i] else m.arena[cell + d]
            continue
        for i in range(lanes):
            top[i] = 0.0
        for d in range(card):
            for i in range(lanes):
                top[i] += m.arena[cell + d * lanes + i]
        for i in range(lanes):
            top[i] = 0.0 if m.dead[i] or top[i] == 0.0 else 1.0 / top[i]
        for start in range(0, card, BLOCK):
            for i in range(n):
                row = cases.rows[begin + i]
                for d in range(start, min(start + BLOCK, card)):
                    out.cells[row, column + d] = m.arena[cell + d * lanes + i] * top[i]


@compiled(allocates=False)
def _run_lanes(m, code, cases, out, limit, first, last):  # type: ignore[no-untyped-def]
    lanes, possible, always = len(m.dead), True, False
    for begin in range(first, last, lanes):
        n = min(lanes, last - begin)
        word = plain_arithmetic()
        fill_chunk(m, cases, begin, n)
        possible = possible and chunk(m, code, limit, begin == first, True)
        note_evidence(m, code.roots, cases, begin, n, possible)
        _write(m, code.answers, cases, out, begin, n)
        always = note_loss(cases, begin, n, begin == first, always)
        restore_arithmetic(word)


@compiled("LaneMemory, Records, Cases, PosteriorCells, i8, i8, i8")
def run_lanes(m, code, cases, out, limit, first, last):  # type: ignore[no-untyped-def]
    """Posteriors of the cases ``cases.rows[first:last]``, as many at a time as there are lanes."""
    # code: Lowered for that many lanes
    # limit: See `sweep.run`
    _run_lanes(m, code, cases, out, limit, first, last)
