"""CPTs from counts of complete cases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..errors import TableTooLarge

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ENTRIES = 100_000_000  # of a CPT


def cpt_from_counts(
    family: list[NDArray[np.int64]], cards: list[int], weights: NDArray[np.float64], pseudo_count: float
) -> NDArray[np.float64]:
    """P(child | parents) from the rows in which the whole family is observed."""
    # family: list of (n,) ndarray of int64: State numbers of the parents and of the child, in this order; -1: missing
    # cards: list of int: Their numbers of states
    # weights: (n,) ndarray of float64: Weight of each row
    # pseudo_count: Added to every count. If it is 0, rows of the CPT without counts are uniform.
    # raises TableTooLarge: If the CPT has more than 1e8 entries.
    size = math.prod(cards)
    if size > MAX_ENTRIES:
        raise TableTooLarge(
            f"a CPT would have {size:,} entries, more than the limit of {MAX_ENTRIES:,}; use fewer parents or states",
            size,
            8 * size,
            -1,
        )
    complete = np.logical_and.reduce([column >= 0 for column in family])
    at = np.ravel_multi_index([column[complete] for column in family], cards)
    table = np.bincount(at, weights[complete], minlength=size).reshape(cards) + pseudo_count
    sums = table.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(sums > 0, table / np.where(sums > 0, sums, 1.0), 1.0 / cards[-1]), np.float64)
