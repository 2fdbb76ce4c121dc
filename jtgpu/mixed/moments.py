"""Expected sums of the families of numbers over a table of cases: the E-step of EM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .components import Densities, build, configurations
from .evidence import MixedCases

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.arrays import Floats
    from .answers import Alike, Answerer
    from .components import Component
    from .tree import MixedTree

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
