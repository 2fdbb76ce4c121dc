"""The chains of a problem: their options, first states and engines, and what is said about their progress."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import ArgumentError, NetworkError
from ....util.arguments import whole_number
from ....util.elementary import log
from ..chains import orders, partitions
from ..chains.cluster import ClusterEngine, EngineSpec
from ..chains.engines import Engine
from ..chains.estimates import Estimate
from ..chains.gpu.engines import GpuOrderEngine, GpuPartitionEngine
from ..chains.run_files import RunFile
from ..chains.runs import ChainRun, Stop
from ..chains.tempering import REPLICAS
from ..search.best_graph import graph_of_order
from .chain_sets import chain_sets
from .problem import digests
from .sources import ChainSource, Covered

if TYPE_CHECKING:
    from ..candidates.tables import CandidateTables
    from .problem import Problem

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


def chain_source(problem: Problem, candidates: Any, by_orders: bool, stop: Stop, how: ChainOptions) -> ChainSource:
    """Tables and first states."""
    sets = chain_sets(problem, candidates)
    tables, chain_tables = sets.tables, sets.chain_tables
    problem.say(f"{how.number} chains over orders look for the graphs to start from")
    state = _first_orders(problem, tables, how.number)
    spec = EngineSpec("orders", tables, chain_tables, problem.seed, how.number)

    def engine_of(kind: str, replicas: int = 0) -> Any:
        own = spec._replace(kind=kind, tables=tables if kind == "orders" else None, replicas=replicas)
        return own.engine(problem.threads) if how.cluster is None else ClusterEngine(own, how.cluster)

    engine: Engine = engine_of("orders")
    first: Any = orders.OrderChains(state.order, np.zeros_like(state.arcs), 0, 0)
    later = None
    if problem.backend == "gpu":
        if by_orders:
            engine = GpuOrderEngine(chain_tables, problem.seed, problem.devices, problem.threads)
            first = engine.start(state.order)
        else:
            engine = GpuPartitionEngine(chain_tables, problem.seed, problem.devices, problem.threads)
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
        file = RunFile(how.checkpoint, digests(problem, chain_tables, kind))
        file.resume(run)

    after_round = _AfterRound(file, how.progress, stop.tolerance, run.state.n_steps)
    given = problem.given(tables, sets.best, "order", sets.notes)
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


def _first_orders(problem: Problem, tables: CandidateTables, n_chains: int) -> orders.OrderChains:
    """Chains over orders after some steps."""
    n, k = tables.candidates.shape
    sampler = orders.OrderSampler(tables, tables.sums(problem.threads), np.empty((n, k, 0)), problem.seed)
    n_steps = min(int(FIRST_STEPS * n * n * log(max(n, 2))), MAX_FIRST_STEPS)
    start = orders.start_chains(problem.constraints, n_chains, problem.seed)
    if problem.first is not None:
        start.order[0] = problem.first
    for chain, order in enumerate(start.order):  # an order of finite weight
        if not math.isfinite(graph_of_order(tables, order).weight):
            raise NetworkError(
                f"the start of chain {chain} is impossible: the candidates and constraints leave no graph"
            )
    return orders.run_chains(sampler, start, n_steps, n_steps, threads=problem.threads)[0]


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
