"""Sums over all graphs of up to five variables, and scores by their formulas; imports nothing of learn."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

Graph = tuple[tuple[int, ...], ...]  # ascending parents of each variable
LogWeights = Mapping[tuple[int, tuple[int, ...]], float]


def is_acyclic(graph: Graph) -> bool:
    """Whether the variables can be removed one by one, each without parents left."""
    left = set(range(len(graph)))
    while left:
        roots = {v for v in left if left.isdisjoint(graph[v])}
        if not roots:
            return False
        left -= roots
    return True


@functools.cache
def all_graphs(n: int) -> tuple[Graph, ...]:
    """All directed acyclic graphs: 3, 25, 543 and 29,281 for n = 2 to 5."""

    def extended() -> Iterator[Graph]:
        sets = [
            [s for size in range(n) for s in itertools.combinations([u for u in range(n) if u != v], size)]
            for v in range(n)
        ]

        def grow(chosen: tuple[tuple[int, ...], ...]) -> Iterator[Graph]:
            v = len(chosen)
            if v == n:
                yield chosen
                return
            for parents in sets[v]:
                candidate = (*chosen, parents)
                if not _has_cycle(candidate):
                    yield from grow(candidate)

        yield from grow(())

    return tuple(extended())


def _has_cycle(parents: tuple[tuple[int, ...], ...]) -> bool:
    """Whether the last variable is its own ancestor."""
    seen: set[int] = set()
    stack = list(parents[-1])
    while stack:
        u = stack.pop()
        if u == len(parents) - 1:
            return True
        if u < len(parents) and u not in seen:
            seen.add(u)
            stack.extend(parents[u])
    return False


def n_orders(graph: Graph) -> int:
    """Number of orders in which every variable follows its parents."""

    @functools.cache
    def count(placed: int) -> int:
        if placed == (1 << len(graph)) - 1:
            return 1
        ready = (v for v in range(len(graph)) if not placed >> v & 1 and all(placed >> p & 1 for p in graph[v]))
        return sum(count(placed | 1 << v) for v in ready)

    return count(0)


def log_sum(values: Iterable[float]) -> float:
    """ln of a sum of exponentials."""
    found = [x for x in values if x > -math.inf]
    top = max(found)
    return top + math.log(math.fsum(math.exp(x - top) for x in found))


def posterior(weights: LogWeights, n: int, by_orders: bool) -> tuple[float, dict[tuple[int, tuple[int, ...]], float]]:
    """ln of the total weight of all graphs, and the probability of each family."""
    graphs = all_graphs(n)
    logs = [
        sum(weights.get((v, graph[v]), -math.inf) for v in range(n)) + (math.log(n_orders(graph)) if by_orders else 0.0)
        for graph in graphs
    ]
    total = log_sum(logs)
    shares: dict[tuple[int, tuple[int, ...]], list[float]] = {}
    for graph, x in zip(graphs, logs, strict=True):
        for v in range(n):
            shares.setdefault((v, graph[v]), []).append(math.exp(x - total))
    return total, {family: math.fsum(p) for family, p in shares.items()}


def score(counts: list[list[int]], name: str, ess: float, n_cases: int) -> float:
    """Score of a family from its counts, configuration by configuration."""
    q, r = len(counts), len(counts[0])
    if name in ("bic", "aic"):
        likelihood = sum(n * math.log(n / sum(row)) for row in counts for n in row if n)
        return likelihood - (math.log(n_cases) / 2 if name == "bic" else 1.0) * q * (r - 1)
    if name == "bds":
        counts = [row for row in counts if sum(row)]
        q = len(counts)
    a = {"k2": 1.0, "bdj": 0.5}.get(name, ess / (q * r))
    return math.fsum(
        term
        for row in counts
        for term in (
            math.lgamma(a * r),
            -math.lgamma(a * r + sum(row)),
            *(math.lgamma(a + n) - math.lgamma(a) for n in row),
        )
    )


def counts_of(columns: list[list[int]], cards: list[int], weights: list[int] | None = None) -> list[list[int]]:
    """Counts of the last column's states by the configuration of the others."""
    found = {
        key: [0] * cards[-1] for key in itertools.product(*(range(c) for c in cards[:-1]))
    }  # configurations that do not occur have rows as well
    for t, row in enumerate(zip(*columns, strict=True)):
        found[row[:-1]][row[-1]] += 1 if weights is None else weights[t]
    return list(found.values())
