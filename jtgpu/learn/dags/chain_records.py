"""Records of arrays that compiled loops of Markov chains take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...util.array_types import Cube, Matrix

__all__ = ["SetTables"]


class SetTables(NamedTuple):
    """Sums over the parent sets of each variable, and the sets themselves, by bits of its k candidate parents."""

    candidates: Matrix[np.int64]  # (n, k) candidate parents, in the order of their bits; -1 where there are fewer
    sums: Matrix[np.float64]  # (n, 2**k) ln of the total weight of the sets within each set
    hits: Cube[np.float64]  # (n, k, 2**(k - 1)) the same of the sets that contain a candidate; its bit is squeezed out
    masks: Matrix[np.int64]  # (n, M) the parent sets, by descending weight
    weights: Matrix[np.float64]  # (n, M) ln weights
    log_factorials: NDArray[np.float64]  # (n + 1,)
