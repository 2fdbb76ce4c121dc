"""Normal distributions that are cut to an interval: for findings (low, high) of a number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..util.arrays import Floats

NARROW = 2.5  # width of an interval around 0 below which proposals are uniform
REACH, STEPS = 40.0, 200  # of bisection: half the width in standard deviations, and the most steps
FAR = 25.0  # standard deviations beyond which the tail is a series


_erfc = np.frompyfunc(math.erfc, 1, 1)


def normal_cdf(z: Floats) -> Floats:
    """P(Z <= z) of a standard normal Z, elementwise."""
    return 0.5 * np.asarray(_erfc(np.asarray(z) * -math.sqrt(0.5)), np.float64)


def _log_tail(z: float) -> float:
    """ln P(Z > z), z >= 0."""
    if z == math.inf:
        return -math.inf
    if z < FAR:
        return math.log(0.5 * math.erfc(z * math.sqrt(0.5)))
    # Mills' ratio, asymptotic series: the terms after these are below 1e-12 from 25 on
    r = 1.0 / (z * z)
    series = 1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r)))
    return -0.5 * z * z - math.log(z * math.sqrt(2 * math.pi)) + math.log(series)


def _log_mass(a: float, b: float) -> float:
    """ln P(a < Z < b), a < b."""
    if a > 0:
        top, rest = _log_tail(a), _log_tail(b)
    elif b < 0:
        top, rest = _log_tail(-b), _log_tail(-a)
    else:  # both tails are at most one half each
        return math.log1p(-math.exp(_log_tail(-a)) - math.exp(_log_tail(b)))
    return top + math.log1p(-math.exp(rest - top)) if rest > -math.inf else top


def log_mass(a: Floats, b: Floats) -> Floats:
    """ln P(a < Z < b) of a standard normal Z, elementwise."""
    flat = [_log_mass(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)]
    return np.array(flat, np.float64).reshape(a.shape)


def draw_truncated(a: Floats, b: Floats, rng: np.random.Generator) -> Floats:
    """Draw standard normal numbers that are each between two values, a < b (Robert, Stat. Comput. 5 (1995) 121)."""
    flip = b <= 0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    out, left = np.empty(len(a)), np.arange(len(a))
    start = np.maximum(a, 0.0)
    rate = 0.5 * (start + np.sqrt(start * start + 4))
    while len(left):  # at least four in ten proposals are accepted
        low, high, slope, u = a[left], b[left], rate[left], rng.random(len(left))
        with np.errstate(over="ignore", invalid="ignore"):
            tail = start[left] - np.log1p(u * np.expm1(-slope * (high - start[left]))) / slope
            even = low + u * (high - low)
        z = np.where(low > 0, tail, np.where(high - low < NARROW, even, rng.standard_normal(len(left))))
        wide = (low <= 0) & (high - low >= NARROW)
        log_share = np.where(low > 0, -0.5 * (z - slope) ** 2, np.where(wide, 0.0, -0.5 * z * z))
        accepted = (np.log1p(-rng.random(len(left))) <= log_share) & (z >= low) & (z <= high)
        out[left[accepted]] = z[accepted]
        left = left[~accepted]
    return np.where(flip, -out, out)


def truncated_moments(mean: float, sd: float, low: float, high: float) -> tuple[float, float]:
    """Mean and sd of a normal distribution given that it is between two values."""
    a, b = (low - mean) / sd, (high - mean) / sd
    mass = _log_mass(a, b)
    at_a = math.exp(-0.5 * a * a - 0.5 * math.log(2 * math.pi) - mass) if math.isfinite(a) else 0.0
    at_b = math.exp(-0.5 * b * b - 0.5 * math.log(2 * math.pi) - mass) if math.isfinite(b) else 0.0
    shift = at_a - at_b
    spread = 1.0 + (a * at_a if at_a else 0.0) - (b * at_b if at_b else 0.0) - shift * shift
    return mean + sd * shift, sd * math.sqrt(max(spread, 0.0))


def truncated_quantiles(
    weights: Floats, means: Floats, sds: Floats, low: float, high: float, probabilities: Floats
) -> Floats:
    """Quantiles of a mixture of normal distributions that are cut to an interval, by bisection."""
    a, masses = (low - means) / sds, log_mass((low - means) / sds, (high - means) / sds)

    def below(x: float) -> float:
        b = (x - means) / sds
        inside = b > a
        part = np.zeros(len(means))
        part[inside] = np.exp(log_mass(a[inside], b[inside]) - masses[inside])
        return float(weights @ part)

    kept = weights > 0
    first = max(low, float((means - REACH * sds)[kept].min()))
    last = min(high, float((means + REACH * sds)[kept].max()))
    if first >= last:  # the interval is far out in the tail of every part: its mass is at the near end
        width = REACH * float(sds.max())
        first, last = (low, low + width) if math.isfinite(low) else (high - width, high)
    result = []
    for p in probabilities.tolist():
        left, right = first, last
        for _ in range(STEPS):
            middle = 0.5 * (left + right)
            if middle in (left, right):
                break
            left, right = (middle, right) if below(middle) < p else (left, middle)
        result.append(0.5 * (left + right))
    return np.array(result)
