"""The fast CPU backend: a program specialised to the evidence and the targets, run by compiled code in one call.

Expected counts: the distributions of all families, summed over a table of cases.

Rows are grouped as for posteriors (see `batch`). Every task adds its rows, in their order, to counts of its own, and
these are added in the order of the tasks: the bits do not depend on the number of threads.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import ImpossibleEvidence, JtgpuError
from ...plans.plan import Plan
from ...plans.program import family_program, posterior_program
from ...util.arrays import Floats
from ...util.loops import loops
from ...util.system import new_lock, reset_in_child
from ..base import Backend, Capabilities, Evidence, Likelihood, Prepare, Result, slice_of
from ..reference import ExtendedEvidence, exponents_of
from ..slices import Side
from ..state_map import NOTHING, StateMap
from ..table import COUNTS, ON_DEVICE, CountSums, Table, refuse
from ..wrappers.pattern_cache import PatternCache
from .batch import ENOUGH, CaseTable, FewCases, RowGroup, answer_batch, group_rows, lane_memory, run_groups
from .parallel import run_tasks
from .programs import without_zeros
from .records import IMPOSSIBLE, CountedCells
from .runner import Runner, soft_of, with_sets
from .slices import CpuSliceTable
from .workspace import Workspace, loses_digits, scaled_weights

A = TypeVar("A")

_sweep = loops("jtgpu.backends.cpu.loops.sweep")


class CpuHeldCase:
    """`jtgpu.backends.base.HeldCase` in compiled code: a run is one compiled call."""

    def __init__(self, runner: Runner, evidence: Evidence, targets: Sequence[int]):
        program = runner.program
        self._runner, self._model = runner, runner.model
        self._space = runner.acquire(self._model)
        self._cached = self._model.programs.get(evidence.state >= 0, soft_of(evidence), targets)
        self._space.fit_program(self._cached)
        self._evidence = evidence.state
        self._slices: dict[int, tuple[tuple[int, ...], Any] | None] = {}  # see `_slice`
        self._state = with_sets(evidence.state, program.n_sets)
        self._weights, self._ptr, total = scaled_weights(evidence, program)
        self._log_scale = dict.fromkeys(evidence.likelihood, 0.0)
        self._rest = total  # of the weights that were not replaced
        self._first = dict(evidence.likelihood)
        self._present, self._exponents = dict(evidence.likelihood), dict(exponents_of(evidence))
        self._lost = {-1} if math.isnan(total) else set[int]()  # variables whose weights lose digits when scaled
        ptr = program.posterior_ptr
        self._cell: dict[int, tuple[int, int]] = {}  # of each target: first cell of its posterior, and cells
        for rank, cell, _ in self._cached.records.answers.tolist():
            v = int(runner.by_rank[rank])
            self._cell[v] = cell, int(ptr[v + 1] - ptr[v])

    def set(self, v: int, weights: Floats) -> None:
        vector = self._sliced(v, weights)
        top = float(vector.max())
        self._present[v] = weights
        (self._lost.add if top >= 1.0 and loses_digits(vector, top) else self._lost.discard)(v)
        shift = math.frexp(top)[1] if top > 0 else 0
        if v in self._first:
            before = self._sliced(v, np.asarray(self._first.pop(v), np.float64))
            self._rest -= math.frexp(float(before.max()))[1] * math.log(2.0)
        self._log_scale[v] = shift * math.log(2.0)
        at = int(self._ptr[self._runner.program.axis_rank[v]])
        np.ldexp(vector, -shift, out=self._weights[at : at + len(vector)])

    def _sliced(self, v: int, weights: Floats) -> Floats:
        part = self._slice(v)
        if part is None:
            return weights.ravel()
        shape, agreeing = part
        return np.ravel(weights.reshape(shape)[agreeing])

    def _slice(self, v: int) -> tuple[tuple[int, ...], Any] | None:
        """Extents of a set variable and its cells that agree with the evidence; None if these are all."""
        if v not in self._slices:
            program = self._runner.program
            scope = program.weighed_scope(v)
            whole = v < program.n_plain or (self._evidence[list(scope)] < 0).all()
            self._slices[v] = None if whole else (program.shape(scope), slice_of(scope, self._evidence))
        return self._slices[v]

    def run(self) -> float:
        space, runner = self._space, self._runner
        log_evidence = math.nan
        if not self._lost and not space.numbers.is_lossy:
            log_evidence = _sweep.run(
                self._cached.code, space.arena, space.exponent, runner.by_rank, self._state, NOTHING, self._weights,
                self._ptr, runner.limit, False, space.block,
            )  # fmt: skip
        if log_evidence != log_evidence:
            try:
                return runner.run(space, self._cached, ExtendedEvidence(self._evidence, self._present, self._exponents))
            except ImpossibleEvidence:
                return -math.inf
        if log_evidence == IMPOSSIBLE:
            return -math.inf
        return float(log_evidence) + self._rest + math.fsum(self._log_scale.values())

    def cells(self, v: int) -> Floats:
        cell, size = self._cell[v]
        own = self._space.arena[cell : cell + size]
        part = self._slice(v)
        if part is None:
            return own
        shape, inside = part
        table = np.zeros(shape)
        agreeing = table[inside]
        table[inside] = own[: agreeing.size].reshape(agreeing.shape)
        return table.ravel()

    def close(self) -> None:
        self._runner.release(self._space)


_ZERO = np.array(0, np.int32)  # without axes: comparing takes half as long as with a number
SMALL = 400_000  # terms up to which a session makes all tables: finding out what changed takes as long
MOST_AT_ONCE = 4  # tables of cases


class Cpu(Backend):
    """`jtgpu.backends.base.Backend` in compiled code. Thread-safe: queries run at the same time."""
    # threads: See `Runner`
    # maximal: Whether posteriors are those by maximum, see `jtgpu.plans.program.posterior_program`

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], threads: int | None = None, maximal: bool = False
    ):
        self.plan = self._plan = plan
        self.runner = Runner(posterior_program(plan, maximal), factors, threads)
        self._factors = factors
        self._lock = new_lock()
        self._few: FewCases | None = None

    @property
    def threads(self) -> int:
        """Cores that one query may use."""
        return self.runner.threads

    takes_maps = True

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        runner = self.runner
        model = runner.model
        space = runner.acquire(model)
        try:
            seen = evidence.state >= _ZERO if states is None or states.seen is None else states.seen
            cached = model.programs.get(seen, soft_of(evidence), targets)
            log_evidence = runner.run(space, cached, evidence, tables=False, states=states)
            return Result(runner.posteriors(space, cached, evidence, states), log_evidence)
        finally:
            runner.release(space)

    def run(self, table: Table[A]) -> A:
        refuse(self, table, ON_DEVICE)
        if table.deliver is COUNTS:
            return cast("A", count_cases(self.families, table))
        states, likelihood, targets = table.feed.rows(), table.likelihood, table.targets
        if not table.recurs and targets is None and max(likelihood, default=0) < self.plan.n_variables:
            few = self._few
            if few is None or few.model is not self.runner.model:
                self._few = few = FewCases(self.runner, self.runner.model)
            if few.is_suitable:
                return table.delivered(few.run(states, likelihood))
        return table.delivered(answer_batch(self.runner, states, likelihood, targets))

    @cached_property
    def _families(self) -> Runner:
        """The runner that computes expected counts."""
        return Runner(family_program(self.plan), self._factors, self.runner.asked)

    @property
    def families(self) -> Runner:
        """The runner that computes expected counts, made once."""
        with self._lock:
            return self._families

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        with self._lock:
            self._factors = factors
            serves = self.runner.reload(factors) and self.runner.program.may_prune
            for other in ("_families", "without_evidence"):
                if other in self.__dict__:
                    self.__dict__[other].reload(factors, serves)

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case that observes these variables, (V,) bool, zeros included."""
        return self.runner.model.programs.get(seen, (), targets).terms

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of such a case, the model's factors among them."""
        return 8 * self.runner.model.programs.get(seen, (), targets).records.cells

    @property
    def capabilities(self) -> Capabilities:
        """Several tables at once, since part of each call runs on one core."""
        return Capabilities(concurrent_tables=min(self.threads, MOST_AT_ONCE))

    def with_patterns(self, factors: Sequence[NDArray[np.float64]], again: Prepare) -> Backend:
        return PatternCache(self.plan, factors, self, again)

    def hold_case(self, evidence: Evidence, targets: Sequence[int]) -> CpuHeldCase:
        return CpuHeldCase(self.runner, evidence, targets)

    def slices(self, *_: object) -> Cpu:
        return self

    def slice_table(
        self, states: NDArray[np.int32], likelihood: Likelihood, before: Side, after: Side,
        lengths: NDArray[np.int64], most_kept: int,
    ) -> CpuSliceTable | None:  # fmt: skip
        """The evidence of a call on sequences; None if there is no memory for it."""
        table = CpuSliceTable(
            (self.runner, self.without_evidence), states, likelihood, before, after, lengths, most_kept
        )
        return table if table.lanes else None

    def joined(self, _: Sequence[object]) -> Cpu:
        return self

    @cached_property
    def without_evidence(self) -> Runner:
        """The runner of posteriors without P(e)."""
        return Runner(replace(self.runner.program, roots=()), self._factors, self.runner.asked)

    def session(self) -> CpuSession:
        return CpuSession(self)

    def close(self) -> None:
        self.runner.close()
        self._few = None
        for other in ("_families", "without_evidence"):
            if other in self.__dict__:
                self.__dict__[other].close()


class CpuSession:
    """`jtgpu.backends.base.Session`: tables stay from query to query, and only what changed is computed again.

    Every table has its own cells, so a table that one pattern made serves another. Small programs run without a
    session.
    """

    def __init__(self, backend: Cpu):
        self._backend = backend
        self._model = backend.runner.model
        numbers = self._model.numbers
        self._layout, self._cells = numbers.fixed_layout()
        self._space: Workspace | None = Workspace(numbers)
        # factors never change: any number will do, as long as no other table has it
        n_factors, n_tables = backend.plan.n_factors, len(backend.plan.table_off)
        self._signature = np.zeros(len(self._space.exponent), np.uint64)
        self._signature[:n_factors] = np.arange(1, n_factors + 1)
        self._signature[n_tables] = n_factors + 1  # the number 1
        self._fixed = self._signature.copy()
        self._lock = new_lock()
        reset_in_child(self, CpuSession._forget)
        self.made = np.zeros(2, np.int64)  # contractions that the last query made, and all of its program

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        backend, runner, model = self._backend, self._backend.runner, self._model
        with self._lock:
            space = self._space
            if space is None:
                raise JtgpuError("this session is closed")
            seen, soft = evidence.state >= 0, soft_of(evidence)
            if model.programs.get(seen, soft, targets).terms <= SMALL:
                return backend.run_case(evidence, targets)
            cached = model.programs.get(seen, soft, targets, layout=self._layout)
            cached.leave_out_zeros(model.numbers, runner.cards, cells=self._cells)
            weights, weight_ptr, log_scale = scaled_weights(evidence, runner.program)
            p = cached.records
            space.fit_program(cached, self._cells)
            log_evidence = IMPOSSIBLE
            if log_scale != log_scale or model.numbers.is_lossy:
                return backend.run_case(evidence, targets)
            if log_scale != IMPOSSIBLE:
                log_evidence = _sweep.run_changed(
                    space.arena, space.exponent, p.records, p.record_ptr, p.loads, p.load_ptr, p.roots,
                    with_sets(evidence.state, runner.program.n_sets)[runner.by_rank], weights, weight_ptr, runner.limit,
                    space.block, *cached.hashes(p),
                    self._signature, weights.view(np.uint64), self.made,
                )  # fmt: skip
            if log_evidence != log_evidence:
                self._forget()  # tables that lost digits must not serve a later query
                return backend.run_case(evidence, targets)
            if log_evidence == IMPOSSIBLE:
                raise ImpossibleEvidence("the evidence has probability 0")
            return Result(runner.posteriors(space, cached, evidence), float(log_evidence + log_scale))

    def _forget(self) -> None:
        """Compute all tables again: after a fork, those that another thread was computing are incomplete."""
        self._signature[:] = self._fixed

    def close(self) -> None:
        with self._lock:
            self._space = None


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Cpu:
    """See `jtgpu.backends.base.Prepare`. Warns, through the logger "jtgpu", if the first query has to compile."""
    folder = _sweep.waits_for_compiler("run")
    if folder:
        logging.getLogger("jtgpu").warning(
            "Compiling CPU kernels for this machine (one time, about 30 s; cached in %s) ...", folder
        )
    return Cpu(plan, factors, **options)


def warm_up(plan: Plan) -> None:
    """Run every loop on tables of ones: a case, a session, a table of cases, counts, two threads, non-zeros."""
    # plan: Any; a small one
    backend = Cpu(plan, [np.ones(plan.cardinality[list(scope)]) for scope in plan.factor_scopes], threads=2)
    nothing, rows = Evidence.none(plan.n_variables), np.full((ENOUGH, plan.n_variables), -1, np.int32)
    backend.run_case(nothing)
    session = backend.session()
    session.run(nothing)
    session.close()
    backend.run(Table.of(rows))
    backend.run(Table.counts(rows))
    backend.run(Table.counts(rows[:1]))
    runner = backend.runner
    cached = runner.model.programs.get(nothing.state >= 0)
    space = runner.acquire()
    space.fit_program(cached)
    tasks = cached.tasks(cached.records, len(space.exponent), 2)
    run_tasks(tasks, cached.records.records, space, runner.limit, 2)
    without_zeros(cached.records, space.numbers, runner.cards, 1)
    backend.close()


_counts = loops("jtgpu.backends.cpu.loops.lane_counts")


class _InOrder:
    """A sum of arrays that are added in the order of their numbers, whenever they come."""

    def __init__(self, cells: int):
        self.total = np.zeros(cells)
        self._next = 0
        self._waiting: dict[int, NDArray[np.float64]] = {}
        self._lock = threading.Lock()

    def add(self, number: int, counts: NDArray[np.float64]) -> None:
        """Add array `number`; numbers are 0, 1, 2, ..."""
        with self._lock:
            self._waiting[number] = counts
            while self._next in self._waiting:
                self.total += self._waiting.pop(self._next)
                self._next += 1


def _count_row(table: CaseTable, space: Workspace, row: int, out: CountedCells) -> None:
    """Add one row with a program of its own."""
    case = table.case(row)
    cached = table.get(case.state >= 0, soft_of(case))
    table.impossible[row] = False
    try:
        table.log_evidence[row] = table.runner.run(space, cached, case) - table.log_scale[row]
    except ImpossibleEvidence:
        table.log_evidence[row], table.impossible[row] = -np.inf, True
        return
    states = with_sets(case.state, table.runner.program.n_sets)[table.runner.by_rank]
    _counts.add_counts(space.arena, cached.records, states, float(out.weights[row]), out.cells, space.block)


def count_cases(runner: Runner, asked: Table[Any]) -> CountSums:
    """Expected counts of a table, by a runner of families."""
    states, weights = asked.feed.rows(), asked.weights_or_ones
    table = CaseTable(runner, states, asked.likelihood, None)
    groups = group_rows(table)
    numbers: dict[tuple[int, int], int] = {}  # of each task, in the order in which tasks are started
    for group in sorted(groups, key=lambda g: -len(g.rows)):
        for first, _ in group.tasks():
            numbers[id(group), first] = len(numbers)
    sums = _InOrder(table.model.numbers.factor_cells)

    def work(group: RowGroup, first: int, last: int) -> None:
        cells = np.zeros(len(sums.total))
        space = runner.acquire(table.model)
        try:
            cached = group.program(table)
            if cached is None:
                for row in group.rows[first:last].tolist():
                    _count_row(table, space, row, CountedCells(cells, weights))
            else:
                _counts.count_lanes(
                    lane_memory(space, table, cached, group.lanes), cached.records, table.cases(group.rows),
                    CountedCells(cells, weights), runner.limit, first, last,
                )  # fmt: skip
                for row in table.lost_rows(group.rows[first:last]):
                    _count_row(table, space, row, CountedCells(cells, weights))
        finally:
            runner.release(space)
        sums.add(numbers[id(group), first], cells)

    run_groups(table, groups, work)
    families = [np.array(view, order="C") for view in table.model.numbers.factor_views(sums.total)]
    return CountSums.of(families, table.log_evidence + table.log_scale, weights)
