"""Expected sums of the families of numbers over a table of cases: the E-step of EM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .components import Densities, build
from .evidence import MixedCases

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .answers import Answerer, ObservedPattern
    from .components import Component
    from .tree import MixedTree

    Floats = NDArray[np.float64]

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
    patterns: Sequence[tuple[ObservedPattern, slice]],
    weights: Floats,  # (B,)
    joints: Mapping[tuple[int, ...], Floats],  # scope -> (B, K) posterior
    moments: Moments,
) -> None:
    """Add the expected sums of cases; families of numbers that no evidence depends on are left out."""
    # patterns: with the same sets, each with its cases
    # A number without observed descendants integrates to one: the likelihood does not depend on its density.
    numbers = answerer.numbers
    scaled = cases.values / numbers.scale
    complete: dict[int, Floats] = {}  # number -> (B, K) weights of cases that observe its family
    shares: dict[tuple[int, tuple[int, ...]], Floats] = {}
    for pattern, rows in patterns:
        for members in pattern.densities:
            scope = pattern.scopes[members]
            families = {v: (*numbers.parents[v], v) for v in members}
            partly = {v: f for v, f in families.items() if not pattern.observed.issuperset(f)}
            for v in families.keys() - partly.keys():
                if (v, scope) not in shares:
                    shares[v, scope] = _share(numbers, v, scope, weights, joints)
                complete.setdefault(v, np.zeros((len(scaled), len(moments[v]))))[rows] = shares[v, scope][rows]
            if not partly:
                continue
            for part, allowed, component in answerer.pieces(members, pattern.observed, cases.states[rows]):
                at = part + rows.start
                weight = weights[at, None] * (joints[scope][at][:, allowed] if scope else 1.0)
                means = component.means(scaled[at])
                for v in partly:
                    configuration = configurations(numbers, scope, numbers.scope[v])[allowed]
                    _add_family(numbers, v, component, scaled[at], weight, means, configuration, moments[v])
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


def configurations(numbers: Densities, scope: tuple[int, ...], own: tuple[int, ...]) -> NDArray[np.intp]:
    """Configuration of the variables `own` (in their order) of each configuration of `scope`."""
    cards = tuple(numbers.cards[d] for d in scope)
    states = np.indices(cards).reshape(len(scope), -1) if scope else np.zeros((0, 1), np.intp)
    result = np.zeros(states.shape[1], np.intp)
    for d in own:
        result = result * numbers.cards[d] + states[scope.index(d)]
    return result


def _add_family(  # noqa: PLR0913
    numbers: Densities, v: int, component: Component, scaled: Floats, weight: Floats, means: Floats,
    configuration: NDArray[np.intp], sums: Floats,
) -> None:  # fmt: skip
    """Add the sums of a family of which some numbers are not observed."""
    place = {u: i for i, u in enumerate(component.unobserved)}
    z = np.ones((weight.shape[1], len(scaled), len(numbers.parents[v]) + 2))
    hidden, places = [], []
    for i, u in enumerate((*numbers.parents[v], v), 1):
        if u in place:
            hidden.append(i)
            places.append(place[u])
            z[:, :, i] = means[:, :, place[u]].T
        else:
            z[:, :, i] = scaled[:, u]
    each = (z * weight.T[:, :, None]).transpose(0, 2, 1) @ z
    rows, own = np.array(hidden), np.array(places)
    each[:, rows[:, None], rows] += weight.sum(axis=0)[:, None, None] * component.cov[:, own[:, None], own]
    np.add.at(sums, configuration, each)


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
