"""The contractions of one clique: all tables at once, or two at a time."""

from __future__ import annotations

import heapq
import math
from functools import cache

from .forest import ContractionForest

MAX_EXACT = 7  # children of a clique up to which the best split into pairs is searched exactly (3^7 splits)


def contract_all(forest: ContractionForest, nodes: list[int]) -> int:
    """One node over all of the given ones: the lowering ``"clique"``."""
    if len(nodes) > MAX_EXACT:  # a star: one product of a thousand messages would be slow and underflow
        nodes = _merge_equals(forest, sorted(nodes))
    if len(nodes) == 1 and forest.needed_outside(nodes) == forest.scope[nodes[0]]:
        return nodes[0]
    return forest.contract(nodes)


def contract_pairwise(forest: ContractionForest, nodes: list[int]) -> int:
    """Contract the nodes two at a time: greedily while there are many, by the best of all splits at the end."""
    nodes = sorted(nodes)
    if len(nodes) > MAX_EXACT:
        nodes = _merge_greedily(forest, _merge_equals(forest, nodes))
    if len(nodes) == 1:
        return contract_all(forest, nodes)
    return _contract_split(forest, nodes, _best_splits(forest, nodes), (1 << len(nodes)) - 1)


def _merge_equals(forest: ContractionForest, nodes: list[int]) -> list[int]:
    """Multiply nodes of equal outer scope by a balanced tree, so that a star has few levels."""
    groups: dict[frozenset[int], list[int]] = {}
    for n in nodes:
        groups.setdefault(forest.needed_outside([n]), []).append(n)
    merged = []
    for group in groups.values():
        while len(group) > 1:
            pairs = zip(group[::2], group[1::2], strict=False)
            group = [contract_pair(forest, a, b) for a, b in pairs] + group[len(group) & ~1 :]
        merged.append(group[0])
    return sorted(merged)


def _merge_greedily(forest: ContractionForest, nodes: list[int]) -> list[int]:
    """Contract the pair that shrinks the tables most until few enough nodes are left for an exact search."""
    reduced = {n: forest.needed_outside([n]) for n in nodes}
    size = {n: forest.size(reduced[n]) for n in nodes}

    def entry(a: int, b: int) -> tuple[int, int, int, int]:
        joint = forest.size(reduced[a] | reduced[b])
        return (joint - size[a] - size[b], joint, min(a, b), max(a, b))

    heap = [entry(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :] if reduced[a] & reduced[b]]
    heapq.heapify(heap)
    while len(reduced) > MAX_EXACT:
        if not heap:  # no two nodes share variables: take the smallest two
            first, second, *_ = sorted(reduced, key=lambda n: (size[n], n))
            heap.append(entry(first, second))
        _, _, a, b = heapq.heappop(heap)
        if a not in reduced or b not in reduced:
            continue
        new = contract_pair(forest, a, b)
        del reduced[a], reduced[b]
        reduced[new] = forest.scope[new]
        size[new] = forest.size(forest.scope[new])
        for n in reduced:
            if n != new and reduced[n] & reduced[new]:
                heapq.heappush(heap, entry(n, new))
    return sorted(reduced)


def contract_pair(forest: ContractionForest, a: int, b: int) -> int:
    """One node over a pair; where it makes the joint table smaller, a child is summed onto what others need first."""
    for first, second in ((a, b), (b, a)):
        kept = forest.needed_outside([first])
        if kept < forest.scope[first] and not forest.scope[second] <= forest.scope[first]:
            summed = forest.contract([first])
            a, b = (summed, b) if first == a else (a, summed)
    return forest.contract([a, b])


def _best_splits(forest: ContractionForest, nodes: list[int]) -> dict[int, int]:
    """For each subset of the nodes (as a bit mask), one half of its cheapest split, by dynamic programming."""
    k = len(nodes)
    bit: dict[int, int] = {}
    for n in nodes:
        for v in sorted(forest.scope[n]):
            bit.setdefault(v, len(bit))
    cards = [forest.cardinality[v] for v in bit]
    inside = [0] * len(bit)
    for n in nodes:
        for v in forest.scope[n]:
            inside[bit[v]] += 1
    outside = sum(1 << i for v, i in bit.items() if forest.live[v] > inside[i])
    scope = [sum(1 << bit[v] for v in forest.scope[n]) for n in nodes]

    @cache
    def size(mask: int) -> int:
        return math.prod(cards[i] for i in range(mask.bit_length()) if mask >> i & 1)

    union = [0] * (1 << k)
    for s in range(1, 1 << k):
        low = (s & -s).bit_length() - 1
        union[s] = union[s & (s - 1)] | scope[low]
    full = (1 << k) - 1
    out = [union[s] & (outside | union[full ^ s]) for s in range(1 << k)]
    cost: list[float] = [0.0] * (1 << k)
    half = {}
    for s in range(1, 1 << k):
        if s & (s - 1) == 0:
            cost[s] = float(size(union[s])) if out[s] != union[s] else 0.0
            continue
        best = math.inf
        a = (s - 1) & s
        while a:
            b = s ^ a
            if a > b:  # each split once
                # forward once, backward at most twice over the pair's joint table; each result is written and read
                c = cost[a] + cost[b] + 3.0 * size(out[a] | out[b]) + 2.0 * size(out[s])
                if c < best:
                    best, half[s] = c, a
            a = (a - 1) & s
        cost[s] = best
    return half


def _contract_split(forest: ContractionForest, nodes: list[int], half: dict[int, int], subset: int) -> int:
    """Contract a subset of the nodes by its cheapest splits."""
    if subset & (subset - 1) == 0:
        return nodes[subset.bit_length() - 1]
    a = half[subset]
    return contract_pair(
        forest, _contract_split(forest, nodes, half, a), _contract_split(forest, nodes, half, subset ^ a)
    )
