"""`Estimate`: what the samples of chains say about arcs, and how precise that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import diagnostics

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_R_HAT = 1.05


class Estimate(NamedTuple):
    """What the chains say after the burn-in."""

    arcs: NDArray[np.float64]  # (n, n) ndarray of float64: Probability of each arc [parent, child]
    errors: NDArray[np.float64]  # (n, n) ndarray of float64: Their standard errors
    r_hat: float  # the largest: of the weights, and of the arcs
    r_hats: NDArray[np.float64]  # (n, n) ndarray of float64: Of the arcs
    max_difference: float  # largest difference of a probability between the two halves of the chains
    n_samples: int  # of all chains


def estimate_of(means: NDArray[np.float64], n_samples: int, traces: NDArray[np.float64]) -> Estimate:
    """The estimate of C chains."""
    # means: (C, n, n) ndarray of float64: Probability of each arc in each chain
    # n_samples: Of each chain
    # traces: (C, T) ndarray of float64: ln weights
    r_hats = diagnostics.r_hat_of_arcs(means, n_samples)
    half = len(means) // 2
    difference = float(np.abs(means[:half].mean(axis=0) - means[half:].mean(axis=0)).max()) if half else np.inf
    return Estimate(
        means.mean(axis=0), diagnostics.standard_errors(means), max(diagnostics.r_hat(traces), float(r_hats.max())),
        r_hats, difference, n_samples * len(means),
    )  # fmt: skip


def nested_r_hat(means: NDArray[np.float64], traces: NDArray[np.float64]) -> float:
    """The largest nested R-hat of the weights and the arcs of chains from different starts; see `estimate_of`."""
    return max(diagnostics.nested_r_hat(traces[:, None]), diagnostics.nested_r_hat_of_arcs(means[:, None]))
