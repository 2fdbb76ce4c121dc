"""PolyBench's ``durbin`` in the versions that Bianco, Burchiellaro and Uguzzoni published, for comparison.

The recurrence is PolyBench 3.2's. It is not a solver of Toeplitz systems: it multiplies by ``beta`` where Durbin's
algorithm divides, and starts with ``+r[0]``. Use `jtgpu.series.levinson` and `jtgpu.series.solve_toeplitz` to solve.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device.context import Memory, open_device
from ..device.driver import Arguments, loaded_kernels
from ..device.structs import struct
from ..errors import TableTooLarge, format_bytes
from ..series.inputs import as_floats, as_rows
from ..util.arguments import choice, whole_number
from ..util.arrays import Floats
from ..util.loops import loops
from ..util.system import cores, free_memory

if TYPE_CHECKING:
    from ..device.context import Device

# The published CUDA versions of ``durbin``: two kernels a step.

# version -> its kernels
KERNELS = {
    "cuda": ("durbin_first_tree", "durbin_second"),
    "cuda-warp": ("durbin_first_warp", "durbin_second"),
    "cuda-paired": ("durbin_first_warp", "durbin_second_paired"),
}
NAMES = tuple(dict.fromkeys(name for names in KERNELS.values() for name in names))
THREADS = 256

DURBIN = struct("series/durbin.cu", "Durbin")


class DurbinJob:
    """The recurrence on one GPU. Used inside ``device.active()``."""
    # r: (N,) array of float64
    # version: One of `KERNELS`
    # stream: Of `Device.stream`

    def __init__(self, device: Device, r: Floats, version: str, stream: Any):
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

    def download(self) -> Floats:
        """Wait for the last step, and copy the result."""
        out = np.empty(self._n)
        self._device.download(out, self._rows[(self._n - 1) % 2], self._stream)
        self._stream.synchronize()
        return out

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()


def durbin_on_gpu(r: Floats, version: str) -> Floats:
    """The recurrence on the best GPU, for a C-contiguous array that is not empty."""
    device = open_device()
    with device.active():
        job = DurbinJob(device, r, version, device.stream())
        try:
            job.queue()
            return job.download()
        finally:
            job.close()
            del job  # and its stream, while the device is current


_durbin = loops("jtgpu.published.durbin_loops")

__all__ = ["VERSIONS", "durbin32"]

VERSIONS = ("sequential", "reworked", "openmp", *KERNELS)
BLOCK = 512  # products that are added before the sums of blocks are; independent of the number of threads


def durbin32(r: Any, version: str = "reworked", *, threads: int | None = None) -> Floats:
    """The recurrence of PolyBench's ``durbin``.

    ``y[0] = r[0]; beta = 1; alpha = r[0]``, and for k = 1..N-1: ``beta -= alpha**2 beta``, ``sum = r[k] + sum_{i<k}
    r[k-1-i] y[i]``, ``alpha = -sum beta``, ``y'[i] = y[i] + alpha y[k-1-i]``, ``y'[k] = alpha``.

    Parameters
    ----------
    r : (N,) array
    version : {"reworked", "sequential", "openmp", "cuda", "cuda-warp", "cuda-paired"}
        ``"sequential"``: PolyBench's, with matrices of N x N that are read by columns. ``"reworked"``: two rows.
        ``"openmp"``: two rows, the inner loops divided between threads; sums are added in a fixed order, so results do
        not depend on the number of threads. ``"cuda"``: two kernels a step. ``"cuda-warp"`` and ``"cuda-paired"``: what
        the authors propose, sums by warps, and also each entry read once for two updates. The published versions'
        races, their atomic additions in any order and the wrong row for odd N are fixed.
    threads : int, optional
        For ``"openmp"``. Default: one for each core.

    Returns
    -------
    (N,) ndarray of float64

    Raises
    ------
    TableTooLarge
        If the matrices of ``"sequential"`` exceed the free memory.
    BackendUnavailable
        If the CUDA versions find no GPU.
    """
    choice("version", version, VERSIONS)
    values: Floats = as_rows(as_floats("r", r).reshape(1, -1))[0]
    n = len(values)
    out: Floats = np.empty(n)
    if not n:
        return out
    if version == "sequential":
        needed = (2 * n + 1) * n * values.itemsize
        if needed > free_memory():
            raise TableTooLarge(
                f"the matrices of version='sequential' take {format_bytes(needed)} for {n:,} numbers; use 'reworked'",
                n * n, needed, free_memory(),
            )  # fmt: skip
        _durbin.sequential(values, np.empty((n, n)), np.empty((n + 1, n)), out)
    elif version == "reworked":
        _durbin.reworked(values, np.empty((2, n)), out)
    elif version in KERNELS:
        return durbin_on_gpu(values, version)
    else:
        _on_threads(values, out, cores() if threads is None else whole_number("threads", threads, 1))
    return out


def _on_threads(r: Floats, out: Floats, n_threads: int) -> None:
    """Version ``"openmp"``."""
    n = len(r)
    rows, sums = np.empty((2, n)), np.empty(-(-n // BLOCK))
    states = np.empty((n_threads, 2))
    states[:] = r[0], 1
    rows[0, 0] = r[0]
    arrived = np.zeros(1, np.int64)

    def work(thread: int) -> None:
        phase = 0
        while phase < 2 * (n - 1):
            phase = _durbin.run_phases(r, rows, sums, states[thread], arrived, BLOCK, thread, n_threads, phase)
            time.sleep(0)  # after long waiting: there are more threads than idle cores

    others = [threading.Thread(target=work, args=(t,), name="jtgpu-durbin") for t in range(1, n_threads)]
    for other in others:
        other.start()
    work(0)
    for other in others:
        other.join()
    out[:] = rows[(n - 1) % 2]
