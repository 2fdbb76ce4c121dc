"""The exact posterior of a task, on CPUs or a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....util.arrays import Floats, Ints
from ..best_graph import exact_best
from ..candidate_tables import CandidateTables, all_parents
from ..exact import draw_by_orders, draw_by_partitions, exact_by_orders, exact_by_partitions
from ..gpu_exact import GpuExact
from ..scores.ranks import n_parent_sets, parent_masks
from .averaging import MAX_ENUMERATED, PROPERTIES, exact_properties
from .records import DataSummary, Diagnostics, PosteriorRecord, data_summary
from .result import StructurePosterior

if TYPE_CHECKING:
    from ..exact import ExactPosterior
    from ..task import LearningTask


GROUPS = 20  # of independent draws, whose spread gives standard errors
DRAWS = 2000
MANY_DRAWS = 20_000  # for properties of whole graphs, whose standard error is then at most 0.0036
MAX_SETS = 1000  # parent sets of a variable that are listed


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


def _draw_on_gpu(options: tuple[Any, bool, int, int | None], tables: CandidateTables, n: int) -> Ints:
    return GpuExact(*options).posterior(tables, n)[1]
