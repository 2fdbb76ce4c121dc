"""Chains over orders and partitions on GPUs: cuda/learn/orders.cu and cuda/learn/partitions.cu, a warp a chain.

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
from .partitions import PartitionChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates.tables import CandidateTables
    from ..chain_records import SetTables

__all__ = ["REPLICAS", "GpuOrderChains", "GpuPartitionChains"]

REPLICAS = 512  # of each chain
WARPS = 4  # of a block
NONE = 255
NOT_DRAWN = -1  # in place of the bits of parents
SHARE = 0.9  # of a device's free memory that may be used

ORDERS = np.dtype(
    [
        (name, np.uint64)
        for name in ("bits", "sums", "hits", "candidates", "orders", "arcs", "trace", "seed", "first")
    ]
    + [("share", np.float64)]
    + [(name, np.uint32) for name in ("n", "k", "n_steps", "thin", "first_chain", "n_chains", "group", "pad")]
)  # fmt: skip


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


class _Loaded(NamedTuple):
    """The tables on one GPU."""

    device: Device
    memory: Memory
    stream: Any
    kernels: Kernels
    arguments: NDArray[Any]
    warps: int
    events: tuple[Any, Any]


class _GpuChains:
    """Chains of one kind on GPUs; `close` frees their memory.

    Parameters
    ----------
    shape : (int, int)
        Variables and candidate parents of each.
    tables : dict
        Arrays of the records of the kernel, by their fields.
    devices : "all", int or sequence of int, optional
        Default: one GPU.
    replicas : int
        Of each chain.

    Attributes
    ----------
    seconds : float
        Of the kernels of the last call, on the slowest GPU.

    Raises
    ------
    TableTooLarge
        If the tables exceed a GPU's memory, or the state of a chain its shared memory.
    """

    kernel = ""
    record = ORDERS

    def __init__(self, shape: tuple[int, int], tables: dict[str, NDArray[Any]], devices: Any, replicas: int | None):
        self.replicas, self.seconds = REPLICAS if replicas is None else replicas, 0.0
        self._shape = shape
        self._loaded: list[_Loaded] = []
        opened = [open_device(d) for d in device_numbers(devices)] if devices is not None else [open_device()]
        try:
            for device in opened:
                with device.active():
                    self._loaded.append(self._load(device, tables))
        except BaseException:
            self.close()
            raise

    def chain_bytes(self) -> int:
        """Shared memory of a chain."""
        raise NotImplementedError

    def _load(self, device: Device, tables: dict[str, NDArray[Any]]) -> _Loaded:
        n, k = self._shape
        needed, limit = sum(x.nbytes for x in tables.values()), int(SHARE * device.free_memory())
        if needed > limit:
            raise TableTooLarge(
                f"the tables of {k} candidate parents of {n} variables need {format_bytes(needed)}, more than "
                f"{device.name} has free ({format_bytes(limit)}); use fewer candidates", needed // 8, needed, limit,
            )  # fmt: skip
        one, most = self.chain_bytes(), most_shared(device) - 1024
        warps = min(WARPS, most // one)
        if not warps:
            raise TableTooLarge(f"a chain over {n} variables exceeds the GPU's shared memory", n, one, most)
        memory, stream = Memory(device), device.stream()
        try:
            kernels = Kernels(device, f"learn/{self.kernel.split('_')[0]}s", (self.kernel,))
            kernels.allow_shared(self.kernel, one * warps)
            s = np.zeros(1, self.record)
            for name, array in tables.items():
                if array.size:
                    s[name] = memory.put(np.ascontiguousarray(array), stream)
            s["n"], s["k"] = n, k
            events = device.event(timing=True), device.event(timing=True)
        except BaseException:
            memory.close()
            raise
        return _Loaded(device, memory, stream, kernels, s, warps, events)

    def _run_all(self, n_chains: int, numbers: dict[str, int], arrays: dict[str, NDArray[Any]]) -> None:
        """Run a kernel on all GPUs, each some chains with all their replicas, and update arrays in place.

        Parameters
        ----------
        n_chains : int
        numbers : dict
            Fields of the record.
        arrays : dict
            Fields that are arrays; the first axis counts replicas, or chains if it is that of ``"arcs"``.
        """
        parts = len(self._loaded)
        bounds = [n_chains * i // parts for i in range(parts + 1)]

        def work(i: int) -> float:
            first, last = bounds[i], bounds[i + 1]
            if first == last:
                return 0.0
            rows = slice(first * self.replicas, last * self.replicas)
            own = {name: a[first:last] if name == "arcs" else a[rows] for name, a in arrays.items()}
            return self._run_part(self._loaded[i], numbers | {"first_chain": rows.start}, own)

        with ThreadPoolExecutor(parts, "jtgpu-chains") as pool:
            self.seconds = max(pool.map(work, range(parts)))

    def _run_part(self, loaded: _Loaded, numbers: dict[str, int], arrays: dict[str, NDArray[Any]]) -> float:
        """Run the chains of one GPU; the kernel's seconds."""
        device, stream, s = loaded.device, loaded.stream, loaded.arguments
        with device.active():
            memory = Memory(device)
            try:
                for name, array in arrays.items():
                    s[name] = memory.put(array, stream)
                for name, number in numbers.items():
                    s[name] = number
                s["n_chains"], s["group"] = len(arrays["trace"]), self.replicas
                begin, end = loaded.events
                begin.record(stream)
                loaded.kernels.launch(
                    self.kernel, -(-len(arrays["trace"]) // loaded.warps), 32 * loaded.warps, stream, Arguments(s),
                    shared=self.chain_bytes() * loaded.warps,
                )  # fmt: skip
                end.record(stream)
                for name, array in arrays.items():
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


class GpuOrderChains(_GpuChains):
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
        """See `_GpuChains`."""
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


class GpuPartitionChains(_GpuChains):
    """Chains over partitions on GPUs; `close` frees their memory.

    Parameters
    ----------
    tables : SetTables
    seed : int
    devices : "all", int or sequence of int, optional
        Default: one GPU.
    replicas : int, optional
        Of each chain. Default: `REPLICAS`.
    shares : tuple of float
        See `jtgpu.learn.dags.chains.partitions.PartitionSampler`.
    """

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
        """See `_GpuChains`."""
        return -(-self._shape[0] // 4) * 4 * (9 * 8 + 4 + 5 * 2) + 48

    def start(self, chains: PartitionChains) -> PartitionChains:
        """The first state: replicas of some chains."""
        part, parents = (np.repeat(x, self.replicas, axis=0) for x in (chains.part, chains.parents))
        moves = np.zeros((len(part), 4, 2), np.int64)
        return PartitionChains(part, parents, np.zeros_like(chains.arcs), moves, 0, 0)

    def run(
        self, state: PartitionChains, n_steps: int, thin: int
    ) -> tuple[PartitionChains, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Continue all chains.

        Parameters
        ----------
        state : PartitionChains
            Of all replicas; arcs of the chains, (C, n, n), added over their replicas. Not changed.
        n_steps, thin : int
            Of each chain; a graph is drawn after every `thin` steps.

        Returns
        -------
        PartitionChains
        (C,) ndarray of float64
            ln weight of the partition of each chain's first replica at the last sample.
        (C * replicas, n) ndarray of int64
            The best graph that each replica drew.
        (C * replicas,) ndarray of float64
            Their ln weights.
        """
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
