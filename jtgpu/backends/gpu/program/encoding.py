"""Evidence as the kernels read it, and ln P(e) from what they write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ImpossibleEvidence
from ...base import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = -2  # state of a variable whose evidence is a vector of weights
LN2 = math.log(2.0)


def write_evidence(
    evidence: Evidence, weight_cell: Sequence[int], state: NDArray[Any], weights: NDArray[np.float64]
) -> int:
    """Fill `state` and `weights`; the power of two by which the weights were divided."""
    # weight_cell: (V,) sequence of int: First cell of each variable in `weights`; negative: its weights are left out
    # state: (V,) array of int: Becomes the observed states, -1 = not observed, `WEIGHTS` = a vector of weights
    # weights: Becomes the weights, divided by a power of two so that the largest of a vector is between 1/2 and 1
    # raises ImpossibleEvidence: For a vector of zeros.
    state[:] = evidence.state
    exponent = 0
    for v, given in evidence.likelihood.items():
        at = weight_cell[v]
        if at < 0:
            continue
        vector = np.asarray(given, np.float64)
        hard = int(evidence.state[v])
        if hard >= 0:
            vector = np.where(np.arange(len(vector)) == hard, vector, 0.0)
        top = float(vector.max(initial=0.0))
        if not top > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        shift = math.frexp(top)[1]
        weights[at : at + len(vector)] = np.ldexp(vector, -shift)
        state[v] = WEIGHTS
        exponent += shift
    return exponent


def log_evidence(root: NDArray[np.float64], exponent: NDArray[np.int32], shift: int) -> float:
    """ln P(e): ln(root) + exponent * ln 2 summed over the components, plus shift * ln 2."""
    # raises ImpossibleEvidence: When a component has probability 0.
    total = shift * LN2
    for value, e in zip(root.tolist(), exponent.tolist(), strict=True):
        if not value > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        total += math.log(value) + e * LN2
    return total
