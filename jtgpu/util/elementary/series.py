"""The polynomials of logarithm and exponential, for Python's floats and for compiled loops.

Only additions, multiplications and one division, each rounded as IEEE 754 says: no result depends on the processor.
"""

from __future__ import annotations

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
