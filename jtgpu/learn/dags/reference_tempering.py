"""The definition of parallel tempering: exchanges of partitions between levels, as lists of their outcomes.

Level i has the target pi(partition)^beta_i, with beta_0 = 1, where the state is a graph. A graph that comes from the
first level is forgotten, and the partition that comes to it draws one: given the partition, that is the posterior.
Tests hold the outcomes against detailed balance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .reference import Weights
from .reference_partitions import Graph, Partition, partition_of, partition_score

States = tuple[Partition, ...]  # of each level


def log_target(weights: Weights, betas: Sequence[float], states: States) -> float:
    """Ln weight of the partitions of all levels."""
    return sum(b * partition_score(weights, parts) for b, parts in zip(betas, states, strict=True))


def exchange_probability(weights: Weights, betas: Sequence[float], states: States, level: int) -> float:
    """Probability that the partitions of a level and the next one are exchanged, if that is attempted."""
    gain = partition_score(weights, states[level + 1]) - partition_score(weights, states[level])
    return math.exp(min((betas[level] - betas[level + 1]) * gain, 0.0))


def exchanges(weights: Weights, betas: Sequence[float], states: States, first: int) -> list[tuple[States, float]]:
    """Attempt to exchange levels ``first`` and ``first + 1``, ``first + 2`` and ``first + 3``, and so on."""
    # returns list of (states, probability)
    found = [(states, 1.0)]
    for level in range(first, len(states) - 1, 2):
        p = exchange_probability(weights, betas, states, level)
        swapped = [((*s[:level], s[level + 1], s[level], *s[level + 2 :]), q * p) for s, q in found]
        found = [(s, q * (1.0 - p)) for s, q in found if p < 1.0] + swapped
    return found


def exchanges_of_graphs(
    weights: Weights, betas: Sequence[float], state: tuple[Graph, Partition], graphs: Sequence[Graph]
) -> list[tuple[tuple[Graph, Partition], float]]:
    """The exchange of the first level, which has a graph, and the second one."""
    # state: (graph, partition)
    # graphs: All graphs
    graph, hot = state
    cold = partition_of(graph)
    p = exchange_probability(weights, betas, (cold, hot), 0)
    found = [(state, 1.0 - p)] if p < 1.0 else []
    total = partition_score(weights, hot)
    for new in graphs:
        weight = sum(weights[v, new[v]] for v in range(len(new)))
        if partition_of(new) == hot and weight > -math.inf:
            found.append(((new, cold), p * math.exp(weight - total)))
    return found
