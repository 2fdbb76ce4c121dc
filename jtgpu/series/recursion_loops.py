"""Compiled Levinson-Durbin recursions of symmetric Toeplitz systems: 16 short systems at a time, or one long one."""

from __future__ import annotations

import math

import numpy as np

from ..backends.cpu.loops.vector import fma, load, splat, store, zero
from ..util.jit import compiled

__all__ = ["recurse_each", "recurse_lanes"]

LANES = 16  # systems side by side: two or four vector registers
VARIANCE, LEAST, LAST, STOP = range(LANES, 5 * LANES, LANES)  # parts of the lanes' numbers; first: reflections
SMALLEST = 2.0**-50  # a variance below this fraction of r[0] is rounding
_fast = {"reassoc", "nsz", "contract"}


@compiled(allocates=False)
def _unexplained(a, c, m, out):  # type: ignore[no-untyped-def]
    """The part of lag m that predictors of order m-1 leave; arrays by address, a row of 16 lanes a coefficient."""
    low, high = zero(), zero()
    for i in range(m - 1):
        x, y = LANES * i, LANES * (m - 1 - i)
        low = fma(load(a, x, 8), load(c, y, 8), low)
        high = fma(load(a, x + 8, 8), load(c, y + 8, 8), high)
    minus = splat(-1.0)
    store(out, 0, 8, fma(low, minus, load(c, LANES * m, 8)))
    store(out, 8, 8, fma(high, minus, load(c, LANES * m + 8, 8)))


@compiled(allocates=False)
def _reflect_lanes(a, m, k):  # type: ignore[no-untyped-def]
    """Raise predictors from order m-1 to m, in place. Both ends move inwards: each coefficient is read once."""
    for part in (0, 8):
        scale = load(k, part, 8)
        store(a, LANES * (m - 1) + part, 8, scale)
        minus = fma(scale, splat(-1.0), zero())
        for i in range(m // 2):
            left, right = LANES * i + part, LANES * (m - 2 - i) + part
            x, y = load(a, left, 8), load(a, right, 8)
            store(a, left, 8, fma(minus, y, x))
            store(a, right, 8, fma(minus, x, y))


@compiled("const(f8[:, :]), const(i8[:]), f8[:, :], f8[:, :], f8[:, :], i8[:]", fastmath=_fast)
def recurse_lanes(r, order, coef, partial, sigma2, stops_at):  # type: ignore[no-untyped-def]
    """Predictors of many short systems. A system's results do not depend on the others, bit for bit."""
    # r: (B, p+1) float64: Autocovariances at lags 0..p
    # order: (B,) int64: Order of each system's coefficients, at most p. Results of higher orders are not computed.
    # coef: (B, p) float64, output: Zero beyond the order
    # partial, sigma2: (B, p+1) float64, output: Reflection coefficients and variances of orders 0..p
    # stops_at: (B,) int64, output: First order that does not exist, or -1. Partials from there on are 0, variances
    #     those of the last good order.
    n, p = r.shape[0], r.shape[1] - 1
    c, a = np.empty((p + 1, LANES)), np.empty((p + 1, LANES))
    partials, variances = np.empty((p + 1, LANES)), np.empty((p + 1, LANES))
    w = np.empty(5 * LANES)  # one array: LLVM knows that its parts do not overlap, and vectorises
    for first in range(0, n, LANES):
        used = min(LANES, n - first)
        for lane in range(LANES):
            system = first + min(lane, used - 1)  # unused lanes repeat the last system
            for m in range(p + 1):
                c[m, lane] = r[system, m]
            good = c[0, lane] > 0.0 and c[0, lane] < math.inf
            w[VARIANCE + lane] = c[0, lane] if good else 1.0
            w[LEAST + lane] = SMALLEST * w[VARIANCE + lane]
            w[LAST + lane], w[STOP + lane] = (float(order[system]), -1.0) if good else (-1.0, 0.0)
        for m in range(1, p + 1):
            _unexplained(a.ctypes.data, c.ctypes.data, m, w.ctypes.data)
            now = float(m)
            for lane in range(LANES):
                variance, last = w[VARIANCE + lane], w[LAST + lane]
                k = w[lane] / variance
                left = variance * (1.0 - k * k)
                good, wanted = (abs(k) < 1.0) & (left > w[LEAST + lane]), now <= last  # not good: NaN, too
                w[lane] = k if good & wanted else 0.0
                w[VARIANCE + lane] = left if good & wanted else variance
                w[STOP + lane] = w[STOP + lane] if good | (not wanted) else now
                w[LAST + lane] = last if good else -1.0
                partials[m, lane], variances[m, lane] = w[lane], w[VARIANCE + lane]
            _reflect_lanes(a.ctypes.data, m, w.ctypes.data)
        for lane in range(used):
            system = first + lane
            stops_at[system] = int(w[STOP + lane])
            zero_order = c[0, lane] if stops_at[system] else 0.0
            partial[system, 0], sigma2[system, 0] = 1.0, zero_order
            for m in range(1, p + 1):
                coef[system, m - 1], partial[system, m] = a[m - 1, lane], partials[m, lane]
                sigma2[system, m] = variances[m, lane] if stops_at[system] else 0.0


@compiled(allocates=False, fastmath=_fast)
def _reflect(a, reverse, r, k):  # type: ignore[no-untyped-def]
    """Reflect a predictor and its reverse by k, in place; returns the inner product of the former with `r`.

    All arrays have its length and are read forwards: LLVM vectorises no loop with indices that may be negative.
    """
    total = 0.0
    for i in range(len(a)):
        y, z = a[i], reverse[i]
        x = y - k * z
        a[i], reverse[i] = x, z - k * y
        total += x * r[i]
    return total


@compiled(allocates=False, fastmath=_fast)
def _extend(x, reverse, r, scale):  # type: ignore[no-untyped-def]
    """Subtract a multiple of a reversed predictor from a solution; returns the inner product of the latter with `r`."""
    total = 0.0
    for i in range(len(x)):
        y = x[i] - scale * reverse[i]
        x[i] = y
        total += y * r[i]
    return total


@compiled(
    "const(f8[:, :]), const(i8[:]), const(f8[:, :, :]), b1, f8[:, :, :], f8[:, :], f8[:, :], f8[:, :], i8[:]",
    fastmath=_fast,
)
def recurse_each(r, order, b, is_covariance, x, coef, partial, sigma2, stops_at):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Predictors of long systems, one after the other, and solutions for right-hand sides."""
    # r: (B, N) float64: First columns of the matrices
    # order: (B,) int64: As for `recurse_lanes`; N-1 where there are right-hand sides
    # b: (B, K, N) float64: Right-hand sides
    # is_covariance: Stop at reflection coefficients of 1 and more, which only indefinite matrices have
    # x: (B, K, N) float64, output: Solutions; undefined for a system that stops
    # coef, partial, sigma2, stops_at: As for `recurse_lanes`, (B, N-1), (B, N), (B, N) and (B,)
    n = r.shape[1]
    backwards, reverse, rest = np.empty(n + 1), np.empty(n), np.empty(b.shape[1])
    backwards[n] = 0.0
    for s in range(r.shape[0]):
        a, variance = coef[s], r[s, 0]
        good = abs(variance) < math.inf and (variance > 0.0 or (variance != 0.0 and not is_covariance))
        stop, last = (-1, order[s]) if good else (0, 0)
        variance = variance if good else 0.0
        least = SMALLEST * abs(variance)
        for i in range(n):
            backwards[n - 1 - i] = r[s, i]
        a[:], partial[s, :] = 0.0, 0.0
        partial[s, 0], sigma2[s, 0] = 1.0, variance
        k = r[s, 1] if n > 1 else 0.0
        for j in range(b.shape[1]):
            rest[j] = b[s, j, 0]
        for m in range(1, n + 1):  # the predictor has order m-1; k and rest are what remains to be explained
            lags = backwards[max(n - 1 - m, 0) : n]  # r[m], ..., r[0]; of no use in the last step
            back = reverse[n + 1 - m :]
            for j in range(b.shape[1] if stop < 0 else 0):
                scale = rest[j] / variance
                x[s, j, m - 1] = scale
                total = _extend(x[s, j, : m - 1], back, lags, scale) + scale * lags[m - 1]
                rest[j] = b[s, j, m] - total if m < n else 0.0
            if m == n:
                break
            if m <= last:
                k /= variance
                left = variance * (1.0 - k * k)
                if abs(left) > least and abs(left) < math.inf and (not is_covariance or (left > 0.0 and abs(k) < 1.0)):
                    variance, partial[s, m] = left, k
                    total = _reflect(a[: m - 1], back, lags, k) + k * lags[m - 1]
                    a[m - 1] = reverse[n - m] = k
                    k = r[s, m + 1] - total if m + 1 < n else 0.0
                else:  # also for NaN
                    stop, last = m, 0
            sigma2[s, m] = variance
        stops_at[s] = stop
