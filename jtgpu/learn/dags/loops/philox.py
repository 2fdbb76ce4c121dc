"""Philox4x32-10: random numbers by counter (Salmon, Moraes, Dror, Shaw 2011).

Four words of 32 bits are a function of a key and a counter, so the numbers of a chain depend neither on threads nor on
the order in which chains run.
"""

from __future__ import annotations

import numpy as np

from ....util.jit import compiled

__all__ = ["below", "philox", "uniform"]

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
