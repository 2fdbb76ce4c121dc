"""`GpuExact`: exact posteriors on one GPU, with draws of graphs and the best graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..chains.set_tables import ANY, draw_sets, sorted_sets
from ..search.best_graph import BestGraph, graph_of_best_order
from . import gpu_orders as orders
from . import gpu_partitions as partitions
from .gpu_orders import first_device, require_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidate_tables import CandidateTables
    from .posteriors import ExactPosterior

class GpuExact:
    """Exact posteriors on a GPU. Memory is taken for each call only."""
    # devices: "all", int, sequence of int or None: The first one is used
    # by_orders: Whether each graph counts once for each order that it allows
    # seed: Of the draws, which are those of the CPU, except where a decision depends on the last digits

    def __init__(self, devices: Any, by_orders: bool, seed: int, threads: int | None = None):
        self._device = first_device(devices)
        self._by_orders, self._seed, self._threads = by_orders, seed, threads

    def require_memory(self, n: int, n_sets: int) -> None:
        """Raise `TableTooLarge` if n variables of so many parent sets each do not fit the device."""
        kind: Any = orders if self._by_orders else partitions
        require_memory(self._device, n, kind.MAX_VARIABLES, lambda m: int(kind.bytes_for(m, n_sets)))

    def posterior(self, tables: CandidateTables, n_draws: int) -> tuple[ExactPosterior, NDArray[np.int64]]:
        """The posterior, and graphs drawn from it."""
        # tables: All other variables are candidates, ascending
        # returns (n_draws, n) ndarray of int64: Parents of each variable as bits of its candidates.
        weights, masks = tables.log_weights, tables.masks
        n = len(weights)
        rng = np.random.Generator(np.random.Philox(key=[self._seed, 1 << (32 if self._by_orders else 33)]))
        if self._by_orders:
            found, drawn = orders.orders_on_gpu(self._device, weights, masks, rng.random((n, n_draws)))
            before, met, totals = drawn.before, np.full_like(drawn.before, ANY), drawn.totals
        else:
            found, (before, met, totals) = partitions.partitions_on_gpu(
                self._device, weights, masks, rng.random((n + 1, n_draws))
            )
            roots = np.where(met == ANY, weights[:, :1] - weights.max(axis=1, keepdims=True), 0.0)
            totals = totals + roots
        totals = totals + weights.max(axis=1, keepdims=True)
        u = rng.random((n, n_draws))
        graphs = draw_sets(*sorted_sets(tables), before, met, totals, u, self._threads)
        return found, np.ascontiguousarray(graphs.T)

    def best(self, tables: CandidateTables) -> BestGraph:
        """The graph of the highest weight."""
        order = orders.best_order(self._device, tables.log_weights, tables.masks)
        return graph_of_best_order(order, tables.log_weights, tables.masks)
