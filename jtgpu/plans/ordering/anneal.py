"""Greedy elimination orders, and local search on an atom's elimination forest: chains of the compiled annealer.

A chain starts from a given order, optionally anneals the whole forest with a softened cost, and then anneals one small
connected region of the forest after another with the rest fixed, accepting results that are not worse. A chain depends
only on its seed and budget, so the number of threads affects nothing but the time. The compiled code releases the GIL
and stops at a flag.
"""

from __future__ import annotations

import functools
import heapq
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...util.array_types import Matrix
from ...util.elementary import exp, log
from ...util.loops import loops
from .elimination import fill_masks, remove_needless_fill
from .reduce import Atom, bits

# Greedy elimination orders: min-fill, min-weight and the like, and noisy mixtures of these rules.
#
# The graph is a list of bit masks (see `jtgpu.plans.ordering.reduce`).

@functools.lru_cache(1 << 16)
def _log1p(count: int) -> float:
    return log(1.0 + count)


class GreedyRule(NamedTuple):
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
        GreedyRule("min-fill", fill=1.0),
        GreedyRule("min-weight", weight=1.0),
        GreedyRule("weighted-min-fill", weighted_fill=1.0),
        GreedyRule("min-neighbours", degree=1.0),
    )
}


def greedy_order(
    masks: Sequence[int], log_card: Sequence[float], card: Sequence[int], rule: GreedyRule, seed: int | None = None
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
        self, masks: Sequence[int], log_card: Sequence[float], card: Sequence[int], rule: GreedyRule, seed: int | None
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


_loops = loops("jtgpu.plans.loops.regions")

Cost = tuple[int, int]


class AtomGraph(NamedTuple):
    """A graph of n vertices with two costs."""

    adjacent: Matrix[np.uint64]  # (n, W) rows of bits
    weight: NDArray[np.float64]  # (n,) factor of each vertex in the cost of a clique
    soft: NDArray[np.float64]  # (n,) the same to a power below 1: a smoother cost, annealed before the true one


class AnnealingRun(NamedTuple):
    """One run of the annealer."""

    # n_steps, n_start: Rotations in total, and those of the whole forest with the softened cost
    n_steps: int
    n_start: int
    start_hot: float  # initial temperature of the latter relative to the total cost
    power: float  # exponent of the softened cost
    high_size: int  # size of the largest region
    soft_share: float  # share of regions that are annealed with the softened cost first
    seed: int


def chains_of_round(n: int, turn: int, n_chains: int, steps: int, seed: int) -> list[AnnealingRun]:
    """The chains of one round on an atom of n vertices: half anneal the whole forest first, half only regions.

    The parameters were found by experiment: small regions suit graphs of many loosely connected parts (Munin2); a
    softened cost and large regions escape the local optima of Link.
    """
    out = []
    for k in range(n_chains):
        chance = random.Random(f"{seed}/{turn}/{k}")
        from_scratch = (k + turn) % 2 == 1
        out.append(
            AnnealingRun(
                n_steps=steps,
                n_start=steps // 2 if from_scratch else 0,
                start_hot=exp(chance.uniform(log(0.05), log(0.4))),
                power=chance.uniform(0.3, 0.5) if from_scratch else chance.choice((0.3, 0.4, 0.5, 0.6)),
                high_size=min(n, chance.choice((40, 60, 120) if turn % 2 else (60, 60, 200))),
                soft_share=chance.choice((0.1, 0.5, 0.8)),
                seed=chance.getrandbits(62),
            )
        )
    return out


def run_chain(
    atom: Atom,
    order: Sequence[int],
    chain: AnnealingRun,
    exponent: float,
    stop: NDArray[np.uint8],
    measure: Callable[[Atom, Sequence[int]], Cost],
) -> tuple[Cost, list[int]]:
    """Run one chain from an order; the better of its result and of the same without needless fill."""
    # exponent: The sum of the clique sizes to this power is annealed: 1 for the total, higher to emphasise the largest
    # stop: (1,) uint8: Ends the chain early when another thread sets it to 1
    # measure: The true cost of an order of the atom, smaller is better
    n = len(atom.card)
    logs = [log(c) for c in atom.card]
    exponent = min(exponent, 600.0 / max(math.fsum(logs), 1.0))  # sums of powers must not overflow
    n_words = (n + 63) // 64
    words = (1 << 64) - 1
    adjacent = np.array([[m >> 64 * k & words for k in range(n_words)] for m in atom.masks], np.uint64)
    weight = np.array([float(c) for c in atom.card] if exponent == 1.0 else [exp(exponent * x) for x in logs])
    soft = np.array([exp(exponent * chain.power * x) for x in logs])
    parent = forest_of_order(atom.masks, order)
    _loops.improve(AtomGraph(adjacent, weight, soft), parent, chain, stop)
    order = order_of_forest(parent.tolist())
    cleaned = remove_needless_fill(atom.masks, order)
    return min((measure(atom, order), order), (measure(atom, cleaned), cleaned))


def forest_of_order(masks: Sequence[int], order: Sequence[int]) -> NDArray[np.int64]:
    """(n,) int64: the elimination forest, -1 at roots."""
    position = [0] * len(order)
    for i, v in enumerate(order):
        position[v] = i
    later = fill_masks(masks, order)
    return np.array([min(bits(m), key=position.__getitem__) if m else -1 for m in later], np.int64)


def order_of_forest(parent: Sequence[int]) -> list[int]:
    """An order with this elimination forest: children before parents, otherwise by number."""
    waiting = [0] * len(parent)
    for p in parent:
        if p >= 0:
            waiting[p] += 1
    stack = [v for v in reversed(range(len(parent))) if waiting[v] == 0]
    order = []
    while stack:
        v = stack.pop()
        order.append(v)
        p = parent[v]
        if p >= 0:
            waiting[p] -= 1
            if waiting[p] == 0:
                stack.append(p)
    return order
