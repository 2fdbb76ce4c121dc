"""Chains over orders on GPUs: cuda/learn/orders.cu and cuda/learn/corrected_orders.cu."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..orders import OrderChains, n_full
from .base import NONE, GpuChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...chain_records import SetTables

ORDERS = np.dtype(
    [
        (name, np.uint64)
        for name in (
            "bits", "sums", "hits", "candidates", "outer_masks", "outer_counts", "outer_ends", "outer_units",
            "outer_totals", "orders", "arcs", "trace", "seed", "first",
        )
    ]
    + [("share", np.float64)]
    + [(name, np.uint32) for name in ("n", "k", "n_steps", "thin", "first_chain", "n_chains", "group", "m")]
    + [(name, np.uint32) for name in ("n_outer", "n_segments", "n_full", "pad")]
)  # fmt: skip


class GpuOrderChains(GpuChains):
    """Chains over orders on GPUs; `close` frees their memory."""
    # tables: With outer sets, the number of steps of a call must be a multiple of `thin`
    # devices: "all" or sequence of int: Default: one GPU
    # replicas: Of each chain. Default: `REPLICAS`.
    # share_of_swaps: See `jtgpu.learn.dags.chains.orders.OrderSampler`

    record = ORDERS

    def __init__(
        self,
        tables: SetTables,
        seed: int,
        *,
        devices: Any = None,
        replicas: int | None = None,
        share_of_swaps: float = 0.5,
    ):
        n, n_segments = len(tables.candidates), tables.outer_units.shape[1]
        self.file, self.kernel = (
            ("corrected_orders", "corrected_order_steps") if n_segments else ("orders", "order_steps")
        )
        self._has_outer = bool(n_segments)
        bits = np.full((n, n), NONE, np.uint8)  # [v, u]
        for v in range(n):
            for bit, u in enumerate(tables.candidates[v].tolist()):
                if u >= 0:
                    bits[v, u] = bit
        arrays: dict[str, NDArray[Any]] = {
            "bits": bits,
            "sums": tables.sums,
            "hits": tables.hits,
            "candidates": tables.candidates.astype(np.int32),
            "outer_masks": tables.outer_masks,
            "outer_counts": tables.outer_counts,
            "outer_ends": tables.outer_ends.astype(np.uint32),
            "outer_units": tables.outer_units,
            "outer_totals": tables.outer_totals,
        }
        super().__init__((n, tables.hits.shape[1]), arrays, devices, replicas)
        for loaded in self._loaded:
            s = loaded.arguments
            s["seed"], s["share"], s["m"], s["n_full"] = seed, share_of_swaps, tables.candidates.shape[1], n_full(n)
            s["n_outer"], s["n_segments"] = tables.outer_masks.shape[1], n_segments

    def chain_bytes(self) -> int:
        n = self._shape[0]
        words = 5 * n + n % 2
        return 8 * (words + 3 * n + (n + 3) // 4 if self._has_outer else words)

    def start(self, order: NDArray[np.int64]) -> OrderChains:
        """The first state: replicas of the orders of some chains, (C, n)."""
        n_chains, n = order.shape
        return OrderChains(np.repeat(order, self.replicas, axis=0), np.zeros((n_chains, n, n), np.uint64), 0, 0)

    def run(self, state: OrderChains, n_steps: int, thin: int) -> tuple[OrderChains, NDArray[np.float64]]:
        """Continue all chains."""
        # state: Orders of all replicas, (C * replicas, n); arcs of the chains, (C, n, n), added over their replicas.
        #     Not changed.
        # n_steps, thin: Of each chain; a sample is taken after every `thin` steps
        # returns (C,) ndarray of float64: ln weight of the order of each chain's first replica at the last sample.
        order, arcs = state.order.astype(np.uint16), state.arcs.copy()
        trace = np.empty(len(order))
        numbers = {"first": state.n_steps, "n_steps": n_steps, "thin": thin}
        self._run_all(len(arcs), numbers, {"orders": order, "arcs": arcs, "trace": trace})
        samples = self.replicas * (n_steps // thin)
        after = OrderChains(order.astype(np.int64), arcs, state.n_steps + n_steps, state.n_samples + samples)
        return after, trace[:: self.replicas]
