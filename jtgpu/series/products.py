"""Autocovariances of series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..util.arguments import flag, whole_number
from ..util.loops import loops
from . import reference
from .inputs import SeriesData, read_series
from .workers import on_threads, resolve_backend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.options import EngineName

_lags = loops("jtgpu.series.loops.lags")

DIRECT = 64  # highest lag for which products are added directly; beyond, by Fourier transforms
BLOCK = 1 << 22  # numbers that are transformed at a time


class Moments(NamedTuple):
    """Sums of lagged products; see `jtgpu.series.loops.lags.autocovariances`."""

    sums: NDArray[np.float64]  # (B, n_lags)
    mean: NDArray[np.float64]  # (B,)
    bad: NDArray[np.int64]  # (B,): first time with a value that is not finite, or -1


def autocovariance(
    x: Any, max_lag: int, *, biased: bool = True, demean: bool = True, backend: EngineName = "auto",
    threads: int | None = None,
) -> NDArray[np.float64]:  # fmt: skip
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
    """
    data = read_series(x)
    found = moments(data, whole_number("max_lag", max_lag, 0) + 1, flag("demean", demean), backend, threads)
    for s in np.flatnonzero(found.bad >= 0)[:1]:
        raise DataError(missing_value(data, int(s), int(found.bad[s])))
    n = data.values.shape[1]
    r: NDArray[np.float64] = found.sums / (n if flag("biased", biased) else n - np.arange(max_lag + 1))
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
    found = Moments(np.empty((n, n_lags)), np.empty(n), np.empty(n, np.int64))
    if resolve_backend(backend, has_gpu=False) == "reference":
        for s in range(n):
            _reference_moments(x[s], demean, found, s)
        return found
    by_fft = n_lags - 1 > DIRECT

    def work(some: slice) -> None:
        step = max(BLOCK // max(length, 1), 1) if by_fft else max(n, 1)
        for first in range(some.start, some.stop, step):
            part = slice(first, min(first + step, some.stop))
            y = np.empty((part.stop - first if by_fft else 1, length))
            sums = np.empty((part.stop - first, 1)) if by_fft else found.sums[part]
            _lags.autocovariances(x[part], demean, y, sums, found.mean[part], found.bad[part])
            if by_fft:
                spectrum = np.fft.rfft(y, _fast_length(length + n_lags), axis=1)
                power = spectrum.real**2 + spectrum.imag**2
                found.sums[part] = np.fft.irfft(power, _fast_length(length + n_lags), axis=1)[:, :n_lags]
                found.sums[part, 0] = sums[:, 0]

    on_threads(work, n, length * min(n_lags, 50), threads)
    return found


def _fast_length(n: int) -> int:
    """The smallest number of at least n that has no prime factors above 5."""
    best = 1 << max(n - 1, 1).bit_length()
    for five in (5**i for i in range(28)):
        for odd in (five * 3**j for j in range(41)):
            if odd < best:
                best = min(best, odd << max(-(-n // odd) - 1, 0).bit_length())
    return best


def _reference_moments(x: NDArray[np.float64], demean: bool, found: Moments, s: int) -> None:
    """`moments` of one series."""
    bad = np.flatnonzero(~np.isfinite(x))
    found.bad[s] = bad[0] if len(bad) else -1
    found.mean[s], found.sums[s] = 0.0, 0.0
    if len(bad):
        return
    if demean and len(x):
        found.mean[s] = x[0] if (x == x[0]).all() else x.mean()
    found.sums[s] = reference.lagged_products(x - found.mean[s], found.sums.shape[1])
