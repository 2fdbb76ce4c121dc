"""The oracle: every question answered by summing the full joint distribution. Imports the network and nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork

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


def expected_counts(
    model: DiscreteModel, states: NDArray[np.int32], weights: NDArray[np.float64]
) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    """``sum_b weights[b] * P(configuration | case b)`` for every factor's scope, and which cases are impossible."""
    counts = [np.zeros(tuple(int(model.cardinality[v]) for v in scope)) for scope, _ in model.factors]
    impossible = np.zeros(len(states), np.bool_)
    for b, row in enumerate(states.tolist()):
        table = joint(model, {v: np.eye(int(model.cardinality[v]))[s] for v, s in enumerate(row) if s >= 0})
        total = table.sum()
        impossible[b] = not total > 0
        if total > 0:
            for count, (scope, _) in zip(counts, model.factors, strict=True):
                for x in configurations(model):
                    count[tuple(x[v] for v in scope)] += weights[b] * float(table[x]) / total
    return counts, impossible


# Interventions, soft evidence ---------------------------------------------------------------------------------------


def mutilated(net: BayesianNetwork, do: Weights) -> BayesianNetwork:
    """The network in which some variables lost their parents and have the given probabilities instead."""
    names = net.variables
    return BayesianNetwork(
        {v: net.states(v) for v in names},
        {v: () if i in do else net.parents(v) for i, v in enumerate(names)},
        {v: do[i] if i in do else net.cpt(v) for i, v in enumerate(names)},
    )


def jeffrey(table: NDArray[np.float64], v: int, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_s q(s) P(x | v = s): Jeffrey's rule for one variable, on a joint table."""
    result = np.zeros_like(table)
    for s in range(table.shape[v]):
        at = (slice(None),) * v + (s,)
        if q[s] > 0:
            result[at] = q[s] * table[at] / table[at].sum()
    return result


# Joint tables: any table whose axes are the variables, normalised or not --------------------------------------------


def marginal(table: NDArray[np.float64], variables: list[int]) -> NDArray[np.float64]:
    """The normalised table of some variables, axes in their order."""
    result = np.zeros(tuple(table.shape[v] for v in variables))
    for x in np.ndindex(*table.shape):
        result[tuple(x[v] for v in variables)] += table[x]
    return np.asarray(result / result.sum(), np.float64)


def entropy(table: NDArray[np.float64], variables: list[int]) -> float:
    """-sum p ln p."""
    return -math.fsum(p * math.log(p) for p in marginal(table, variables).ravel().tolist() if p > 0)


def mutual_information(table: NDArray[np.float64], a: int, b: int) -> float:
    """sum p(a, b) ln (p(a, b) / p(a) p(b))."""
    both, first, second = marginal(table, [a, b]), marginal(table, [a]), marginal(table, [b])
    total = 0.0
    for i, j in np.ndindex(*both.shape):
        if both[i, j] > 0:
            total += float(both[i, j]) * math.log(both[i, j] / (first[i] * second[j]))
    return total


def after_observing(table: NDArray[np.float64], target: int, x: int) -> tuple[float, float]:
    """Expected entropy of a target, and expected probability of its most probable state, once x is observed."""
    h = accuracy = 0.0
    for s, p in enumerate(marginal(table, [x]).tolist()):
        if p > 0:
            rest = table[(slice(None),) * x + (slice(s, s + 1),)]
            h += p * entropy(rest, [target])
            accuracy += p * float(marginal(rest, [target]).max())
    return h, accuracy


def conflict(model: DiscreteModel, weights: Weights) -> float:
    """ln of the product of the findings' probabilities over the probability of all of them."""
    total = log_evidence(model)
    return sum(log_evidence(model, {v: w}) - total for v, w in weights.items()) - (log_evidence(model, weights) - total)


def relative_entropy(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """sum p ln (p / q)."""
    return float(sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True) if a > 0))


# Explanations, sensitivity ------------------------------------------------------------------------------------------


def ranked(
    model: DiscreteModel, weights: Weights | None = None, variables: list[int] | None = None
) -> list[tuple[float, tuple[int, ...]]]:
    """Every possible configuration of some variables (default: all), the others summed out, with ln of its unnormalised
    probability; most probable first."""
    table = joint(model, weights)
    kept = list(range(table.ndim)) if variables is None else variables
    sums: dict[tuple[int, ...], list[float]] = {}
    for x in np.ndindex(*table.shape):
        sums.setdefault(tuple(x[v] for v in kept), []).append(float(table[x]))
    found = [(math.fsum(p), x) for x, p in sums.items()]
    return sorted(((math.log(p), x) for p, x in found if p > 0), reverse=True)


def with_entry(net: BayesianNetwork, v: int, index: tuple[int, ...], value: float) -> BayesianNetwork:
    """The network with another number in a CPT; the rest of its row keeps its proportions, or gets equal shares where
    there are none."""
    cpt = net.cpt(v).copy()
    row = cpt[index[:-1]]
    rest = [i for i in range(len(row)) if i != index[-1]]
    left = math.fsum(row[rest].tolist())
    for i in rest:
        row[i] = row[i] / left * (1.0 - value) if left > 0 else (1.0 - value) / len(rest)
    row[index[-1]] = value
    names = net.variables
    return BayesianNetwork(
        {n: net.states(n) for n in names},
        {n: net.parents(n) for n in names},
        {n: cpt if i == v else net.cpt(n) for i, n in enumerate(names)},
    )
