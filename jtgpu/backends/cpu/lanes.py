"""A program run for many cases at once: every table that depends on the evidence has the cases as its fastest axis.

A *lane* is one case. Lanes are scaled by powers of two of their own, so a rare case beside a common one loses no digit,
and a lane whose evidence has probability zero is marked and leaves the others alone.
"""

from __future__ import annotations

import math

import numpy as np

from ...util.numba_cache import compiled
from .kernels import contract
from .records import (
    A_EXP,
    ANSWER,
    B_EXP,
    BY_CASE,
    INPUTS,
    LOAD_FIELDS,
    LOOPS,
    OUT,
    OUT_EXP,
    SIZE,
)

__all__ = ["run_lanes"]

LOG2 = math.log(2.0)
_fast = {"reassoc", "nsz", "contract"}


@compiled(fastmath=_fast)
def _tops(arena, start, size, lanes, top):  # type: ignore[no-untyped-def]
    """The largest entry of each lane."""
    for i in range(lanes):
        top[i] = 0.0
    for first in range(start, start + size, lanes):
        for i in range(lanes):
            x = arena[first + i]
            top[i] = x if x > top[i] else top[i]


@compiled()
def _rescale(arena, start, size, lanes, top, dead, exponent, limit):  # type: ignore[no-untyped-def]
    """Scale the lanes of a table whose largest entry is out of bounds, mark those of zeros; returns whether a lane was
    scaled. `exponent`: the table's, one a lane."""
    lowest, highest = 2.0**-limit, 2.0**limit
    fine = True
    for i in range(lanes):
        fine = fine and lowest <= top[i] <= highest
    if fine:
        return False
    scaled = False
    for i in range(lanes):
        if top[i] == 0.0:
            dead[i] = True
        elif not lowest <= top[i] <= highest:
            shift = math.frexp(top[i])[1]
            for at in range(start + i, start + size, lanes):
                arena[at] = math.ldexp(arena[at], -shift)
            exponent[i] += shift
            scaled = True
    return scaled


@compiled()
def _load_lanes(arena, load, states, weights, weight_ptr, lanes, source, count, factor):  # type: ignore[no-untyped-def]
    """Copy a factor for every lane, cut to the lane's states and weighed. `source` and `factor` are scratch memory."""
    to, cells, n_observed, n_loops, n_weighed = load[1], load[5], load[6], load[7], load[8]
    at = LOAD_FIELDS
    for i in range(lanes):
        source[i] = load[3]
    for _ in range(n_observed):
        v, step = load[at], load[at + 1]
        for i in range(lanes):
            source[i] += states[i, v] * step
        at += 2
    for j in range(n_loops):
        count[j] = 0
    offset = 0
    for c in range(cells):
        first = to + c * lanes
        for i in range(lanes):
            arena[first + i] = arena[source[i] + offset]
        for j in range(n_loops - 1, -1, -1):
            count[j] += 1
            if count[j] < load[at + 2 * j]:
                offset += load[at + 2 * j + 1]
                break
            count[j] = 0
            offset -= (load[at + 2 * j] - 1) * load[at + 2 * j + 1]
    at += 2 * n_loops
    for _ in range(n_weighed):
        v, card, inner = load[at], load[at + 1], load[at + 2]
        first = weight_ptr[v]
        for d in range(card):
            for i in range(lanes):
                known = states[i, v]
                w = 1.0 if known < 0 or known == d else 0.0
                if first >= 0:
                    w *= weights[first + d * lanes + i]
                factor[d * lanes + i] = w
        for c in range(cells):
            d = c // inner % card
            for i in range(lanes):
                arena[to + c * lanes + i] *= factor[d * lanes + i]
        at += 3


@compiled()
def _exponents(record, exponent, scaled, lanes):  # type: ignore[no-untyped-def]
    """The sum of the inputs' exponents, lane by lane, becomes the output's; noted only where one is not zero."""
    out = record[OUT_EXP]
    scaled[out] = False
    for t in range(record[INPUTS]):
        e = record[A_EXP] if t == 0 else record[B_EXP] if t == 1 else record[LOOPS + 3 * (t - 2) + 1]
        if scaled[e]:
            if not scaled[out]:
                scaled[out] = True
                for i in range(lanes):
                    exponent[out, i] = 0
            for i in range(lanes):
                exponent[out, i] += exponent[e, i]


@compiled()
def _note(exponent, scaled, e, lanes):  # type: ignore[no-untyped-def]
    """The exponents of a table, as zeros where none were noted."""
    if not scaled[e]:
        for i in range(lanes):
            exponent[e, i] = 0
    return exponent[e]


@compiled()
def _chunk(  # type: ignore[no-untyped-def]
    arena, exponent, scaled, records, record_ptr, loads, load_ptr, states, weights, weight_ptr, limit, first, dead,
    work, offsets, buffer, source, factor, top,
):  # fmt: skip
    """Make every table for one chunk of lanes; those that do not depend on the case only the `first` time. Returns
    whether the model allows anything at all."""
    lanes = len(dead)
    for p in range(len(load_ptr) - 1):
        load = loads[load_ptr[p] : load_ptr[p + 1]]
        _load_lanes(arena, load, states, weights, weight_ptr, lanes, source, work, factor)
        e, size = load[2], load[5] * lanes
        scaled[e] = scaled[load[4]]
        for i in range(lanes):
            exponent[e, i] = exponent[load[4], i]
        _tops(arena, load[1], size, lanes, top)
        if _rescale(arena, load[1], size, lanes, top, dead, exponent[e], limit):
            scaled[e] = True
    scratch = work.ctypes.data, offsets.ctypes.data, buffer.ctypes.data
    for p in range(len(record_ptr) - 1):
        record = records[record_ptr[p] : record_ptr[p + 1]]
        by_case = record[BY_CASE] == 1
        if not by_case and not first:
            continue
        whole = contract(arena.ctypes.data, records.ctypes.data + 8 * record_ptr[p], *scratch)
        start, size, out = record[OUT], record[SIZE], record[OUT_EXP]
        _exponents(record, exponent, scaled, lanes)
        if not by_case:
            if whole == 0.0:
                return False
            if record[ANSWER] >= 0:
                total = 0.0
                for i in range(start, start + size):
                    total += arena[i]
                for i in range(start, start + size):
                    arena[i] /= total
            else:
                top[:] = whole
                noted = _note(exponent, scaled, out, lanes)
                # one number for all lanes: scaled as a table of one lane
                if _rescale(arena, start, size, 1, top[:1], dead[:1], noted[:1], limit):
                    scaled[out] = True
                    noted[:] = noted[0]
        elif record[ANSWER] < 0:
            _tops(arena, start, size, lanes, top)
            noted = _note(exponent, scaled, out, lanes)
            if _rescale(arena, start, size, lanes, top, dead, noted, limit):
                scaled[out] = True
    return True


@compiled()
def _write(arena, answers, hard, cards, place, rows, begin, n, lanes, dead, chunk, posterior, top):  # type: ignore[no-untyped-def]
    """Write the posteriors of n lanes, normalised, to their rows; zeros for the dead."""
    for i in range(n):
        row = rows[begin + i]
        for v in hard:
            if place[v] >= 0:
                for d in range(cards[v]):
                    posterior[row, place[v] + d] = 0.0
                if not dead[i]:
                    posterior[row, place[v] + chunk[i, v]] = 1.0
    for j in range(len(answers)):
        v, cell = answers[j, 0], answers[j, 1]
        column, card = place[v], cards[v]
        if column < 0:
            continue
        if answers[j, 2] == 0:
            for i in range(n):
                for d in range(card):
                    posterior[rows[begin + i], column + d] = 0.0 if dead[i] else arena[cell + d]
            continue
        for i in range(lanes):
            top[i] = 0.0
        for d in range(card):
            for i in range(lanes):
                top[i] += arena[cell + d * lanes + i]
        for i in range(lanes):
            top[i] = 0.0 if dead[i] or top[i] == 0.0 else 1.0 / top[i]
        for i in range(n):
            row = rows[begin + i]
            for d in range(card):
                posterior[row, column + d] = arena[cell + d * lanes + i] * top[i]


@compiled()
def run_lanes(  # type: ignore[no-untyped-def]
    arena, exponent, scaled, records, record_ptr, loads, load_ptr, roots, answers, hard, cards, place, rows, states,
    by_rank, weights, weight_ptr, limit, first, last, lanes, posterior, log_evidence, impossible, work, offsets, buffer,
):  # fmt: skip
    """Answer the cases ``rows[first:last]``, `lanes` at a time.

    Parameters
    ----------
    exponent, scaled : (E, lanes) int64, (E,) bool
        Exponents of the factors, and scratch memory for those of the tables.
    hard : (n,) int64
        Observed variables, by rank.
    cards, place : (V,) int64
        Cardinalities, and each variable's first column in `posterior` (-1: not wanted), by rank.
    rows : (n,) int64
        Where the cases stand in `states`, `weights` and in what is written: `posterior`, `log_evidence`, `impossible`.
    states : (B, V) int32
        -1 for what is not observed.
    by_rank : (V,) int64
        The column of `states` of each rank.
    weights, weight_ptr : (B, W) float64, (V,) int64
        Likelihoods, and the first column of each variable by rank, -1 for none.
    """
    n_vars = states.shape[1]
    dead = np.zeros(lanes, np.bool_)
    chunk = np.empty((lanes, n_vars), np.int32)
    width = weights.shape[1]
    laid = np.empty(max(width * lanes, 1))
    laid_ptr = np.full(n_vars, -1, np.int64)
    for v in range(n_vars):
        if weight_ptr[v] >= 0:
            laid_ptr[v] = weight_ptr[v] * lanes
    source, top = np.empty(lanes, np.int64), np.empty(lanes)
    factor = np.empty(lanes * cards.max())
    possible = True
    for begin in range(first, last, lanes):
        n = min(lanes, last - begin)
        for i in range(lanes):
            row = rows[begin + min(i, n - 1)]
            dead[i] = False
            for r in range(n_vars):
                chunk[i, r] = states[row, by_rank[r]]
            for c in range(width):
                laid[c * lanes + i] = weights[row, c]
        possible = possible and _chunk(
            arena, exponent, scaled, records, record_ptr, loads, load_ptr, chunk, laid, laid_ptr, limit, begin == first,
            dead, work, offsets, buffer, source, factor, top,
        )  # fmt: skip
        for i in range(n):
            row = rows[begin + i]
            dead[i] = dead[i] or not possible
            total = 0.0
            for r in range(len(roots)):
                value = arena[roots[r, 0] + (i if roots[r, 2] > 0 else 0)]
                if value > 0.0:
                    total += math.log(value)
                    if scaled[roots[r, 1]]:
                        total += exponent[roots[r, 1], i] * LOG2
                else:
                    dead[i] = True
            impossible[row] = dead[i]
            log_evidence[row] = -math.inf if dead[i] else total
        _write(arena, answers, hard, cards, place, rows, begin, n, lanes, dead, chunk, posterior, top)
