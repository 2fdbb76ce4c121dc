"""The exponential function by plain arithmetic: the same bits on every machine, and in vector registers."""

from __future__ import annotations

from numba import types

from ....util.elementary.loops.bits import as_float
from ....util.jit import compiled

__all__ = ["exponential"]

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
