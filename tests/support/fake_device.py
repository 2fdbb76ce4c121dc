"""A device played by NumPy: the interface of `jtgpu.device.context.Device`, with addresses into host memory.

It runs each kernel cell by cell from the job lists that the real kernels get, block by block in a shuffled order, and
refuses to read what nobody wrote. So schedules, job lists, scratch memory and transfers are tested without a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from jtgpu.device.context import Launch
from jtgpu.device.nvcc import JOB
from jtgpu.errors import BackendUnavailable, TableTooLarge

POISON = 0xCD  # what fresh device memory is full of; as a double -6e66, which no answer survives


class _Memory:
    def __init__(self, owner: FakeDevice, n_bytes: int):
        self._owner = owner
        self.array = np.full(n_bytes, POISON, np.uint8)
        owner.live[id(self)] = self.array

    def __int__(self) -> int:
        return int(self.array.ctypes.data)

    def free(self) -> None:
        assert self._owner.depth, "memory is freed inside active()"
        del self._owner.live[id(self)]


class _Stream:
    handle = 0

    def synchronize(self) -> None:
        pass

    def wait_for_event(self, event: Any) -> None:
        assert event.recorded


class _Event:
    def __init__(self) -> None:
        self.recorded = False

    def record(self, stream: _Stream) -> None:
        self.recorded = True

    def synchronize(self) -> None:
        assert self.recorded

    def time_since(self, other: _Event) -> float:
        return 1.0


class _Blas:
    def __init__(self, dtype: Any):
        self._dtype = np.dtype(dtype)

    def normalise(self, address: int, cells: int) -> float:
        table = at(address, cells, self._dtype)
        total = float(table.sum())
        if total not in (0.0, 1.0):
            table /= total
        return total

    def close(self) -> None:
        pass


def at(address: int, cells: int, dtype: Any) -> np.ndarray:
    """The memory at an address as an array."""
    dtype = np.dtype(dtype)
    if not cells:
        return np.zeros(0, dtype)
    found: np.ndarray = np.frombuffer((ctypes.c_char * (cells * dtype.itemsize)).from_address(address), dtype)
    return found


class FakeDevice:
    """See the module."""

    name, arch, capability, driver, ordinal, multiprocessors = "NumPy", "sm_00", (0, 0), "0.0", 0, 1

    def __init__(self, *, free: int = 1 << 32, with_blas: bool = False):
        self.free, self.with_blas = free, with_blas
        self.live: dict[int, np.ndarray] = {}
        self.pins: set[int] = set()
        self.depth = 0
        self.launched: list[str] = []
        self.rng = np.random.default_rng(7)

    @contextmanager
    def active(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def free_memory(self) -> int:
        return self.free - sum(a.nbytes for key, a in self.live.items() if key not in self.pins)

    def alloc(self, n_bytes: int) -> Any:
        if n_bytes > self.free_memory():
            raise TableTooLarge("full", needed=n_bytes)
        return _Memory(self, max(n_bytes, 1))

    def pinned(self, cells: int, dtype: Any) -> np.ndarray:
        owner = np.empty(max(cells, 1), dtype)
        self.live[id(owner)] = owner
        self.pins.add(id(owner))
        return owner[:]

    def unpin(self, array: np.ndarray) -> None:
        del self.live[id(array.base)]
        self.pins.remove(id(array.base))

    def _check(self, address: int, n_bytes: int) -> None:
        assert any(
            a.ctypes.data <= address and address + n_bytes <= a.ctypes.data + a.nbytes for a in self.live.values()
        ), "outside of every allocation"

    def upload(self, address: int, array: np.ndarray, stream: Any) -> None:
        assert array.flags.c_contiguous
        self._check(address, array.nbytes)
        at(address, array.nbytes, np.uint8)[:] = array.reshape(-1).view(np.uint8)

    def download(self, array: np.ndarray, address: int, stream: Any) -> None:
        assert array.flags.c_contiguous
        self._check(address, array.nbytes)
        array.reshape(-1).view(np.uint8)[:] = at(address, array.nbytes, np.uint8)

    def copy(self, to: int, source: int, n_bytes: int, stream: Any) -> None:
        self._check(to, n_bytes)
        self._check(source, n_bytes)
        at(to, n_bytes, np.uint8)[:] = at(source, n_bytes, np.uint8)

    def stream(self) -> Any:
        return _Stream()

    def event(self, *, timing: bool = False) -> Any:
        return _Event()

    def synchronize(self) -> None:
        pass

    def blas(self, stream: Any, dtype: Any) -> Any:
        if not self.with_blas:
            raise BackendUnavailable("no scikit-cuda")
        return _Blas(dtype)

    def function(self, file: str, name: str, *, real: str = "float64", index: str = "uint32", ways: int = 16) -> Any:
        return file, name, np.dtype(real), np.dtype(index)

    def capture(self, stream: Any, work: Callable[[], None]) -> Any:
        raise BackendUnavailable("no graphs")

    def launch(self, launch: Launch, stream: Any) -> None:
        file, name, real, index = launch.function
        self.launched.append(name)
        blocks, threads = launch.grid[0], launch.block[0]
        assert blocks > 0
        if launch.map:
            self._check(launch.map, 4 * blocks)
            job_of = at(launch.map, blocks, np.uint32).copy()
        else:
            job_of = np.zeros(blocks, np.uint32)
        self._check(launch.jobs, (int(job_of.max()) + 1) * JOB.itemsize)
        jobs = at(launch.jobs, int(job_of.max()) + 1, JOB)
        writes: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for b in self.rng.permutation(blocks).tolist():
            job = jobs[job_of[b]]
            _KERNELS[name.split("_gather")[0].split("_partial")[0]](
                self, file, name, job, b - int(job["first_block"]), threads, real, index, writes
            )
        for table, cells, values in writes:  # after all reads, as other blocks may read still
            table[cells] = values

    def read(self, job: Any, field: str, cells: np.ndarray, dtype: Any) -> np.ndarray:
        """Cells of one of a job's arrays; every one has to lie in an allocation and to have been written."""
        if not cells.size:
            return np.zeros(0, dtype)
        dtype = np.dtype(dtype)
        first = int(cells.min())
        n = int(cells.max()) + 1 - first
        start = int(job[field]) + first * dtype.itemsize
        self._check(start, n * dtype.itemsize)
        found: np.ndarray = at(start, n, dtype)[cells - first]
        if dtype.kind == "f":
            assert (found >= 0).all(), "read before it was written"
        return found

    def target(self, job: Any, field: str, cells: np.ndarray, dtype: Any) -> np.ndarray:
        self._check(int(job[field]), (int(cells.max()) + 1) * np.dtype(dtype).itemsize)
        return at(int(job[field]), int(cells.max()) + 1, dtype)


def _values(dev: FakeDevice, name: str, job: Any, cells: np.ndarray, real: Any, index: Any) -> np.ndarray:
    out = np.zeros(len(cells), real)
    inside = cells < int(job["total"])
    if "_partial" in name:
        out[inside] = dev.read(job, "from", cells[inside], real)
        return out
    found = dev.read(job, "index", cells[inside], index)
    true = found != np.iinfo(index).max
    values = np.zeros(len(found), real)
    values[true] = dev.read(job, "from", found[true].astype(np.int64), real)
    out[inside] = values
    return out


def _over_m(
    dev: FakeDevice, file: str, name: str, job: Any, block: int, threads: int, real: Any, index: Any, writes: Any
) -> None:
    assert name.endswith(f"_{threads}")
    n = int(job["n"])
    assert threads >= n
    ways = int(job["ways"])
    t = np.arange(threads) + block * ways * threads
    cell = np.add.reduce([_values(dev, name, job, t + w * threads, real, index) for w in range(ways)])
    sums = cell.reshape(-1, n).sum(axis=0)[: int(job["n_out"])]
    cells = block * n + np.arange(len(sums))
    writes.append((dev.target(job, "to", cells, real), cells, sums))


def _over_n(
    dev: FakeDevice, file: str, name: str, job: Any, block: int, threads: int, real: Any, index: Any, writes: Any
) -> None:
    stride = int(job["total"]) // int(job["ways"])
    k = np.arange(threads) + block * threads
    k = k[(k < stride) & (k % int(job["n"]) < int(job["n_out"]))]
    if k.size:
        ways = range(int(job["ways"]))
        total = np.add.reduce([_values(dev, name, job, k + w * stride, real, index) for w in ways])
        writes.append((dev.target(job, "to", k, real), k, total))


def _divide(
    dev: FakeDevice, file: str, name: str, job: Any, block: int, threads: int, real: Any, index: Any, writes: Any
) -> None:
    assert "fused" not in file
    j = np.arange(threads) + block * threads
    j = j[j < int(job["total"])]
    if j.size:
        new, old = dev.read(job, "from", j, real), dev.read(job, "other", j, real)
        ratio = np.divide(new, old, out=np.zeros_like(new), where=old != 0)
        writes.append((dev.target(job, "to", j, real), j, ratio))


def _multiply(
    dev: FakeDevice, file: str, name: str, job: Any, block: int, threads: int, real: Any, index: Any, writes: Any
) -> None:
    room = int(job["ways"]) * threads
    k = np.arange(room) + block * room
    k = k[k < int(job["total"])]
    found = dev.read(job, "index", k, index)
    true = found != np.iinfo(index).max
    k, to = k[true], found[true].astype(np.int64)
    if k.size:
        j = k % int(job["n"])
        ratio = dev.read(job, "other", j, real)
        if "fused" in file:
            ratio = np.divide(dev.read(job, "from", j, real), ratio, out=np.zeros_like(ratio), where=ratio != 0)
        writes.append((dev.target(job, "to", to, real), to, dev.read(job, "to", to, real) * ratio))


def _sum(
    dev: FakeDevice, file: str, name: str, job: Any, block: int, threads: int, real: Any, index: Any, writes: Any
) -> None:
    ways = int(job["ways"])
    k = np.arange(int(job["total"])).reshape(-1)
    k = k[(k // threads) % ways == block]
    value = dev.read(job, "from", k, real).sum(dtype=np.float64)
    cells = np.array([int(job["n_out"]) + block])
    writes.append((dev.target(job, "sum", cells, np.float64), cells, value))


def _scale(
    dev: FakeDevice, file: str, name: str, job: Any, block: int, threads: int, real: Any, index: Any, writes: Any
) -> None:
    total = dev.read(job, "sum", int(job["n_out"]) + np.arange(int(job["ways"])), np.float64).sum()
    if block == 0:
        cell = np.array([0])
        writes.append((dev.target(job, "sum", cell, np.float64), cell, total))
    k = np.arange(int(job["total"]))
    k = k[(k // threads) % int(job["n"]) == block]
    if total > 0 and total != 1 and k.size:
        writes.append((dev.target(job, "to", k, real), k, dev.read(job, "to", k, real) / total))


def _evidence(
    dev: FakeDevice, file: str, name: str, job: Any, block: int, threads: int, real: Any, index: Any, writes: Any
) -> None:
    k = np.arange(threads) + block * threads
    k = k[k < int(job["total"])]
    weight = dev.read(job, "other", k // int(job["ways"]) % int(job["n"]), real)
    writes.append((dev.target(job, "to", k, real), k, dev.read(job, "to", k, real) * weight))


_KERNELS: dict[str, Callable[..., None]] = {
    "marginalise_m": _over_m,
    "marginalise_n": _over_n,
    "scatter_divide": _divide,
    "scatter_multiply": _multiply,
    "normalise_sum": _sum,
    "normalise_scale": _scale,
    "evidence": _evidence,
    "hold": lambda *_: None,
}
