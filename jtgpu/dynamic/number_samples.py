"""Samples of sequences with numbers: numbers are drawn slice by slice, given the states of their parents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.mixed_dynamic import label
from .results import SequenceStates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.mixed_dynamic import MixedDynamicNetwork
    from ..util.arrays import Floats
    from .sequences import Sequences


class MixedSequenceStates(SequenceStates):
    """States and values of all variables in all slices of B sequences; see `SequenceStates`.

    ``result["load"]`` of a number has its values, (B, T) or (n, B, T) ndarray of float64, NaN behind the end of a
    sequence.
    """

    def __init__(
        self, net: MixedDynamicNetwork, sequences: Sequences, rows: NDArray[np.int32], values: Mapping[str, Floats]
    ):
        super().__init__(net.discrete, sequences, rows)
        sequence, place, _ = self._places()
        self._order = net.variables
        self._values: dict[str, Floats] = {}
        for y, x in values.items():
            self._values[y] = np.full(self.states.shape[:-1], np.nan)
            self._values[y][..., sequence, place] = x

    def __getitem__(self, variable: str | int) -> NDArray[Any]:
        known = isinstance(variable, str) and variable in self._values
        return self._values[str(variable)] if known else super().__getitem__(variable)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def drawn_numbers(
    net: MixedDynamicNetwork, read: Sequences, states: NDArray[np.int32], values: Mapping[str, Floats], rng: Any
) -> dict[str, Floats]:
    """Values of the numbers, (n, R), given states (n, R, V): the observed ones, and draws of the others."""
    # A number that is not observed has no children that are: it is independent of all but its parents.
    n, lengths = len(states), read.lengths
    made = {y: np.tile(x, (n, 1)) for y, x in values.items()}
    order = [*TopologicalSorter({y: [p for p, lag in net.numeric_parents(y) if not lag] for y in made}).static_order()]
    for t in range(int(lengths.max(initial=0))):
        rows = read.ptr[:-1][lengths > t] + t
        for y in order:
            g, component = net.gaussian(y, t), net.component[y]
            k = np.zeros((n, len(rows)), np.int64)
            if component is not None:
                k += states[:, rows, net.discrete.index(component)]
            mean = g.mean.ravel()[k]
            for p, lag in net.numeric_parents(y):
                if (name := label(p, lag)) in g.coefficients:
                    mean = mean + g.coefficients[name].ravel()[k] * made[p][:, rows - lag]
            draws = mean + g.sd.ravel()[k] * rng.standard_normal(mean.shape)
            made[y][:, rows] = np.where(np.isnan(made[y][:, rows]), draws, made[y][:, rows])
    return made
