"""The split model: each factor gets its own copy of every variable that all cases observe.

All copies of a variable are observed in its state, so the answers are those of the original model. A copy occurs in one
factor, so it connects nothing: the graph is that of the original model without the observed variables. A plan for the
split model depends on which variables are observed, not on their states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...model.discrete import DiscreteModel, Factor
from ...model.markov import MarkovNetwork
from ..compiler import model_factors

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SplitModel:
    """Which variable of the split model is a copy of which original one."""
    # cardinality: (V,) int64
    # scopes: sequence of sequences of int: Of the factors
    # observed: (V,) bool: The variables that every case observes
    # origin: (W,) int64: The original variable of each variable of the split model
    # first: (V,) int64: The first copy of each original variable; the only one unless the variable is observed
    # scopes: list of list of int: Of the factors, in variables of the split model

    def __init__(self, cardinality: NDArray[np.int64], scopes: Sequence[Sequence[int]], observed: NDArray[np.bool_]):
        self.cardinality, self.observed = cardinality, observed
        origin: list[int] = []
        first = np.full(len(cardinality), -1, np.int64)
        self.scopes: list[list[int]] = []
        for scope in scopes:
            copies = []
            for v in scope:
                if observed[v] or first[v] < 0:
                    if first[v] < 0:
                        first[v] = len(origin)
                    copies.append(len(origin))
                    origin.append(v)
                else:
                    copies.append(int(first[v]))
            self.scopes.append(copies)
        for v in np.flatnonzero(first < 0).tolist():  # in no factor
            first[v] = len(origin)
            origin.append(v)
        self.origin, self.first = np.array(origin, np.int64), first

    def model(self, factors: Sequence[NDArray[np.float64]]) -> MarkovNetwork:
        """The split model as a network; shares the factors' numbers."""
        states = {str(i): list(map(str, range(n))) for i, n in enumerate(self.cardinality[self.origin].tolist())}
        return MarkovNetwork.of_checked(
            states, [Factor(tuple(scope), table) for scope, table in zip(self.scopes, factors, strict=True)]
        )


def split_model(model: DiscreteModel, observed: Sequence[int]) -> SplitModel:
    """A model split at some variables."""
    is_observed = np.zeros(len(model), np.bool_)
    is_observed[list(observed)] = True
    return SplitModel(model.cardinality, [f.scope for f in model_factors(model)], is_observed)
