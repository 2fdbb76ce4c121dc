"""Where rows are searched: threads of the CPU, or GPUs. Rows are independent: no bit of the results depends on it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ..device.context import device_numbers
from ..device.nvcc import find_nvcc
from ..errors import ArgumentError, BackendUnavailable
from ..util.arguments import choice, whole_number
from ..util.system import cores

BACKENDS = ("auto", "cpu", "gpu", "reference")
PIECE = 256  # rows that a thread takes at a time
LARGEST_K = 1024  # of a GPU: the lists are in registers
FEWEST_ALL, FEWEST_TOP = 30_000, 400_000  # rows from which a GPU takes less time, its start included


class Target(NamedTuple):
    """The backend that computes."""

    backend: str  # {"cpu", "gpu", "reference"}
    threads: int | None  # of the CPU; None: one for each core
    devices: tuple[int, ...] = ()  # tuple of int: Numbers of the GPUs
    reason: str = "as requested"  # why this backend
    is_auto: bool = False  # whether the CPU computes where the GPU has too little memory

    @classmethod
    def resolve(
        cls, backend: str, threads: int | None, devices: Any, n_rows: int, k: int, *, every: bool, cluster: Any = None
    ) -> Target:  # fmt: skip
        """The backend for a table of so many rows, of which all weights are computed or the largest."""
        # raises ArgumentError: If options contradict each other, or a GPU cannot add so many distances.
        # raises BackendUnavailable: If a GPU is requested and there is none.
        choice("backend", backend, BACKENDS)
        if threads is not None:
            whole_number("threads", threads, 1)
        if devices is not None and backend not in ("auto", "gpu"):
            raise ArgumentError(f"devices are GPUs, which backend={backend!r} does not use; use 'gpu'")
        if devices is not None and cluster is not None:
            raise ArgumentError("devices are GPUs of this machine; a cluster's workers have one each")
        if backend == "reference" and cluster is not None:
            raise ArgumentError("a cluster computes with backend='cpu' or 'gpu', not 'reference'")
        if (backend == "gpu" or devices is not None) and k > LARGEST_K:
            raise ArgumentError(f"k must be at most {LARGEST_K} on a GPU, not {k}; use backend='cpu'")
        if cluster is not None:  # what follows on this machine, such as predictions, runs on the CPU if it has no GPU
            name = "gpu" if backend == "gpu" else "cpu"
            return cls(name, threads, (0,) if name == "gpu" else (), "on a cluster", is_auto=True)
        if backend == "gpu" or devices is not None:
            return cls("gpu", threads, tuple(device_numbers([0] if devices is None else devices)))
        if backend != "auto":
            return cls(backend, threads)
        if threads is not None:
            return cls("cpu", threads, reason="auto: threads are given")
        fewest = FEWEST_ALL if every else FEWEST_TOP
        if n_rows < fewest or k > LARGEST_K:
            limit = f"fewer than {fewest:,} rows" if n_rows < fewest else f"k above {LARGEST_K}"
            return cls("cpu", threads, reason=f"auto: {limit}")
        try:
            numbers = device_numbers([0])
        except BackendUnavailable:
            return cls("cpu", threads, reason="auto: there is no GPU")
        if find_nvcc() is None:
            return cls("cpu", threads, reason="auto: nvcc, which compiles the GPU kernels, was not found")
        return cls("gpu", threads, tuple(numbers), f"auto: {n_rows:,} rows", is_auto=True)


def on_threads(work: Callable[[slice], int], n: int, threads: int | None) -> int:
    """The sum of what `work` returns for slices that cover n rows."""
    pieces = [slice(first, min(first + PIECE, n)) for first in range(0, n, PIECE)]
    n_threads = min(len(pieces), threads or cores())
    if n_threads <= 1:
        return sum(map(work, pieces))
    with ThreadPoolExecutor(n_threads, "jtgpu-screen") as pool:
        return sum(pool.map(work, pieces))
