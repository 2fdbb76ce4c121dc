"""Greedy elimination on bit masks: the classic rules, and mixtures of them with noise.

A graph is a list of Python ints, bit u of ``masks[v]`` telling whether u and v are joined. Up to some thousand
vertices this is the fastest thing that pure Python can do, and it needs no compiler.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["DENSE_WORK", "RULES", "Rule", "bits", "greedy_order"]


class Rule(NamedTuple):
    """A score for the next vertex to eliminate; the smallest goes first.

    score = fill * ln(1 + f) + weighted_fill * ln(1 + F) + weight * ln w + degree * ln(1 + d) + noise * uniform(0, 1)

    where f counts the edges that would be added, F sums over them the product of the ends' cardinalities, w is the
    product of the cardinalities of the closed neighbourhood and d the number of neighbours. `own` is taken times the
    log cardinality of the vertex itself, which leaves.
    """

    name: str
    fill: float = 0.0
    weighted_fill: float = 0.0
    weight: float = 0.0
    degree: float = 0.0
    own: float = 0.0
    noise: float = 0.0


DENSE_WORK = 5_000_000  # vertices x edges from which scores are brought up to date only when their turn comes

RULES = {
    rule.name: rule
    for rule in (
        Rule("min-fill", fill=1.0),
        Rule("min-weight", weight=1.0),
        Rule("weighted-min-fill", weighted_fill=1.0),
        Rule("min-neighbours", degree=1.0),
    )
}


def bits(mask: int) -> list[int]:
    """Positions of the set bits, ascending."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def greedy_order(
    masks: Sequence[int], log_card: Sequence[float], card: Sequence[int], rule: Rule, seed: int | None = None
) -> list[int]:
    """An elimination order by a greedy rule; what is simplicial goes at once.

    In dense graphs (`DENSE_WORK`) a vertex keeps its old score until it comes up, and the weights of fill are not
    looked at: pure Python would take minutes.

    Parameters
    ----------
    masks : sequence of int
        The graph; left as it is.
    log_card : sequence of float
        Logarithms of `card`.
    card : sequence of int
    rule : Rule
    seed : int, optional
        Ties are broken by the vertices' numbers, or at random with a seed.

    Returns
    -------
    list of int
        A permutation, first eliminated first.
    """
    n = len(masks)
    adjacent = list(masks)
    chance = random.Random(seed)
    tie = [float(v) for v in range(n)]
    if seed is not None:
        chance.shuffle(tie)
    dense = n * sum(m.bit_count() for m in masks) // 2 > DENSE_WORK
    if dense and rule.weighted_fill:
        rule = rule._replace(fill=rule.fill + rule.weighted_fill, weighted_fill=0.0)
    needs_fill = rule.fill != 0.0 or rule.weighted_fill != 0.0
    stamp = [0] * n
    fills = [0] * n
    stale = [False] * n

    def score(v: int) -> float:
        around = adjacent[v]
        ids = bits(around)
        fill, weighted = _fill(adjacent, around, ids, card, rule.weighted_fill != 0.0)
        fills[v] = fill
        if fill == 0:
            return -math.inf
        value = rule.fill * math.log1p(fill) + rule.degree * math.log1p(len(ids))
        if rule.weighted_fill:
            value += rule.weighted_fill * math.log1p(weighted)
        if rule.weight:
            value += rule.weight * (log_card[v] + sum([log_card[u] for u in ids]))
        value += rule.own * log_card[v]
        if rule.noise:
            value += rule.noise * chance.random()
        return value

    heap = [(score(v), tie[v], v, 0) for v in range(n)]
    heapq.heapify(heap)
    order: list[int] = []
    gone = [False] * n
    while heap:
        _, _, v, made = heapq.heappop(heap)
        if gone[v] or made != stamp[v]:
            continue
        if stale[v]:
            stale[v] = False
            stamp[v] += 1
            heapq.heappush(heap, (score(v), tie[v], v, stamp[v]))
            continue
        gone[v] = True
        order.append(v)
        around = adjacent[v]
        ids = bits(around)
        clear = ~(1 << v)
        changed = around
        for u in ids:
            adjacent[u] &= clear
        if fills[v]:
            for u in ids:
                added = around & ~adjacent[u] & ~(1 << u)
                if added:
                    known = adjacent[u] & ~changed
                    if needs_fill and known and not dense:  # whoever knows both ends of a new edge has less to fill
                        for w in bits(added):
                            changed |= known & adjacent[w]
                    adjacent[u] |= added
        for u in bits(changed):
            # a simplicial vertex stays so unless it gets new neighbours
            if dense:
                stale[u] = True
            elif not gone[u] and (fills[u] or (fills[v] and around >> u & 1)):
                stamp[u] += 1
                heapq.heappush(heap, (score(u), tie[u], u, stamp[u]))
    return order


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
