"""Chains on GPUs as `jtgpu.learn.dags.chains.runs.ChainRun` runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import orders, partitions
from ..engines import Engine
from ..set_tables import ANY
from .orders import GpuOrderChains
from .partitions import GpuPartitionChains
from .starts import start_replicas

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...chain_records import SetTables

BLOCK_STEPS = 250  # fewer than on the CPU, of many more chains
OUTER_THIN = 4  # steps between two samples, for each variable, with outer sets: a sample takes the time of 100 steps


class GpuPartitionEngine(Engine):
    """Replicas of chains over partitions on GPUs; see `jtgpu.learn.dags.chains.gpu`. What users see of a chain is its
    first replica, and the arcs of all."""

    name = "partition MCMC on GPUs"
    block_steps = BLOCK_STEPS
    first_rounds = 8  # replicas are many, so that standard errors are small before the replicas have mixed

    def __init__(self, tables: SetTables, seed: int, devices: Any, threads: int | None = None):
        self._tables, self._seed, self._devices, self._threads = tables, seed, devices, threads
        self._chains: GpuPartitionChains | None = None
        self.thin = len(tables.candidates) * (OUTER_THIN if tables.outer_units.shape[1] else 1)

    def start(self, first: orders.OrderChains) -> partitions.PartitionChains:
        """The first state of all replicas, from chains over orders."""
        return start_replicas(self._tables, first, self._seed, devices=self._devices, threads=self._threads)

    def _open(self) -> GpuPartitionChains:
        if self._chains is None:
            self._chains = GpuPartitionChains(self._tables, self._seed, devices=self._devices)
        return self._chains

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """See `PartitionEngine.run`; the best graph of each replica."""
        return self._open().run(state, n_steps, self.thin)

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """The present graph of the first replica of each chain."""
        return np.asarray(state.parents[:: len(state.parents) // len(state.arcs)], np.int64)

    def restored(self, fields: dict[str, Any]) -> Any:
        """The state of some fields."""
        return partitions.PartitionChains(**fields)

    def release(self) -> None:
        """Free the memory of the GPUs until the next call of `run`."""
        if self._chains is not None:
            self._chains.close()
        self._chains = None


class GpuOrderEngine(Engine):
    """Replicas of chains over orders on GPUs; see `GpuPartitionEngine`."""

    name = "order MCMC on GPUs"
    confirmation = 1.5
    block_steps = BLOCK_STEPS

    def __init__(self, tables: SetTables, seed: int, devices: Any, threads: int | None):
        self._tables, self._seed, self._devices, self._threads = tables, seed, devices, threads
        self._chains: GpuOrderChains | None = None
        self.thin = orders.steps_between_samples(tables)

    def start(self, first: NDArray[np.int64]) -> orders.OrderChains:
        """The first state of all replicas, from the orders of the chains."""
        return self._open().start(first)

    def _open(self) -> GpuOrderChains:
        if self._chains is None:
            self._chains = GpuOrderChains(self._tables, self._seed, devices=self._devices)
        return self._chains

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Continue; there is no best graph."""
        state, trace = self._open().run(state, n_steps, self.thin)
        n_chains, n = state.arcs.shape[:2]
        return state, trace, np.full((n_chains, n), ANY, np.int64), np.full(n_chains, -np.inf)

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """A graph that the present order of the first replica of each chain allows, drawn by its weight."""
        order = state.order[:: len(state.order) // len(state.arcs)]
        return orders.graphs_of_orders(self._tables, order, self._seed, state.n_steps, self._threads)

    def restored(self, fields: dict[str, Any]) -> Any:
        """The state of some fields."""
        return orders.OrderChains(**fields)

    def release(self) -> None:
        """Free the memory of the GPUs until the next call of `run`."""
        if self._chains is not None:
            self._chains.close()
        self._chains = None
