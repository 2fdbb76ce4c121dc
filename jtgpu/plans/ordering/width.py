"""A lower bound of the largest clique that every elimination order makes."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Collection, Sequence

from .reduce import symmetric

UNIT = 256  # weights are integers, in 1/256 bit: the result is the same on every machine
SPARSE = 5  # neighbours of a vertex on average below which contraction finds no high bound; munin has 3


@functools.cache
def _weight(card: int) -> int:
    """``log2(card)`` in units, rounded down."""
    return int(card**UNIT).bit_length() - 1


def least_clique_bits(card: Sequence[int], neighbours: Sequence[Collection[int]], enough: int) -> int:
    """Bits of the number of entries that the largest clique of every triangulation has at least, rounded down.

    Minor-min-width (Gogate and Dechter 2004) with weights: the vertex whose closed neighbourhood has the fewest entries
    is contracted into a neighbour; the largest of these neighbourhoods is a bound. In every minor, a leaf of a tree
    decomposition contains a vertex with all its neighbours; a merged vertex weighs as its lightest member, since a bag
    contains at least one of them.
    """
    # enough: Bits from which the bound matters; the result is 0 if it is lower, and for sparse graphs
    weight, goal = [_weight(c) for c in card], enough * UNIT
    left = sum(weight)
    if left < goal or sum(map(len, neighbours)) < SPARSE * len(weight):
        return 0
    adjacent = symmetric(neighbours)
    closed = [weight[v] + sum(weight[u] for u in around) for v, around in enumerate(adjacent)]
    queue = [(w, v) for v, w in enumerate(closed)]
    heapq.heapify(queue)
    best = 0
    while queue and left > best and (best >= goal or left >= goal):
        w, v = heapq.heappop(queue)
        if closed[v] != w:  # an earlier weight
            continue
        best = max(best, w)
        around = adjacent[v]
        closed[v] = -1
        left -= weight[v]
        if not around:
            continue
        into = min(around, key=lambda u: (closed[u], u))
        lighter = max(weight[into] - weight[v], 0)
        for u in around:
            adjacent[u].discard(v)
            closed[u] -= weight[v]
        for u in around - adjacent[into] - {into}:
            adjacent[u].add(into)
            adjacent[into].add(u)
            closed[u] += weight[into]
            closed[into] += weight[u]
        if lighter:
            weight[into] -= lighter
            left -= lighter
            for u in (into, *adjacent[into]):
                closed[u] -= lighter
        for u in {*around, *(adjacent[into] if lighter else ())}:
            heapq.heappush(queue, (closed[u], u))
    return best // UNIT if best >= goal else 0
