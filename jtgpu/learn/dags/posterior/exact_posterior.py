"""The exact posterior of a problem, on CPUs or a GPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..candidates.family_weights import family_weights
from ..candidates.tables import all_parents
from ..exact.draws import draw_by_orders, draw_by_partitions
from ..exact.gpu.exact import GpuExact
from ..exact.posteriors import exact_by_orders, exact_by_partitions
from ..scores.combinations import n_parent_sets, parent_masks
from ..search.best_graph import exact_best
from .sources import DRAWS, ExactSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..candidates.tables import CandidateTables
    from ..exact.posteriors import ExactPosterior
    from .problem import Problem
    from .result import StructurePosterior


def exact_posterior(problem: Problem, by_orders: bool) -> StructurePosterior:
    """The posterior by sums over all orders, or all partitions."""
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
        options = problem.devices, by_orders, seed, threads
        return ExactSource(given, exact, partial(_draw_on_gpu, options, tables), by_orders, drawn).posterior()
    if by_orders:
        exact = exact_by_orders(rows, masks, memory_limit=limit, threads=threads)
    else:
        exact = exact_by_partitions(rows, masks, memory_limit=limit)

    best = exact_best(rows, masks, memory_limit=limit, threads=threads)
    draw = partial(_draw, tables, exact if by_orders else None, seed, threads)
    return ExactSource(problem.given(tables, best, "exact"), exact, draw, by_orders).posterior()


def _draw(
    tables: CandidateTables, by_orders: ExactPosterior | None, seed: int, threads: int | None, n: int
) -> NDArray[np.int64]:
    """n graphs; a function of the module, because posteriors are pickled."""
    if by_orders is not None:
        return draw_by_orders(tables, by_orders, n, seed, threads)
    return draw_by_partitions(tables, n, seed, threads)


def _draw_on_gpu(options: tuple[Any, bool, int, int | None], tables: CandidateTables, n: int) -> NDArray[np.int64]:
    return GpuExact(*options).posterior(tables, n)[1]
