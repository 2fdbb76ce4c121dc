"""The Gaussian part of a mixed network: components of numbers that share an unobserved one.

Given the states of the discrete variables, the numbers are jointly normal. Observed numbers cut the arcs to their
children, so the densities fall into components; a component depends on the discrete parents of its numbers alone, its
*scope*, and gives the junction tree a likelihood of these (Lauritzen and Jensen, Stat. Comput. 11 (2001) 191).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import NetworkError, TableTooLarge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.mixed import MixedNetwork
    from ..util.arrays import Floats

LEAST_SD = 1e-9  # of a density, in units of the marginal sd: below it, conditional covariances have no digits left
HALF_LOG_2PI = 0.9189385332046727


class Plain(NamedTuple):
    """Arrays of the numbers that have no discrete parents; zero elsewhere."""

    mean: Floats  # (G,)
    variance: Floats  # (G,)
    arcs: Floats  # (G, G), coefficient of the column in the row


class Densities(NamedTuple):
    """Densities of all numbers, in units of `scale`."""

    names: tuple[str, ...]
    scope: tuple[tuple[int, ...], ...]  # discrete parents of each number, by number in the discrete network
    parents: tuple[tuple[int, ...], ...]  # numeric parents
    mean: tuple[Floats, ...]  # of each number; axes: its scope
    coefficients: tuple[tuple[Floats, ...], ...]  # one for each parent
    variance: tuple[Floats, ...]
    scale: Floats  # (G,) powers of two near the marginal sd, so that squares neither overflow nor underflow
    order: tuple[int, ...]  # parents before children
    variables: tuple[str, ...]  # names of the discrete variables
    cards: tuple[int, ...]  # of these
    plain: Plain


def numbers_of(net: MixedNetwork, units: Floats | None = None) -> Densities:
    """The densities of a network by number, in given units or those that suit its parameters."""
    names = net.numbers
    index = {v: i for i, v in enumerate(names)}
    parents = tuple(tuple(index[p] for p in net.numeric_parents(v)) for v in names)
    scope = tuple(tuple(net.discrete.index(p) for p in net.discrete_parents(v)) for v in names)
    order = tuple(index[v] for v in net.topological_order() if v in index)
    scale = np.ones(len(names))
    for v in order:
        g = net.gaussian(names[v])
        slopes = zip(parents[v], g.coefficients.values(), strict=True)
        spread = sum(float(np.abs(c).max()) * scale[p] for p, c in slopes)
        marginal = max(float(g.sd.max()), spread)
        scale[v] = 2.0 ** np.frexp(marginal)[1]
        if float(g.sd.min()) < LEAST_SD * marginal:
            raise NetworkError(
                f"the sd of {names[v]!r}, {float(g.sd.min()):.3g}, is below {LEAST_SD:g} of its marginal sd, "
                f"{marginal:.3g}: it is a function of its parents; give its children their coefficients directly"
            )
    scale = scale if units is None else units
    mean, coefficients, variance = [], [], []
    for v, name in enumerate(names):
        g = net.gaussian(name)
        mean.append(g.mean / scale[v])
        variance.append((g.sd / scale[v]) ** 2)
        coefficients.append(tuple(
            c * scale[p] / scale[v] for p, c in zip(parents[v], g.coefficients.values(), strict=True)
        ))  # fmt: skip
    n = len(names)
    plain = Plain(np.zeros(n), np.zeros(n), np.zeros((n, n)))
    for v in range(n):
        if not scope[v]:
            plain.mean[v], plain.variance[v] = mean[v], variance[v]
            plain.arcs[v, list(parents[v])] = coefficients[v]
    return Densities(
        names, scope, parents, tuple(mean), tuple(coefficients), tuple(variance), scale, order,
        net.discrete.variables, tuple(net.discrete.cardinality.tolist()), plain,
    )  # fmt: skip


def with_lines(numbers: Densities, g: int, lines: Floats) -> Densities:
    """The densities with another one of a number: (K, m + 2) intercept, slopes and sd, scaled."""

    def others(given: tuple[object, ...], own: Any) -> tuple[Any, ...]:
        return (*given[:g], own, *given[g + 1 :])

    mean, *slopes, sd = (x.reshape([numbers.cards[d] for d in numbers.scope[g]]) for x in lines.T)
    plain = Plain(*(x.copy() for x in numbers.plain))
    if not numbers.scope[g]:
        plain.mean[g], plain.variance[g], plain.arcs[g, list(numbers.parents[g])] = mean, sd**2, slopes
    return numbers._replace(
        mean=others(numbers.mean, mean), variance=others(numbers.variance, sd**2), plain=plain,
        coefficients=others(numbers.coefficients, tuple(slopes)),
    )  # fmt: skip


@dataclass(frozen=True)
class Component:
    """Numbers that share unobserved ones; K is the number of configurations of its scope."""

    scope: tuple[int, ...]  # discrete variables, ascending
    unobserved: tuple[int, ...]  # U numbers, parents before children
    observed: tuple[int, ...]  # Y numbers whose density belongs to the component
    given: tuple[int, ...]  # P observed numbers that are parents
    mean_u: Floats  # (K, U), mean of the unobserved numbers where the parents in `given` are 0
    mean_y: Floats  # (K, Y)
    slope_u: Floats  # (K, U, P), coefficients of `given`
    slope_y: Floats  # (K, Y, P)
    whiten: Floats  # (K, Y, Y), inverse Cholesky factor of the covariance of the observed numbers
    log_norm: Floats  # (K,), ln of the density's constant, in the units of the numbers
    gain: Floats  # (K, U, Y), regression of the unobserved on the observed numbers
    cov: Floats  # (K, U, U), covariance of the unobserved given the observed numbers

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All arrays whose first axis is a configuration."""
        return (
            self.mean_u, self.mean_y, self.slope_u, self.slope_y, self.whiten, self.log_norm, self.gain, self.cov
        )  # fmt: skip

    def restricted(self, configurations: NDArray[np.intp]) -> Component:
        """The component with some of its configurations."""
        kept = (a[configurations] for a in self.arrays)
        return Component(self.scope, self.unobserved, self.observed, self.given, *kept)

    @cached_property
    def sds(self) -> Floats:
        """(K, U) standard deviations of the unobserved numbers given the observed ones."""
        return np.sqrt(np.diagonal(self.cov, axis1=1, axis2=2))

    @cached_property
    def _columns(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.array(self.observed, np.intp), np.array(self.given, np.intp)

    def residual(self, values: Floats) -> Floats:
        """(K, B, Y) observed numbers of B cases less their means, given a configuration and the parents in `given`."""
        observed, given = self._columns
        residual = values.take(observed, 1)[None] - self.mean_y[:, None]
        if self.given:
            residual -= values.take(given, 1)[None] @ self.slope_y.transpose(0, 2, 1)
        return residual

    def log_density(self, values: Floats, residual: Floats | None = None) -> Floats:
        """(B, K) ln of the density of the observed numbers of B cases, given a configuration."""
        z = (self.residual(values) if residual is None else residual) @ self.whiten.transpose(0, 2, 1)
        return np.asarray((self.log_norm[:, None] - 0.5 * np.einsum("kby,kby->kb", z, z)).T)

    def means(self, values: Floats, places: list[int] | None = None, residual: Floats | None = None) -> Floats:
        """(B, K, U) means of the unobserved numbers, or of some of them, of B cases, given a configuration."""
        mean, slope, gain = self.mean_u, self.slope_u, self.gain
        if places is not None and places != [*range(len(self.unobserved))]:
            mean, slope, gain = mean[:, places], slope[:, places], gain[:, places]
        if self.observed:
            result = (self.residual(values) if residual is None else residual) @ gain.transpose(0, 2, 1)
            result += mean[:, None]
        else:
            result = np.repeat(mean[:, None], len(values), axis=1)  # (K, B, U)
        if self.given:
            result += values.take(self._columns[1], 1)[None] @ slope.transpose(0, 2, 1)
        return result.transpose(1, 0, 2)


def component_members(
    numbers: Densities, observed: frozenset[int], cut: frozenset[int], targets: Iterable[int], most: int = 0
) -> list[list[int]]:
    """Densities that `observed` and `targets` depend on, in groups that share unobserved numbers."""
    # cut: observed numbers that were set by an intervention: they have no density
    # most: groups without discrete parents are one group if they have so many numbers at most
    relevant = {*(observed - cut), *(t for t in targets if t not in observed)}
    stack = [*relevant] if len(relevant | observed) < len(numbers.names) else []
    while stack:
        new = {p for p in numbers.parents[stack.pop()] if p not in observed} - relevant
        relevant |= new
        stack += new
    if len(relevant) <= most and not any(map(numbers.scope.__getitem__, relevant)):
        return [[v for v in numbers.order if v in relevant]] if relevant else []
    root = {v: v for v in relevant}

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    for v in relevant:
        for p in numbers.parents[v]:
            if p not in observed:
                root[find(p)] = find(v)
    groups: dict[int, list[int]] = {}
    for v in numbers.order:
        if v in relevant:
            groups.setdefault(find(v), []).append(v)
    has_scope = {r: any(numbers.scope[v] for v in group) for r, group in groups.items()}
    plain = {v for r, group in groups.items() if not has_scope[r] for v in group}
    if not 0 < len(plain) <= most:
        return [*groups.values()]
    return [[v for v in numbers.order if v in plain], *(group for r, group in groups.items() if has_scope[r])]


def scope_of(numbers: Densities, members: Iterable[int]) -> tuple[int, ...]:
    """The discrete parents of some numbers, ascending."""
    return tuple(sorted({d for v in members for d in numbers.scope[v]}))


def configurations(
    numbers: Densities, scope: tuple[int, ...], own: tuple[int, ...], fixed: Mapping[int, int] = MappingProxyType({})
) -> NDArray[np.intp]:
    """Configuration of the variables `own`, in their order, of each configuration of `scope`."""
    # fixed: discrete variable -> state, of which a configuration of `scope` has no other one
    steps = {d: prod(numbers.cards[u] for u in own[i + 1 :]) for i, d in enumerate(own)}
    return _configurations(tuple((numbers.cards[d], steps.get(d, 0), fixed.get(d)) for d in scope))


@lru_cache(maxsize=4096)
def _configurations(scope: tuple[tuple[int, int, int | None], ...]) -> NDArray[np.intp]:
    # scope: of each variable its states, what each one adds, and the state that it has in all configurations
    result = np.zeros(1, np.intp)
    for card, step, state in scope:
        states = np.arange(card) if state is None else np.array([state])
        result = (result[:, None] + step * states).ravel()
    result.flags.writeable = False
    return result


def build(
    numbers: Densities, members: list[int], observed: frozenset[int], fixed: Mapping[int, int], max_configurations: int
) -> Component:
    """The component of some densities."""
    # members: parents before children
    # fixed: discrete variable -> state: axes of extent 1 in the result
    scope = scope_of(numbers, members)
    cards = tuple(1 if d in fixed else numbers.cards[d] for d in scope)
    k, n = prod(cards), len(members)
    if k > max_configurations:
        _refuse(numbers, members, scope, k, max_configurations)
    given = sorted(observed.intersection(chain.from_iterable(map(numbers.parents.__getitem__, members))))
    at, at_given = {v: i for i, v in enumerate(members)}, {v: i for i, v in enumerate(given)}

    hidden, seen = [v for v in members if v not in observed], [v for v in members if v in observed]
    u, y = np.array([at[v] for v in hidden], np.intp), np.array([at[v] for v in seen], np.intp)
    mean, variance = np.zeros((k, n)), np.zeros((k, n))
    slope, arcs = np.zeros((k, n, len(given))), np.zeros((k, n, n))
    if scope:
        for i, v in enumerate(members):
            own = configurations(numbers, scope, numbers.scope[v], fixed)
            mean[:, i], variance[:, i] = numbers.mean[v].ravel()[own], numbers.variance[v].ravel()[own]
            for p, coefficient in zip(numbers.parents[v], numbers.coefficients[v], strict=True):
                into = slope[:, i, at_given[p]] if p in observed else arcs[:, i, at[p]]
                into[:] = coefficient.ravel()[own]
    else:
        order = np.array(members)
        mean[0], variance[0] = numbers.plain.mean.take(order), numbers.plain.variance.take(order)
        rows = numbers.plain.arcs.take(order, 0)
        slope[0], arcs[0] = rows.take(np.array(given, np.intp), 1), rows.take(order, 1)
    # unobserved: mean + slope @ given + noise @ e; observed, which have no children here: mean + slope @ given
    # + arcs @ unobserved + f; e and f have `variance`
    mean_u, slope_u, variance_u = mean.take(u, 1), slope.take(u, 1), variance.take(u, 1)[:, None]
    variance_y, arcs = variance.take(y, 1), arcs.take(u, 2)
    noise, arcs_y = np.linalg.inv(np.eye(len(u)) - arcs.take(u, 1)), arcs.take(y, 1)
    mean_u, slope_u = (noise @ mean_u[..., None])[..., 0], noise @ slope_u
    mean_y, slope_y = mean.take(y, 1) + (arcs_y @ mean_u[..., None])[..., 0], slope.take(y, 1) + arcs_y @ slope_u
    noise_y = arcs_y @ noise
    weighted = noise_y * variance_u
    total = weighted @ noise_y.transpose(0, 2, 1)
    total.reshape(k, -1)[:, :: len(y) + 1] += variance_y
    whiten: Floats = np.asarray(np.linalg.inv(np.linalg.cholesky(total)), np.float64)
    log_norm = np.log(np.diagonal(whiten, axis1=1, axis2=2)).sum(axis=1) - len(y) * HALF_LOG_2PI
    log_norm -= np.log(numbers.scale.take(np.array(seen, np.intp))).sum()
    gain = noise @ weighted.transpose(0, 2, 1) @ whiten.transpose(0, 2, 1) @ whiten  # (K, U, Y)
    # as a sum of squares, which stays positive where much of the variance is explained
    rest = noise - gain @ noise_y
    cov = (rest * variance_u) @ rest.transpose(0, 2, 1) + (gain * variance_y[:, None]) @ gain.transpose(0, 2, 1)
    return Component(
        scope, tuple(hidden), tuple(seen), tuple(given), mean_u, mean_y, slope_u, slope_y, whiten, log_norm, gain, cov
    )


def _refuse(numbers: Densities, members: list[int], scope: tuple[int, ...], k: int, most: int) -> None:
    names = ", ".join(numbers.names[v] for v in members[:6]) + (" ..." if len(members) > 6 else "")
    states = ", ".join(numbers.variables[d] for d in scope[:10]) + (" ..." if len(scope) > 10 else "")
    raise TableTooLarge(
        f"the numbers {names} depend together on {k:,} configurations of {len(scope)} variables ({states}); "
        f"max_configurations is {most:,}. Observe a number among them, ask for fewer targets, or raise the limit"
    )
