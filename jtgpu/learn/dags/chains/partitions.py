"""Partition MCMC: chains over ordered partitions and graphs, and the probabilities of arcs that they estimate.

The target is the modular posterior: each graph counts once. A chain is a function of seed and number; stopping,
progress and checkpoints belong to the caller.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....util.loops import loops
from ....util.system import cores
from ..chain_records import Ladder
from .diagnostics import ChainInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..chain_records import SetTables

_partitions = loops("jtgpu.learn.dags.loops.partitions")

MOVES = "reversals", "splits and merges", "swaps", "relocations"
NOT_DRAWN = -1  # in place of a parent set


class PartitionSampler(NamedTuple):
    """What all chains share."""

    tables: SetTables
    seed: int = 0
    # tuple of float: Shares of the moves, in the order of `MOVES`; the last one is what is left
    shares: tuple[float, float, float] = (0.6, 0.13, 0.13)
    first_chain: int = 0  # number of the first chain, where others run elsewhere


class PartitionChains(NamedTuple):
    """The state of C chains."""

    part: NDArray[np.int64]  # (C, n) ndarray of int64: Part of each variable
    # (C, n) ndarray of int64: Parents of each variable in the present graph, as bits of its candidates; -1 where they
    #     are not drawn
    parents: NDArray[np.int64]
    # (C, n, n) ndarray of uint64: Sums over the samples of the probability of each arc [parent, child], in units of
    #     2**-32
    arcs: NDArray[np.uint64]
    moves: NDArray[np.int64]  # (C, 4, 2) ndarray of int64: Proposals and acceptances of each kind of move
    # n_steps, n_samples: Of each chain
    n_steps: int
    n_samples: int


def parts_of(parents: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part of each variable: the length of the longest path from a root."""
    # parents: (n,) ndarray of int64: Bits of the candidates
    # candidates: (n, k) ndarray of int64
    n = len(parents)
    sets = [[int(u) for j, u in enumerate(candidates[v]) if parents[v] >> j & 1] for v in range(n)]
    part = np.zeros(n, np.int64)
    for _ in range(n):
        new = np.array([max((part[u] + 1 for u in members), default=0) for members in sets], np.int64)
        if (new == part).all():
            break
        part = new
    return part


def start_chains(parents: NDArray[np.int64], candidates: NDArray[np.int64]) -> PartitionChains:
    """The first state of chains that start from some graphs, (C, n) parents as bits of the candidates."""
    n_chains, n = parents.shape
    part = np.array([parts_of(row, candidates) for row in parents], np.int64)
    return PartitionChains(
        part, parents.copy(), np.zeros((n_chains, n, n), np.uint64), np.zeros((n_chains, 4, 2), np.int64), 0, 0
    )


def run_chains(
    sampler: PartitionSampler, state: PartitionChains, n_steps: int, thin: int, *, threads: int | None = None
) -> tuple[PartitionChains, ChainInfo]:
    """Continue all chains.

    The chains of two calls are those of one call with the sum of their steps, bit for bit, if `thin` divides the steps
    of the first.
    """
    # state: Not changed
    # n_steps: Of each chain
    # thin: A graph is drawn after every `thin` steps
    # threads: The result does not depend on it
    part, parents, arcs, moves = state.part.copy(), state.parents.copy(), state.arcs.copy(), state.moves.copy()
    alone = Ladder(np.ones(1), np.zeros(1, np.int64), np.empty((0, 2)), 1)
    chains = [
        ReplicaStates(alone, part[c : c + 1], parents[c : c + 1], arcs[c], moves[c]) for c in range(len(state.part))
    ]
    info = advance(sampler, chains, state.n_steps, n_steps, thin, threads)
    after = PartitionChains(part, parents, arcs, moves, state.n_steps + n_steps, state.n_samples + n_steps // thin)
    return after, info


class ReplicaStates(NamedTuple):
    """Arrays of one chain with R replicas, which `advance` updates; see `Ladder` and `PartitionChains`."""

    ladder: Ladder
    part: NDArray[np.int64]  # (R, n)
    parents: NDArray[np.int64]  # (R, n)
    arcs: NDArray[np.uint64]  # (n, n)
    moves: NDArray[np.int64]  # (4, 2)


def advance(
    sampler: PartitionSampler,
    chains: Sequence[ReplicaStates],
    first: int,
    n_steps: int,
    thin: int,
    threads: int | None,
) -> ChainInfo:
    """Run some steps of all chains in place; `first`: the number of the first step."""
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
    return ChainInfo(trace, best, weights)
