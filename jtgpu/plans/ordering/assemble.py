"""From orders of the atoms back to one order of the graph, and the clean-up of needless fill."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from .greedy import bits
from .reduce import Atom, Reduction, symmetric

__all__ = ["fill_masks", "join_orders", "perfect_order", "remove_needless_fill"]

CLEAN_WORK = 5_000_000


def fill_masks(masks: Sequence[int], order: Sequence[int]) -> list[int]:
    """For every vertex the mask of the later neighbours that it has when it is eliminated."""
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


def join_orders(
    neighbours: Sequence[Iterable[int]], reduction: Reduction, orders: Sequence[Sequence[int]]
) -> list[int]:
    """The order of the whole graph whose triangulation is the union of the atoms' triangulations.

    Parameters
    ----------
    neighbours : sequence of int iterables
        The graph that was reduced.
    reduction : Reduction
    orders : one sequence of local vertices per atom

    Returns
    -------
    list of int
    """
    filled = symmetric(neighbours)
    for clique in reduction.prefix_cliques:
        filled_in = set(clique)
        for v in clique:
            filled[v] |= filled_in
            filled[v].discard(v)
    for atom, order in zip(reduction.atoms, orders, strict=True):
        _add_fill(filled, atom, order)
    gone = set(reduction.prefix)
    rest = [v for v in range(len(filled)) if v not in gone]
    return [*reduction.prefix, *perfect_order(filled, rest)]


def _add_fill(filled: list[set[int]], atom: Atom, order: Sequence[int]) -> None:
    later = fill_masks(atom.masks, order)
    for v, names in enumerate(atom.vertices):
        # twins are joined to each other already
        above = [u for w in bits(later[v] & ~atom.masks[v]) for u in atom.vertices[w]]
        for a in names:
            filled[a].update(above)
            for u in above:
                filled[u].add(a)


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

    A fill edge may go while the graph stays chordal, that is, while its ends' common neighbours are a clique (Rose,
    Tarjan, Lueker 1976); this is done until no edge can. With two states or more per vertex the cost never rises.
    Dense graphs (more than `CLEAN_WORK` fill edges x vertices) are handed back as they are: this is pure Python.
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
