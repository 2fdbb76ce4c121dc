"""The evidence of a call on sequences, as compact columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...slices import Side, for_blocks, observed
from ..batch.table import scale_weights
from .contractions import SlicePattern

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan


class SliceEvidence:
    """Codes of the variables that are observed, and weights, of all rows."""

    def __init__(
        self, plan: Plan, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]],
        sides: tuple[Side, Side], n_sequences: int,
    ):  # fmt: skip
        self.sides, self.n_entries, self.n_sequences = sides, len(sides[0].place), n_sequences
        cards = plan.cardinality
        some, always = (np.zeros(len(cards), np.bool_) for _ in range(2))
        some[: states.shape[1]], always[: states.shape[1]] = observed(states)
        for side in sides:
            always[list(_members(plan, side.number))] = False
        always[list(likelihood)] = False
        columns = np.flatnonzero(some)
        column = np.full(len(cards), -1)
        column[columns] = np.arange(len(columns))
        dtype = np.int8 if int(cards.max()) <= 127 else np.int32
        self.codes: NDArray[Any] = np.empty((len(states), len(columns)), dtype)

        def copy(rows: slice) -> None:
            for i, v in enumerate(columns.tolist()):
                self.codes[rows, i] = states[rows, v]

        for_blocks(copy, states)
        scaled = scale_weights(likelihood, len(states), cards)
        self.weights, self.log_scale, self.smallest = scaled.values, scaled.log_scale, scaled.smallest
        weight = scaled.first.astype(np.int64)
        weight[weight == 0xFFFFFFFF] = -1
        self.pattern = SlicePattern(tuple(always.tolist()), tuple(column.tolist()), tuple(weight.tolist()))

    @property
    def row_bytes(self) -> int:
        """Of a slice of a sequence."""
        return int(self.codes.itemsize * self.codes.shape[1] + 8 * self.weights.shape[1])


def _members(plan: Plan, number: int) -> tuple[int, ...]:
    """The variables of a side."""
    return (number,) if number < plan.n_variables else plan.sets[number - plan.n_variables]
