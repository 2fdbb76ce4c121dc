"""Regressions of numbers on their parents: from sums of products, or of rows by QR where sums have lost the digits.

A sum of products has 16 digits of squares: where a residual is 1e-5 of the spread, its variance has 6.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import DataError
from ..util.calls import outside
from .components import Densities, build, configurations
from .evidence import MixedCases

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.arrays import Floats
    from .answers import Alike, Answerer
    from .components import Component
    from .tree import MixedTree

MOST_CONDITION = 1e12  # of the covariance of the parents, scaled to unit variances
LEAST_RESIDUAL = 1e-11  # variance of a residual, over the number's: below it, normal equations give noise
LEAST_OF_ROWS = 1e-8  # standard deviation of a residual, over the number's, by QR
EPSILON, ROUNDING = 2.0**-52, 16.0  # of a double; of a few operations with them
FROM_ROWS = 1e-9  # relative error of parameters from which rows are solved by QR
WARNED = 1e-6  # from which a result of sums has a warning


class Root(NamedTuple):
    """Rows of a family as a triangular factor."""

    factor: Floats  # (m + 2, m + 2) of the rows (1, parents, number) less `centre`, times roots of their weights
    centre: Floats  # (m + 1,) scaled
    noise: Floats  # (m + 1,) what the rounding of cells explains, scaled


class ScaledRegression(NamedTuple):
    """A regression, scaled."""

    line: Floats  # intercept and slopes
    sd: float
    error: float = 0.0  # relative, that rounding of sums may have made


def regression(name: str, parents: Sequence[str], sums: Floats, root: Callable[[], Root] | None) -> ScaledRegression:
    """Intercept and slopes, and the sd of the residual, from sums of z z'; from rows where these have few digits."""
    try:
        line = _of_sums(name, parents, sums)
    except DataError:
        if root is None:
            raise
    else:
        if root is None or line.error <= FROM_ROWS:
            return line
    return _of_rows(name, parents, root())


def _of_sums(name: str, parents: Sequence[str], s: Floats) -> ScaledRegression:
    n, m = s[0, 0], len(parents)
    mean = s[0, 1:] / n
    cov = s[1:, 1:] / n - np.outer(mean, mean)
    size = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    condition = 1.0
    if m:
        _reject_constant(name, [p for p, x in zip(parents, size, strict=False) if x <= 1e-9 * (1 + abs(float(x)))])
        correlation = cov[:m, :m] / np.outer(size[:m], size[:m])
        condition = float(np.linalg.cond(correlation))
        _reject_collinear(name, parents, condition, condition < MOST_CONDITION)
        slope = np.linalg.solve(correlation, cov[:m, m] / size[:m]) / size[:m]
    else:
        slope = np.zeros(0)
    variance = float(cov[m, m] - slope @ cov[:m, m])
    # sums do not distinguish this from zero: each covariance is a difference of numbers that may be much larger
    squares = np.diagonal(s)[1:] / n
    cancelled = float(np.max(squares / np.maximum(np.diagonal(cov), 1e-300 + EPSILON * squares)))
    least = max(LEAST_RESIDUAL, ROUNDING * EPSILON * cancelled * condition)
    has_width = variance > max(least * float(cov[m, m]), EPSILON * ROUNDING * float(squares[m]))
    _reject_function(name, has_width, " (to the precision of sums of products)")
    terms = size[m] + np.abs(slope) @ size[:m]  # what the residual is a difference of
    error = 4.0 * EPSILON * cancelled * max(condition if m else 0.0, float(terms**2 / variance))
    return ScaledRegression(np.concatenate([[mean[m] - slope @ mean[:m]], slope]), float(np.sqrt(variance)), error)


def _of_rows(name: str, parents: Sequence[str], root: Root) -> ScaledRegression:
    factor, centre, noise = root
    m = len(parents)
    own = factor[1:, 1:] / abs(factor[0, 0])
    size = np.sqrt((own**2).sum(axis=0))
    slope = np.zeros(0)
    if m:
        _reject_constant(name, [p for p, x, e in zip(parents, size, noise, strict=False) if x <= e])
        unit = own[:m, :m] / size[:m]
        condition = float(np.linalg.cond(unit))
        is_known = condition * max(LEAST_OF_ROWS, float((noise[:m] / size[:m]).max())) < 1.0
        _reject_collinear(name, parents, condition**2, is_known)
        slope = np.linalg.solve(unit, own[:m, m]) / size[:m]
    sd = abs(float(own[m, m]))
    _reject_function(name, sd > max(LEAST_OF_ROWS * float(size[m]), float(noise[m] + np.abs(slope) @ noise[:m])))
    mean = centre + factor[0, 1:] / factor[0, 0]
    return ScaledRegression(np.concatenate([[mean[m] - slope @ mean[:m]], slope]), sd)


def _reject_constant(name: str, constant: Sequence[str]) -> None:
    if constant:
        raise DataError(
            f"the numeric parent {constant[0]!r} of {name!r} is constant in some configuration of states, so its "
            "coefficient is not determined; give a prior > 0, or remove the arc"
        )


def _reject_collinear(name: str, parents: Sequence[str], condition: float, is_known: bool) -> None:
    if not is_known:
        raise DataError(
            f"the numeric parents of {name!r}, {', '.join(map(repr, parents))}, are collinear (condition number "
            f"{condition:.2g}); remove one of them"
        )


def _reject_function(name: str, has_width: bool, how: str = "") -> None:
    if not has_width:
        raise DataError(
            f"the number {name!r} is constant, or a function of its parents{how}, in some configuration of states: its "
            "density has no width; remove the column or the arc, or give a prior > 0 if there are fewer rows than "
            "coefficients"
        )


class FamilyRows:
    """Complete rows, and those of the prior: the regression of all rows with the weight of a few."""

    def __init__(self, numbers: Densities, cases: MixedCases, weights: Floats, rows: float, shift: Floats):
        # rows: of the prior; shift: what has been subtracted from the cells, (G,)
        self._numbers, self._cases, self._weights, self._rows, self._shift = numbers, cases, weights, rows, shift
        self._pooled: dict[int, tuple[Floats, Floats]] = {}
        # of a number: rows of each configuration of its discrete parents, and the noise of its family
        self._own: dict[int, tuple[list[NDArray[np.intp]], Floats]] = {}

    def root(self, g: int, k: int) -> Root:
        """Of a number in a configuration of its discrete parents."""
        factor, shared = self.pooled(g)
        if g not in self._own:
            scope, cell = self._numbers.scope[g], np.zeros(len(self._weights), np.intp)
            cards = [self._numbers.cards[d] for d in scope]
            for d, card in zip(scope, cards, strict=True):
                cell = cell * card + self._cases.states[:, d]
            ends = np.cumsum(np.bincount(cell, minlength=prod(cards)))
            family = [*self._numbers.parents[g], g]
            largest = np.abs(self._cases.values[:, family]).max(axis=0) + np.abs(self._shift[family])
            noise = 4.0 * EPSILON * largest / self._numbers.scale[family]
            self._own[g] = np.split(np.argsort(cell, kind="stable"), ends[:-1]), noise
        groups, noise = self._own[g]
        own = groups[k]
        centre, added = self._centred(g, own) if self._weights[own].any() else (shared, factor[:0])
        moved = factor.copy()
        moved[:, 1:] += np.outer(factor[:, 0], shared - centre)
        return Root(_triangle(np.concatenate([moved, added])), centre, noise)

    def pooled(self, g: int) -> tuple[Floats, Floats]:
        """The factor of the prior's rows, and their centre."""
        if g not in self._pooled:
            centre, rows = self._centred(g, np.arange(len(self._weights)))
            self._pooled[g] = _triangle(rows * np.sqrt(self._rows / self._weights.sum())), centre
        return self._pooled[g]

    def squares(self, g: int, contrast: Floats) -> Floats:
        """Sums of squares of z @ contrast, z = (1, numeric parents, number), over the prior's rows, (K,)."""
        factor, centre = self.pooled(g)
        own = contrast.copy()
        own[:, 0] += contrast[:, 1:] @ centre
        return np.asarray(((own @ factor.T) ** 2).sum(axis=1))

    def _centred(self, g: int, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Means of a family in some rows, and these rows less the means, times roots of their weights."""
        family = [*self._numbers.parents[g], g]
        values, w = self._cases.values[rows[:, None], family], self._weights[rows]
        mean = np.add.reduce(values * w[:, None]) / w.sum()
        z = np.column_stack([np.ones(len(rows)), (values - mean) / self._numbers.scale[family]])
        return mean / self._numbers.scale[family], z * np.sqrt(w)[:, None]


def _triangle(rows: Floats) -> Floats:
    """R of a QR factorisation, square."""
    factor = np.linalg.qr(rows, mode="r")  # (min(n, m + 2), m + 2)
    return np.pad(factor, ((0, rows.shape[1] - len(factor)), (0, 0)))


def warn_of_errors(errors: Mapping[str, float]) -> None:
    """Warn of numbers whose parameters have lost digits in sums of products."""
    for name, error in errors.items():
        if error > WARNED:
            digits = max(int(-np.log10(error)), 0)
            warnings.warn(
                f"the coefficients and sd of {name!r} have about {digits} correct digits: its parents are nearly "
                "collinear or determine it, and sums of products have lost the other digits; complete rows in host "
                "memory (jtgpu.learn.fit with missing='drop') are solved with all digits", stacklevel=outside(),
            )  # fmt: skip


# Expected sums of the families of numbers over a table of cases: the E-step of EM.

CELLS = 1 << 20  # of z of some cases
# of each number: (K, m + 2, m + 2) weighted sums of z z', z = (1, numeric parents, number), one a configuration of its
# discrete parents in the order of the parents
Moments = list["Floats"]


def empty_moments(numbers: Densities) -> Moments:
    """Sums of no case."""
    sizes = [prod(numbers.cards[d] for d in s) for s in numbers.scope]
    return [np.zeros((k, len(p) + 2, len(p) + 2)) for k, p in zip(sizes, numbers.parents, strict=True)]


def add_moments(
    answerer: Answerer,
    cases: MixedCases,
    alike: Sequence[Alike],
    weights: Floats,  # (B,)
    joints: Mapping[tuple[int, ...], Floats],  # scope -> (B, K) posterior
    moments: Moments,
) -> None:
    """Add the expected sums of cases; families of numbers that no evidence depends on are left out."""
    # A number without observed descendants integrates to one: the likelihood does not depend on its density.
    numbers = answerer.numbers
    scaled = cases.values / numbers.scale
    complete: dict[int, Floats] = {}  # number -> (B, K) weights of cases that observe its family
    shares: dict[tuple[int, tuple[int, ...]], Floats] = {}
    for members, pattern, rows in alike:
        scope = pattern.scopes[members]
        partly = []
        for v in members:
            if not pattern.observed.issuperset((*numbers.parents[v], v)):
                partly.append(v)
                continue
            if (v, scope) not in shares:
                shares[v, scope] = _share(numbers, v, scope, weights, joints)
            complete.setdefault(v, np.zeros((len(scaled), len(moments[v]))))[rows] = shares[v, scope][rows]
        if not partly:
            continue
        own = scaled[rows]
        joint = weights[rows, None] * (joints[scope][rows] if scope else 1.0)
        for part, allowed, component in answerer.pieces(members, pattern.observed, cases.states[rows]):
            every = (*component.unobserved, *component.observed, *component.given)
            sums, place = _sums(component, own[part], joint[part][:, allowed]), {v: i for i, v in enumerate(every, 1)}
            for v in partly:
                configuration = configurations(numbers, scope, numbers.scope[v])[allowed]
                family = np.array([0, *map(place.__getitem__, numbers.parents[v]), place[v]])
                np.add.at(moments[v], configuration, sums[:, family[:, None], family])
    for v, by_state in complete.items():
        z = np.column_stack([np.ones(len(scaled)), scaled[:, [*numbers.parents[v], v]]])
        for c, sums in enumerate(moments[v]):
            used = np.flatnonzero(by_state[:, c])
            sums += (z[used] * by_state[used, c, None]).T @ z[used]


def _share(
    numbers: Densities, v: int, scope: tuple[int, ...], weights: Floats, joints: Mapping[tuple[int, ...], Floats]
) -> Floats:
    """(B, K) weighted probabilities of the configurations of a number's discrete parents, from those of a scope."""
    own = numbers.scope[v]
    if not own:
        return weights[:, None]
    table = joints[scope].reshape(len(weights), *(numbers.cards[d] for d in scope))
    table = table.sum(axis=tuple(i for i, d in enumerate(scope, 1) if d not in own))
    left = sorted(own)
    table = table.transpose(0, *(left.index(d) + 1 for d in own))
    return np.asarray(weights[:, None] * table.reshape(len(weights), -1))


def _sums(component: Component, values: Floats, weight: Floats) -> Floats:
    """(K, n, n) expected sums of z z', z = (1, unobserved numbers, observed ones, parents in `given`)."""
    seen, u = [*component.observed, *component.given], len(component.unobserved) + 1
    n, k = u + len(seen), weight.shape[1]
    sums = np.zeros((k, n, n))
    step = max(CELLS // (k * n), 1)
    for at in range(0, len(values), step):
        own = values[at : at + step]
        z = np.ones((k, len(own), n))
        z[:, :, 1:u], z[:, :, u:] = component.means(own).transpose(1, 0, 2), own[:, seen]
        sums += (z * weight[at : at + step].T[:, :, None]).transpose(0, 2, 1) @ z
    sums[:, 1:u, 1:u] += weight.sum(axis=0)[:, None, None] * component.cov
    return sums


class JointMixture(NamedTuple):
    """A mixture of joint normal distributions of some numbers, in scaled units."""

    weights: Floats  # (K,)
    cell: NDArray[np.intp]  # (K,) configuration of the variables with states that were given
    means: Floats  # (K, m)
    cov: Floats  # (K, m, m)

    def sums(self, n_cells: int) -> Floats:
        """E[z z'] times the probability of each configuration, z = (1, numbers), (n_cells, m + 1, m + 1)."""
        z = np.concatenate([np.ones((len(self.means), 1)), self.means], axis=1)
        second = z[:, :, None] * z[:, None]
        second[:, 1:, 1:] += self.cov
        result = np.zeros((n_cells, *second.shape[1:]))
        np.add.at(result, self.cell, second * self.weights[:, None, None])
        return result


def joint_parts(tree: MixedTree, asked: Sequence[int], given: Sequence[int]) -> JointMixture:
    """The joint distribution of some numbers without evidence, by the states of some variables."""
    numbers, members, stack = tree.answerer.numbers, set(asked), [*asked]
    while stack:
        new = set(numbers.parents[stack.pop()]) - members
        members |= new
        stack += new
    inside = [v for v in numbers.order if v in members]
    component = build(numbers, inside, frozenset(), {}, tree.answerer.max_configurations)
    scope = tuple(sorted({*component.scope, *given}))
    weights = np.ones(1)
    if scope:
        engine, n = tree.engine((scope,)), prod(numbers.cards[d] for d in scope)
        none = MixedCases(np.full((1, len(numbers.cards)), -1, np.int32), np.full((1, len(numbers.names)), np.nan))
        weights = engine.run(none, [np.zeros((1, n))], []).joints[0][0]
    part = configurations(numbers, scope, component.scope)
    places = np.array([component.unobserved.index(v) for v in asked], np.intp)
    return JointMixture(
        weights, configurations(numbers, scope, tuple(given)), component.mean_u[part][:, places],
        component.cov[part][:, places[:, None], places],
    )  # fmt: skip
