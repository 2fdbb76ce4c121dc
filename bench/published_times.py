"""A published system on this machine, next to its published times.

    python bench/published_times.py outliers      selection kernels and solving sets; needs a GPU
    python bench/published_times.py durbin        versions of PolyBench's durbin
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jtgpu.device.context import open_device
from jtgpu.errors import BackendUnavailable, JtgpuError
from jtgpu.published.durbin import KERNELS, VERSIONS, durbin32
from jtgpu.published.outliers_gpu import MODES, SelectionJob, solve
from jtgpu.screen.gpu_tree import Launcher
from jtgpu.series.toeplitz import levinson
from jtgpu.util.arguments import report as progress
from jtgpu.util.options import EngineName
from jtgpu.util.text_table import format_table

# The published table of the selection kernels, and today's next to it.

NAMES = (
    "hcr", "kato", "garcia_insertion", "insertion_reduction", "barrientos", "kato_mb", "cuknn", "hcr_mb", "arefin",
    "single_heap",
)  # fmt: skip
# columns of the matrix -> speed-up of each kernel over a heap on the CPU; Tesla M2070, m = 100, k = 50; None: no result
SELECTION_SPEEDUPS: dict[int, tuple[float | None, ...]] = {
    100_000: (10.55, 33.70, 0.96, 3.69, 6.88, 2.77, 2.68, 2.23, 1.02, 1.47),
    200_000: (11.06, 36.31, 0.87, 4.18, 7.22, 2.98, 1.52, 2.81, 0.91, 1.24),
    300_000: (12.00, 39.05, 0.85, 4.80, 8.03, 3.26, 1.07, 3.38, 0.89, 1.17),
    400_000: (12.90, 40.34, 0.84, 5.39, 8.91, 3.58, 0.80, 3.84, 0.87, 1.13),
    500_000: (13.78, 42.39, 0.83, 5.95, 9.74, 3.92, 0.65, 4.24, 0.86, 1.11),
    600_000: (14.72, 43.91, 0.84, 6.56, 10.76, 4.37, 0.56, 4.66, 0.89, 1.11),
    700_000: (15.08, 43.87, 0.83, 6.90, 11.30, 4.63, 0.47, 4.85, 0.85, 1.08),
    800_000: (15.88, 44.74, 0.83, 7.43, 12.19, 5.01, 0.40, 5.17, 0.87, 1.09),
    900_000: (16.12, 45.00, 0.82, 7.71, 12.74, 5.24, 0.37, 5.29, 0.85, 1.07),
    1_000_000: (16.96, 46.66, 0.84, 8.30, 13.71, 5.67, 0.33, 5.60, 0.87, 1.08),
    1_100_000: (17.14, 46.36, 0.82, 8.51, 14.14, 5.89, None, 5.69, 0.84, 1.05),
    1_200_000: (17.83, 47.56, 0.84, 9.00, 15.04, 6.26, None, 5.95, 0.87, 1.08),
    1_300_000: (18.22, 47.93, 0.84, 9.34, 15.75, 6.53, None, 6.10, 0.86, 1.08),
    1_400_000: (17.85, 46.26, 0.80, 9.27, 15.71, 6.59, None, 6.01, 0.82, 1.03),
    1_500_000: (18.56, 47.65, 0.82, 9.77, 16.65, 6.98, None, 6.25, 0.85, 1.05),
    1_600_000: (18.50, 46.89, 0.81, 9.84, 16.94, 7.11, None, 6.25, 0.87, 1.03),
    1_700_000: (19.06, 47.93, 0.82, 10.28, 17.72, 7.49, None, 6.47, 0.84, 1.05),
    1_800_000: (20.13, 50.14, 0.85, 10.96, 19.06, 8.03, None, 6.84, 0.88, 1.09),
    1_900_000: (19.93, 49.24, 0.83, 10.95, 19.22, 8.09, None, 6.80, 0.86, 1.06),
    2_000_000: (19.78, 48.53, 0.82, 10.98, 19.38, 8.17, None, 6.76, 0.87, 1.04),
}
LARGEST = 10.0  # of the random distances


class KernelTimes(NamedTuple):
    """Times of all kernels for one matrix."""

    d: int
    milliseconds: tuple[float, ...]  # in the order of `NAMES`, of the kernels alone
    cpu_milliseconds: float  # of `numpy.partition` on one core


def measure_selection(
    sizes: Sequence[int], m: int = 100, k: int = 50, runs: int = 5, step: Callable[[str], Any] = lambda _: None
) -> tuple[str, list[KernelTimes]]:  # fmt: skip
    """The name of the device, and medians of some runs of every kernel, with random distances."""
    # raises BackendUnavailable: Without a GPU.
    # raises TableTooLarge: If it has too little memory.
    device = open_device()
    numbers = np.random.default_rng(0).random(m * max(sizes), np.float32) * np.float32(LARGEST)
    rows = []
    for d in sizes:
        part = numbers[: m * d]
        start = time.perf_counter()
        np.partition(part.reshape(m, d), k - 1, axis=1)
        cpu = (time.perf_counter() - start) * 1e3
        times = []
        for name in NAMES:
            step(f"{name}, {d:,} columns")
            with device.active():
                launcher = Launcher(device)
                try:
                    address = launcher.put(part)
                    job = SelectionJob(launcher, name, address, m, d, k)
                    times.append(float(np.median([_queue_timed(job, launcher) for _ in range(runs + 1)][1:])))
                finally:
                    launcher.close()
        rows.append(KernelTimes(d, tuple(times), cpu))
    return device.name, rows


def _queue_timed(job: SelectionJob, launcher: Launcher) -> float:
    """Milliseconds of one run on the device."""
    start, stop = (launcher.device.event(timing=True) for _ in range(2))
    start.record(launcher.stream)
    job.queue()
    stop.record(launcher.stream)
    launcher.stream.synchronize()
    return float(stop.time_since(start))


def measure_solving_set(
    d: int, a: int, n: int = 10, m: int = 100, k: int = 50, runs: int = 3, step: Callable[[str], Any] = lambda _: None
) -> dict[str, float]:  # fmt: skip
    """Seconds of the solving set (A4) of d normal rows in each of its modes, medians, from host memory."""
    # raises BackendUnavailable: Without a GPU.
    # raises JtgpuError: If modes disagree about the rows of largest weight.
    x = np.random.default_rng(d + a).standard_normal((d, a))
    sets, seconds = set(), {}
    for mode in MODES:
        step(f"solving set, {mode}")
        times = []
        for _ in range(runs + 1):
            start = time.perf_counter()
            top, _, _ = solve(x, n, k, m, mode, 0)
            times.append(time.perf_counter() - start)
            sets.add(frozenset(top.tolist()))
        seconds[mode] = float(np.median(times[1:]))
    if len(sets) > 1:
        raise JtgpuError("the modes of the solving set find different rows")
    return seconds


def selection_report(device: str, rows: Sequence[KernelTimes]) -> str:
    """The table, a line for each kernel: milliseconds here, and the published speed-up; then kernels by speed."""
    names, columns, orders = ["kernel"], [[*NAMES, "numpy.partition, CPU"]], []
    for row in rows:
        published = SELECTION_SPEEDUPS.get(row.d, (None,) * len(NAMES))
        names += [f"{row.d:,}, ms", "published, x"]
        columns += [[*row.milliseconds, row.cpu_milliseconds], [*published, None]]  # type: ignore[list-item]
        orders.append(f"{row.d:,} columns: {', '.join(NAMES[i] for i in np.argsort(row.milliseconds))}")
        if row.d in SELECTION_SPEEDUPS:
            order = sorted((-x, name) for x, name in zip(published, NAMES, strict=True) if x is not None)
            orders.append(f"  published: {', '.join(name for _, name in order)}")
    note = f"Here: {device}, the kernels alone. Published: Tesla M2070, speed-up over a heap on one core of a CPU."
    return "\n".join([format_table(names, columns, digits=2), "", "Fastest first:", *orders, "", note])


# (N, version) -> seconds; the CUDA version with its copies and allocations. Hardware unknown, float
DURBIN_SECONDS = {
    (100, "sequential"): 0.00005, (1000, "sequential"): 0.01169, (10_000, "sequential"): 4.41561,
    (15_000, "sequential"): 38.55401, (100, "reworked"): 0.00004, (1000, "reworked"): 0.00267,
    (10_000, "reworked"): 0.29813, (15_000, "reworked"): 0.73846, (10_000, "cuda"): 0.762,
}  # fmt: skip
TODAY: dict[str, EngineName] = {"levinson": "cpu", "levinson, gpu": "gpu"}  # what solves the system, and where
WORST = 4000  # N from which "sequential", with its matrices, is left out


class DurbinTime(NamedTuple):
    """Seconds of one version."""

    n: int
    version: str
    seconds: float  # wall time, the least of several runs, after one that is not counted


def measure_durbin(sizes: Sequence[int], runs: int, progress: Callable[[str], object]) -> list[DurbinTime]:
    """Time every version; those of the GPU are left out where there is none."""
    # progress: Called with a line of text for each version
    times = []
    missing: set[str] = set()
    for n in sizes:
        r = np.random.default_rng(n).uniform(-1, 1, n) / np.sqrt(n) / 2
        c = np.concatenate([[1.0], r[:-1] / 2])
        for version in (*VERSIONS, *TODAY):
            if (version == "sequential" and n > WORST) or version in missing:
                continue
            progress(f"N = {n:,}, {version}")
            try:
                times.append(DurbinTime(n, version, min(_run_durbin(version, r, c) for _ in range(runs + 1))))
            except BackendUnavailable:
                missing |= {*KERNELS, "levinson, gpu"}
    return times


def _run_durbin(version: str, r: NDArray[np.float64], c: NDArray[np.float64]) -> float:
    start = time.perf_counter()
    if version in TODAY:
        levinson(c, backend=TODAY[version])
    else:
        durbin32(r, version)
    return time.perf_counter() - start


def durbin_report(times: Sequence[DurbinTime]) -> str:
    """A table: published milliseconds and those of this machine."""
    columns = [
        [f"{t.n:,}" for t in times], [t.version for t in times],
        [_published_ms(t) for t in times], [t.seconds * 1e3 for t in times],
    ]  # fmt: skip
    return format_table(("N", "version", "published, ms", "here, ms"), columns, fixed=2, max_rows=None, digits=3)


def _published_ms(t: DurbinTime) -> float | None:
    seconds = DURBIN_SECONDS.get((t.n, t.version))
    return None if seconds is None else seconds * 1e3


def _outliers(options: argparse.Namespace) -> None:
    """Selection kernels and solving sets of the thesis on outliers."""
    d, a = (int(word) for word in options.rows.split("x"))
    sizes = [*SELECTION_SPEEDUPS] if options.columns == "all" else [int(word) for word in options.columns.split(",")]
    device, rows = measure_selection(sizes, options.m, options.k, options.runs, progress)
    modes = measure_solving_set(d, a, 10, options.m, options.k, options.runs, progress)
    print(selection_report(device, rows))
    print(f"\nSolving set (A4) of {d:,} x {a} normal numbers, n=10, seconds; published: redMS is nearly always fastest")
    print(", ".join(f"{mode} {seconds:.3f}" for mode, seconds in sorted(modes.items(), key=lambda item: item[1])))


def _durbin(options: argparse.Namespace) -> None:
    """Versions of PolyBench's ``durbin``."""
    print(durbin_report(measure_durbin([int(word) for word in options.sizes.split(",")], options.runs, progress)))
    print("\nWall time of the whole call, float64. Published: float, hardware unknown. Only levinson solves a system.")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    systems = parser.add_subparsers(metavar="NAME", required=True)
    outliers = systems.add_parser("outliers", help="selection kernels and solving sets (Zanirati, 2012); needs a GPU")
    outliers.add_argument("--columns", default="100000,1000000,2000000", help="of the matrix, by commas, or all")
    outliers.add_argument("-m", type=int, default=100, help="rows of the matrix")
    outliers.add_argument("-k", type=int, default=50, help="distances that are selected")
    outliers.add_argument("--runs", type=int, default=5)
    outliers.add_argument("--rows", default="1000000x2", help="of the table for the solving set, as ROWSxCOLUMNS")
    outliers.set_defaults(run=_outliers)
    durbin = systems.add_parser("durbin", help="PolyBench's durbin (Bianco, Burchiellaro and Uguzzoni)")
    durbin.add_argument("--sizes", default="100,1000,10000,15000", help="separated by commas")
    durbin.add_argument("--runs", type=int, default=3)
    durbin.set_defaults(run=_durbin)
    options = parser.parse_args()
    try:
        options.run(options)
    except JtgpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
