"""Exact preprocessing: eliminate and split what can be without loss, so that the search works on the rest.

The rules are safe for the total and for the largest number of entries of the maximal cliques if every variable has at
least two states (tests/plans/test_ordering.py verifies each rule over all orders of small graphs):

* A *simplicial* vertex (its neighbours are pairwise neighbours) is eliminated first. Its closed neighbourhood is
  contained in some clique of every triangulation, and moving the vertex to the front of an order only shrinks the other
  cliques.
* *Components*, and the *atoms* between clique minimal separators, are solved separately. With two states or more,
  removing a needless fill edge {a, b} from a triangulation replaces a clique of w entries by at most w/a + w/b <= w, so
  some optimal triangulation is minimal, and a minimal triangulation is the union of minimal triangulations of the atoms
  (Tarjan 1985; Leimer 1993), no clique of which is a separator.
* *True twins* (equal closed neighbourhoods) are merged into one vertex with the product of their states: a minimal
  separator contains both or neither, and so do the cliques of a minimal triangulation.

A variable with one state adds no entries, and then a triangulation that is not minimal can be better. The rules are
applied nevertheless; optimality is claimed only if the lower bound proves it (see
`jtgpu.plans.ordering.tree_decomposition`).

*Almost simplicial* vertices (simplicial but for one neighbour u) are safe for the largest clique when v has no fewer
states than u and v's closed neighbourhood is no larger than a lower bound (van den Eijkhof, Bodlaender, Koster 2007).
For the total they are not safe: a cycle v-a-b-u of 3, 100, 2 and 2 states costs 1,000 entries if v is eliminated first,
and 612 otherwise.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Sets of vertices as Python ints: bit u of ``masks[v]`` says whether u and v are neighbours.
#
# Up to some thousand vertices this is the fastest representation in pure Python, and it needs no compiler.

def bits(mask: int) -> list[int]:
    """Positions of the set bits, ascending."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


class Atom(NamedTuple):
    """A part of the graph that is searched separately."""

    # tuple of tuple of int: For each local vertex, the vertices of the graph that it represents (several for merged
    #     twins)
    vertices: tuple[tuple[int, ...], ...]
    card: tuple[int, ...]  # tuple of int: Product of the cardinalities of these
    masks: tuple[int, ...]  # tuple of int: Adjacency among local vertices, as bit masks
    # frozenset of int: Masks of cliques without cost: the clique of a vertex eliminated earlier contains them
    free: frozenset[int]


class ReducedGraph(NamedTuple):
    """The result of `reduce_graph`."""

    prefix: list[int]  # list of int: Vertices eliminated first, in this order
    prefix_cliques: list[tuple[int, ...]]  # list of tuple of int: Their closed neighbourhoods at that moment
    atoms: list[Atom]  # list of Atom: The rest; a vertex of a clique separator is in several atoms


def symmetric(neighbours: Sequence[Iterable[int]]) -> list[set[int]]:
    """The graph as symmetric sets of neighbours, without self-loops."""
    out: list[set[int]] = [set() for _ in neighbours]
    for v, around in enumerate(neighbours):
        for u in around:
            if u != v:
                out[v].add(int(u))
                out[int(u)].add(v)
    return out


def reduce_graph(
    card: Sequence[int], neighbours: Sequence[Iterable[int]], *, largest: bool = False
) -> ReducedGraph:
    """Apply every safe rule until none applies."""
    # largest: The objective is the largest clique: almost simplicial vertices are eliminated, too
    adjacent = symmetric(neighbours)
    prefix, cliques = _simplicial(adjacent)
    if largest:
        _almost_simplicial(adjacent, card, prefix, cliques)
    gone = set(prefix)
    left = [v for v in range(len(adjacent)) if v not in gone]
    pieces: list[Atom] = []
    held: dict[int, list[frozenset[int]]] = {}  # vertex -> cliques eliminated before that contain it
    for c in cliques:
        clique = frozenset(c[1:]) - gone
        for v in clique:
            held.setdefault(v, []).append(clique)
    for component in _components(adjacent, left):
        number = {v: i for i, v in enumerate(component)}
        masks = [sum(1 << number[u] for u in adjacent[v]) for v in component]
        pieces += [_merge_twins([component[i] for i in a], card, _sub(masks, a), held) for a in atoms(masks)]
    return ReducedGraph(prefix, cliques, pieces)


def _simplicial(adjacent: list[set[int]]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Eliminate simplicial vertices, smallest number first, until none is left; modifies `adjacent`."""
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
    # every member is a neighbour of all others; stop at the first that is not
    n = len(vertices) - 1
    if any(len(adjacent[u]) < n for u in vertices):
        return False
    return all(len(vertices & adjacent[u]) == n for u in vertices)


def _almost_simplicial(
    adjacent: list[set[int]], card: Sequence[int], prefix: list[int], cliques: list[tuple[int, ...]]
) -> None:
    """Eliminate almost simplicial vertices that cannot raise the largest clique; modifies all but `card`."""
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
    """-1 if `around` is a clique; else the first vertex without which it is one; None if there is none."""
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
        stack, component = [start], [start]
        while stack:
            for u in adjacent[stack.pop()]:
                if u not in seen:
                    seen.add(u)
                    stack.append(u)
                    component.append(u)
        out.append(sorted(component))
    return out


def atoms(masks: Sequence[int]) -> list[list[int]]:
    """The atoms of a connected graph: its parts between clique minimal separators.

    MCS-M gives a minimal elimination order and its fill; in that order, a vertex whose later neighbours are a clique of
    the graph separates an atom (Tarjan 1985; Berry, Pogorelcnik, Simonet 2010).
    """
    # returns list of sorted lists of int: Each vertex is in at least one.
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
    """A minimal elimination order by maximum cardinality search (Berry, Blair, Heggernes, Peyton 2004)."""
    # returns order: list of int: First eliminated first
    # returns later: list of int: For every vertex the mask of its later neighbours in the minimal triangulation
    n = len(masks)
    weight = [0] * n
    later = [0] * n
    order: list[int] = []
    left = (1 << n) - 1
    classes = {0: left}  # weight -> mask of the unnumbered vertices of that weight
    for _ in range(n):
        highest = classes[max(classes)]
        v = (highest & -highest).bit_length() - 1
        left &= ~(1 << v)
        order.append(v)
        _move(classes, 1 << v, weight[v], None)
        reached = bits(_reached(masks, classes, masks[v] & left, left))
        for u in reversed(reached):
            _move(classes, 1 << u, weight[u], weight[u] + 1)
            weight[u] += 1
            later[u] |= 1 << v
    return order[::-1], later


def _move(classes: dict[int, int], vertex: int, old: int, new: int | None) -> None:
    """Move the mask of one vertex from the class of its old weight to that of its new one."""
    classes[old] ^= vertex
    if not classes[old]:
        del classes[old]
    if new is not None:
        classes[new] = classes.get(new, 0) | vertex


def _reached(masks: Sequence[int], classes: dict[int, int], start: int, left: int) -> int:
    """Vertices that a path of unnumbered vertices with smaller weights connects to the vertex just numbered.

    Levels of weight are flooded in ascending order, each with masks of all vertices found so far; the search ends when
    every heavier vertex is reached.
    """
    reached = seen = start
    heavier = left
    for level in sorted(classes):
        heavier &= ~classes[level]
        if not heavier & ~reached:
            break
        front = seen & classes[level]
        while front:
            grown = 0
            for u in bits(front):
                grown |= masks[u]
            new = grown & left & ~seen
            seen |= new
            reached |= new & heavier
            front = new & ~heavier
    return reached


def _mask_clique(masks: Sequence[int], around: int) -> bool:
    return all(not around & ~masks[u] & ~(1 << u) for u in bits(around))


def _reach(masks: Sequence[int], start: int, within: int) -> int:
    reached = front = 1 << start
    while front:
        grown = 0
        for u in bits(front):
            grown |= masks[u]
        front = grown & within & ~reached
        reached |= front
    return reached


def _sub(masks: Sequence[int], vertices: Sequence[int]) -> list[int]:
    """Adjacency of an induced subgraph, renumbered."""
    number = {v: i for i, v in enumerate(vertices)}
    within = sum(1 << v for v in vertices)
    return [sum(1 << number[u] for u in bits(masks[v] & within)) for v in vertices]


def _merge_twins(
    names: Sequence[int], card: Sequence[int], masks: Sequence[int], held: dict[int, list[frozenset[int]]]
) -> Atom:
    """The atom with each class of true twins merged into one vertex."""
    classes: dict[int, list[int]] = {}
    for v, mask in enumerate(masks):
        classes.setdefault(mask | 1 << v, []).append(v)
    groups = list(classes.values())
    vertices = tuple(tuple(names[v] for v in g) for g in groups)
    group_of = {v: i for i, group in enumerate(vertices) for v in group}
    free = set()
    for clique in {c for v in names for c in held.get(v, ())}:
        inside = [group_of[v] for v in clique if v in group_of]
        if all(inside.count(i) == len(vertices[i]) for i in inside):
            free.add(sum(1 << i for i in set(inside)))
    return Atom(
        vertices,
        tuple(math.prod(card[v] for v in g) for g in vertices),
        tuple(_sub(masks, [g[0] for g in groups])),
        frozenset(free),
    )
