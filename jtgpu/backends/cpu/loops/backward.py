"""The backward pass of a program; see `jtgpu.backends.cpu.backward`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....plans.specialise import FlatProgram, Reduced
from ....util.jit import compiled, inlined
from ..backward import CELLS, CHANCES, CHANCES_MADE, N_INPUTS, N_SEEN, N_TAKEN, PLACES, UNSHARED
from ..records import FAR
from .fields import input_field
from .sweep import LOG2

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST_CHANCES = 1 << 22  # numbers: 32 MiB of slices that samples share


class _Work(NamedTuple):
    """Scratch memory while steps are made. V variables and the case axis."""

    out_at: NDArray[np.int64]  # (V+1,) contraction whose output has the variable
    taken_at: NDArray[np.int64]  # (V+1,) contraction that eliminates it
    stride: NDArray[np.int64]  # (V+1,) zeros
    taken: NDArray[np.int64]  # (V+1,) eliminated variables, ascending


@inlined
def _eliminated(sk, left, i, w):  # type: ignore[no-untyped-def]
    """Find the variables that contraction i eliminates; returns how many they are (int64). See `_write_step`."""
    out, n = sk.op_out[i], 0
    for j in range(sk.table_ptr[out], sk.table_ptr[out] + left.length[out]):
        w.out_at[left.scope[j]] = i
    for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = left.use[j]
        if t < 0:
            continue
        for s in range(sk.table_ptr[t], sk.table_ptr[t] + left.length[t]):
            v = left.scope[s]
            if w.out_at[v] != i and w.taken_at[v] != i and sk.card[v] > 1:
                w.taken_at[v] = i
                q = n
                while q > 0 and w.taken[q - 1] > v:
                    w.taken[q] = w.taken[q - 1]
                    q -= 1
                w.taken[q] = v
                n += 1
    return n


@inlined
def _write_input(sk, left, i, t, w, n_taken, steps, at):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the strides of input t behind its cell at `steps[at:]`; returns the end. See `_write_step`."""
    step = 1
    for s in range(sk.table_ptr[t] + left.length[t] - 1, sk.table_ptr[t] - 1, -1):
        w.stride[left.scope[s]] = step
        step *= sk.card[left.scope[s]]
    for q in range(n_taken):
        steps[at + q] = w.stride[w.taken[q]]
    n_others = at + n_taken
    at = n_others + 1
    for s in range(sk.table_ptr[t], sk.table_ptr[t] + left.length[t]):
        v = left.scope[s]
        if w.taken_at[v] != i and sk.card[v] > 1:
            steps[at], steps[at + 1] = v, w.stride[v]
            at += 2
        w.stride[v] = 0
    steps[n_others] = (at - n_others - 1) // 2
    return at


@inlined
def _write_step(sk, left, i, record, w, n_taken, steps, n):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Write the step of contraction i at `steps[n:]`."""
    # record: The contraction's record
    # n_taken: Variables in ``w.taken``
    # returns tuple of int64: The step's end, and the cells of the output.
    out, at, cells = sk.op_out[i], n + PLACES, 1
    for q in range(n_taken):
        steps[at], steps[at + 1] = w.taken[q], sk.card[w.taken[q]]
        cells *= sk.card[w.taken[q]]
        at += 2
    n_seen, size = 0, 1
    for j in range(sk.table_ptr[out] + left.length[out] - 1, sk.table_ptr[out] - 1, -1):
        v = left.scope[j]
        if sk.card[v] > 1:
            steps[at], steps[at + 1] = v, size
            at += 2
            n_seen += 1
            size *= sk.card[v]
    k = 0
    for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
        t = left.use[j]
        if t >= 0:
            steps[at] = record[input_field(k)]
            at = _write_input(sk, left, i, t, w, n_taken, steps, at + 1)
            k += 1
    steps[n + N_INPUTS], steps[n + N_TAKEN], steps[n + CELLS], steps[n + N_SEEN] = k, n_taken, cells, n_seen
    return at, size


@inlined
def _share_slices(steps, step_ptr, sizes):  # type: ignore[no-untyped-def]
    """Give room for running sums to the steps with the fewest slices: the fewer, the more samples share each."""
    # sizes: (n,) int64: Slices of each step
    # returns tuple of int64: Numbers and slices that have room.
    chances, slices = 0, 0
    for p in np.argsort(sizes, kind="mergesort"):
        step = step_ptr[p]
        cells = steps[step + CELLS] * sizes[p]
        steps[step + CHANCES], steps[step + CHANCES_MADE] = UNSHARED, 0
        if chances + cells <= MOST_CHANCES:
            steps[step + CHANCES], steps[step + CHANCES_MADE] = chances, slices
            chances += cells
            slices += sizes[p]
    return chances, slices


@compiled()
def _room(sk, left):  # type: ignore[no-untyped-def]
    """Numbers that the steps of a program take at most (int64); parameters as for `_make_steps`."""
    room = 0
    for i in range(len(sk.op_out)):
        wide, k = 0, 0
        for j in range(sk.op_in_ptr[i], sk.op_in_ptr[i + 1]):
            if left.use[j] >= 0:
                wide += left.length[left.use[j]]
                k += 1
        room += PLACES + (4 + k) * wide + 2 * k + 2 * left.length[sk.op_out[i]]
    return room


@compiled("FlatProgram, Reduced, b1[:], i8[:], i8[:]")
def make_steps(sk, left, with_step, records, record_ptr):  # type: ignore[no-untyped-def]
    """The fields of `BackwardSteps`."""
    # with_step: (P,) bool: Contractions whose variables are chosen
    # records, record_ptr: See `records.Records`
    n_vars = len(sk.card)
    steps = np.empty(_room(sk, left), np.int64)
    w = _Work(
        np.full(n_vars, -1, np.int64), np.full(n_vars, -1, np.int64), np.zeros(n_vars, np.int64),
        np.empty(n_vars, np.int64),
    )  # fmt: skip
    step_ptr, sizes = np.zeros(len(record_ptr), np.int64), np.zeros(len(record_ptr), np.int64)
    n, n_steps, p, largest, most = 0, 0, 0, 1, 1
    for i in range(len(sk.op_out)):
        out = sk.op_out[i]
        if not left.needed[out] or left.stands_for[out] != out:
            continue
        record = records[record_ptr[p] : record_ptr[p + 1]]
        p += 1
        if not with_step[i]:
            continue
        n_taken = _eliminated(sk, left, i, w)
        if n_taken == 0:
            continue
        end, sizes[n_steps] = _write_step(sk, left, i, record, w, n_taken, steps, n)
        largest = max(largest, steps[n + CELLS])
        most = max(most, max(steps[n + N_INPUTS], n_taken))
        n = end
        n_steps += 1
        step_ptr[n_steps] = n
    chances, slices = _share_slices(steps, step_ptr, sizes[:n_steps])
    return steps[:n].copy(), step_ptr[: n_steps + 1].copy(), np.array([largest, most, chances, slices])


@inlined
def _next_cell(steps, taken, strides, m, work):  # type: ignore[no-untyped-def]
    """How far an input moves (int64) from one cell of a step's slice to the next one."""
    # taken, strides: Where the eliminated variables and the input's strides begin in `steps`
    # m, work: Eliminated variables, and the state of each
    moved = 0
    for q in range(m - 1, -1, -1):
        work[q] += 1
        moved += steps[strides + q]
        if work[q] < steps[taken + 2 * q + 1]:
            break
        work[q] = 0
        moved -= steps[taken + 2 * q + 1] * steps[strides + q]
    return moved


@compiled()
def _extended_slice(arena, power, steps, step, states, values, work):  # type: ignore[no-untyped-def]
    """`slice_of` of extended numbers: fill `values` with mantissas; returns their exponents, int64."""
    k, m, cells = steps[step + N_INPUTS], steps[step + N_TAKEN], steps[step + CELLS]
    taken = step + PLACES
    at = taken + 2 * m + 2 * steps[step + N_SEEN]
    powers = np.zeros(cells, np.int64)
    for i in range(cells):
        values[i] = 1.0
    for _ in range(k):
        a, strides = steps[at], at + 1
        last = strides + m + 1 + 2 * steps[strides + m]
        for j in range(strides + m + 1, last, 2):
            a += states[steps[j]] * steps[j + 1]
        at = last
        for q in range(m):
            work[q] = 0
        for i in range(cells):
            values[i], shift = math.frexp(values[i] * arena[a])
            powers[i] += power[a] + shift
            a += _next_cell(steps, taken, strides, m, work)
    return powers


@compiled()
def _relative_slice(arena, power, steps, step, states, values, work):  # type: ignore[no-untyped-def]
    """`slice_of` of extended numbers, relative to the largest cell."""
    powers = _extended_slice(arena, power, steps, step, states, values, work)
    top = np.int64(-1 << 40)
    for i in range(len(powers)):
        if values[i] > 0.0:
            top = max(top, powers[i])
    for i in range(len(powers)):
        values[i] = math.ldexp(values[i], max(powers[i] - top, -FAR)) if values[i] > 0.0 else 0.0
    return len(powers)


@compiled()
def _plain_slice(arena, steps, step, states, values, work):  # type: ignore[no-untyped-def]
    """`slice_of` of numbers without exponents."""
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
            # `_next_cell` here, inlined by Numba, takes twice the time of the whole loop
            for q in range(m - 1, -1, -1):
                work[q] += 1
                a += steps[strides + q]
                if work[q] < steps[taken + 2 * q + 1]:
                    break
                work[q] = 0
                a -= steps[taken + 2 * q + 1] * steps[strides + q]
    return cells


@inlined
def slice_of(arena, power, steps, step, states, values, work):  # type: ignore[no-untyped-def]
    """Fill `values` with a step's slice; relative to its largest cell where tables are extended numbers."""
    # arena, power: Cells and, of extended numbers, their exponents: not a tuple, whose parts loops would count
    # steps: See `BackwardSteps`
    # step: Where the step begins
    # states: (V,) int32: By rank; those of the output's variables are read
    # values: Written: a number a cell
    # work: Scratch memory, a number a variable that is eliminated
    # returns The slice's cells.
    if len(power) > 0:
        return _relative_slice(arena, power, steps, step, states, values, work)
    return _plain_slice(arena, steps, step, states, values, work)


@compiled()
def _take(steps, step, cell, states):  # type: ignore[no-untyped-def]
    """Set `states` (V,) int32 to those of a cell (int64) of a step's slice; see `slice_of`."""
    m, taken = steps[step + N_TAKEN], step + PLACES
    for q in range(m - 1, -1, -1):
        card = steps[taken + 2 * q + 1]
        states[steps[taken + 2 * q]] = cell % card
        cell //= card


@compiled("i8[:], i8, i4[:]")
def cell_of(steps, step, states):  # type: ignore[no-untyped-def]
    """The cell (int64) of a step's slice that has these states; see `slice_of`."""
    m, taken = steps[step + N_TAKEN], step + PLACES
    cell = 0
    for q in range(m):
        cell = cell * steps[taken + 2 * q + 1] + states[steps[taken + 2 * q]]
    return cell


@compiled("(f8[:], i8[:]), i8[:], i8[:], i8, i4[:], f8[:], i8[:]")
def trace(tables, steps, step_ptr, last, states, values, work):  # type: ignore[no-untyped-def]
    """Choose the largest cell of every slice, the first of equal ones, from step ``last - 1`` to step 0."""
    # step_ptr: (n+1,) int64
    # states: (V,) int32: By rank; those of the eliminated variables are set
    # others: See `slice_of`
    arena, power = tables
    for p in range(last - 1, -1, -1):
        step = step_ptr[p]
        cells = slice_of(arena, power, steps, step, states, values, work)
        top = 0
        for i in range(1, cells):
            if values[i] > values[top]:
                top = i
        _take(steps, step, top, states)


@compiled("(f8[:], i8[:]), i8[:], i8[:], i8, i8, i4[:], f8[:], i8[:]")
def retrace(tables, steps, step_ptr, p, cell, states, values, work):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Choose a cell (int64) at step p (int64), and the largest ones at all that follow; others see `trace`."""
    _take(steps, step_ptr[p], cell, states)
    trace(tables, steps, step_ptr, p, states, values, work)


@compiled("(f8[:], i8[:]), i8[:], i8[:], i8, i8[:], i4[:], i8[:], f8[:], f8[:], i8[:]")
def alternatives(tables, steps, step_ptr, first, barred, states, cells_out, loss, values, work):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """For step `first` and all that follow the best cell except the chosen one; at `first` also except `barred`."""
    # first: Steps ``first``, ``first`` - 1, ... 0 are visited.
    # barred: Cells of step `first`
    # cells_out, loss: (first + 1,) int64, float64: Get the cell, and ln of its value over the chosen one's, -inf if
    #     there is none
    # others: See `trace`
    arena, power = tables
    for p in range(first, -1, -1):
        step = step_ptr[p]
        extended = len(power) > 0  # then in logarithms: the second best may be far below the chosen one
        if extended:
            powers = _extended_slice(arena, power, steps, step, states, values, work)
            cells = len(powers)
            for i in range(cells):
                values[i] = math.log(values[i]) + powers[i] * LOG2 if values[i] > 0.0 else -math.inf
        else:
            cells = slice_of(arena, power, steps, step, states, values, work)
        nothing = -math.inf if extended else 0.0
        chosen = cell_of(steps, step, states)
        at_choice = values[chosen]
        values[chosen] = nothing
        if p == first:
            for c in barred:
                values[c] = nothing
        top = 0
        for i in range(1, cells):
            if values[i] > values[top]:
                top = i
        cells_out[p] = top
        loss[p] = -math.inf
        if values[top] > nothing:
            loss[p] = values[top] - at_choice if extended else math.log(values[top]) - math.log(at_choice)
