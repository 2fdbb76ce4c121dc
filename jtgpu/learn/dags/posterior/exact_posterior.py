"""The exact posterior of a problem, on CPUs or a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    from .problem import Problem
    from .result import StructurePosterior

__all__ = ["exact_posterior"]


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
