"""Samples of posteriors, drawn in the backward pass of a program; see `jtgpu.backends.cpu.backward`."""

from __future__ import annotations

import numpy as np

from ....util.jit import compiled, inlined
from ..backward import CELLS, CHANCES, CHANCES_MADE, N_SEEN, N_TAKEN, PLACES, UNSHARED
from .backward import slice_of

MOST_NUMBERS, LEAST_ROWS = 1 << 15, 16  # random numbers of the samples that are drawn together; least samples
FEW = 8  # cells of a slice that are compared one by one, without a binary search


@compiled()
def _pick(sums, first, cells, u):  # type: ignore[no-untyped-def]
    """The first cell (int64) whose running sum exceeds u times the last one's: never one of probability zero."""
    # sums: Running sums, from place `first` (int64) on, of so many cells (int64)
    # u: In [0, 1)
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
def _sums(arena, power, steps, step, known, chances, first, values, work):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the running sums of a step's slice at `chances[first:]` (float64); `known`: states; see `slice_of`."""
    cells = slice_of(arena, power, steps, step, known, values, work)
    total = 0.0
    for i in range(cells):
        total += values[i]
        chances[first + i] = total


@compiled()
def _know(steps, step, m, states, r, known):  # type: ignore[no-untyped-def]
    """Copy the states that a step's slice depends on from row r of `states` (V, rows) to `known` (V,)."""
    seen = step + PLACES + 2 * m
    for j in range(seen, seen + 2 * steps[step + N_SEEN], 2):
        known[steps[j]] = states[steps[j], r]


@compiled()
def _put(steps, step, m, cell, states, r):  # type: ignore[no-untyped-def]
    """Set row r of `states` (V, rows) to those of a cell of a slice that eliminates m variables."""
    for q in range(m - 1, -1, -1):
        card = steps[step + PLACES + 2 * q + 1]
        states[steps[step + PLACES + 2 * q], r] = cell % card
        cell //= card


@compiled("(f8[:], i8[:]), i8[:], i8[:], i4[:], f8[:, :], i4[:, :], i8[:], f8[:], u1[:], f8[:], i8[:]")
def draw(tables, steps, step_ptr, start, uniforms, out, by_rank, chances, made, values, work):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Samples, one a row of `out`.

    As many rows as fit the cache go through the steps together: a step, and the slices that its rows share, is read
    once for all of them.
    """
    # start: (V,) int32: Observed states by rank, 0 elsewhere
    # uniforms: (n, V): The number of a step is that of the first variable it eliminates
    # out: (n, V) int32
    # by_rank: (V,)
    # chances: Running sums of slices that were computed before
    # made: Which of them are computed
    # others: See `trace`
    arena, power = tables
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
            if steps[step + CHANCES] == UNSHARED:
                for r in range(rows):
                    _know(steps, step, m, states, r, known)
                    _sums(arena, power, steps, step, known, values, 0, values, work)
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
                    _sums(arena, power, steps, step, known, chances, at, values, work)
                    made[there + place[r]] = 1
                cell = _pick(chances, at, cells, uniforms[first + r, lead])
                if m == 1:
                    states[variable, r] = cell
                else:
                    _put(steps, step, m, cell, states, r)
        for r in range(rows):
            for v in range(n_vars):
                out[first + r, by_rank[v]] = states[v, r]
