"""The definition of everything that the compiled loops of structure learning compute: plain, slow, for few variables.

A family is a child and the ascending tuple of its parents. Weights of families are natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from jtgpu.learn.dags.scores.rules import ScoreRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jtgpu.learn.dags.scores.coded import CodedTable

PSEUDO_COUNTS = {"k2": 1.0, "bdj": 0.5}
Weights = Mapping[tuple[int, tuple[int, ...]], float]  # ln weight of each family


def all_families(n: int, max_parents: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every child with every set of at most `max_parents` parents."""
    for v in range(n):
        others = [u for u in range(n) if u != v]
        for size in range(max_parents + 1):
            for parents in combinations(others, size):
                yield v, parents


def family_counts(table: CodedTable, v: int, parents: tuple[int, ...]) -> NDArray[np.int64]:
    """Number of cases by configuration of the parents and state of the child, (q, r)."""
    card = table.cardinality
    counts = np.zeros([*(card[u] for u in parents), card[v]], np.int64)
    weights = np.ones(table.codes.shape[1], np.int64) if table.weights is None else table.weights
    for row, weight in zip(table.codes.T, weights, strict=True):
        counts[tuple(row[u] for u in (*parents, v))] += weight
    return counts.reshape(-1, card[v])


def family_score(counts: NDArray[np.int64], rule: ScoreRule, n_cases: int) -> float:
    """Score of a family, ln P(counts) or a penalised log-likelihood; see `ScoreRule`."""
    q, r = counts.shape
    if rule.name in ("bic", "aic"):
        likelihood = math.fsum(n * math.log(n / sum(row)) for row in counts.tolist() for n in row if n)
        return float(likelihood - rule.penalty(n_cases) * q * (r - 1))
    if rule.name == "bds":
        counts = counts[counts.sum(axis=1) > 0]
    a = float(PSEUDO_COUNTS.get(rule.name, rule.ess / max(counts.size, 1)))
    total = 0.0
    for row in counts.tolist():
        total += math.lgamma(r * a) - math.lgamma(r * a + sum(row))
        total += sum(math.lgamma(a + n) - math.lgamma(a) for n in row)
    return total


def score_all(table: CodedTable, rule: ScoreRule, max_parents: int) -> dict[tuple[int, tuple[int, ...]], float]:
    """Scores of all families."""
    return {
        (v, parents): family_score(family_counts(table, v, parents), rule, table.n_cases)
        for v, parents in all_families(len(table.names), max_parents)
    }


def log_sum(values: Iterable[float]) -> float:
    """Ln of a sum of exponentials; -inf for none."""
    values = [x for x in values if x > -math.inf]
    if not values:
        return -math.inf
    most = max(values)
    return most + math.log(math.fsum(math.exp(x - most) for x in values))


def tau(weights: Weights, v: int, allowed: set[int]) -> float:
    """Ln of the total weight of a child's parent sets within some variables."""
    return log_sum(w for (child, parents), w in weights.items() if child == v and allowed.issuperset(parents))


def tau_meeting(weights: Weights, v: int, allowed: set[int], met: set[int]) -> float:
    """`tau` of the parent sets that have a member in `met`."""
    return log_sum(
        w for (child, p), w in weights.items() if child == v and allowed.issuperset(p) and not met.isdisjoint(p)
    )


def hit(weights: Weights, v: int, u: int, allowed: set[int]) -> float:
    """`tau` of the parent sets that contain u."""
    return tau_meeting(weights, v, allowed, {u})


def order_score(weights: Weights, order: Iterable[int]) -> float:
    """Ln of the total weight of the graphs that an order of the variables allows."""
    before: set[int] = set()
    total = 0.0
    for v in order:
        total += tau(weights, v, before)
        before.add(v)
    return total


def relocation_scores(weights: Weights, order: list[int], v: int) -> list[float]:
    """`order_score` after v is moved to each position, 0 to n - 1."""
    rest = [u for u in order if u != v]
    return [order_score(weights, [*rest[:p], v, *rest[p:]]) for p in range(len(order))]
