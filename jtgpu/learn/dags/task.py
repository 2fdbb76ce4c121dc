"""`LearningTask`: checked data and options of `learn.structure` and `learn.posterior`, and the tables they need."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from ...columns.files import files_of, open_cases, require_memory
from ...errors import ArgumentError, DataError, TableTooLarge, format_bytes
from ...model.discrete import DiscreteModel
from ...model.states import listed
from ...options import learning as options
from ...options.compute import Compute
from ...options.tables import CsvDialect, ReadOptions
from ...util.arguments import described, having, several, whole_number
from ...util.arrays import Bools, Floats, Ints
from ...util.calls import outside
from ...util.options import Devices, LearnBackend
from ...util.system import free_memory, parse_bytes
from ...util.text_table import counted
from .best_graph import BestGraph, TimeLimit, best_by_orders
from .candidate_tables import MAX_CANDIDATES, CandidateTables, candidate_tables, choose_candidates, family_weights
from .constraints import ArcLimits, StructurePrior, make_constraints, make_prior, variable_number
from .graphs import start_graph, topological_order
from .scores.coded import DRAWN, CodedTable
from .scores.given_scores import require_kind
from .scores.gpu_device import gpu_can_score
from .scores.numeric_table import NumericTable, table_of
from .scores.ranks import n_parent_sets
from .scores.rules import GIVEN, ScoreFunction, ScoreRule
from .scores.score_table import ScoreTable, learn_backend, score_families, table_of_function

MAX_SCREENED = 30_000_000  # families that are scored to choose candidates
SHARE_OF_SCORING = 0.15  # of a limited time, for each of at most three tables of scores
FIRST_GROWTH, MAX_GROWTH = 3.0, 30.0  # of the time of a family with each parent, until it is measured, and then
CLOCK = 1e-4  # seconds: shorter times are not measured
ENTRIES_A_SECOND = 3_000_000  # of the tables of candidates, of a limited time
SECONDS_OF_CHOICE = 5e-7  # of each screened family, to choose candidates
MAX_WIDE, MAX_WIDE_CELLS = 6_000_000, 500_000_000  # families, and cells of their tables


@dataclass(frozen=True)
class LearningTask:
    """Checked data and options of a search or a posterior."""

    coded: CodedTable
    rule: ScoreRule
    prior: StructurePrior
    constraints: ArcLimits
    table: ScoreTable | None  # scores that the user has computed
    seed: int
    limit: int  # bytes
    threads: int | None
    backend: LearnBackend = "cpu"
    devices: Devices = None
    start: Bools | None = None  # (n, n) graph to start from, [parent, child]
    notes: tuple[str, ...] = ()  # what users should know about the data
    say: Callable[[str], None] = lambda _: None  # takes a line about each stage
    time: TimeLimit = field(default_factory=TimeLimit)
    most_screened: int = 3  # parents of the families that are scored to choose candidates
    most_wide: int = 5  # and of those for outer sets

    @property
    def n(self) -> int:
        """Number of variables."""
        return len(self.coded.names)

    @property
    def first(self) -> Ints | None:
        """The order from which the first chain starts."""
        return None if self.start is None else topological_order(self.start)

    @property
    def most(self) -> int:
        """The largest number of parents."""
        return int(self.constraints.max_parents.max())

    @property
    def has_few_families(self) -> bool:
        """Whether exact methods may score all families even where the caller has chosen no method."""
        return self.n * n_parent_sets(self.n, self.most) <= MAX_SCREENED // 10

    @property
    def screened_size(self) -> int:
        """Largest number of parents of the families that are scored to choose candidates."""
        few = min(self.most, self.most_screened)
        while few > 1 and self.n * n_parent_sets(self.n, few) > MAX_SCREENED:
            few -= 1
        return few

    @property
    def wide_size(self) -> int:
        """Largest number of parents of the families that are scored to choose candidates and outer sets."""
        few = self.screened_size
        if self.rule.name == "bic-cg":  # wider sets are grouped by all sets of their parents with states
            return few
        cells = [1.0, *[0.0] * (self.most_wide + 1)]  # of all sets of 0, 1, 2, ... variables: elementary symmetric sums
        for r in self.coded.cardinality.tolist():
            for size in range(len(cells) - 1, 0, -1):
                cells[size] += r * cells[size - 1]
        while (
            few < min(self.most, self.most_wide)
            and self.n * n_parent_sets(self.n, few + 1) <= MAX_WIDE
            and cells[few + 2] <= MAX_WIDE_CELLS
        ):
            few += 1
        return few

    def number_of_candidates(self, candidates: object, default: int = MAX_CANDIDATES) -> int:
        """Number of candidate parents of each variable."""
        if candidates == "all":
            return self.n - 1
        if candidates != "auto":
            return min(whole_number("candidates", candidates, 1), self.n - 1)
        k = min(default, self.n - 1)
        most = min(self.limit // 16, ENTRIES_A_SECOND * self.time.left)
        while k > 1 and self.n * 2**k > most:
            k -= 1
        return k

    def listed_candidates(self, given: Mapping[str, Iterable[str]]) -> Ints:
        """Candidate parents from lists by name, (n, k)."""
        names, required, n = self.coded.names, self.constraints.required, self.n
        sets = {v: {u for u in range(n) if required[u, v]} for v in range(n)}
        for name, parents in given.items():
            listed = several(parents)
            if listed is None:
                raise ArgumentError(f"the candidates of {name!r} must be a list of variables, not {described(parents)}")
            v = variable_number(names, name)
            own = {variable_number(names, u) for u in listed} - {v}
            if missing := sorted(sets[v] - own):
                raise ArgumentError(
                    f"the required arc {names[missing[0]]!r} -> {name!r} is excluded by candidates, which do not list "
                    f"{names[missing[0]]!r} for {name!r}"
                )
            sets[v] = own
        k = max(max(map(len, sets.values())), 1)
        return np.array([[*sorted(sets[v]), *[-1] * (k - len(sets[v]))] for v in range(n)], np.int64)

    def restricted(self, candidates: object) -> LearningTask:
        """The task whose constraints exclude parents that are not listed; a number of candidates excludes nothing."""
        if not isinstance(candidates, Mapping):
            self.number_of_candidates(candidates)  # checked, though exact posteriors do not depend on it
            return self
        possible = np.eye(self.n, dtype=np.bool_)
        for v, row in enumerate(self.listed_candidates(candidates)):
            possible[row[row >= 0], v] = True
        constraints = replace(self.constraints, forbidden=self.constraints.forbidden | ~possible)
        return replace(self, constraints=constraints)

    def all_others(self) -> Ints:
        """All other variables of each as its candidates, (n, n - 1)."""
        return np.array([[u for u in range(self.n) if u != v] for v in range(self.n)], np.int64)

    def scores(self, max_parents: int) -> ScoreTable:
        """The scores of all families of up to so many parents, from the user's table if it has them."""
        most = min(max_parents, self.n - 1)
        self.say(f"scoring {self.n * n_parent_sets(self.n, most):,} families")
        begin = perf_counter()
        if self.table is not None and self.table.max_parents >= most:
            scores = self.table.with_max_parents(max_parents)
        else:
            scores = self._score(max_parents)
        seconds = max(perf_counter() - begin, 1e-9)
        self.say(f"{len(scores):,} families scored, {len(scores) / seconds:,.0f} a second; selecting candidate parents")
        return scores

    def _score(self, max_parents: int) -> ScoreTable:
        backend = self.backend
        only_cpu = self.coded.has_gaps or self.coded.interventions is not None
        if backend == "gpu" and (only_cpu or not gpu_can_score(self.rule, max_parents)):
            backend = "cpu"
        return score_families(
            self.coded, self.rule, max_parents, memory_limit=self.limit, threads=self.threads, backend=backend,
            devices=self.devices,
        )  # fmt: skip

    def family_weights(self, scores: ScoreTable) -> Floats:
        """Scores with the prior and the constraints."""
        return family_weights(scores, self.prior, self.constraints)

    def screened_candidates(self, scores: ScoreTable, constraints: ArcLimits, k: int) -> Ints:
        """Candidate parents by the scores of all small families."""
        # required arcs do not restrict the screening: a child may need more parents than are screened
        free = ArcLimits(constraints.forbidden, np.zeros_like(constraints.required), constraints.max_parents)
        return choose_candidates(family_weights(scores, self.prior, free), scores.max_parents, k, constraints)

    def tables(self, candidates: Ints) -> CandidateTables:
        """The weights of all parent sets within candidates."""
        return candidate_tables(
            self.coded, self.rule, self.prior, self.constraints, candidates, self.most, memory_limit=self.limit,
            threads=self.threads, given=self.table if self.rule.name == GIVEN else None,
        )  # fmt: skip

    def best(self, tables: CandidateTables) -> BestGraph:
        """A graph of high weight, by search."""
        return best_by_orders(
            tables, self.constraints, seed=self.seed, threads=self.threads, first=self.first, limit=self.time
        )

    def in_time(self) -> LearningTask:
        """The task with as many parents, screened and searched, as the time allows by the pace of small families."""
        if not self.time.is_set or self.table is not None or self.n < 2:
            return self
        begin = monotonic()
        self._score(0)  # what does not depend on the number of families
        base, budget = monotonic() - begin, SHARE_OF_SCORING * self.time.left
        paces, growth = [0.0], FIRST_GROWTH  # seconds of a family, by its number of parents

        def fits(n: int, size: int) -> bool:
            pace = paces[-1] * growth ** max(size + 1 - len(paces), 0)
            return self.n * n_parent_sets(n, min(size, n - 1)) * (pace + SECONDS_OF_CHOICE) <= budget

        while len(paces) == 1 or (len(paces) < self.screened_size and fits(self.n, len(paces))):
            begin, size = monotonic(), len(paces)
            self._score(size)
            n_families = self.n * n_parent_sets(self.n, min(size, self.n - 1))
            paces.append(max(monotonic() - begin - base, CLOCK) / n_families)
            growth = min(max(paces[-1] / paces[-2], 1.0), MAX_GROWTH) if size > 1 else growth
        few, wide, k = self.most, self.most_wide, min(MAX_CANDIDATES, self.n - 1)
        while few > 1 and not fits(k + 1, few):
            few -= 1
        while wide > 1 and not fits(self.n, wide):
            wide -= 1
        needed = self.constraints.required if self.start is None else self.constraints.required | self.start
        limits = np.minimum(self.constraints.max_parents, np.maximum(few, needed.sum(axis=0)))
        if (limits < self.constraints.max_parents).any():
            warnings.warn(
                f"at most {counted(few, 'parent')} of a variable, not {self.most}, because of the time limit; "
                "give more time",
                stacklevel=outside(),
            )
        return replace(
            self, constraints=replace(self.constraints, max_parents=limits),
            most_screened=min(wide, self.most_screened), most_wide=wide,
        )  # fmt: skip


def learning_task(  # noqa: PLR0913
    data: object, *, score: str | ScoreFunction, ess: float, graph_prior: object, max_parents: Any, states: object,
    continuous: object, missing: str, weights: object, interventions: object, seed: int, seconds: float | None,
    constraints: options.Constraints, search: options.Search, read: ReadOptions, compute: Compute,
) -> LearningTask:  # fmt: skip
    """Read and check the arguments that `learn.structure` and `learn.posterior` have in common; called by them only."""
    backend = learn_backend(compute)
    until = TimeLimit.of(seconds)
    rule, seed = ScoreRule(GIVEN if callable(score) else score, ess), whole_number("seed", seed, 0, 2**63 - 1)
    threads = None if compute.threads is None else whole_number("threads", compute.threads, 1)
    limit = int(0.8 * free_memory()) if compute.memory_limit is None else parse_bytes(compute.memory_limit)
    if states is None:
        require_feasible(data, compute.memory_limit, until, read)
    coded = table_of(  # its warnings name the line of the caller of `learn.structure`
        data, rule, continuous, states=states, missing=missing, weights=weights, read=read,
        interventions=interventions,
    )  # fmt: skip
    require_kind(coded, rule)
    if missing not in DRAWN:
        rule.require_scorable(coded.has_gaps)
    prior = make_prior(graph_prior, len(coded.names))
    possible = make_constraints(
        coded.names, max_parents, forbidden=constraints.forbidden, required=constraints.required,
        tiers=constraints.tiers, within_tiers=constraints.within_tiers, left_out=coded.left_out,
    )  # fmt: skip
    if isinstance(coded, NumericTable):
        possible = without_numeric_parents(possible, coded)
    table = search.scores
    if callable(score):
        if table is not None:
            raise ArgumentError("score is a function and scores= has scores; give one of them")
        table = table_of_function(coded, score, int(possible.max_parents.max()), memory_limit=limit)
    if table is not None:
        require_same(table, coded, rule)
    graph = start_graph(search.start, coded.names, possible)
    return LearningTask(
        coded, rule, prior, possible, table, seed, limit, threads, backend, compute.devices, graph, time=until
    ).in_time()


def require_feasible(
    data: object, memory_limit: float | str | None = None, time: TimeLimit | None = None,
    dialect: CsvDialect | None = None,
) -> None:
    """Refuse a file above the limit, and so many columns that not even their pairs can be scored, before it is read."""
    if files := files_of(data):
        sources = [open_cases(file, DiscreteModel({}), dialect) for file in files]
        if memory_limit is not None:
            require_memory(sources, parse_bytes(memory_limit), "is the limit (memory_limit, --memory-limit)")
        n = len(sources[0].columns)
    else:
        shape: tuple[Any, ...] = getattr(data, "shape", ())
        n = len(data) if isinstance(data, Mapping) else int(shape[1]) if len(shape) == 2 else 0
    limit = int(0.8 * free_memory()) if memory_limit is None else parse_bytes(memory_limit)
    seconds, left = n * n * SECONDS_OF_CHOICE, (time or TimeLimit()).left
    if 8 * n * n > limit:
        raise TableTooLarge(
            f"the table has {n:,} columns: the scores of their pairs need {format_bytes(8 * n * n)}, more than the "
            f"limit of {format_bytes(limit)}; learn from fewer columns",
            n * n, 8 * n * n, limit,
        )  # fmt: skip
    if seconds > left:
        raise ArgumentError(
            f"{left:.2g} s are left of seconds=, and the {n * n:,} pairs of {n:,} columns alone need about "
            f"{seconds:,.3g} s; give more time, or learn from fewer columns"
        )


def without_numeric_parents(constraints: ArcLimits, table: NumericTable) -> ArcLimits:
    """The constraints that also forbid arcs from numbers to variables with states."""
    forbidden = table.is_number[:, None] & ~table.is_number[None, :]
    both = np.argwhere(forbidden & constraints.required)
    if len(both):
        u, v = (table.names[i] for i in both[0])
        raise ArgumentError(
            f"the required arc {u!r} -> {v!r} leads from a number to a variable with states; make intervals of {u!r} "
            "(jtgpu.learn.discretise), or require the reverse"
        )
    return replace(constraints, forbidden=constraints.forbidden | forbidden)


def require_same(table: ScoreTable, coded: CodedTable, rule: ScoreRule) -> None:
    """Reject a score table of other data, or of another score."""
    having("scores", table, "with_max_parents", "a ScoreTable, which jtgpu.learn.score_table makes")
    if not table.digest and table.names != coded.names:  # from a file, without data
        raise DataError(
            f"the score table has the variables {listed(table.names)}; the columns of the data must be these, in this "
            f"order, and are {listed(coded.names)}"
        )
    if table.digest and table.digest != coded.digest:
        raise DataError("the score table was made from other data (rows, states, weights or names of columns)")
    if table.rule != rule:
        raise ArgumentError(f"the score table has the score {table.rule}, not {rule}")
