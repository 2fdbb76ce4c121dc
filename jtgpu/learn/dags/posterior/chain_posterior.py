"""The chains of a task: their options, first states and engines, and what is said about their progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import ArgumentError, NetworkError
from ....util.arguments import described, several, whole_number
from ....util.elementary import log
from ..best_graph import BestGraph, graph_of_order
from ..candidate_tables import CandidateTables, covered_shares
from ..chains import orders, partitions
from ..chains.cluster import ClusterEngine, EngineSpec
from ..chains.engines import REPLICAS, Engine
from ..chains.gpu_engines import GpuOrderEngine, GpuPartitionEngine
from ..chains.run_files import RunFile
from ..chains.runs import ChainRun, Estimate, Stop
from ..chains.set_tables import set_tables, table_bytes
from ..graphs import adjacency
from ..outer_sets import outer_sets
from .facts import variable_number
from .problem import data_summary, digests
from .sources import ChainSource, Covered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables
    from ..task import LearningTask

# `ChainSets`: the candidate parents and the parent sets of chains.

MAX_CANDIDATES = 12  # by default; of the search for the best graph: 16


@dataclass(frozen=True)
class ChainSets:
    """Parent sets of chains."""

    tables: CandidateTables
    best: BestGraph
    chain_tables: SetTables
    # Returns the shares of the posterior of each variable's parents that are summed, (n,), given some orders; None if
    #     all sets are
    coverage: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None
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
        chosen, outer = _named_candidates(task, candidates), None
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

    def coverage(some: NDArray[np.int64]) -> NDArray[np.float64]:
        return covered_shares(rows, scores.max_parents, chosen, outer, some)

    return ChainSets(tables, best, chain_tables, coverage, by_lists, notes)


def _named_candidates(task: LearningTask, given: Mapping[str, Iterable[str]]) -> NDArray[np.int64]:
    """Candidate parents from lists by name, (n, k)."""
    names, required = task.coded.names, task.constraints.required
    n = len(names)
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


def restricted(task: LearningTask, candidates: Any) -> LearningTask:
    """The task whose constraints exclude what lists of candidates exclude; numbers of candidates exclude nothing."""
    n = len(task.coded.names)
    if not isinstance(candidates, Mapping):
        task.number_of_candidates(candidates)  # checked, though exact posteriors do not depend on it
        return task
    possible = np.eye(n, dtype=np.bool_)
    for v, row in enumerate(_named_candidates(task, candidates)):
        possible[row[row >= 0], v] = True
    constraints = replace(task.constraints, forbidden=task.constraints.forbidden | ~possible)
    return replace(task, constraints=constraints)


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


class ChainOptions(NamedTuple):
    """How many chains run, and how."""

    number: int
    replicas: int | str  # 0: not tempered
    cluster: Any
    checkpoint: str | Path | None
    progress: Callable[[str], None] | None


def replicas_of(tempering: Any, prior: Any, backend: str) -> int | str:
    """Number of replicas: 0 without tempering; or ``"auto"``."""
    if tempering is False:
        return 0
    if prior == "order":
        raise ArgumentError("tempering requires chains over partitions; prior='order' runs chains over orders")
    if backend == "gpu":
        raise ArgumentError("tempered chains run on the CPU; use backend='cpu'")
    if tempering == "auto":
        return "auto"
    if isinstance(tempering, str | bool):
        raise ArgumentError(f"tempering must be False, 'auto' or a number of replicas, at least 2, not {tempering!r}")
    return whole_number("tempering", tempering, 2)


def chain_source(task: LearningTask, candidates: Any, by_orders: bool, stop: Stop, how: ChainOptions) -> ChainSource:
    """Tables and first states."""
    sets = chain_sets(task, candidates)
    tables, chain_tables = sets.tables, sets.chain_tables
    task.say(f"{how.number} chains over orders look for the graphs to start from")
    state = _first_orders(task, tables, how.number)
    spec = EngineSpec("orders", tables, chain_tables, task.seed, how.number)

    def engine_of(kind: str, replicas: int = 0) -> Any:
        own = spec._replace(kind=kind, tables=tables if kind == "orders" else None, replicas=replicas)
        return own.engine(task.threads) if how.cluster is None else ClusterEngine(own, how.cluster)

    engine: Engine = engine_of("orders")
    first: Any = orders.OrderChains(state.order, np.zeros_like(state.arcs), 0, 0)
    later = None
    if task.backend == "gpu":
        if by_orders:
            engine = GpuOrderEngine(chain_tables, task.seed, task.devices, task.threads)
            first = engine.start(state.order)
        else:
            engine = GpuPartitionEngine(chain_tables, task.seed, task.devices, task.threads)
            first = engine.start(state)
    elif not by_orders:
        first = partitions.start_chains(engine.graphs(first), chain_tables.candidates)
        if isinstance(how.replicas, int) and how.replicas:
            engine = engine_of("tempered", how.replicas)
            first = engine.start(first)
        else:
            engine = engine_of("partitions")
            later = engine_of("tempered", REPLICAS) if how.replicas == "auto" else None
    run = ChainRun(engine, first, later)
    file = None
    if how.checkpoint is not None:
        kind = f"{how.number}, {engine.name}" + (f", tempering {how.replicas}" if how.replicas else "")
        file = RunFile(how.checkpoint, digests(task, chain_tables, kind))
        file.resume(run)

    after_round = _AfterRound(file, how.progress, stop.tolerance, run.state.n_steps)
    given = data_summary(task, tables, sets.best, "order", sets.notes)
    shares = None if sets.coverage is None else sets.coverage(state.order)
    covered = Covered(chain_tables.candidates, shares, sets.by_lists)
    return ChainSource(given, covered, run, stop.tolerance, after_round)


class _AfterRound:
    """Writes the checkpoint and reports progress; a copy or a pickle of a posterior does neither."""

    def __init__(self, file: RunFile | None, progress: Callable[[str], None] | None, tolerance: float, done: int):
        self._file, self._progress, self._tolerance = file, progress, tolerance
        self._begin, self._done = perf_counter(), done

    def __call__(self, run: ChainRun, estimate: Estimate, complete: bool) -> None:
        if self._file is not None:
            self._file.write(run, complete)
        if self._progress is not None:
            speed = run.state.n_steps - self._done, perf_counter() - self._begin
            self._progress(_progress_line(run, estimate, self._tolerance, speed))

    def __reduce__(self) -> tuple[Any, ...]:
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
    return orders.run_chains(sampler, start, n_steps, n_steps, threads=task.threads)[0]


def _progress_line(run: ChainRun, estimate: Estimate, tolerance: float, made: tuple[int, float]) -> str:
    """What is known after a round; the error shrinks like the square root of the steps."""
    # made: (int, float): Steps of each chain, and seconds, since the chains began
    error, done, n_chains = float(estimate.errors.max()), run.state.n_steps, len(run.state.arcs)
    rate = made[0] / max(made[1], 1e-9)
    left = done * ((error / tolerance) ** 2 - 1.0) / max(rate, 1e-9)
    needed = f", about {_duration(left)} left" if error > tolerance and math.isfinite(left) else ""
    return (
        f"{run.engine.name}: {n_chains} chains, {done:,} steps each, {rate * n_chains:,.0f} a second in all; largest "
        f"standard error {error:.4f}, R-hat {estimate.r_hat:.3f}{needed}"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"
