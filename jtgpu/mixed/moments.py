"""Expected sums of the families of numbers over a table of cases: the E-step of EM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from .components import Numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .answers import Answerer, Pattern
    from .components import Component
    from .evidence import MixedCases

    Floats = NDArray[np.float64]

# of each number: (K, m + 2, m + 2) weighted sums of z z', z = (1, numeric parents, number), one a configuration of its
# discrete parents in the order of the parents
Moments = list["Floats"]


def empty_moments(numbers: Numbers) -> Moments:
    """Sums of no case."""
    sizes = [prod(numbers.cards[d] for d in s) for s in numbers.scope]
    return [np.zeros((k, len(p) + 2, len(p) + 2)) for k, p in zip(sizes, numbers.parents, strict=True)]


def add_moments(
    answerer: Answerer,
    cases: MixedCases,
    patterns: Sequence[tuple[Pattern, slice]],
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
    numbers: Numbers, v: int, scope: tuple[int, ...], weights: Floats, joints: Mapping[tuple[int, ...], Floats]
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


def configurations(numbers: Numbers, scope: tuple[int, ...], own: tuple[int, ...]) -> NDArray[np.intp]:
    """Configuration of the variables `own` (in their order) of each configuration of `scope`."""
    cards = tuple(numbers.cards[d] for d in scope)
    states = np.indices(cards).reshape(len(scope), -1) if scope else np.zeros((0, 1), np.intp)
    result = np.zeros(states.shape[1], np.intp)
    for d in own:
        result = result * numbers.cards[d] + states[scope.index(d)]
    return result


def _add_family(  # noqa: PLR0913
    numbers: Numbers, v: int, component: Component, scaled: Floats, weight: Floats, means: Floats,
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
