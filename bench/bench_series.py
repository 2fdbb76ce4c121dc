"""Time series and Toeplitz systems, compared with NumPy, SciPy and statsmodels, in the same run.

    python bench/bench_series.py                      everything
    python bench/bench_series.py batch published      some parts: batch, fit, single, short, published
    python bench/bench_series.py --smoke              small data, one run, nothing stored
    python bench/bench_series.py --gpu [--devices 2]  on a GPU, or on several (bench/series_gpu.py)

Times are CPU seconds of all threads (`time.process_time`), which other processes disturb little, and minima of several
runs that alternate between the engines. Answers are compared before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import parser_of, row, store
from series_gpu import gpu_rows

from jtgpu import series, timing
from jtgpu.published import durbin

PARTS = ("batch", "fit", "single", "short", "published")
ORDER = 16

Rows = Iterator[dict[str, Any]]
Engines = dict[str, tuple[Callable[[], Any], float]]  # name -> work, share of the whole problem that it does


def compare_times(bench: str, name: str, engines: Engines, runs: int) -> Rows:
    """CPU seconds of some engines, in alternation, after one run that is not counted."""
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    for i in range(runs + 1):
        for engine, (work, share) in engines.items():
            start = time.process_time()
            work()
            if i:
                seconds[engine].append((time.process_time() - start) / share)
    for engine, found in seconds.items():
        yield row(bench, name, engine, timing.Spread.of(found))


def check(found: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    """Raise if two answers differ."""
    worst = float(np.abs(np.asarray(found) - np.asarray(wanted)).max(initial=0.0))
    if not worst <= tolerance:
        raise SystemExit(f"answers differ by {worst:g}")


def by_lag(r: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Levinson's recursion in NumPy, vectorised over systems, which are columns: (p+1, B)."""
    p = len(r) - 1
    a, partial, sigma2 = np.zeros((p, r.shape[1])), np.empty_like(r), np.empty_like(r)
    partial[0], sigma2[0] = 1.0, r[0]
    for m in range(1, p + 1):
        k = (r[m] - (a[: m - 1] * r[m - 1 : 0 : -1]).sum(axis=0)) / sigma2[m - 1]
        a[: m - 1] -= k * a[: m - 1][::-1]
        a[m - 1] = partial[m] = k
        sigma2[m] = sigma2[m - 1] * (1 - k * k)
    return a, partial, sigma2


def numpy_autocovariance(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Autocovariances at lags 0..ORDER, (ORDER+1, B)."""
    y = x - x.mean(axis=1, keepdims=True)
    n = x.shape[1]
    r: NDArray[np.float64] = (
        np.stack([np.einsum("st,st->s", y[:, : n - lag], y[:, lag:]) for lag in range(ORDER + 1)]) / n
    )
    return r


def batch(smoke: bool, runs: int) -> Rows:
    """Many short systems, all orders."""
    from scipy.linalg import solve_toeplitz
    from statsmodels.tsa.stattools import levinson_durbin

    n = 400 if smoke else 20_000
    few = n // 20
    r = series.autocovariance(np.random.default_rng(1).standard_normal((n, 100)), ORDER)
    turned = np.ascontiguousarray(r.T)
    check(series.levinson(r).coef, by_lag(turned)[0].T)
    check(series.levinson(r[:5]).coef, solve_toeplitz(r[:5, :-1], r[:5, 1:, None])[..., 0])
    engines: Engines = {
        "jtgpu": (lambda: series.levinson(r, threads=1), 1.0),
        "NumPy, transposed": (lambda: by_lag(turned), 1.0),
        "SciPy, batch": (lambda: solve_toeplitz(r[:few, :-1], r[:few, 1:, None]), few / n),
        "statsmodels": (lambda: [levinson_durbin(s, ORDER, isacov=True) for s in r[: few // 5]], few // 5 / n),
    }
    yield from compare_times("series batch", f"{n} x AR({ORDER})", engines, runs)


def fit(smoke: bool, runs: int) -> Rows:
    """From the series themselves: autocovariances and all orders."""
    n = 200 if smoke else 20_000
    x = np.random.default_rng(2).standard_normal((n, 400))
    check(series.ar(x, ORDER, threads=1).coef, by_lag(numpy_autocovariance(x))[0].T)
    engines: Engines = {
        "jtgpu": (lambda: series.ar(x, ORDER, threads=1), 1.0),
        "NumPy, transposed": (lambda: by_lag(numpy_autocovariance(x)), 1.0),
    }
    yield from compare_times("series fit", f"{n} x 400, AR({ORDER})", engines, min(runs, 5))


def _single(bench: str, sizes: tuple[int, ...], runs: int) -> Rows:
    from scipy.linalg import solve_toeplitz

    for n in sizes:
        c = 1 / (1.0 + np.arange(n + 1))
        c[0] = 2.0
        b = np.random.default_rng(n).standard_normal(n)
        check(series.levinson(c).coef, solve_toeplitz(c[:-1], c[1:]))
        check(series.solve_toeplitz(c[:-1], b), solve_toeplitz(c[:-1], b))
        repeats = max(2000 // n, 1) if n <= 1000 else 1

        def many(work: Callable[[], Any], repeats: int = repeats) -> tuple[Callable[[], Any], float]:
            return lambda: [work() for _ in range(repeats)], repeats

        engines: Engines = {
            "jtgpu, levinson": many(lambda c=c: series.levinson(c)),  # type: ignore[misc]
            "jtgpu, solve": many(lambda c=c, b=b: series.solve_toeplitz(c[:-1], b)),  # type: ignore[misc]
            "SciPy, solve": many(lambda c=c, b=b: solve_toeplitz(c[:-1], b)),  # type: ignore[misc]
        }
        yield from compare_times(bench, f"N = {n}", engines, runs)


def single(smoke: bool, runs: int) -> Rows:
    """One long system."""
    yield from _single("series single", (200,) if smoke else (1000, 10_000), min(runs, 5))


def short(smoke: bool, runs: int) -> Rows:
    """One short system: what a call costs."""
    yield from _single("series short", (10,) if smoke else (1, 10, 100, 500), runs)


def published(smoke: bool, runs: int) -> Rows:
    """PolyBench's recurrence in the published versions, and today's solver."""
    durbin32 = durbin.durbin32
    for n in (100,) if smoke else (100, 1000, 2000, 10_000):
        r = np.random.default_rng(n).uniform(-1, 1, n) / np.sqrt(n) / 2
        c = np.concatenate([[1.0], r / 2])
        versions = [v for v in ("sequential", "reworked", "openmp") if v != "sequential" or n <= 2000]  # --gpu: CUDA
        engines: Engines = {v: ((lambda v=v, r=r: durbin32(r, v, threads=2)), 1.0) for v in versions}  # type: ignore[misc]
        engines["jtgpu, levinson"] = ((lambda c=c: series.levinson(c)), 1.0)  # type: ignore[misc]
        yield from compare_times("series published", f"N = {n}", engines, min(runs, 5))


def main() -> None:
    """Run parts and print a line for each engine."""
    parser = parser_of(__doc__, "series.jsonl")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    parser.add_argument("--gpu", action="store_true", help="times on a GPU, by events")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="with --gpu: N GPUs, compared with one")
    options = parser.parse_args()
    if options.gpu:
        for found in gpu_rows(options.smoke, options.devices):
            share = f"{found['share_of_copy']:6.1%} of copy" if "share_of_copy" in found else ""
            ms = found["median"] * 1e3
            print(f"{found['bench']:20} {found['network']:42} {found['engine']:26} {ms:12.4f} ms {share}", flush=True)
            store(options, [found])
        return
    for part in options.parts or PARTS:
        for found in globals()[part](options.smoke, 1 if options.smoke else 9):
            ms = found["minimum"] * 1e3
            print(f"{found['bench']:18} {found['network']:20} {found['engine']:20} {ms:12.4f} ms", flush=True)
            store(options, [found])


if __name__ == "__main__":
    main()
