"""`learn.posterior`: the posterior over structures, exactly for few variables, by Markov chains for many."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ....errors import ArgumentError, TableTooLarge
from ....model.network import BayesianNetwork
from ....options.compute import Compute
from ....options.learning import Chains, Constraints, Search
from ....options.record import require_only
from ....options.tables import ReadOptions
from ....util import late_imports
from ....util.arguments import callback, check_keywords_of, choice, new_file_path, number, whole_number
from ....util.arrays import Floats, Ints
from ....util.calls import outside
from ....util.options import Data, Interventions, LearnBackend, MissingCells, PosteriorMethod, StructurePriorLike
from ..best_graph import exact_best
from ..candidate_tables import CandidateTables, all_parents
from ..chains.run import MAX_STEPS, Stop
from ..exact import draw_by_orders, draw_by_partitions, exact_by_orders, exact_by_partitions
from ..gpu_exact import GpuExact
from ..scores.coded import MISSING_CHOICES
from ..scores.ranks import n_parent_sets, parent_masks
from ..scores.rules import Score, ScoreFunction
from ..scores.score_table import learn_backend
from ..task import learning_task
from .augmentation import CHAINS as AUGMENTED
from .augmentation import augmented_posterior
from .averaging import MAX_ENUMERATED, PROPERTIES, exact_properties
from .chain_posterior import chain_source, replicas_of
from .records import DataSummary, Diagnostics, PosteriorRecord, data_summary
from .result import StructurePosterior

if TYPE_CHECKING:
    from ..exact import ExactPosterior
    from ..scores.coded import CodedTable
    from ..task import LearningTask

POSTERIOR_METHODS = ("auto", "exact", "mcmc")
AUTO_BY_ORDERS, AUTO_BY_PARTITIONS = 20, 13  # variables up to which the exact posterior takes seconds
GPU_BY_ORDERS, GPU_BY_PARTITIONS = 28, 17  # the same on a GPU
CHAINS = 8
GROUPS = 20  # of independent draws, whose spread gives standard errors
DRAWS = 2000
MANY_DRAWS = 20_000  # for properties of whole graphs, whose standard error is then at most 0.0036
MAX_SETS = 1000  # parent sets of a variable that are listed


@check_keywords_of()
def posterior(  # noqa: PLR0913
    data: Data | CodedTable,
    *,
    method: PosteriorMethod = "auto",
    score: Score | ScoreFunction = "bdeu",
    ess: float = 1.0,
    graph_prior: StructurePriorLike = "uniform",
    max_parents: int | Mapping[str, int] = 4,
    states: Mapping[str, Sequence[object]] | BayesianNetwork | None = None,
    continuous: bool | Iterable[str] | None = None,
    missing: MissingCells = "error",
    weights: object = None,
    interventions: Interventions = None,
    seed: int = 0,
    seconds: float | None = None,
    constraints: Constraints = Constraints(),
    search: Search = Search(),
    chains: Chains = Chains(),
    read: ReadOptions = ReadOptions(),
    compute: Compute | LearnBackend | Literal["auto"] = Compute(),
) -> StructurePosterior:
    """Compute the posterior over directed acyclic graphs: how probable arcs, paths and parent sets are.

    For few variables the probabilities are exact. For many, Markov chains over ordered partitions of the variables
    (Kuipers and Moffa, 2017), with reversals of arcs, run until the standard errors are small.

    Parameters
    ----------
    data : data frame, mapping of columns, list of mappings, (N, n) array, or path of a CSV or Parquet file
        States, or numbers with the scores ``"bge"`` and ``"bic-cg"``.
    method : {"auto", "exact", "mcmc"}
        ``"auto"``: exact for up to 13 variables (20 with ``graph_prior="order"``), or 17 (28) on a GPU, else Markov
        chains.
    score, ess : str or callable, float
        As for `jtgpu.learn.structure`. ``"bic"``, ``"bic-cg"`` and ``"aic"`` approximate ln P(data | graph).
    graph_prior : {"uniform", "fair", "order"} or ("edge", p)
        Prior weights of graphs: uniform; 1 / C(n - 1, k) for each set of k parents; p / (1 - p) for each arc. With
        ``"order"``, a graph is weighted by the number of orders of the variables that it allows: chains over orders
        mix faster, but the probabilities differ from those of ``"uniform"``, often by more than 0.1.
    max_parents, states, continuous, missing, weights, interventions, constraints, read
        As for `jtgpu.learn.structure`. ``missing="augment"`` draws the missing cells together with the graphs, by
        `chains` whose steps each fill the table again (default: 4 chains); with ``"bdeu"``, ``"k2"`` and ``"bdj"``.
    seed : int
        The same seed gives the same result, for any number of threads.
    seconds : float, optional
        Time that all of it should take at most, from the reading of the data to the last round of the chains: fewer
        families are scored for it, with a warning if that leaves fewer parents. The result depends on the machine. With
        a checkpoint, only the chains are limited, so that another run can continue them.
    search : Search
        Candidate parents of each variable when chains run: their number, or lists by name. Default: 12, or fewer if
        memory is short. A number affects the speed only: parent sets with other members are summed one by one, unless
        all their subsets have 100,000 times their weight. Lists exclude all other parents, from exact posteriors too.
        `coverage` says which share of the posterior is summed. ``start`` is a graph from which the first chain starts.
    chains : Chains
        Chains stop when the largest standard error of the probability of an arc is at most ``tolerance``, and R-hat is
        at most 1.05, or after so many ``steps`` (default 4,000,000). ``tempering``: the number of replicas of each
        chain over partitions, at levels between the posterior and a flatter distribution: chains leave graphs that are
        far better than all neighbours, but take as many times longer. ``"auto"``: 8, from a quarter of the run on, if
        nested R-hat exceeds 1.05. ``blocks``: so many times after each 1,000 steps, the parents of a variable and three
        of its candidate parents are drawn together, exactly: chains then pass between graphs that differ in several
        turned arcs, which single moves and tempering seldom do. Chains are saved in ``checkpoint`` every 30 seconds; if
        it exists, they continue from it, with the same result as without the interruption.
    compute : Compute or {"cpu", "gpu"}
        On GPUs, families are scored, exact posteriors are summed on the first one, and each chain runs as 512 replicas.
        Chains can run on a Ray cluster. The result does not depend on threads, devices and cluster. A function
        ``progress`` is called with a line of text about each stage, and after every round of the chains.

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
    choice("missing", missing, (*MISSING_CHOICES, "augment"))
    least = math.inf if seconds is None else number("seconds", seconds, above=0.0)
    stop = Stop(chains.tolerance, chains.steps or MAX_STEPS, least)
    n_chains = CHAINS if chains.n_chains == "auto" else whole_number("n_chains", chains.n_chains, 4)
    compute = Compute.of(compute, "backend threads devices memory_limit cluster progress", "posterior")
    require_only(search, "candidates start scores", "posterior")
    backend, cluster = learn_backend(compute), compute.cluster
    if cluster is not None:
        cluster = late_imports.cluster().as_cluster(cluster)
        if backend == "gpu":
            raise ArgumentError("a cluster runs chains on CPUs; use backend='cpu', or the GPUs of this machine only")
    replicas, n_blocks = replicas_of(chains.tempering, graph_prior, backend), whole_number("blocks", chains.blocks, 0)
    if n_blocks and (replicas or graph_prior == "order" or backend == "gpu"):
        raise ArgumentError("blocks are drawn in chains over partitions on the CPU, without tempering")
    checkpoint = None if chains.checkpoint is None else new_file_path("checkpoint", chains.checkpoint)
    callback("progress", compute.progress)
    task = learning_task(
        data, score=score, ess=ess, graph_prior=graph_prior, max_parents=max_parents, states=states,
        continuous=continuous, missing=missing, weights=weights, interventions=interventions, seed=seed,
        seconds=None if checkpoint is not None or missing == "augment" else seconds, constraints=constraints,
        search=search, read=read, compute=compute,
    )  # fmt: skip
    if missing == "augment" and task.coded.has_gaps:
        other = cluster is not None or checkpoint is not None or backend == "gpu" or chains.tempering or n_blocks
        if method == "exact" or other:
            raise ArgumentError(
                "missing='augment' runs chains of its own on this machine's CPU: it takes no method='exact', cluster=, "
                "checkpoint, tempering, blocks or GPU"
            )
        own = AUGMENTED if chains.n_chains == "auto" else n_chains
        task = replace(task.restricted(search.candidates), say=cast(Any, compute.progress or task.say))
        return augmented_posterior(task, own, stop, chains.steps)
    notes = (AVAILABLE,) if task.coded.has_gaps else (NUMBERS_LAST,) if task.rule.name == "bic-cg" else ()
    task = replace(task, notes=notes, say=cast(Any, compute.progress or task.say))
    by_orders = task.prior.name == "order"
    limits = (GPU_BY_ORDERS, GPU_BY_PARTITIONS) if backend == "gpu" else (AUTO_BY_ORDERS, AUTO_BY_PARTITIONS)
    few = task.n <= limits[0 if by_orders else 1]
    if method == "exact" or (method == "auto" and few and task.has_few_families):
        try:
            return exact_posterior(task.restricted(search.candidates), by_orders)
        except TableTooLarge as error:
            if method == "exact":
                raise TableTooLarge(f"{error}; use method='mcmc'", error.entries, error.needed, error.limit) from None
    source = chain_source(
        task, search.candidates, stop, n_chains=n_chains, replicas=replicas, cluster=cluster, checkpoint=checkpoint,
        n_blocks=n_blocks,
    )  # fmt: skip
    estimated = source.advance(stop if checkpoint is not None else stop._replace(seconds=task.time.left))
    if not estimated.converged:
        warnings.warn(_unconverged(estimated), UserWarning, stacklevel=outside())
    if estimated.low_coverage:
        warnings.warn(estimated.low_coverage, UserWarning, stacklevel=outside())
    return estimated


AVAILABLE = (
    "rows with missing cells were scored by available cases: equivalent graphs then have different scores, so "
    "directions may look certain that the data cannot tell; use missing='augment'"
)


NUMBERS_LAST = "arcs from numbers to variables with states are forbidden by the model: their probability is 0"


def _unconverged(estimated: StructurePosterior) -> str:
    """The warning about chains that have not converged, with the arcs of the largest standard errors."""
    errors = estimated.mcse.values
    worst = np.argsort(-errors, axis=None)[:3]
    arcs = [divmod(int(i), len(estimated.names)) for i in worst]
    named = ", ".join(f"{estimated.names[u]} -> {estimated.names[v]} ({errors[u, v]:.3f})" for u, v in arcs)
    reasons = "; ".join(estimated.shortfall)
    return f"the chains have not converged: {reasons}; largest standard errors {named}; continue with posterior.more()"


class ExactSource:
    """Graphs are drawn independently when they are needed; parent sets are exact."""

    # draw: Draws a number of graphs, (D, n) bits of the candidates
    # by_orders: Whether graphs weigh more, the more orders they allow
    # drawn: (DRAWS, n) graphs that it returned for `DRAWS`

    def __init__(
        self, summary: DataSummary, exact: ExactPosterior, draw: Callable[[int], Ints], by_orders: bool,
        drawn: Ints | None = None,
    ):  # fmt: skip
        self._summary, self._exact, self._draw, self._by_orders = summary, exact, draw, by_orders
        n = len(summary.table.names)
        self._drawn = (np.empty((0, n), np.int64) if drawn is None else drawn).reshape(-1, GROUPS, n)

    def graphs(self, n: int | None = None) -> Ints:
        wanted = -(-max(n or 0, DRAWS) // GROUPS)
        if len(self._drawn) != wanted:
            self._drawn = self._draw(wanted * GROUPS).reshape(wanted, GROUPS, -1)
        return self._drawn

    def property_of_graphs(self, name: str) -> tuple[Floats, Floats]:
        """Exact for few variables, else of many draws."""
        tables = self._summary.tables
        if len(tables.candidates) <= MAX_ENUMERATED:
            p = exact_properties(tables, self._by_orders)[name]
            return p, np.zeros_like(p)
        graphs = self._draw(MANY_DRAWS).reshape(-1, GROUPS, len(tables.candidates))
        return PROPERTIES[name](graphs, tables.candidates)

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        p, own = self._exact.families[v], self._summary.tables.candidates[v]
        first = np.argsort(-p, kind="stable")[:MAX_SETS].tolist()
        masks = self._summary.tables.masks
        return [
            (tuple(int(u) for j, u in enumerate(own) if masks[i] >> j & 1), float(p[i]), 0.0) for i in first if p[i] > 0
        ]

    def more(self, steps: int | None, seconds: float | None) -> StructurePosterior:
        """The same posterior: it is exact."""
        return self.posterior()

    def posterior(self) -> StructurePosterior:
        """The posterior with exact probabilities of arcs."""
        summary, families = self._summary, self._exact.families
        n = len(summary.table.names)
        arcs = np.zeros((n, n))
        for v in range(n):
            for j, u in enumerate(summary.tables.candidates[v]):
                arcs[u, v] = min(float(families[v, summary.tables.masks >> j & 1 > 0].sum()), 1.0)
        diagnostics = Diagnostics("exact", summary.prior, self._exact.log_evidence, notes=summary.notes)
        record = PosteriorRecord(
            summary.table, arcs, np.zeros((n, n)), summary.best, diagnostics, summary.tables.candidates,
            np.empty((0, 0)), summary.ess, summary.seed,
        )  # fmt: skip
        return StructurePosterior(record, self)


def exact_posterior(task: LearningTask, by_orders: bool) -> StructurePosterior:
    """The posterior by sums over all orders, or all partitions."""
    n = task.n
    limit, seed, threads = task.limit, task.seed, task.threads
    on_gpu = None
    if task.backend == "gpu":
        on_gpu = GpuExact(task.devices, by_orders, seed, threads)
        on_gpu.require_memory(n, n_parent_sets(n, task.most))
    scores = task.scores(task.most)
    rows, masks = task.family_weights(scores), parent_masks(n, scores.max_parents)
    tables = all_parents(rows, masks)
    if on_gpu is not None:
        exact, drawn = on_gpu.posterior(tables, DRAWS)
        summary = data_summary(task, tables, on_gpu.best(tables), "exact")
        options = task.devices, by_orders, seed, threads
        return ExactSource(summary, exact, partial(_draw_on_gpu, options, tables), by_orders, drawn).posterior()
    if by_orders:
        exact = exact_by_orders(rows, masks, memory_limit=limit, threads=threads)
    else:
        exact = exact_by_partitions(rows, masks, memory_limit=limit)

    best = exact_best(rows, masks, memory_limit=limit, threads=threads)
    draw = partial(_draw, tables, exact if by_orders else None, seed, threads)
    return ExactSource(data_summary(task, tables, best, "exact"), exact, draw, by_orders).posterior()


def _draw(tables: CandidateTables, by_orders: ExactPosterior | None, seed: int, threads: int | None, n: int) -> Ints:
    """n graphs; a function of the module, because posteriors are pickled."""
    if by_orders is not None:
        return draw_by_orders(tables, by_orders, n, seed, threads)
    return draw_by_partitions(tables, n, seed, threads)


def _draw_on_gpu(options: tuple[object, bool, int, int | None], tables: CandidateTables, n: int) -> Ints:
    return GpuExact(*options).posterior(tables, n)[1]
