"""The posterior over structures of a table with gaps: empty cells are drawn together with the graphs.

Each chain has a graph and a filled table. A step scores the filled table, runs a chain over partitions from its graph,
draws CPTs given graph and table, and the gaps given these (Tanner and Wong, 1987; Riggelsen and Feelders, AISTATS
2005). All of them leave the posterior of graphs, CPTs and cells as it is.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import ArgumentError, DataError
from ....model.network import BayesianNetwork
from ....util.arrays import Bools, Floats, Ints
from ....util.calls import outside
from ..best_graph import BestGraph
from ..chains import partitions
from ..chains.diagnostics import MAX_R_HAT, effective_samples, r_hat, standard_errors
from ..chains.run import ONE, Stop
from ..graphs import adjacency, topological_order
from ..scores.coded import NO_STATE
from ..scores.numeric_table import NumericTable
from ..set_tables import set_tables
from ..task import LearningTask
from .averaging import PROPERTIES, arcs_of
from .records import Diagnostics, MissingCells, PosteriorRecord, data_summary
from .result import StructurePosterior

SCORES = ("bdeu", "k2", "bdj")  # marginal likelihoods of a Dirichlet prior, from which CPTs are drawn
CHAINS = 4
CHECK = 10  # steps between two looks at the estimates
LEAST, MOST = 40, 1000  # steps of a chain
FEW = 12  # variables besides a child all of which are candidate parents
MAX_CANDIDATES = 10  # of more, chosen from tables that were filled a few times; each doubles the time of a step
SCREENED = 2  # steps that choose candidates
GRAPHS_OF_STEP = 500  # that a chain over partitions draws in every step
SEARCHES = 2  # steps of a chain that start from a good graph of the filled table
SWEEPS = 2  # of a step: each gap is drawn given the rest of its row
EXACT_EVERY, EXACT_ROWS = 3, 1000  # steps after which all gaps of a row are drawn together, of so many rows
SMALL = 200_000  # cells of a table that one thread scores as fast as several
COMMON = 0.01  # arcs with a probability below it, or above 1 minus it, have no R-hat


class _Chain:
    """A graph and a filled table, and those of the steps before."""

    def __init__(self, task: LearningTask, number: int):
        self.task = replace(task, threads=1) if task.coded.codes.size < SMALL else task
        self.gaps = task.coded.codes == NO_STATE
        self.rng = np.random.default_rng([task.seed, number])
        self.codes = task.coded.codes.copy()
        for v, own in enumerate(self.gaps):  # independently of each other, by the known cells
            self.codes[v, own] = self.rng.choice(self.codes[v, ~own], int(own.sum()))
        self.arcs = task.constraints.required.copy()
        self.steps: list[_Step] = []

    @property
    def filled(self) -> LearningTask:
        """The task with the filled table."""
        return replace(self.task, coded=replace(self.task.coded, codes=self.codes))

    def step(self, candidates: Ints | None) -> None:
        """Draw a graph, CPTs and the gaps."""
        task = self.filled
        tables = task.tables(screened(task, self.arcs) if candidates is None else candidates)
        if len(self.steps) < SEARCHES:
            self.arcs = adjacency(task.best(tables).parents)
        start = np.where(self.arcs, tables.bit_in, 0).sum(axis=0)
        state = partitions.start_chains(start[None], tables.candidates)
        sampler = partitions.PartitionSampler(set_tables(tables, threads=task.threads), int(self.rng.integers(1 << 62)))
        thin = max(task.n // 2, 1)
        state, block = partitions.run_chains(sampler, state, GRAPHS_OF_STEP * thin, thin, threads=1)
        self.arcs = arcs_of(state.parents[0], tables.candidates)
        shares = state.arcs[0].astype(np.float64) / (ONE * state.n_samples)
        families, cpts = drawn_cpts(task, self.arcs, self.rng)
        for _ in range(SWEEPS):
            self._sweep(families, cpts)
        if len(self.steps) % EXACT_EVERY == 0:
            self._fill(families, cpts)
        self.steps.append(_Step(shares, self.arcs, self.codes[self.gaps], float(block.trace[0, -1])))

    def _sweep(self, families: list[list[int]], cpts: list[Floats]) -> None:
        """Draw each gap given all other cells of its row."""
        self.codes = self.codes.copy()
        for v in np.flatnonzero(self.gaps.any(axis=1)).tolist():
            rows = np.flatnonzero(self.gaps[v])
            p = np.ones((len(rows), cpts[v].shape[-1]))
            for family, cpt in zip(families, cpts, strict=True):
                if v in family:
                    others = tuple(self.codes[u, rows] for u in family if u != v)
                    p *= np.moveaxis(cpt, family.index(v), -1)[others]
            ends = np.cumsum(p, axis=1)
            drawn = (ends <= self.rng.random(len(rows))[:, None] * ends[:, -1:]).sum(axis=1)
            possible = ends[:, -1] > 0  # else too small for numbers: the cells stay as they are
            self.codes[v, rows[possible]] = np.minimum(drawn[possible], p.shape[1] - 1)

    def _fill(self, families: list[list[int]], cpts: list[Floats]) -> None:
        """Draw all gaps of a row together, exactly, given its other cells: of some rows if there are many."""
        table = self.task.coded
        net = BayesianNetwork(
            dict(zip(table.names, table.states, strict=True)),
            {table.names[family[-1]]: [table.names[u] for u in family[:-1]] for family in families},
            dict(zip(table.names, cpts, strict=True)),
        )  # fmt: skip
        some = np.flatnonzero(self.gaps.any(axis=0))
        if len(some) > EXACT_ROWS:
            some = np.sort(self.rng.choice(some, EXACT_ROWS, replace=False))
        rows = np.where(self.gaps[:, some], -1, self.codes[:, some].astype(np.int32)).T
        with net.compile("cpu", threads=self.task.threads) as tree:
            drawn = tree.impute(np.ascontiguousarray(rows), seed=int(self.rng.integers(1 << 62))).states
        self.codes[:, some] = drawn.T


class _Step(NamedTuple):
    """The draws of a step of a chain."""

    shares: Floats  # (n, n) of each arc among the graphs of the chain over partitions
    arcs: Bools  # (n, n)
    cells: NDArray[np.uint8]  # states of the gaps
    log_weight: float


def screened(task: LearningTask, arcs: Bools) -> Ints:
    """Candidate parents of all variables, those of a graph among them."""
    if task.n - 1 <= FEW:
        return task.all_others()
    needed = task.constraints.requiring(arcs)
    k = max(MAX_CANDIDATES, int(needed.required.sum(axis=0).max()))
    return task.screened_candidates(task.scores(task.screened_size), needed, k)


def drawn_cpts(task: LearningTask, arcs: Bools, rng: np.random.Generator) -> tuple[list[list[int]], list[Floats]]:
    """The families of a graph, parents first, and CPTs from their posterior given a filled table."""
    table = task.coded
    families, cpts = [], []
    cards, columns = table.cardinality.tolist(), table.codes.astype(np.int64)
    for v in range(task.n):
        family = [*np.flatnonzero(arcs[:, v]).tolist(), v]
        shape = [cards[u] for u in family]
        counts = np.bincount(np.ravel_multi_index([*columns[family]], shape), minlength=math.prod(shape))
        prior = task.rule.score.pseudo_counts(task.rule.ess)
        cells = rng.standard_gamma(counts + (prior / len(counts) if task.rule.name == "bdeu" else prior))
        rows = cells.reshape(-1, shape[-1])
        faint = ~(rows.sum(axis=1) > 0)  # a row without cases whose pseudo-counts are tiny: one state has everything
        rows[faint] = np.eye(shape[-1])[rng.integers(shape[-1], size=int(faint.sum()))]
        cpts.append((rows / rows.sum(axis=1, keepdims=True)).reshape(shape))
        families.append(family)
    return families, cpts


class AugmentedSource:
    """Graphs of chains that draw the gaps of the table, too."""

    def __init__(self, task: LearningTask, n_chains: int, tolerance: float, rows: Ints):
        # rows: of the data, of each row of the task's table
        self._task, self._tolerance, self._rows = task, tolerance, rows
        self._candidates: Ints | None = None  # of many variables, chosen once
        self._chains = [_Chain(task, c) for c in range(n_chains)]

    @property
    def _used(self) -> list[list[_Step]]:
        """The steps after the burn-in of each chain."""
        return [chain.steps[len(chain.steps) // 4 :] for chain in self._chains]

    def graphs(self, n: int | None = None) -> Ints:
        arcs, parents = np.array([[s.arcs for s in steps] for steps in self._used]), self._parents
        bits = np.where(parents >= 0, np.int64(1) << np.arange(parents.shape[1]), 0)
        members = np.take_along_axis(arcs.swapaxes(-1, -2), np.maximum(parents, 0)[None, None], axis=-1)
        return np.ascontiguousarray((members * bits).sum(axis=-1).swapaxes(0, 1))

    @property
    def _parents(self) -> Ints:
        return self._task.all_others() if self._candidates is None else self._candidates

    def property_of_graphs(self, name: str) -> tuple[Floats, Floats]:
        return PROPERTIES[name](self.graphs(), self._parents)

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        """None: they are estimated from the graphs."""
        return None

    def more(self, steps: int | None, seconds: float | None) -> StructurePosterior:
        """Continue the chains."""
        source = copy.deepcopy(self)
        return source.advance(MOST if steps is None else steps, seconds, self._tolerance if steps is None else 0.0)

    def advance(self, steps: int, seconds: float | None, tolerance: float) -> StructurePosterior:
        """Run the chains until the estimates are precise, for so many steps or seconds at most."""
        end, first = monotonic() + (math.inf if seconds is None else seconds), len(self._chains[0].steps)
        if self._candidates is None and self._task.n - 1 > FEW:
            guide = copy.deepcopy(self._chains[0])
            for _ in range(SCREENED):
                guide.step(None)
            self._candidates = screened(guide.filled, guide.arcs | self._task.constraints.required)
        for done in range(first + 1, first + steps + 1):
            for chain in self._chains:
                chain.step(self._candidates if self._candidates is not None else self._task.all_others())
            if monotonic() > end:
                break
            if done % CHECK == 0 and done >= LEAST:
                means, rhat = self._estimates()
                error = float(standard_errors(means).max())
                reached = f"largest standard error {error:.4f}, R-hat {rhat:.3f}"
                self._task.say(f"{done:,} steps of {len(means)} chains; {reached}")
                if error <= tolerance and rhat <= MAX_R_HAT:
                    break
        return self.posterior()

    def _estimates(self) -> tuple[Floats, float]:
        """Probability of each arc in each chain, (C, n, n), and the largest R-hat."""
        shares = np.array([[s.shares for s in steps] for steps in self._used])
        means = shares.mean(axis=1)
        p = means.mean(axis=0)
        traces = [shares[:, :, u, v] for u, v in np.argwhere((p > COMMON) & (p < 1.0 - COMMON))]
        return means, max(r_hat(x) for x in [self._trace(), *traces])

    def _trace(self) -> Floats:
        return np.array([[s.log_weight for s in steps] for steps in self._used])

    def _cells(self) -> MissingCells:
        drawn = np.concatenate([[s.cells for s in steps] for steps in self._used])
        columns, rows = np.nonzero(self._chains[0].gaps)
        card = int(self._task.coded.cardinality.max())
        shares = np.stack([(drawn == s).mean(axis=0) for s in range(card)], axis=1)
        return MissingCells(self._task.coded.names, self._rows[rows], columns, shares)

    def posterior(self) -> StructurePosterior:
        """The posterior that the chains estimate."""
        means, rhat = self._estimates()
        arcs, errors, chain = means.mean(axis=0), standard_errors(means), self._chains[0]
        visited = {s.arcs.tobytes(): s.arcs for steps in self._used for s in steps}
        best = max(visited.values(), key=lambda graph: float((arcs - 0.5)[graph].sum()))  # the fewest expected errors
        task = chain.filled
        tables = task.tables(self._parents)
        bits = np.where(best, tables.bit_in, 0).sum(axis=0)
        weight = math.fsum(float(tables.log_weights[v, tables.masks == bits[v]][0]) for v in range(task.n))
        members = [np.flatnonzero(column).tolist() for column in best.T]
        summary = data_summary(task, tables, BestGraph(members, topological_order(best), weight), "augment")
        error, half = float(errors.max()), len(means) // 2
        shortfall = [f"a standard error of {error:.3f} is above {self._tolerance:g}"] if error > self._tolerance else []
        shortfall += [f"R-hat {rhat:.3f} is above {MAX_R_HAT}"] if rhat > MAX_R_HAT else []
        n_steps = len(chain.steps)
        difference = float(np.abs(means[:half].mean(axis=0) - means[half:].mean(axis=0)).max())
        diagnostics = Diagnostics(
            "augmentation", summary.prior, None, not shortfall, rhat, effective_samples(self._trace()), difference,
            n_steps, len(means), len(means) * len(self._used[0]), notes=(NOTE,), shortfall=shortfall,
        )  # fmt: skip
        trace = np.array([[s.log_weight for s in c.steps] for c in self._chains])
        record = PosteriorRecord(
            task.coded, arcs, errors, summary.best, diagnostics, self._parents, trace, summary.ess, task.seed,
        )  # fmt: skip
        made = StructurePosterior(record, self)
        made.cells = self._cells()
        return made


NOTE = "missing cells were drawn together with the graphs, given the other cells of their rows: they miss at random"


def augmented_posterior(task: LearningTask, n_chains: int, stop: Stop, steps: int | None) -> StructurePosterior:
    """The posterior of a table with gaps."""
    table, rule = task.coded, task.rule
    if isinstance(table, NumericTable) or rule.name not in SCORES:
        raise ArgumentError(f"missing='augment' requires a score of states, {', '.join(SCORES)}, not {rule.name!r}")
    if table.interventions is not None or task.table is not None or task.prior.name == "order":
        raise ArgumentError("missing='augment' takes no interventions, no scores= and no graph_prior='order'")
    unknown = np.flatnonzero((table.codes == NO_STATE).all(axis=1))
    if len(unknown):
        raise DataError(f"column {table.names[unknown[0]]!r} has no known cell")
    rows = np.arange(table.codes.shape[1])
    if table.weights is not None:  # each case has gaps of its own
        rows = np.repeat(rows, table.weights)
        task = replace(task, coded=replace(table, codes=table.codes[:, rows], weights=None))
    source = AugmentedSource(task, n_chains, stop.tolerance, rows)
    made = source.advance(steps or MOST, stop.seconds, stop.tolerance)
    if not made.converged:
        warnings.warn(
            f"the chains have not converged: {'; '.join(made.shortfall)}; continue with posterior.more()",
            UserWarning, stacklevel=outside(),
        )  # fmt: skip
    return made
