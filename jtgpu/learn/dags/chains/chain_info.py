"""`ChainInfo`: what Markov chains visited."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ChainInfo(NamedTuple):
    """What some steps of C chains over orders or partitions visited."""

    trace: NDArray[np.float64]  # (C, samples) ndarray of float64: ln weight of the order or partition at each sample
    # (C, n) ndarray of int64: The order of the highest weight of all steps; or the graph of the highest weight of all
    #     samples, as parents by bits of each variable's candidates
    best: NDArray[np.int64]
    best_weight: NDArray[np.float64]  # (C,) ndarray of float64: -inf if there was none
