"""Rows of a table as numbers and state codes, and how distances between them are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MISSING, UNSEEN = -1, -2  # codes in place of a state's number


class Measure(NamedTuple):
    """How the distance of two rows follows from their columns."""

    metric: str  # ``"euclidean"``, ``"manhattan"``, ``"hamming"`` or ``"gower"``
    n_columns: int  # number of columns, over which ``"hamming"`` and ``"gower"`` are means
    # Whether cells of the table are missing and ignored: distances are means over the columns that both rows have
    has_holes: bool

    @property
    def is_squared(self) -> bool:
        """Whether keys are squared distances."""
        return self.metric == "euclidean"

    @property
    def is_share(self) -> bool:
        """Whether distances are means over columns."""
        return self.metric in ("hamming", "gower")


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows."""

    numbers: NDArray[np.float64]  # (N, A) ndarray of float64: Columns of numbers, scaled; NaN where missing
    # (N, D) ndarray of int32: States of the other columns; `MISSING`, or `UNSEEN` for a state that the table does not
    #     have
    codes: NDArray[np.int32]
    n_observed: NDArray[np.int64]  # (N,) ndarray of int64: Columns that are not missing

    def __len__(self) -> int:
        return len(self.n_observed)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Some rows."""
        return Rows(self.numbers[index], self.codes[index], self.n_observed[index])

    def divisors(self, measure: Measure) -> NDArray[np.float64]:
        """What the sum of a row's keys is divided by, (N,)."""
        if measure.is_share and not measure.has_holes:
            return self.n_observed.astype(np.float64)
        return np.ones(len(self))
