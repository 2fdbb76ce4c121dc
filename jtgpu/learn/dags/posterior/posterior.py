"""`learn.posterior`: the posterior over structures, exactly for few variables, by Markov chains for many."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import ArgumentError, NetworkError, TableTooLarge
from ....model.network import BayesianNetwork
from ....util import doors
from ....util.arguments import choice, file_path, flag, number, whole_number
from ....util.options import Devices
from ....util.system import free_memory, parse_bytes
from ..candidates.coverage import covered_shares
from ..candidates.family_weights import family_weights
from ..candidates.outer_sets import outer_sets
from ..candidates.preparation import (
    MAX_SCREENED,
    number_of_candidates,
    require_same,
    scores_up_to,
    screened_candidates,
    screened_size,
    wide_size,
)
from ..candidates.tables import CandidateTables, all_parents, candidate_tables
from ..chains import orders, partitions
from ..chains.cluster import ClusterEngine, EngineSpec
from ..chains.engines import Engine
from ..chains.gpu.engines import GpuOrderEngine, GpuPartitionEngine
from ..chains.run_files import RunFile
from ..chains.runs import MAX_STEPS, ChainRun, Estimate, Stop
from ..chains.set_tables import set_tables, table_bytes
from ..chains.tempering import REPLICAS
from ..constraints import Constraints, make_constraints
from ..exact.draws import draw_by_orders, draw_by_partitions
from ..exact.gpu.exact import GpuExact
from ..exact.posteriors import exact_by_orders, exact_by_partitions
from ..graphs import adjacency
from ..priors import StructurePrior, make_prior
from ..scores.coded import CodedTable, code_table
from ..scores.combinations import n_parent_sets, parent_masks
from ..scores.rules import ScoreRule
from ..search.best_graph import BestGraph, best_by_orders, exact_best, graph_of_order
from ..search.structure import Structure, prior_of, structure_of
from ..start_graph import start_graph, start_order
from .arc_tables import variable_number
from .result import StructurePosterior
from .sources import DRAWS, ChainSource, Covered, ExactSource, Given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables
    from ..scores.score_table import ScoreTable

__all__ = ["POSTERIOR_METHODS", "posterior"]

POSTERIOR_METHODS = ("auto", "exact", "mcmc")
AUTO_BY_ORDERS, AUTO_BY_PARTITIONS = 20, 13  # variables up to which the exact posterior takes seconds
GPU_BY_ORDERS, GPU_BY_PARTITIONS = 28, 17  # the same on a GPU
CHAINS = 8
FIRST_STEPS = 20  # of the order chains before the estimates, for each n^2 ln n
MAX_FIRST_STEPS = 200_000
MAX_CANDIDATES = 12  # by default; of the search for the best graph: 16


@dataclass(frozen=True)
class _Problem:
    """Checked data and options."""

    coded: CodedTable
    rule: ScoreRule
    prior: StructurePrior
    constraints: Constraints
    table: ScoreTable | None
    seed: int
    limit: int
    threads: int | None
    backend: str = "cpu"
    devices: Devices = None
    start: NDArray[np.bool_] | None = None
    say: Callable[[str], None] = lambda _: None  # takes a line about each stage

    @property
    def first(self) -> NDArray[np.int64] | None:
        """The order from which the first chain starts."""
        return None if self.start is None else start_order(self.start)

    @property
    def most(self) -> int:
        """The largest number of parents."""
        return int(self.constraints.max_parents.max())

    def scores(self, max_parents: int) -> ScoreTable:
        n = len(self.coded.names)
        self.say(f"scoring {n * n_parent_sets(n, min(max_parents, n - 1)):,} families")
        begin = perf_counter()
        found = scores_up_to(
            self.table, self.coded, self.rule, max_parents, self.limit, self.threads, self.backend, self.devices
        )
        seconds = max(perf_counter() - begin, 1e-9)
        self.say(f"{len(found):,} families scored, {len(found) / seconds:,.0f} a second; selecting candidate parents")
        return found

    def tables(self, candidates: NDArray[np.int64]) -> CandidateTables:
        return candidate_tables(
            self.coded, self.rule, self.prior, self.constraints, candidates, self.most, memory_limit=self.limit,
            threads=self.threads,
        )  # fmt: skip

    def best(self, tables: CandidateTables) -> BestGraph:
        """A graph of high weight, by search."""
        return best_by_orders(tables, self.constraints, seed=self.seed, threads=self.threads, first=self.first)

    def given(self, tables: CandidateTables, best: BestGraph, method: str, notes: tuple[str, ...] = ()) -> Given:
        named = None
        if method != "exact" and tables.candidates.shape[1] < len(self.coded.names) - 1:
            names = self.coded.names
            named = {v: [names[u] for u in row if u >= 0] for v, row in zip(names, tables.candidates, strict=True)}

        def structure(best: BestGraph) -> Structure:
            return structure_of(best, self.coded, self.rule, method, named, prior_of(best, self.prior))

        ess = self.rule.ess if self.rule.name in ("bdeu", "bds") else 1.0
        return Given(
            self.coded, tables, structure(best), structure, self.prior.name, ess, self.seed, self.threads, notes
        )  # fmt: skip


def posterior(  # noqa: PLR0913
    data: Any,
    *,
    score: str = "bdeu",
    ess: float = 1.0,
    prior: Any = "uniform",
    max_parents: int | Mapping[str, int] = 4,
    candidates: int | str | Mapping[str, Iterable[str]] = "auto",
    method: str = "auto",
    forbidden: Iterable[tuple[str, str]] = (),
    required: Iterable[tuple[str, str]] = (),
    tiers: Iterable[Iterable[str]] | None = None,
    within_tiers: bool = True,
    states: Mapping[str, Sequence[Any]] | BayesianNetwork | None = None,
    missing: str = "error",
    weights: Any = None,
    table: ScoreTable | None = None,
    tolerance: float = 0.01,
    time: float | None = None,
    steps: int | None = None,
    chains: int | str = "auto",
    seed: int = 0,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: str = "cpu",
    devices: Devices = None,
    checkpoint: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    start: Any = None,
    tempering: bool | int | str = False,
    cluster: Any = None,
) -> StructurePosterior:
    """Compute the posterior over directed acyclic graphs: how probable arcs, paths and parent sets are.

    For few variables the probabilities are exact. For many, Markov chains over ordered partitions of the variables
    (Kuipers and Moffa, 2017), with reversals of arcs, run until the standard errors are small.

    Parameters
    ----------
    data, score, ess, max_parents, forbidden, required, tiers, within_tiers, states, missing, weights, table
        See `jtgpu.learn.structure`. The scores ``"bic"`` and ``"aic"`` approximate ln P(data | graph).
    prior : {"uniform", "fair", "order"} or ("edge", p)
        Prior weights of graphs: uniform; 1 / C(n - 1, k) for each set of k parents; p / (1 - p) for each arc. With
        ``"order"``, a graph is weighted by the number of orders of the variables that it allows: chains over orders
        mix faster, but the probabilities differ from those of ``"uniform"``, often by more than 0.1.
    candidates : int, "auto", "all" or mapping
        Candidate parents of each variable when chains run: their number, or lists by name. Default: 12, or fewer if
        memory is short. A number affects the speed only: parent sets with other members are summed one by one, unless
        all their subsets have 100,000 times their weight. Lists exclude all other parents. `coverage` says which share
        of the posterior is summed.
    method : {"auto", "exact", "mcmc"}
        ``"auto"``: exact for up to 13 variables (20 with ``prior="order"``), or 17 (28) on a GPU, else Markov chains.
    tolerance : float
        Chains stop when the largest standard error of the probability of an arc is at most this, and R-hat is at most
        1.05.
    time : float, optional
        Seconds that the chains may run. They stop at the next round, so the result depends on the machine.
    steps : int, optional
        Steps of each chain at most. Default: 4,000,000.
    chains : int or "auto"
        Number of chains, at least 4. Default: 8.
    seed : int
        The same seed gives the same result, for any number of threads.
    memory_limit : int or str, optional
        Bytes, or a text such as ``"8GiB"``. Default: 80 % of the free memory.
    threads : int, optional
        Default: the number of cores.
    backend : {"cpu", "gpu"}
        On GPUs, families are scored, exact posteriors are summed on the first one, and each chain runs as 512 replicas.
    devices : "all", int or sequence of int, optional
        GPUs that share the work. Default: one. The result does not depend on it.
    checkpoint : path, optional
        A file in which the chains are saved every 30 seconds. If it exists, they continue from it, with the same result
        as without the interruption.
    progress : callable, optional
        Is called with a line of text about each stage, and after every round of the chains.
    start : network, graph, mapping from child to parents, or iterable of (parent, child), optional
        A graph from which the first chain starts. Default: the order of the variables, and random ones.
    tempering : False, "auto" or int
        Number of replicas of each chain over partitions, at levels between the posterior and a flatter distribution:
        chains leave graphs that are far better than all neighbours, but take as many times longer. ``"auto"``: 8, from
        a quarter of the run on, if nested R-hat exceeds 1.05.
    cluster : str or jtgpu.cluster.Cluster, optional
        A Ray cluster on which the chains run, such as ``"local"`` or ``"auto"``. The result has the same bits as
        without.

    Returns
    -------
    StructurePosterior

    Raises
    ------
    DataError
        If the data cannot be learned from; the message names column and row.
    NetworkError
        If the constraints contradict each other.
    TableTooLarge
        If the tables exceed the memory limit, or the exact posterior would have too many variables.
    JtgpuError
        If the checkpoint is that of a run with other data or options.
    ValueError
        If an option has no such value.

    Warns
    -----
    UserWarning
        If the chains have not converged, or sum less than 99 % of the posterior of a variable's parents.

    Examples
    --------
    >>> import jtgpu
    >>> data = {"rain": ["no", "no", "yes", "yes", "no"] * 4, "wet": ["no", "no", "yes", "yes", "yes"] * 4}
    >>> post = jtgpu.learn.posterior(data)
    >>> round(post.edge("rain", "wet"), 4), post.method
    (0.4969, 'exact')
    """
    choice("method", method, POSTERIOR_METHODS)
    choice("backend", backend, ("cpu", "gpu"))
    rule, seed = ScoreRule(score, ess), whole_number("seed", seed, 0, 2**63 - 1)
    stop = Stop(
        number("tolerance", tolerance, above=0.0),
        MAX_STEPS if steps is None else whole_number("steps", steps, 1),
        math.inf if time is None else number("time", time, above=0.0),
    )
    n_chains = CHAINS if chains == "auto" else whole_number("chains", chains, 4)
    if cluster is not None:
        cluster = doors.cluster().as_cluster(cluster)
        if backend == "gpu":
            raise ArgumentError("a cluster runs chains on CPUs; use backend='cpu', or the GPUs of this machine only")
    how = _Chains(n_chains, _replicas(tempering, prior, backend), cluster, checkpoint, progress)
    if checkpoint is not None and not (folder := Path(file_path("checkpoint", checkpoint)).absolute().parent).is_dir():
        raise ArgumentError(f"checkpoint {str(checkpoint)!r}: there is no folder {str(folder)!r}; create it first")
    coded = code_table(data, states=states, missing=missing, weights=weights)
    rule.require_scorable(coded.has_gaps)
    n = len(coded.names)
    weigh = make_prior(prior, n)
    if table is not None:
        require_same(table, coded, rule)
    constraints = make_constraints(
        coded.names, max_parents, forbidden=forbidden, required=required, tiers=tiers,
        within_tiers=flag("within_tiers", within_tiers),
    )  # fmt: skip
    begin = start_graph(start, coded.names, constraints)
    limit = int(0.8 * free_memory()) if memory_limit is None else parse_bytes(memory_limit)
    problem = _Problem(coded, rule, weigh, constraints, table, seed, limit, threads, backend, devices, begin)
    if progress is not None:
        problem = replace(problem, say=progress)
    by_orders = weigh.name == "order"
    limits = (GPU_BY_ORDERS, GPU_BY_PARTITIONS) if backend == "gpu" else (AUTO_BY_ORDERS, AUTO_BY_PARTITIONS)
    few = n <= limits[0 if by_orders else 1]
    if method == "exact" or (method == "auto" and few and n * n_parent_sets(n, problem.most) <= MAX_SCREENED // 10):
        try:
            return _exact(problem, by_orders)
        except TableTooLarge as error:
            if method == "exact":
                raise TableTooLarge(f"{error}; use method='mcmc'", error.entries, error.needed, error.limit) from None
    source = _chains(problem, candidates, by_orders, stop, how)
    found = source.advance(stop)
    if not found.converged:
        warnings.warn(_unconverged(found, stop.tolerance), UserWarning, stacklevel=2)
    if found.low_coverage:
        warnings.warn(found.low_coverage, UserWarning, stacklevel=2)
    return found


def _exact(problem: _Problem, by_orders: bool) -> StructurePosterior:
    n = len(problem.coded.names)
    limit, seed, threads = problem.limit, problem.seed, problem.threads
    on_gpu = None
    if problem.backend == "gpu":
        on_gpu = GpuExact(problem.devices, by_orders, seed, threads)
        on_gpu.require_memory(n, n_parent_sets(n, problem.most))
    scores = problem.scores(problem.most)
    rows, masks = family_weights(scores, problem.prior, problem.constraints), parent_masks(n, scores.max_parents)
    tables = all_parents(rows, masks)
    if on_gpu is not None:
        exact, drawn = on_gpu.posterior(tables, DRAWS)
        given = problem.given(tables, on_gpu.best(tables), "exact")
        return ExactSource(given, exact, lambda n: on_gpu.posterior(tables, n)[1], drawn).posterior()
    if by_orders:
        exact = exact_by_orders(rows, masks, memory_limit=limit, threads=threads)
    else:
        exact = exact_by_partitions(rows, masks, memory_limit=limit)

    def draw(n_draws: int) -> NDArray[np.int64]:
        if by_orders:
            return draw_by_orders(tables, exact, n_draws, seed, threads)
        return draw_by_partitions(tables, n_draws, seed, threads)

    best = exact_best(rows, masks, memory_limit=limit, threads=threads)
    return ExactSource(problem.given(tables, best, "exact"), exact, draw).posterior()


def _all_others(n: int) -> NDArray[np.int64]:
    """All other variables of each, (n, n - 1)."""
    return np.array([[u for u in range(n) if u != v] for v in range(n)], np.int64)


class _Chains(NamedTuple):
    """How many chains run, and how.

    Attributes
    ----------
    number : int
    replicas : int or "auto"
        0: not tempered.
    cluster : str, jtgpu.cluster.Cluster or None
    checkpoint : path or None
    progress : callable or None
    """

    number: int
    replicas: int | str
    cluster: Any
    checkpoint: str | Path | None
    progress: Callable[[str], None] | None


def _replicas(tempering: Any, prior: Any, backend: str) -> int | str:
    """Number of replicas: 0 without tempering; or ``"auto"``."""
    if tempering is False:
        return 0
    if prior == "order":
        raise ArgumentError("tempering is for chains over partitions; those over orders (prior='order') have none")
    if backend == "gpu":
        raise ArgumentError("tempered chains run on the CPU; use backend='cpu'")
    if tempering == "auto":
        return "auto"
    if isinstance(tempering, str | bool):
        raise ArgumentError(f"tempering must be False, 'auto' or a number of replicas, at least 2, not {tempering!r}")
    return whole_number("tempering", tempering, 2)


def _chains(problem: _Problem, candidates: Any, by_orders: bool, stop: Stop, how: _Chains) -> ChainSource:
    """Tables and first states."""
    sets = _chain_sets(problem, candidates)
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
        file = RunFile(how.checkpoint, _digests(problem, chain_tables, kind))
        file.resume(run)

    begin, done = perf_counter(), run.state.n_steps

    def after_round(run: ChainRun, estimate: Estimate, complete: bool) -> None:
        if file is not None:
            file.write(run, complete)
        if how.progress is not None:
            speed = run.state.n_steps - done, perf_counter() - begin
            how.progress(_progress_line(run, estimate, stop.tolerance, speed))

    given = problem.given(tables, sets.best, "order", sets.notes)
    shares = None if sets.coverage is None else sets.coverage(state.order)
    covered = Covered(chain_tables.candidates, shares, sets.by_lists)
    return ChainSource(given, covered, run, stop.tolerance, after_round)


@dataclass(frozen=True)
class _ChainSets:
    """Parent sets of chains.

    Attributes
    ----------
    tables : CandidateTables
    best : BestGraph
    chain_tables : SetTables
    coverage : callable
        Returns the shares of the posterior of each variable's parents that are summed, (n,), given some orders; None if
        all sets are.
    by_lists : bool
        Whether the candidates were given by name, so that other parents are impossible.
    notes : tuple of str
    """

    tables: CandidateTables
    best: BestGraph
    chain_tables: SetTables
    coverage: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None
    by_lists: bool
    notes: tuple[str, ...]


def _chain_sets(problem: _Problem, candidates: Any) -> _ChainSets:
    """Select candidates and outer sets: they do not depend on the seed."""
    n, limit, threads = len(problem.coded.names), problem.limit, problem.threads
    k, notes = 0, tuple[str, ...]()
    if not isinstance(candidates, Mapping):
        k, notes = _number(problem, candidates)
    if k == n - 1:
        tables = problem.tables(_all_others(n))
        chain_tables = set_tables(tables, memory_limit=limit, threads=threads)
        return _ChainSets(tables, problem.best(tables), chain_tables, None, False, notes)
    by_lists = k == 0
    size = screened_size(n, problem.most) if by_lists else wide_size(problem.coded.cardinality, problem.most)
    scores = problem.scores(size)
    rows = family_weights(scores, problem.prior, problem.constraints)
    if by_lists:
        chosen, outer = _named_candidates(problem, candidates), None
        tables = problem.tables(chosen)
        best = problem.best(tables)
    else:
        few, constraints = scores.with_max_parents(screened_size(n, problem.most)), problem.constraints
        more = max(number_of_candidates("auto", n, limit), k)
        best = problem.best(problem.tables(screened_candidates(few, problem.prior, constraints, more)))
        # chains over orders first run on candidates alone: they have to find the region of the best graph
        wanted = constraints.requiring(adjacency(best.parents))
        k = max(k, int(wanted.required.sum(axis=0).max()))
        chosen = screened_candidates(few, problem.prior, wanted, k)
        outer = outer_sets(rows, scores.max_parents, chosen, threads)
        tables = problem.tables(chosen)
    chain_tables = set_tables(tables, outer, memory_limit=limit, threads=threads)

    def coverage(some: NDArray[np.int64]) -> NDArray[np.float64]:
        return covered_shares(rows, scores.max_parents, chosen, outer, some)

    return _ChainSets(tables, best, chain_tables, coverage, by_lists, notes)


def _named_candidates(problem: _Problem, given: Mapping[str, Iterable[str]]) -> NDArray[np.int64]:
    """Candidate parents from lists by name, (n, k)."""
    names, required = problem.coded.names, problem.constraints.required
    n = len(names)
    sets = {v: {u for u in range(n) if required[u, v]} for v in range(n)}
    for name, parents in given.items():
        if isinstance(parents, str):
            raise TypeError(f"the candidates of {name!r} must be a list of variables, got {parents!r}")
        v = variable_number(names, name)
        sets[v] |= {variable_number(names, u) for u in parents} - {v}
    k = max(max(map(len, sets.values())), 1)
    return np.array([[*sorted(sets[v]), *[-1] * (k - len(sets[v]))] for v in range(n)], np.int64)


def _number(problem: _Problem, given: int | str) -> tuple[int, tuple[str, ...]]:
    """Number of candidate parents, and what to say about it."""
    n, needed = len(problem.coded.names), int(problem.constraints.required.sum(axis=0).max())
    k = max(number_of_candidates(given, n, problem.limit, MAX_CANDIDATES), needed)
    if given != "auto":
        return k, ()
    fits = k
    while fits > max(needed, 1) and table_bytes(n, fits) > problem.limit // 2:
        fits -= 1
    if fits == k:
        return k, ()
    return fits, (f"{fits} candidate parents instead of {k}: the tables of more exceed half of the memory limit",)


def _first_orders(problem: _Problem, tables: CandidateTables, n_chains: int) -> orders.OrderChains:
    """Chains over orders after some steps."""
    n, k = tables.candidates.shape
    sampler = orders.OrderSampler(tables, tables.sums(problem.threads), np.empty((n, k, 0)), problem.seed)
    n_steps = min(int(FIRST_STEPS * n * n * math.log(max(n, 2))), MAX_FIRST_STEPS)
    start = orders.start_chains(problem.constraints, n_chains, problem.seed)
    if problem.first is not None:
        start.order[0] = problem.first
    for chain, order in enumerate(start.order):  # an order of finite weight
        if not math.isfinite(graph_of_order(tables, order).weight):
            raise NetworkError(
                f"the start of chain {chain} is impossible: the candidates and constraints leave no graph"
            )
    return orders.run_chains(sampler, start, n_steps, n_steps, threads=problem.threads)[0]


def _digests(problem: _Problem, tables: SetTables, chains: str) -> dict[str, str]:
    """What a run depends on, by name."""

    def digest(*arrays: NDArray[Any]) -> str:
        return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

    c = problem.constraints
    return {
        "data": problem.coded.digest,
        "score": str(problem.rule),
        "prior": problem.prior.name + digest(*problem.prior.parts(len(problem.coded.names))),
        "constraints": digest(c.forbidden, c.required, c.max_parents),
        "candidates": digest(tables.candidates, tables.masks, tables.weights),
        "chains": chains,
        "seed": str(problem.seed),
        "start": "" if problem.start is None else digest(problem.start),
    }


def _progress_line(run: ChainRun, estimate: Estimate, tolerance: float, made: tuple[int, float]) -> str:
    """What is known after a round; the error shrinks like the square root of the steps.

    Parameters
    ----------
    run, estimate, tolerance
    made : (int, float)
        Steps of each chain, and seconds, since the chains began.
    """
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


def _unconverged(found: StructurePosterior, tolerance: float) -> str:
    """The warning about chains that have not converged, with the arcs of the largest standard errors."""
    errors = found.mcse.values
    worst = np.argsort(-errors, axis=None)[:3]
    arcs = [divmod(int(i), len(found.names)) for i in worst]
    named = ", ".join(f"{found.names[u]} -> {found.names[v]} ({errors[u, v]:.3f})" for u, v in arcs)
    return (
        f"the chains have not converged: R-hat {found.rhat:.3f}, largest standard errors {named}, tolerance "
        f"{tolerance:g}; continue with posterior.more()"
    )
