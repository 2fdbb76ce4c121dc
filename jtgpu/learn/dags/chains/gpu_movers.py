"""Movers of chains on GPUs, and the first states of chains over partitions there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ....util.elementary import log
from . import orders, partitions
from .diagnostics import Block
from .gpu_chains import GpuOrderChains, GpuPartitionChains
from .movers import Mover
from .orders import OrderChains, graphs_of_orders
from .partitions import PartitionChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables

# First states of chains over partitions on GPUs: each replica starts from a graph of its own.
#
# Chains over orders visit the regions of high weight in few steps, and thousands of them run at the same time. So the
# first graphs are spread over all regions, between which chains over partitions take many steps.

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
        partitions.parts_of(graphs, inner.candidates), graphs, np.zeros((n_chains, n, n), np.uint64), moves, 0, 0
    )


BLOCK_STEPS = 250  # fewer than on the CPU, of many more chains
OUTER_THIN = 4  # steps between two samples, for each variable, with outer sets: a sample takes the time of 100 steps


class GpuMover(Mover):
    """Replicas of chains on GPUs. Users see the first replica of a chain, and the arcs of all."""

    block_steps = BLOCK_STEPS
    chains_type: type[Any]

    def __init__(self, tables: SetTables, seed: int, devices: Any, threads: int | None = None):
        super().__init__(tables, seed, threads)
        self._devices = devices
        self._opened: Any = None

    def _chains(self) -> Any:
        if self._opened is None:
            self._opened = self.chains_type(self._tables, self._seed, devices=self._devices)
        return self._opened

    def release(self) -> None:
        """Free the memory of the GPUs until the next call of `sample`."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None


class GpuPartitionMover(GpuMover):
    """Chains over partitions on GPUs."""

    name = "partition MCMC on GPUs"
    chains_type = GpuPartitionChains
    first_rounds = 8  # replicas are many, so that standard errors are small before the replicas have mixed

    def __init__(self, tables: SetTables, seed: int, devices: Any, threads: int | None = None):
        super().__init__(tables, seed, devices, threads)
        self.thin = len(tables.candidates) * (OUTER_THIN if tables.outer_units.shape[1] else 1)

    def init(self, first: orders.OrderChains) -> partitions.PartitionChains:
        """The first state of all replicas, from chains over orders."""
        return start_replicas(self._tables, first, self._seed, devices=self._devices, threads=self._threads)

    def step(self, state: Any, n_steps: int) -> tuple[Any, Block]:
        """Continue; the best graph of each replica."""
        state, trace, best, weights = self._chains().run(state, n_steps, self.thin)
        return state, Block(trace[:, None], best, weights)

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """The present graph of the first replica of each chain."""
        return np.asarray(state.parents[:: len(state.parents) // len(state.arcs)], np.int64)


class GpuOrderMover(GpuMover):
    """Chains over orders on GPUs."""

    name = "order MCMC on GPUs"
    chains_type = GpuOrderChains
    confirmation = 1.5

    def __init__(self, tables: SetTables, seed: int, devices: Any, threads: int | None = None):
        super().__init__(tables, seed, devices, threads)
        self.thin = orders.steps_between_samples(tables)

    def init(self, first: orders.OrderChains) -> orders.OrderChains:
        """The first state of all replicas, from chains over orders."""
        state: orders.OrderChains = self._chains().start(first.order)
        return state

    def step(self, state: Any, n_steps: int) -> tuple[Any, Block]:
        state, trace = self._chains().run(state, n_steps, self.thin)
        return state, orders.block_of(trace[:, None], len(self._tables.candidates))

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """A graph that the present order of the first replica of each chain allows, drawn by its weight."""
        order = state.order[:: len(state.order) // len(state.arcs)]
        return orders.graphs_of_orders(self._tables, order, self._seed, state.n_steps, self._threads)
