"""Tables of cases on the CPU: rows grouped by what they observe, many rows in one sweep, all cores.

Rows that observe the same variables share a program that is specialised to them, if there are enough of them to pay for
it; they run side by side, or one by one where tables side by side exceed the caches. The other rows run either with a
program that takes any evidence on the variables that some row observes, or each with its own, by estimated time.
Threads take all of this from one list of tasks: a pattern with few rows is one task, including the derivation of its
program; a pattern with many rows is several.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import ImpossibleEvidence
from ...util.loops import loops
from ...util.system import new_lock, reset_in_child
from ..base import Evidence, TableAnswer, columns_of
from .costs import MARGIN, ROW_BY_ROW, Config
from .lanes import CACHE, config_of, memory_of, weight_columns
from .programs import CachedProgram
from .records import Cases, LaneMemory, PosteriorCells
from .runner import PreparedModel, Runner, on_all_cores, soft_of, with_sets
from .workspace import Workspace

# Groups of rows of a table of cases that observe the same variables.

_loops = loops("jtgpu.backends.cpu.loops.patterns")


def rows_by_pattern(
    states: NDArray[np.int32], ignored: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows pattern after pattern, those of each in ascending order, the patterns in the order in which they come."""
    # states: (n, V) int32: -1 for what is not observed
    # ignored: (V,) bool: Variables that make no difference
    # returns rows: (n,) int64
    # returns ptr: (patterns + 1,) int64: Where the rows of each pattern begin
    rows, ptr = _loops.grouped(states, ignored)
    return rows, ptr


_lanes = loops("jtgpu.backends.cpu.loops.lanes")

FEW = 4  # rows up to which one after the other is as fast as eight at once
ENOUGH = 8  # rows of one pattern that may pay for a program of their own
MOST_MEMORY = 512 << 20  # bytes of those of all threads of a call
TASK = 1000.0  # us of work that a thread takes at a time, about


class RowGroup:
    """Rows that are answered by the same program, which the first thread derives."""

    def __init__(self, rows: NDArray[np.int64], seen: NDArray[np.bool_], soft: tuple[int, ...], config: Config):
        self.rows, self.bytes, self._seen, self._soft = rows, config.bytes, seen, soft
        per_task = max(int(TASK / config.row), 1) if config.lanes else 1
        self.lanes = config.best(min(len(rows), per_task)) if config.lanes else 0
        self._step = -(-per_task // self.lanes) * self.lanes if config.lanes else 1
        self._left = len(range(0, len(rows), self._step))  # tasks
        self._lock = threading.Lock()
        self._cached: CachedProgram | None = None

    def tasks(self) -> Iterator[tuple[int, int]]:
        """First and last row of each."""
        for first in range(0, len(self.rows), self._step):
            yield first, min(first + self._step, len(self.rows))

    def program(self, table: CaseTable) -> CachedProgram | None:
        """The program; None: row by row."""
        if not self.lanes:
            return None
        with self._lock:
            if self._cached is None:
                self._cached = table.get(self._seen, self._soft, self.lanes)
                sweeps = -(-len(self.rows) // self.lanes)
                self._cached.leave_out_zeros(table.model.numbers, table.runner.cards, self.lanes, sweeps)
            return self._cached

    def done(self) -> None:
        """A task is done; the program is dropped after the last one, for there may be many groups."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._cached = None


class CaseTable:
    """The rows of one call."""
    # states: (B, V) int32: -1 = not observed
    # likelihood: Variable to weights, (B, card)
    # targets: sequence of int: Default: all variables

    def __init__(
        self,
        runner: Runner,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]],
        targets: Sequence[int] | None,
    ):
        self.runner, self.model, self.targets = runner, runner.model, targets
        self.states = with_sets(states, runner.program.n_sets)
        self.likelihood = {int(v): np.asarray(w, np.float64) for v, w in sorted(likelihood.items())}
        self.weights, self.weight_ptr, self.log_scale, self.lost = weight_columns(
            runner.program, self.likelihood, len(states)
        )
        if self.model.numbers.is_lossy:
            self.lost[:] = True
        self.log_evidence = np.empty(len(self.states))
        self.impossible = np.zeros(len(self.states), np.bool_)

    @property
    def weighed(self) -> tuple[int, ...]:
        """Variables that have a weight in every row: those with likelihoods, and observed ones of the sets of the call.

        The cells of a set that agree with the observed states differ from row to row.
        """
        program = self.runner.program
        sets = [v for v in (*self.likelihood, *(self.targets or ())) if v >= program.n_plain]
        members = {u for v in sets for u in program.weighed_scope(v)} - self.likelihood.keys()
        return tuple(sorted({*self.likelihood, *(u for u in members if (self.states[:, u] >= 0).any())}))

    def get(self, seen: NDArray[np.bool_], soft: tuple[int, ...], lanes: int = 1) -> CachedProgram:
        """The program of a pattern."""
        return self.model.programs.get(seen, soft, self.targets, lanes=lanes)

    def case(self, row: int) -> Evidence:
        """A row as a case of its own."""
        state = self.states[row, : self.runner.program.n_plain]
        return Evidence(state, {v: w[row] for v, w in self.likelihood.items()})

    def lost_rows(self, rows: NDArray[np.int64]) -> list[int]:
        """Those of some rows that have to run by themselves, in their order."""
        lost: list[int] = rows[self.lost[rows]].tolist()
        return lost

    def cases(self, rows: NDArray[np.int64]) -> Cases:
        """Rows as `lanes` takes them."""
        return Cases(
            rows, self.states, self.runner.by_rank, self.weights, self.log_evidence, self.impossible, self.lost
        )


def lane_memory(space: Workspace, table: CaseTable, cached: CachedProgram, lanes: int) -> LaneMemory:
    """A workspace with room for a program of so many lanes."""
    return memory_of(space, cached, table.runner.cards, table.weight_ptr, table.weights.shape[1], lanes)


class _Posteriors:
    """The posteriors of a table's rows."""

    def __init__(self, table: CaseTable):
        program = table.runner.program
        self._table = table
        self.place = np.full(program.n_variables, -1, np.int64)  # by rank
        at = 0
        for v in range(program.n_plain) if table.targets is None else dict.fromkeys(table.targets):
            self.place[program.axis_rank[v]] = at
            at += int(program.cardinality[v])
        self.cells = np.empty((len(table.states), at))
        once = list(range(program.n_plain) if table.targets is None else dict.fromkeys(table.targets))
        self._columns = columns_of(program.posterior_ptr, once)

    def work(self, group: RowGroup, first: int, last: int) -> None:
        """Answer some rows of a group."""
        table, runner = self._table, self._table.runner
        cached = group.program(table)
        space = runner.acquire(table.model)
        try:
            if cached is None:
                for row in group.rows[first:last].tolist():
                    self._run_row(space, row)
                return
            hard = runner.program.axis_rank[cached.hard]
            _lanes.run_lanes(
                lane_memory(space, table, cached, group.lanes), cached.records, table.cases(group.rows),
                PosteriorCells(self.cells, self.place, runner.cards, hard), runner.limit, first, last,
            )  # fmt: skip
            for row in table.lost_rows(group.rows[first:last]):
                self._run_row(space, row)
        finally:
            runner.release(space)

    def _run_row(self, space: Workspace, row: int) -> None:
        """Answer a row with a program of its own."""
        table = self._table
        case = table.case(row)
        cached = table.get(case.state >= 0, soft_of(case))
        table.impossible[row] = False
        try:
            table.log_evidence[row] = table.runner.run(space, cached, case, tables=False) - table.log_scale[row]
        except ImpossibleEvidence:
            self.cells[row], table.log_evidence[row], table.impossible[row] = 0.0, -np.inf, True
            return
        self.cells[row] = table.runner.posteriors(space, cached, case)[self._columns]


def answer_batch(
    runner: Runner,
    states: NDArray[np.int32],
    likelihood: Mapping[int, NDArray[np.float64]],
    targets: Sequence[int] | None,
) -> TableAnswer:
    table = CaseTable(runner, states, likelihood, targets)
    posteriors = _Posteriors(table)
    run_groups(table, group_rows(table, by_row=True), posteriors.work)
    posterior = posteriors.cells
    if targets is not None and len(set(targets)) < len(targets):  # a target that is listed twice has two columns
        once, cards = list(dict.fromkeys(targets)), runner.program.cardinality
        start = dict(zip(once, np.cumsum([0, *cards[once]]).tolist(), strict=False))
        columns = [np.arange(start[v], start[v] + cards[v]) for v in targets]
        posterior = posterior[:, np.concatenate(columns)]
    return TableAnswer(posterior, table.log_evidence + table.log_scale, table.impossible)


def run_groups(table: CaseTable, groups: list[RowGroup], work: Callable[[RowGroup, int, int], None]) -> None:
    """Call ``work(group, first row, last row)`` for every task of some groups, on all cores."""
    # the largest first: what is left at the end is small and keeps no thread waiting
    order = sorted(range(len(groups)), key=lambda g: (-len(groups[g].rows), g))

    def run(group: RowGroup, first: int, last: int) -> None:
        work(group, first, last)
        group.done()

    tasks = [partial(run, groups[g], *rows) for g in order for rows in groups[g].tasks()]
    if tasks:
        on_all_cores(tasks, table.runner, max(MOST_MEMORY // max(g.bytes for g in groups), 1))


def group_rows(table: CaseTable, by_row: bool = False) -> list[RowGroup]:
    """The rows of a table by the programs that answer them. It does not depend on the number of threads."""
    # by_row: Whether rows of one pattern may run one by one where that is quicker
    soft = table.weighed
    if not len(table.states):
        return []
    ignored = np.zeros(table.runner.program.n_variables, np.bool_)
    ignored[list(soft)] = True  # weighed and observed: the weights of a lane include the state
    if len(table.states) < FEW:
        return [RowGroup(np.arange(len(table.states)), ignored, soft, ROW_BY_ROW)]
    rows, ptr = rows_by_pattern(table.states, ignored)
    size = np.diff(ptr)
    seen = (table.states[rows[ptr[:-1]]] >= 0) & ~ignored  # of each pattern
    often = seen[int(size.argmax())]
    config = _config(table, often, soft)
    if by_row and config.lanes and table.get(often, soft).times.case * MARGIN < config.row:
        config = ROW_BY_ROW
    enough = _enough(config, _config(table, *_weighed(seen, soft)), len(rows)) if len(size) > 1 else 1
    common = np.flatnonzero(size >= enough).tolist()
    groups = [RowGroup(rows[ptr[g] : ptr[g + 1]], seen[g], soft, config) for g in common]
    rare = size < enough
    if rare.any():
        left = np.sort(rows[np.repeat(rare, size)])
        groups.append(_rest(table, left, seen[rare], soft))
    return groups


def _enough(own: Config, general: Config, n: int) -> int:
    """How many of n rows must have a pattern to pay for a program of their own, where the others run with one that
    takes any evidence."""
    if not own.lanes or not general.lanes:
        return ENOUGH
    saved = general.row - own.row
    return max(ENOUGH, int((own.program + own.sweep) / saved)) if saved > 0 else n + 1


def _weighed(seen: NDArray[np.bool_], soft: tuple[int, ...]) -> tuple[NDArray[np.bool_], tuple[int, ...]]:
    """Variables observed in every row, and variables that the shared program must weight."""
    always = np.asarray(seen.all(axis=0))
    some = np.flatnonzero(seen.any(axis=0) & ~always).tolist()
    return always, tuple(sorted({*soft, *some}))


def _rest(table: CaseTable, rows: NDArray[np.int64], seen: NDArray[np.bool_], soft: tuple[int, ...]) -> RowGroup:
    """Rows of rare patterns; `seen`: what each of the patterns observes."""
    always, weighed = _weighed(seen, soft)
    config = _config(table, always, weighed)
    if config.lanes and (len(rows) < FEW or _alone(table, seen[0], soft) < config.row):
        config = ROW_BY_ROW
    return RowGroup(rows, always, weighed, config)


def _alone(table: CaseTable, seen: NDArray[np.bool_], soft: tuple[int, ...]) -> float:
    """Time of the only row of a pattern by a program of its own."""
    times = table.get(seen, soft).times
    return times.case + times.derivation


def _config(table: CaseTable, seen: NDArray[np.bool_], soft: tuple[int, ...]) -> Config:
    """How rows of a pattern can be answered."""
    return config_of(lambda lanes: table.get(seen, soft, lanes), table.model.numbers.factor_cells)


WIDTHS = (8, 16, 32, 64)  # lanes
MOST_TERMS = 400_000  # of a case: above, a program of the pattern is faster, since evidence removes most of the work


class _LaneSweep(NamedTuple):
    """A program for some lanes, and memory to run it in."""

    cached: CachedProgram
    memory: LaneMemory


class FewCases:
    """A few cases that observe different variables, as a server gets them. Thread-safe.

    A program that is specialised to a pattern runs fastest, but deriving it takes longer than a run of a small network.
    Here every variable counts as weighed, the weights of a lane being those of its states, so that one program for each
    number of lanes answers every table, and nothing is derived after the first call.
    """
    # model: Its present numbers

    def __init__(self, runner: Runner, model: PreparedModel):
        program = runner.program
        self.model, self._runner = model, runner
        self._lock = new_lock()
        self._idle: dict[int, list[_LaneSweep]] = {}
        reset_in_child(self, FewCases._forget)
        self._seen = np.zeros(program.n_variables, np.bool_)
        self._soft = tuple(range(program.n_plain))
        cards = program.cardinality
        place = np.empty(program.n_variables, np.int64)
        place[program.axis_rank] = np.cumsum(cards) - cards
        place[program.n_plain :] = -1  # set variables, whose ranks are their numbers
        self._place, self._columns = place, int(cards[: program.n_plain].sum())
        self._hard = np.zeros(0, np.int64)
        self._no_likelihood = np.full(program.n_variables, -1, np.int64)
        one = model.programs.get(self._seen, self._soft)
        cells = one.records.cells - model.numbers.factor_cells
        self._widths = [n for n in WIDTHS if 8 * n * cells <= CACHE] or [1]
        self.is_suitable = one.terms <= MOST_TERMS

    def _forget(self) -> None:
        self._idle = {}

    def _acquire(self, lanes: int) -> _LaneSweep:
        """A program for so many lanes, and memory that nothing else uses."""
        with self._lock:
            idle = self._idle.setdefault(lanes, [])
            if idle:
                return idle.pop()
        runner, model = self._runner, self.model
        cached = model.programs.get(self._seen, self._soft, lanes=lanes)
        cached.leave_out_zeros(model.numbers, runner.cards, lanes, 1 << 20)
        space = runner.acquire(model)
        empty = CaseTable(runner, np.zeros((0, len(self._seen)), np.int32), {}, None)
        return _LaneSweep(cached, lane_memory(space, empty, cached, lanes))

    def run(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]] | None = None
    ) -> TableAnswer:
        n, runner = len(states), self._runner
        states = with_sets(states, runner.program.n_sets)
        lanes = 1 if n <= FEW else next((w for w in self._widths if w >= n), self._widths[-1])
        sweep = self._acquire(lanes)
        memory, weights, table = sweep.memory, _NO_WEIGHTS, None
        if likelihood:
            table = CaseTable(runner, states, likelihood, None)
            weights = table.weights
            ptr = np.where(table.weight_ptr >= 0, table.weight_ptr * lanes, -1)
            memory = memory._replace(weights=np.empty(max(weights.shape[1] * lanes, 1)), weight_ptr=ptr)
        result = TableAnswer(np.empty((n, self._columns)), np.empty(n), np.empty(n, np.bool_))
        lost = np.zeros(n, np.bool_) if table is None else table.lost
        cases = Cases(np.arange(n), states, runner.by_rank, weights, result.log_evidence, result.impossible, lost)
        out = PosteriorCells(result.posterior, self._place, runner.cards, self._hard)
        # a program for one lane does not tell what depends on the case: each call computes every table
        step = n if lanes > 1 else 1
        for first in range(0, n, step):
            _lanes.run_lanes(memory, sweep.cached.records, cases, out, runner.limit, first, first + step)
        with self._lock:
            self._idle.setdefault(lanes, []).append(sweep)
        if table is not None:
            result.log_evidence[:] += table.log_scale
        if self.model.numbers.is_lossy:
            lost[:] = True
        if lost.any():
            rows = np.flatnonzero(lost)
            exact = answer_batch(runner, states[rows], {v: w[rows] for v, w in (likelihood or {}).items()}, None)
            result.posterior[rows], result.log_evidence[rows] = exact.posterior, exact.log_evidence
            result.impossible[rows] = exact.impossible
        return result


_NO_WEIGHTS = np.zeros((0, 0))
