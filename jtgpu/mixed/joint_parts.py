"""Joint distributions of numbers without evidence, as mixtures by the states of some variables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .components import build
from .evidence import MixedCases
from .moments import configurations

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .tree import MixedTree

    Floats = NDArray[np.float64]


class Parts(NamedTuple):
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


def joint_parts(tree: MixedTree, asked: Sequence[int], given: Sequence[int]) -> Parts:
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
    return Parts(
        weights, configurations(numbers, scope, tuple(given)), component.mean_u[part][:, places],
        component.cov[part][:, places[:, None], places],
    )  # fmt: skip
