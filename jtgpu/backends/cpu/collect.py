"""Contraction forests in compiled code: one sweep to the roots by sum or by maximum, and the ways back down.

Programs are derived from what is observed as for posteriors, but nothing is left out as barren or as a density: a
maximum has no such parts, and a sample wants every variable.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ImpossibleEvidence
from ...plans.specialise import FREE, HARD, SOFT, Skeleton, reduce
from ...util.numba_cache import is_compiled
from ...util.system import cores
from ..base import Evidence
from ..forest import UNIT, Best, Derivatives, Forest, Uniforms, collect_forest, derivative_forest
from . import collect_loops as loops
from .ranking import further
from .records import ALIGNMENT, Layout, Program, specialise
from .steps import Steps, draw, make_steps
from .sweep import IMPOSSIBLE, evidence_log
from .workspace import ROOM, Scratch, aligned, scaled_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan

__all__ = ["CpuSweep", "warm_up_sweeps"]

DOUBLE = 800  # log2 of what a contraction may multiply together, far from where doubles lose digits
MOST_PROGRAMS = 256  # kept
MOST_PROGRAM_BYTES = 64 << 20
BLOCK = 1 << 20  # random numbers that are drawn at a time
WORTH_THREADS = 500_000  # steps of all samples from which several cores draw, some 20 ms of one


class _Kept(NamedTuple):
    """A program, and what else a query of its pattern needs."""

    program: Program
    steps: Steps
    maximal: NDArray[np.bool_]  # of each contraction that is made

    @property
    def bytes(self) -> int:
        """Memory, but for what is the same in all."""
        return 8 * (len(self.program.records) + len(self.program.loads) + len(self.steps.steps)) + 1000


class _Room(Scratch):
    """What one query at a time needs."""

    def __init__(self, shared: NDArray[np.float64], exponent: NDArray[np.int64]):
        super().__init__()
        self._shared = shared
        self.arena: NDArray[np.float64] = np.empty(0)
        self.exponent = exponent.copy()
        self.values, self.places = np.zeros(1), np.zeros(1, np.int64)

    def fit_all(self, kept: _Kept) -> None:
        """Make room for a program and its steps."""
        self.fit(kept.program)
        cells, (slice_cells, most, _, _) = int(kept.program.counts[0]), kept.steps.counts.tolist()
        if len(self.arena) < cells:
            self.arena = np.empty(0)  # the old one goes before the new one comes
            self.arena = aligned(cells)
            self.arena[: len(self._shared)] = self._shared
        if len(self.values) < slice_cells:
            self.values = np.zeros(slice_cells)
        if len(self.places) < most:
            self.places = np.zeros(most, np.int64)


class CpuSweep:
    """`jtgpu.backends.forest.Sweep` in compiled code. Safe to use from several threads, which run side by side.

    Parameters
    ----------
    forest : Forest
    factors : sequence of arrays
        The model's tables, axes in the model's order.
    threads : int, optional
        Cores that draw samples; default: all that the process may use. The samples are the same for every number.
    """

    def __init__(self, forest: Forest, factors: Sequence[NDArray[np.float64]], threads: int | None = None):
        if not is_compiled(loops.sweep):
            logging.getLogger("jtgpu").warning(
                "the first question of this kind waits about half a minute while its loops are compiled for this "
                "machine; once"
            )
        self.forest = forest
        self._threads = cores() if threads is None else max(1, threads)
        self._skeleton = _skeleton(forest)
        self._by_rank = forest.by_rank
        self._cards = forest.cardinality[self._by_rank]
        self._stepped = np.array(forest.maximal, np.bool_)
        if not forest.chosen:
            self._stepped[:] = True
        self._lay_out(factors)
        most = max((len(t) for t in forest.ins), default=2)
        self._limit = min(ROOM, DOUBLE // max(most, 2))  # log2
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, _Kept] = OrderedDict()
        self._bytes = 0
        self._idle: list[_Room] = []

    def _lay_out(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """The number 1, then the factors in axis order, each scaled: how every arena begins."""
        forest = self.forest
        cell, at = [], ALIGNMENT
        for scope in forest.factor_scopes:
            cell.append(at)
            at += -(-forest.size(scope) // ALIGNMENT) * ALIGNMENT
        self._cell = np.array(cell, np.int64)
        self._layout = Layout(self._cell, np.zeros(forest.n_variables, np.int64), at, np.zeros(0, np.int64))
        self._shared = np.zeros(at)
        self._shared[0] = 1.0
        self._exponent = np.zeros(len(forest.scopes) + 1 + forest.n_factors, np.int64)
        for f, (table, scope) in enumerate(zip(factors, forest.factor_scopes, strict=True)):
            turned = np.transpose(table, [scope.index(v) for v in forest.scopes[f]]).ravel()
            top = float(turned.max())
            if top > 0 and not 2.0**-ROOM < top < 2.0**ROOM:
                self._exponent[f] = math.frexp(top)[1]
                turned = np.ldexp(turned, -int(self._exponent[f]))
            self._shared[cell[f] : cell[f] + len(turned)] = turned
        self._scope_ptr, self._scope = _ragged(forest.factor_scopes)
        axis_ptr, axes = _ragged(forest.scopes[: forest.n_factors])
        strides = [1] * len(axes)
        for f in range(forest.n_factors):
            for j in range(int(axis_ptr[f + 1]) - 2, int(axis_ptr[f]) - 1, -1):
                strides[j] = strides[j + 1] * int(forest.cardinality[axes[j + 1]])
        self._axes = axis_ptr, axes, np.array(strides, np.int64)
        self._factor_first = np.concatenate(
            [[0], np.cumsum([forest.size(s) for s in forest.factor_scopes], dtype=np.int64)]
        ).astype(np.int64)

    # Programs and memory ---------------------------------------------------------------------------------------

    def _get(self, seen: NDArray[np.bool_], soft: tuple[int, ...]) -> _Kept:
        """The program of a pattern; derived when it is not at hand."""
        key = seen.tobytes(), soft
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
        pattern = np.full(self.forest.n_variables, FREE, np.uint8)
        pattern[seen] = HARD
        pattern[list(soft)] = SOFT
        pattern = pattern[self._by_rank]
        target = np.zeros(len(pattern), np.bool_)
        program = specialise(self._skeleton, self._layout, pattern, target)
        remains = reduce(self._skeleton, pattern, target)
        outs = self._skeleton.op_out
        made = remains.needed & (remains.stands_for == np.arange(len(remains.stands_for)))
        steps = Steps(
            *make_steps(
                self._skeleton, remains.length, remains.scope, remains.use, made, self._stepped, program.records,
                program.record_ptr,
            )
        )  # fmt: skip
        kept = _Kept(program, steps, np.array(self.forest.maximal, np.bool_)[made[outs]])
        with self._lock:
            if key not in self._kept:  # another thread may have been faster
                self._kept[key] = kept
                self._bytes += kept.bytes
            while len(self._kept) > MOST_PROGRAMS or (self._bytes > MOST_PROGRAM_BYTES and len(self._kept) > 1):
                self._bytes -= self._kept.popitem(last=False)[1].bytes
        return kept

    def _take(self) -> _Room:
        with self._lock:
            return self._idle.pop() if self._idle else _Room(self._shared, self._exponent)

    def _give_back(self, room: _Room) -> None:
        with self._lock:
            self._idle.append(room)

    def _run(self, room: _Room, kept: _Kept, states: NDArray[np.int32], weighed: Any, zeros: bool = False) -> bool:
        """One sweep; `states` by rank."""
        weights, weight_ptr, log_scale = weighed
        if log_scale == IMPOSSIBLE:
            return False
        p = kept.program
        room.fit_all(kept)
        return bool(
            loops.sweep(
                room.arena, room.exponent, p.records, p.record_ptr, kept.maximal, p.loads, p.load_ptr, states, weights,
                weight_ptr, self._limit, zeros, *room.arrays,
            )
        )  # fmt: skip

    # What is asked ---------------------------------------------------------------------------------------------

    def best(self, evidence: Evidence, k: int = 1) -> Best:
        """See `jtgpu.backends.forest.Sweep.best`."""
        kept = self._get(evidence.state >= 0, _soft(evidence))
        weighed = scaled_weights(evidence, self.forest.axis_rank)
        observed = evidence.state[self._by_rank]
        room = self._take()
        try:
            if not self._run(room, kept, observed, weighed):
                raise ImpossibleEvidence("the evidence has probability 0")
            states = np.maximum(observed, 0)
            log_value = loops.best(
                room.arena, room.exponent, kept.program.roots, *kept.steps[:2], states, room.values, room.places
            )
            if log_value == IMPOSSIBLE:
                raise ImpossibleEvidence("the evidence has probability 0")
            found, logs = [states], [log_value + weighed[2]]
            if k > 1:
                further(room.arena, kept.steps, (room.values, room.places), found, logs, k)
            return Best(self._by_number(found), np.array(logs))
        finally:
            self._give_back(room)

    def best_rows(self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]) -> Best:
        """See `jtgpu.backends.forest.Sweep.best_rows`."""
        found = np.full(states.shape, -1, np.int32)
        logs = np.full(len(states), -np.inf)
        if likelihood:
            for i, row in enumerate(states):
                with suppress(ImpossibleEvidence):
                    one = self.best(Evidence(row, {v: w[i] for v, w in likelihood.items()}))
                    found[i], logs[i] = one.states[0], one.log_value[0]
            return Best(found, logs)
        room = self._take()
        try:
            for rows in _alike(states):
                kept = self._get(states[rows[0]] >= 0, ())
                room.fit_all(kept)
                chosen, p = np.ascontiguousarray(states[rows][:, self._by_rank]), kept.program
                logs[rows] = loops.best_rows(
                    room.arena, room.exponent, p.records, p.record_ptr, kept.maximal, p.loads, p.load_ptr, p.roots,
                    *kept.steps[:2], chosen, self._limit, room.values, room.places, *room.arrays,
                )  # fmt: skip
                found[rows] = self._by_number(list(chosen))
        finally:
            self._give_back(room)
        found[np.isneginf(logs)] = -1
        return Best(found, logs)

    def _by_number(self, found: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
        """Configurations by rank as configurations by the variables' numbers."""
        states = np.empty((len(found), self.forest.n_variables), np.int32)
        states[:, self._by_rank] = found
        if self.forest.chosen and len(self.forest.chosen) < self.forest.n_variables:
            rest = np.ones(self.forest.n_variables, np.bool_)
            rest[list(self.forest.chosen)] = False
            states[:, rest] = -1
        return states

    def draw(self, evidence: Evidence, n: int, uniforms: Uniforms) -> NDArray[np.int32]:
        """See `jtgpu.backends.forest.Sweep.draw`."""
        kept = self._get(evidence.state >= 0, _soft(evidence))
        observed = evidence.state[self._by_rank]
        out = np.empty((n, self.forest.n_variables), np.int32)
        room = self._take()
        try:
            possible = self._run(room, kept, observed, scaled_weights(evidence, self.forest.axis_rank))
            if not possible or evidence_log(room.arena, kept.program.roots, room.exponent) == IMPOSSIBLE:
                raise ImpossibleEvidence("the evidence has probability 0")
            self._draw(room, kept, np.maximum(observed, 0), uniforms, out)
            return out
        finally:
            self._give_back(room)

    def _draw(
        self, room: _Room, kept: _Kept, start: NDArray[np.int32], uniforms: Uniforms, out: NDArray[np.int32]
    ) -> None:
        """Samples from a sweep, a block of rows at a time, the block on several cores where that is worth it: each
        keeps slices of its own, and what a row becomes depends on its own numbers alone."""
        largest, most, chances, slices = kept.steps.counts.tolist()
        rows = max(1, BLOCK // self.forest.n_variables)
        threads = self._threads if len(out) * len(kept.steps.step_ptr) >= WORTH_THREADS else 1
        own = [
            (np.empty(chances), np.zeros(slices, np.uint8), np.zeros(largest), np.zeros(most, np.int64))
            for _ in range(threads)
        ]

        def part(t: int, block: NDArray[np.int32], numbers: NDArray[np.float64]) -> None:
            mine = slice(len(block) * t // threads, len(block) * (t + 1) // threads)
            draw(room.arena, *kept.steps[:2], start, numbers[mine], block[mine], self._by_rank, *own[t])

        with ThreadPoolExecutor(threads - 1) if threads > 1 else nullcontext() as pool:
            for first in range(0, len(out), rows):
                block = out[first : first + rows]
                numbers = uniforms(len(block))
                others = [pool.submit(part, t, block, numbers) for t in range(1, threads)] if pool else []
                part(0, block, numbers)
                for other in others:
                    other.result()

    def draw_rows(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], uniforms: Uniforms
    ) -> NDArray[np.int32]:
        """See `jtgpu.backends.forest.Sweep.draw_rows`."""
        out = np.full(states.shape, -1, np.int32)
        block = max(1, BLOCK // self.forest.n_variables)
        for first in range(0, len(states), block):
            part = slice(first, first + block)
            numbers = uniforms(len(states[part]))
            if likelihood:
                for i, (row, own) in enumerate(zip(states[part], numbers, strict=True), start=first):
                    with suppress(ImpossibleEvidence):
                        case = Evidence(row, {v: w[i] for v, w in likelihood.items()})
                        out[i] = self.draw(case, 1, lambda _, own=own: own[None])[0]  # type: ignore[misc]
            else:
                self._draw_block(states[part], numbers, out[part])
        return out

    def _draw_block(self, states: NDArray[np.int32], numbers: NDArray[np.float64], out: NDArray[np.int32]) -> None:
        room = self._take()
        try:
            for rows in _alike(states):
                kept = self._get(states[rows[0]] >= 0, ())
                room.fit_all(kept)
                p = kept.program
                loops.draw_rows(
                    room.arena, room.exponent, p.records, p.record_ptr, kept.maximal, p.loads, p.load_ptr, p.roots,
                    *kept.steps[:2], np.ascontiguousarray(states[rows][:, self._by_rank]), self._limit, numbers, rows,
                    out, self._by_rank, room.values, room.places, *room.arrays,
                )  # fmt: skip
        finally:
            self._give_back(room)

    def derivatives(self, evidence: Evidence) -> Derivatives:
        """See `jtgpu.backends.forest.Sweep.derivatives`."""
        forest = self.forest
        kept = self._get(evidence.state >= 0, _soft(evidence))
        weights, weight_ptr, log_scale = scaled_weights(evidence, self.forest.axis_rank)
        if log_scale == IMPOSSIBLE:
            raise ImpossibleEvidence("the evidence has probability 0")
        room = self._take()
        try:
            self._run(room, kept, evidence.state[self._by_rank], (weights, weight_ptr, log_scale), zeros=True)
            roots = kept.program.roots
            n = len(forest.roots)
            place = {t: n + i for i, t in enumerate(forest.kept)}
            cell, exponent = np.zeros(forest.n_factors, np.int64), np.zeros(forest.n_factors, np.int64)
            for f, t in enumerate(forest.factor_down):
                if t != UNIT:
                    cell[f], exponent[f] = roots[place[t], 0], room.exponent[roots[place[t], 1]]
            weighed = np.full(forest.n_variables, -1, np.int64)
            soft = list(_soft(evidence))
            weighed[soft] = forest.evidence_factor[soft]
            if len(weight_ptr) == forest.n_variables:
                weight_ptr = weight_ptr[forest.axis_rank]
            cells = np.empty(int(self._factor_first[-1]))
            down_ptr, down = _ragged([() if t == UNIT else forest.scopes[t] for t in forest.factor_down])
            loops.spread(
                room.arena, cell, evidence.state, weights, weight_ptr, weighed, forest.cardinality, self._scope_ptr,
                self._scope, down_ptr, down, self._factor_first, cells,
            )  # fmt: skip
            return Derivatives(
                cells, exponent, room.arena[roots[:n, 0]].copy(), room.exponent[roots[:n, 1]].copy(), log_scale
            )
        finally:
            self._give_back(room)

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        """See `jtgpu.backends.forest.Sweep.score`."""
        logs = np.empty(len(states))
        loops.score(self._shared, self._exponent, *self._axes, self._cell, np.ascontiguousarray(states), logs)
        with np.errstate(divide="ignore"):
            for v, weights in evidence.likelihood.items():
                logs += np.log(np.asarray(weights, np.float64)[states[:, v]])
        return logs


def _alike(states: NDArray[np.int32]) -> Iterator[NDArray[np.int64]]:
    """Numbers of the rows that observe the same variables, group by group."""
    patterns = np.packbits(states >= 0, axis=1)
    _, group, count = np.unique(patterns, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(group.ravel(), kind="stable")
    first = 0
    for n in count.tolist():
        yield order[first : first + n]
        first += n


def _skeleton(forest: Forest) -> Skeleton:
    """A forest as `jtgpu.plans.specialise.reduce` takes it; no factor counts as a density, so nothing is left out."""
    rank, by_rank = forest.axis_rank, forest.by_rank
    ptr, scope = _ragged(forest.scopes)
    in_ptr, ins = _ragged(forest.ins)
    n, n_ops = len(forest.scopes), len(forest.outs)
    return Skeleton(
        np.append(forest.cardinality[by_rank], 1),
        ptr[:-1] + np.arange(n),
        ptr[1:] + np.arange(n),
        np.insert(rank[scope], ptr[1:], -1),
        np.zeros(n_ops, np.int64),  # COLLECT
        np.array(forest.outs, np.int64),
        in_ptr,
        ins,
        np.full(n_ops, -1, np.int64),
        np.full(forest.n_factors, -1, np.int64),
        np.full(forest.n_variables + 1, -1, np.int64),
        forest.evidence_factor[by_rank],
        np.array([*forest.roots, *forest.kept], np.int64),
    )


def _ragged(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ptr = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(x) for x in lists], out=ptr[1:])
    return ptr, np.array([v for x in lists for v in x], np.int64)


def _soft(evidence: Evidence) -> tuple[int, ...]:
    """Variables with weights that are not observed."""
    return tuple(sorted(int(v) for v in evidence.likelihood if evidence.state[v] < 0))


def warm_up_sweeps(plan: Plan) -> None:
    """Run every way of a sweep, so that no later question waits for a compiler.

    Parameters
    ----------
    plan : Plan
        Any; a small one.
    """
    factors = [np.ones(plan.cardinality[list(scope)]) for scope in plan.factor_scopes]
    nothing, rows = Evidence.none(plan.n_variables), np.full((2, plan.n_variables), -1, np.int32)

    def halves(n: int) -> NDArray[np.float64]:
        return np.full((n, plan.n_variables), 0.5)

    best = CpuSweep(collect_forest(plan, maximal=True), factors)
    best.score(best.best(nothing, k=3).states, nothing)
    best.best_rows(rows, {})
    draws = CpuSweep(collect_forest(plan, maximal=False), factors)
    draws.draw(nothing, 2, halves)
    draws.draw_rows(rows, {}, halves)
    CpuSweep(derivative_forest(plan), factors).derivatives(nothing)
