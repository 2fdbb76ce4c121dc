"""Compiled loops over the lags of time series."""

from __future__ import annotations

import math

import numpy as np

from ..util.jit import compiled

__all__ = ["autocovariances", "residuals"]

_fast = {"reassoc", "nsz", "contract"}


@compiled()
def _first_bad(x):  # type: ignore[no-untyped-def]
    """Index of the first value (float64) that is not finite, or -1. No fast arithmetic: it may not fold the test."""
    for t in range(len(x)):
        if not abs(x[t]) < math.inf:
            return t
    return -1


@compiled(allocates=False, fastmath=_fast)
def _four_lags(y, lag, sums):  # type: ignore[no-untyped-def]
    """Lagged products for up to four lags from `lag` on: y[t] is read once for all of them."""
    n, most = len(y), min(lag + 4, len(sums))
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    if lag + 3 < n:
        later = y[lag:]
        second, third, fourth = later[1:], later[2:], later[3:]
        for t in range(n - lag - 3):
            v = y[t]
            a += v * later[t]
            b += v * second[t]
            c += v * third[t]
            d += v * fourth[t]
    for i in range(lag, most):
        total = (a, b, c, d)[i - lag]
        for t in range(max(n - lag - 3, 0), n - i):
            total += y[t] * y[t + i]
        sums[i] = total


@compiled("const(f8[:, :]), b1, f8[:, :], f8[:, :], f8[:], i8[:]", fastmath=_fast)
def autocovariances(x, demean, centred, sums, mean, bad):  # type: ignore[no-untyped-def]
    """Sums of lagged products of each series. A series' results do not depend on the others, bit for bit."""
    # x: (B, T) float64
    # demean: Subtract each series' mean
    # centred: (1, T) or (B, T) float64, output: The series without their means; with one row, scratch memory
    # sums: (B, L) float64, output: ``sum(x[t] * x[t+l])`` for lags 0..L-1; zero for constant series with `demean`
    # mean: (B,) float64, output
    # bad: (B,) int64, output: Index of the first value that is not finite, or -1; the other results of such a series
    #     are 0
    n = x.shape[1]
    for s in range(x.shape[0]):
        row, y = x[s], centred[min(s, centred.shape[0] - 1)]
        total, first, differ = 0.0, (row[0] if n else 0.0), 0.0
        for t in range(n):
            total += row[t]
            differ += 1.0 if row[t] != first else 0.0
        bad[s] = -1 if abs(total) < math.inf else _first_bad(row)
        mean[s] = 0.0
        if bad[s] >= 0:
            sums[s, :], y[:] = 0.0, 0.0
            continue
        if demean and n:
            about, total = total / n, 0.0
            for t in range(n):
                total += row[t] - about
            about = about + total / n if differ > 0.0 else first
            mean[s] = about if abs(about) < math.inf else 0.0  # the sum overflows, and so do the squares
        about, total = mean[s], 0.0
        for t in range(n):
            v = row[t] - about
            y[t] = v
            total += v * v
        sums[s, 0] = total
        for lag in range(1, sums.shape[1], 4):
            _four_lags(y, lag, sums[s])


@compiled("const(f8[:, :]), const(f8[:]), const(f8[:, :]), const(i8[:]), f8[:, :]", fastmath=_fast)
def residuals(x, mean, coef, order, out):  # type: ignore[no-untyped-def]
    """One-step prediction errors of autoregressive models."""
    # x: (B, T) float64
    # mean: (B,) float64
    # coef: (B, P) float64
    # order: (B,) int64: Coefficients of each model that are used, at most P
    # out: (B, T) float64, output: Zero at the first `order` times
    n = x.shape[1]
    y = np.empty(n)
    for s in range(x.shape[0]):
        row, p = out[s], min(order[s], n)
        for t in range(n):
            y[t] = x[s, t] - mean[s]
            row[t] = y[t] if t >= p else 0.0
        for i in range(p):
            a = coef[s, i]
            for t in range(p, n):
                row[t] -= a * y[t - 1 - i]
