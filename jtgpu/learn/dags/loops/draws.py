"""Compiled loops that draw parent sets by their weights."""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.bits import popcount
from ....util.jit import compiled
from .exponential import exponential

__all__ = ["ANY", "draw_set", "draw_sets", "lowest", "squeezed"]

ANY = -1  # in place of a set that must be met: no such condition
FIRST, BLOCK = 16, 64  # sets that are tested together, as the bits of a word
NEGLIGIBLE = -700.0  # logarithm of a share that is never drawn


@compiled(allocates=False, inline="always")
def lowest(mask):  # type: ignore[no-untyped-def]
    """Number of the lowest bit that is set."""
    return popcount(np.uint64((mask & -mask) - 1))


@compiled(allocates=False, inline="always")
def squeezed(mask, bit):  # type: ignore[no-untyped-def]
    """A set without a bit, and the bits above it moved down by one."""
    return (mask & ((1 << bit) - 1)) | (mask >> (bit + 1)) << bit


@compiled(allocates=False)
def draw_set(masks, weights, before, met, log_total, u):  # type: ignore[no-untyped-def]
    """Number of a parent set within `before` that has a member in `met`, drawn by the weights."""
    # masks, weights: (M,) int64, (M,) float64: By descending weight
    # before, met: `met` is `ANY` if no member is required
    # log_total: ln of the total weight of these sets
    # u: A uniform random number
    found, left, absent = 0, u, ~before
    begin, end = 0, min(FIRST, len(masks))
    while begin < len(masks):
        allowed = np.int64(0)
        block = masks[begin:end]
        for j in range(len(block)):  # in vector registers
            is_allowed = ((block[j] & absent) == 0) & (((block[j] & met) != 0) | (met == ANY))
            allowed |= np.int64(is_allowed) << j
        while allowed:
            i = begin + lowest(allowed)
            if weights[i] == -math.inf:
                return found
            found = i
            left -= exponential(min(max(weights[i] - log_total, NEGLIGIBLE), 0.0))
            if left < 0.0:
                return found
            allowed &= allowed - 1
        begin, end = end, min(end + BLOCK, len(masks))
    return found


@compiled("i8[:], f8[:], i8[:], i8[:], f8[:], f8[:], i8[:]", allocates=False)
def draw_sets(masks, weights, before, met, log_totals, u, found):  # type: ignore[no-untyped-def]
    """Draw several parent sets of a variable; see `draw_set`."""
    # masks, weights: (M,) int64, (M,) float64
    # before, met, log_totals, u: (D,) int64, int64, float64, float64
    # found: (D,) int64, output: The sets, as bits
    for d in range(len(u)):
        found[d] = masks[draw_set(masks, weights, before[d], met[d], log_totals[d], u[d])]
