"""First states of chains over partitions on GPUs: each replica starts from a graph of its own.

Chains over orders visit the regions of high weight in few steps, and thousands of them run at the same time. So the
first graphs are spread over all regions, between which chains over partitions take many steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .....util.elementary import log
from ..orders import OrderChains, graphs_of_orders
from ..partitions import PartitionChains
from .orders import GpuOrderChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...chain_records import SetTables

STEPS = 5  # of each replica, for each n^2 ln n


def without_outer_sets(tables: SetTables) -> SetTables:
    """Tables of the sets of candidates alone."""
    n, k = tables.hits.shape[:2]
    if not tables.outer_units.shape[1]:
        return tables
    weights = np.where(tables.masks >> k == 0, tables.weights, -np.inf)
    most = int(np.isfinite(weights).sum(axis=1).max())
    order = np.argsort(-weights, axis=1, kind="stable")[:, :most]
    return tables._replace(
        candidates=np.ascontiguousarray(tables.candidates[:, :k]),
        masks=np.take_along_axis(tables.masks, order, axis=1),
        weights=np.take_along_axis(weights, order, axis=1),
        outer_masks=np.empty((n, 0), np.int64),
        outer_counts=np.empty((n, 0), np.int64),
        outer_ends=np.zeros((n, 1), np.int64),
        outer_units=np.empty((n, 0)),
        outer_totals=np.empty((n, 0)),
        outer_ratios=np.full(n, -np.inf),
    )


def start_replicas(
    tables: SetTables, first: OrderChains, seed: int, *, devices: Any = None, threads: int | None = None
) -> PartitionChains:
    """Run replicas of chains over orders on GPUs, and draw a graph that each order allows."""
    # tables: Of which the sets of candidates are used
    # first: The chains over orders after their first steps, (C, n)
    # returns Of all replicas, (C * replicas, n); arcs of the chains, (C, n, n).
    inner, (n_chains, n) = without_outer_sets(tables), first.order.shape
    n_steps = math.ceil(STEPS * n * n * log(max(n, 2)))
    chains = GpuOrderChains(inner, seed, devices=devices)
    try:
        state, _ = chains.run(chains.start(first.order)._replace(n_steps=first.n_steps), n_steps, n_steps)
    finally:
        chains.close()
    graphs = graphs_of_orders(inner, state.order, seed, state.n_steps, threads)
    moves = np.zeros((len(graphs), 4, 2), np.int64)
    return PartitionChains(
        parts_of_graphs(graphs, inner.candidates), graphs, np.zeros((n_chains, n, n), np.uint64), moves, 0, 0
    )


def parts_of_graphs(parents: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """`jtgpu.learn.dags.chains.partitions.parts_of` of many graphs, (D, n)."""
    n_graphs, n = parents.shape
    part = np.zeros((n_graphs, n), np.int64)
    bits = np.arange(candidates.shape[1])
    while True:
        new = np.zeros_like(part)
        for v in range(n):
            is_parent = parents[:, v, None] >> bits & 1
            new[:, v] = (is_parent * (part[:, candidates[v]] + 1)).max(axis=1, initial=0)
        if (new == part).all():
            return part
        part = new
