"""Chains over partitions on GPUs: cuda/learn/partitions.cu."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..partitions import PartitionChains
from .base import GpuChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...chain_records import SetTables

NOT_DRAWN = -1  # in place of the bits of parents

PARTITIONS = np.dtype(
    [
        (name, np.uint64)
        for name in (
            "candidates", "sums", "hits", "masks", "weights", "outer_masks", "outer_counts", "outer_ends",
            "outer_units", "outer_totals", "outer_ratios", "log_factorials", "parts", "parents", "arcs", "trace",
            "best", "best_weight", "moves", "seed", "first",
        )
    ]
    + [("shares", np.float64, 3)]
    + [(name, np.uint32) for name in ("n", "k", "n_sets", "n_steps", "thin", "first_chain", "n_chains", "group")]
    + [(name, np.uint32) for name in ("m", "n_outer", "n_segments", "pad")]
)  # fmt: skip


class GpuPartitionChains(GpuChains):
    """Chains over partitions on GPUs; `close` frees their memory."""
    # devices: "all" or sequence of int: Default: one GPU
    # replicas: Of each chain. Default: `REPLICAS`.
    # shares: tuple of float: See `jtgpu.learn.dags.chains.partitions.PartitionSampler`

    file = "partitions"
    kernel = "partition_steps"
    record = PARTITIONS

    def __init__(
        self,
        tables: SetTables,
        seed: int,
        *,
        devices: Any = None,
        replicas: int | None = None,
        shares: tuple[float, float, float] = (0.6, 0.13, 0.13),
    ):
        n, k = tables.sums.shape[0], tables.hits.shape[1]
        arrays: dict[str, NDArray[Any]] = {
            "candidates": tables.candidates.astype(np.int32),
            "sums": tables.sums,
            "hits": tables.hits,
            "masks": tables.masks,
            "weights": tables.weights,
            "outer_masks": tables.outer_masks,
            "outer_counts": tables.outer_counts,
            "outer_ends": tables.outer_ends.astype(np.uint32),
            "outer_units": tables.outer_units,
            "outer_totals": tables.outer_totals,
            "outer_ratios": tables.outer_ratios,
            "log_factorials": tables.log_factorials,
        }
        super().__init__((n, k), arrays, devices, replicas)
        for loaded in self._loaded:
            loaded.arguments["seed"], loaded.arguments["n_sets"] = seed, tables.masks.shape[1]
            loaded.arguments["shares"], loaded.arguments["m"] = shares, tables.candidates.shape[1]
            loaded.arguments["n_outer"] = tables.outer_masks.shape[1]
            loaded.arguments["n_segments"] = tables.outer_units.shape[1]

    def chain_bytes(self) -> int:
        return -(-self._shape[0] // 4) * 4 * (9 * 8 + 4 + 5 * 2) + 48

    def start(self, chains: PartitionChains) -> PartitionChains:
        """The first state: replicas of some chains."""
        part, parents = (np.repeat(x, self.replicas, axis=0) for x in (chains.part, chains.parents))
        moves = np.zeros((len(part), 4, 2), np.int64)
        return PartitionChains(part, parents, np.zeros_like(chains.arcs), moves, 0, 0)

    def run(
        self, state: PartitionChains, n_steps: int, thin: int
    ) -> tuple[PartitionChains, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Continue all chains."""
        # state: Of all replicas; arcs of the chains, (C, n, n), added over their replicas. Not changed.
        # n_steps, thin: Of each chain; a graph is drawn after every `thin` steps
        # returns (C,) ndarray of float64: ln weight of the partition of each chain's first replica at the last sample.
        # returns (C * replicas, n) ndarray of int64: The best graph that each replica drew.
        # returns (C * replicas,) ndarray of float64: Their ln weights.
        n_all, n = state.part.shape
        arrays: dict[str, NDArray[Any]] = {
            "parts": state.part.astype(np.uint16), "parents": state.parents.copy(), "arcs": state.arcs.copy(),
            "trace": np.empty(n_all), "best": np.full((n_all, n), NOT_DRAWN, np.int64),
            "best_weight": np.full(n_all, -np.inf), "moves": np.zeros((n_all, 8), np.uint32),
        }  # fmt: skip
        numbers = {"first": state.n_steps, "n_steps": n_steps, "thin": thin}
        self._run_all(len(state.arcs), numbers, arrays)
        after = PartitionChains(
            arrays["parts"].astype(np.int64), arrays["parents"], arrays["arcs"],
            state.moves + arrays["moves"].reshape(-1, 4, 2), state.n_steps + n_steps,
            state.n_samples + self.replicas * (n_steps // thin),
        )  # fmt: skip
        return after, arrays["trace"][:: self.replicas], arrays["best"], arrays["best_weight"]
