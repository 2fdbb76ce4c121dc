"""Standard errors of fits by EM: the observed information of all parameters, from differences of the score.

The score of the rows is the expected score of the complete rows (Louis, JRSS B 44 (1982) 226), which the sums of an
E-step give. Its differences between neighbouring parameters are the information of the observed cells alone. The sums
change with a parameter only in rows that miss a part of its family: the other rows are not passed again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..errors import ArgumentError
from ..model.gaussian import Gaussian
from ..util.calls import outside
from .fitting import lines_of, one_pass, pooled_prior
from .standard_errors import GaussianErrors
from .tree import MixedTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.mixed import MixedNetwork
    from .evidence import MixedCases
    from .fitting import Prior, Strength, Sums

    Floats = NDArray[np.float64]

STEP = 1e-4  # of a parameter in units of its complete-data scale; differences of complete rows take no pass
STEP_OF_SUMS = 1e-5  # of what incomplete rows add: one pass a parameter
SINGULAR = 1e-6  # relative: information below this is rounding
MOST_PARAMETERS = 2000  # a pass over rows each
MOST_DECREMENT = 0.25  # squared standard errors between the estimate and the peak
LEAST_ROWS = 1e-9  # of all rows, in a configuration that the rows say something about

T = TypeVar("T")
B = TypeVar("B", bound="Parameters")
EMPTY = np.zeros(0)


class Parameters(Protocol):
    """Parameters that one configuration of the parents of a variable has."""

    @property
    def at(self) -> slice:
        """Their places among all parameters."""


def covariance(
    theta: T, total: list[Floats], blocks: Sequence[B], score: Callable[[T, list[Floats]], Floats],
    moved: Callable[[T, B, int, float], T], sums: Callable[[T, B], list[Floats] | None], *, must_peak: bool,
) -> tuple[Floats, NDArray[np.bool_]]:  # fmt: skip
    """Covariance of the parameters, and which of them the rows do not determine."""
    # theta, total: the estimate, and the sums of all rows and the prior under it, one array a variable
    # score: the derivative of the objective, given sums
    # moved: with one parameter of a block changed
    # sums: of the rows that miss a part of the block's family; None: there are none
    n = blocks[-1].at.stop if blocks else 0
    if n > MOST_PARAMETERS:
        raise ArgumentError(
            f"standard errors of a fit with missing cells take a pass for each parameter, and this network has "
            f"{n:,}, more than {MOST_PARAMETERS:,}; fit with missing='drop'"
        )
    start, information = score(theta, total), np.empty((n, n))
    for block in blocks:
        before = sums(theta, block)
        for i in range(block.at.stop - block.at.start):
            ends = [score(moved(theta, block, i, step), total) for step in (STEP, -STEP)]
            row = information[block.at.start + i]
            row[:] = (ends[1] - ends[0]) / (2 * STEP)
            if before is not None:
                after = sums(moved(theta, block, i, STEP_OF_SUMS), block)
                assert after is not None
                here = [t + (a - b) for t, a, b in zip(total, after, before, strict=True)]
                row -= (score(theta, here) - start) / STEP_OF_SUMS
    return _inverse(0.5 * (information + information.T), start, must_peak=must_peak)


class Block(NamedTuple):
    """Parameters of one configuration of the discrete parents of a variable."""

    name: str
    k: int  # the configuration
    at: slice  # its places among all parameters
    free: NDArray[np.intp]  # states of positive probability; empty for a number
    centre: Floats = EMPTY  # mean and sd of the numeric parents of a number, scaled
    size: Floats = EMPTY


def errors_by_em(
    net: MixedNetwork, cases: MixedCases, weights: Floats, strength: Strength
) -> dict[str, GaussianErrors | Floats]:
    """Standard errors of all parameters: curvature of the objective, infinite where the rows determine nothing."""
    tree = MixedTree(net, "cpu", max_configurations=1 << 22, options={})
    prior = pooled_prior(tree, cases, weights, strength)
    data = one_pass(tree, cases, weights)
    blocks = _blocks(tree, net, data, prior, float(weights.sum()))

    def sums(network: MixedNetwork, block: Block) -> list[Floats] | None:
        rows = _incomplete(net, cases, block)
        if not len(rows):
            return None
        tree.reload(network)
        return _by_variable(net, one_pass(tree, cases.part(rows), weights[rows]))

    added = _by_variable(net, prior)
    variance, unknown = covariance(
        net, [s + p for s, p in zip(_by_variable(net, data), added, strict=True)], blocks,
        partial(_score, tree, blocks), partial(_moved, tree), sums, must_peak=True,
    )  # fmt: skip
    return _by_name(tree, net, blocks, variance, unknown)


def _by_variable(net: MixedNetwork, sums: Sums | Prior) -> list[Floats]:
    return [sums.moments[net.numbers.index(v)] if net.is_number(v) else sums.counts[v] for v in net]


def _incomplete(net: MixedNetwork, cases: MixedCases, block: Block) -> NDArray[np.intp]:
    """Rows that miss a part of a family, and may have its parents in a configuration."""
    parents, gaps = net.discrete_parents(block.name), np.zeros(len(cases.states), np.bool_)
    for v in (*net.parents(block.name), block.name):
        gaps |= np.isnan(cases.values[:, net.numbers.index(v)]) if net.is_number(v) else _seen(net, cases, v) < 0
    for p, s in zip(parents, np.unravel_index(block.k, [len(net.states(p)) for p in parents]), strict=True):
        gaps &= (_seen(net, cases, p) < 0) | (_seen(net, cases, p) == s)
    return np.flatnonzero(gaps)


def _seen(net: MixedNetwork, cases: MixedCases, v: str) -> NDArray[np.int32]:
    return cases.states[:, net.discrete.index(v)]


def _blocks(tree: MixedTree, net: MixedNetwork, sums: Sums, prior: Prior, total: float) -> list[Block]:
    blocks: list[Block] = []
    at = 0
    for v in net:
        if not net.is_number(v):
            counts = sums.counts[v].reshape(-1, len(net.states(v)))
            for k, row in enumerate(np.asarray(net.cpt(v)).reshape(counts.shape)):
                free = np.flatnonzero(row > 0)
                if len(free) > 1 and counts[k].sum() > LEAST_ROWS * total:
                    blocks.append(Block(v, k, slice(at, at + len(free) - 1), free))
                    at += len(free) - 1
            continue
        g = net.numbers.index(v)
        m = len(tree.answerer.numbers.parents[g])
        for k, own in enumerate(sums.moments[g]):
            s = own + prior.moments[g][k]
            if own[0, 0] <= LEAST_ROWS * total:
                continue
            centre = s[0, 1 : m + 1] / s[0, 0]
            variance = np.diagonal(s)[1 : m + 1] / s[0, 0] - centre**2
            if (variance > 1e-18 * (1 + centre**2)).all():
                blocks.append(Block(v, k, slice(at, at + m + 2), np.zeros(0, np.intp), centre, np.sqrt(variance)))
                at += m + 2
    return blocks


def _score(tree: MixedTree, blocks: list[Block], net: MixedNetwork, sums: list[Floats]) -> Floats:
    """Derivative of the objective by all parameters."""
    score = np.zeros(blocks[-1].at.stop if blocks else 0)
    for block in blocks:
        s = sums[net.index(block.name)]
        if len(block.free):
            table = s.reshape(-1, s.shape[-1])
            n, p = table[block.k, block.free], np.asarray(net.cpt(block.name)).reshape(table.shape)[block.k, block.free]
            score[block.at] = (n - n.sum() * p)[:-1]
            continue
        s = s[block.k]
        *line, sd = lines_of(tree.answerer.numbers, net.numbers.index(block.name), net.gaussian(block.name))[block.k]
        contrast = np.array([*(-x for x in line), 1.0])  # z @ contrast is the residual
        by_z = (s @ contrast)[:-1] / sd**2
        slopes = (by_z[1:] - block.centre * by_z[0]) / block.size
        score[block.at] = [by_z[0] * sd, *(slopes * sd), contrast @ s @ contrast / sd**2 - s[0, 0]]
    return score


def _moved(tree: MixedTree, net: MixedNetwork, block: Block, i: int, step: float) -> MixedNetwork:
    """The network with one parameter moved: a logit, a coefficient of standardised parents, or ln sd."""
    if len(block.free):
        table = np.array(net.cpt(block.name)).reshape(-1, len(net.states(block.name)))
        table[block.k, block.free[i]] *= np.exp(step)
        table[block.k] /= table[block.k].sum()
        return net.replace({block.name: table.reshape(net.cpt(block.name).shape)})
    numbers, g = tree.answerer.numbers, net.numbers.index(block.name)
    old, scale = net.gaussian(block.name), numbers.scale
    mean, sd = old.mean.copy(), old.sd.copy()
    slopes = {p: c.copy() for p, c in old.coefficients.items()}
    unit = sd.flat[block.k]
    if i == block.at.stop - block.at.start - 1:
        sd.flat[block.k] *= np.exp(step)
    elif i == 0:
        mean.flat[block.k] += step * unit
    else:
        p = numbers.parents[g][i - 1]
        change = step * unit / (block.size[i - 1] * scale[p])
        slopes[numbers.names[p]].flat[block.k] += change
        mean.flat[block.k] -= change * block.centre[i - 1] * scale[p]
    return net.replace({block.name: Gaussian(mean, slopes, sd)})


def _inverse(information: Floats, score: Floats, *, must_peak: bool = True) -> tuple[Floats, NDArray[np.bool_]]:
    """Covariance of the parameters, and which of them the rows do not determine.

    Away from a peak, an error, or with `must_peak=False` a warning: a fit is not lost because it has no errors.
    """
    diagonal = np.diagonal(information)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    known = values > SINGULAR
    along = vectors[:, known] / size[:, None]
    variance = (along / values[known]) @ along.T
    decrement = float(score @ variance @ score)
    if (values < -1e3 * SINGULAR).any() or decrement > MOST_DECREMENT:
        reason = (
            f"EM stopped {np.sqrt(max(decrement, 0.0)):.2g} standard errors from a peak of the objective, where "
            "parameters have none; fit with a smaller tolerance= and more iterations="
            if decrement > MOST_DECREMENT
            else "EM stopped where the objective has no peak, so parameters have no standard errors; fit from another "
            "start="
        )
        if must_peak:
            raise ArgumentError(reason)
        warnings.warn(f"standard errors are rough: {reason}", stacklevel=outside())
    return variance, (vectors[:, ~known] ** 2).sum(axis=1) > SINGULAR


def _by_name(
    tree: MixedTree, net: MixedNetwork, blocks: list[Block], variance: Floats, unknown: NDArray[np.bool_]
) -> dict[str, GaussianErrors | Floats]:
    result: dict[str, Any] = {}
    for v in net:
        if net.is_number(v):
            shape = net.gaussian(v).mean.shape
            slopes = {p: np.full(shape, np.inf) for p in net.gaussian(v).coefficients}
            result[v] = GaussianErrors(np.full(shape, np.inf), slopes, np.full(shape, np.inf))
        else:
            cpt = np.asarray(net.cpt(v))
            result[v] = np.where((cpt > 0) & (cpt < 1), np.inf, 0.0)
    for block in blocks:
        errors, own, gone = result[block.name], variance[block.at, block.at], unknown[block.at]
        if len(block.free):
            p = np.asarray(net.cpt(block.name)).reshape(-1, errors.shape[-1])[block.k, block.free]
            slope = (np.diag(p) - np.outer(p, p))[:, :-1]
            rows = errors.reshape(-1, errors.shape[-1])
            rows[block.k, block.free] = np.inf if gone.any() else np.sqrt(np.einsum("ij,jk,ik->i", slope, own, slope))
            continue
        numbers, g = tree.answerer.numbers, net.numbers.index(block.name)
        sd = net.gaussian(block.name).sd.ravel()[block.k]
        single = np.where(gone, np.inf, np.sqrt(np.diagonal(own))) * sd
        combined = np.array([1.0, *(-block.centre / block.size), 0.0])
        used = (combined != 0) & gone
        errors.mean.flat[block.k] = np.inf if used.any() else np.sqrt(combined @ own @ combined) * sd
        errors.sd.flat[block.k] = single[-1]
        for p, error, size in zip(numbers.parents[g], single[1:-1], block.size, strict=True):
            errors.coefficients[numbers.names[p]].flat[block.k] = error / (size * numbers.scale[p])
    return result
