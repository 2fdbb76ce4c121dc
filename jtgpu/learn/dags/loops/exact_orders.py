"""Compiled loops of the exact posterior under the order-modular prior (Koivisto and Sood, 2004)."""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import exp, log
from ....util.jit import compiled
from .wide import log_of, split, superset_sums

__all__ = ["order_sums", "set_posteriors", "squeeze"]


@compiled(allocates=False, inline="always")
def squeeze(mask, v):  # type: ignore[no-untyped-def]
    """A set without variable v, with the bits above v moved down by one."""
    return (mask & ((1 << v) - 1)) | ((mask >> (v + 1)) << v)


@compiled("f8[:, :], f8[:], f8[:]")
def order_sums(log_sums, forward, backward):  # type: ignore[no-untyped-def]
    """Total weights of the orders of every set of variables, as the first ones and as the last ones."""
    # log_sums: (n, 2**(n-1)) float64: See `set_sums.log_sums_of_subsets`; the bits of predecessors are squeezed
    # forward, backward: (2**n,) float64, output
    n = log_sums.shape[0]
    every = (1 << n) - 1
    terms = np.empty((2, n))
    forward[0] = backward[0] = 0.0
    for s in range(1, 1 << n):
        most_first, most_last, k = -math.inf, -math.inf, 0
        for v in range(n):
            if s >> v & 1:
                others = s & ~(1 << v)
                terms[0, k] = log_sums[v, squeeze(others, v)] + forward[others]
                terms[1, k] = log_sums[v, squeeze(every & ~s, v)] + backward[others]
                most_first, most_last = max(most_first, terms[0, k]), max(most_last, terms[1, k])
                k += 1
        first = last = 0.0
        for i in range(k):
            if terms[0, i] > -math.inf:
                first += exp(terms[0, i] - most_first)
            if terms[1, i] > -math.inf:
                last += exp(terms[1, i] - most_last)
        forward[s] = most_first + log(first) if first > 0.0 else -math.inf
        backward[s] = most_last + log(last) if last > 0.0 else -math.inf


@compiled("i8, f8[:], i8[:], f8[:], f8[:], f8[:]")
def set_posteriors(v, log_weights, masks, forward, backward, posteriors):  # type: ignore[no-untyped-def]
    """Posterior probabilities of a child's parent sets."""
    # log_weights, masks: See `set_sums.log_sums_of_subsets`
    # forward, backward: (2**n,) float64: See `order_sums`
    # posteriors: (M,) float64, output
    size = len(forward) // 2
    every = len(forward) - 1
    mantissas, exponents = np.empty(size), np.empty(size, np.int64)
    total = forward[every]
    for i in range(size):
        before = (i & ((1 << v) - 1)) | (i >> v) << (v + 1)
        after = every & ~before & ~(1 << v)
        mantissas[i], exponents[i] = split(forward[before] + backward[after] - total)
    superset_sums(mantissas, exponents)
    for i in range(len(masks)):
        posteriors[i] = exp(log_weights[i] + log_of(mantissas[masks[i]], exponents[masks[i]]))
