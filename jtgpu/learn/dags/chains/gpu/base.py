"""`GpuChains`: many replicas of chains on GPUs, of one kind.

The replicas of a chain run at the same time, and their arcs are added together. Chains are numbered across all GPUs,
sums are integers, and a chain depends on its number alone: the result does not depend on the number of GPUs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .....device.context import Device, device_numbers, open_device
from .....device.driver import Arguments, Kernels, most_shared
from .....device.memory import Memory
from .....errors import TableTooLarge, format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    # shape: (int, int): Variables and candidate parents of each
    # tables: Arrays of the records of the kernel, by their fields
    # devices: "all" or sequence of int: Default: one GPU
    # replicas: Of each chain
    # seconds: Of the kernels of the last call, on the slowest GPU
    # raises TableTooLarge: If the tables exceed a GPU's memory, or the state of a chain its shared memory.

    file = ""
    kernel = ""
    record: np.dtype[np.void] = np.dtype([])

    def __init__(self, shape: tuple[int, int], tables: dict[str, NDArray[Any]], devices: Any, replicas: int | None):
        self.replicas, self.seconds = REPLICAS if replicas is None else replicas, 0.0
        self._shape = shape
        self._loaded: list[Loaded] = []
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

    def _load(self, device: Device, tables: dict[str, NDArray[Any]]) -> Loaded:
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
            kernels = Kernels(device, f"learn/{self.file}", (self.kernel,))
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
