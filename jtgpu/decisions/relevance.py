"""Requisite information of decisions, and the order in which they can be solved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING

from ..errors import NetworkError
from ..model.directed import descendants, reachable

if TYPE_CHECKING:
    from ..model.decisions import DecisionNetwork

Information = dict[int, tuple[int, ...]]  # decision -> variables that are known when deciding, in order


class Influence:
    """The graph of a decision network: variables 0..V-1, then the utilities; decisions with the given information."""

    def __init__(self, net: DecisionNetwork, information: Information):
        n = len(net.variables)
        self.utilities = range(n, n + len(net.utilities))
        self.parents: list[tuple[int, ...]] = [tuple(map(net.index, net.parents(v))) for v in net.variables]
        self.parents += [tuple(map(net.index, net.parents(u))) for u in net.utilities]
        for d, known in information.items():
            self.parents[d] = known
        self.children: list[list[int]] = [[] for _ in self.parents]
        for child, ids in enumerate(self.parents):
            for p in ids:
                self.children[p].append(child)
        self._order = [*map(net.index, net.topological_order()), *self.utilities]
        self._below: list[int] | None = None  # of each vertex, the utilities that descend from it, as a bit mask

    def utilities_of(self, d: int) -> set[int]:
        """Utilities that descend from a decision."""
        if self._below is None:  # for all vertices at once: bit i is the utility i
            n, below = self.utilities.start, [0] * len(self.parents)
            for v in reversed(self._order):
                below[v] = 1 << v - n if v >= n else reduce(or_, [below[c] for c in self.children[v]], 0)
            self._below = below
        mask = self._below[d]
        return {u for i, u in enumerate(self.utilities) if mask >> i & 1}

    def is_requisite(self, d: int, x: int, wanted: set[int]) -> bool:
        """Whether the policy of d needs to know x, for its utilities (Nielsen and Jensen 1999; Lauritzen and Nilsson
        2001, section 4)."""
        known = {d, *self.parents[d]} - {x}
        return bool(reachable(self.parents, self.children, [x], known, wanted) & wanted)

    def relied_on(self, d: int, others: Sequence[int]) -> set[int]:
        """Decisions whose policies the best policy of d depends on (Koller and Milch, GEB 45 (2003) 181)."""
        # a further parent of each decision stands for its policy: does it matter to the utilities, given what d knows?
        first = len(self.parents)
        dummies = {e: first + i for i, e in enumerate(others)}
        parents = [(*p, dummies[v]) if v in dummies else p for v, p in enumerate(self.parents)]
        children = [*self.children, *([e] for e in others)]
        active = reachable([*parents, *[()] * len(others)], children, self.utilities_of(d), {d, *self.parents[d]})
        return {e for e, dummy in dummies.items() if dummy in active and e != d}

    def forget(self, d: int, x: int) -> None:
        """Remove x from the information of d."""
        self.parents[d] = tuple(v for v in self.parents[d] if v != x)
        self.children[x].remove(d)
        self._below = None


def information_of(net: DecisionNetwork) -> Information:
    """The information of each decision: its parents."""
    return {net.index(d): tuple(map(net.index, net.parents(d))) for d in net.decisions}


def requisite_information(net: DecisionNetwork) -> Information:
    """The information that each policy needs; the smallest, which does not depend on the order of removal."""
    information = information_of(net)
    graph = Influence(net, information)
    changed = True
    while changed:
        changed = False
        for d in reversed(information):
            wanted = graph.utilities_of(d)
            for x in graph.parents[d]:
                if not graph.is_requisite(d, x, wanted):
                    graph.forget(d, x)
                    changed = True
    return {d: graph.parents[d] for d in information}


def solution_order(net: DecisionNetwork, information: Information) -> tuple[list[int], bool]:
    """Decisions in an order in which they can be solved, and whether one pass over them is optimal."""
    graph = Influence(net, information)
    rank = {net.index(v): i for i, v in enumerate(net.topological_order())}
    backwards = sorted(information, key=lambda d: -rank[d])
    before: dict[int, set[int]] = {}
    for d in backwards:
        before[d] = graph.relied_on(d, backwards)
        if any(d in before[e] for e in before[d] if e in before):  # two that rely on each other
            return backwards, False
    order: list[int] = []
    while len(order) < len(before):
        ready = [d for d in backwards if d not in order and before[d] <= set(order)]
        if not ready:
            return order + [d for d in backwards if d not in order], False
        order += ready
    return order, True


def temporal_order(net: DecisionNetwork, order: Sequence[str] | None = None) -> list[int]:
    """Decisions in the order in which they are made: by arcs, or as given."""
    if order is not None:
        ids = [net.index(d) for d in order]
        if sorted(ids) != sorted(map(net.index, net.decisions)):
            raise NetworkError(f"order must name every decision once: {list(net.decisions)}")
        return ids
    graph = Influence(net, information_of(net))
    rank = {net.index(v): i for i, v in enumerate(net.topological_order())}
    ids = sorted(map(net.index, net.decisions), key=rank.__getitem__)
    for a, b in pairwise(ids):
        if b not in descendants(graph.children, [a]):
            raise NetworkError(
                f"the arcs do not say which of the decisions {net.variables[a]!r} and {net.variables[b]!r} comes "
                f"first; give order={[net.variables[d] for d in ids]!r} or another one"
            )
    return ids


def recalled_information(net: DecisionNetwork, order: Sequence[str] | None = None) -> Information:
    """Information where earlier decisions and what was known at them are remembered."""
    information = information_of(net)
    past: list[int] = []
    for d in temporal_order(net, order):
        known = information[d]
        information[d] = (*known, *(v for v in past if v not in known))
        past += [v for v in (*information[d], d) if v not in past]
    return information
