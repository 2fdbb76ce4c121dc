"""Distances of floating-point numbers in units in the last place (ULP)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["ulp_distance"]

FAR = np.iinfo(np.int64).max  # of NaN from everything


def ulp_distance(a: ArrayLike, b: ArrayLike) -> NDArray[np.int64]:
    """How many representable numbers lie between two numbers, elementwise, plus one if they differ.

    Numbers of opposite signs are counted through zero, and 0.0 and -0.0 are equal. NaN is as far from everything, NaN
    included, as can be.

    Parameters
    ----------
    a, b : array_like of float64, or both of float32

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> ulp_distance(1.0, [1.0, np.nextafter(1.0, 2.0)]).tolist()
    [0, 1]
    """
    x, y = np.asarray(a), np.asarray(b)
    single = np.float32 in (x.dtype, y.dtype)
    first, second = (_on_a_line(z, np.float32 if single else np.float64) for z in (x, y))
    # differences of float64 of opposite signs may exceed 2^63 - 1
    distance = np.where(
        (first < 0) == (second < 0),
        np.abs(first - second),
        np.minimum(np.abs(first).astype(np.uint64) + np.abs(second).astype(np.uint64), np.uint64(FAR)).astype(np.int64),
    )
    return np.asarray(np.where(np.isnan(x) | np.isnan(y), FAR, distance), np.int64)


def _on_a_line(x: NDArray[Any], dtype: Any) -> NDArray[np.int64]:
    """Integers in the order of the numbers, neighbours for neighbours, 0 for 0."""
    bits = np.ascontiguousarray(x, dtype).view(np.int32 if dtype is np.float32 else np.int64).astype(np.int64)
    least = np.int64(np.iinfo(np.int32 if dtype is np.float32 else np.int64).min)
    found: NDArray[np.int64] = np.where(bits < 0, least - bits, bits).reshape(x.shape)
    return found
