"""Queries that need tables and not only posteriors: best configurations, samples, derivatives; in compiled code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from heapq import heappop, heappush
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import ImpossibleEvidence
from ...plans.arrays import ragged
from ...plans.program import UNIT, Program
from ...util.loops import loops
from ..base import Evidence, slice_of
from ..reference import exponents_of
from ..sweep import Best, Derivatives, Uniforms
from .backward import BackwardSteps
from .batch import rows_by_pattern
from .programs import CachedProgram
from .runner import Runner, soft_of, with_sets
from .workspace import Workspace, extended_weights

_Entries = TypeVar("_Entries", "NDArray[np.float64]", "NDArray[np.int64]")

# The k best configurations of a contraction forest, one after the other, from one sweep.

_backward, _draws = loops("jtgpu.backends.cpu.loops.backward"), loops("jtgpu.backends.cpu.loops.draws")


def further(
    tables: tuple[NDArray[np.float64], NDArray[np.int64]],
    steps: BackwardSteps,
    scratch: tuple[NDArray[np.float64], NDArray[np.int64]],
    others: list[NDArray[np.int32]],
    logs: list[float],
    k: int,
) -> None:
    """Add the next best configurations to the best one, each once and in order.

    What is left after the best configuration falls into parts: one for each step, in which all steps before it stay as
    they are and it chooses another cell. The best of a part is the step's second cell, with the best of what follows:
    its value is known from the step's slice alone, and a configuration is made only when its turn comes. It splits its
    own part in the same way (Nilsson, An efficient algorithm for finding the M most probable configurations in
    probabilistic expert systems, Statistics and Computing 8, 1998).
    """
    waiting: list[tuple[float, int, int, int]] = []  # -ln value, number, configuration, place in its list
    splits: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], int]] = []
    numbered = 0

    def split(first: int, barred: NDArray[np.int64]) -> None:
        states = others[-1]
        cells, loss = np.zeros(first + 1, np.int64), np.full(first + 1, -np.inf)
        _backward.alternatives(tables, *steps[:2], first, barred, states, cells, loss, *scratch)
        order = np.argsort(-loss, kind="stable")[: k - len(others)]
        order = order[loss[order] > -np.inf]
        splits.append((order, cells, loss, barred, first))
        push(len(others) - 1, 0)

    def push(parent: int, place: int) -> None:
        nonlocal numbered
        order, _, loss, _, _ = splits[parent]
        if place < len(order):
            heappush(waiting, (-(logs[parent] + float(loss[order[place]])), numbered, parent, place))
            numbered += 1

    n_steps = len(steps.step_ptr) - 1
    if n_steps:
        split(n_steps - 1, np.zeros(0, np.int64))
    while waiting and len(others) < k:
        value, _, parent, place = heappop(waiting)
        order, cells, _, barred, first = splits[parent]
        step = int(order[place])
        push(parent, place + 1)
        states = others[parent].copy()
        chosen = _backward.cell_of(steps.steps, steps.step_ptr[step], states)
        _backward.retrace(tables, *steps[:2], step, int(cells[step]), states, *scratch)
        others.append(states)
        logs.append(-value)
        more = np.append(barred, chosen) if step == first else np.array([chosen])
        split(step, more)


_spread = loops("jtgpu.backends.cpu.loops.spread")

BLOCK = 1 << 20  # random numbers that are drawn at a time
WORTH_THREADS = 500_000  # steps of all samples from which several cores draw, some 20 ms of one


class CpuSweep:
    """`jtgpu.backends.sweep.Sweep` in compiled code. Thread-safe: queries run at the same time."""
    # factors: sequence of arrays: The model's tables, axes in the model's order
    # threads: Cores that draw samples; default: all that the process may use. The samples are the same for every
    #     number.

    def __init__(self, program: Program, factors: Sequence[NDArray[np.float64]], threads: int | None = None):
        self.program = program
        self._runner = Runner(program, factors, threads)

    def _get(self, space: Workspace, state: NDArray[np.int32], soft: tuple[int, ...] = ()) -> CachedProgram:
        """The program of a pattern; the workspace gets room for it and its backward pass."""
        cached = self._runner.model.programs.get(state >= 0, soft)
        space.fit_program(cached)
        space.fit_steps(*cached.slices)
        return cached

    def best(self, evidence: Evidence, k: int = 1) -> Best:
        space = self._runner.acquire()
        try:
            cached = self._get(space, evidence.state, soft_of(evidence))
            log_value = self._runner.run(space, cached, evidence)
            ranked, logs = [self._trace(space, cached, evidence.state)], [log_value]
            if k > 1:
                further(space.tables, cached.steps, (space.values, space.places), ranked, logs, k)
            return Best(self._by_number(ranked), np.array(logs))
        finally:
            self._runner.release(space)

    def _trace(self, space: Workspace, cached: CachedProgram, state: NDArray[np.int32]) -> NDArray[np.int32]:
        """The best configuration, by rank, when the program has run."""
        steps, states = cached.steps, np.maximum(with_sets(state, self.program.n_sets)[self._runner.by_rank], 0)
        last = len(steps.step_ptr) - 1
        _backward.trace(space.tables, steps.steps, steps.step_ptr, last, states, space.values, space.places)
        return states

    def best_rows(self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]) -> Best:
        best = np.full(states.shape, -1, np.int32)
        logs = np.full(len(states), -np.inf)
        space = self._runner.acquire()
        try:
            for row, case in _in_groups(states, likelihood):
                cached = self._get(space, case.state, soft_of(case))
                with suppress(ImpossibleEvidence):
                    logs[row] = self._runner.run(space, cached, case)
                    best[row] = self._by_number([self._trace(space, cached, case.state)])[0]
        finally:
            self._runner.release(space)
        return Best(best, logs)

    def _by_number(self, configurations: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
        """Configurations by rank as configurations by the variables' numbers."""
        program = self.program
        states = np.empty((len(configurations), program.n_variables), np.int32)
        states[:, self._runner.by_rank] = configurations
        if program.chosen and len(program.chosen) < program.n_plain:
            rest = np.ones(program.n_variables, np.bool_)
            rest[list(program.chosen)] = False
            states[:, rest] = -1
        return states[:, : program.n_plain]

    def draw(self, evidence: Evidence, n: int, uniforms: Uniforms) -> NDArray[np.int32]:
        out = np.empty((n, self.program.n_variables), np.int32)
        space = self._runner.acquire()
        try:
            cached = self._get(space, evidence.state, soft_of(evidence))
            self._runner.run(space, cached, evidence)
            self._draw(space, cached, with_sets(evidence.state, self.program.n_sets), uniforms, out)
            return out[:, : self.program.n_plain]
        finally:
            self._runner.release(space)

    def _draw(
        self,
        space: Workspace,
        cached: CachedProgram,
        state: NDArray[np.int32],
        uniforms: Uniforms,
        out: NDArray[np.int32],
    ) -> None:
        """Samples from a program that has run, a block of rows at a time, on several cores where that pays.

        Each core has slices of its own, and a row depends on its own numbers alone.
        """
        steps, by_rank = cached.steps, self._runner.by_rank
        largest, most, chances, slices = steps.counts.tolist()
        start = np.maximum(state[by_rank], 0)
        rows = max(1, BLOCK // self.program.n_variables)
        threads = self._runner.threads if len(out) * len(steps.step_ptr) >= WORTH_THREADS else 1
        own = [
            (np.empty(chances), np.zeros(slices, np.uint8), np.zeros(largest), np.zeros(most, np.int64))
            for _ in range(threads)
        ]

        def part(t: int, block: NDArray[np.int32], numbers: NDArray[np.float64]) -> None:
            mine = slice(len(block) * t // threads, len(block) * (t + 1) // threads)
            _draws.draw(
                space.tables, steps.steps, steps.step_ptr, start, numbers[mine], block[mine], by_rank, *own[t]
            )

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
        out = np.full((len(states), self.program.n_variables), -1, np.int32)
        block = max(1, BLOCK // self.program.n_variables)
        space = self._runner.acquire()
        try:
            for first in range(0, len(states), block):
                part = slice(first, first + block)
                numbers = uniforms(len(states[part]))
                for row, case in _in_groups(states[part], {v: w[part] for v, w in likelihood.items()}):
                    cached = self._get(space, case.state, soft_of(case))
                    with suppress(ImpossibleEvidence):
                        self._runner.run(space, cached, case)
                        state = with_sets(case.state, self.program.n_sets)
                        self._draw_one(space, cached, state, numbers[row], out[first + row])
        finally:
            self._runner.release(space)
        return out[:, : self.program.n_plain]

    def _draw_one(
        self,
        space: Workspace,
        cached: CachedProgram,
        state: NDArray[np.int32],
        numbers: NDArray[np.float64],
        out: NDArray[np.int32],
    ) -> None:
        """One sample from a program that has run: every case has slices of its own."""
        steps, by_rank = cached.unshared_steps, self._runner.by_rank
        start = np.maximum(state[by_rank], 0)
        _draws.draw(
            space.tables, steps.steps, steps.step_ptr, start, numbers[None], out[None], by_rank, _NO_CHANCES,
            _NONE_MADE, space.values, space.places,
        )  # fmt: skip

    def derivatives(self, evidence: Evidence) -> Derivatives:
        program, runner = self.program, self._runner
        space = runner.acquire()
        try:
            cached = runner.model.programs.get(evidence.state >= 0, soft_of(evidence))
            runner.run(space, cached, evidence, zeros=True)
            records = cached.records
            place = {t: i for i, t in enumerate(program.wanted)}
            cell, exponent = np.zeros(program.n_factors, np.int64), np.zeros(program.n_factors, np.int64)
            for f, t in enumerate(program.factor_derivative):
                if t != UNIT:
                    cell[f], exponent[f] = (
                        records.wanted[place[t], 0],
                        space.exponent[records.wanted[place[t], 1]],
                    )
            sizes = [program.size(s) for s in program.factor_scopes]
            roots, (arena, power) = records.roots[:, 0], space.tables
            weights, log_scale = extended_weights(evidence, program)
            cells = self._spread(arena, cell, evidence, (weights.value, weights.first))
            if len(power):
                exponents = self._spread(power.astype(np.float64), cell, evidence, None).astype(np.int64)
                of_roots = power[roots].astype(np.int64)
            else:
                of_roots = space.exponent[records.roots[:, 1]]
                self._undo_scales(evidence, exponent, of_roots)
                exponents = np.repeat(exponent, sizes)
            self._weigh(evidence, cells, exponents)
            return Derivatives(cells, exponents, arena[roots], of_roots, log_scale)
        finally:
            runner.release(space)

    def _of(self, v: int, entries: _Entries) -> _Entries:
        """The part of all factors' entries that belongs to the factor with the weights of a variable, as a view."""
        sizes = [self.program.size(s) for s in self.program.factor_scopes]
        f = int(self.program.evidence_factor[v])
        return entries[sum(sizes[:f]) : sum(sizes[: f + 1])]

    def _undo_scales(
        self, evidence: Evidence, exponent: NDArray[np.int64], of_roots: NDArray[np.int64]
    ) -> None:
        """Add what `scaled_weights` divided likelihoods by to the exponents of derivatives and roots, in place.

        Each component has its own likelihoods. Derivatives by the factor that has the weights do without them.
        """
        program = self.program
        root = np.array(program.factor_root)
        for v in soft_of(evidence):
            given, f = np.asarray(evidence.likelihood[v], np.float64), int(program.evidence_factor[v])
            if v >= program.n_plain:
                scope = program.weighed_scope(v)
                given = given.reshape(program.shape(scope))[slice_of(scope, evidence.state)]
            shift = math.frexp(float(given.max()))[1]
            of_roots[root[f]] += shift
            exponent[(root == root[f]) & (np.arange(len(root)) != f)] += shift

    def _weigh(self, evidence: Evidence, cells: NDArray[np.float64], exponents: NDArray[np.int64]) -> None:
        """Put the weights of sets and the exponents of all weights into the derivatives by their factors, in place."""
        program = self.program
        for v in soft_of(evidence):
            value, more = np.frexp(np.asarray(evidence.likelihood[v], np.float64).ravel())
            more = more + exponents_of(evidence).get(v, 0)
            scope = program.factor_scopes[int(program.evidence_factor[v])]
            if v >= program.n_plain:
                self._of(v, cells)[...] *= value
            else:
                more = np.broadcast_to(
                    more.reshape([-1 if u == v else 1 for u in scope]), program.shape(scope)
                ).ravel()
            self._of(v, exponents)[...] += more.astype(np.int64)

    def _spread(
        self,
        arena: NDArray[np.float64],
        cell: NDArray[np.int64],
        evidence: Evidence,
        weighed: tuple[NDArray[np.float64], NDArray[np.int64]] | None,
    ) -> NDArray[np.float64]:
        """Derivatives by every entry of every factor from the tables that begin at `cell`, (F,), weighed but for sets;
        without `weighed` the tables' numbers as they are."""
        program = self.program
        factor = np.full(program.n_variables, -1, np.int64)
        weights, weight_ptr = _NO_CHANCES, factor
        if weighed is not None:
            weights, weight_ptr = weighed
            soft = [v for v in soft_of(evidence) if v < program.n_plain]
            factor[soft] = program.evidence_factor[soft]
        if len(weight_ptr) == program.n_variables:
            weight_ptr = weight_ptr[program.axis_rank]
        first = np.cumsum([0, *(program.size(s) for s in program.factor_scopes)], dtype=np.int64)
        cells = np.empty(int(first[-1]))
        scopes = [() if t == UNIT else program.scopes[t] for t in program.factor_derivative]
        _spread.spread(
            arena, cell, evidence.state, (weights, weight_ptr, factor), program.cardinality,
            ragged(program.factor_scopes), ragged(scopes), first, cells,
        )  # fmt: skip
        return cells

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        program = self.program
        logs = np.empty(len(states))
        space = self._runner.acquire()
        try:
            space.fit_arena(space.numbers.factor_cells)
            _spread.score(
                space.arena, space.exponent, space.numbers.layout.factor, ragged(program.scopes[: program.n_factors]),
                program.cardinality, np.ascontiguousarray(states), logs,
            )  # fmt: skip
        finally:
            self._runner.release(space)
        with np.errstate(divide="ignore"):
            for v, weights in evidence.likelihood.items():
                scope = program.weighed_scope(v)
                logs += np.log(np.reshape(weights, program.shape(scope))[tuple(states[:, u] for u in scope)])
        return logs


_NO_CHANCES, _NONE_MADE = np.zeros(1), np.zeros(1, np.uint8)


def _in_groups(
    states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]
) -> Iterator[tuple[int, Evidence]]:
    """Numbers of the rows and the rows as cases; those that observe the same variables one after the other."""
    rows, _ = rows_by_pattern(np.ascontiguousarray(states, np.int32), np.zeros(states.shape[1], np.bool_))
    for row in rows.tolist():
        yield row, Evidence(states[row], {v: w[row] for v, w in likelihood.items()})
