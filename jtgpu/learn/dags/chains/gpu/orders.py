"""Chains over orders on GPUs: cuda/learn/orders.cu."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..orders import OrderChains
from .base import NONE, GpuChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...candidates.tables import CandidateTables

__all__ = ["GpuOrderChains"]

ORDERS = np.dtype(
    [
        (name, np.uint64)
        for name in ("bits", "sums", "hits", "candidates", "orders", "arcs", "trace", "seed", "first")
    ]
    + [("share", np.float64)]
    + [(name, np.uint32) for name in ("n", "k", "n_steps", "thin", "first_chain", "n_chains", "group", "pad")]
)  # fmt: skip


class GpuOrderChains(GpuChains):
    """Chains over orders on GPUs; `close` frees their memory.

    Parameters
    ----------
    tables : CandidateTables
    sums : (n, 2**k) ndarray of float64
    hits : (n, k, 2**(k - 1)) ndarray of float64
    seed : int
    devices : "all", int or sequence of int, optional
        Default: one GPU.
    replicas : int, optional
        Of each chain. Default: `REPLICAS`.
    share_of_swaps : float
        See `jtgpu.learn.dags.chains.orders.OrderSampler`.
    """

    file = "orders"
    kernel = "order_steps"
    record = ORDERS

    def __init__(
        self,
        tables: CandidateTables,
        sums: NDArray[np.float64],
        hits: NDArray[np.float64],
        seed: int,
        *,
        devices: Any = None,
        replicas: int | None = None,
        share_of_swaps: float = 0.5,
    ):
        n = len(tables.candidates)
        bits = np.full((n, n), NONE, np.uint8)  # [v, u]
        for v in range(n):
            for bit, u in enumerate(tables.candidates[v].tolist()):
                if u >= 0:
                    bits[v, u] = bit
        arrays: dict[str, NDArray[Any]] = {
            "bits": bits,
            "sums": sums,
            "hits": hits,
            "candidates": tables.candidates.astype(np.int32),
        }
        super().__init__(tables.candidates.shape, arrays, devices, replicas)
        for loaded in self._loaded:
            loaded.arguments["seed"], loaded.arguments["share"] = seed, share_of_swaps

    def chain_bytes(self) -> int:
        """See `GpuChains`."""
        n = self._shape[0]
        return 8 * (5 * n + n % 2)

    def start(self, order: NDArray[np.int64]) -> OrderChains:
        """The first state: replicas of the orders of some chains, (C, n)."""
        n_chains, n = order.shape
        return OrderChains(np.repeat(order, self.replicas, axis=0), np.zeros((n_chains, n, n), np.uint64), 0, 0)

    def run(self, state: OrderChains, n_steps: int, thin: int) -> tuple[OrderChains, NDArray[np.float64]]:
        """Continue all chains.

        Parameters
        ----------
        state : OrderChains
            Orders of all replicas, (C * replicas, n); arcs of the chains, (C, n, n), added over their replicas. Not
            changed.
        n_steps, thin : int
            Of each chain; a sample is taken after every `thin` steps.

        Returns
        -------
        OrderChains
        (C,) ndarray of float64
            ln weight of the order of each chain's first replica at the last sample.
        """
        order, arcs = state.order.astype(np.uint16), state.arcs.copy()
        trace = np.empty(len(order))
        numbers = {"first": state.n_steps, "n_steps": n_steps, "thin": thin}
        self._run_all(len(arcs), numbers, {"orders": order, "arcs": arcs, "trace": trace})
        samples = self.replicas * (n_steps // thin)
        after = OrderChains(order.astype(np.int64), arcs, state.n_steps + n_steps, state.n_samples + samples)
        return after, trace[:: self.replicas]
