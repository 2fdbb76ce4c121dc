"""Partition MCMC: chains over ordered partitions and graphs, and the probabilities of arcs that they estimate.

The target is the modular posterior: each graph counts once. A chain is a function of seed and number; stopping,
progress and checkpoints belong to the caller.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....util.arrays import Floats, Ints
from ....util.elementary import exps, log, logs
from ....util.loops import loops
from ....util.system import cores
from ..chain_records import Ladder, SetTables
from .diagnostics import Block

_partitions = loops("jtgpu.learn.dags.loops.partitions")

MOVES = "reversals", "splits and merges", "swaps", "relocations"
NOT_DRAWN = -1  # in place of a parent set


class PartitionSampler(NamedTuple):
    """Tables, seed and shares of the moves, which all chains share."""

    tables: SetTables
    seed: int = 0
    shares: tuple[float, float, float] = (0.6, 0.13, 0.13)  # of the moves in `MOVES`; the last one is what is left
    first_chain: int = 0  # number of the first chain, where others run elsewhere


class ReplicaStates(NamedTuple):
    """Arrays of one chain with R replicas, which compiled loops update."""

    ladder: Ladder
    part: Ints  # (R, n)
    parents: Ints  # (R, n)
    arcs: NDArray[np.uint64]  # (n, n)
    moves: Ints  # (4, 2)


class PartitionChains(NamedTuple):
    """The state of C chains."""

    part: Ints  # (C, n) part of each variable
    parents: Ints  # (C, n) parents of each variable in the present graph, as bits; -1: not drawn
    # (C, n, n) sums over the samples of the probability of each arc [parent, child], in units of 2**-32
    arcs: NDArray[np.uint64]
    moves: Ints  # (C, 4, 2) proposals and acceptances of each kind of move
    n_steps: int  # of each chain
    n_samples: int  # of each chain

    def replicas(self) -> list[ReplicaStates]:
        """Views of the arrays of each chain."""
        alone = Ladder(np.ones(1), np.zeros(1, np.int64), np.empty((0, 2)), 1)
        return [
            ReplicaStates(alone, self.part[c : c + 1], self.parents[c : c + 1], self.arcs[c], self.moves[c])
            for c in range(len(self.part))
        ]


def parts_of(parents: Ints, candidates: Ints) -> Ints:
    """The part of each variable in each graph: the length of the longest path from a root."""
    # parents: (..., n) bits of the candidates
    # candidates: (n, k)
    n, part = parents.shape[-1], np.zeros_like(parents)
    bits = np.arange(candidates.shape[1])
    for _ in range(n):
        new = np.zeros_like(part)
        for v in range(n):
            is_parent = parents[..., v, None] >> bits & 1
            new[..., v] = (is_parent * (part[..., candidates[v]] + 1)).max(axis=-1, initial=0)
        if (new == part).all():
            break
        part = new
    return part


def start_chains(parents: Ints, candidates: Ints) -> PartitionChains:
    """The first state of chains that start from some graphs, (C, n) parents as bits of the candidates."""
    n_chains, n = parents.shape
    arcs, moves = np.zeros((n_chains, n, n), np.uint64), np.zeros((n_chains, 4, 2), np.int64)
    return PartitionChains(parts_of(parents, candidates), parents.copy(), arcs, moves, 0, 0)


Chains = TypeVar("Chains", PartitionChains, "TemperedChains")


def run_chains(
    sampler: PartitionSampler, state: Chains, n_steps: int, thin: int, *, threads: int | None = None
) -> tuple[Chains, Block]:
    """Continue all chains.

    The chains of two calls are those of one call with the sum of their steps, bit for bit, if `thin` divides the steps
    of the first. Replica r of R of chain c has the random numbers of chain ``c * R + r``.
    """
    # state: Not changed
    # n_steps: Of each chain, or of each of its replicas
    # thin: A graph is drawn after every `thin` steps
    # threads: The result does not depend on it
    own = {name: value.copy() for name, value in state._asdict().items() if isinstance(value, np.ndarray)}
    new = state._replace(**own, n_steps=state.n_steps + n_steps, n_samples=state.n_samples + n_steps // thin)
    chains, first = new.replicas(), state.n_steps
    n = chains[0].part.shape[1]
    trace, best = np.empty((len(chains), n_steps // thin)), np.full((len(chains), n), NOT_DRAWN)
    shares, script, ratios = np.array(sampler.shares), np.empty((0, 0), np.uint64), np.empty(0)

    def run(i: int) -> float:
        own = chains[i]
        highest = _partitions.partition_steps(
            n_steps, first, thin, sampler.first_chain + i, np.uint64(sampler.seed), shares, sampler.tables, own.ladder,
            own.part, own.parents, own.arcs, trace[i], best[i], own.moves.reshape(-1), script, ratios,
        )  # fmt: skip
        return float(highest)

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        weights = np.array(list(pool.map(run, range(len(chains)))))
    return new, Block(trace, best, weights)


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


class TemperedChains(NamedTuple):
    """The state of C chains of R replicas, of which arcs, moves and graphs are those of the first level."""

    part: Ints  # (C, R, n)
    parents: Ints  # (C, R, n)
    levels: Ints  # (C, R) level of each replica
    betas: Floats  # (R,) the ladder
    # (C, R - 1, 2) attempts to exchange each pair of levels since the ladder was tuned, and the sum of their
    # probabilities
    swaps: Floats
    arcs: NDArray[np.uint64]  # (C, n, n)
    moves: Ints  # (C, 4, 2)
    n_steps: int  # of each replica
    n_samples: int

    def replicas(self) -> list[ReplicaStates]:
        """Views of the arrays of each chain."""
        return [
            ReplicaStates(
                Ladder(self.betas, self.levels[c], self.swaps[c], SWAP_STEPS), self.part[c], self.parents[c],
                self.arcs[c], self.moves[c],
            )
            for c in range(len(self.part))
        ]  # fmt: skip

    def swap_rates(self) -> Floats:
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


def tuned(state: TemperedChains) -> TemperedChains:
    """The same state with another ladder, by the exchanges of all chains since the last tuning."""
    betas = even_ladder(state.betas, 1.0 - state.swap_rates()) if (state.swaps[..., 0] > 0.0).all() else state.betas
    return state._replace(betas=betas, swaps=np.zeros_like(state.swaps))


def even_ladder(betas: Floats, rejected: Floats) -> Floats:
    """A ladder of as many levels whose pairs are rejected equally often: 65 % of the attempts, if that is possible.

    The cumulative rejection along the ladder is interpolated linearly in ln beta, and divided into equal parts.
    """
    # betas: (R,) Descending from 1
    # rejected: (R - 1,) Share of the attempts to exchange each pair of levels
    depths = -logs(betas)
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejected, 1e-3))])
    wanted = REJECTED * (len(betas) - 1)
    if barrier[-1] < wanted:  # extended by the slope of its end
        slope = (barrier[-1] - barrier[-2]) / (depths[-1] - depths[-2])
        more = min((wanted - barrier[-1]) / slope, MAX_EXTENSION, max(-log(MIN_BETA) - depths[-1], 0.0))
        depths, barrier = np.append(depths, depths[-1] + more), np.append(barrier, barrier[-1] + more * slope)
    places = np.linspace(0.0, min(barrier[-1], wanted), len(betas))
    return exps(-np.interp(places, barrier, depths))
