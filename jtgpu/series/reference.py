"""The definition of every result, in float64 NumPy: one series or system at a time, one obvious loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALLEST = 2.0**-50  # a variance below this fraction of r[0] is rounding


def lagged_products(x: NDArray[np.float64], n_lags: int) -> NDArray[np.float64]:
    """``sum_t x[t] x[t+l]`` for lags l = 0..n_lags-1."""
    return np.array([x[: len(x) - lag] @ x[lag:] for lag in range(n_lags)])


def predict(
    r: NDArray[np.float64], order: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int]:
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


def solve(c: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
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


def residuals(x: NDArray[np.float64], mean: float, coef: NDArray[np.float64]) -> NDArray[np.float64]:
    """``e[t] = y[t] - sum_i coef[i] y[t-1-i]`` with ``y = x - mean``; zero for the first times, which lack a past."""
    y, p = x - mean, len(coef)
    return np.array([y[t] - coef @ y[t - p : t][::-1] if t >= p else 0.0 for t in range(len(y))])
