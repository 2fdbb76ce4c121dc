"""Expected sums of the families of numbers over a table of cases: the E-step of EM."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from .components import Numbers, scope_of

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
    pattern: Pattern,
    weights: Floats,  # (B,)
    joints: dict[tuple[int, ...], Floats],  # scope -> (B, K) posterior
    moments: Moments,
) -> None:
    """Add the expected sums of cases of one pattern; families of numbers that no evidence depends on are left out."""
    # A number without observed descendants integrates to one: the likelihood does not depend on its density.
    numbers = answerer.numbers
    states, scaled = cases.states, cases.values / numbers.scale
    for members in pattern.densities:
        scope = scope_of(numbers, members)
        for part, allowed, component in answerer.pieces(members, pattern.observed, states):
            weight = weights[part, None] * (joints[scope][part][:, allowed] if scope else 1.0)
            means = component.means(scaled[part]) if component.unobserved else None
            for v in members:
                configuration = configurations(numbers, scope, numbers.scope[v])[allowed]
                _add_family(numbers, v, component, scaled[part], weight, means, configuration, moments[v])


def configurations(numbers: Numbers, scope: tuple[int, ...], own: tuple[int, ...]) -> NDArray[np.intp]:
    """Configuration of the variables `own` (in their order) of each configuration of `scope`."""
    cards = tuple(numbers.cards[d] for d in scope)
    states = np.indices(cards).reshape(len(scope), -1) if scope else np.zeros((0, 1), np.intp)
    result = np.zeros(states.shape[1], np.intp)
    for d in own:
        result = result * numbers.cards[d] + states[scope.index(d)]
    return result


def _add_family(  # noqa: PLR0913
    numbers: Numbers, v: int, component: Component, scaled: Floats, weight: Floats, means: Floats | None,
    configuration: NDArray[np.intp], sums: Floats,
) -> None:  # fmt: skip
    family = (*numbers.parents[v], v)
    place = {u: i for i, u in enumerate(component.unobserved)}
    missing = [i for i, u in enumerate(family) if u in place]
    z = np.ones((len(scaled), len(family) + 1))
    for i, u in enumerate(family):
        if u not in place:
            z[:, i + 1] = scaled[:, u]
    if not missing:  # all numbers are observed: the same rows for all configurations
        by_state = np.zeros((len(scaled), len(sums)))
        for k, c in enumerate(configuration.tolist()):
            by_state[:, c] += weight[:, k]
        for c in range(len(sums)):
            used = np.flatnonzero(by_state[:, c])
            chosen = z[used]
            sums[c] += (chosen * by_state[used, c, None]).T @ chosen
        return
    assert means is not None
    places, hidden = [place[family[i]] for i in missing], np.array([i + 1 for i in missing])
    for k, c in enumerate(configuration.tolist()):
        z[:, hidden] = means[:, k, places]
        sums[c] += (z * weight[:, k, None]).T @ z
        own = np.array(places)
        sums[c][np.ix_(hidden, hidden)] += weight[:, k].sum() * component.cov[k][np.ix_(own, own)]
