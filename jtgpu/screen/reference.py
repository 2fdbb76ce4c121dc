"""The definition of every result, in float64 NumPy: one row at a time against all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .rows import Measure, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def keys(measure: Measure, rows: Rows, i: int, references: Rows) -> NDArray[np.float64]:
    """Keys of row i and each reference: numbers that ascend with the distance.

    Squared distances for ``"euclidean"``. For ``"hamming"`` and ``"gower"`` the sum over the columns that row i has; if
    references have holes, the mean over the columns that both rows have, and 1 if there is none.
    """
    x, codes = rows.numbers[i], rows.codes[i]
    found = np.zeros(len(references))
    for j in range(len(x)):
        d = np.abs(references.numbers[:, j] - x[j])
        found += d * d if measure.is_squared else np.where(np.isnan(d), 0.0, d)
    if not measure.is_share:
        return found
    both = (references.codes >= 0) & (codes != -1)
    found += (both & (references.codes != codes)).sum(axis=1)
    if not measure.has_holes:
        return found
    common = both.sum(axis=1) + (~np.isnan(references.numbers + x)).sum(axis=1)
    return np.where(common > 0, found / np.maximum(common, 1), 1.0)


def weight(measure: Measure, rows: Rows, i: int, references: Rows, k: int) -> float:
    """The sum of the k smallest distances of row i, added in ascending order."""
    near = np.sort(keys(measure, rows, i, references))[:k]
    total = 0.0
    for d in np.sqrt(near) if measure.is_squared else near:
        total += float(d)
    return total / float(rows.divisors(measure)[i])


def weights(measure: Measure, rows: Rows, references: Rows, k: int) -> NDArray[np.float64]:
    """Weights of all rows, (B,)."""
    return np.array([weight(measure, rows, i, references, k) for i in range(len(rows))])
