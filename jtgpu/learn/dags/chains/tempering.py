"""Parallel tempering (MC3) of chains over partitions: replicas of each chain at levels of a ladder.

At level i, the target is the posterior to the power beta_i, with 1 = beta_0 > beta_1 > ...: flatter levels cross the
valleys between graphs of high weight, and exchanges of neighbouring levels bring these to the posterior. Even pairs of
levels are exchanged, then odd pairs (Okabe et al., 2001). During the burn-in the ladder is spaced so that all pairs are
rejected equally often (Syed et al., 2022); then it stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....util.elementary import exps, log, logs
from ..chain_records import Ladder
from .partitions import PartitionChains, PartitionSampler, ReplicaStates, advance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .chain_info import ChainInfo

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
