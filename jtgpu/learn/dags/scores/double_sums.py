"""Sums of products to 30 digits, and pivots of their matrices, for numbers that others nearly determine.

Factorising sums of products squares the condition of the rows: where a residual is 1e-7 of the spread, no digit of a
double is left. Columns are cut into whole numbers so short that sums of their products are exact, in any order, and
numbers are pairs of doubles from there on (Ozaki et al., Numer. Algorithms 59 (2012) 95; Dekker, Numer. Math. 18
(1971) 224).
"""

from __future__ import annotations

import numpy as np

from ....util.arrays import Floats, Ints

BITS = 64  # of each value, below the largest of its column
SPLIT = 134217729.0  # 2^27 + 1: divides a double into halves whose products are exact

Pair = tuple[Floats, Floats]  # a number is the sum of the two; the second is within rounding of the first


def products(columns: Floats, weights: Floats | None) -> Pair:
    """Sums of products of columns (n, N) with whole weights, (n, n)."""
    n, total = len(columns), columns.shape[1] if weights is None else float(weights.sum())
    width = max((53 - int(np.frexp(total)[1])) // 2, 1)
    powers = np.frexp(np.abs(columns).max(axis=1))[1]
    left, parts = np.ldexp(columns, -powers[:, None]), []
    for _ in range(-(-BITS // width)):
        left = np.ldexp(left, width)
        parts.append(np.rint(left))
        left -= parts[-1]
    sums = np.zeros((n, n)), np.zeros((n, n))
    for order in range(2 * len(parts) - 1):  # the largest first
        for i in range(max(order - len(parts) + 1, 0), min(order, len(parts) - 1) + 1):
            first = parts[i] if weights is None else parts[i] * weights
            exact = first @ parts[order - i].T  # of whole numbers below 2^53
            sums = _add(sums, (np.ldexp(exact, -width * (order + 2)), np.zeros((n, n))))
    back = powers[:, None] + powers
    return np.ldexp(sums[0], back), np.ldexp(sums[1], back)


def residuals(sums: Pair, cells: Ints, sets: Ints, noise: Floats) -> tuple[Floats, Floats, Floats]:
    """Pivots (l, B) of members of sets in cells, the diagonals, and what the rounding of the rows adds to them."""
    # sums (q, n, n), cells (B,), sets (B, l), noise (n,): root mean square of a column
    size, at = sets.shape[1], sets.T
    a = [[(sums[0][cells, at[i], at[j]], sums[1][cells, at[i], at[j]]) for j in range(i + 1)] for i in range(size)]
    diagonal, blur = np.array([a[i][i][0] for i in range(size)]), noise[at]
    for j in range(size):
        for i in range(j + 1, size):
            c = _over(a[i][j], a[j][j])
            blur[i] += np.abs(c[0]) * blur[j]
            for k in range(j + 1, i + 1):
                less = _times(c, a[k][j])
                a[i][k] = _add(a[i][k], (-less[0], -less[1]))
    return np.array([a[i][i][0] for i in range(size)]), diagonal, blur


def _sum(a: Floats, b: Floats) -> Pair:
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _product(a: Floats, b: Floats) -> Pair:
    product, a_cut, b_cut = a * b, SPLIT * a, SPLIT * b
    a_high, b_high = a_cut - (a_cut - a), b_cut - (b_cut - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _add(a: Pair, b: Pair) -> Pair:
    high, low = _sum(a[0], b[0])
    more, less = _sum(a[1], b[1])
    high, low = _sum(high, low + more)
    return _sum(high, low + less)


def _times(a: Pair, b: Pair) -> Pair:
    high, low = _product(a[0], b[0])
    return _sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def _over(a: Pair, b: Pair) -> Pair:
    quotient = a[0] / b[0]
    zero = np.zeros_like(quotient)
    less = _times((quotient, zero), b)
    rest = _add(a, (-less[0], -less[1]))
    return _sum(quotient, rest[0] / b[0])
