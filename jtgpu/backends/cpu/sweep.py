"""A program run from end to end for one case: loads, contractions, P(e); wholly, or only what changed."""

from __future__ import annotations

import math

import numpy as np

from ...util.numba_cache import compiled
from .kernels import contract
from .records import (
    A_EXP,
    ANSWER,
    B_EXP,
    INPUTS,
    LOAD_FIELDS,
    LOOPS,
    OUT,
    OUT_EXP,
    SIZE,
)
from .vector import note, number, peek, poke

__all__ = ["IMPOSSIBLE", "evidence_log", "finish", "hashes", "load_all", "run", "run_changed"]

IMPOSSIBLE = -math.inf
LOG2 = math.log(2.0)


@compiled()
def _scale(arena, start, size, top):  # type: ignore[no-untyped-def]
    """Divide a table by the power of two next to its largest entry; returns the exponent."""
    shift = math.frexp(top)[1]
    for i in range(start, start + size):
        poke(arena, i, math.ldexp(peek(arena, i), -shift))
    return shift


@compiled()
def load_table(arena, load, states, weights, weight_ptr, exponent, count, lowest):  # type: ignore[no-untyped-def]
    """Copy a factor, cut to the observed states and weighed; returns whether an entry is above 0."""
    to, source, cells, n_observed, n_loops, n_weighed = load[1], load[3], load[5], load[6], load[7], load[8]
    at = LOAD_FIELDS
    for _ in range(n_observed):
        source += states[load[at]] * load[at + 1]
        at += 2
    row, step = 1, 1
    if n_loops > 0:
        row, step = load[at + 2 * n_loops - 2], load[at + 2 * n_loops - 1]
    for j in range(n_loops):
        count[j] = 0
    top = 0.0
    for first in range(to, to + cells, row):
        for i in range(row):
            x = arena[source + i * step]
            arena[first + i] = x
            top = max(top, x)
        for j in range(n_loops - 2, -1, -1):
            count[j] += 1
            if count[j] < load[at + 2 * j]:
                source += load[at + 2 * j + 1]
                break
            count[j] = 0
            source -= (load[at + 2 * j] - 1) * load[at + 2 * j + 1]
    at += 2 * n_loops
    if n_weighed > 0:
        top = 0.0
        for _ in range(n_weighed):
            first, card, inner = weight_ptr[load[at]], load[at + 1], load[at + 2]
            for i in range(cells):
                arena[to + i] *= weights[first + i // inner % card]
            at += 3
        for i in range(cells):
            top = max(top, arena[to + i])
    exponent[load[2]] = exponent[load[4]]
    if top < lowest and top > 0.0:
        exponent[load[2]] += _scale(arena.ctypes.data, to, cells, top)
    return top > 0.0


@compiled()
def load_all(arena, loads, load_ptr, states, weights, weight_ptr, exponent, count, lowest):  # type: ignore[no-untyped-def]
    """Run every load; returns whether the evidence is possible so far."""
    for p in range(len(load_ptr) - 1):
        load = loads[load_ptr[p] : load_ptr[p + 1]]
        if not load_table(arena, load, states, weights, weight_ptr, exponent, count, lowest):
            return False
    return True


@compiled()
def finish(arena, record, top, exponent, lowest, highest):  # type: ignore[no-untyped-def]
    """What follows a contraction: a posterior is normalised, another table scaled when its largest entry, `top`, is
    out of bounds; the output's exponent. Memory by its address."""
    start, size = number(record, OUT), number(record, SIZE)
    shift = number(exponent, number(record, A_EXP)) + number(exponent, number(record, B_EXP))
    for t in range(2, number(record, INPUTS)):
        shift += number(exponent, number(record, LOOPS + 3 * (t - 2) + 1))
    if number(record, ANSWER) >= 0:
        total = 0.0
        for i in range(start, start + size):
            total += peek(arena, i)
        for i in range(start, start + size):
            poke(arena, i, peek(arena, i) / total)
    elif top < lowest or top > highest:
        shift += _scale(arena, start, size, top)
    note(exponent, number(record, OUT_EXP), shift)


@compiled()
def evidence_log(arena, roots, exponent):  # type: ignore[no-untyped-def]
    """ln P(e) from the roots' numbers; `IMPOSSIBLE` where it is zero."""
    log_evidence = 0.0
    for r in range(len(roots)):
        value = arena[roots[r, 0]]
        if not value > 0.0:
            return IMPOSSIBLE
        log_evidence += math.log(value) + exponent[roots[r, 1]] * LOG2
    return log_evidence


@compiled()
def run(  # type: ignore[no-untyped-def]
    arena, exponent, records, record_ptr, loads, load_ptr, roots, states, weights, weight_ptr, limit,
    work, offsets, buffer,
):  # fmt: skip
    """Run a program: factors cut to the states, every contraction, posteriors normalised into their cells.

    Returns
    -------
    float
        ln P(e); `IMPOSSIBLE` where it is zero.
    """
    lowest, highest = 2.0**-limit, 2.0**limit
    if not load_all(arena, loads, load_ptr, states, weights, weight_ptr, exponent, work, lowest):
        return IMPOSSIBLE
    memory, scratch = arena.ctypes.data, (work.ctypes.data, offsets.ctypes.data, buffer.ctypes.data)
    for p in range(len(record_ptr) - 1):
        record = records.ctypes.data + 8 * record_ptr[p]
        top = contract(memory, record, *scratch)
        if not top > 0.0:
            return IMPOSSIBLE
        finish(memory, record, top, exponent.ctypes.data, lowest, highest)
    return evidence_log(arena, roots, exponent)


# What changed. Every table carries a signature: a hash of all that its numbers depend on (the records on the way to it,
# the states and weights that were loaded). Where a program is about to make a table whose signature is there already,
# the numbers are there too, whatever pattern, targets or evidence they were made for.


@compiled()
def _mix(h, x):  # type: ignore[no-untyped-def]
    """A hash taken one number further (two rounds of xor, shift and multiply with odd constants)."""
    h = (h ^ np.uint64(x)) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@compiled()
def hashes(flat, ptr):  # type: ignore[no-untyped-def]
    """A hash of every record or load."""
    found = np.empty(len(ptr) - 1, np.uint64)
    for p in range(len(ptr) - 1):
        h = np.uint64(0x243F6A8885A308D3)
        for i in range(ptr[p], ptr[p + 1]):
            h = _mix(h, flat[i])
        found[p] = h
    return found


@compiled()
def _load_signature(h, load, states, bits, weight_ptr):  # type: ignore[no-untyped-def]
    n_observed, n_loops, n_weighed = load[6], load[7], load[8]
    for j in range(n_observed):
        h = _mix(h, states[load[LOAD_FIELDS + 2 * j]])
    at = LOAD_FIELDS + 2 * n_observed + 2 * n_loops
    for _ in range(n_weighed):
        first = weight_ptr[load[at]]
        for i in range(first, first + load[at + 1]):
            h = _mix(h, bits[i])
        at += 3
    return h


@compiled()
def run_changed(  # type: ignore[no-untyped-def]
    arena, exponent, records, record_ptr, loads, load_ptr, roots, states, weights, weight_ptr, limit,
    work, offsets, buffer, record_hash, load_hash, signature, bits, made,
):  # fmt: skip
    """`run` that makes no table which is there already.

    Parameters
    ----------
    record_hash, load_hash : uint64
        `hashes` of the program.
    signature : uint64
        One a table, as `exponent`; 0 for none. Belongs to the arena, whose cells must be the same in every program.
    bits : uint64
        The bits of `weights`.
    made : (2,) int64
        Gets the contractions that were made, and all.
    """
    lowest, highest = 2.0**-limit, 2.0**limit
    made[0], made[1] = 0, len(record_ptr) - 1
    for p in range(len(load_ptr) - 1):
        load = loads[load_ptr[p] : load_ptr[p + 1]]
        h = _load_signature(load_hash[p], load, states, bits, weight_ptr)
        if signature[load[2]] != h:
            signature[load[2]] = np.uint64(0)
            if not load_table(arena, load, states, weights, weight_ptr, exponent, work, lowest):
                return IMPOSSIBLE
            signature[load[2]] = h
    memory, scratch = arena.ctypes.data, (work.ctypes.data, offsets.ctypes.data, buffer.ctypes.data)
    for p in range(len(record_ptr) - 1):
        record = records.ctypes.data + 8 * record_ptr[p]
        out = number(record, OUT_EXP)
        h = _mix(_mix(record_hash[p], signature[number(record, A_EXP)]), signature[number(record, B_EXP)])
        for t in range(2, number(record, INPUTS)):
            h = _mix(h, signature[number(record, LOOPS + 3 * (t - 2) + 1)])
        if signature[out] == h:
            continue
        signature[out] = np.uint64(0)
        made[0] += 1
        top = contract(memory, record, *scratch)
        if not top > 0.0:
            return IMPOSSIBLE
        finish(memory, record, top, exponent.ctypes.data, lowest, highest)
        signature[out] = h
    return evidence_log(arena, roots, exponent)
