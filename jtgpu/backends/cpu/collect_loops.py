"""Compiled loops over contraction forests: a sweep to the roots, what is chosen on the way down, derivatives."""

from __future__ import annotations

import math

import numpy as np

from ...util.numba_cache import compiled
from .kernels import contract
from .maximal import contract_maximal
from .steps import CHANCES, UNKEPT, draw, trace
from .sweep import IMPOSSIBLE, LOG2, evidence_log, finish, load_table

__all__ = ["best", "best_rows", "draw_rows", "score", "spread", "sweep"]


@compiled()
def sweep(  # type: ignore[no-untyped-def]
    arena, exponent, records, record_ptr, maximal, loads, load_ptr, states, weights, weight_ptr, limit, zeros,
    work, offsets, buffer,
):  # fmt: skip
    """Run a program; with `zeros` also where a table is all zeros. Returns whether the evidence is possible."""
    lowest, highest = 2.0**-limit, 2.0**limit
    for p in range(len(load_ptr) - 1):
        load = loads[load_ptr[p] : load_ptr[p + 1]]
        if not load_table(arena, load, states, weights, weight_ptr, exponent, work, lowest) and not zeros:
            return False
    memory, scratch = arena.ctypes.data, (work.ctypes.data, offsets.ctypes.data)
    for p in range(len(record_ptr) - 1):
        record = records.ctypes.data + 8 * record_ptr[p]
        if maximal[p]:
            top = contract_maximal(memory, record, *scratch)
        else:
            top = contract(memory, record, *scratch, buffer.ctypes.data)
        if not top > 0.0 and not zeros:
            return False
        finish(memory, record, top, exponent.ctypes.data, lowest, highest)
    return True


@compiled()
def best(arena, exponent, roots, steps, step_ptr, states, values, work):  # type: ignore[no-untyped-def]
    """The best configuration, into `states`; returns ln of its value."""
    log_value = evidence_log(arena, roots, exponent)
    if log_value > IMPOSSIBLE:
        trace(arena, steps, step_ptr, len(step_ptr) - 1, states, values, work)
    return log_value


@compiled()
def best_rows(  # type: ignore[no-untyped-def]
    arena, exponent, records, record_ptr, maximal, loads, load_ptr, roots, steps, step_ptr, rows, limit, values, places,
    work, offsets, buffer,
):  # fmt: skip
    """The best configuration of each row of one pattern, into `rows`; returns ln of their values."""
    nothing, nowhere, logs = np.zeros(1), np.zeros(1, np.int64), np.full(len(rows), -math.inf)
    for i in range(len(rows)):
        states = rows[i]
        if sweep(
            arena, exponent, records, record_ptr, maximal, loads, load_ptr, states, nothing, nowhere, limit, False,
            work, offsets, buffer,
        ):  # fmt: skip
            for v in range(len(states)):
                states[v] = max(states[v], 0)
            logs[i] = best(arena, exponent, roots, steps, step_ptr, states, values, places)
    return logs


@compiled()
def draw_rows(  # type: ignore[no-untyped-def]
    arena, exponent, records, record_ptr, maximal, loads, load_ptr, roots, steps, step_ptr, cases, limit, uniforms,
    rows, out, by_rank, values, places, work, offsets, buffer,
):  # fmt: skip
    """One sample of each case of one pattern, into its row of `out`; rows of impossible ones stay."""
    nothing, nowhere = np.zeros(1), np.zeros(1, np.int64)
    unkept = steps.copy()
    for p in range(len(step_ptr) - 1):
        unkept[step_ptr[p] + CHANCES] = UNKEPT  # every case has slices of its own
    none, made = np.zeros(1), np.zeros(1, np.uint8)
    for i in range(len(cases)):
        states, row = cases[i], rows[i]
        if not sweep(
            arena, exponent, records, record_ptr, maximal, loads, load_ptr, states, nothing, nowhere, limit, False,
            work, offsets, buffer,
        ) or evidence_log(arena, roots, exponent) == IMPOSSIBLE:  # fmt: skip
            continue
        for v in range(len(states)):
            states[v] = max(states[v], 0)
        draw(
            arena, unkept, step_ptr, states, uniforms[row : row + 1], out[row : row + 1], by_rank, none, made, values,
            places,
        )  # fmt: skip


@compiled()
def score(arena, exponent, factor_ptr, factor_var, strides, cells, configurations, by_case):  # type: ignore[no-untyped-def]
    """ln of the product of all factors at each configuration."""
    for row in range(len(configurations)):
        total = 0.0
        for f in range(len(cells)):
            at = cells[f]
            for j in range(factor_ptr[f], factor_ptr[f + 1]):
                at += configurations[row, factor_var[j]] * strides[j]
            total += math.log(arena[at]) + exponent[f] * LOG2 if arena[at] > 0.0 else -math.inf
        by_case[row] = total


@compiled()
def spread(  # type: ignore[no-untyped-def]
    arena, cell, observed, weights, weight_ptr, weighed, cards, scope_ptr, scope, down_ptr, down, first, out
):
    """Write the derivative of every entry of every factor, in the order of the model's axes.

    A table of derivatives lacks what is observed and what nothing else mentions; entries that contradict an observation
    have derivative zero, and weights are factors of their own.
    """
    n_vars = len(cards)
    stride, count = np.zeros(n_vars, np.int64), np.zeros(64, np.int64)
    for f in range(len(cell)):
        step = 1
        for j in range(down_ptr[f + 1] - 1, down_ptr[f] - 1, -1):
            v = down[j]
            if observed[v] < 0:
                stride[v] = step
                step *= cards[v]
        begin, end = scope_ptr[f], scope_ptr[f + 1]
        count[: end - begin] = 0
        for i in range(first[f], first[f + 1]):
            at, scale = cell[f], 1.0
            for j in range(begin, end):
                v = scope[j]
                state = count[j - begin]
                at += state * stride[v]
                if observed[v] >= 0 and observed[v] != state:
                    scale = 0.0
                if weighed[v] == f:
                    scale *= weights[weight_ptr[v] + state]
            out[i] = arena[at] * scale
            for j in range(end - 1, begin - 1, -1):
                count[j - begin] += 1
                if count[j - begin] < cards[scope[j]]:
                    break
                count[j - begin] = 0
        for j in range(down_ptr[f], down_ptr[f + 1]):
            stride[down[j]] = 0
