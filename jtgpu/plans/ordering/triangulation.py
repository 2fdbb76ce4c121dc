"""The triangulation that an order of an atom induces: its fill, its cost, and a minimal one inside it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from .bitmasks import bits
from .reduce import Atom

CLEAN_WORK = 5_000_000  # fill edges x vertices up to which needless fill is removed


def fill_masks(masks: Sequence[int], order: Sequence[int]) -> list[int]:
    """For each vertex, the mask of its later neighbours when it is eliminated."""
    n = len(masks)
    later = [0] * n
    position = [0] * n
    for i, v in enumerate(order):
        position[v] = i
    left = (1 << n) - 1
    for v in order:
        left &= ~(1 << v)
        mine = (later[v] | masks[v]) & left
        later[v] = mine
        if mine:
            later[min(bits(mine), key=position.__getitem__)] |= mine
    return later


def atom_cost(atom: Atom, order: Sequence[int]) -> tuple[int, int]:
    """Total and largest number of entries of the maximal cliques that an order of an atom induces."""
    later = fill_masks(atom.masks, order)
    position = [0] * len(order)
    for i, v in enumerate(order):
        position[v] = i
    sizes = [m.bit_count() for m in later]
    keep = [True] * len(order)
    members = [bits(m) for m in later]
    for v, above in enumerate(members):
        if above:
            p = min(above, key=position.__getitem__)
            if sizes[v] == sizes[p] + 1:
                keep[p] = False
    tables = [
        math.prod([atom.card[u] for u in members[v]]) * atom.card[v]
        for v in range(len(order))
        if keep[v] and later[v] | 1 << v not in atom.free
    ]
    return sum(tables), max(tables, default=0)


def perfect_order(filled: Sequence[set[int]], vertices: Sequence[int]) -> list[int]:
    """A perfect elimination order of a chordal graph by maximum cardinality search; ties by number.

    Only edges among `vertices` count.
    """
    weight = dict.fromkeys(vertices, 0)
    heap = [(0, v) for v in vertices]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        key, v = heapq.heappop(heap)
        if weight.get(v) != -key:
            continue
        del weight[v]
        order.append(v)
        for u in filled[v]:
            if u in weight:
                weight[u] += 1
                heapq.heappush(heap, (-weight[u], u))
    return order[::-1]


def remove_needless_fill(masks: Sequence[int], order: Sequence[int]) -> list[int]:
    """An order of a minimal triangulation inside that of `order`.

    A fill edge can be removed if the graph stays chordal, that is, if the common neighbours of its ends are a clique
    (Rose, Tarjan, Lueker 1976); this is repeated until no edge can be removed. With two states or more per vertex the
    cost never rises. In dense graphs (more than `CLEAN_WORK`) the order is returned unchanged: this is pure Python.
    """
    filled = list(masks)
    later = fill_masks(masks, order)
    fill: list[tuple[int, int]] = []
    for v in order:
        for u in bits(later[v]):
            filled[v] |= 1 << u
            filled[u] |= 1 << v
            if not masks[v] >> u & 1:
                fill.append((v, u))
    if len(fill) * len(masks) > CLEAN_WORK:
        return list(order)
    dropped = True
    any_dropped = False
    while dropped:
        dropped = False
        kept = []
        for v, u in reversed(fill):
            common = filled[v] & filled[u]
            if all(not common & ~filled[w] & ~(1 << w) for w in bits(common)):
                filled[v] &= ~(1 << u)
                filled[u] &= ~(1 << v)
                dropped = any_dropped = True
            else:
                kept.append((v, u))
        fill = kept[::-1]
    if not any_dropped:
        return list(order)
    return perfect_order([set(bits(m)) for m in filled], range(len(masks)))
