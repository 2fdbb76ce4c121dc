"""Engines of chains: what a `ChainRun` advances, without knowing what chains are over or where they run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import orders, partitions, tempering
from .set_tables import ANY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates.tables import CandidateTables
    from ..chain_records import SetTables

BLOCK_STEPS = 1000  # at least; a graph of each chain is kept after each block
TEMPERED_BLOCK_STEPS = 250  # of many replicas
FIRST_ROUNDS = 4  # before the first check, at least
ROUNDS_OF_VARIABLE, MOST_FIRST_ROUNDS = 1.25, 50  # 10,000 steps for each variable: shorter runs miss graphs


def first_rounds(n: int, least: int = FIRST_ROUNDS) -> int:
    """Rounds of chains over partitions of n variables before the first check whether they have converged."""
    return max(least, min(math.ceil(ROUNDS_OF_VARIABLE * n), MOST_FIRST_ROUNDS))


class Block(NamedTuple):
    """What C chains found in some steps."""

    # (C, n) ndarray of int64: The graph of each chain at the end, as bits of the possible parents
    graphs: NDArray[np.int64]
    trace: NDArray[np.float64]  # (C,) ndarray of float64: ln weight at the last sample
    best: NDArray[np.int64]  # (..., n) ndarray of int64: Graphs of high weight
    weights: NDArray[np.float64]  # (...,) ndarray of float64: Their ln weights; -inf where there is none


class Engine:
    """The base class of engines."""
    # name: What users see as the method
    # thin: Steps between two samples
    # block_steps: Of a block, at least
    # first_rounds: Number of rounds before the first check whether estimates are precise
    # confirmation: Factor of the rounds after which estimates were precise, at the end of which they must still be: the
    #     first round whose errors look small enough is one of many, and its errors tend to be too small
    # counts_moves: Whether states have proposals and acceptances of the moves of partitions

    name = ""
    thin = 1
    block_steps = BLOCK_STEPS
    first_rounds = FIRST_ROUNDS
    confirmation = 1.0
    counts_moves = False

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Continue; returns the state, and ``trace``, ``best`` and ``weights`` of a `Block`."""
        raise NotImplementedError

    def start(self, first: Any) -> Any:
        """The first state, from that of other chains."""
        return first

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """The present graph of each chain, (C, n) bits of the possible parents."""
        return np.asarray(state.parents, np.int64)

    def restored(self, fields: dict[str, Any]) -> Any:
        """The state of some fields."""
        return partitions.PartitionChains(**fields)

    def run_blocks(self, state: Any, n_steps: int, n_blocks: int) -> tuple[Any, list[Block]]:
        """Continue by some blocks of so many steps each."""
        found = []
        for _ in range(n_blocks):
            state, trace, best, weights = self.run(state, n_steps)
            found.append(Block(self.graphs(state).copy(), trace, best, weights))
        return state, found

    def after_round(self, state: Any, n_rounds: int) -> Any:
        """The state after a round in the burn-in, which may adapt the chains."""
        return state

    def release(self) -> None:
        """Free what is not needed until the next call of `run`."""


class PartitionEngine(Engine):
    """Chains over partitions; see `jtgpu.learn.dags.chains.partitions`."""

    name = "partition MCMC"
    counts_moves = True

    def __init__(self, tables: SetTables, seed: int, threads: int | None, first_chain: int = 0):
        self._sampler = partitions.PartitionSampler(tables, seed, first_chain=first_chain)
        self._threads = threads
        n = len(tables.candidates)
        self.thin = n if tables.outer_units.shape[1] else max(n // 2, 1)  # samples with outer sets take longer
        self.first_rounds = first_rounds(n)

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        state, info = partitions.run_chains(self._sampler, state, n_steps, self.thin, threads=self._threads)
        return state, info.trace[:, -1], info.best, info.best_weight


class TemperedEngine(PartitionEngine):
    """Chains over partitions with replicas at levels of a ladder; see `jtgpu.learn.dags.chains.tempering`.

    The ladder is tuned after each of the first rounds, which do not count.
    """

    name = "tempered partition MCMC"
    block_steps = TEMPERED_BLOCK_STEPS
    tuning_rounds = 4

    def __init__(
        self, tables: SetTables, seed: int, threads: int | None, first_chain: int = 0,
        replicas: int = tempering.REPLICAS,
    ):  # fmt: skip
        super().__init__(tables, seed, threads, first_chain)
        self.replicas, self.first_rounds = replicas, first_rounds(len(tables.candidates), 4 * self.tuning_rounds)

    def start(self, first: Any) -> Any:
        """The first state, from the present state of chains over partitions."""
        return tempering.start_tempered(first, self.replicas)

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        state, info = tempering.run_tempered(self._sampler, state, n_steps, self.thin, threads=self._threads)
        return state, info.trace[:, -1], info.best, info.best_weight

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """The present graph of the first level of each chain."""
        return np.asarray(state.parents[np.arange(len(state.levels)), state.levels.argmin(axis=1)], np.int64)

    def restored(self, fields: dict[str, Any]) -> Any:
        return tempering.TemperedChains(**fields)

    def after_round(self, state: Any, n_rounds: int) -> Any:
        return tempering.tuned(state) if n_rounds <= self.tuning_rounds else state


class OrderEngine(Engine):
    """Chains over orders; see `jtgpu.learn.dags.chains.orders`."""
    # first_chain, n_chains: Number of the first chain, and of all chains, where others run elsewhere

    name = "order MCMC"
    confirmation = 1.5

    def __init__(
        self, tables: CandidateTables, chain_tables: SetTables, seed: int, threads: int | None, first_chain: int = 0,
        n_chains: int | None = None,
    ):  # fmt: skip
        self._tables, self._seed, self._threads = chain_tables, seed, threads
        self._among = None if n_chains is None else (first_chain, n_chains)
        self._sampler = orders.OrderSampler(
            tables, chain_tables.sums, chain_tables.hits, seed, first_chain=first_chain
        )  # fmt: skip
        self._has_outer = chain_tables.outer_units.shape[1] > 0
        self.thin = orders.steps_between_samples(chain_tables)

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """See `Engine`; there is no best graph."""
        if self._has_outer:
            state, trace = orders.run_corrected_chains(
                self._sampler, self._tables, state, n_steps, self.thin, threads=self._threads
            )
        else:
            state, info = orders.run_chains(self._sampler, state, n_steps, self.thin, threads=self._threads)
            trace = info.trace
        none = np.full(state.order.shape, ANY, np.int64), np.full(len(state.order), -np.inf)
        return state, trace[:, -1], *none

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """A graph that the present order of each chain allows, drawn by its weight."""
        return orders.graphs_of_orders(self._tables, state.order, self._seed, state.n_steps, self._threads, self._among)

    def restored(self, fields: dict[str, Any]) -> Any:
        return orders.OrderChains(**fields)
