"""The posterior of a task by chains: their parent sets and first states, checkpoints and progress."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import ArgumentError, NetworkError
from ....util.arguments import whole_number
from ....util.arrays import Floats, Ints
from ....util.calls import outside
from ....util.elementary import log
from ...state_file import StateFile
from ..best_graph import BestGraph, graph_of_order
from ..candidate_tables import CandidateTables
from ..chain_records import SetTables
from ..chains import orders, partitions
from ..chains.blocks import BlockMover
from ..chains.diagnostics import Estimate, effective_samples
from ..chains.gpu_movers import GpuOrderMover, GpuPartitionMover
from ..chains.movers import ClusterMover, Mover, OrderMover, PartitionMover, TemperedMover
from ..chains.run import MAX_STEPS, ChainRun, Stop
from ..graphs import adjacency
from ..set_tables import covered_shares, outer_sets, set_tables, table_bytes
from ..structure import named_candidates
from ..task import LearningTask
from .averaging import PROPERTIES
from .records import CandidateCoverage, DataSummary, Diagnostics, PosteriorRecord, data_summary
from .result import StructurePosterior

MAX_CANDIDATES = 12  # by default; of the search for the best graph: 16


@dataclass(frozen=True)
class ChainSets:
    """Parent sets of chains."""

    tables: CandidateTables
    best: BestGraph
    chain_tables: SetTables
    # shares of the posterior of each variable's parents that are summed, (n,), given some orders; None: all sets are
    coverage: Callable[[Ints], Floats] | None
    by_lists: bool  # whether the candidates were given by name, so that other parents are impossible
    notes: tuple[str, ...]


def chain_sets(task: LearningTask, candidates: Any) -> ChainSets:
    """Select candidates and outer sets: they do not depend on the seed."""
    n, limit, threads = task.n, task.limit, task.threads
    k, notes = 0, tuple[str, ...]()
    if not isinstance(candidates, Mapping):
        k, notes = _number(task, candidates)
    if k == n - 1:
        tables = task.tables(task.all_others())
        chain_tables = set_tables(tables, memory_limit=limit, threads=threads)
        return ChainSets(tables, task.best(tables), chain_tables, None, False, notes)
    by_lists = k == 0
    size = task.screened_size if by_lists else task.wide_size
    scores = task.scores(size)
    rows = task.family_weights(scores)
    if by_lists:
        chosen, outer = task.listed_candidates(candidates), None
        tables = task.tables(chosen)
        best = task.best(tables)
    else:
        few, constraints = scores.with_max_parents(task.screened_size), task.constraints
        more = max(task.number_of_candidates("auto"), k)
        best = task.best(task.tables(task.screened_candidates(few, constraints, more)))
        # chains over orders first run on candidates alone: they have to find the region of the best graph
        wanted = constraints.requiring(adjacency(best.parents))
        k = max(k, int(wanted.required.sum(axis=0).max()))
        chosen = task.screened_candidates(few, wanted, k)
        outer = outer_sets(rows, scores.max_parents, chosen, threads)
        tables = task.tables(chosen)
    chain_tables = set_tables(tables, outer, memory_limit=limit, threads=threads)

    def coverage(some: Ints) -> Floats:
        return covered_shares(rows, scores.max_parents, chosen, outer, some)

    return ChainSets(tables, best, chain_tables, coverage, by_lists, notes)


def _number(task: LearningTask, given: int | str) -> tuple[int, tuple[str, ...]]:
    """Number of candidate parents, and what to say about it."""
    n, needed = len(task.coded.names), int(task.constraints.required.sum(axis=0).max())
    k = max(task.number_of_candidates(given, MAX_CANDIDATES), needed)
    if given != "auto":
        return k, ()
    fits = k
    while fits > max(needed, 1) and table_bytes(n, fits) > task.limit // 2:
        fits -= 1
    if fits == k:
        return k, ()
    return fits, (f"{fits} candidate parents instead of {k}: the tables of more exceed half of the memory limit",)


FIRST_STEPS = 20  # of the order chains before the estimates, for each n^2 ln n
MAX_FIRST_STEPS = 200_000
SHARE_OF_FIRST = 0.2  # of the time that is left, if it is limited
INTERVAL = 30.0  # seconds between two checkpoints


def replicas_of(tempering: object, prior: object, backend: str) -> int | str:
    """Number of replicas: 0 without tempering; or ``"auto"``."""
    if tempering is False:
        return 0
    if prior == "order":
        raise ArgumentError("tempering requires chains over partitions; graph_prior='order' runs chains over orders")
    if backend == "gpu":
        raise ArgumentError("tempered chains run on the CPU; use backend='cpu'")
    if tempering == "auto":
        return "auto"
    if isinstance(tempering, str | bool):
        raise ArgumentError(f"tempering must be False, 'auto' or a number of replicas, at least 2, not {tempering!r}")
    return whole_number("tempering", tempering, 2)


def chain_source(  # noqa: PLR0913
    task: LearningTask, candidates: object, stop: Stop, *, n_chains: int, replicas: int | str, cluster: object,
    checkpoint: str | Path | None, n_blocks: int = 0,
) -> ChainSource:  # fmt: skip
    """Tables and first states of the chains, which continue from a checkpoint if there is one."""
    sets = chain_sets(task, candidates)
    tables = sets.chain_tables
    task.say(f"{n_chains} chains over orders look for the graphs to start from")
    first = _first_orders(task, sets.tables, n_chains)
    if task.backend == "gpu":
        run = _gpu_run(task, tables, first)
    else:
        run = _cpu_run(task, sets, first, replicas, cluster, n_blocks)
    file = None
    if checkpoint is not None:
        kind = f"{n_chains}, {run.mover.name}" + (f", tempering {replicas}" if replicas else "")
        kind += f" {n_blocks}" if n_blocks else ""
        file = StateFile(checkpoint, digests(task, tables, kind), interval=INTERVAL, advice="delete the file first")
        run.resume(file)
    after_round = _AfterRound(file, task.say, stop.tolerance, run.state.n_steps)
    shares = None if sets.coverage is None else sets.coverage(first.order)
    coverage = CandidateCoverage(tables.candidates, shares, sets.by_lists)
    summary = data_summary(task, sets.tables, sets.best, "order", sets.notes)
    return ChainSource(summary, coverage, run, stop.tolerance, after_round)


def _cpu_run(
    task: LearningTask, sets: ChainSets, first: orders.OrderChains, replicas: int | str, cluster: object, n_blocks: int
) -> ChainRun:
    """Chains on this machine or a cluster, from chains over orders."""
    tables, seed, threads = sets.chain_tables, task.seed, task.threads
    state = orders.OrderChains(first.order, np.zeros_like(first.arcs), 0, 0)

    def on_cluster(mover: Mover) -> Mover:
        return mover if cluster is None else ClusterMover(mover, cluster)

    mover: Mover = OrderMover(sets.tables, tables, seed, len(first.order), threads)
    if task.prior.name == "order":
        return ChainRun(on_cluster(mover), state)
    start = partitions.start_chains(mover.graphs(state), tables.candidates)
    if n_blocks:
        return ChainRun(on_cluster(BlockMover(tables, sets.tables, seed, threads, n_blocks)), start)
    if replicas == "auto":
        tempered = on_cluster(TemperedMover(tables, seed, threads))
        return ChainRun(on_cluster(PartitionMover(tables, seed, threads)), start, tempered)
    if isinstance(replicas, int) and replicas:
        mover = on_cluster(TemperedMover(tables, seed, threads, replicas))
        return ChainRun(mover, mover.init(start))
    return ChainRun(on_cluster(PartitionMover(tables, seed, threads)), start)


def _gpu_run(task: LearningTask, tables: SetTables, first: orders.OrderChains) -> ChainRun:
    kind = GpuOrderMover if task.prior.name == "order" else GpuPartitionMover
    mover = kind(tables, task.seed, task.devices, task.threads)
    return ChainRun(mover, mover.init(first))


class _AfterRound:
    """Writes the checkpoint and reports progress; a copy or a pickle of a posterior does neither."""

    def __init__(self, file: StateFile | None, say: Callable[[str], None] | None, tolerance: float, done: int):
        self._file, self._say, self._tolerance = file, say, tolerance
        self._begin, self._done, self._failed = perf_counter(), done, False

    def __call__(self, run: ChainRun, estimate: Estimate, complete: bool) -> None:
        if self._file is not None and (complete or self._file.is_due()):
            try:
                run.save(self._file, durable=complete)
            except OSError as error:  # the older file stays as it was, and the run goes on
                if not self._failed:
                    text = f"the checkpoint {self._file.path} cannot be written: {error.strerror or error}"
                    warnings.warn(text, UserWarning, stacklevel=outside())
                self._failed = True
        if self._say is not None:
            speed = run.state.n_steps - self._done, perf_counter() - self._begin
            self._say(_progress_line(run, estimate, self._tolerance, speed))

    def __reduce__(self) -> tuple[object, ...]:
        return _AfterRound, (None, None, self._tolerance, self._done)


def _first_orders(task: LearningTask, tables: CandidateTables, n_chains: int) -> orders.OrderChains:
    """Chains over orders after some steps."""
    n, k = tables.candidates.shape
    sampler = orders.OrderSampler(tables, tables.sums(task.threads), np.empty((n, k, 0)), task.seed)
    n_steps = min(int(FIRST_STEPS * n * n * log(max(n, 2))), MAX_FIRST_STEPS)
    start = orders.start_chains(task.constraints, n_chains, task.seed)
    if task.first is not None:
        start.order[0] = task.first
    for chain, order in enumerate(start.order):  # an order of finite weight
        if not math.isfinite(graph_of_order(tables, order).weight):
            raise NetworkError(
                f"the start of chain {chain} is impossible: the candidates and constraints leave no graph"
            )

    def run(steps: int) -> orders.OrderChains:
        return orders.run_chains(sampler, start, steps, steps, threads=task.threads)[0]

    return run(task.time.steps(n_steps, run, SHARE_OF_FIRST))


def _progress_line(run: ChainRun, estimate: Estimate, tolerance: float, made: tuple[int, float]) -> str:
    """A line about a round; the error shrinks like the square root of the steps."""
    # made: Steps of each chain, and seconds, since the chains began
    error, done, n_chains = float(estimate.errors.max()), run.state.n_steps, len(run.state.arcs)
    rate = made[0] / max(made[1], 1e-9)
    left = done * ((error / tolerance) ** 2 - 1.0) / max(rate, 1e-9)
    needed = f", about {_duration(left)} left" if error > tolerance and math.isfinite(left) else ""
    return (
        f"{run.mover.name}: {n_chains} chains, {done:,} steps each, {rate * n_chains:,.0f} a second in all; largest "
        f"standard error {error:.4f}, R-hat {estimate.r_hat:.3f}{needed}"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def digests(task: LearningTask, tables: SetTables, chains: str) -> dict[str, str]:
    """Digests of all that decides the result of a run, by name."""

    def digest(*arrays: NDArray[np.generic]) -> str:
        return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

    c = task.constraints
    return {
        "data": task.coded.digest,
        "score": str(task.rule),
        "prior": task.prior.name + digest(*task.prior.parts(len(task.coded.names))),
        "constraints": digest(c.forbidden, c.required, c.max_parents),
        "candidates": digest(tables.candidates, tables.masks, tables.weights),
        "chains": chains,
        "seed": str(task.seed),
        "start": "" if task.start is None else digest(task.start),
    }


class ChainSource:
    """Graphs and probabilities are those that chains have visited."""

    def __init__(
        self, summary: DataSummary, coverage: CandidateCoverage, run: ChainRun, tolerance: float,
        after_round: Callable[[ChainRun, Estimate, bool], None],
    ):  # fmt: skip
        self._summary, self._coverage, self._run, self._tolerance = summary, coverage, run, tolerance
        self._after_round = after_round

    def graphs(self, n: int | None = None) -> Ints:
        return self._run.graphs()

    def property_of_graphs(self, name: str) -> tuple[Floats, Floats]:
        return PROPERTIES[name](self.graphs(), self._coverage.parents)

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
        return self.posterior(self._run.advance(stop, self._after_round))

    def posterior(self, estimate: Estimate) -> StructurePosterior:
        """The posterior that the chains estimate."""
        summary, run = self._summary, self._run
        names, own, dense = summary.table.names, self._coverage.parents, summary.tables.candidates
        traces = run.history.traces()
        moves = None
        if run.mover.counts_moves:
            counts = run.state.moves.sum(axis=0)
            moves = {
                name: float(done / max(tried, 1)) for name, (tried, done) in zip(partitions.MOVES, counts, strict=True)
            }
        candidates = named_candidates(names, dense) if dense.shape[1] < len(names) - 1 else None
        best = summary.best
        drawn, weight = run.history.best, run.history.best_weight
        if weight > best.log_weight + 1e-9:
            parents = [[int(u) for j, u in enumerate(own[v]) if drawn[v] >> j & 1] for v in range(len(names))]
            order = np.argsort(partitions.parts_of(drawn, own), kind="stable")
            best = summary.structure_of(BestGraph(parents, order, weight))
        shortfall = run.shortfall(estimate, self._tolerance)
        betas, swap_rates = [], []
        if isinstance(run.state, partitions.TemperedChains):
            betas, swap_rates = run.state.betas.tolist(), run.state.swap_rates().tolist()
        diagnostics = Diagnostics(
            run.mover.name, summary.prior, None, not shortfall, estimate.r_hat,
            effective_samples(traces) if traces.size else 0.0, estimate.max_difference, run.state.n_steps,
            len(run.state.arcs), estimate.n_samples, *self._coverage.summary(names), candidates, moves,
            (*summary.notes, *run.notes), betas, swap_rates, shortfall,
        )  # fmt: skip
        record = PosteriorRecord(
            summary.table, estimate.arcs, estimate.errors, best, diagnostics, own, run.history.traces(burned=False),
            summary.ess, summary.seed,
        )  # fmt: skip
        return StructurePosterior(record, self)
