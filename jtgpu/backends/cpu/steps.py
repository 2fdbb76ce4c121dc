"""The way back down a contraction forest: variables chosen where they were taken out, slice by slice.

A *step* belongs to a contraction that takes variables out. Given the states of its table's variables, which later
contractions took out and which are known by now, its *slice* is the product of its inputs over the variables that it
takes out alone. Their largest cell, or one at random, is what the step chooses.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...util.numba_cache import compiled
from .records import LOOPS, A, B

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CHANCES", "UNKEPT", "Steps", "alternatives", "cell_of", "draw", "make_steps", "retrace", "trace"]

# A step: the fields up to PLACES, then (variable, states) a variable that is taken out, slowest first; (variable,
# stride) one of the table; and for each input its cell, its strides in the variables that are taken out, the number of
# its other variables and (variable, stride) of each. Variables by rank.
N_INPUTS, N_TAKEN, CELLS, N_SEEN, CHANCES, CHANCES_MADE, PLACES = range(7)
UNKEPT = -1  # CHANCES of a step whose slices are made anew each time

MOST_CHANCES = 1 << 22  # numbers: 32 MiB of slices that samples share
MOST_NUMBERS, LEAST_ROWS = 1 << 15, 16  # random numbers of the samples that are drawn side by side, and these
FEW = 8  # cells of a slice that are compared all rather than halved


class Steps(NamedTuple):
    """What a program leaves for the way down, in the order of its contractions."""

    steps: NDArray[np.int64]
    step_ptr: NDArray[np.int64]  # (n+1,)
    counts: NDArray[np.int64]  # (4,) largest slice, most inputs or variables of a step, kept numbers, kept slices


@compiled()
def _make(sk, length, scope, use, made, maximal, records, record_ptr, steps):  # type: ignore[no-untyped-def]
    """`steps`: memory to write them in. Returns the bounds of the steps and their counts."""
    n_vars = len(sk.card)
    out_at, taken_at = np.full(n_vars, -1, np.int64), np.full(n_vars, -1, np.int64)
    stride = np.zeros(n_vars, np.int64)
    step_ptr = np.zeros(len(record_ptr), np.int64)
    taken, sizes = np.empty(n_vars, np.int64), np.zeros(len(record_ptr), np.int64)
    n, n_steps, p = 0, 0, 0
    largest, most, chances, slices = 1, 1, 0, 0
    for i in range(len(sk.op_out)):
        out = sk.op_out[i]
        if not made[out]:
            continue
        record = record_ptr[p]
        p += 1
        if not maximal[i]:
            continue
        for j in range(sk.table_ptr[out], sk.table_ptr[out] + length[out]):
            out_at[scope[j]] = i
        n_taken, cells = 0, 1
        for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
            t = use[j]
            if t < 0:
                continue
            for s in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                v = scope[s]
                if out_at[v] != i and taken_at[v] != i and sk.card[v] > 1:
                    taken_at[v] = i
                    q = n_taken
                    while q > 0 and taken[q - 1] > v:
                        taken[q] = taken[q - 1]
                        q -= 1
                    taken[q] = v
                    n_taken += 1
                    cells *= sk.card[v]
        if n_taken == 0:
            continue
        at = n + PLACES
        for q in range(n_taken):
            steps[at], steps[at + 1] = taken[q], sk.card[taken[q]]
            at += 2
        n_seen, size = 0, 1
        for j in range(sk.table_ptr[out] + length[out] - 1, sk.table_ptr[out] - 1, -1):
            v = scope[j]
            if sk.card[v] > 1:
                steps[at], steps[at + 1] = v, size
                at += 2
                n_seen += 1
                size *= sk.card[v]
        k = 0
        for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
            t = use[j]
            if t < 0:
                continue
            where = record + (A if k == 0 else B if k == 1 else LOOPS + 3 * (k - 2))
            k += 1
            step = 1
            for s in range(sk.table_ptr[t] + length[t] - 1, sk.table_ptr[t] - 1, -1):
                stride[scope[s]] = step
                step *= sk.card[scope[s]]
            steps[at] = records[where]
            at += 1
            for q in range(n_taken):
                steps[at + q] = stride[taken[q]]
            at += n_taken
            n_others = at
            at += 1
            for s in range(sk.table_ptr[t], sk.table_ptr[t] + length[t]):
                v = scope[s]
                if taken_at[v] != i and sk.card[v] > 1:
                    steps[at], steps[at + 1] = v, stride[v]
                    at += 2
                stride[v] = 0
            steps[n_others] = (at - n_others - 1) // 2
        steps[n + N_INPUTS], steps[n + N_TAKEN], steps[n + CELLS], steps[n + N_SEEN] = k, n_taken, cells, n_seen
        sizes[n_steps] = size
        largest, most = max(largest, cells), max(most, max(k, n_taken))
        n = at
        n_steps += 1
        step_ptr[n_steps] = n
    # the fewer slices a step has, the more samples share each
    for p in np.argsort(sizes[:n_steps], kind="mergesort"):
        step = step_ptr[p]
        cells = steps[step + CELLS] * sizes[p]
        steps[step + CHANCES], steps[step + CHANCES_MADE] = UNKEPT, 0
        if chances + cells <= MOST_CHANCES:
            steps[step + CHANCES], steps[step + CHANCES_MADE] = chances, slices
            chances += cells
            slices += sizes[p]
    return step_ptr[: n_steps + 1].copy(), np.array([largest, most, chances, slices])


@compiled()
def _room(sk, length, use, made):  # type: ignore[no-untyped-def]
    """Numbers that the steps of a program may take at most."""
    room = 0
    for i in range(len(sk.op_out)):
        if made[sk.op_out[i]]:
            wide, k = 0, 0
            for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
                if use[j] >= 0:
                    wide += length[use[j]]
                    k += 1
            room += PLACES + (4 + k) * wide + 2 * k + 2 * length[sk.op_out[i]]
    return room


@compiled()
def make_steps(sk, length, scope, use, made, maximal, records, record_ptr):  # type: ignore[no-untyped-def]
    """The steps of a program.

    Parameters
    ----------
    sk : Skeleton
    length, scope, use
        See `jtgpu.plans.specialise.Remains`.
    made : (T,) bool
        Tables that the program makes.
    maximal : (P,) bool
        Contractions that get a step.
    records, record_ptr
        See `jtgpu.backends.cpu.records.Program`.

    Returns
    -------
    The fields of `Steps`.
    """
    steps = np.empty(_room(sk, length, use, made), np.int64)
    step_ptr, counts = _make(sk, length, scope, use, made, maximal, records, record_ptr, steps)
    return steps[: step_ptr[-1]].copy(), step_ptr, counts


@compiled()
def _slice(arena, steps, step, states, values, work):  # type: ignore[no-untyped-def]
    """Fill `values` with the slice of the step that begins at `step`; returns its cells."""
    k, m, cells = steps[step + N_INPUTS], steps[step + N_TAKEN], steps[step + CELLS]
    taken = step + PLACES
    at = taken + 2 * m + 2 * steps[step + N_SEEN]
    if k == 2 and m == 1:  # nearly all
        a, sa = steps[at], steps[at + 1]
        last = at + 3 + 2 * steps[at + 2]
        for j in range(at + 3, last, 2):
            a += states[steps[j]] * steps[j + 1]
        b, sb = steps[last], steps[last + 1]
        for j in range(last + 3, last + 3 + 2 * steps[last + 2], 2):
            b += states[steps[j]] * steps[j + 1]
        for i in range(cells):
            values[i] = arena[a] * arena[b]
            a += sa
            b += sb
        return cells
    for t in range(k):
        a, strides = steps[at], at + 1
        last = strides + m + 1 + 2 * steps[strides + m]
        for j in range(strides + m + 1, last, 2):
            a += states[steps[j]] * steps[j + 1]
        at = last
        for q in range(m):
            work[q] = 0
        for i in range(cells):
            values[i] = arena[a] if t == 0 else values[i] * arena[a]
            for q in range(m - 1, -1, -1):
                work[q] += 1
                a += steps[strides + q]
                if work[q] < steps[taken + 2 * q + 1]:
                    break
                work[q] = 0
                a -= steps[taken + 2 * q + 1] * steps[strides + q]
    return cells


@compiled()
def _take(steps, step, cell, states):  # type: ignore[no-untyped-def]
    """Set the states that a cell of a slice stands for."""
    m, taken = steps[step + N_TAKEN], step + PLACES
    for q in range(m - 1, -1, -1):
        card = steps[taken + 2 * q + 1]
        states[steps[taken + 2 * q]] = cell % card
        cell //= card


@compiled()
def cell_of(steps, step, states):  # type: ignore[no-untyped-def]
    """The cell of a step's slice that the states stand for."""
    m, taken = steps[step + N_TAKEN], step + PLACES
    cell = 0
    for q in range(m):
        cell = cell * steps[taken + 2 * q + 1] + states[steps[taken + 2 * q]]
    return cell


@compiled()
def trace(arena, steps, step_ptr, last, states, values, work):  # type: ignore[no-untyped-def]
    """Choose the largest cell of every slice, from step `last` - 1 down; of equal ones the first."""
    for p in range(last - 1, -1, -1):
        step = step_ptr[p]
        cells = _slice(arena, steps, step, states, values, work)
        top = 0
        for i in range(1, cells):
            if values[i] > values[top]:
                top = i
        _take(steps, step, top, states)


@compiled()
def retrace(arena, steps, step_ptr, p, cell, states, values, work):  # type: ignore[no-untyped-def]
    """Choose a cell at one step, and the largest ones at all that follow."""
    _take(steps, step_ptr[p], cell, states)
    trace(arena, steps, step_ptr, p, states, values, work)


@compiled()
def alternatives(arena, steps, step_ptr, first, barred, states, cells_out, loss, values, work):  # type: ignore[no-untyped-def]
    """For step `first` and all that follow the best cell but the chosen one; at `first` none that is barred.

    Parameters
    ----------
    first : int
        Steps ``first``, ``first`` - 1, ... 0 are looked at.
    barred : int64
        Cells of step `first`.
    cells_out, loss : (first + 1,)
        Get the cell, and ln of its value over the chosen one's, -inf where there is none.
    """
    for p in range(first, -1, -1):
        step = step_ptr[p]
        cells = _slice(arena, steps, step, states, values, work)
        chosen = cell_of(steps, step, states)
        at_choice = values[chosen]
        values[chosen] = 0.0
        if p == first:
            for c in barred:
                values[c] = 0.0
        top = 0
        for i in range(1, cells):
            if values[i] > values[top]:
                top = i
        cells_out[p] = top
        loss[p] = math.log(values[top]) - math.log(at_choice) if values[top] > 0.0 else -math.inf


@compiled()
def _pick(sums, first, cells, u):  # type: ignore[no-untyped-def]
    """The first cell whose running sum exceeds u times the last one's: never one of probability zero."""
    goal = u * sums[first + cells - 1]
    low = 0
    if cells <= FEW:
        for i in range(first, first + cells - 1):
            low += sums[i] <= goal
    else:
        high = cells - 1
        while low < high:
            middle = (low + high) // 2
            if sums[first + middle] > goal:
                high = middle
            else:
                low = middle + 1
    # where u * total rounds up to the total: the last cell that is possible
    while low > 0 and sums[first + low] == sums[first + low - 1]:
        low -= 1
    return low


@compiled()
def _sums(arena, steps, step, known, chances, first, values, work):  # type: ignore[no-untyped-def]
    """Write the running sums of a step's slice at `chances[first:]`."""
    cells = _slice(arena, steps, step, known, values, work)
    total = 0.0
    for i in range(cells):
        total += values[i]
        chances[first + i] = total


@compiled()
def _know(steps, step, m, states, r, known):  # type: ignore[no-untyped-def]
    """Note what a step's slice depends on in row r."""
    seen = step + PLACES + 2 * m
    for j in range(seen, seen + 2 * steps[step + N_SEEN], 2):
        known[steps[j]] = states[steps[j], r]


@compiled()
def _put(steps, step, m, cell, states, r):  # type: ignore[no-untyped-def]
    """Set the states that a cell of a slice stands for in row r."""
    for q in range(m - 1, -1, -1):
        card = steps[step + PLACES + 2 * q + 1]
        states[steps[step + PLACES + 2 * q], r] = cell % card
        cell //= card


@compiled()
def draw(arena, steps, step_ptr, start, uniforms, out, by_rank, chances, made, values, work):  # type: ignore[no-untyped-def]
    """Samples, one a row of `out`.

    Rows go through the steps side by side, as many as stay near the processor: what a step is, and the slices that its
    rows share, is looked up once for all of them.

    Parameters
    ----------
    start : (V,) int32
        Observed states by rank, 0 elsewhere.
    uniforms : (n, V)
        The number of a step is that of the first variable it takes out.
    out : (n, V) int32
    by_rank : (V,)
    chances : float64
        Running sums of slices that were met before.
    made : uint8
        Which of them are there.
    """
    n_vars = len(start)
    width = max(1, min(len(out), max(LEAST_ROWS, MOST_NUMBERS // n_vars)))
    states, known = np.empty((n_vars, width), start.dtype), start.copy()
    place = np.empty(width, np.int64)
    for first in range(0, len(out), width):
        rows = min(width, len(out) - first)
        for v in range(n_vars):
            states[v, :rows] = start[v]
        for p in range(len(step_ptr) - 2, -1, -1):
            step = step_ptr[p]
            m, cells, variable = steps[step + N_TAKEN], steps[step + CELLS], steps[step + PLACES]
            lead = by_rank[variable]
            if steps[step + CHANCES] == UNKEPT:
                for r in range(rows):
                    _know(steps, step, m, states, r, known)
                    _sums(arena, steps, step, known, values, 0, values, work)
                    _put(steps, step, m, _pick(values, 0, cells, uniforms[first + r, lead]), states, r)
                continue
            kept, there = steps[step + CHANCES], steps[step + CHANCES_MADE]
            place[:rows] = 0
            seen = step + PLACES + 2 * m
            for j in range(seen, seen + 2 * steps[step + N_SEEN], 2):
                v, stride = steps[j], steps[j + 1]
                for r in range(rows):
                    place[r] += states[v, r] * stride
            for r in range(rows):
                at = kept + place[r] * cells
                if not made[there + place[r]]:
                    _know(steps, step, m, states, r, known)
                    _sums(arena, steps, step, known, chances, at, values, work)
                    made[there + place[r]] = 1
                cell = _pick(chances, at, cells, uniforms[first + r, lead])
                if m == 1:
                    states[variable, r] = cell
                else:
                    _put(steps, step, m, cell, states, r)
        for r in range(rows):
            for v in range(n_vars):
                out[first + r, by_rank[v]] = states[v, r]
