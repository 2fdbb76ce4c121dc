"""Rows of cases: groups that observe the same numbers, their values and residuals, and weights from logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.arrays import Floats
    from .components import Component

LN2 = math.log(2.0)
SMALLEST = -700.0  # ln of products of weights, far from where doubles lose digits


class ScaledRows(NamedTuple):
    """Values of the numbers of some cases, and residuals of components, which densities and means share."""

    values: Floats  # (B, G) scaled
    residuals: dict[int, tuple[Component, Floats]]  # by the identity of a component

    def residual(self, component: Component) -> Floats:
        """See `Component.residual`; kept."""
        self.residuals[id(component)] = component, component.residual(self.values)
        return self.residuals[id(component)][1]

    def known(self, component: Component, whole: bool) -> Floats | None:
        """The residual of all cases, if it has been computed and all are meant."""
        return self.residuals[id(component)][1] if whole and id(component) in self.residuals else None


def equal_rows(bits: NDArray[np.uint8]) -> tuple[NDArray[np.intp], list[int]]:
    """Rows in an order where equal ones are neighbours, and the end of each group."""
    key: NDArray[Any] = bits[:, 0].astype(np.uint16)
    for column in bits.T[1:]:  # numbers of the groups so far stay small: 16 bits are sorted by radix
        key = np.unique(key.astype(np.int64) * 256 + column, return_inverse=True)[1].ravel()
        key = key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key
    order = np.argsort(key, kind="stable")
    ends = np.flatnonzero(np.diff(key[order])) + 1
    return order, [*ends.tolist(), len(order)] if len(order) else []


def _row_maximum(values: Floats) -> Floats:
    """Largest number of each row; for few columns and many rows faster than NumPy's reduction of rows."""
    if values.shape[1] > 32 or len(values) < 32:
        return np.asarray(values.max(axis=1))
    top = values[:, 0].copy()
    for column in values.T[1:]:
        np.maximum(top, column, out=top)
    return top


def scaled_weights(logs: Sequence[Floats]) -> tuple[list[Floats], list[Floats]]:
    """Weights whose largest is 1 in each row, and the logarithms that were taken out, (B,) of each table."""
    weights: list[Floats] = []
    tops: list[Floats] = []
    with np.errstate(under="ignore"):
        for values in logs:
            top = _row_maximum(values)
            top[~np.isfinite(top)] = 0.0
            weights.append(np.exp(values - top[:, None]))
            tops.append(top)
    return weights, tops


def is_small(logs: Sequence[Floats], weights: Sequence[Floats], likelihood: Iterable[Floats] = ()) -> NDArray[np.bool_]:
    """(B,) whether a product of scaled weights and likelihoods above 0 may be too small for a number."""
    others, least = [*likelihood], math.exp(SMALLEST / max(1, len(weights)))
    if not others and all(
        float(w.min(initial=1.0)) > least or float(np.where(x > -np.inf, w, 1.0).min(initial=1.0)) > least
        for x, w in zip(logs, weights, strict=True)
    ):
        return np.zeros(len(weights[0]) if weights else 1, np.bool_)
    with np.errstate(divide="ignore"):
        tables = [*logs, *(np.log(w) for w in others)]
    total = np.zeros(len(tables[0]))
    for values in tables:
        finite = np.isfinite(values)
        span = values.min(axis=1, where=finite, initial=np.inf) - values.max(axis=1, where=finite, initial=-np.inf)
        total += np.where(finite.any(axis=1), span, 0.0)
    return total < SMALLEST


def extended(logs: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Numbers with these logarithms as ``mantissa * 2**exponent``."""
    finite = np.isfinite(logs)
    powers = np.where(finite, np.floor(np.where(finite, logs, 0.0) / LN2), 0.0)
    mantissa = np.exp(logs - powers * LN2)
    return mantissa, np.maximum(powers, -(2.0**60)).astype(np.int64)  # callers refuse such exponents
