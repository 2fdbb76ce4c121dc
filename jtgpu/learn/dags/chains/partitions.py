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
from .chain_info import ChainInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables

__all__ = ["MOVES", "PartitionChains", "PartitionSampler", "parts_of", "run_chains", "start_chains"]

_partitions = loops("jtgpu.learn.dags.loops.partitions")

MOVES = "reversals", "splits and merges", "swaps", "relocations"
NOT_DRAWN = -1  # in place of a parent set


class PartitionSampler(NamedTuple):
    """What all chains share.

    Attributes
    ----------
    tables : SetTables
    seed : int
    shares : tuple of float
        Shares of the moves, in the order of `MOVES`; the last one is what is left.
    beta : float
        The target is the posterior to this power. Reversals are only correct for 1.
    """

    tables: SetTables
    seed: int = 0
    shares: tuple[float, float, float] = (0.6, 0.13, 0.13)
    beta: float = 1.0


class PartitionChains(NamedTuple):
    """The state of C chains.

    Attributes
    ----------
    part : (C, n) ndarray of int64
        Part of each variable.
    parents : (C, n) ndarray of int64
        Parents of each variable in the present graph, as bits of its candidates; -1 where they are not drawn.
    arcs : (C, n, n) ndarray of uint64
        Sums over the samples of the probability of each arc [parent, child], in units of 2**-32.
    moves : (C, 4, 2) ndarray of int64
        Proposals and acceptances of each kind of move.
    n_steps, n_samples : int
        Of each chain.
    """

    part: NDArray[np.int64]
    parents: NDArray[np.int64]
    arcs: NDArray[np.uint64]
    moves: NDArray[np.int64]
    n_steps: int
    n_samples: int


def parts_of(parents: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part of each variable: the length of the longest path from a root.

    Parameters
    ----------
    parents : (n,) ndarray of int64
        Bits of the candidates.
    candidates : (n, k) ndarray of int64
    """
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

    Parameters
    ----------
    sampler : PartitionSampler
    state : PartitionChains
        Not changed.
    n_steps : int
        Of each chain.
    thin : int
        A graph is drawn after every `thin` steps.
    threads : int, optional
        The result does not depend on it.
    """
    n_chains, n = state.part.shape
    part, parents, arcs, moves = state.part.copy(), state.parents.copy(), state.arcs.copy(), state.moves.copy()
    trace, best = np.empty((n_chains, n_steps // thin)), np.full((n_chains, n), NOT_DRAWN)
    settings = np.array([sampler.beta, *sampler.shares])
    script, ratios = np.empty((0, 0), np.uint64), np.empty(0)

    def run(chain: int) -> float:
        counts = moves[chain].reshape(-1)
        highest = _partitions.partition_steps(
            n_steps, state.n_steps, thin, chain, np.uint64(sampler.seed), settings, sampler.tables, part[chain],
            parents[chain], arcs[chain], trace[chain], best[chain], counts, script, ratios,
        )  # fmt: skip
        return float(highest)

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        weights = np.array(list(pool.map(run, range(n_chains))))
    after = PartitionChains(part, parents, arcs, moves, state.n_steps + n_steps, state.n_samples + n_steps // thin)
    return after, ChainInfo(trace, best, weights)
