"""The fast CPU backend: the plan's contractions run by one compiled interpreter, one call a propagation.

Every contraction becomes a loop nest when the tree is prepared: neighbouring axes that every table walks alike are
merged, axes of length one dropped, and the loops ordered

    kept axes but one | summed axes but one | last kept axis | last summed axis | row

where the row runs over neighbouring cells. Eight cells of an output row are held in registers while everything that
adds to them is summed, so an output is written once and read never; nothing of Python is in the loop.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from ..errors import ImpossibleEvidence, JtgpuError
from ..plan import POSTERIOR, Plan
from .base import Evidence, Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cpu", "prepare"]

# A table whose largest entry leaves these bounds is scaled by a power of two. Far from where numbers lose digits:
# a contraction multiplies a few entries below the upper bound and above the lower one.
LOWEST, HIGHEST = 2.0**-200, 2.0**200

# Fields of a contraction's record, before its loops: (extent, stride of the output, stride of each input) a loop
N_INPUTS, N_KEPT, N_SUMMED, ROW, OUT, KIND, LOOPS = range(7)
MAX_INPUTS_ON_STACK = 2  # contractions of more tables multiply row by row through a buffer


def _merged_loops(
    plan: Plan, out: int, ins: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    """``(extent, strides)`` of every joint axis, slowest first; strides: of the output, then of each input."""
    cards = plan.cardinality
    rank = plan.axis_rank
    scopes = plan.table_scopes
    joint = sorted({v for t in ins for v in scopes[t] if cards[v] > 1}, key=lambda v: int(rank[v]))
    strides: list[dict[int, int]] = []
    for t in (out, *ins):
        step, of = 1, {}
        for v in reversed(scopes[t]):
            of[v] = step
            step *= int(cards[v])
        strides.append(of)
    loops: list[tuple[int, tuple[int, ...]]] = []
    for v in joint:
        n, step_of = int(cards[v]), tuple(of.get(v, 0) for of in strides)
        if loops and all(before == step * n for before, step in zip(loops[-1][1], step_of, strict=True)):
            loops[-1] = (loops[-1][0] * n, step_of)
        else:
            loops.append((n, step_of))
    return loops


def _record(plan: Plan, kind: int, out: int, ins: tuple[int, ...]) -> list[int]:
    """A contraction as the interpreter's integers; see the field numbers above."""
    loops = _merged_loops(plan, out, ins)
    row = loops.pop() if loops else (1, (1,) + (0,) * len(ins))
    kept = [x for x in loops if x[1][0]]
    summed = [x for x in loops if not x[1][0]]
    record = [len(ins), len(kept), len(summed), row[0], out, kind]
    record += ins
    record += row[1]
    for extent, strides in kept + summed:
        record += [extent, *strides]
    return record


_fast = {"reassoc", "nsz", "contract", "nnan", "ninf", "arcp"}  # sums may be reordered; still the same bits every run


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy")
def _row(arena, o, n, so, ins, at, strides, buffer, first):  # type: ignore[no-untyped-def]
    """Add the product of the inputs' rows to the output's row (so = 1), or their sum to its cell (so = 0)."""
    k = len(ins)
    constant = 1.0
    for t in range(k):
        if strides[t] == 0:
            constant *= arena[at[t]]
    for i in range(n):
        buffer[i] = constant
    for t in range(k):
        if strides[t] == 1:
            for i in range(n):
                buffer[i] *= arena[at[t] + i]
    if so == 1:
        if first:
            for i in range(n):
                arena[o + i] = buffer[i]
        else:
            for i in range(n):
                arena[o + i] += buffer[i]
    else:
        total = 0.0
        for i in range(n):
            total += buffer[i]
        if first:
            arena[o] = total
        else:
            arena[o] += total


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy", inline="always")
def _cells8(arena, o, a, b, sb, terms, ta, tb, add):  # type: ignore[no-untyped-def]
    """Eight neighbouring cells of the output, each the sum of `terms` products, held in registers; their largest.
    With `add` the sums go on from what the cells hold."""
    x0 = x1 = x2 = x3 = x4 = x5 = x6 = x7 = 0.0
    if add:
        x0, x1, x2, x3 = arena[o], arena[o + 1], arena[o + 2], arena[o + 3]
        x4, x5, x6, x7 = arena[o + 4], arena[o + 5], arena[o + 6], arena[o + 7]
    if sb == 0:
        for _ in range(terms):
            y = arena[b]
            x0 += arena[a] * y
            x1 += arena[a + 1] * y
            x2 += arena[a + 2] * y
            x3 += arena[a + 3] * y
            x4 += arena[a + 4] * y
            x5 += arena[a + 5] * y
            x6 += arena[a + 6] * y
            x7 += arena[a + 7] * y
            a += ta
            b += tb
    else:
        for _ in range(terms):
            x0 += arena[a] * arena[b]
            x1 += arena[a + 1] * arena[b + 1]
            x2 += arena[a + 2] * arena[b + 2]
            x3 += arena[a + 3] * arena[b + 3]
            x4 += arena[a + 4] * arena[b + 4]
            x5 += arena[a + 5] * arena[b + 5]
            x6 += arena[a + 6] * arena[b + 6]
            x7 += arena[a + 7] * arena[b + 7]
            a += ta
            b += tb
    arena[o] = x0
    arena[o + 1] = x1
    arena[o + 2] = x2
    arena[o + 3] = x3
    arena[o + 4] = x4
    arena[o + 5] = x5
    arena[o + 6] = x6
    arena[o + 7] = x7
    return max(max(max(x0, x1), max(x2, x3)), max(max(x4, x5), max(x6, x7)))


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy", inline="always")
def _cells2(arena, o, a, b, sb, terms, ta, tb, add):  # type: ignore[no-untyped-def]
    """Two neighbouring cells; see `_cells8`."""
    x0 = x1 = 0.0
    if add:
        x0, x1 = arena[o], arena[o + 1]
    for _ in range(terms):
        x0 += arena[a] * arena[b]
        x1 += arena[a + 1] * arena[b + sb]
        a += ta
        b += tb
    arena[o] = x0
    arena[o + 1] = x1
    return max(x0, x1)


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy", inline="always")
def _kept_row(arena, o, a, b, n, sa, sb, terms, ta, tb, add):  # type: ignore[no-untyped-def]
    """A row of the output, summed over one loop of `terms`; returns its largest cell. Of the strides sa, sb along
    the row one is 1 and the other 0 or 1."""
    if sa == 0:
        a, b, sb, ta, tb = b, a, 0, tb, ta
    top = 0.0
    i = 0
    while i + 8 <= n:
        top = max(top, _cells8(arena, o + i, a + i, b + i * sb, sb, terms, ta, tb, add))
        i += 8
    while i + 2 <= n:
        top = max(top, _cells2(arena, o + i, a + i, b + i * sb, sb, terms, ta, tb, add))
        i += 2
    if i < n:
        x = arena[o + i] if add else 0.0
        p, q = a + i, b + i * sb
        for _ in range(terms):
            x += arena[p] * arena[q]
            p += ta
            q += tb
        arena[o + i] = x
        top = max(top, x)
    return top


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy", inline="always")
def _summed_row(arena, a, b, n, sa, sb, terms, ta, tb):  # type: ignore[no-untyped-def]
    """The sum of a row of products, over one loop of `terms` such rows."""
    total = 0.0
    for _ in range(terms):
        x = 0.0
        if sa == 1 and sb == 1:
            for i in range(n):
                x += arena[a + i] * arena[b + i]
        elif sa == 1:
            for i in range(n):
                x += arena[a + i]
            x *= arena[b]
        else:
            for i in range(n):
                x += arena[b + i]
            x *= arena[a]
        total += x
        a += ta
        b += tb
    return total


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy")
def _contract_pair(arena, record, table_off, count):  # type: ignore[no-untyped-def]
    """Run a contraction of two tables; returns the largest entry of its output.

    The loops, outermost first: kept but one, summed but one, the last kept, the last summed, the row.
    """
    n_kept, n_summed, n = record[1], record[2], record[3]
    so, sa, sb = record[8], record[9], record[10]
    loops = 11  # where they begin, four fields each: extent, strides of output, first and second table
    o, a, b = table_off[record[4]], table_off[record[6]], table_off[record[7]]
    terms, ta, tb = 1, 0, 0
    last = loops + 4 * (n_kept + n_summed - 1)
    outer_summed = 0
    if n_summed > 0:
        outer_summed = n_summed - 1
        terms, ta, tb = record[last], record[last + 2], record[last + 3]
    inner, io, ia, ib = 1, 0, 0, 0
    outer_kept = 0
    if n_kept > 0:
        outer_kept = n_kept - 1
        at = loops + 4 * outer_kept
        inner, io, ia, ib = record[at], record[at + 1], record[at + 2], record[at + 3]
    rounds, sums = 1, 1
    for j in range(outer_kept):
        count[j] = 0
        rounds *= record[loops + 4 * j]
    for j in range(n_kept, n_kept + outer_summed):
        count[j] = 0
        sums *= record[loops + 4 * j]
    top = 0.0
    for _ in range(rounds):
        for s in range(sums):
            add = s > 0
            if so == 1:
                for k in range(inner):
                    x = _kept_row(arena, o + k * io, a + k * ia, b + k * ib, n, sa, sb, terms, ta, tb, add)
                    top = max(top, x)
            else:
                for k in range(inner):
                    x = _summed_row(arena, a + k * ia, b + k * ib, n, sa, sb, terms, ta, tb)
                    if add:
                        x += arena[o + k * io]
                    arena[o + k * io] = x
                    top = max(top, x)
            for j in range(n_kept + outer_summed - 1, n_kept - 1, -1):
                at = loops + 4 * j
                count[j] += 1
                if count[j] < record[at]:
                    a += record[at + 2]
                    b += record[at + 3]
                    break
                count[j] = 0
                a -= (record[at] - 1) * record[at + 2]
                b -= (record[at] - 1) * record[at + 3]
        for j in range(outer_kept - 1, -1, -1):
            at = loops + 4 * j
            count[j] += 1
            if count[j] < record[at]:
                o += record[at + 1]
                a += record[at + 2]
                b += record[at + 3]
                break
            count[j] = 0
            o -= (record[at] - 1) * record[at + 1]
            a -= (record[at] - 1) * record[at + 2]
            b -= (record[at] - 1) * record[at + 3]
    return top


@njit(cache=True, nogil=True, fastmath=_fast, error_model="numpy")
def _contract(arena, record, table_off, work, buffer):  # type: ignore[no-untyped-def]
    """Run one contraction; returns the largest entry of its output."""
    k, n_kept, n_summed, n = record[0], record[1], record[2], record[3]
    width = k + 2  # of a loop: extent, stride of the output, strides of the inputs
    ins = record[6 : 6 + k]
    so = record[6 + k]
    strides = record[7 + k : 7 + 2 * k]
    loops = record[7 + 2 * k :]
    o = table_off[record[4]]
    kept_at, at = work[0:k], work[k : 2 * k]
    count = work[2 * k : 2 * k + n_kept + n_summed]
    for t in range(k):
        kept_at[t] = table_off[ins[t]]
    count[:] = 0
    cells, terms = 1, 1
    for j in range(n_kept):
        cells *= loops[j * width]
    for j in range(n_kept, n_kept + n_summed):
        terms *= loops[j * width]
    top = 0.0
    for _ in range(cells):
        for t in range(k):
            at[t] = kept_at[t]
        for s in range(terms):
            _row(arena, o, n, so, ins, at, strides, buffer, s == 0)
            for j in range(n_kept + n_summed - 1, n_kept - 1, -1):
                count[j] += 1
                if count[j] < loops[j * width]:
                    for t in range(k):
                        at[t] += loops[j * width + 2 + t]
                    break
                count[j] = 0
                for t in range(k):
                    at[t] -= (loops[j * width] - 1) * loops[j * width + 2 + t]
        if so == 1:
            for i in range(n):
                top = max(top, arena[o + i])
        else:
            top = max(top, arena[o])
        for j in range(n_kept - 1, -1, -1):
            count[j] += 1
            if count[j] < loops[j * width]:
                o += loops[j * width + 1]
                for t in range(k):
                    kept_at[t] += loops[j * width + 2 + t]
                break
            count[j] = 0
            o -= (loops[j * width] - 1) * loops[j * width + 1]
            for t in range(k):
                kept_at[t] -= (loops[j * width] - 1) * loops[j * width + 2 + t]
    return top


@njit(cache=True, nogil=True, error_model="numpy")
def _scale(arena, start, size, top):  # type: ignore[no-untyped-def]
    """Divide a table by the power of two next to its largest entry; returns the exponent."""
    shift = math.frexp(top)[1]
    for i in range(start, start + size):
        arena[i] = math.ldexp(arena[i], -shift)
    return shift


@njit(cache=True, nogil=True, error_model="numpy")
def _propagate(arena, records, record_ptr, table_off, table_size, exponent, work, buffer):  # type: ignore[no-untyped-def]
    """Run every contraction; returns whether the evidence is possible."""
    for p in range(len(record_ptr) - 1):
        record = records[record_ptr[p] : record_ptr[p + 1]]
        out, kind = record[4], record[5]
        if record[0] == 2:
            top = _contract_pair(arena, record, table_off, work)
        else:
            top = _contract(arena, record, table_off, work, buffer)
        if not top > 0.0:
            return False
        shift = 0
        if kind == POSTERIOR:
            start, stop = table_off[out], table_off[out] + table_size[out]
            total = 0.0
            for i in range(start, stop):
                total += arena[i]
            for i in range(start, stop):
                arena[i] /= total
        elif top < LOWEST or top > HIGHEST:
            shift = _scale(arena, table_off[out], table_size[out], top)
        for t in range(record[0]):
            shift += exponent[record[6 + t]]
        exponent[out] = shift
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _weigh(arena, start, outer, card, inner, weights):  # type: ignore[no-untyped-def]
    """Multiply a table by weights along one axis; returns its largest entry afterwards."""
    top = 0.0
    at = start
    for _ in range(outer):
        for c in range(card):
            for _i in range(inner):
                arena[at] *= weights[c]
                top = max(top, arena[at])
                at += 1
    return top


class Cpu:
    """`jtgpu.backends.base.Backend` in compiled code; one arena, so one query at a time (others wait)."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]]):
        self._plan = plan
        self._lock = threading.Lock()
        self._sizes = np.array([plan.size(s) for s in plan.table_scopes], np.int64)
        cells = int(plan.arena_cells[0])
        n_inputs = np.diff(plan.op_in_ptr)
        ones = cells  # a cell that holds 1: the second table of contractions of one
        self._offsets = np.append(plan.table_off, ones)
        records = []
        for kind, out, ins in zip(plan.op_kind.tolist(), plan.op_out.tolist(), plan.op_inputs, strict=True):
            record = _record(plan, kind, out, ins)
            records.append(_with_ones(record, len(plan.table_off)) if len(ins) == 1 else record)
        self._record_ptr = np.concatenate([[0], np.cumsum([len(r) for r in records])]).astype(np.int64)
        self._records = np.array([x for r in records for x in r], np.int64)
        self._exponents = np.zeros(len(self._offsets), np.int64)
        self._work = np.zeros(2 * max(2, int(n_inputs.max(initial=1))) + 64 + plan.n_variables, np.int64)
        longest = max((r[3] for r in records if r[0] > MAX_INPUTS_ON_STACK), default=1)
        self._buffer = np.zeros(longest)
        self._arena: NDArray[np.float64] | None = np.empty(cells + 1)
        self._arena[ones] = 1.0
        self._pristine = self._load(factors)

    def _load(self, factors: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Copy the factors into the arena in axis order, scaled; returns the copies as views."""
        assert self._arena is not None
        plan, pristine = self._plan, []
        for f, (table, scope) in enumerate(zip(factors, plan.factor_scopes, strict=True)):
            turned = np.transpose(table, [scope.index(v) for v in plan.table_scopes[f]]).ravel()
            top = float(turned.max())
            shift = math.frexp(top)[1] if top > 0 and not LOWEST < top < HIGHEST else 0
            self._exponents[f] = shift
            pristine.append(np.ldexp(turned, -shift) if shift else turned)
            start = int(plan.table_off[f])
            self._arena[start : start + turned.size] = pristine[f]
        return pristine

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; answers every variable whatever the targets."""
        plan = self._plan
        with self._lock:
            arena = self._arena
            if arena is None:
                raise JtgpuError("this backend is closed")
            exponents = self._exponents.copy()
            touched: set[int] = set()
            try:
                possible = self._enter(arena, evidence, exponents, touched) and _propagate(
                    arena,
                    self._records,
                    self._record_ptr,
                    self._offsets,
                    self._sizes,
                    exponents,
                    self._work,
                    self._buffer,
                )
                if not possible:
                    raise ImpossibleEvidence("the evidence has probability 0")
                log_evidence = 0.0
                for t in plan.root_table.tolist():
                    root = float(arena[plan.table_off[t]])
                    if not root > 0:  # a factor of empty scope that holds 0
                        raise ImpossibleEvidence("the model gives every configuration probability 0")
                    log_evidence += math.log(root) + int(exponents[t]) * math.log(2.0)
                first = int(plan.table_off[plan.posterior_table[0]])
                posterior = arena[first : first + int(plan.posterior_ptr[-1])].copy()
            finally:
                for f in sorted(touched):
                    start = int(plan.table_off[f])
                    arena[start : start + len(self._pristine[f])] = self._pristine[f]
        return Result(posterior, log_evidence)

    def _enter(
        self, arena: NDArray[np.float64], evidence: Evidence, exponents: NDArray[np.int64], touched: set[int]
    ) -> bool:
        """Multiply the evidence into its factors; False when a factor becomes all zeros."""
        plan = self._plan
        for v, given in evidence.vectors(plan.cardinality).items():
            shift = math.frexp(float(given.max(initial=0.0)))[1]
            f = int(plan.evidence_factor[v])
            scope = plan.table_scopes[f]
            axis = scope.index(v)
            touched.add(f)
            start, card = int(plan.table_off[f]), int(plan.cardinality[v])
            outer = plan.size(scope[:axis])
            inner = plan.size(scope[axis + 1 :])
            top = _weigh(arena, start, outer, card, inner, np.ldexp(given, -shift))
            if not top > 0:
                return False
            exponents[f] += shift
            if top < LOWEST:
                exponents[f] += _scale(arena, start, outer * card * inner, top)
        return True

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        with self._lock:
            self._arena, self._pristine = None, []


def _with_ones(record: list[int], ones: int) -> list[int]:
    """A contraction of one table as one of two, the second being the single 1."""
    n_loops = record[1] + record[2]
    head, table, row = record[:6], record[6], record[7:9]
    made = [2, *head[1:], table, ones, *row, 0]
    for j in range(n_loops):
        made += [*record[9 + 3 * j : 12 + 3 * j], 0]
    return made


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Cpu:
    """See `jtgpu.backends.base.Prepare`."""
    return Cpu(plan, factors, **options)
