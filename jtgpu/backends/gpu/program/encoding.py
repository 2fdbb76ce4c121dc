"""Evidence as the kernels read it, and ln P(e) from what they write."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ....errors import ImpossibleEvidence
from ...base import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan

__all__ = ["WEIGHTS", "log_evidence", "write_evidence"]

WEIGHTS = -2  # state of a variable whose evidence is a vector of weights
LN2 = math.log(2.0)


def write_evidence(plan: Plan, evidence: Evidence, state: NDArray[np.int32], weights: NDArray[np.float64]) -> int:
    """Fill ``state`` (V,) and ``weights`` (sum of cardinalities,); returns the power of two taken out of the weights.

    Raises
    ------
    ImpossibleEvidence
        For a vector of zeros.
    """
    state[:] = evidence.state
    exponent = 0
    for v, given in evidence.likelihood.items():
        vector = np.asarray(given, np.float64)
        hard = int(evidence.state[v])
        if hard >= 0:
            vector = np.where(np.arange(len(vector)) == hard, vector, 0.0)
        top = float(vector.max(initial=0.0))
        if not top > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        shift = math.frexp(top)[1]
        at = int(plan.posterior_ptr[v])
        weights[at : at + len(vector)] = np.ldexp(vector, -shift)
        state[v] = WEIGHTS
        exponent += shift
    return exponent


def log_evidence(root: NDArray[np.float64], exponent: NDArray[np.int32], more: int) -> float:
    """ln P(e): the sum over components of ln(root) + exponent * ln 2, and of what was taken out beforehand.

    Raises
    ------
    ImpossibleEvidence
        When a component has probability 0.
    """
    total = more * LN2
    for value, e in zip(root.tolist(), exponent.tolist(), strict=True):
        if not value > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        total += math.log(value) + e * LN2
    return total
