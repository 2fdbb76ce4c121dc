"""Toeplitz systems whose predictors are known to 120 digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray

__all__ = ["HARD", "autocovariances_of", "exact_predictors"]

mp.dps = 120


def autocovariances_of(partial: list[Any]) -> NDArray[np.float64]:
    """Autocovariances with these partial autocorrelations at lags 1, 2 ..., rounded to float64."""
    a: list[Any] = []
    r, variance = [mpf(1)], mpf(1)
    for m, value in enumerate(partial):
        k = mpf(value)
        r.append(k * variance + sum((a[i] * r[m - i] for i in range(m)), mpf(0)))
        a = [a[i] - k * a[m - 1 - i] for i in range(m)] + [k]
        variance *= 1 - k * k
    return np.array([float(x) for x in r])


def exact_predictors(r: NDArray[np.float64]) -> tuple[list[Any], list[Any], list[Any]]:
    """Coefficients, partial autocorrelations and variances of float64 autocovariances, with 120 digits."""
    c = [mpf(float(x)) for x in r]
    a: list[Any] = []
    partial, sigma2 = [mpf(1)], [c[0]]
    for m in range(1, len(c)):
        k = (c[m] - sum((a[i] * c[m - 1 - i] for i in range(m - 1)), mpf(0))) / sigma2[-1]
        a = [a[i] - k * a[m - 2 - i] for i in range(m - 1)] + [k]
        partial.append(k)
        sigma2.append(sigma2[-1] * (1 - k * k))
    return a, partial, sigma2


def _random_partials(n: int, size: float, seed: int) -> list[Any]:
    return list(np.random.default_rng(seed).uniform(-size, size, n))


# name -> autocovariances; the condition of the matrices is up to 5e12
HARD = {
    "random12": autocovariances_of(_random_partials(12, 0.7, 1)),
    "odd33": autocovariances_of(_random_partials(33, 0.4, 2)),
    "even64": autocovariances_of(_random_partials(64, 0.6, 3)),
    "long100": autocovariances_of(_random_partials(100, 0.3, 4)),
    "near_singular": autocovariances_of([1 - mpf(10) ** -6, *_random_partials(15, 0.5, 5)]),
    "nearer_singular": autocovariances_of([1 - mpf(10) ** -10, *_random_partials(15, 0.5, 6)]),
}
