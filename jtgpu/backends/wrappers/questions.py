"""Backends that plan each question by itself: of models whose whole tree is too large, or needs far more work.

A case is reduced by its findings (`jtgpu.plans.reduction`), what is left is planned, and a backend of that answers it.
Where tables of it would be too large, its states are searched (`jtgpu.plans.search`).
Plans are kept by the variables, states and scopes that are left, reductions by the question. A table is answered row
by row, rows that observe the same variables one after the other, so that they share the plans.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from ...errors import ImpossibleEvidence, TableTooLarge
from ...plans.compiler import MAX_TABLE
from ...plans.program import Program, collect_program
from ...plans.reduction import Reducer, Reduction
from ...plans.search import Search
from ...util.elementary import log
from ...util.lru import LRU
from ...util.system import new_lock
from ...util.text_table import counted
from ..base import Backend, Capabilities, Evidence, HeldCase, Result, columns_of
from ..reference import ExtendedEvidence, exponents_of
from ..sweep import Best, Derivatives, Sweep, Uniforms
from ..table import COUNTS, ON_DEVICE, CountSums, Table, TableAnswer, refuse
from .delegating import DelegatingBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.arrays import Cost
    from ...plans.plan import Plan
    from ..state_map import StateMap

    Factors = Sequence[NDArray[np.float64]]
    Make = Callable[[Plan, Factors], Backend]
    MakeSweep = Callable[[Program, Factors], Sweep]

A = TypeVar("A")
T = TypeVar("T")
_NONE = np.zeros(0)
_CHEAP = 1 << 62  # in place of the multiplications of a pattern: its last question was planned by itself

MOST_ENGINES = 256
SEARCHING = 10_000_000  # operations of cases for each variable, from which a better order is searched for
SEARCHED_WORK = 10_000_000  # operations of such a case
REQUIRED_GAIN = 0.5  # share of the work that may be left with a better order
MOST_QUESTIONS = 256
MOST_PATTERNS = 256
HALVED = 6  # times that the targets of a question that is too large are halved
LEAST_WORK = 20_000_000  # operations of a case of a tree that fits, from which its patterns are examined
LOOK = 2_000_000  # multiplications of cases, for each variable, after which a pattern is examined
AGAIN = 50  # factor by which the next examination is later
GAIN = 20  # how much less work a question has to need
LEAST_BYTES = 1 << 26  # of plans, or of reductions, that are kept even if little memory is free
HUGE = 100_000_000  # multiplications of a plan by a fast order, from which a search is tried before another order
MOST_NUMBERS = 1 << 22  # random ones that are made at a time
FEW_STEPS, MOST_STEPS = 30_000_000, 80_000_000  # of such a search, 3 s; of one when all else has failed


class QuestionLimits(NamedTuple):
    """Bounds of the plan of a question."""

    memory_limit: int
    max_table: int
    names: Sequence[str] | None = None  # of the variables, for messages


class _Engine:
    """A plan, and a backend that has the numbers of one reduction at a time."""

    def __init__(self, plan: Plan, left: Reduction, make: Make):
        self.plan, self.sets, self.cards = plan, plan.sets, plan.cards_with_sets
        self._tables: Factors = left.tables
        self._ones = _ones(left, plan)
        self._backend = make(plan, [*left.tables, *self._ones])
        self._lock = new_lock()
        self.bytes, self.flops = plan.cost().bytes, plan.cost().flops
        self.spent, self.is_searched = 0, self.flops < SEARCHED_WORK

    def ask(self, tables: Factors, question: Callable[[Backend], T]) -> T:
        """Answer a question with these numbers."""
        with self._lock:
            self.spent += self.flops
            if tables is not self._tables:
                self._tables = []  # until they are replaced
                self._backend.reload([*tables, *self._ones])
                self._tables = tables
            return question(self._backend)


class QuestionBackend(Backend):
    """`Backend` of a model without a plan. Thread-safe."""

    # plan: Without contractions: the model's shape, and its sets
    # make: Makes the backend of a question
    # replan: Whether a better order may be searched for once the cases have taken so long

    def __init__(self, plan: Plan, factors: Factors, make: Make, limits: QuestionLimits, *, replan: bool = False):
        self._plan, self._make, self.limits, self._replan = plan, make, limits, replan
        self._n_own = plan.n_factors - len(plan.sets)
        self._reducer = self._reducer_of(factors)
        most = max(limits.memory_limit // 2, LEAST_BYTES)
        self._engines: LRU[Hashable, _Engine] = LRU(MOST_ENGINES, most, lambda engine: engine.bytes)
        self._questions: LRU[Hashable, Reduction] = LRU(
            MOST_QUESTIONS, LEAST_BYTES, lambda left: len(left.possible) + 8 * sum(t.size for t in left.tables)
        )
        self._searches: LRU[Hashable, tuple[Reduction, int, Search | TableTooLarge]] = LRU(
            16, most, lambda search: search[2].bytes if isinstance(search[2], Search) else 0
        )

    def _reducer_of(self, factors: Factors) -> Reducer:
        n = self._n_own
        return Reducer(self._plan.cardinality, self._plan.factor_scopes[:n], list(factors[:n]))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(is_adaptive=self._replan)

    # Reductions and engines -----------------------------------------------------------------------------------

    def reduce(
        self, evidence: Evidence, targets: Iterable[int] | None = None, *, families: bool = False,
        expand: bool = False, apart: bool = False,
    ) -> Reduction:  # fmt: skip
        """The reduction of the model for a case; targets as of `run_case`, the rest as of `Reducer.reduce`."""
        far = tuple(exponents_of(evidence))
        key = evidence.state.tobytes(), far, *((v, w.tobytes()) for v, w in sorted(evidence.likelihood.items()))
        wanted = None if targets is None else tuple(sorted(set(targets)))
        return self._questions.get_or_make(
            (key, wanted, families, expand, apart and not far),
            lambda: self._reduced(evidence, wanted, families, expand=expand, apart=apart and not far),
        )

    def _reduced(
        self, evidence: Evidence, targets: Sequence[int] | None, families: bool, together: Sequence[int] = (), *,
        expand: bool = False, apart: bool = False,
    ) -> Reduction:  # fmt: skip
        n, sets = self._plan.n_variables, self._plan.sets
        far = exponents_of(evidence)  # weights that stay weights, of variables and sets that are left
        more = [
            ((v,) if v < n else sets[v - n], np.where(np.asarray(w) > 0, 1.0, 0.0) if v in far else np.asarray(w))
            for v, w in sorted(evidence.likelihood.items())
        ]
        own = None if targets is None else [v for v in (*targets, *far) if v < n]
        joint = [*(sets[v - n] for v in (*(targets or ()), *far) if v >= n), *([together] if together else ())]
        return self._reducer.reduce(evidence.state, more, own, joint, families=families, expand=expand, apart=apart)

    def plan_of(self, left: Reduction, search: bool | None = None) -> Plan:
        """The plan of what is left of a question; `search` as of `Reduction.plan`."""
        # raises TableTooLarge: naming what is left
        try:
            return left.plan(self.limits.memory_limit, self.limits.max_table, search=search)
        except TableTooLarge as error:
            raise error.saying(self._refusal(left, error)) from None

    def _refusal(self, left: Reduction, error: TableTooLarge) -> str:
        names = self.limits.names or [f"variable {v}" for v in range(self._plan.n_variables)]
        clique = [names[v] for v in left.largest_clique()]
        listed = ", ".join(clique[:10]) + (f" and {len(clique) - 10} more" if len(clique) > 10 else "")
        return (
            f"this question is too large: of {counted(self._plan.n_variables, 'variable')} its findings leave "
            f"{len(left.free):,}; {error.message.split(';')[0]}; the largest clique has "
            f"{counted(len(clique), 'variable')}: {listed}; try fewer targets, or observe some of these variables, "
            f"such as {', '.join(clique[:3])}"
        )

    def _engine(self, left: Reduction, search: bool | None = None) -> _Engine:
        engine = self._engines.get_or_make(left.key, lambda: _Engine(self.plan_of(left, search), left, self._make))
        if self._replan and not engine.is_searched and engine.spent >= SEARCHING * len(left.free):
            engine.is_searched = True
            with contextlib.suppress(TableTooLarge):
                plan = left.plan(self.limits.memory_limit, self.limits.max_table, search=True)
                if plan.cost().flops <= REQUIRED_GAIN * engine.flops:
                    engine = _Engine(plan, left, self._make)
                    engine.is_searched = True
                    self._engines.put(left.key, engine)
        return engine

    def search(self, left: Reduction, evidence: Evidence, most: int) -> Search:
        """The states of what is left, searched in so many steps, unless it was searched before."""
        # raises TableTooLarge: saying what was tried
        case, _ = self.case(left, evidence, left.sets)
        weights = [(w, np.asarray(case.likelihood[w]), powers) for w, powers in exponents_of(case).items()]
        key = id(left), *((w, m.tobytes(), powers.tobytes()) for w, m, powers in weights)
        _, steps, search = self._searches.get(key) or (left, 0, TableTooLarge(""))
        if not left.may_be_searched and left.least_work > most:
            raise TableTooLarge("none of its causes is certain, so that a search of its states would not end, either")
        if isinstance(search, TableTooLarge) and steps < most:
            try:
                search = Search(left, self.limits.memory_limit // 2, most, weights)
            except TableTooLarge as error:
                search = error.saying(error.message)  # without a traceback, which would hold the trace
            self._searches.put(key, (left, most, search))  # which holds the reduction, so no other one has this id
        if isinstance(search, TableTooLarge):
            raise search.saying(search.message)
        return search

    def search_first(self, left: Reduction, evidence: Evidence) -> Search | None:
        """A search that was made before; or one in few steps, if a plan would be huge."""
        is_huge = left.least_work >= min(HUGE, self.limits.max_table) and left.key not in self._engines
        if not is_huge:
            return None
        with contextlib.suppress(TableTooLarge):
            return self.search(left, evidence, FEW_STEPS)
        return None

    def search_last(self, left: Reduction, evidence: Evidence, error: TableTooLarge) -> Search:
        """A search in many steps, after everything else has failed."""
        try:
            return self.search(left, evidence, MOST_STEPS)
        except TableTooLarge as other:
            raise error.saying(f"{error.message}; {other.message}") from None

    def is_cheap(self, left: Reduction, most: float) -> bool:
        """Whether a case of what is left takes at most so many multiplications."""
        if not len(left.free):
            return True
        engine = self._engines.get(left.key)
        if engine is None:
            if left.least_work > most:
                return False
            try:
                engine = self._engine(left)
            except TableTooLarge:
                return False
        return engine.flops // 2 <= most

    # Answers --------------------------------------------------------------------------------------------------

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        def plan(some: Sequence[int]) -> None:
            left = self.reduce(evidence, some, apart=True)
            if len(left.free):
                self._engine(left, False)

        try:
            parts = list(self._parts(targets, lambda some, search: self._run(evidence, some, search), plan))
        except TableTooLarge as error:
            left = self.reduce(evidence, targets)
            return self._result(left, evidence, self.search_last(left, evidence, error), targets)
        if len(parts) == 1:
            return parts[0][1]
        posterior = np.zeros(int(self.posterior_ptr[-1]))
        for some, result in parts:
            cells = columns_of(self.posterior_ptr, some)
            posterior[cells] = result.posterior[cells]
        return Result(posterior, parts[-1][1].log_evidence)

    def costs(self, evidence: Evidence, targets: Sequence[int] | None = None) -> list[tuple[int, Cost | Search | None]]:
        """Variables that are left of a question and the cost of its plan or search, or those of each of its parts."""
        # raises TableTooLarge, ImpossibleEvidence: as `run_case` does
        def planned(some: Sequence[int] | None, search: bool | None) -> tuple[int, Cost | Search | None]:
            left = self.reduce(evidence, some, apart=True)
            if not len(left.free):
                return 0, None
            first = None if search is False else self.search_first(left, evidence)
            return len(left.free), first or self.plan_of(left, search).cost()

        try:
            return [cost for _, cost in self._parts(targets, planned, lambda some: planned(some, False))]
        except TableTooLarge as error:
            left = self.reduce(evidence, targets)
            return [(len(left.free), self.search_last(left, evidence, error))]

    def _parts(
        self, targets: Sequence[int] | None, ask: Callable[[Sequence[int] | None, bool | None], T],
        plan: Callable[[Sequence[int]], object],
    ) -> Iterator[tuple[Sequence[int] | None, T]]:
        """The answer to a question, or to several about some of its targets if it is too large."""
        # ask: By targets, and `search` as of `plan_of`
        # plan: Raises `TableTooLarge` for a part that is too large; no part is computed before all are known to fit
        try:
            whole = ask(targets, None)
        except TableTooLarge as error:
            some = list(range(self._plan.n_variables)) if targets is None else sorted(set(targets))
            if len(some) < 2 or some[-1] >= self._plan.n_variables:
                raise
            first = error
        else:
            yield targets, whole
            return
        waiting, parts = [(some, 0)], []
        while waiting:  # questions about fewer variables need less
            part, times = waiting.pop()
            try:
                if times:
                    plan(part)
                    parts.append(part)
                    continue
            except TableTooLarge:
                if times == HALVED or len(part) < 2:
                    raise first.saying(
                        f"{first.message}; it was divided, too: a part about {len(part):,} of the {len(some):,} "
                        "targets is too large"
                    ) from None
            half = len(part) // 2
            waiting += [(part[half:], times + 1), (part[:half], times + 1)]
        for part in parts:
            yield part, ask(part, False)

    def _run(self, evidence: Evidence, targets: Sequence[int] | None, search: bool | None) -> Result:
        left = self.reduce(evidence, targets, apart=True)
        if not len(left.free):
            constant = self.case(left, evidence)[1]
            return Result(self._posterior(left, targets, lambda _: np.ones(1)), left.log_constant + constant)
        first = None if search is False else self.search_first(left, evidence)
        return self._result(left, evidence, first or self._engine(left, search), targets)

    def _result(
        self, left: Reduction, evidence: Evidence, solver: _Engine | Search, targets: Sequence[int] | None
    ) -> Result:
        """The answer about the model from that about what is left."""
        case, constant = self.case(left, evidence, solver.sets)
        if isinstance(solver, Search):
            result = Result(solver.posterior, solver.log_evidence)
        else:
            free, n = None, self._plan.n_variables
            if targets is not None:
                more = [_place(left, solver.sets, self._plan.sets[v - n]) for v in targets if v >= n]
                own = left.inside([*(v for v in targets if v < n), *left.hidden_of(targets)])
                free = [*dict.fromkeys([*own, *(w for w in more if w >= 0)])]
            result = solver.ask(left.tables, lambda backend: backend.run_case(case, free))
        inner = result.posterior[: int(left.n_possible[left.free].sum())]

        def cells(scope: Sequence[int]) -> NDArray[np.float64]:
            return _joint_cells(left, solver, result.posterior, scope)

        return Result(self._posterior(left, targets, cells, inner), result.log_evidence + left.log_constant + constant)

    def case(
        self, left: Reduction, evidence: Evidence, sets: Sequence[Sequence[int]] | None = None
    ) -> tuple[Evidence, float]:
        """The evidence about what is left: weights outside the range of floats; and ln of those of certain states."""
        # sets: of the plan or search of what is left, if there is something
        weights: dict[int, NDArray[np.float64]] = {}
        powers: dict[int, NDArray[np.int64]] = {}
        n, constant = self._plan.n_variables, 0.0
        for v, exponents in exponents_of(evidence).items():
            scope = (v,) if v < n else self._plan.sets[v - n]
            cells = np.ix_(*(left.states(u) for u in scope))
            inner, w = left.inside(scope), -1 if sets is None else _place(left, sets, scope)
            shape = left.n_possible[left.free[list(inner)]].tolist()
            own = inner if sets is None or w < len(left.free) else sets[w - len(left.free)]
            axes = [inner.index(u) for u in own]
            mantissa, power = (
                np.reshape(table, self._plan.cardinality[list(scope)].tolist())[cells].reshape(shape).transpose(axes)
                for table in (evidence.likelihood[v], exponents)
            )
            if w < 0:
                constant += log(float(mantissa)) + int(power) * log(2.0)
            else:
                weights[w] = weights.get(w, 1.0) * mantissa.ravel()
                powers[w] = powers.get(w, 0) + power.ravel()
        nothing = np.full(len(left.free), -1, np.int32)
        return (ExtendedEvidence(nothing, weights, powers) if weights else Evidence(nothing)), constant

    def joint(self, evidence: Evidence, scope: Sequence[int]) -> tuple[NDArray[np.float64], float]:
        """The joint posterior of some variables, by a search, and ln P(evidence)."""
        ascending = sorted(scope)
        left = self._reduced(evidence, scope, families=False, together=ascending)
        cells = np.ones(1)
        log_evidence = left.log_constant + self.case(left, evidence, left.sets if len(left.free) else None)[1]
        if len(left.free):
            search = self.search(left, evidence, MOST_STEPS)
            cells = _joint_cells(left, search, search.posterior, scope)
            log_evidence += search.log_evidence
        return left.table(ascending, cells).transpose([ascending.index(v) for v in scope]), log_evidence

    def _posterior(
        self, left: Reduction, targets: Sequence[int] | None, cells: Callable[[Sequence[int]], NDArray[np.float64]],
        inner: NDArray[np.float64] = _NONE,
    ) -> NDArray[np.float64]:  # fmt: skip
        """The posteriors of the model's variables, and of its sets if some are targets."""
        posterior, n = left.posterior(inner), self._plan.n_variables
        sets = [v for v in targets or () if v >= n]
        if sets:
            ptr = self.cell_ptr
            posterior = np.concatenate([posterior, np.zeros(int(ptr[-1]) - len(posterior))])
            for v in sets:
                scope = self._plan.sets[v - n]
                ascending = sorted(scope)
                table = left.table(ascending, cells(scope)).transpose([ascending.index(u) for u in scope])
                posterior[ptr[v] : ptr[v + 1]] = table.ravel()
        return posterior

    def run(self, table: Table[A]) -> A:
        refuse(self, table, ON_DEVICE)
        if table.deliver is COUNTS:
            return cast("A", self._counted(table))
        targets = table.targets
        columns = columns_of(self.posterior_ptr if targets is None else self.cell_ptr, targets)
        answer = TableAnswer.impossible_cases(table.n, len(columns))
        refused: list[TableTooLarge] = []
        for i, case in self._by_pattern(table, refused):
            with _row(i, refused):
                result = self.run_case(case, targets)
                answer.posterior[i], answer.log_evidence[i] = result.posterior[columns], result.log_evidence
                answer.impossible[i] = False
        return table.delivered(answer)

    def _by_pattern(self, table: Table[Any], refused: Sequence[TableTooLarge]) -> Iterable[tuple[int, Evidence]]:
        """Cases, those that observe the same variables one after the other, equal ones side by side."""
        # refused: errors of cases so far; from then on, only rows before these are of interest
        # raises TableTooLarge: At the end, that of the first row
        states = table.feed.rows()
        for i in sorted(range(len(states)), key=lambda i: ((states[i] >= 0).tobytes(), states[i].tobytes())):
            if not refused or i < refused[-1].row:
                yield i, Evidence(states[i], {v: w[i] for v, w in table.likelihood.items()})
        if refused:
            raise refused[-1]

    def _counted(self, table: Table[Any]) -> CountSums:
        n, scopes, weights = table.n, self._plan.factor_scopes[: self._n_own], table.weights_or_ones
        if self._reducer.noisy:
            raise TableTooLarge("expected counts of noisy variables need their tables; try net.expand(limit=...)")
        families = [np.zeros(self._plan.cardinality[list(s)].tolist()) for s in scopes]
        log_evidence = np.full(n, -np.inf)
        refused: list[TableTooLarge] = []
        for i, case in self._by_pattern(table, refused):
            with _row(i, refused):
                left = self.reduce(case, families=True)
                inner: Sequence[NDArray[np.float64]] = ()
                log_case = left.log_constant
                if len(left.free):
                    engine, row = self._engine(left), np.full((1, len(left.free)), -1, np.int32)
                    counts = engine.ask(left.tables, lambda backend: backend.run(Table.counts(row)))  # noqa: B023
                    if counts.n_impossible:
                        continue
                    inner, log_case = counts.families, log_case + float(counts.log_evidence[0])
                log_evidence[i] = log_case
                for f, scope in enumerate(scopes):
                    home = left.homes.get(f)
                    families[f] += weights[i] * left.table(scope, np.ones(1) if home is None else inner[home])
        return CountSums.of(families, log_evidence, weights)

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        """(n,) ln of the product of all factors, and of the weights of the evidence, at whole configurations."""
        n, sets, reducer = self._plan.n_variables, self._plan.sets, self._reducer
        logs = np.zeros(len(states))
        given = [((v,) if v < n else sets[v - n], w) for v, w in evidence.likelihood.items()]
        with np.errstate(divide="ignore"):
            for scope, table in [*zip(reducer.scopes, reducer.factors, strict=True), *given]:
                cells = np.reshape(table, self._plan.cardinality[list(scope)].tolist())
                logs += np.log(cells[tuple(states[:, v] for v in scope)])
            for child, (parents, noisy) in (reducer.noisy.nodes if reducer.noisy else {}).items():
                logs += noisy.logs_at(states[:, [*parents, child]])
        return logs

    def first_drawn(self, evidence: Evidence) -> list[int] | None:
        """Variables of a sample that the findings depend on, if the others, among them noisy ones, are drawn after."""
        if self._reducer.noisy is None:
            return None
        n, sets = self._plan.n_variables, self._plan.sets
        return self._reducer.ancestral(evidence.state, [(v,) if v < n else sets[v - n] for v in evidence.likelihood])

    def draw_rest(self, states: NDArray[np.int32], uniforms: NDArray[np.float64]) -> None:
        """Draw what is left of a sample, -1, from the model's CPTs."""
        self._reducer.forward(states, uniforms)

    def reload(self, factors: Factors) -> None:
        self._reducer = self._reducer_of(factors)
        self._questions.clear()
        self._searches.clear()

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        return int(self._plan.cardinality.sum())

    def close(self) -> None:
        self._engines.clear()
        self._questions.clear()
        self._searches.clear()


def _ones(left: Reduction, plan: Plan) -> list[NDArray[np.float64]]:
    """The factors of a plan's sets."""
    cards = left.n_possible[left.free]
    return [np.ones(cards[list(scope)].tolist()) for scope in plan.sets]


@contextlib.contextmanager
def _row(i: int, refused: list[TableTooLarge] | None = None) -> Iterator[None]:
    """A case of a table: nothing is done if it is impossible, and the error has its row if it is too large."""
    # refused: where the error goes, if other rows follow
    with contextlib.suppress(ImpossibleEvidence):
        try:
            yield
        except TableTooLarge as error:
            error.row = i
            if refused is None:
                raise
            refused.append(error)


def _of_free(left: Reduction, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Random numbers for the variables that are left, those of hidden ones made of all others of the row."""
    if left.n_hidden:
        more = [np.random.default_rng(row.view(np.uint64)).random(left.n_hidden) for row in uniforms.copy()]
        uniforms = np.hstack([uniforms, np.reshape(more, (len(uniforms), left.n_hidden))])
    return uniforms[:, left.free]


def _place(left: Reduction, sets: Sequence[Sequence[int]], scope: Sequence[int]) -> int:
    """The inner variable or set variable of a set of the model; -1 if no variable of it is left."""
    inner = left.inside(sorted(scope))
    joint = {tuple(sorted(s)): len(left.free) + i for i, s in enumerate(sets)}
    return joint.get(inner, inner[0] if inner else -1)


def _joint_cells(
    left: Reduction, solver: _Engine | Search, posterior: NDArray[np.float64], scope: Sequence[int]
) -> NDArray[np.float64]:
    """The joint posterior of what is left of a set, by ascending variable."""
    w = _place(left, solver.sets, scope)
    if w < 0:
        return np.ones(1)
    begin = int(solver.cards[:w].sum())
    own = solver.sets[w - len(left.free)] if w >= len(left.free) else (w,)
    shape = left.n_possible[left.free[list(own)]].tolist()
    return posterior[begin : begin + int(solver.cards[w])].reshape(shape).transpose(np.argsort(own))


class CheaperQuestions(DelegatingBackend):
    """`Backend` of a model whose tree fits: a question that needs a small part of the work is planned by itself.

    A pattern of findings is examined after its cases have cost many times as much as the examination.
    """

    def __init__(self, backend: Backend, plan: Plan, factors: Factors, make: Make):
        super().__init__(backend)
        self._plan, self._factors, self._make = plan, factors, make
        self._lock = new_lock()
        self._made: QuestionBackend | None = None
        self._spent: LRU[Hashable, int] = LRU(MOST_PATTERNS)  # multiplications of cases; or `_CHEAP`

    @property
    def cell_ptr(self) -> NDArray[np.int64]:
        return self.backend.cell_ptr

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.backend.capabilities, is_adaptive=True)

    def _questions(self) -> QuestionBackend:
        with self._lock:
            if self._made is None:
                limits = QuestionLimits(self._plan.cost().bytes, MAX_TABLE)
                self._made = QuestionBackend(self._plan, self._factors, self._make, limits)
            return self._made

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        if max((*(targets or ()), *evidence.likelihood), default=0) >= self._plan.n_variables:  # of sets
            return self.backend.run_case(evidence, targets)
        seen = evidence.state >= 0
        key = seen.tobytes(), None if targets is None else tuple(targets)
        spent = self._spent.get(key) or 0
        work = self.backend.work(seen, targets)
        enough = LOOK * self._plan.n_variables
        if spent != _CHEAP and spent + work < enough:
            self._spent.put(key, spent + work)
            return self.backend.run_case(evidence, targets)
        questions = self._questions()
        left = questions.reduce(evidence, targets, apart=True)
        is_cheap = questions.is_cheap(left, work / GAIN)
        self._spent.put(key, _CHEAP if is_cheap else -AGAIN * enough)
        return (questions if is_cheap else self.backend).run_case(evidence, targets)

    def hold_case(self, evidence: Evidence, targets: Sequence[int]) -> HeldCase:
        return self.backend.hold_case(evidence, targets)

    def reload(self, factors: Factors) -> None:
        self.backend.reload(factors)
        with self._lock:
            self._factors, self._made = factors, None
            self._spent.clear()


class QuestionSweep:
    """`Sweep` of a model without a plan: each case is reduced first."""

    program: Program

    def __init__(self, questions: QuestionBackend, maximal: bool, make: MakeSweep):
        self._questions, self._maximal, self._make = questions, maximal, make
        self._sweeps: LRU[int, tuple[Reduction, Sweep, Plan]] = LRU(16)

    def _sweep(
        self, evidence: Evidence, targets: Sequence[int] | None = None
    ) -> tuple[Reduction, Sweep | Search | None, Evidence, float]:
        """The reduction of a case, a sweep or search of it, the evidence about it, and ln of all that is certain."""
        left = self._questions.reduce(evidence, targets, expand=self._maximal)

        def make() -> tuple[Reduction, Sweep, Plan]:  # the value holds the reduction, so no other one has this id
            plan = self._questions.plan_of(left)
            program = collect_program(plan, maximal=self._maximal)
            return left, self._make(program, [*left.tables, *_ones(left, plan)]), plan

        solver: Sweep | Search | None = None
        sets: Sequence[Sequence[int]] | None = None
        if len(left.free):
            solver, sets = self._questions.search_first(left, evidence), left.sets
        if len(left.free) and solver is None:
            try:
                _, solver, plan = self._sweeps.get_or_make(id(left), make)
                sets = plan.sets
            except TableTooLarge as error:
                solver = self._questions.search_last(left, evidence, error)
        case, constant = self._questions.case(left, evidence, sets)
        return left, solver, case, left.log_constant + constant

    def best(self, evidence: Evidence, k: int = 1) -> Best:
        left, sweep, case, constant = self._sweep(evidence)
        if sweep is None:
            return Best(left.model_state[None], np.array([constant]))
        if isinstance(sweep, Search):
            if k > 1:
                raise TableTooLarge("the tables of this question are too large for more than one best configuration")
            states, log_value = sweep.best()
            return Best(left.expanded(states[None]), np.array([log_value + constant]))
        best = sweep.best(case, k)
        return Best(left.expanded(best.states), best.log_value + constant)

    def best_rows(self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]) -> Best:
        rows, logs = np.full(states.shape, -1, np.int32), np.full(len(states), -math.inf)
        for i in range(len(states)):
            with _row(i):
                best = self.best(Evidence(states[i], {v: w[i] for v, w in likelihood.items()}))
                rows[i], logs[i] = best.states[0], best.log_value[0]
        return Best(rows, logs)

    def draw(self, evidence: Evidence, n: int, uniforms: Uniforms) -> NDArray[np.int32]:
        made: list[NDArray[np.float64]] = []

        def kept(m: int) -> NDArray[np.float64]:
            made.append(uniforms(m))
            return made[-1]

        first = self._questions.first_drawn(evidence)
        states = self._drawn(evidence, n, uniforms if first is None else kept, first)
        if first is not None:
            self._questions.draw_rest(states, np.concatenate(made) if made else uniforms(n))
        return states

    def _drawn(
        self, evidence: Evidence, n: int, uniforms: Uniforms, first: Sequence[int] | None
    ) -> NDArray[np.int32]:
        """Draw some variables, or all."""
        left, sweep, case, _ = self._sweep(evidence, first)
        if sweep is None:
            return np.tile(left.model_state, (n, 1))
        if isinstance(sweep, Search):
            block = max(1, MOST_NUMBERS // len(left.state))
            numbers = [_of_free(left, uniforms(min(block, n - i))) for i in range(0, n, block)]
            return left.expanded(sweep.draw(np.concatenate([np.zeros((0, len(left.free))), *numbers])))
        return left.expanded(sweep.draw(case, n, lambda m: np.ascontiguousarray(_of_free(left, uniforms(m)))))

    def draw_rows(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], uniforms: Uniforms
    ) -> NDArray[np.int32]:
        drawn = np.full(states.shape, -1, np.int32)
        for i in range(len(states)):
            row = uniforms(1)
            with _row(i):
                case = Evidence(states[i], {v: w[i] for v, w in likelihood.items()})
                drawn[i] = self.draw(case, 1, lambda _, row=row: row)[0]  # type: ignore[misc]
        return drawn

    def derivatives(self, evidence: Evidence) -> Derivatives:
        raise TableTooLarge("derivatives by every parameter need the whole tree, which does not fit")

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        return self._questions.score(states, evidence)
