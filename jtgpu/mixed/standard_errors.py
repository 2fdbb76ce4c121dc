"""Standard errors of the parameters of mixed networks, from complete rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .regressions import LEAST_OF_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.mixed import MixedNetwork
    from .evidence import MixedCases

    Floats = NDArray[np.float64]


class GaussianErrors(NamedTuple):
    """Standard errors of a `jtgpu.Gaussian`, with its axes; infinite where the rows do not determine a parameter."""

    mean: Floats
    coefficients: dict[str, Floats]
    sd: Floats


def configurations(net: MixedNetwork, name: str, cases: MixedCases) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The configuration of the discrete parents of a variable in each row, (B,), and the numbers of states of these."""
    parents = net.discrete_parents(name)
    shape = tuple(len(net.states(p)) for p in parents)
    cell = np.zeros(len(cases.states), np.int64)
    for p, card in zip(parents, shape, strict=True):
        cell = cell * card + cases.states[:, net.discrete.variables.index(p)]
    return cell, shape


def errors_of_number(net: MixedNetwork, name: str, cases: MixedCases, weights: Floats) -> GaussianErrors:
    """Standard errors of least squares in each configuration, and sd / sqrt(2 n) of the standard deviation."""
    cell, shape = configurations(net, name, cases)
    density = net.gaussian(name)
    parents = [*density.coefficients]
    x = cases.values[:, [net.numbers.index(p) for p in parents]]
    spread = np.broadcast_to(density.sd, shape).reshape(-1)
    errors = np.full((len(spread), len(parents) + 2), np.inf)  # intercept, coefficients, sd
    for k in np.unique(cell).tolist():
        own = (cell == k) & (weights > 0)
        w = weights[own]
        n = float(w.sum())
        if own.sum() < len(parents) + 2:
            continue
        mean = np.add.reduce(x[own] * w[:, None]) / n
        centred = (x[own] - mean) * np.sqrt(w)[:, None]
        size = np.sqrt(np.add.reduce(centred**2))
        if not (size > 0).all():
            continue
        factor = np.linalg.qr(centred / size, mode="r")  # of products, the condition would be squared
        if len(parents) and np.linalg.cond(factor) * LEAST_OF_ROWS > 1.0:
            continue
        root = np.linalg.inv(factor) / size[:, None]
        inverse = root @ root.T
        errors[k, 0] = spread[k] * np.sqrt(1.0 / n + mean @ inverse @ mean)
        errors[k, 1:-1] = spread[k] * np.sqrt(np.diagonal(inverse))
        errors[k, -1] = spread[k] / np.sqrt(2.0 * n)
    by_name = {p: errors[:, 1 + i].reshape(shape) for i, p in enumerate(parents)}
    return GaussianErrors(errors[:, 0].reshape(shape), by_name, errors[:, -1].reshape(shape))


def errors_of_states(net: MixedNetwork, name: str, cases: MixedCases, weights: Floats) -> Floats:
    """Standard errors of the entries of a CPT: sqrt(p (1 - p) / n) with the n rows of each configuration."""
    cell, shape = configurations(net, name, cases)
    cpt = np.asarray(net.cpt(name))
    n = np.bincount(cell, weights, minlength=int(np.prod(shape, dtype=np.int64)))
    rows = np.where(n > 0, n, 1.0)[:, None]
    flat = cpt.reshape(len(n), -1)
    errors = np.where(n[:, None] > 0, np.sqrt(flat * (1.0 - flat) / rows), np.inf)
    return np.asarray(errors.reshape(cpt.shape))
