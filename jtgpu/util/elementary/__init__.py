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
from .series import LN2_HIGH, LN2_LOW, LOG2E, SQRT_HALF, exp_of_rest, log_of_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

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
    found = np.empty(np.shape(x))
    function(given.reshape(-1), found.reshape(-1))
    return found
