"""Compiled loops over the lags of time series."""

from __future__ import annotations

import math

import numpy as np

from ...util.jit import compiled

__all__ = ["autocovariances", "residuals"]

_fast = {"reassoc", "nsz", "contract"}


@compiled()
def _first_bad(x):  # type: ignore[no-untyped-def]
    """Index of the first value (float64) that is not finite, or -1. No fast arithmetic: it may not fold the test."""
    for t in range(len(x)):
        if not abs(x[t]) < math.inf:
            return t
    return -1


@compiled("const(f8[:, :]), b1, f8[:, :], f8[:, :], f8[:], i8[:]", fastmath=_fast)
def autocovariances(x, demean, centred, sums, mean, bad):  # type: ignore[no-untyped-def]
    """Sums of lagged products of each series. A series' results do not depend on the others, bit for bit.

    Parameters
    ----------
    x : (B, T) float64
    demean : bool
        Subtract each series' mean.
    centred : (1, T) or (B, T) float64, output
        The series without their means; with one row, scratch memory.
    sums : (B, L) float64, output
        ``sum(x[t] * x[t+l])`` for lags 0..L-1; zero for constant series with `demean`.
    mean : (B,) float64, output
    bad : (B,) int64, output
        Index of the first value that is not finite, or -1; the other results of such a series are 0.
    """
    n = x.shape[1]
    for s in range(x.shape[0]):
        row, y = x[s], centred[min(s, centred.shape[0] - 1)]
        bad[s] = _first_bad(row)
        mean[s] = 0.0
        if bad[s] >= 0:
            sums[s, :] = 0.0
            y[:] = 0.0
            continue
        if demean:
            total, low, high = 0.0, row[0], row[0]
            for t in range(n):
                total += row[t]
                low, high = min(low, row[t]), max(high, row[t])
            about, total = total / n, 0.0
            for t in range(n):
                total += row[t] - about
            mean[s] = about + total / n if low < high else low
        for t in range(n):
            y[t] = row[t] - mean[s]
        for lag in range(sums.shape[1]):
            total = 0.0
            for t in range(n - lag):
                total += y[t] * y[t + lag]
            sums[s, lag] = total


@compiled("const(f8[:, :]), const(f8[:]), const(f8[:, :]), const(i8[:]), f8[:, :]", fastmath=_fast)
def residuals(x, mean, coef, order, out):  # type: ignore[no-untyped-def]
    """One-step prediction errors of autoregressive models.

    Parameters
    ----------
    x : (B, T) float64
    mean : (B,) float64
    coef : (B, P) float64
    order : (B,) int64
        Coefficients of each model that are used, at most P.
    out : (B, T) float64, output
        Zero at the first `order` times.
    """
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
