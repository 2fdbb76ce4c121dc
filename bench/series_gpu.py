"""Series and Toeplitz systems on GPUs: device times by events, answers compared with the CPU first.

python bench/bench_series.py --gpu [--devices 2] [--smoke]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import row

from jtgpu import series, timing
from jtgpu.device.context import Device, Memory, device_numbers, open_device
from jtgpu.errors import JtgpuError
from jtgpu.published.durbin import KERNELS, DurbinJob, durbin32
from jtgpu.series.gpu_batch import BatchJob, penalty_of
from jtgpu.series.gpu_run import CLUSTER, GRID, SchurJob

Rows = Iterator[dict[str, Any]]
DISTINCT = 4096  # series that are made on the host, and repeated on the device


def device_seconds(device: Device, stream: Any, work: Callable[[], object], runs: int) -> timing.Spread:
    """Seconds between events around some work, after two runs that are not counted."""
    found = []
    for i in range(runs + 2):
        start, end = device.event(timing=True), device.event(timing=True)
        start.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        if i > 1:
            found.append(end.time_since(start) / 1e3)
    return timing.Spread.of(found)


def close_to(found: Any, wanted: Any, tolerance: float) -> float:
    """Largest difference; raises if it is too large."""
    worst = float(np.abs(np.asarray(found) - np.asarray(wanted)).max(initial=0.0))
    if not worst <= tolerance:
        raise SystemExit(f"answers differ by {worst:g}")
    return worst


class Resident:
    """Series in a GPU's memory: `DISTINCT` random ones, again and again."""

    def __init__(self, device: Device, n: int, n_times: int, real: str, stream: Any):
        x = np.random.default_rng(1).standard_normal((min(DISTINCT, n), n_times)).astype(real)
        x[:, 1:] += 0.5 * x[:, :-1]
        self.x, self.n, self.n_times, self.real = x, n, n_times, real
        self.memory = Memory(device)
        self.n_bytes = n * n_times * x.itemsize
        self.address = self.memory.empty(self.n_bytes)
        device.upload(self.address, x, stream)
        done = x.nbytes
        while done < self.n_bytes:
            part = min(done, self.n_bytes - done)
            device.copy(self.address + done, self.address, part, stream)
            done += part
        stream.synchronize()

    def job(self, device: Device, p: int, order: str | int) -> BatchJob:
        """Models of all of them."""
        return BatchJob(
            device, self.address, self.n, self.n_times, self.real, p,
            n_times=self.n_times, demean=True, penalty=penalty_of(order, self.n_times),
        )  # fmt: skip


def copy_rate(device: Device, given: Resident, stream: Any, runs: int) -> float:
    """Bytes a second, read and written, of a copy of half of the series."""
    memory, half = Memory(device), given.n_bytes // 2
    to = memory.empty(half)
    spread = device_seconds(device, stream, lambda: device.copy(to, given.address, half, stream), runs)
    memory.close()
    return 2 * half / spread.median


def fits(device: Device, smoke: bool) -> Rows:
    """Models of series that are in the GPU's memory."""
    n, n_times, runs = (200, 64, 1) if smoke else (1_000_000, 512, 20)
    stream = device.stream()
    for real in ("float32", "float64"):
        given = Resident(device, n, n_times, real, stream)
        try:
            rate = copy_rate(device, given, stream, runs)
            order: Any
            for p, order in ((16, 16), (16, "bic"), (8, 8), (32, 32)):
                job = given.job(device, p, order)
                job.queue(stream)
                found = job.download(stream)
                few = min(n, 500)
                wanted = series.ar(given.x[:few], order, p)
                gap = close_to(found.partial[:few], wanted.partial, 1e-10)
                gap = max(gap, close_to(found.order[-few:] * 0.0, 0.0, 0.0))
                spread = device_seconds(device, stream, lambda job=job: job.queue(stream), runs)  # type: ignore[misc]
                job.close()
                yield row(
                    "series gpu fit", f"{n} x {n_times} {real}, p={p}, order={order}", "jtgpu", spread,
                    device=device.name, max_error=gap, copy_bytes_per_s=rate,
                    share_of_copy=given.n_bytes / spread.median / rate,
                )  # fmt: skip
        finally:
            given.memory.close()


def long_systems(device: Device, smoke: bool) -> Rows:
    """One long system, by every design; solutions; and many systems of medium size."""
    stream = device.stream()
    runs = 1 if smoke else 7
    for n in (300,) if smoke else (1000, 5000, 10_000, 30_000, 100_000):
        c = 1 / (1.0 + np.arange(n))
        c[0] = 2.0
        wanted = series.levinson(c) if n <= 30_000 else None
        memory = Memory(device)
        address, last = memory.put(c, stream), memory.put(np.array([n - 1], np.int32), stream)
        tiles = -(-n // 256)
        designs: list[tuple[int, int, int] | None] = [None]
        designs += [(CLUSTER, 8, 4), (CLUSTER, 16, 4), (CLUSTER, 16, 8)]
        for followers in (1, 3, 7):
            blocks = min(device.multiprocessors, -(-tiles // followers))
            designs.append((GRID, blocks, 1 + min(-(-tiles // blocks), 7)))
        for design in designs:
            job = SchurJob(device, address, 1, n, stream, last=last, design=design)
            try:
                job.queue(stream)
                found = job.download(stream)
                gap = None if wanted is None else close_to(found.filter[0], wanted.coef, 1e-9)
                spread = device_seconds(device, stream, lambda job=job: job.queue(stream), runs)  # type: ignore[misc]
            except JtgpuError as error:
                print(f"N = {n}, {design}: {error}", flush=True)
                continue
            finally:
                job.close()
            kind = ("block", "cluster", "grid")
            text = "default" if design is None else f"{kind[design[0]]} of {design[1]}, {design[2]} warps"
            yield row("series gpu single", f"N = {n}", text, spread, device=device.name, max_error=gap)
        if n <= 30_000:
            b = np.random.default_rng(n).standard_normal(n)
            start = time.perf_counter()
            x = series.solve_toeplitz(c, b, backend="gpu")
            call = time.perf_counter() - start
            gap = close_to(x, series.solve_toeplitz(c, b), 1e-9)
            right = memory.put(b, stream)
            job = SchurJob(device, address, 1, n, stream, last=last, right=right, is_covariance=False)
            spread = device_seconds(device, stream, lambda job=job: job.queue(stream), runs)  # type: ignore[misc]
            job.close()
            yield row("series gpu solve", f"N = {n}", "jtgpu", spread, device=device.name, max_error=gap, call_s=call)
        memory.close()
    n_systems, n = (3, 100) if smoke else (2000, 500)
    r = series.autocovariance(np.random.default_rng(3).standard_normal((n_systems, 2 * n)), n - 1)
    memory = Memory(device)
    address = memory.put(r, stream)
    last = memory.put(np.full(n_systems, n - 1, np.int32), stream)
    job = SchurJob(device, address, n_systems, n, stream, last=last)
    job.queue(stream)
    gap = close_to(job.download(stream).filter, series.levinson(r).coef, 1e-9)
    spread = device_seconds(device, stream, lambda: job.queue(stream), runs)
    job.close()
    memory.close()
    yield row("series gpu many", f"{n_systems} of N = {n}", "jtgpu", spread, device=device.name, max_error=gap)


def published(device: Device, smoke: bool) -> Rows:
    """The published kernels on the same card, launched one by one, and as a graph."""
    stream = device.stream()
    for n in (50,) if smoke else (100, 1000, 10_000, 15_000):
        r = np.random.default_rng(n).uniform(-1, 1, n) / np.sqrt(n) / 2
        wanted = durbin32(r)
        for version in KERNELS:
            job = DurbinJob(device, r, version, stream)
            job.queue()
            gap = close_to(job.download(), wanted, 1e-10)
            runs = 1 if smoke else 3
            spread = device_seconds(device, stream, job.queue, runs)
            yield row("series gpu published", f"N = {n}", version, spread, device=device.name, max_error=gap)
            if n <= 10_000:
                graph = device.capture(stream, job.queue)
                spread = device_seconds(device, stream, lambda graph=graph: graph.launch(stream), runs)  # type: ignore[misc]
                graph.close()
                yield row("series gpu published", f"N = {n}", f"{version}, graph", spread, device=device.name)
            job.close()


def several(numbers: Sequence[int], smoke: bool) -> Rows:
    """The same work on one GPU and on several: resident series, and series of the host."""
    n, n_times, runs = (200, 64, 1) if smoke else (1_000_000, 512, 9)
    devices = [open_device(i) for i in numbers]
    held = []
    for device in devices:
        with device.active():
            stream = device.stream()
            given = Resident(device, n, n_times, "float32", stream)
            held.append((device, stream, given, given.job(device, 16, 16)))

    def launch(device: Device, stream: Any, job: BatchJob) -> None:
        with device.active():
            for _ in range(10):
                job.queue(stream)
            stream.synchronize()

    for count in (1, len(held)):
        seconds = []
        with ThreadPoolExecutor(count) as pool:
            for _ in range(runs + 1):
                start = time.perf_counter()
                for done in [pool.submit(launch, d, s, j) for d, s, _, j in held[:count]]:
                    done.result()
                seconds.append((time.perf_counter() - start) / 10 / count)
        spread = timing.Spread.of(seconds[1:])
        yield row("series gpus", f"{n} x {n_times} float32, p=16", f"{count} GPUs", spread, device=devices[0].name)
    for device, _, given, job in held:
        with device.active():
            job.close()
            given.memory.close()
    x: NDArray[np.float64] = np.random.default_rng(5).standard_normal((200 if smoke else 200_000, n_times))
    close_to(
        series.ar(x, 16, backend="gpu", devices=numbers).partial, series.ar(x, 16, backend="gpu").partial, 0.0
    )  # bit-identical
    for some in (numbers[:1], numbers):
        seconds = []
        for _ in range(2 if smoke else 4):
            start = time.perf_counter()
            series.ar(x, 16, backend="gpu", devices=some)
            seconds.append(time.perf_counter() - start)
        spread = timing.Spread.of(seconds[1:])
        name = f"{len(x)} x {n_times} from the host, p=16"
        yield row("series gpus", name, f"{len(some)} GPUs", spread, device=devices[0].name)


def gpu_rows(smoke: bool, n_devices: int) -> Rows:
    """All of it."""
    if n_devices > 1:
        yield from several(device_numbers("all")[:n_devices], smoke)
        return
    device = open_device()
    with device.active():
        for part in (fits, long_systems, published):
            yield from part(device, smoke)
