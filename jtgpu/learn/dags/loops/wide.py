"""Positive numbers beyond the range of doubles: mantissa and binary exponent, added and multiplied without logarithms.

A number is ``mantissa * 2**exponent``, two arrays of float64 and int64. Mantissas of sums grow above 2 and are
normalised on request; zero has the mantissa 0 and an exponent far below all others. Weights of parent sets differ by
thousands of nats, so plain doubles would underflow; a sum here takes a fifth of the time of log-sum-exp, and has no
cancellation because nothing is subtracted.
"""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import as_bits, as_float, exp, log
from ....util.jit import compiled

__all__ = [
    "LOG2", "ZERO", "add_to", "log_of", "normalise", "normalised", "scale", "split", "subset_sums", "superset_sums",
]  # fmt: skip

LOG2 = 0.6931471805599453  # ln 2
ZERO = -(1 << 40)  # exponent of 0
_MANTISSA = (1 << 52) - 1
_ONE = 1023 << 52  # bits of 1.0


@compiled(allocates=False, inline="always")
def scale(shift):  # type: ignore[no-untyped-def]
    """2**-shift for shift >= 0; 0 from 1023 on."""
    return as_float((1023 - min(shift, 1023)) << 52)


@compiled(allocates=False)
def split(log_x):  # type: ignore[no-untyped-def]
    """Mantissa and exponent of exp(log_x)."""
    if log_x == -math.inf:
        return 0.0, np.int64(ZERO)
    y = log_x / LOG2
    exponent = math.floor(y)
    return exp((y - exponent) * LOG2), np.int64(exponent)


@compiled(allocates=False)
def log_of(mantissa, exponent):  # type: ignore[no-untyped-def]
    """Natural logarithm of a number; -inf of 0."""
    return log(mantissa) + exponent * LOG2 if mantissa > 0.0 else -math.inf


@compiled(allocates=False)
def normalised(mantissa, exponent):  # type: ignore[no-untyped-def]
    """The same number with a mantissa in [1, 2)."""
    if mantissa == 0.0:
        return 0.0, np.int64(ZERO)
    bits = as_bits(mantissa)
    return as_float((bits & _MANTISSA) | _ONE), exponent + (bits >> 52) - 1023


@compiled(allocates=False)
def normalise(mantissas, exponents):  # type: ignore[no-untyped-def]
    """Bring all mantissas to [1, 2)."""
    for i in range(len(mantissas)):
        mantissas[i], exponents[i] = normalised(mantissas[i], exponents[i])


@compiled(allocates=False)
def add_to(mantissas, exponents, i, mantissa, exponent):  # type: ignore[no-untyped-def]
    """Add a number to number i of an array."""
    top = max(exponents[i], exponent)
    mantissas[i] = mantissas[i] * scale(top - exponents[i]) + mantissa * scale(top - exponent)
    exponents[i] = top


@compiled(allocates=False)
def subset_sums(mantissas, exponents):  # type: ignore[no-untyped-def]
    """Replace the value of each set by the sum over its subsets (zeta transform)."""
    # mantissas, exponents: (2**k,) float64, (2**k,) int64: By set, as a number of k bits
    half = 1
    while half < len(mantissas):
        for base in range(0, len(mantissas), 2 * half):
            for low in range(base, base + half):
                high = low + half
                x, y = exponents[low], exponents[high]
                top = max(x, y)
                mantissas[high] = mantissas[low] * scale(top - x) + mantissas[high] * scale(top - y)
                exponents[high] = top
        half *= 2


@compiled(allocates=False)
def superset_sums(mantissas, exponents):  # type: ignore[no-untyped-def]
    """Replace the value of each set by the sum over its supersets; see `subset_sums`."""
    half = 1
    while half < len(mantissas):
        for base in range(0, len(mantissas), 2 * half):
            for low in range(base, base + half):
                high = low + half
                x, y = exponents[low], exponents[high]
                top = max(x, y)
                mantissas[low] = mantissas[low] * scale(top - x) + mantissas[high] * scale(top - y)
                exponents[low] = top
        half *= 2
