"""What an elimination order costs, and the small tools on orders and fill that the searches share.

An order is an int sequence, first eliminated first. Eliminating v joins its remaining neighbours; the closed
neighbourhood at that moment is v's *elimination clique*. The *elimination forest* gives every vertex as parent the
one of its later neighbours that is eliminated first. A clique is maximal unless a child's holds it, that is, unless
a child has one neighbour more (the child itself apart): this makes maximality a local question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import OrderError

__all__ = ["LEVEL_ENTRIES", "OBJECTIVES", "OrderCost", "as_permutation", "forest", "order_cost"]

OBJECTIVES = ("entries", "largest", "time")

LEVEL_ENTRIES = 20_000
"""What one more level of the junction tree costs, in table entries, for the objective "time".

A level is a dependent step: on a GPU one launch and the wait for it, about 2 to 3 microseconds each way, in which an
H100 streams some 20,000 float64 entries at 2 to 3 TB/s twice over (read, multiply, write).
"""


class OrderCost(NamedTuple):
    """What the triangulation of an elimination order costs.

    Attributes
    ----------
    cost : float
        The objective's value: ``entries``, ``largest``, or ``entries + LEVEL_ENTRIES * levels``; infinite when it
        lies beyond a double.
    entries : int
        Sum over the maximal cliques of the product of their cardinalities; exact.
    largest : int
        The largest of these products; exact.
    n_cliques : int
        Number of maximal cliques.
    width : int
        Variables of the largest clique, less one (that of most variables, not of most entries).
    levels : int
        Levels of the clique forest rooted at its centre: 1 for a single clique. The junction tree that is built in
        the end may join its cliques differently, so this is a guide.
    """

    cost: float
    entries: int
    largest: int
    n_cliques: int
    width: int
    levels: int


def as_permutation(order: Iterable[int], n: int) -> list[int]:
    """`order` as a list of ints, checked to be a permutation of 0..n-1.

    Raises
    ------
    OrderError
        Naming what is missing, twice or unknown.
    """
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
        for what, ids in (("unknown:", unknown), ("twice:", twice), ("missing:", missing))
        if ids
    ]
    raise OrderError(f"an elimination order is a permutation of the {n} variables; {'; '.join(wrong)}")


def forest(neighbours: Sequence[Iterable[int]], order: Sequence[int]) -> tuple[list[set[int]], list[int]]:
    """The elimination forest of an order.

    Parameters
    ----------
    neighbours : sequence of int iterables
        The graph; need not be symmetric, self-loops are ignored.
    order : sequence of int
        A permutation (see `as_permutation`).

    Returns
    -------
    later : list of set of int
        For every vertex the neighbours it has when it is eliminated.
    parent : list of int
        For every vertex the first of these to be eliminated, -1 for a root.
    """
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
    """For every vertex whether its elimination clique is maximal."""
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
    """The cost of an elimination order: sizes of the maximal cliques of its triangulation.

    Parameters
    ----------
    cardinality : (V,) int
    neighbours : V iterables of int
        Who is joined with whom.
    order : (V,) int
        First eliminated first.
    objective : {"entries", "largest", "time"}
        What `OrderCost.cost` holds.

    Raises
    ------
    OrderError
        If the order is no permutation.
    ValueError
        For an unknown objective.
    """
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
        _as_float(value), entries, largest, len(sizes), max((len(s) for s in later), default=-1), levels
    )


def check_objective(objective: str) -> None:
    """ValueError unless `objective` is one of `OBJECTIVES`."""
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, not {objective!r}")


def as_order_array(order: Sequence[int]) -> NDArray[np.int64]:
    """A read-only int64 array, as orders are handed out."""
    out = np.array(order, np.int64).reshape(len(order))
    out.flags.writeable = False
    return out


def _levels(later: Sequence[set[int]], parent: Sequence[int], keep: Sequence[bool], order: Sequence[int]) -> int:
    """Levels of the forest of maximal cliques, every tree rooted at its centre."""
    home = list(range(len(order)))  # the maximal clique that holds a vertex's elimination clique
    holder = [-1] * len(order)
    for v, p in enumerate(parent):  # a child that holds its parent's clique, the smallest by number
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


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _some(ids: Sequence[object], most: int = 8) -> str:
    shown = ", ".join(map(str, ids[:most]))
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"
