"""Philox4x32-10: random numbers by counter (Salmon, Moraes, Dror, Shaw 2011).

Four words of 32 bits are a function of a key and a counter, so the numbers of a chain depend neither on threads nor on
the order in which chains run.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ....util.elementary.loops.functions import as_float
from ....util.jit import compiled

__all__ = ["below", "exponential", "philox", "uniform"]

# The exponential function by plain arithmetic: the same bits on every machine, and in vector registers.

LOG2E = 1.4426950408889634
LOG2_HIGH, LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


@compiled(allocates=False, inline="always")
def exponential(x):  # type: ignore[no-untyped-def]
    """exp(x) for -708 <= x <= 0, to 1e-15 of its value.

    The fractional part of x / ln 2, between -1 and 0, by a Taylor polynomial about -1/2.
    """
    k = types.int32(x * LOG2E)  # towards zero
    r = (x - k * LOG2_HIGH) - k * LOG2_LOW + 0.34657359027997264
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * 0.7071067811865476 * as_float((types.int64(k) + 1023) << 52)


_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


@compiled(allocates=False)
def philox(seed, step, chain, draw):  # type: ignore[no-untyped-def]
    """Four words of 32 bits, as uint64."""
    # seed: The key
    # step: Words 0 and 1 of the counter
    # chain, draw: Words 2 and 3 of the counter, below 2**32
    k0, k1 = seed & _LOW, seed >> _32
    c0, c1, c2, c3 = step & _LOW, step >> _32, chain & _LOW, draw & _LOW
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@compiled(allocates=False)
def below(word, n):  # type: ignore[no-untyped-def]
    """A whole number from 0 to n - 1."""
    return np.int64((word * np.uint64(n)) >> _32)


@compiled(allocates=False)
def uniform(word):  # type: ignore[no-untyped-def]
    """A number above 0 and below 1."""
    return (np.float64(word) + 0.5) * 2.0**-32
