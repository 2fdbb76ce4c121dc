"""The oracle: every question answered by summing the full joint distribution. Imports the network and nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from jtgpu.network import DiscreteModel

Weights = Mapping[int, NDArray[np.float64]]  # variable -> (card,) weights; hard evidence is one-hot


def configurations(model: DiscreteModel) -> itertools.product[tuple[int, ...]]:
    """Every joint configuration."""
    return itertools.product(*(range(int(c)) for c in model.cardinality))


def joint(model: DiscreteModel, weights: Weights | None = None) -> NDArray[np.float64]:
    """The unnormalised joint table, one axis a variable, evidence multiplied in. Loops, no tricks."""
    table = np.empty(tuple(int(c) for c in model.cardinality))
    for x in configurations(model):
        p = 1.0
        for scope, factor in model.factors:
            p *= float(factor[tuple(x[v] for v in scope)])
        for v, w in (weights or {}).items():
            p *= float(w[x[v]])
        table[x] = p
    return table


def log_evidence(model: DiscreteModel, weights: Weights | None = None) -> float:
    """ln of the sum of the joint table; -inf for impossible evidence."""
    total = math.fsum(joint(model, weights).ravel().tolist())
    return math.log(total) if total > 0 else -math.inf


def posteriors(model: DiscreteModel, weights: Weights | None = None) -> list[NDArray[np.float64]]:
    """Posterior of every variable."""
    table = joint(model, weights)
    total = table.sum()
    axes = range(table.ndim)
    return [table.sum(axis=tuple(a for a in axes if a != v)) / total for v in axes]
