"""Compiled loops that tabulate sums and maxima over the subsets of a child's candidate parents."""

from __future__ import annotations

import math

import numpy as np

from ....util.jit import compiled
from .wide import ZERO, log_of, split, subset_sums

__all__ = ["best_of_subsets", "log_sums_of_subsets", "log_sums_with_member"]


@compiled("f8[:], i8[:], f8[:]")
def log_sums_of_subsets(log_weights, masks, log_sums):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets within each set of candidates."""
    # log_weights: (M,) float64
    # masks: (M,) int64: The parent sets, as bits
    # log_sums: (2**k,) float64, output
    size = len(log_sums)
    mantissas, exponents = np.zeros(size), np.full(size, np.int64(ZERO))
    for i in range(len(masks)):
        mantissas[masks[i]], exponents[masks[i]] = split(log_weights[i])
    subset_sums(mantissas, exponents)
    for i in range(size):
        log_sums[i] = log_of(mantissas[i], exponents[i])


@compiled("f8[:], i8[:], i8, f8[:]")
def log_sums_with_member(log_weights, masks, bit, log_sums):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets that contain a candidate, within each set of the other candidates."""
    # log_weights, masks: See `log_sums_of_subsets`
    # bit: The candidate; its bit is squeezed out of the sets
    # log_sums: (2**(k - 1),) float64, output
    size = len(log_sums)
    mantissas, exponents = np.zeros(size), np.full(size, np.int64(ZERO))
    low = (1 << bit) - 1
    for i in range(len(masks)):
        if masks[i] >> bit & 1:
            at = masks[i] & low | masks[i] >> (bit + 1) << bit
            mantissas[at], exponents[at] = split(log_weights[i])
    subset_sums(mantissas, exponents)
    for i in range(size):
        log_sums[i] = log_of(mantissas[i], exponents[i])


@compiled("f8[:], i8[:], f8[:]")
def best_of_subsets(log_weights, masks, best):  # type: ignore[no-untyped-def]
    """The largest weight of the parent sets within each set of candidates; see `log_sums_of_subsets`."""
    best[:] = -math.inf
    for i in range(len(masks)):
        best[masks[i]] = log_weights[i]
    half = 1
    while half < len(best):
        for base in range(0, len(best), 2 * half):
            for low in range(base, base + half):
                best[low + half] = max(best[low], best[low + half])
        half *= 2
