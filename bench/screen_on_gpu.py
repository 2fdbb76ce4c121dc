"""Screening on GPUs: the parts of ``bench_screen.py --gpu``. Seconds of wall time from host memory to host memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import row

import jtgpu
from jtgpu import screen, timing
from jtgpu.device.context import device_numbers, open_device
from jtgpu.screen.columns import LearnedColumns, open_rows
from jtgpu.screen.engine import ScreenTarget
from jtgpu.screen.table import Screened, make_engine

TOP, SAMPLE = 10, 3000


def _spread(work: Callable[[], Any], runs: int) -> timing.Spread:
    """Wall seconds of some runs, after one that compiles and starts the device."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return timing.Spread.of(times)


def _alike(found: NDArray[Any], wanted: NDArray[Any], what: str) -> None:
    if found.tolist() != wanted.tolist():
        raise SystemExit(f"{what}: the GPU and the CPU disagree")


def _stages(x: Any, k: int, metric: Any, devices: list[int], *, every: bool) -> dict[str, float]:
    """Seconds of one run's stages: reading the table, the tree, the search of all rows."""
    marks = [time.perf_counter()]
    table = open_rows(x)
    learned = LearnedColumns.learn(table, x, metric, "auto", None)
    marks.append(time.perf_counter())
    screened = Screened(learned, k, ScreenTarget("gpu", None, tuple(devices)))
    first, _ = screened.kinds
    references = learned.rows if len(first) == len(learned.rows) else learned.rows.take(first)
    counts = screened.counts
    marks.append(time.perf_counter())
    engine = make_engine(learned.measure, references, counts, k, screened.target)
    marks.append(time.perf_counter())
    if every:
        order = engine.similar()
        _, pairs = engine.search_own(order, np.full(len(order), -np.inf), None)
    else:
        engine.ranking()
        pairs = 0
    marks.append(time.perf_counter())
    engine.close()
    read, merge, build, search = np.diff(marks).tolist()
    return {"read_s": read, "merge_s": merge, "build_s": build, "search_s": search, "pairs": pairs / len(first) ** 2}


def on_gpu(smoke: bool, n_devices: int, runs: int = 3) -> Iterator[dict[str, Any]]:
    """Rows of every problem, after a comparison with the CPU."""
    devices = device_numbers("all")[:n_devices]
    name = open_device(devices[0]).name
    where: dict[str, Any] = {"device": name if n_devices == 1 else f"{n_devices} x {name}"}
    small = 500 if smoke else 1
    for n, a, k in [(1_000_000, 2, 51), (10_000_000, 2, 51)]:
        x = np.random.default_rng(n + a).standard_normal((n // small // (10 if smoke and n > 1_000_000 else 1), a))
        found = screen.top_outliers(x, TOP, k, compute=jtgpu.Compute(backend="gpu", devices=devices))
        wanted = screen.top_outliers(x, TOP, k, compute="cpu")
        _alike(found.index, wanted.index, f"{n} x {a}")
        _alike(found.weight, wanted.weight, f"{n} x {a}")
        on = jtgpu.Compute(backend="gpu", devices=devices)
        spread = _spread(lambda: screen.top_outliers(x, TOP, k, compute=on), runs)  # noqa: B023
        yield row(
            "screen gpu", f"{len(x)} x {a}, k={k}", "jtgpu, top 10", spread, **where,
            **_stages(x, k, "auto", devices, every=False) | {"pairs": found.stats["pairs"] / len(x) ** 2},
        )  # fmt: skip
        yield from _solving_set(found, f"{len(x)} x {a}, k={k}", where)
    for n, a, k in [(1_000_000, 3, 51), (200_000, 10, 21), (50_000, 32, 21)]:
        x = np.random.default_rng(n + a).standard_normal((n // small, a))
        yield from _all_weights(x, k, "auto", f"{len(x)} x {a}, k={k}", devices, where, runs)
    with jtgpu.load("alarm").compile("cpu") as tree:
        cases = tree.sample(1_000_000 // small, seed=1).states.copy()
    yield from _all_weights(cases, 21, "hamming", f"{len(cases)} Alarm cases, k=21", devices, where, runs)
    codes = np.random.default_rng(3).integers(0, 4, (100_000 // small, 32))
    yield from _all_weights(codes, 21, "hamming", f"{len(codes)} x 32 random states, k=21", devices, where, runs)


def _solving_set(found: screen.Outliers, name: str, where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    start = time.perf_counter()
    size = len(found.solving_set)
    spread = timing.Spread.of([time.perf_counter() - start])
    yield row("screen gpu", name, "jtgpu, solving set", spread, solving_set=size, **where)


def _all_weights(
    x: Any, k: int, metric: Any, name: str, devices: list[int], where: dict[str, Any], runs: int
) -> Iterator[dict[str, Any]]:
    found = screen.weights(x, k, metric, compute=jtgpu.Compute(backend="gpu", devices=devices))
    screened = Screened(LearnedColumns.learn(open_rows(x), x, metric, "auto", None), k, ScreenTarget("cpu", None))
    some = np.random.default_rng(1).choice(len(x), min(SAMPLE, len(x)), replace=False)
    _alike(found[some], screened.against(screened.rows.take(some), None), name)
    spread = _spread(lambda: screen.weights(x, k, metric, compute=jtgpu.Compute(backend="gpu", devices=devices)), runs)
    yield row(
        "screen gpu", name, "jtgpu, all weights", spread, **where, **_stages(x, k, metric, devices, every=True)
    )  # fmt: skip
