"""EM on GPUs: kernels, whole fits from a resident table, and the CPU of the same machine; used by bench_fit.py --gpu.

Counts are compared with the CPU's, and with those of a second pass, before anything is timed. A row and iteration of
the kernels is device time; everything else is wall time.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import row

import jtgpu
from jtgpu import timing
from jtgpu.backends.gpu.counts import generated, warps
from jtgpu.backends.table import Table
from jtgpu.inference.queries.counts import counting_backend
from jtgpu.learn import fit
from jtgpu.plans.compiler import model_factors

TOLERANCE = 1e-9
# network, rows of the kernels' time, rows of the CPU's, rows of a fit
JOBS: tuple[tuple[str, int, int, int], ...] = (
    ("alarm", 1_000_000, 20_000, 1_000_000), ("hepar2", 400_000, 10_000, 100_000),
    ("win95pts", 400_000, 10_000, 100_000), ("munin2", 6_000, 300, 2_000),
)  # fmt: skip
# wide networks, whose counts are made by tables, or by a warp a row
WIDE: tuple[tuple[str, int, int, int], ...] = (
    ("barley", 2_000, 20, 0), ("link", 2_000, 20, 0), ("munin1", 700, 10, 0), ("diabetes", 4_000, 40, 0),
    ("munin4", 2_000, 20, 0), ("mildew", 8_000, 100, 0),
)  # fmt: skip
LARGE = 100_000_000  # rows of alarm
ITERATIONS = 20


def wall(work: Callable[[], Any], runs: int) -> timing.Spread:
    """Wall seconds of several runs."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return timing.Spread.of(seconds)


def sampled(name: str, n: int) -> tuple[jtgpu.BayesianNetwork, NDArray[Any]]:
    """A network, and rows of it with a tenth of the cells missing."""
    net = jtgpu.load(name)
    assert isinstance(net, jtgpu.BayesianNetwork)
    few = net.compile("cpu").sample(min(n, 50_000), seed=1).states.astype(np.int8)
    states = np.tile(few, (-(-n // len(few)), 1))[:n]
    rng = np.random.default_rng(0)
    for at in range(0, n, 100_000):
        some = states[at : at + 100_000]
        some[rng.random(some.shape, np.float32) < 0.1] = -1
    return net, states


def compared(name: str, found: Any, other: Any, tolerance: float) -> float:
    """The largest difference of counts, relative to the number of rows."""
    n = max(float(other[0].sum()), 1.0)
    gap = max(float(np.abs(a - b).max()) for a, b in zip(found, other, strict=True)) / n
    if not gap <= tolerance:
        raise SystemExit(f"the counts of {name} differ by {gap:g} a row; nothing is timed")
    return gap


def on_gpu(smoke: bool, runs: int, devices: int, wide: bool = False) -> Iterator[dict[str, Any]]:
    """Every network: the CPU, the kernels, a fit; then a very large table of alarm."""
    where = None if devices == 1 else list(range(devices))
    jobs = (("asia", 2_000, 500, 2_000),) if smoke else WIDE if wide else JOBS
    for name, n_kernels, n_cpu, n_fit in jobs:
        net, states = sampled(name, max(n_kernels, n_fit))
        plan, tables = net.plan().whole, [f.table for f in model_factors(net)]
        tables = [0.999 * t + 0.001 / t.shape[-1] for t in tables]  # as in EM with a prior, without zeros
        few = states[:n_cpu].astype(np.int32)
        cpu = counting_backend("cpu", plan, tables)
        exact = cpu.run(Table.counts(few))
        on_cpu = wall(lambda cpu=cpu, few=few: cpu.run(Table.counts(few)), 2)  # type: ignore[misc]
        cpu.close()
        yield row("em", name, "cpu", on_cpu, rows=n_cpu, missing=0.1, per_row=on_cpu.minimum / n_cpu)
        for kind in ("tables", "warps") if wide or name == "munin2" else ("lanes", "tables"):
            limit, generated.GENERATED_FLOPS = generated.GENERATED_FLOPS, 2_000_000 if kind == "lanes" else -1
            gain, warps.GAIN = warps.GAIN, warps.GAIN if kind == "warps" else math.inf
            try:
                yield from kernels(name, plan, tables, (states[:n_kernels], few, exact), where, on_cpu, runs)
            finally:
                generated.GENERATED_FLOPS, warps.GAIN = limit, gain
        if n_fit:
            yield from fits(name, net, states[:n_fit], where)
    if wide:
        return
    if not smoke:
        yield from large(where, runs)
    if devices == 1:
        yield from tensors(smoke)


def tensors(smoke: bool) -> Iterator[dict[str, Any]]:
    """Cases in the memory of the GPU to posteriors in PyTorch, and the same from host to host."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    net, states = sampled("alarm", 2_000 if smoke else 1_000_000)
    given = torch.from_numpy(states).cuda()
    with net.compile("gpu") as tree:
        few = tree.posteriors_on_device(given[:2_000])
        with net.compile("cpu") as cpu:
            gap = float(np.abs(few.to_host().flat - cpu.posteriors_batch(states[:2_000]).flat).max())
        if not gap <= TOLERANCE:
            raise SystemExit(f"posteriors on the device differ by {gap:g}; nothing is timed")

        def work() -> None:
            torch.from_dlpack(tree.posteriors_on_device(given).flat)
            torch.cuda.synchronize()

        work()
        spread = wall(work, 10)
        yield row("tensors", "alarm", "gpu to torch", spread, rows=len(states), difference=gap)
        yield row("tensors", "alarm", "host to host", wall(lambda: tree.posteriors_batch(states), 3), rows=len(states))


def kernels(
    name: str, plan: Any, tables: Any, data: Any, where: Any, on_cpu: timing.Spread, runs: int
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Passes over rows that stay on the GPU."""
    states, few, exact = data
    begin = time.perf_counter()
    backend = counting_backend("gpu", plan, tables, devices=where)
    gap = compared(name, backend.run(Table.counts(few)).families, exact.families, TOLERANCE)
    first = time.perf_counter() - begin
    held: Any = backend.hold(Table.counts(states)).feed
    once = held.sums()
    compared(name, held.sums().families, once.families, 0.0)
    device: list[float] = []

    def work() -> None:
        held.sums()
        if where is None:
            device.append(backend.counting.device_us * 1e-6)  # type: ignore[attr-defined]

    whole = wall(work, runs)
    spread = timing.Spread.of(device) if device else whole
    kind = "devices" if where is not None else backend.counting.kind  # type: ignore[attr-defined]
    each = spread.minimum / len(states)
    yield row(
        "em", name, f"gpu {kind}", spread, rows=len(states), missing=0.1, per_row=each, rows_per_second=1 / each,
        call=whole.minimum, first_seconds=first, difference=gap, gpu=backend.capabilities.device_name,
        devices=len(where) if where else 1, of_cpu=on_cpu.minimum / len(few) / each,
    )  # fmt: skip
    held.close()
    backend.close()


def fits(name: str, net: jtgpu.BayesianNetwork, states: NDArray[Any], where: Any) -> Iterator[dict[str, Any]]:
    """A whole fit: the second call, whose kernels are in the cache."""

    def run() -> Any:
        return fit(
            net,
            states,
            em=jtgpu.learn.EM(iterations=ITERATIONS, tolerance=0, accelerate=False),
            compute=jtgpu.Compute(backend="gpu", devices=where),
        )

    run()
    begin = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - begin
    passes = sum(x.seconds for x in found.history[1:])
    yield row(
        "fit", name, "gpu", timing.Spread.of([seconds]), rows=len(states), missing=0.1, iterations=ITERATIONS,
        iteration_seconds=passes, per_row=passes / len(states) / ITERATIONS, devices=len(where) if where else 1,
    )  # fmt: skip


def large(where: Any, runs: int) -> Iterator[dict[str, Any]]:
    """As many rows of alarm as the issue names, on one GPU or several."""
    net, states = sampled("alarm", 1_000_000)
    plan, tables = net.plan().whole, [f.table for f in model_factors(net)]
    many = np.tile(states, (LARGE // len(states), 1))
    backend = counting_backend("gpu", plan, tables, devices=where)
    begin = time.perf_counter()
    held: Any = backend.hold(Table.counts(many)).feed
    upload = time.perf_counter() - begin
    held.sums()
    spread = wall(held.sums, min(runs, 3))
    yield row(
        "em", "alarm", "gpu resident", spread, rows=len(many), missing=0.1, per_row=spread.minimum / len(many),
        rows_per_second=len(many) / spread.minimum, upload=upload, devices=len(where) if where else 1,
    )  # fmt: skip
    held.close()
    backend.close()
