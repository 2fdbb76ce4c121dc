"""Records run from end to end for one case: loads, contractions, P(e); all of them, or only what changed.

The entry points take arrays one by one: unpacking a NamedTuple of arrays at the boundary to compiled code takes 2 us,
as long as a small network.
"""

from __future__ import annotations

import math

import numpy as np

from ....util.jit import compiled, inlined
from .. import records as rec
from .fields import input_field
from .kernels import contract
from .vector import (
    lost_digits,
    peek,
    peek_int,
    plain_arithmetic,
    poke,
    poke_int,
    restore_arithmetic,
)

__all__ = [
    "LOG2", "copy_posteriors", "evidence_log", "finish", "hashes", "load_all", "run", "run_changed", "states_by_rank",
]  # fmt: skip

LOG2 = math.log(2.0)


@compiled()
def _scale(arena, start, size, top):  # type: ignore[no-untyped-def]
    """Divide a table by the power of two next to its largest entry."""
    # arena: Address of float64
    # start, size: First cell of the table and its cells
    # top: Its largest entry, > 0
    # returns The exponent.
    shift = math.frexp(top)[1]
    half = math.ldexp(1.0, -shift // 2)  # one power may be too large for a number; a call of ldexp a cell takes 5 ns
    rest = math.ldexp(1.0, -shift - -shift // 2)
    for i in range(start, start + size):
        poke(arena, i, peek(arena, i) * half * rest)
    return shift


@inlined
def _copy_restricted(arena, load, states, count):  # type: ignore[no-untyped-def]
    """Copy the cells of a factor that agree with the observed states; returns the largest entry (float64).

    Parameters as for `load_table`.
    """
    to, source = load[rec.LOAD_OUT], load[rec.LOAD_FACTOR]
    n_observed, n_loops = load[rec.LOAD_OBSERVED], load[rec.LOAD_LOOPS]
    for j in range(rec.LOAD_FIELDS, rec.LOAD_FIELDS + 2 * n_observed, 2):
        source += states[load[j]] * load[j + 1]
    at = rec.LOAD_FIELDS + 2 * n_observed
    row, step = 1, 1
    if n_loops > 0:
        row, step = load[at + 2 * n_loops - 2], load[at + 2 * n_loops - 1]
    for j in range(n_loops):
        count[j] = 0
    top = 0.0
    for first in range(to, to + load[rec.LOAD_CELLS], row):
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
    return top


@compiled()
def _load_table(arena, load, states, weights, weight_ptr, exponent, lowest, count):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Copy a factor, restricted to the observed states and multiplied with likelihood weights."""
    # load: See `records`
    # states: (V,) int32: Observed states by rank, -1 elsewhere
    # weights, weight_ptr: float64, (V,) int64: See `workspace.scaled_weights`
    # exponent: (E,) int64
    # lowest: The table is scaled if its largest entry is below
    # count: Scratch memory, a number a loop
    # returns Whether an entry is above 0.
    to, cells, n_weights = load[rec.LOAD_OUT], load[rec.LOAD_CELLS], load[rec.LOAD_WEIGHTS]
    top = _copy_restricted(arena, load, states, count)
    if n_weights > 0:
        at = rec.LOAD_FIELDS + 2 * (load[rec.LOAD_OBSERVED] + load[rec.LOAD_LOOPS])
        for j in range(at, at + 3 * n_weights, 3):
            first, card, inner = weight_ptr[load[j]], load[j + 1], load[j + 2]
            if inner == 0:  # of a set variable
                for i in range(cells):
                    arena[to + i] *= weights[first + i]
                continue
            for i in range(cells):
                arena[to + i] *= weights[first + i // inner % card]
        top = 0.0
        for i in range(cells):
            top = max(top, arena[to + i])
    exponent[load[rec.LOAD_OUT_EXP]] = exponent[load[rec.LOAD_FACTOR_EXP]]
    if top < lowest and top > 0.0:
        exponent[load[rec.LOAD_OUT_EXP]] += _scale(arena.ctypes.data, to, cells, top)
    return top > 0.0


@inlined
def _load_all(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    arena, loads, load_ptr, states, weights, weight_ptr, exponent, limit, zeros, scratch
):
    """Run every load."""
    # zeros: Whether to continue where a table is zero everywhere
    # scratch: `workspace.KernelScratch.block`
    # others: See `run`
    # returns Whether the evidence is possible so far.
    count, lowest = scratch[rec.SCRATCH_FIELDS:], 2.0**-limit
    for p in range(len(load_ptr) - 1):
        load = loads[load_ptr[p] : load_ptr[p + 1]]
        possible = _load_table(arena, load, states, weights, weight_ptr, exponent, lowest, count)
        if not possible and not zeros:
            return False
    return True


@compiled("f8[:], i8[:], i8[:], i4[:], f8[:], i8[:], i8[:], i8, i8[:]")
def load_all(arena, loads, load_ptr, states, weights, weight_ptr, exponent, limit, scratch):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Run every load; returns NaN if digits were lost, `IMPOSSIBLE` or 0."""
    word = plain_arithmetic()
    possible = _load_all(arena, loads, load_ptr, states, weights, weight_ptr, exponent, limit, False, scratch)
    lost = lost_digits()
    restore_arithmetic(word)
    return math.nan if lost else 0.0 if possible else rec.IMPOSSIBLE


@compiled()
def finish(arena, record, top, exponent, lowest, highest):  # type: ignore[no-untyped-def]
    """Normalise a distribution, scale another table whose largest entry is out of bounds; note its exponent."""
    # arena, record, exponent: Addresses of float64, int64 and int64
    # top, lowest, highest: The table's largest entry and the bounds between which it is left as it is
    start, size = peek_int(record, rec.OUT), peek_int(record, rec.SIZE)
    shift = peek_int(exponent, peek_int(record, rec.A_EXP)) + peek_int(exponent, peek_int(record, rec.B_EXP))
    for t in range(2, peek_int(record, rec.INPUTS)):
        shift += peek_int(exponent, peek_int(record, input_field(t) + 1))
    if peek_int(record, rec.ANSWER) >= 0:
        total = 0.0
        for i in range(start, start + size):
            total += peek(arena, i)
        for i in range(start, start + size):
            poke(arena, i, peek(arena, i) / total)
    elif top < lowest or top > highest:
        shift += _scale(arena, start, size, top)
    poke_int(exponent, peek_int(record, rec.OUT_EXP), shift)


@compiled("f8[:], i8[:, :], i8[:]")
def evidence_log(arena, roots, exponent):  # type: ignore[no-untyped-def]
    """ln of the product of the roots (float64); `IMPOSSIBLE` if it is zero."""
    # roots: (n, 3) int64: See `records.Records`
    # exponent: (E,) int64
    log_evidence = 0.0
    for r in range(len(roots)):
        value = arena[roots[r, 0]]
        if not value > 0.0:
            return rec.IMPOSSIBLE
        log_evidence += math.log(value) + exponent[roots[r, 1]] * LOG2
    return log_evidence


@inlined
def states_by_rank(by_rank, state, mapped):  # type: ignore[no-untyped-def]
    """The observed states by rank, (V,) int32; empty if the case has a state that is impossible. See `run`."""
    n = len(by_rank)
    states = np.empty(n, np.int32)
    for r in range(n):
        v = by_rank[r]
        if len(mapped) == 0:
            states[r] = state[v]
            continue
        s = state[mapped[1 + v]]
        numbers = mapped[1 + 2 * n + v]
        if s >= 0 and numbers > 0:
            s = np.int32(mapped[numbers + s])
            if s < 0:
                return states[:0]
        states[r] = s
    return states


@inlined
def _run(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    code, arena, exponent, by_rank, state, mapped, weights, weight_ptr, limit, zeros, scratch
):
    """`run`, whether or not digits are lost."""
    lowest, highest = 2.0**-limit, 2.0**limit
    loads = code[code[rec.END_STORE_PTR] : code[rec.END_LOADS]]
    load_ptr = code[code[rec.END_ANSWERS] : code[rec.END_LOAD_PTR]]
    states = states_by_rank(by_rank, state, mapped)
    if len(states) < len(by_rank):
        return rec.IMPOSSIBLE
    if not _load_all(arena, loads, load_ptr, states, weights, weight_ptr, exponent, limit, zeros, scratch):
        return rec.IMPOSSIBLE
    memory, room, exponents = arena.ctypes.data, scratch.ctypes.data, exponent.ctypes.data
    records = code.ctypes.data + 8 * code[rec.END_LOADS]
    for p in range(code[rec.END_LOAD_PTR], code[rec.END_RECORD_PTR] - 1):
        record = records + 8 * code[p]
        top = contract(memory, record, room)
        if not top > 0.0 and not zeros:
            return rec.IMPOSSIBLE
        finish(memory, record, top, exponents, lowest, highest)
    return evidence_log(arena, code[rec.HEADER : code[rec.END_ROOTS]].reshape((-1, 3)), exponent)


@compiled("i8[:], f8[:], i8[:], const(i8[:]), const(i4[:]), const(i8[:]), f8[:], i8[:], i8, b1, i8[:]")
def run(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    code, arena, exponent, by_rank, state, mapped, weights, weight_ptr, limit, zeros, scratch
):
    """Run a program: factors restricted to the states, every contraction, distributions normalised into their cells."""
    # code: See `records`
    # arena: Cells of all tables; see `workspace.Numbers`
    # exponent: (E,) int64: Of every table, see `workspace.Numbers`
    # by_rank: (V,) int64: The variables' numbers by rank
    # state: (V,) int32: Observed states by number, -1 elsewhere
    # mapped: Empty, or the code of the map that `state` is outside of, see `jtgpu.backends.state_map`
    # weights, weight_ptr: float64, (V,) int64: See `workspace.scaled_weights`
    # limit: A table whose largest entry leaves 2**-limit .. 2**limit is scaled.
    # zeros: Whether to continue where a table is zero everywhere, as derivatives do
    # scratch: `workspace.KernelScratch.block`
    # returns ln P(e); `IMPOSSIBLE` if it is zero; NaN if digits were lost, so that neither is certain: the case needs
    #     extended numbers.
    word = plain_arithmetic()
    log_evidence = _run(
        code, arena, exponent, by_rank, state, mapped, weights, weight_ptr, limit, zeros, scratch
    )  # fmt: skip
    if lost_digits():
        log_evidence = math.nan
    restore_arithmetic(word)
    return log_evidence


@compiled("i8[:], f8[:], const(i8[:]), const(i4[:]), const(i8[:]), const(i8[:])")
def copy_posteriors(code, arena, by_rank, state, posterior_ptr, mapped):  # type: ignore[no-untyped-def]
    """The posteriors (float64) that a program left in the arena, variable after variable, 0 for what is not a target.

    Observed variables have probability 1 in their states.
    """
    # posterior_ptr: (V+1,) int64: First cell of each variable in the result
    # mapped: Not empty: the result is one of the outer model
    # others: See `run`
    n = len(by_rank)
    posterior = np.zeros(mapped[0] if len(mapped) else posterior_ptr[-1])
    for a in range(code[rec.FIRST_ANSWER], code[rec.END_ANSWERS], 3):
        v, cell = by_rank[code[a]], code[a + 1]
        for i in range(posterior_ptr[v], posterior_ptr[v + 1]):
            posterior[mapped[1 + 3 * n + i] if len(mapped) else i] = arena[cell]
            cell += 1
    for v in range(n):
        s = state[mapped[1 + v] if len(mapped) else v]
        if s >= 0:
            posterior[(mapped[1 + n + v] if len(mapped) else posterior_ptr[v]) + s] = 1.0
    return posterior


# Incremental runs. Every table has a signature: a hash of all that its numbers depend on (the records before it, the
# states and weights that were loaded). If a table already has the signature that a program would give it, its numbers
# are up to date, whatever pattern, targets or evidence they were computed for.


@compiled()
def _mix(h, x):  # type: ignore[no-untyped-def]
    """A hash taken one number further (two rounds of xor, shift and multiply with odd constants)."""
    h = (h ^ np.uint64(x)) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@compiled("i8[:], i8[:]")
def hashes(flat, ptr):  # type: ignore[no-untyped-def]
    """A hash of every record or load."""
    out = np.empty(len(ptr) - 1, np.uint64)
    for p in range(len(ptr) - 1):
        h = np.uint64(0x243F6A8885A308D3)
        for i in range(ptr[p], ptr[p + 1]):
            h = _mix(h, flat[i])
        out[p] = h
    return out


@compiled()
def _load_signature(h, load, states, bits, weight_ptr):  # type: ignore[no-untyped-def]
    """The signature (uint64) of a loaded table: the load's hash h, its states and the bits of its weights."""
    n_observed, n_loops, n_weights = load[rec.LOAD_OBSERVED], load[rec.LOAD_LOOPS], load[rec.LOAD_WEIGHTS]
    for j in range(n_observed):
        h = _mix(h, states[load[rec.LOAD_FIELDS + 2 * j]])
    at = rec.LOAD_FIELDS + 2 * n_observed + 2 * n_loops
    for _ in range(n_weights):
        first = weight_ptr[load[at]]
        for i in range(first, first + load[at + 1]):
            h = _mix(h, bits[i])
        at += 3
    return h


@inlined
def _run_changed(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    arena, exponent, records, record_ptr, loads, load_ptr, roots, states, weights, weight_ptr, limit, scratch,
    record_hash, load_hash, signature, bits, made,
):  # fmt: skip
    """`run_changed`, whether or not digits are lost."""
    lowest, highest = 2.0**-limit, 2.0**limit
    made[0], made[1] = 0, len(record_ptr) - 1
    count = scratch[rec.SCRATCH_FIELDS:]
    for p in range(len(load_ptr) - 1):
        load = loads[load_ptr[p] : load_ptr[p + 1]]
        h = _load_signature(load_hash[p], load, states, bits, weight_ptr)
        if signature[load[rec.LOAD_OUT_EXP]] != h:
            signature[load[rec.LOAD_OUT_EXP]] = np.uint64(0)
            if not _load_table(arena, load, states, weights, weight_ptr, exponent, lowest, count):
                return rec.IMPOSSIBLE
            signature[load[rec.LOAD_OUT_EXP]] = h
    memory, room, exponents = arena.ctypes.data, scratch.ctypes.data, exponent.ctypes.data
    for p in range(len(record_ptr) - 1):
        record = records.ctypes.data + 8 * record_ptr[p]
        out = peek_int(record, rec.OUT_EXP)
        h = _mix(_mix(record_hash[p], signature[peek_int(record, rec.A_EXP)]), signature[peek_int(record, rec.B_EXP)])
        for t in range(2, peek_int(record, rec.INPUTS)):
            h = _mix(h, signature[peek_int(record, input_field(t) + 1)])
        if signature[out] == h:
            continue
        signature[out] = np.uint64(0)
        made[0] += 1
        top = contract(memory, record, room)
        if not top > 0.0:
            return rec.IMPOSSIBLE
        finish(memory, record, top, exponents, lowest, highest)
        signature[out] = h
    return evidence_log(arena, roots, exponent)


@compiled(
    "f8[:], i8[:], i8[:], i8[:], i8[:], i8[:], i8[:, :], i4[:], f8[:], i8[:], i8, i8[:], u8[:], u8[:], u8[:], u8[:], "
    "i8[:]"
)
def run_changed(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    arena, exponent, records, record_ptr, loads, load_ptr, roots, states, weights, weight_ptr, limit, scratch,
    record_hash, load_hash, signature, bits, made,
):  # fmt: skip
    """`run` that makes no table whose numbers are up to date."""
    # record_hash, load_hash: `hashes` of the program
    # signature: (E,) uint64: One a table, as `exponent`; 0 for none. Belongs to the arena, whose cells must be the same
    #     in every program.
    # bits: The bits of `weights`
    # made: (2,) int64: Gets the contractions that were made, and all
    # others: See `run`
    word = plain_arithmetic()
    log_evidence = _run_changed(
        arena, exponent, records, record_ptr, loads, load_ptr, roots, states, weights, weight_ptr, limit, scratch,
        record_hash, load_hash, signature, bits, made,
    )  # fmt: skip
    if lost_digits():
        log_evidence = math.nan
    restore_arithmetic(word)
    return log_evidence
