"""Movers: how chains of one kind start and continue, here or on a cluster. `ChainRun` drives them.

A mover has `init`, which makes the first state, and `sample`, which continues it by blocks of steps. The random numbers
of a chain depend on the seed and its global number, so the results do not depend on threads or machines.
"""

from __future__ import annotations

import copy
import itertools
import math
import uuid
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....util import late_imports
from ....util.arrays import Ints
from . import orders, partitions
from .diagnostics import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidate_tables import CandidateTables
    from ..chain_records import SetTables

BLOCK_STEPS = 1000  # at least; a graph of each chain is kept after each block
TEMPERED_BLOCK_STEPS = 250  # of many replicas
FIRST_ROUNDS = 4  # before the first check, at least
ROUNDS_OF_VARIABLE, MOST_FIRST_ROUNDS = 1.25, 50  # 10,000 steps for each variable: shorter runs miss graphs


def first_rounds(n: int, least: int = FIRST_ROUNDS) -> int:
    """Rounds of chains over partitions of n variables before the first check whether they have converged."""
    return max(least, min(math.ceil(ROUNDS_OF_VARIABLE * n), MOST_FIRST_ROUNDS))


class Mover:
    """The base class of movers."""

    name = ""  # what users see as the method
    thin = 1  # steps between two samples
    block_steps = BLOCK_STEPS  # of a block, at least
    first_rounds = FIRST_ROUNDS  # before the first check whether estimates are precise
    # Factor of the rounds after which estimates were precise, at the end of which they must still be: the first round
    # whose errors look small enough is one of many, and its errors tend to be too small.
    confirmation = 1.0
    counts_moves = False  # whether states have proposals and acceptances of the moves of partitions

    def __init__(self, tables: SetTables, seed: int, threads: int | None = None):
        self._tables, self._seed, self._threads, self._first_chain = tables, seed, threads, 0

    def of_chains(self, first_chain: int, threads: int | None) -> Mover:
        """The mover of the chains from a number on, where others run elsewhere."""
        mover = copy.copy(self)
        mover._first_chain, mover._threads = first_chain, threads
        return mover

    def init(self, first: Any) -> Any:
        """The first state, from that of other chains."""
        return first

    def sample(self, state: object, n_steps: int, n_blocks: int) -> tuple[Any, list[Block]]:
        """Continue by some blocks of so many steps each."""
        blocks = []
        for _ in range(n_blocks):
            state, block = self.step(state, n_steps)
            blocks.append(block._replace(trace=block.trace[:, -1], graphs=self.graphs(state).copy()))
        return state, blocks

    def step(self, state: Any, n_steps: int) -> tuple[Any, Block]:
        """Continue by one block, whose graphs `sample` adds."""
        raise NotImplementedError

    def graphs(self, state: Any) -> Ints:
        """The present graph of each chain, (C, n) bits of the possible parents."""
        return np.asarray(state.parents, np.int64)

    def after_round(self, state: object, n_rounds: int) -> Any:
        """The state after a round in the burn-in, which may adapt the chains."""
        return state

    def release(self) -> None:
        """Free what is not needed until the next call of `sample`."""


class PartitionMover(Mover):
    """Chains over partitions."""

    name = "partition MCMC"
    counts_moves = True

    def __init__(self, tables: SetTables, seed: int, threads: int | None = None):
        super().__init__(tables, seed, threads)
        n = len(tables.candidates)
        self.thin = n if tables.outer_units.shape[1] else max(n // 2, 1)  # samples with outer sets take longer
        self.first_rounds = first_rounds(n)

    def step(self, state: Any, n_steps: int) -> tuple[Any, Block]:
        sampler = partitions.PartitionSampler(self._tables, self._seed, first_chain=self._first_chain)
        return partitions.run_chains(sampler, state, n_steps, self.thin, threads=self._threads)


class TemperedMover(PartitionMover):
    """Chains over partitions with replicas at levels of a ladder, which is tuned after each of the first rounds.

    These rounds do not count.
    """

    name = "tempered partition MCMC"
    block_steps = TEMPERED_BLOCK_STEPS
    tuning_rounds = 4

    def __init__(self, tables: SetTables, seed: int, threads: int | None = None, replicas: int = partitions.REPLICAS):
        super().__init__(tables, seed, threads)
        self.replicas, self.first_rounds = replicas, first_rounds(len(tables.candidates), 4 * self.tuning_rounds)

    def init(self, first: Any) -> Any:
        """The first state, from the present state of chains over partitions."""
        return partitions.start_tempered(first, self.replicas)

    def graphs(self, state: Any) -> Ints:
        """The present graph of the first level of each chain."""
        return np.asarray(state.parents[np.arange(len(state.levels)), state.levels.argmin(axis=1)], np.int64)

    def after_round(self, state: Any, n_rounds: int) -> Any:
        return partitions.tuned(state) if n_rounds <= self.tuning_rounds else state


class OrderMover(Mover):
    """Chains over orders."""

    name = "order MCMC"
    confirmation = 1.5

    def __init__(
        self, candidates: CandidateTables, tables: SetTables, seed: int, n_chains: int, threads: int | None = None
    ):
        super().__init__(tables, seed, threads)
        self._candidates, self._n_chains = candidates, n_chains
        self.thin = orders.steps_between_samples(tables)

    def step(self, state: Any, n_steps: int) -> tuple[Any, Block]:
        tables = self._tables
        sampler = orders.OrderSampler(
            self._candidates, tables.sums, tables.hits, self._seed, first_chain=self._first_chain
        )
        if tables.outer_units.shape[1]:
            state, trace = orders.run_corrected_chains(
                sampler, tables, state, n_steps, self.thin, threads=self._threads
            )
        else:
            state, block = orders.run_chains(sampler, state, n_steps, self.thin, threads=self._threads)
            trace = block.trace
        return state, orders.block_of(trace, len(tables.candidates))

    def graphs(self, state: Any) -> Ints:
        """A graph that the present order of each chain allows, drawn by its weight."""
        among = self._first_chain, self._n_chains
        return orders.graphs_of_orders(self._tables, state.order, self._seed, state.n_steps, self._threads, among)


# Chains on a cluster: a task is a block of chains with their states, and a round of steps. The tables are sent to each
# machine once. A task whose worker is lost runs again.

COMMON = ("betas",)  # arrays of states that all chains share

_of_worker: dict[str, Mover] = {}  # the mover of the present run, in a worker


def _run_task(shared: tuple[str, Mover], task: tuple[int, object, int, int], threads: int) -> tuple[Any, list[Block]]:
    (key, mover), (first_chain, state, n_steps, n_blocks) = shared, task
    if key not in _of_worker:
        _of_worker.clear()
        own = _of_worker[key] = copy.copy(mover)
        vars(own).update(_writable(vars(mover)))
    return _of_worker[key].of_chains(first_chain, threads).sample(_writable(state), n_steps, n_blocks)


def _writable(value: Any) -> Any:
    """Copies of all arrays in a record: compiled loops do not take the read-only ones of the object store."""
    if isinstance(value, np.ndarray):
        return np.array(value)
    if isinstance(value, dict):
        return {name: _writable(part) for name, part in value.items()}
    if hasattr(value, "_asdict"):
        return value._replace(**_writable(value._asdict()))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _writable(getattr(value, f.name)) for f in fields(value)})
    return value


class ClusterMover(Mover):
    """A mover whose chains run on a cluster."""

    def __init__(self, mover: Mover, cluster: Any):
        self._here, self._cluster = mover, cluster
        self._runner: Any = None
        for name in ("name", "thin", "block_steps", "first_rounds", "confirmation", "counts_moves"):
            setattr(self, name, getattr(mover, name))

    def init(self, first: Any) -> Any:
        return self._here.init(first)

    def graphs(self, state: Any) -> Ints:
        return self._here.graphs(state)

    def after_round(self, state: object, n_rounds: int) -> Any:
        return self._here.after_round(state, n_rounds)

    def sample(self, state: Any, n_steps: int, n_blocks: int) -> tuple[Any, list[Block]]:
        if self._runner is None:
            key = uuid.uuid4().hex
            self._runner = late_imports.cluster().TaskRunner(self._cluster, _run_task, (key, self._here))
        n_chains = len(state.arcs)
        parts = min(self._runner.workers, n_chains)
        bounds = [n_chains * i // parts for i in range(parts + 1)]
        tasks = [(a, _some(state, a, b), n_steps, n_blocks) for a, b in itertools.pairwise(bounds)]
        states, blocks = zip(*self._runner.run(tasks), strict=True)
        return _joined(states), [
            Block(*map(np.concatenate, zip(*of_parts, strict=True))) for of_parts in zip(*blocks, strict=True)
        ]

    def release(self) -> None:
        """Disconnect from the cluster."""
        if self._runner is not None:
            self._runner.close()
        self._runner = None


def _some(state: Any, begin: int, end: int) -> Any:
    """The state of some chains."""
    return state._replace(**{name: value[begin:end] for name, value in _of_chains(state)})


def _joined(states: Any) -> Any:
    """The state of all chains."""
    parts = {name: [getattr(state, name) for state in states] for name, _ in _of_chains(states[0])}
    return states[0]._replace(**{name: np.concatenate(arrays) for name, arrays in parts.items()})


def _of_chains(state: Any) -> list[tuple[str, NDArray[Any]]]:
    """The arrays of a state that have a row for each chain."""
    items = state._asdict().items()
    return [(name, value) for name, value in items if isinstance(value, np.ndarray) and name not in COMMON]
