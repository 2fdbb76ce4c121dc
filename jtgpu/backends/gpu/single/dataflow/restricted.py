"""Factors of a network without some observed variables: a case selects the parts that belong to its states.

The observed axes of a factor come first, so what belongs to a case's states is contiguous. The kernel reads evidence
factors from there (`enter_unit` of cuda/single/dataflow.cu); the states are those of the network's own variables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .....plans.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RestrictedFactors:
    """A network's factors, arranged for a plan of its unobserved variables."""
    # plan: Of the unobserved variables, numbered in ascending order
    # factors: sequence of float64 arrays: Of the network
    # scopes: sequence of sequences of int: Of the factors, in the network's variables
    # observed: (V,) bool
    # tables: list of arrays: Each factor with its observed axes first, then the others in the plan's order
    # largest: list of arrays: The maximum of each factor over its observed axes, axes as in the plan's
    #     ``factor_scopes``. Bounds that hold for these hold for every case.
    # selected: list of int: The factors that have observed axes
    # free: (W,) int64: The unobserved variables
    # posterior_ptr: (V+1,) int64: First cell of each of the network's variables in an answer

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        scopes: Sequence[Sequence[int]],
        observed: NDArray[np.bool_],
    ):
        self.observed = observed
        self.free = np.flatnonzero(~observed)
        card = np.ones(len(observed), np.int64)
        for table, scope in zip(factors, scopes, strict=True):
            card[list(scope)] = table.shape
        self.posterior_ptr = np.concatenate([[0], np.cumsum(card)]).astype(np.int64)
        self.tables: list[NDArray[np.float64]] = []
        self.largest: list[NDArray[np.float64]] = []
        self._observed_axes: list[list[int]] = []
        for f, (table, scope) in enumerate(zip(factors, scopes, strict=True)):
            hard = [v for v in scope if observed[v]]
            others = [int(self.free[w]) for w in plan.table_scopes[f]]
            self._observed_axes.append(hard)
            self.tables.append(np.transpose(table, [scope.index(v) for v in (*hard, *others)]))
            self.largest.append(table.max(axis=tuple(scope.index(v) for v in hard)) if hard else table)
        self.selected = [f for f, hard in enumerate(self._observed_axes) if hard]

    def axes(self, f: int) -> list[tuple[int, int]]:
        """Variable and stride of each observed axis of a factor."""
        shape = self.tables[f].shape
        return [(v, math.prod(shape[k + 1 :])) for k, v in enumerate(self._observed_axes[f])]
