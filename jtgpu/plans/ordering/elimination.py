"""The cost of an elimination order, and functions on orders that the searches share.

An order is a sequence of ints, first eliminated first. Eliminating v joins its remaining neighbours; v and these
neighbours are v's *elimination clique*. In the *elimination forest*, the parent of a vertex is the first of its later
neighbours to be eliminated. A clique is maximal unless the clique of a child contains it, that is, unless a child has
one later neighbour more: maximality is a local property.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import OrderError
from ...util.arguments import choice
from .reduce import Atom, bits

# The triangulation that an order of an atom induces: its fill, its cost, and a minimal one inside it.

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


OBJECTIVES = ("entries", "largest", "time")

LEVEL_ENTRIES = 20_000
"""Cost of a level of the junction tree in table entries, for the objective "time".

A level is a dependent step: on a GPU about 2 to 3 microseconds in each direction, in which an H100 reads and writes
about 20,000 float64 entries.
"""


class OrderCost(NamedTuple):
    """The cost of the triangulation that an elimination order induces."""

    # The objective's value: ``entries``, ``largest``, or ``entries + LEVEL_ENTRIES * levels``; infinite if it exceeds
    #     the range of float64
    cost: float
    entries: int  # sum over the maximal cliques of the product of their cardinalities; exact
    largest: int  # the largest of these products; exact
    n_cliques: int  # number of maximal cliques
    width: int  # number of variables of the clique with the most variables, minus one
    # Levels of the clique forest rooted at its centre: 1 for a single clique. An estimate, since the junction tree may
    #     connect the cliques differently.
    levels: int


def as_permutation(order: Iterable[int], n: int) -> list[int]:
    """`order` as a list of ints, checked to be a permutation of 0..n-1."""
    # raises OrderError: If variables are missing, repeated or unknown; the message names them.
    taken = [int(v) for v in order]
    if len(taken) == n and set(taken) == set(range(n)):
        return taken
    unknown = sorted({v for v in taken if not 0 <= v < n})
    known = [v for v in taken if 0 <= v < n]
    seen: set[int] = set()
    twice = sorted({v for v in known if v in seen or seen.add(v)})  # type: ignore[func-returns-value]
    missing = sorted(set(range(n)) - seen)
    wrong = [
        f"{what} {_some(ids)}"
        for what, ids in (("unknown:", unknown), ("repeated:", twice), ("missing:", missing))
        if ids
    ]
    raise OrderError(f"an elimination order is a permutation of the {n} variables; {'; '.join(wrong)}")


def forest(neighbours: Sequence[Iterable[int]], order: Sequence[int]) -> tuple[list[set[int]], list[int]]:
    """The elimination forest of an order."""
    # neighbours: sequence of int iterables: The graph; need not be symmetric; self-loops are ignored
    # order: sequence of int: A permutation (see `as_permutation`)
    # returns later: list of set of int: For each vertex, its neighbours when it is eliminated
    # returns parent: list of int: For each vertex, the first of these to be eliminated; -1 for a root
    n = len(order)
    position = [0] * n
    for i, v in enumerate(order):
        position[v] = i
    later: list[set[int]] = [set() for _ in range(n)]
    for v in range(n):
        at = position[v]
        for u in neighbours[v]:
            if position[u] > at:
                later[v].add(int(u))
            elif position[u] < at:
                later[u].add(v)
    parent = [-1] * n
    for v in order:
        mine = later[v]
        if mine:
            p = min(mine, key=position.__getitem__)
            parent[v] = p
            later[p] |= mine
            later[p].discard(p)
    return later, parent


def maximal(later: Sequence[set[int]], parent: Sequence[int]) -> list[bool]:
    """For each vertex, whether its elimination clique is maximal."""
    out = [True] * len(later)
    for v, p in enumerate(parent):
        if p >= 0 and len(later[v]) == len(later[p]) + 1:
            out[p] = False
    return out


def order_cost(
    cardinality: ArrayLike,
    neighbours: Sequence[Iterable[int]],
    order: Iterable[int],
    objective: str = "entries",
) -> OrderCost:
    """The cost of an elimination order: sizes of the maximal cliques of its triangulation."""
    # cardinality: (V,) int
    # neighbours: V iterables of int: Neighbours of each vertex
    # order: (V,) int: First eliminated first
    # objective: {"entries", "largest", "time"}: The meaning of `OrderCost.cost`
    # raises OrderError: If the order is not a permutation.
    # raises ValueError: If the objective is unknown.
    check_objective(objective)
    cards = [int(c) for c in np.asarray(cardinality)]
    taken = as_permutation(order, len(cards))
    later, parent = forest(neighbours, taken)
    keep = maximal(later, parent)
    sizes = [math.prod(cards[u] for u in later[v]) * cards[v] for v in range(len(cards)) if keep[v]]
    entries, largest = sum(sizes), max(sizes, default=0)
    levels = _levels(later, parent, keep, taken)
    value = {"entries": entries, "largest": largest, "time": entries + LEVEL_ENTRIES * levels}[objective]
    return OrderCost(
        as_float(value), entries, largest, len(sizes), max((len(s) for s in later), default=-1), levels
    )


def check_objective(objective: str) -> None:
    """Raise `ArgumentError` unless `objective` is one of `OBJECTIVES`."""
    choice("objective", objective, OBJECTIVES)


def as_order_array(order: Sequence[int]) -> NDArray[np.int64]:
    """An order as a read-only int64 array."""
    out = np.array(order, np.int64).reshape(len(order))
    out.flags.writeable = False
    return out


def _levels(later: Sequence[set[int]], parent: Sequence[int], keep: Sequence[bool], order: Sequence[int]) -> int:
    """Levels of the forest of maximal cliques, every tree rooted at its centre."""
    home = list(range(len(order)))  # the maximal clique that contains a vertex's elimination clique
    holder = [-1] * len(order)
    for v, p in enumerate(parent):  # the first child whose clique contains its parent's
        if p >= 0 and not keep[p] and len(later[v]) == len(later[p]) + 1 and holder[p] < 0:
            holder[p] = v
    for v in order:
        if holder[v] >= 0:
            home[v] = home[holder[v]]
    # neighbours in the clique forest: the home of a vertex and that of its parent
    joined: dict[int, set[int]] = {home[v]: set() for v in order}
    for v, p in enumerate(parent):
        if p >= 0 and home[v] != home[p]:
            joined[home[v]].add(home[p])
            joined[home[p]].add(home[v])
    most = 0
    seen: set[int] = set()
    for start in joined:
        if start not in seen:
            reached = _breadth_first(joined, start)
            seen.update(reached)
            far = max(reached, key=reached.__getitem__)
            across = max(_breadth_first(joined, far).values())
            most = max(most, (across + 1) // 2 + 1)
    return most


def _breadth_first(joined: dict[int, set[int]], start: int) -> dict[int, int]:
    distance = {start: 0}
    queue = [start]
    for v in queue:
        for u in joined[v]:
            if u not in distance:
                distance[u] = distance[v] + 1
                queue.append(u)
    return distance


def as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _some(ids: Sequence[object], most: int = 8) -> str:
    shown = ", ".join(map(str, ids[:most]))
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"
