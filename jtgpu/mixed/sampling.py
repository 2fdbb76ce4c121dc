"""Exact samples of mixed networks, and imputation: states by the junction tree, then numbers given the states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..inference.results.result import ByVariable, CaseResult
from ..util.text_table import counted
from .components import component_members, scope_of
from .truncated import draw_truncated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..columns import Table
    from ..model.mixed import MixedNetwork
    from ..util.arrays import Floats
    from .answers import Answerer, ObservedPattern
    from .evidence import MixedCases


class MixedSamples(CaseResult, ByVariable["NDArray[Any]"]):
    """Samples, or a table of cases without missing cells: variable to names of states or to numbers, (n,).

    The data frame has a column for each variable; columns of the cases that are no variables are kept.

    Attributes
    ----------
    states : (n, V) ndarray of int32
        Numbers of the states of the variables that have states.
    numbers : (n, G) ndarray of float64
        Values of the numbers.
    """

    _targets = None
    _is_filled_in = True

    def __init__(
        self, net: MixedNetwork, states: NDArray[np.int32], values: Floats, table: Table | None = None
    ):
        self._net, self._model, self._labels, self._cases = net, net.graph, net.graph.labels, table
        self.states, self.numbers = states, values

    def _part(self, v: int) -> NDArray[Any]:
        net, name = self._net, self._net.variables[v]
        if net.is_number(name):
            return self.numbers[:, net.numbers.index(name)].copy()  # frames are often changed in place
        labels: NDArray[Any] = np.array([*net.states(name), None], dtype=object)  # None: of an impossible case
        return np.asarray(labels[self.states[:, net.discrete.index(name)]])

    def _columns(self) -> dict[str, object]:
        return dict(self)

    def _title(self) -> str:
        return f"{counted(len(self.states), 'sample')} of {counted(len(self), 'variable')}"


def draw_bounded(
    answerer: Answerer, pattern: ObservedPattern, case: MixedCases, states: NDArray[np.int32], values: Floats,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Enter draws of the numbers of which a case gives an interval into `values`, (n, G), given all states."""
    # each of them is the only unobserved number of its component
    numbers, observed = answerer.numbers, values / answerer.numbers.scale
    for g, ends in case.bounds.items():
        scope = scope_of(numbers, pattern.answers[g])
        cards = tuple(numbers.cards[d] for d in scope)
        for part, allowed, component in answerer.pieces(pattern.answers[g], pattern.observed, states):
            at = np.zeros(len(part), np.intp)
            if isinstance(allowed, slice) and scope:
                at = np.ravel_multi_index(tuple(states[part][:, list(scope)].T), cards)
            mean = component.means(observed[part])[np.arange(len(part)), at, 0]
            sd = np.sqrt(component.cov[at, 0, 0])
            low, high = (x / numbers.scale[g] for x in ends)
            drawn = mean + sd * draw_truncated((low - mean) / sd, (high - mean) / sd, rng)
            values[part, g] = np.clip(drawn, low, high) * numbers.scale[g]


def draw_numbers(
    answerer: Answerer, observed: frozenset[int], cut: frozenset[int], states: NDArray[np.int32], values: Floats,
    rng: np.random.Generator,
) -> Floats:  # fmt: skip
    """Draw the numbers that are not observed, given all states. Returns `values`, (n, G), without NaN."""
    numbers = answerer.numbers
    scaled = values / numbers.scale
    drawn = set(observed)
    for members in component_members(numbers, observed, cut, ()):
        scope = scope_of(numbers, members)
        cards = tuple(numbers.cards[d] for d in scope)
        for part, allowed, component in answerer.pieces(tuple(members), observed, states):
            at = np.arange(len(part)) * 0
            if isinstance(allowed, slice) and scope:
                at = np.ravel_multi_index(tuple(states[part][:, list(scope)].T), cards)
            noise = rng.standard_normal((len(part), len(component.unobserved)))
            roots = np.linalg.cholesky(component.cov + 0.0)
            means = component.means(scaled[part])[np.arange(len(part)), at]
            drawn_values = means + np.einsum("bij,bj->bi", roots[at], noise)
            scaled[np.ix_(part, np.array(component.unobserved, np.intp))] = drawn_values
        drawn.update(members)
    for v in numbers.order:
        if v in drawn:
            continue
        own = tuple(states[:, d] for d in numbers.scope[v])
        x = np.asarray(numbers.mean[v][own]) + np.sqrt(numbers.variance[v][own]) * rng.standard_normal(len(states))
        for p, coefficient in zip(numbers.parents[v], numbers.coefficients[v], strict=True):
            x = x + coefficient[own] * scaled[:, p]
        scaled[:, v] = x
    return np.where(np.isnan(values), scaled * numbers.scale, values)
