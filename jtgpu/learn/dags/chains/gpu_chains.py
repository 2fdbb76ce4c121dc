"""`GpuChains`: many replicas of chains on GPUs, of one kind.

The replicas of a chain run at the same time, and their arcs are added together. Chains are numbered across all GPUs,
sums are integers, and a chain depends on its number alone: the result does not depend on the number of GPUs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device.context import Device, Memory, open_devices
from ....device.driver import Arguments, Kernels, most_shared
from ....errors import TableTooLarge, format_bytes
from .orders import OrderChains, n_full
from .partitions import PartitionChains

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables

REPLICAS = 512  # of each chain
WARPS = 4  # of a block
NONE = 255  # in a table of bits: no possible parent
SHARE = 0.9  # of a device's free memory that may be used


class Loaded(NamedTuple):
    """The tables on one GPU."""

    device: Device
    memory: Memory
    stream: Any
    kernels: Kernels
    arguments: NDArray[Any]
    warps: int
    events: tuple[Any, Any]
    buffers: dict[str, tuple[int, int]]  # address and bytes of the arrays of a call


class GpuChains:
    """Chains of one kind on GPUs; `close` frees their memory."""

    # arrays, numbers: Fields of the kernel's record, besides those that both kinds of chains have
    # devices: "all" or sequence of int: Default: one GPU
    # replicas: Of each chain. Default: `REPLICAS`.
    # seconds: Of the kernels of the last call, on the slowest GPU
    # raises TableTooLarge: If the tables exceed a GPU's memory, or the state of a chain its shared memory.

    file = ""
    kernel = ""
    record: np.dtype[np.void] = np.dtype([])

    def __init__(
        self, tables: SetTables, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any], devices: Any,
        replicas: int | None,
    ):  # fmt: skip
        self.replicas, self.seconds = REPLICAS if replicas is None else replicas, 0.0
        n, k = int(tables.hits.shape[0]), int(tables.hits.shape[1])
        self._shape = n, k
        self._loaded: list[Loaded] = []
        arrays = {
            "candidates": tables.candidates.astype(np.int32), "sums": tables.sums, "hits": tables.hits,
            "outer_masks": tables.outer_masks, "outer_counts": tables.outer_counts,
            "outer_ends": tables.outer_ends.astype(np.uint32), "outer_units": tables.outer_units,
            "outer_totals": tables.outer_totals, **arrays,
        }  # fmt: skip
        numbers = {
            "n": n, "k": k, "m": tables.candidates.shape[1], "n_outer": tables.outer_masks.shape[1],
            "n_segments": tables.outer_units.shape[1], **numbers,
        }  # fmt: skip
        opened = open_devices(devices)
        try:
            for device in opened:
                with device.active():
                    self._loaded.append(self._load(device, arrays, numbers))
        except BaseException:
            self.close()
            raise

    def chain_bytes(self) -> int:
        """Shared memory of a chain."""
        raise NotImplementedError

    def _load(self, device: Device, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> Loaded:
        n, k = self._shape
        needed, limit = sum(x.nbytes for x in arrays.values()), int(SHARE * device.free_memory())
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
            kernels = Kernels(device, f"learn/{self.file}", (self.kernel,))
            kernels.allow_shared(self.kernel, one * warps)
            s = np.zeros(1, self.record)
            for name, array in arrays.items():
                if array.size:
                    s[name] = memory.put(np.ascontiguousarray(array), stream)
            for name, number in numbers.items():
                s[name] = number
            events = device.event(timing=True), device.event(timing=True)
        except BaseException:
            memory.close()
            raise
        return Loaded(device, memory, stream, kernels, s, warps, events, {})

    def _run_all(self, n_chains: int, numbers: dict[str, int], arrays: dict[str, NDArray[Any]]) -> None:
        """Run a kernel on all GPUs, each some chains with all their replicas, and update arrays in place."""
        # numbers: Fields of the record
        # arrays: Fields that are arrays; the first axis counts replicas, or chains if it is that of ``"arcs"``
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

    def _run_part(self, loaded: Loaded, numbers: dict[str, int], arrays: dict[str, NDArray[Any]]) -> float:
        """Run the chains of one GPU; the kernel's seconds."""
        device, stream, s = loaded.device, loaded.stream, loaded.arguments
        with device.active():
            for name, array in arrays.items():
                address, n_bytes = loaded.buffers.get(name, (0, -1))
                if n_bytes < array.nbytes:  # kept for the next call
                    address = loaded.memory.empty(array.nbytes)
                    loaded.buffers[name] = address, array.nbytes
                s[name] = address
                device.upload(address, array, stream)
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

    def close(self) -> None:
        """Free the memory of the GPUs; may be called twice."""
        while self._loaded:
            with self._loaded[-1].device.active():  # streams and events end while their context is current
                self._loaded[-1].kernels.close()
                self._loaded[-1].memory.close()
                self._loaded.pop()


# Chains over orders on GPUs: cuda/learn/orders.cu and cuda/learn/corrected_orders.cu.

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
    # share_of_swaps: That of `OrderSampler`

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
        numbers = {"seed": seed, "share": share_of_swaps, "n_full": n_full(n)}
        super().__init__(tables, {"bits": bits}, numbers, devices, replicas)

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
        # returns (C,) ln weight of the order of each chain's first replica at the last sample.
        order, arcs = state.order.astype(np.uint16), state.arcs.copy()
        trace = np.empty(len(order))
        numbers = {"first": state.n_steps, "n_steps": n_steps, "thin": thin}
        self._run_all(len(arcs), numbers, {"orders": order, "arcs": arcs, "trace": trace})
        samples = self.replicas * (n_steps // thin)
        after = OrderChains(order.astype(np.int64), arcs, state.n_steps + n_steps, state.n_samples + samples)
        return after, trace[:: self.replicas]


# Chains over partitions on GPUs: cuda/learn/partitions.cu.

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

    # shares: Those of `PartitionSampler`

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
        arrays: dict[str, NDArray[Any]] = {
            "masks": tables.masks, "weights": tables.weights, "outer_ratios": tables.outer_ratios,
            "log_factorials": tables.log_factorials,
        }  # fmt: skip
        numbers = {"seed": seed, "n_sets": tables.masks.shape[1], "shares": shares}
        super().__init__(tables, arrays, numbers, devices, replicas)

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
        # returns (C,) ln weight of the partition of each chain's first replica at the last sample.
        # returns (C * replicas, n) The best graph that each replica drew.
        # returns (C * replicas,) Their ln weights.
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
