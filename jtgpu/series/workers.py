"""Systems are independent: large batches are divided between threads, without effect on any bit of the results."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..errors import ArgumentError, DataError
from ..util.arguments import choice, flag, whole_number
from ..util.arrays import Floats, Ints
from ..util.loops import loops
from ..util.options import EngineName
from ..util.system import cores
from .inputs import SeriesData, read_series

BACKENDS = ("auto", "cpu", "gpu", "reference")
ENOUGH = 4_000_000  # multiplications, some milliseconds, that pay for a thread


def resolve_backend(name: EngineName, *, on_device: bool = False, has_gpu: bool = True) -> EngineName:
    """The backend that computes."""
    # on_device: Whether the input is in a GPU's memory. ``"auto"`` is the GPU then, and the CPU otherwise: for systems
    #     of the host, copies take longer than the CPU's work, unless a single one is very long.
    # has_gpu: Whether the function runs on GPUs, too
    choice("backend", name, BACKENDS if has_gpu else [b for b in BACKENDS if b != "gpu"])
    if name == "auto":
        return "gpu" if on_device else "cpu"
    if on_device and name != "gpu":
        raise ArgumentError(f"the array is in a GPU's memory; use backend='gpu', or copy it to the host for {name!r}")
    return name


def on_threads(work: Callable[[slice], object], n: int, cost: float, threads: int | None) -> None:
    """Call `work` with slices that cover n systems, each of which takes `cost` multiplications."""
    if threads is not None:
        whole_number("threads", threads, 1)
    n_threads = min(n, int(n * cost / ENOUGH))
    if n_threads > 1:
        n_threads = min(n_threads, threads or cores())
    if n_threads <= 1:
        work(slice(0, n))
        return
    bounds = [n * i // n_threads for i in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads, "jtgpu-series") as pool:
        for done in [pool.submit(work, slice(*pair)) for pair in pairwise(bounds)]:
            done.result()


# The definition of every result, in float64 NumPy: one series or system at a time, one obvious loop.

SMALLEST = 2.0**-50  # a variance below this fraction of r[0] is rounding


def predict(r: Floats, order: int) -> tuple[Floats, Floats, Floats, int]:
    """Solve ``toeplitz(r[:m]) a = r[1:m+1]`` for all orders m up to `order` (Levinson, 1947; Durbin, 1960)."""
    # returns As in `jtgpu.series.Predictors`, for one system.
    a, partial, sigma2 = np.zeros(len(r) - 1), np.zeros(len(r)), np.zeros(len(r))
    partial[0] = 1.0
    if not 0 < r[0] < np.inf:
        return a, partial, sigma2, 0
    sigma2[:] = r[0]
    for m in range(1, order + 1):
        k = (r[m] - a[: m - 1] @ r[m - 1 : 0 : -1]) / sigma2[m - 1]
        variance = sigma2[m - 1] * (1 - k * k)
        if not (abs(k) < 1 and variance > SMALLEST * r[0]):  # also for NaN
            return a, partial, sigma2, m
        a[: m - 1] -= k * a[: m - 1][::-1]
        a[m - 1] = partial[m] = k
        sigma2[m:] = variance
    return a, partial, sigma2, -1


def solve(c: Floats, b: Floats) -> tuple[Floats, int]:
    """Solve ``toeplitz(c) x = b`` for each row of `b`; also the first leading minor that is singular, or -1."""
    a, x, variance = np.zeros(len(c) - 1), np.zeros_like(b), c[0]
    for m in range(len(c)):  # a is the predictor of order m
        if not SMALLEST * abs(c[0]) < abs(variance) < np.inf:  # also for NaN
            return x, m
        scale = (b[:, m] - x[:, :m] @ c[m:0:-1]) / variance
        x[:, :m] -= scale[:, None] * a[:m][::-1]
        x[:, m] = scale
        if m + 1 < len(c):
            k = (c[m + 1] - a[:m] @ c[m:0:-1]) / variance
            a[:m] -= k * a[:m][::-1]
            a[m] = k
            variance = variance * (1 - k * k)
    return x, -1


def residuals(x: Floats, mean: float, coef: Floats) -> Floats:
    """``e[t] = y[t] - sum_i coef[i] y[t-1-i]`` with ``y = x - mean``; zero for the first times, which lack a past."""
    y, p = x - mean, len(coef)
    return np.array([y[t] - coef @ y[t - p : t][::-1] if t >= p else 0.0 for t in range(len(y))])


# Autocovariances of series.

_lags = loops("jtgpu.series.lag_loops")

DIRECT = 64  # highest lag for which products are added directly; beyond, by Fourier transforms
BLOCK = 1 << 22  # numbers that are transformed at a time


class Moments(NamedTuple):
    """Sums of lagged products; see `jtgpu.series.lag_loops.autocovariances`."""

    sums: Floats  # (B, n_lags)
    mean: Floats  # (B,)
    bad: Ints  # (B,): first time with a value that is not finite, or -1


def autocovariance(
    x: object, max_lag: int, *, biased: bool = True, demean: bool = True, backend: EngineName = "auto",
    threads: int | None = None,
) -> Floats:  # fmt: skip
    """Autocovariances of series at lags 0..max_lag.

    Parameters
    ----------
    x : (..., T) array, or table
        Series; a table has a column for each.
    max_lag : int
        Less than T.
    biased : bool
        Divide by T, which makes the sequence positive semidefinite; otherwise by the number of products, T - lag.
    demean : bool
        Subtract each series' mean first.
    backend : {"auto", "cpu", "reference"}
    threads : int, optional
        Default: one for each core.

    Returns
    -------
    (..., max_lag+1) ndarray of float64
        A row for each column of a table.

    Raises
    ------
    DataError
        If a series has a gap or an infinite value, or is not longer than `max_lag`.

    Examples
    --------
    >>> import jtgpu
    >>> jtgpu.series.autocovariance([1.0, 2.0, 3.0, 2.0, 1.0], 2).round(3).tolist()
    [0.56, 0.032, -0.376]
    """
    data = read_series(x)
    computed = moments(data, whole_number("max_lag", max_lag, 0) + 1, flag("demean", demean), backend, threads)
    for s in np.flatnonzero(computed.bad >= 0)[:1]:
        raise DataError(missing_value(data, int(s), int(computed.bad[s])))
    n = data.values.shape[1]
    r: Floats = computed.sums / (n if flag("biased", biased) else n - np.arange(max_lag + 1))
    for s in np.flatnonzero(~np.isfinite(r).all(axis=1))[:1]:
        raise DataError(f"{data.locate(int(s))} has values whose squares overflow; divide it by a constant")
    return r.reshape(*data.shape, max_lag + 1)


def missing_value(data: SeriesData, series: int, at: int) -> str:
    """Message for a value that is not finite."""
    what = "is missing (NaN)" if np.isnan(data.value(series, at)) else "is infinite"
    return f"{data.locate(series, at)}: the value {what}; fill gaps or cut the series there"


def moments(data: SeriesData, n_lags: int, demean: bool, backend: EngineName, threads: int | None) -> Moments:
    """Sums of lagged products for lags 0..n_lags-1."""
    x = data.values
    n, length = x.shape
    if length < n_lags:
        raise DataError(
            f"series of {length} values have no autocovariance at lag {n_lags - 1}; use a lower order or lag"
        )
    computed = Moments(np.empty((n, n_lags)), np.empty(n), np.empty(n, np.int64))
    if resolve_backend(backend, has_gpu=False) == "reference":
        for s in range(n):
            with np.errstate(over="ignore", invalid="ignore"):
                _reference_moments(x[s], demean, computed, s)
        return computed
    by_fft = n_lags - 1 > DIRECT

    def work(some: slice) -> None:
        step = max(BLOCK // max(length, 1), 1) if by_fft else max(n, 1)
        for first in range(some.start, some.stop, step):
            part = slice(first, min(first + step, some.stop))
            y = np.empty((part.stop - first if by_fft else 1, length))
            sums = np.empty((part.stop - first, 1)) if by_fft else computed.sums[part]
            _lags.autocovariances(x[part], demean, y, sums, computed.mean[part], computed.bad[part])
            if by_fft:
                spectrum = np.fft.rfft(y, _fast_length(length + n_lags), axis=1)
                power = spectrum.real**2 + spectrum.imag**2
                computed.sums[part] = np.fft.irfft(power, _fast_length(length + n_lags), axis=1)[:, :n_lags]
                computed.sums[part, 0] = sums[:, 0]

    on_threads(work, n, length * min(n_lags, 50), threads)
    return computed


def _fast_length(n: int) -> int:
    """The smallest number of at least n that has no prime factors above 5."""
    best = 1 << max(n - 1, 1).bit_length()
    for five in (5**i for i in range(28)):
        for odd in (five * 3**j for j in range(41)):
            if odd < best:
                best = min(best, odd << max(-(-n // odd) - 1, 0).bit_length())
    return best


def _reference_moments(x: Floats, demean: bool, out: Moments, s: int) -> None:
    """`moments` of one series."""
    bad = np.flatnonzero(~np.isfinite(x))
    out.bad[s] = bad[0] if len(bad) else -1
    out.mean[s], out.sums[s] = 0.0, 0.0
    if len(bad):
        return
    if demean and len(x):
        out.mean[s] = x[0] if (x == x[0]).all() else x.mean()
    x = x - out.mean[s]
    out.sums[s] = [x[: len(x) - lag] @ x[lag:] for lag in range(out.sums.shape[1])]
