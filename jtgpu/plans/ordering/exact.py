"""The optimal order of a small atom, by a shortest path over sets of eliminated vertices.

The graph that remains depends on the set of eliminated vertices, not on their order (Bertele, Brioschi 1972), so a
shortest path over sets finds an optimal order. In small atoms few sets can be reached at a cost below that of a known
order; if they are exhausted, that order is optimal. A step eliminates a vertex v at the cost of its clique, and at no
further cost all vertices whose closed neighbourhoods are contained in that clique. Removing the leaves of a clique tree
one by one is such a path, hence the sum of the maximal cliques of any triangulation is the length of some path. A
simplicial vertex is eliminated without trying the others, which is safe with two states or more (see
`jtgpu.plans.ordering.reduce`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from .bitmasks import bits
from .reduce import Atom


def best_order(
    atom: Atom, bound: int, max_states: int, stop: Callable[[], bool] = lambda: False
) -> tuple[list[int] | None, bool]:
    """The order of the smallest total, if that is below `bound`."""
    # atom: All cardinalities are at least 2
    # bound: Total of a known order
    # max_states: Number of sets to visit before giving up
    # stop: Called now and then; the search gives up if it returns True
    # returns order: list of int or None: Its total is below `bound`; None if there is none or the search gave up
    # returns proven: Whether the search was completed: the returned order, or else the known one, is optimal
    n = len(atom.card)
    everything = (1 << n) - 1
    best: dict[int, int] = {0: 0}
    came: dict[int, tuple[int, tuple[int, ...]]] = {}
    heap = [(0, 0)]
    seen = 0
    while heap:
        cost, gone = heapq.heappop(heap)
        if cost > best[gone]:
            continue
        if gone == everything:
            steps: list[tuple[int, ...]] = []
            while gone:
                gone, together = came[gone]
                steps.append(together)
            return [v for together in reversed(steps) for v in together], True
        seen += 1
        if seen > max_states or (seen & 1023 == 0 and stop()):
            return None, False
        adjacent = _left(atom.masks, gone, everything)
        choices = _choices(atom, adjacent, everything & ~gone)
        for step, v in choices:
            made = cost + step
            if made >= bound:
                break
            clique = adjacent[v] | 1 << v
            taken = [v, *(u for u in bits(adjacent[v]) if not adjacent[u] & ~clique)]
            after = gone
            for u in taken:
                after |= 1 << u
            if after != everything and _costs_at_least(atom, adjacent, v, everything & ~after, bound - made):
                continue
            if made < best.get(after, bound):
                best[after] = made
                came[after] = (gone, tuple(taken))
                heapq.heappush(heap, (made, after))
    return None, True


def _left(masks: tuple[int, ...], gone: int, everything: int) -> list[int]:
    """Adjacency after eliminating `gone`: direct, or through eliminated vertices."""
    adjacent = [m & ~gone if not gone >> v & 1 else 0 for v, m in enumerate(masks)]
    rest = gone
    while rest:
        part = front = rest & -rest
        around = 0
        while front:
            grown = 0
            for v in bits(front):
                grown |= masks[v]
            around |= grown & ~gone
            front = grown & gone & ~part
            part |= front
        rest &= ~part
        for v in bits(around):
            adjacent[v] |= around & ~(1 << v)
    return adjacent


def _choices(atom: Atom, adjacent: list[int], left: int) -> list[tuple[int, int]]:
    """Pairs (cost, vertex) in ascending order; only a simplicial vertex if there is one."""
    out = []
    for v in bits(left):
        around = adjacent[v]
        size = _table(atom, around | 1 << v)
        if all(not around & ~adjacent[u] & ~(1 << u) for u in bits(around)):
            return [(size, v)]
        out.append((size, v))
    return sorted(out)


def _costs_at_least(atom: Atom, adjacent: list[int], v: int, left: int, least: int) -> bool:
    """Whether each vertex of `left` costs at least `least` after v is eliminated; one of them has to be next."""
    around = adjacent[v] & left
    for u in bits(left):
        clique = adjacent[u] & left | 1 << u
        if _table(atom, clique | around if around >> u & 1 else clique) < least:
            return False
    return True


def _table(atom: Atom, clique: int) -> int:
    """Number of entries of a clique's table; 0 for the cliques in ``atom.free``."""
    if clique in atom.free:
        return 0
    size = 1
    for u in bits(clique):
        size *= atom.card[u]
    return size
