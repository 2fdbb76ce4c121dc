"""Chains over orders on GPUs: cuda/learn/orders.cu, a warp a chain.

Many replicas of each chain run at the same time, and their arcs are added together. Chains are numbered across all
GPUs, sums are integers, and a chain depends on its number alone: the result does not depend on the number of GPUs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device.context import Device, device_numbers, open_device
from ....device.driver import Arguments, Kernels, most_shared
from ....device.memory import Memory
from ....errors import TableTooLarge, format_bytes
from .orders import OrderChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates.tables import CandidateTables

__all__ = ["REPLICAS", "GpuOrderChains"]

REPLICAS = 512  # of each chain
WARPS = 4  # of a block
NONE = 255
SHARE = 0.9  # of a device's free memory that may be used

ORDERS = np.dtype(
    [
        (name, np.uint64)
        for name in ("bits", "sums", "hits", "candidates", "orders", "arcs", "trace", "seed", "first")
    ]
    + [("share", np.float64)]
    + [(name, np.uint32) for name in ("n", "k", "n_steps", "thin", "first_chain", "n_chains", "group", "pad")]
)  # fmt: skip


class _Loaded(NamedTuple):
    """The tables on one GPU."""

    device: Device
    memory: Memory
    stream: Any
    kernels: Kernels
    arguments: NDArray[Any]
    warps: int
    events: tuple[Any, Any]


class GpuOrderChains:
    """Chains over orders on GPUs; `close` frees their memory.

    Parameters
    ----------
    tables : CandidateTables
    sums : (n, 2**k) ndarray of float64
    hits : (n, k, 2**(k - 1)) ndarray of float64
    seed : int
    devices : "all", int or sequence of int, optional
        Default: one GPU.
    replicas : int
        Of each chain.
    share_of_swaps : float
        See `jtgpu.learn.dags.chains.orders.OrderSampler`.

    Attributes
    ----------
    seconds : float
        Of the kernels of the last call, on the slowest GPU.

    Raises
    ------
    TableTooLarge
        If the tables exceed a GPU's memory, or the state of a chain its shared memory.
    """

    def __init__(
        self,
        tables: CandidateTables,
        sums: NDArray[np.float64],
        hits: NDArray[np.float64],
        seed: int,
        *,
        devices: Any = None,
        replicas: int = REPLICAS,
        share_of_swaps: float = 0.5,
    ):
        self.replicas, self.seed, self.share_of_swaps = replicas, seed, share_of_swaps
        self.seconds = 0.0
        self._loaded: list[_Loaded] = []
        n, k = tables.candidates.shape
        self._shape = n, k
        bits = np.full((n, n), NONE, np.uint8)  # [v, u]
        for v in range(n):
            for bit, u in enumerate(tables.candidates[v].tolist()):
                if u >= 0:
                    bits[v, u] = bit
        opened = [open_device(d) for d in device_numbers(devices)] if devices is not None else [open_device()]
        try:
            for device in opened:
                with device.active():
                    self._loaded.append(self._load(device, bits, tables.candidates, sums, hits))
        except BaseException:
            self.close()
            raise

    def _load(
        self,
        device: Device,
        bits: NDArray[np.uint8],
        candidates: NDArray[np.int64],
        sums: NDArray[np.float64],
        hits: NDArray[np.float64],
    ) -> _Loaded:
        n, k = self._shape
        needed, limit = sums.nbytes + hits.nbytes, int(SHARE * device.free_memory())
        if needed > limit:
            raise TableTooLarge(
                f"the tables of {k} candidate parents of {n} variables need {format_bytes(needed)}, more than "
                f"{device.name} has free ({format_bytes(limit)}); use fewer candidates", needed // 8, needed, limit,
            )  # fmt: skip
        one, most = 8 * (5 * n + n % 2), most_shared(device) - 1024
        warps = min(WARPS, most // one)
        if not warps:
            raise TableTooLarge(f"an order of {n} variables exceeds the GPU's shared memory", n, one, most)
        memory, stream = Memory(device), device.stream()
        try:
            kernels = Kernels(device, "learn/orders", ("order_steps",))
            kernels.allow_shared("order_steps", one * warps)

            def put(array: NDArray[Any]) -> int:
                return memory.put(np.ascontiguousarray(array), stream)

            s = np.zeros(1, ORDERS)
            s["bits"], s["sums"], s["candidates"] = put(bits), put(sums), put(candidates.astype(np.int32))
            if hits.size:
                s["hits"] = put(hits)
            s["seed"], s["share"], s["n"], s["k"] = self.seed, self.share_of_swaps, n, k
        except BaseException:
            memory.close()
            raise
        events = device.event(timing=True), device.event(timing=True)
        return _Loaded(device, memory, stream, kernels, s, warps, events)

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
        n_chains, parts = len(state.arcs), len(self._loaded)
        order, arcs = state.order.astype(np.uint16), state.arcs.copy()
        trace = np.empty(len(order))
        bounds = [n_chains * i // parts for i in range(parts + 1)]

        def work(i: int) -> float:
            first, last = bounds[i], bounds[i + 1]
            if first == last:
                return 0.0
            rows = slice(first * self.replicas, last * self.replicas)
            return self._run_part(
                self._loaded[i], state.n_steps, n_steps, thin, rows.start, order[rows], arcs[first:last], trace[rows]
            )

        with ThreadPoolExecutor(parts, "jtgpu-chains") as pool:
            self.seconds = max(pool.map(work, range(parts)))
        samples = self.replicas * (n_steps // thin)
        after = OrderChains(order.astype(np.int64), arcs, state.n_steps + n_steps, state.n_samples + samples)
        return after, trace[:: self.replicas]

    def _run_part(  # noqa: PLR0913
        self,
        loaded: _Loaded,
        first: int,
        n_steps: int,
        thin: int,
        first_chain: int,
        order: NDArray[np.uint16],
        arcs: NDArray[np.uint64],
        trace: NDArray[np.float64],
    ) -> float:
        """Run the chains of one GPU in place; the kernel's seconds."""
        device, stream, s = loaded.device, loaded.stream, loaded.arguments
        with device.active():
            memory = Memory(device)
            try:
                s["orders"], s["arcs"] = memory.put(order, stream), memory.put(arcs, stream)
                s["trace"] = memory.empty(trace.nbytes)
                s["first"], s["n_steps"], s["thin"] = first, n_steps, thin
                s["first_chain"], s["n_chains"], s["group"] = first_chain, len(order), self.replicas
                begin, end = loaded.events
                begin.record(stream)
                loaded.kernels.launch(
                    "order_steps", -(-len(order) // loaded.warps), 32 * loaded.warps, stream, Arguments(s),
                    shared=8 * (5 * self._shape[0] + self._shape[0] % 2) * loaded.warps,
                )  # fmt: skip
                end.record(stream)
                for array, name in ((order, "orders"), (arcs, "arcs"), (trace, "trace")):
                    device.download(array, int(s[name][0]), stream)
                stream.synchronize()
                return float(end.time_since(begin)) * 1e-3
            finally:
                memory.close()

    def close(self) -> None:
        """Free the memory of the GPUs; may be called twice."""
        while self._loaded:
            with self._loaded[-1].device.active():  # streams and events end while their context is current
                self._loaded[-1].kernels.close()
                self._loaded[-1].memory.close()
                self._loaded.pop()
