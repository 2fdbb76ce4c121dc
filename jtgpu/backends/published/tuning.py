"""The published search for block sizes and thresholds on this device: 100 launches for every table and block size.

`tune` measures, `save` stores the best rules in the cache folder, and ``thresholds="tuned"`` of ``backend="indexed"``
loads them by `saved_rules`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ...device.context import Device, open_device
from ...errors import BackendUnavailable
from ...util import atomic_file
from ...util.system import cache_folder
from . import arithmetic
from .best_rules import Row, best_rules
from .indextables import Shape
from .rules import Rules
from .workbench import Workbench

BLOCK_SIZES = (64, 128, 256, 512, 1024)
WAYS = (2, 4, 8, 16)
SCATTER_WAYS = (1, 2, 4, 8)
LAUNCHES = 100
FORMAT_VERSION = 1
_TUNED = ("marginalise_threads", "scatter_threads", "scatter", "ways", "scatter_ways", "split_n", "min_entries")


@dataclass(frozen=True)
class Tuning:
    """The result of `tune`, for one device."""

    device: str
    rows: list[Row] = field(repr=False)  # list of Row: Every measurement
    rules: dict[str, Any]  # the best fields of `Rules`, for both modes of transfers


def tune(
    ordinal: int | None = None,
    *,
    sizes: Sequence[int] = (12, 14, 16, 18, 20, 22),
    launches: int = LAUNCHES,
    dtype: str = "float64",
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Repeat the published search on this device."""
    # ordinal: Device ordinal; None: the device of highest compute capability
    # sizes: sequence of int: Base-2 logarithms of the table sizes; at each, n runs over powers of 8 from 1 to the size
    # launches: Launches per table size and choice; 100 as published
    # progress: Called with the name of what is measured next
    # raises BackendUnavailable: If there is no device.
    device = open_device(ordinal)
    rows: list[Row] = []
    with device.active():
        for size in sizes:
            for log_n in range(0, size + 1, 3):
                if progress is not None:
                    progress(f"tables of 2^{size} entries, n = 2^{log_n}")
                rows += _measure(device, Shape((1 << (size - log_n), 1 << log_n), (False, True)), dtype, launches)
    return Tuning(device.name, rows, best_rules(rows))


def _measure(device: Device, shape: Shape, dtype: str, launches: int) -> Iterable[Row]:
    n, m, rows = shape.n, shape.m, []
    base = Rules(dtype=dtype)
    psi = np.random.default_rng(1).random(shape.entries)
    bench = Workbench(device, shape, base)
    try:
        bench.load(psi)
        ones = np.ones(n)
        for threads in BLOCK_SIZES:
            if n <= threads:
                bench.use(base.replaced(split_n=1025, marginalise_threads=threads))
                rows.append(Row("marginalise_m", n, m, threads, bench.marginalise(launches)[1]))
            bench.use(base.replaced(split_n=1, marginalise_threads=threads))
            rows.append(Row("marginalise_n", n, m, threads, bench.marginalise(launches)[1]))
            bench.use(base.replaced(scatter_threads=threads))
            rows.append(Row("scatter", n, m, threads, bench.scatter(ones, ones, launches)[1]))
        for ways in WAYS:
            if n <= base.marginalise_threads:
                bench.use(base.replaced(split_n=1025, ways=ways))
                rows.append(Row("marginalise_m_ways", n, m, ways, bench.marginalise(launches)[1]))
            bench.use(base.replaced(split_n=1, ways=ways))
            rows.append(Row("marginalise_n_ways", n, m, ways, bench.marginalise(launches)[1]))
        for ways in SCATTER_WAYS:
            for kind, sign in (("two_phase", 1), ("fused", -1)):
                bench.use(base.replaced(scatter=kind, scatter_ways=ways))
                rows.append(Row("scatter_ways", n, m, sign * ways, bench.scatter(ones, ones, launches)[1]))
        bench.use(base)
        index, repeats = bench.table.inner, max(3, launches // 10)
        cpu_psi, separator = psi.astype(dtype), np.empty(n, dtype)
        rows.append(Row("gpu_marginalise", n, m, 0, bench.round_trip("marginalise", repeats)))
        rows.append(Row("gpu_scatter", n, m, 0, bench.round_trip("scatter", repeats)))
        timed = _median(lambda: arithmetic.marginalise(cpu_psi, index, separator), repeats)
        rows.append(Row("cpu_marginalise", n, m, 0, timed))
        factor, old = np.ones(n, dtype), np.ones(n, dtype)

        def scatter() -> None:
            arithmetic.divide(factor, old)
            arithmetic.multiply(cpu_psi, index, old)

        rows.append(Row("cpu_scatter", n, m, 0, _median(scatter, repeats)))
    finally:
        bench.close()
    return rows


def _median(work: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return float(np.median(times))


def _file(device_name: str) -> Path:
    return cache_folder() / "tuned" / (re.sub(r"[^A-Za-z0-9]+", "-", device_name).strip("-") + ".json")


def save(tuning: Tuning) -> Path:
    """Save the rules and all measurements for this device; return the file's path."""
    path = _file(tuning.device)
    text = json.dumps({"format": "jtgpu tuning", "version": FORMAT_VERSION, **asdict(tuning)}, indent=1)
    atomic_file.write_text(path, text, make_folders=True)
    return path


def saved_rules(device: Device, transfers: str) -> dict[str, Any]:
    """The rules saved for a device, as options of `Rules`."""
    # raises BackendUnavailable: If none are saved, or if they cannot be read.
    path = _file(device.name)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("version") != FORMAT_VERSION:
            raise ValueError(f"version {data.get('version')!r}")
        rules = {name: data["rules"][name] for name in _TUNED}
        Rules(**rules)  # checks the values
    except FileNotFoundError:
        raise BackendUnavailable(f"no tuned rules are saved for {device.name}: run jtgpu tune --save first") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise BackendUnavailable(f"{path} holds no tuned rules ({error}); run jtgpu tune --save again") from None
    if transfers == "resident":
        rules.pop("min_entries")  # measured with transfers, which resident tables do not need
    return rules
