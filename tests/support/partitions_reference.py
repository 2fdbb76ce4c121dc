"""The definition of partition MCMC: weights of ordered partitions, and every move as a list of its outcomes.

Every directed acyclic graph has one ordered partition of its variables: part i holds those whose longest path from a
root has i arcs. So a variable of part i > 0 has a parent in part i - 1 and no parent in a later one (Kuipers and Moffa,
2017). Moves are lists of (new state, probability of the proposal), which tests hold against detailed balance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from tests.support.structures_reference import Weights, hit, log_sum, tau, tau_meeting

Partition = tuple[tuple[int, ...], ...]  # parts of ascending variables; the first holds the roots
Graph = tuple[tuple[int, ...], ...]  # ascending parents of each variable
Proposals = list[tuple[Partition, float]]

ADJACENT = 0.8  # share of swaps between neighbouring parts


def partition_of(graph: Graph) -> Partition:
    """The ordered partition of a graph."""
    left, parts = set(range(len(graph))), []
    while left:
        roots = tuple(sorted(v for v in left if left.isdisjoint(graph[v])))
        parts.append(roots)
        left -= {*roots}
    return tuple(parts)


def partition_score(weights: Weights, parts: Partition) -> float:
    """Ln of the total weight of the graphs that have a partition."""
    total, before = 0.0, set[int]()
    for i, part in enumerate(parts):
        for v in part:
            total += tau_meeting(weights, v, before, set(parts[i - 1])) if i else tau(weights, v, set())
        before |= {*part}
    return total


def swaps(parts: Partition) -> Proposals:
    """Exchange a variable of one part with one of another: of the next part, or of any."""
    m = len(parts)
    if m == 1:
        return [(parts, 1.0)]
    pairs = [((a, a + 1), ADJACENT / (m - 1)) for a in range(m - 1)]
    pairs += [(pair, (1.0 - ADJACENT) / math.comb(m, 2)) for pair in combinations(range(m), 2)]
    found = []
    for (a, b), share in pairs:
        for x in parts[a]:
            for y in parts[b]:
                new = [set(part) for part in parts]
                new[a] = new[a] - {x} | {y}
                new[b] = new[b] - {y} | {x}
                found.append((_tidy(new), share / (len(parts[a]) * len(parts[b]))))
    return found


def splits_and_merges(parts: Partition) -> Proposals:
    """With probability 1/2 each, split a part in two, or merge two neighbouring parts; stay if that is impossible.

    To split, a part of k > 1 variables, a size c < k and a subset of that size are chosen uniformly; the subset becomes
    the earlier part.
    """
    found: Proposals = []
    large = [i for i, part in enumerate(parts) if len(part) > 1]
    for i in large:
        k = len(parts[i])
        for c in range(1, k):
            for first in combinations(parts[i], c):
                rest = tuple(v for v in parts[i] if v not in first)
                share = 0.5 / (len(large) * (k - 1) * math.comb(k, c))
                found.append(((*parts[:i], first, rest, *parts[i + 1 :]), share))
    for i in range(len(parts) - 1):
        merged = tuple(sorted(parts[i] + parts[i + 1]))
        found.append(((*parts[:i], merged, *parts[i + 2 :]), 0.5 / (len(parts) - 1)))
    stay = 1.0 - sum(share for _, share in found)
    return [*found, (parts, stay)] if stay > 1e-12 else found


def _places(parts: Partition, v: int) -> Iterator[Partition]:
    """All states with a variable elsewhere and the others as they are, the present one included: 2 m + 1 of m parts."""
    rest = [tuple(u for u in part if u != v) for part in parts]
    rest = [part for part in rest if part]
    for i, part in enumerate(rest):
        yield (*rest[:i], tuple(sorted((*part, v))), *rest[i + 1 :])
    for i in range(len(rest) + 1):
        yield (*rest[:i], (v,), *rest[i:])


def relocations(parts: Partition) -> Proposals:
    """Move a variable to another part, or to a part of its own between two others, uniformly."""
    n = sum(map(len, parts))
    found = []
    for v in range(n):
        places = [new for new in _places(parts, v) if new != parts]
        found += [(new, 1.0 / (n * len(places))) for new in places]
    return found


def relocations_by_weight(weights: Weights, parts: Partition, v: int) -> Proposals:
    """Move a variable to a place that is drawn from all places by their weights; never rejected."""
    places = list(_places(parts, v))
    scores = [partition_score(weights, new) for new in places]
    total = log_sum(scores)
    return [(new, math.exp(x - total)) for new, x in zip(places, scores, strict=True)]


def reversals(weights: Weights, graph: Graph) -> list[tuple[Graph, float, float]]:
    """Reverse an arc, and draw the parents of both ends again (Grzegorczyk and Husmeier, 2008).

    An arc i -> j is chosen uniformly. Both ends lose their parents; i draws a set with j that makes no cycle, then j
    draws one that makes none.
    """
    # returns list of (graph, probability of the proposal, probability of its acceptance)
    n = len(graph)
    arcs = [(i, j) for j in range(n) for i in graph[j]]
    found = []
    for i, j in arcs:
        orphaned = tuple(() if v in (i, j) else graph[v] for v in range(n))
        below_i, below_j = _descendants(orphaned, i), _descendants(orphaned, j)
        free_i, free_j = set(range(n)) - below_i, set(range(n)) - below_j
        free = free_i & free_j
        if j not in free_i:
            continue
        z1, z2 = hit(weights, i, j, free_i), tau(weights, j, free)
        z3, z4 = hit(weights, j, i, free_j), tau(weights, i, free)
        for of_i in _sets(weights, i, free_i, j):
            for of_j in _sets(weights, j, free, None):
                new = tuple(of_i if v == i else of_j if v == j else graph[v] for v in range(n))
                share = math.exp(weights[i, of_i] + weights[j, of_j] - z1 - z2) / len(arcs)
                ratio = len(arcs) / sum(map(len, new)) * math.exp(z1 + z2 - z3 - z4)
                found.append((new, share, min(1.0, ratio)))
    return found


def _sets(weights: Weights, v: int, allowed: set[int], member: int | None) -> list[tuple[int, ...]]:
    """Parent sets of v of positive weight within some variables, with a member if one is given."""
    return [
        parents
        for (child, parents), w in weights.items()
        if child == v and w > -math.inf and allowed.issuperset(parents) and (member is None or member in parents)
    ]


def _descendants(graph: Graph, v: int) -> set[int]:
    """The descendants of a variable, and the variable."""
    found = {v}
    while True:
        more = {u for u, parents in enumerate(graph) if not found.isdisjoint(parents)} - found
        if not more:
            return found
        found |= more


def _tidy(parts: list[set[int]]) -> Partition:
    return tuple(tuple(sorted(part)) for part in parts)


# The definition of parallel tempering: exchanges of partitions between levels, as lists of their outcomes.
#
# Level i has the target pi(partition)^beta_i, with beta_0 = 1, where the state is a graph. A graph that comes from the
# first level is forgotten, and the partition that comes to it draws one: given the partition, that is the posterior.
# Tests hold the outcomes against detailed balance.

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
