"""Sources of a `StructurePosterior`: the exact posterior of few variables, and Markov chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..best_graph import BestGraph
from ..chains.diagnostics import effective_samples
from ..chains.engines import TemperedChains
from ..chains.partitions import MOVES, parts_of
from ..chains.runs import MAX_STEPS, ChainRun, Estimate, Stop
from .averaging import MAX_ENUMERATED, PROPERTIES, exact_properties
from .facts import Facts
from .result import StructurePosterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidate_tables import CandidateTables
    from ..exact.posteriors import ExactPosterior
    from ..scores.coded import CodedTable
    from ..structure import Structure

GROUPS = 20  # of independent draws, whose spread gives standard errors
DRAWS = 2000
MANY_DRAWS = 20_000  # for properties of whole graphs, whose standard error is then at most 0.0036
MIN_COVERAGE = 0.99
MAX_SETS = 1000  # parent sets of a variable that are listed


class Given(NamedTuple):
    """What a posterior belongs to."""

    table: CodedTable
    tables: CandidateTables
    best: Structure  # the graph of the highest weight
    structure_of: Callable[[BestGraph], Structure]  # makes a `Structure` of another graph
    prior: str
    ess: float  # equivalent sample size of CPTs
    seed: int
    threads: int | None
    notes: tuple[str, ...] = ()


class Covered(NamedTuple):
    """Parent sets that chains sum."""

    parents: NDArray[np.int64]  # (n, m) ndarray of int64: Possible parents; -1 where there are fewer
    # (n,) ndarray of float64 or None: Shares of the posterior of each variable's parents that are summed; None: 1
    shares: NDArray[np.float64] | None
    by_lists: bool  # whether other parents are impossible

    def summary(self, names: Sequence[str]) -> tuple[float | None, str]:
        """The least share, and a warning if it is low."""
        if self.shares is None:
            return None, ""
        v = int(self.shares.argmin())
        share = float(self.shares[v])
        if self.by_lists or share >= MIN_COVERAGE:
            return share, ""
        return share, (
            f"the sums cover {share:.3f} of the posterior of the parents of {names[v]!r}; try more candidates, or "
            f"prior='fair', which weighs large parent sets less"
        )


class ExactSource:
    """Graphs are drawn independently when they are needed; parent sets are exact."""
    # draw: Draws a number of graphs, (D, n) bits of the candidates
    # by_orders: Whether graphs weigh more, the more orders they allow
    # drawn: (DRAWS, n) ndarray of int64: What it returned for `DRAWS`

    def __init__(
        self, given: Given, exact: ExactPosterior, draw: Callable[[int], NDArray[np.int64]], by_orders: bool,
        drawn: NDArray[np.int64] | None = None,
    ):  # fmt: skip
        self._given, self._exact, self._draw, self._by_orders = given, exact, draw, by_orders
        n = len(given.table.names)
        self._drawn = (np.empty((0, n), np.int64) if drawn is None else drawn).reshape(-1, GROUPS, n)

    def graphs(self, n: int | None = None) -> NDArray[np.int64]:
        wanted = -(-max(n or 0, DRAWS) // GROUPS)
        if len(self._drawn) != wanted:
            self._drawn = self._draw(wanted * GROUPS).reshape(wanted, GROUPS, -1)
        return self._drawn

    def property_of_graphs(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `jtgpu.learn.dags.posterior.facts.Source`: exact for few variables, else of many draws."""
        tables = self._given.tables
        if len(tables.candidates) <= MAX_ENUMERATED:
            found = exact_properties(tables, self._by_orders)[name]
            return found, np.zeros_like(found)
        graphs = self._draw(MANY_DRAWS).reshape(-1, GROUPS, len(tables.candidates))
        return PROPERTIES[name](graphs, tables.candidates)

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        p, own = self._exact.families[v], self._given.tables.candidates[v]
        first = np.argsort(-p, kind="stable")[:MAX_SETS].tolist()
        masks = self._given.tables.masks
        return [
            (tuple(int(u) for j, u in enumerate(own) if masks[i] >> j & 1), float(p[i]), 0.0) for i in first if p[i] > 0
        ]

    def more(self, steps: int | None, seconds: float | None) -> StructurePosterior:
        """The same posterior: it is exact."""
        return self.posterior()

    def posterior(self) -> StructurePosterior:
        """The posterior with exact probabilities of arcs."""
        given, families = self._given, self._exact.families
        n = len(given.table.names)
        arcs = np.zeros((n, n))
        for v in range(n):
            for j, u in enumerate(given.tables.candidates[v]):
                arcs[u, v] = min(float(families[v, given.tables.masks >> j & 1 > 0].sum()), 1.0)
        facts = Facts("exact", given.prior, self._exact.log_evidence, notes=given.notes)
        return StructurePosterior(
            given.table, arcs, np.zeros((n, n)), given.best, facts, self, of_candidates=given.tables.candidates,
            trace=np.empty((0, 0)), ess=given.ess, seed=given.seed,
        )  # fmt: skip


class ChainSource:
    """Graphs and probabilities are those that chains have visited."""

    def __init__(
        self, given: Given, covered: Covered, run: ChainRun, tolerance: float,
        after_round: Callable[[ChainRun, Estimate, bool], None] | None,
    ):  # fmt: skip
        self._given, self._covered, self._run, self._tolerance = given, covered, run, tolerance
        self._after_round = after_round

    def graphs(self, n: int | None = None) -> NDArray[np.int64]:
        return self._run.kept_graphs()

    def property_of_graphs(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return PROPERTIES[name](self.graphs(), self._covered.parents)

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        """None: they are estimated from the graphs."""
        return None

    def more(self, steps: int | None, seconds: float | None) -> StructurePosterior:
        """Continue the chains."""
        done = self._run.state.n_steps
        tolerance = self._tolerance if steps is None else 0.0
        stop = Stop(tolerance, done + (MAX_STEPS if steps is None else steps), np.inf if seconds is None else seconds)
        return self.advance(stop)

    def advance(self, stop: Stop) -> StructurePosterior:
        """Run the chains until a limit is reached."""
        estimate, _ = self._run.advance(stop, self._after_round)
        return self.posterior(estimate)

    def posterior(self, estimate: Estimate) -> StructurePosterior:
        """The posterior that the chains estimate."""
        given, run = self._given, self._run
        names, own, dense = given.table.names, self._covered.parents, given.tables.candidates
        traces = run.traces()
        moves = None
        if run.engine.counts_moves:
            counts = run.state.moves.sum(axis=0)
            moves = {name: float(done / max(tried, 1)) for name, (tried, done) in zip(MOVES, counts, strict=True)}
        candidates = None
        if dense.shape[1] < len(names) - 1:
            candidates = {v: [names[u] for u in row if u >= 0] for v, row in zip(names, dense, strict=True)}
        best = given.best
        if run.best_weight > best.log_weight + 1e-9:
            parents = [[int(u) for j, u in enumerate(own[v]) if run.best[v] >> j & 1] for v in range(len(names))]
            order = np.argsort(parts_of(run.best, own), kind="stable")
            best = given.structure_of(BestGraph(parents, order, run.best_weight))
        facts = Facts(
            run.engine.name, given.prior, None, run.is_precise(estimate, self._tolerance), estimate.r_hat,
            effective_samples(traces) if traces.size else 0.0, estimate.max_difference, run.state.n_steps,
            len(run.state.arcs), estimate.n_samples, *self._covered.summary(names), candidates, moves,
            (*given.notes, *run.notes),
        )  # fmt: skip
        facts = facts._replace(shortfall=run.shortfall(estimate, self._tolerance))
        if isinstance(run.state, TemperedChains):
            facts = facts._replace(betas=run.state.betas.tolist(), swap_rates=run.state.swap_rates().tolist())
        return StructurePosterior(
            given.table, estimate.arcs, estimate.errors, best, facts, self, of_candidates=own,
            trace=run.traces(burned=False), ess=given.ess, seed=given.seed,
        )  # fmt: skip
