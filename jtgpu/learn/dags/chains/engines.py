"""Engines of chains: what a `ChainRun` advances, without knowing what chains are over or where they run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....util.elementary import exps, log, logs
from ..chain_records import Ladder
from . import orders, partitions
from .partitions import PartitionChains, PartitionSampler, ReplicaStates, advance
from .set_tables import ANY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidate_tables import CandidateTables
    from ..chain_records import SetTables
    from .diagnostics import ChainInfo

# Parallel tempering (MC3) of chains over partitions: replicas of each chain at levels of a ladder.
#
# At level i, the target is the posterior to the power beta_i, with 1 = beta_0 > beta_1 > ...: flatter levels cross
# the valleys between graphs of high weight, and exchanges of neighbouring levels bring these to the posterior. Even
# pairs of levels are exchanged, then odd pairs (Okabe et al., 2001). During the burn-in the ladder is spaced so that
# all pairs are rejected equally often (Syed et al., 2022); then it stays as it is.

REPLICAS = 8  # of each chain, by default
SWAP_STEPS = 10  # between two attempts to exchange levels
FIRST_RATIO = 0.85  # of neighbouring levels of the ladder, before it is tuned
REJECTED = 0.65  # share of the attempts to exchange two levels, after tuning
MIN_BETA = 0.01
MAX_EXTENSION = log(2.0)  # of the ladder's logarithms by one tuning
NOT_DRAWN = -1


class TemperedChains(NamedTuple):
    """The state of C chains of R replicas."""

    # part, parents: (C, R, n) ndarray of int64: Of each replica; see `PartitionChains`. Graphs are those of the first
    #     level.
    part: NDArray[np.int64]
    parents: NDArray[np.int64]
    levels: NDArray[np.int64]  # (C, R) ndarray of int64: Level of each replica
    betas: NDArray[np.float64]  # (R,) ndarray of float64: The ladder
    # (C, R - 1, 2) ndarray of float64: Attempts to exchange each pair of levels since the ladder was tuned, and the sum
    #     of their probabilities
    swaps: NDArray[np.float64]
    # arcs, moves, n_steps, n_samples: Of the first level; see `PartitionChains`
    arcs: NDArray[np.uint64]
    moves: NDArray[np.int64]
    n_steps: int
    n_samples: int

    def swap_rates(self) -> NDArray[np.float64]:
        """Share of accepted exchanges of each pair of levels, (R - 1,); 0 where there was no attempt."""
        tried, accepted = self.swaps.sum(axis=0).T
        return np.asarray(accepted / np.maximum(tried, 1.0))


def start_tempered(chains: PartitionChains, replicas: int) -> TemperedChains:
    """The first state of tempered chains; all replicas start from the present state of their chain."""
    n_chains, n = chains.part.shape
    return TemperedChains(
        np.repeat(chains.part[:, None], replicas, axis=1), np.full((n_chains, replicas, n), NOT_DRAWN),
        np.tile(np.arange(replicas), (n_chains, 1)), np.cumprod(np.array([1.0, *[FIRST_RATIO] * (replicas - 1)])),
        np.zeros((n_chains, replicas - 1, 2)), np.zeros_like(chains.arcs), np.zeros_like(chains.moves), chains.n_steps,
        0,
    )  # fmt: skip


def run_tempered(
    sampler: PartitionSampler, state: TemperedChains, n_steps: int, thin: int, *, threads: int | None = None
) -> tuple[TemperedChains, ChainInfo]:
    """Continue all chains; see `jtgpu.learn.dags.chains.partitions.run_chains`.

    Steps are those of each replica. Replica r of chain c has the random numbers of chain ``c * R + r``.
    """
    new = state._replace(
        part=state.part.copy(), parents=state.parents.copy(), levels=state.levels.copy(), swaps=state.swaps.copy(),
        arcs=state.arcs.copy(), moves=state.moves.copy(), n_steps=state.n_steps + n_steps,
        n_samples=state.n_samples + n_steps // thin,
    )  # fmt: skip
    chains = [
        ReplicaStates(
            Ladder(new.betas, new.levels[c], new.swaps[c], SWAP_STEPS), new.part[c], new.parents[c], new.arcs[c],
            new.moves[c],
        )
        for c in range(len(new.part))
    ]  # fmt: skip
    return new, advance(sampler, chains, state.n_steps, n_steps, thin, threads)


def tuned(state: TemperedChains) -> TemperedChains:
    """The same state with another ladder, by the exchanges of all chains since the last tuning."""
    betas = even_ladder(state.betas, 1.0 - state.swap_rates()) if (state.swaps[..., 0] > 0.0).all() else state.betas
    return state._replace(betas=betas, swaps=np.zeros_like(state.swaps))


def even_ladder(betas: NDArray[np.float64], rejected: NDArray[np.float64]) -> NDArray[np.float64]:
    """A ladder of as many levels whose pairs are rejected equally often: 65 % of the attempts, if that is possible.

    The cumulative rejection along the ladder is interpolated linearly in ln beta, and divided into equal parts.
    """
    # betas: (R,) ndarray of float64: Descending from 1
    # rejected: (R - 1,) ndarray of float64: Share of the attempts to exchange each pair of levels
    depths = -logs(betas)
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejected, 1e-3))])
    wanted = REJECTED * (len(betas) - 1)
    if barrier[-1] < wanted:  # extended by the slope of its end
        slope = (barrier[-1] - barrier[-2]) / (depths[-1] - depths[-2])
        more = min((wanted - barrier[-1]) / slope, MAX_EXTENSION, max(-log(MIN_BETA) - depths[-1], 0.0))
        depths, barrier = np.append(depths, depths[-1] + more), np.append(barrier, barrier[-1] + more * slope)
    places = np.linspace(0.0, min(barrier[-1], wanted), len(betas))
    return exps(-np.interp(places, barrier, depths))


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
        replicas: int = REPLICAS,
    ):  # fmt: skip
        super().__init__(tables, seed, threads, first_chain)
        self.replicas, self.first_rounds = replicas, first_rounds(len(tables.candidates), 4 * self.tuning_rounds)

    def start(self, first: Any) -> Any:
        """The first state, from the present state of chains over partitions."""
        return start_tempered(first, self.replicas)

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        state, info = run_tempered(self._sampler, state, n_steps, self.thin, threads=self._threads)
        return state, info.trace[:, -1], info.best, info.best_weight

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """The present graph of the first level of each chain."""
        return np.asarray(state.parents[np.arange(len(state.levels)), state.levels.argmin(axis=1)], np.int64)

    def restored(self, fields: dict[str, Any]) -> Any:
        return TemperedChains(**fields)

    def after_round(self, state: Any, n_rounds: int) -> Any:
        return tuned(state) if n_rounds <= self.tuning_rounds else state


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
