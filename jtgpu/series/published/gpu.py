"""The published CUDA versions of ``durbin``: two kernels a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device.context import Memory, open_device
from ...device.driver import Arguments, loaded_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.context import Device

# version -> its kernels
KERNELS = {
    "cuda": ("durbin_first_tree", "durbin_second"),
    "cuda-warp": ("durbin_first_warp", "durbin_second"),
    "cuda-paired": ("durbin_first_warp", "durbin_second_paired"),
}
NAMES = tuple(dict.fromkeys(name for names in KERNELS.values() for name in names))
THREADS = 256

# `struct Durbin` of cuda/series/durbin.cu, field for field
DURBIN = np.dtype(
    [(name, np.uint64) for name in ("r", "old", "now", "sums", "state")] + [("k", np.uint32), ("unused", np.uint32)]
)


class DurbinJob:
    """The recurrence on one GPU. Used inside ``device.active()``."""
    # r: (N,) array of float64
    # version: One of `KERNELS`
    # stream: Of `Device.stream`

    def __init__(self, device: Device, r: NDArray[np.float64], version: str, stream: Any):
        self._device, self._memory, self._n = device, Memory(device), len(r)
        self._names, self._stream = KERNELS[version], stream
        kernels = loaded_kernels(device, "series/durbin", NAMES)
        durbin = np.zeros(1, DURBIN)
        try:
            durbin["r"] = self._memory.put(r, stream)
            rows = self._memory.put(np.concatenate([r[:1], np.zeros(2 * len(r) - 1)]), stream)
            durbin["sums"] = self._memory.empty(8 * -(-len(r) // THREADS))
            durbin["state"] = self._memory.put(np.array([r[0], 1.0, 0.0, 0.0]), stream)  # alpha and beta, twice
        except BaseException:
            self.close()
            raise
        self._rows = rows, rows + 8 * len(r)
        self._arguments = Arguments(durbin)
        self._launches: dict[tuple[str, int], Callable[[], None]] = {}
        self._kernels = kernels

    def queue(self) -> None:
        """Queue all steps: 2 (N-1) kernels."""
        durbin = self._arguments.kept(0)[0]
        for k in range(1, self._n):
            durbin["old"], durbin["now"], durbin["k"] = self._rows[(k - 1) % 2], self._rows[k % 2], k
            first, second = self._names
            pairs = k if second == "durbin_second" else (k + 1) // 2
            self._launch(first, k)
            self._launch(second, pairs)

    def _launch(self, name: str, threads: int) -> None:
        key = name, -(-threads // THREADS)
        if key not in self._launches:
            self._launches[key] = self._kernels.ready(name, (key[1], THREADS), self._stream, self._arguments)
        self._launches[key]()

    def download(self) -> NDArray[np.float64]:
        """Wait for the last step, and copy the result."""
        out = np.empty(self._n)
        self._device.download(out, self._rows[(self._n - 1) % 2], self._stream)
        self._stream.synchronize()
        return out

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()


def durbin_on_gpu(r: NDArray[np.float64], version: str) -> NDArray[np.float64]:
    """The recurrence on the best GPU, for a C-contiguous array that is not empty."""
    device = open_device()
    with device.active():
        stream = device.stream()
        job = DurbinJob(device, r, version, stream)
        try:
            job.queue()
            return job.download()
        finally:
            job.close()
            del job, stream
