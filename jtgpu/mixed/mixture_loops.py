"""Compiled loops over mixtures of normal distributions: quantiles of many mixtures."""

from __future__ import annotations

import math

from ..util.jit import compiled

ROOT_HALF = 0.7071067811865476
REACH = 40.0  # standard deviations: beyond them a normal distribution has no mass in float64
STEPS = 200  # of bisection at most; 64 halve any interval to its last digit


@compiled(allocates=False)
def below(x, weights, means, sds):  # type: ignore[no-untyped-def]
    """P(X <= x) of a mixture."""
    total = 0.0
    for k in range(len(weights)):
        if weights[k] > 0.0:
            total += weights[k] * 0.5 * math.erfc((means[k] - x) / sds[k] * ROOT_HALF)
    return total


@compiled("const(f8[:, :]), const(f8[:, :]), const(f8[:, :]), const(f8[:]), f8[:, :]", allocates=False)
def quantiles(weights, means, sds, probabilities, out):  # type: ignore[no-untyped-def]
    """Quantiles (B, Q) of B mixtures by bisection, to the last digits."""
    for b in range(len(weights)):
        low, high = math.inf, -math.inf
        for k in range(weights.shape[1]):
            if weights[b, k] > 0.0:
                low = min(low, means[b, k] - REACH * sds[b, k])
                high = max(high, means[b, k] + REACH * sds[b, k])
        for q in range(len(probabilities)):
            left, right = low, high
            for _ in range(STEPS):
                middle = 0.5 * (left + right)
                if middle <= left or middle >= right:
                    break
                if below(middle, weights[b], means[b], sds[b]) < probabilities[q]:
                    left = middle
                else:
                    right = middle
            out[b, q] = 0.5 * (left + right)
