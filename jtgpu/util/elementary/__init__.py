"""Logarithm and exponential with the same bits on every processor, for decisions.

NumPy's are vectorised for the processor, and those of C libraries have variants with fused multiply-add: the last digit
differs between machines, and with it every decision between values that are close: of a search, a chain, a cut. These
are plain arithmetic, with an error below 1 unit in the last place: `log` and `exp` for Python's floats, `logs` and
`exps` for arrays, and ``jtgpu.util.elementary.loops.functions`` for compiled loops.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..loops import loops

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

# The polynomials of logarithm and exponential, for Python's floats and for compiled loops.
#
# Only additions, multiplications and one division, each rounded as IEEE 754 says: no result depends on the processor.

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # LN2_HIGH times an exponent is exact
LOG2E = 1.4426950408889634
SQRT_HALF = 0.7071067811865476


def log_of_parts(m: float, e: int) -> float:
    """ln(m * 2**e) for sqrt(1/2) <= m < sqrt(2): 2 artanh(s) of s = (m - 1) / (m + 1), by its Taylor series."""
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    u = w * w
    high = (2.0 / 11.0 + 2.0 / 13.0 * z) + w * (2.0 / 15.0 + 2.0 / 17.0 * z) + u * (2.0 / 19.0)
    r = z * ((2.0 / 3.0 + 2.0 / 5.0 * z) + w * (2.0 / 7.0 + 2.0 / 9.0 * z) + u * high)
    h = 0.5 * f * f
    return e * LN2_HIGH - ((h - (s * (h + r) + e * LN2_LOW)) - f)


def exp_of_rest(r: float) -> float:
    """exp(r) for |r| <= 0.35, by the Taylor series."""
    z = r * r
    w = z * z
    high = (1.0 / 3628800.0 + 1.0 / 39916800.0 * r) + z * (1.0 / 479001600.0 + 1.0 / 6227020800.0 * r)
    middle = (1.0 / 720.0 + 1.0 / 5040.0 * r) + z * (1.0 / 40320.0 + 1.0 / 362880.0 * r)
    q = (0.5 + 1.0 / 6.0 * r) + z * (1.0 / 24.0 + 1.0 / 120.0 * r) + w * (middle + w * high)
    return 1.0 + (r + z * q)


__all__ = ["exp", "exps", "log", "logs"]

_loops = loops("jtgpu.util.elementary.loops.functions")


def log(x: float) -> float:
    """Natural logarithm; -inf of 0, NaN of negative numbers."""
    if not 0.0 < x < math.inf:
        return -math.inf if x == 0.0 else x if x > 0.0 else math.nan
    m, e = math.frexp(x)
    if m < SQRT_HALF:
        m, e = 2.0 * m, e - 1
    return log_of_parts(m, e)


def exp(x: float) -> float:
    """The exponential; inf above 709.78."""
    if not -746.0 < x < 709.782712893384:
        return 0.0 if x < 0.0 else x if math.isnan(x) else math.inf
    k = math.floor(x * LOG2E + 0.5)
    return math.ldexp(exp_of_rest((x - k * LN2_HIGH) - k * LN2_LOW), k)


def logs(x: ArrayLike) -> NDArray[np.float64]:
    """`log` of every number of an array."""
    return _each(_loops.logs, x)


def exps(x: ArrayLike) -> NDArray[np.float64]:
    """`exp` of every number of an array."""
    return _each(_loops.exps, x)


def _each(function: Callable[[NDArray[np.float64], NDArray[np.float64]], None], x: ArrayLike) -> NDArray[np.float64]:
    given = np.ascontiguousarray(x, np.float64)
    values = np.empty(np.shape(x))
    function(given.reshape(-1), values.reshape(-1))
    return values
