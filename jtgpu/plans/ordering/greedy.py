"""Greedy elimination orders: min-fill, min-weight and the like, and noisy mixtures of these rules.

The graph is a list of bit masks (see `jtgpu.plans.ordering.reduce`).
"""

from __future__ import annotations

import functools
import heapq
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from ...util.elementary import log
from .reduce import bits


@functools.lru_cache(1 << 16)
def _log1p(count: int) -> float:
    return log(1.0 + count)


class Rule(NamedTuple):
    """A score for the next vertex to eliminate; the smallest goes first.

    score = fill * ln(1 + f) + weighted_fill * ln(1 + F) + weight * ln w + degree * ln(1 + d) + noise * uniform(0, 1)

    where f counts the edges that would be added, F sums over them the product of the ends' cardinalities, w is the
    product of the cardinalities of the closed neighbourhood and d the number of neighbours. `own` multiplies the log
    cardinality of the eliminated vertex itself.
    """

    name: str
    fill: float = 0.0
    weighted_fill: float = 0.0
    weight: float = 0.0
    degree: float = 0.0
    own: float = 0.0
    noise: float = 0.0


DENSE_WORK = 5_000_000  # vertices x edges above which scores are updated lazily

RULES = {
    rule.name: rule
    for rule in (
        Rule("min-fill", fill=1.0),
        Rule("min-weight", weight=1.0),
        Rule("weighted-min-fill", weighted_fill=1.0),
        Rule("min-neighbours", degree=1.0),
    )
}


def greedy_order(
    masks: Sequence[int], log_card: Sequence[float], card: Sequence[int], rule: Rule, seed: int | None = None
) -> list[int]:
    """An elimination order by a greedy rule; simplicial vertices are eliminated immediately.

    In dense graphs (more than `DENSE_WORK`) the score of a vertex is updated only when the vertex reaches the head of
    the queue, and weighted fill is replaced by fill: pure Python would take minutes otherwise.
    """
    # masks: sequence of int: The graph; not modified
    # log_card: sequence of float: Logarithms of `card`
    # seed: Break ties at random with this seed; by default, by vertex number
    # returns list of int: A permutation, first eliminated first.
    return _Elimination(masks, log_card, card, rule, seed).run()


class _Elimination:
    """The remaining graph and the priority queue of one greedy elimination.

    Queue entries are ``(score, tie, vertex, version)``; only the entry with the vertex's current version counts.
    """

    def __init__(
        self, masks: Sequence[int], log_card: Sequence[float], card: Sequence[int], rule: Rule, seed: int | None
    ):
        n = len(masks)
        self.dense = n * sum(m.bit_count() for m in masks) // 2 > DENSE_WORK
        if self.dense and rule.weighted_fill:
            rule = rule._replace(fill=rule.fill + rule.weighted_fill, weighted_fill=0.0)
        self.rule, self.card, self.log_card = rule, card, log_card
        self.needs_fill = rule.fill != 0.0 or rule.weighted_fill != 0.0
        self.chance = random.Random(seed)
        self.tie = [float(v) for v in range(n)]
        if seed is not None:
            self.chance.shuffle(self.tie)
        self.adjacent = list(masks)
        self.fills = [0] * n  # fill edges of each vertex when its score was computed
        self.version = [0] * n
        self.stale = [False] * n  # in dense graphs: the score is out of date
        self.gone = [False] * n
        self.heap = [(self.score(v), self.tie[v], v, 0) for v in range(n)]
        heapq.heapify(self.heap)

    def score(self, v: int) -> float:
        """The rule's score of a vertex; minus infinity if it is simplicial."""
        rule, around = self.rule, self.adjacent[v]
        ids = bits(around)
        fill, weighted = _fill(self.adjacent, around, ids, self.card, rule.weighted_fill != 0.0)
        self.fills[v] = fill
        if fill == 0:
            return -math.inf
        value = rule.fill * _log1p(fill) + rule.degree * _log1p(len(ids))
        if rule.weighted_fill:
            value += rule.weighted_fill * _log1p(weighted)
        if rule.weight:
            log_card = self.log_card
            value += rule.weight * math.fsum([log_card[v], *[log_card[u] for u in ids]])  # sum() depends on Python
        value += rule.own * self.log_card[v]
        if rule.noise:
            value += rule.noise * self.chance.random()
        return value

    def push(self, v: int) -> None:
        """Compute the score of a vertex again and queue it."""
        self.version[v] += 1
        heapq.heappush(self.heap, (self.score(v), self.tie[v], v, self.version[v]))

    def run(self) -> list[int]:
        """Eliminate all vertices; their order."""
        order: list[int] = []
        heap, fills, gone, stale, dense = self.heap, self.fills, self.gone, self.stale, self.dense
        while heap:
            _, _, v, version = heapq.heappop(heap)
            if gone[v] or version != self.version[v]:
                continue
            if stale[v]:
                stale[v] = False
                self.push(v)
                continue
            gone[v] = True
            order.append(v)
            around = self.adjacent[v]
            for u in bits(self.eliminate(v)):
                # a simplicial vertex stays simplicial unless it gets new neighbours
                if dense:
                    stale[u] = True
                elif not gone[u] and (fills[u] or (fills[v] and around >> u & 1)):
                    self.push(u)
        return order

    def eliminate(self, v: int) -> int:
        """Remove a vertex and join its neighbours; the mask of the vertices whose scores may change."""
        adjacent = self.adjacent
        around = changed = adjacent[v]
        ids = bits(around)
        clear = ~(1 << v)
        for u in ids:
            adjacent[u] &= clear
        if not self.fills[v]:
            return changed
        for u in ids:
            added = around & ~adjacent[u] & ~(1 << u)
            if added:
                known = adjacent[u] & ~changed
                if self.needs_fill and known and not self.dense:
                    for w in bits(added):  # a common neighbour of a new edge's ends has less to fill
                        changed |= known & adjacent[w]
                adjacent[u] |= added
        return changed


def _fill(
    adjacent: Sequence[int], around: int, ids: Sequence[int], card: Sequence[int], weighted: bool
) -> tuple[int, float]:
    """Edges missing among `ids` (the bits of `around`), and the sum of the products of their ends' cardinalities."""
    count, total = 0, 0.0
    rest = around
    for u in ids:
        rest &= rest - 1  # drop u, the lowest bit: every pair is met once
        missing = rest & ~adjacent[u]
        if missing:
            count += missing.bit_count()
            if weighted:
                total += card[u] * sum([card[w] for w in bits(missing)])
    return count, total
