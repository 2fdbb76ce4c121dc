"""Exact preprocessing: what can be split off or eliminated at no loss, so that a search works on what is left.

Safe for the total of the maximal cliques' entries, and for the largest of them, when every vertex has at least two
states (a search in tests/plans/test_ordering.py over all orders of small graphs holds each rule to it):

* a *simplicial* vertex (its neighbours are joined to each other) is eliminated first. Its closed neighbourhood lies in
  some clique of every triangulation; moving the vertex to the front of an order leaves every other clique a subset of
  what it was;
* *components* and the *atoms* between clique minimal separators are solved apart. With two states or more, taking a
  needless fill edge {a, b} out of a triangulation replaces a clique of w entries by at most w/a + w/b <= w, so some
  best triangulation is minimal, and a minimal triangulation is the union of minimal triangulations of the atoms
  (Tarjan 1985; Leimer 1993), no clique of which is a separator;
* *true twins* (same closed neighbourhood) are one vertex with the product of their states: a minimal separator holds
  both or neither, hence so do the cliques of a minimal triangulation.

A variable of one state weighs nothing, and then a triangulation that is not minimal can be better (by the repeated
entries of a clique that a weightless variable makes maximal). The rules are used all the same, and no optimality is
claimed from them unless the bound says so (see `jtgpu.plans.ordering.exact`).

*Almost simplicial* vertices (simplicial but for one neighbour u) are safe for the largest clique when v has no fewer
states than u and v's closed neighbourhood is no larger than a lower bound (van den Eijkhof, Bodlaender, Koster 2007).
For the total they are not: a cycle v-a-b-u of 3, 100, 2 and 2 states costs 1,000 entries when v goes first, else 612.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .bitmasks import bits

__all__ = ["Atom", "Reduction", "atoms", "reduce_graph"]


class Atom(NamedTuple):
    """A piece that is searched on its own.

    Attributes
    ----------
    vertices : tuple of tuple of int
        Local vertex -> the vertices of the graph it stands for (more than one for merged twins).
    card : tuple of int
        Product of the cardinalities of these.
    masks : tuple of int
        Adjacency among local vertices, as bit masks.
    free : frozenset of int
        Masks of cliques that cost nothing: they lie inside the clique of a vertex that was eliminated before.
    """

    vertices: tuple[tuple[int, ...], ...]
    card: tuple[int, ...]
    masks: tuple[int, ...]
    free: frozenset[int]


class Reduction(NamedTuple):
    """What `reduce_graph` leaves.

    Attributes
    ----------
    prefix : list of int
        Vertices eliminated first, in this order.
    prefix_cliques : list of tuple of int
        Their closed neighbourhoods at that moment.
    atoms : list of Atom
        The rest, in pieces; a vertex of a clique separator is in several.
    """

    prefix: list[int]
    prefix_cliques: list[tuple[int, ...]]
    atoms: list[Atom]


def symmetric(neighbours: Sequence[Iterable[int]]) -> list[set[int]]:
    """The graph as sets, without self-loops, every edge seen from both ends."""
    out: list[set[int]] = [set() for _ in neighbours]
    for v, around in enumerate(neighbours):
        for u in around:
            if u != v:
                out[v].add(int(u))
                out[int(u)].add(v)
    return out


def reduce_graph(
    card: Sequence[int], neighbours: Sequence[Iterable[int]], *, largest: bool = False
) -> Reduction:
    """Apply every safe rule until none applies.

    Parameters
    ----------
    card : sequence of int
    neighbours : sequence of int iterables
    largest : bool
        The objective is the largest clique: almost simplicial vertices may go too.
    """
    adjacent = symmetric(neighbours)
    prefix, cliques = _simplicial(adjacent)
    if largest:
        _almost_simplicial(adjacent, card, prefix, cliques)
    gone = set(prefix)
    left = [v for v in range(len(adjacent)) if v not in gone]
    pieces: list[Atom] = []
    held: dict[int, list[frozenset[int]]] = {}  # vertex -> cliques already made that hold it
    for c in cliques:
        clique = frozenset(c[1:]) - gone
        for v in clique:
            held.setdefault(v, []).append(clique)
    for component in _components(adjacent, left):
        number = {v: i for i, v in enumerate(component)}
        masks = [sum(1 << number[u] for u in adjacent[v]) for v in component]
        pieces += [_merge_twins([component[i] for i in a], card, _sub(masks, a), held) for a in atoms(masks)]
    return Reduction(prefix, cliques, pieces)


def _simplicial(adjacent: list[set[int]]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Eliminate simplicial vertices, smallest number first, until there is none; changes `adjacent`."""
    prefix: list[int] = []
    cliques: list[tuple[int, ...]] = []
    queue = list(range(len(adjacent)))
    queued = [True] * len(adjacent)
    gone = [False] * len(adjacent)
    while queue:
        v = heapq.heappop(queue)
        queued[v] = False
        if gone[v] or not _is_clique(adjacent, adjacent[v]):
            continue
        gone[v] = True
        prefix.append(v)
        cliques.append((v, *sorted(adjacent[v])))
        for u in adjacent[v]:
            adjacent[u].discard(v)
            if not queued[u]:
                queued[u] = True
                heapq.heappush(queue, u)
        adjacent[v] = set()
    return prefix, cliques


def _is_clique(adjacent: Sequence[set[int]], vertices: set[int]) -> bool:
    if len(vertices) < 2:
        return True
    # every member knows all the others; the first that does not ends the test
    n = len(vertices) - 1
    if any(len(adjacent[u]) < n for u in vertices):
        return False
    return all(len(vertices & adjacent[u]) == n for u in vertices)


def _almost_simplicial(
    adjacent: list[set[int]], card: Sequence[int], prefix: list[int], cliques: list[tuple[int, ...]]
) -> None:
    """Eliminate almost simplicial vertices that cannot raise the largest clique; changes all but `card`."""
    low = max((math.prod(card[u] for u in c) for c in cliques), default=0)
    gone = set(prefix)
    again = True
    while again:
        again = False
        for v in range(len(adjacent)):
            if v in gone:
                continue
            around = adjacent[v]
            size = card[v] * math.prod(card[u] for u in around)
            special = _special(adjacent, around)
            if special is None or (special >= 0 and (size > low or card[v] < card[special])):
                continue
            low = max(low, size) if special < 0 else low
            again = True
            gone.add(v)
            prefix.append(v)
            cliques.append((v, *sorted(around)))
            for u in around:
                adjacent[u] |= around
                adjacent[u] -= {u, v}
            adjacent[v] = set()


def _special(adjacent: Sequence[set[int]], around: set[int]) -> int | None:
    """-1 if `around` is a clique, else the first neighbour without which it is one, else None."""
    lacking = [u for u in sorted(around) if len(around & adjacent[u]) < len(around) - 1]
    if not lacking:
        return -1
    return next((u for u in lacking if _is_clique(adjacent, around - {u})), None)


def _components(adjacent: Sequence[set[int]], left: Sequence[int]) -> list[list[int]]:
    seen: set[int] = set()
    out = []
    for start in left:
        if start in seen:
            continue
        seen.add(start)
        stack, found = [start], [start]
        while stack:
            for u in adjacent[stack.pop()]:
                if u not in seen:
                    seen.add(u)
                    stack.append(u)
                    found.append(u)
        out.append(sorted(found))
    return out


def atoms(masks: Sequence[int]) -> list[list[int]]:
    """The atoms of a connected graph: its pieces between clique minimal separators.

    MCS-M gives a minimal elimination order and its fill; walking it, a vertex whose later neighbours are a clique of
    the graph cuts off an atom (Tarjan 1985; Berry, Pogorelcnik, Simonet 2010).

    Returns
    -------
    list of sorted lists of int
        Every vertex in at least one.
    """
    n = len(masks)
    order, later = mcs_m(masks)
    left = (1 << n) - 1
    out: list[list[int]] = []
    for v in order:
        if not left >> v & 1:
            continue
        around = later[v] & left
        if around == left & ~(1 << v) or not _mask_clique(masks, around):
            continue
        cut = _reach(masks, v, left & ~around)
        if cut | around == left:
            continue
        out.append(bits(cut | around))
        left &= ~cut
    out.append(bits(left))
    return [a for a in out if a]


def mcs_m(masks: Sequence[int]) -> tuple[list[int], list[int]]:
    """A minimal elimination order by maximum cardinality search (Berry, Blair, Heggernes, Peyton 2004).

    Returns
    -------
    order : list of int
        First eliminated first.
    later : list of int
        For every vertex the mask of its later neighbours in the minimal triangulation.
    """
    n = len(masks)
    weight = [0] * n
    later = [0] * n
    order: list[int] = []
    left = (1 << n) - 1
    for _ in range(n):
        v = max(bits(left), key=lambda u: (weight[u], -u))
        left &= ~(1 << v)
        order.append(v)
        # u is reached if some path to it runs over unnumbered vertices of smaller weight than u's
        reached = masks[v] & left
        by_weight: dict[int, int] = {}
        for u in bits(reached):
            by_weight[weight[u]] = by_weight.get(weight[u], 0) | 1 << u
        found, at = reached, 0
        highest = max((weight[u] for u in bits(left)), default=0)
        while at <= highest:
            bucket = by_weight.get(at, 0)
            if not bucket:
                at += 1
                continue
            low = bucket & -bucket
            by_weight[at] = bucket ^ low
            for w in bits(masks[low.bit_length() - 1] & left & ~found):
                found |= 1 << w
                if weight[w] > at:
                    reached |= 1 << w
                    by_weight[weight[w]] = by_weight.get(weight[w], 0) | 1 << w
                else:
                    by_weight[at] = by_weight.get(at, 0) | 1 << w
        for u in bits(reached):
            weight[u] += 1
            later[u] |= 1 << v
    return order[::-1], later


def _mask_clique(masks: Sequence[int], around: int) -> bool:
    return all(not around & ~masks[u] & ~(1 << u) for u in bits(around))


def _reach(masks: Sequence[int], start: int, within: int) -> int:
    found = front = 1 << start
    while front:
        grown = 0
        for u in bits(front):
            grown |= masks[u]
        front = grown & within & ~found
        found |= front
    return found


def _sub(masks: Sequence[int], vertices: Sequence[int]) -> list[int]:
    """Adjacency of an induced subgraph, renumbered."""
    number = {v: i for i, v in enumerate(vertices)}
    within = sum(1 << v for v in vertices)
    return [sum(1 << number[u] for u in bits(masks[v] & within)) for v in vertices]


def _merge_twins(
    names: Sequence[int], card: Sequence[int], masks: Sequence[int], held: dict[int, list[frozenset[int]]]
) -> Atom:
    """The atom with every class of true twins as one vertex."""
    classes: dict[int, list[int]] = {}
    for v, mask in enumerate(masks):
        classes.setdefault(mask | 1 << v, []).append(v)
    groups = list(classes.values())
    vertices = tuple(tuple(names[v] for v in g) for g in groups)
    free = set()
    for clique in {c for v in names for c in held.get(v, ())}:
        whole = [all(v in clique for v in g) for g in vertices]
        if all(w or not any(v in clique for v in g) for w, g in zip(whole, vertices, strict=True)):
            free.add(sum(1 << i for i, w in enumerate(whole) if w))
    return Atom(
        vertices,
        tuple(math.prod(card[v] for v in g) for g in vertices),
        tuple(_sub(masks, [g[0] for g in groups])),
        frozenset(free),
    )
