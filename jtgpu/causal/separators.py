"""Separating sets in the moral graph of ancestors: one that is minimal, the cheapest, and all minimal ones.

Vertices are numbers, sets of vertices are bits of Python's integers. B. van der Zander, M. Liskiewicz and J. Textor,
Artificial Intelligence 270 (2019); all minimal separators by K. Takata, Discrete Applied Mathematics 158 (2010).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..model.directed import Adjacency, descendants
from ..plans.ordering.reduce import bits


class Moral(NamedTuple):
    """Two vertices to separate, and the vertices that may do so; all others are summed out."""

    neighbours: dict[int, int]  # of `source`, `target` and the candidates; bits
    source: int
    target: int

    @classmethod
    def of(
        cls, parents: Adjacency, sources: set[int], targets: set[int], allowed: set[int], required: set[int]
    ) -> Moral:
        """Ancestors of all of these, without the required ones, which are observed anyway."""
        n = len(parents)
        above = descendants(parents, sources | targets | required)
        ends = {**dict.fromkeys(sources, n), **dict.fromkeys(targets, n + 1)}
        families: list[list[int]] = []
        around: dict[int, list[int]] = {}
        for v in above:
            family = {ends.get(u, u) for u in (v, *parents[v]) if u not in required}
            for u in family:
                around.setdefault(u, []).append(len(families))
            families.append(list(family))
        stops = (allowed & above - required - sources - targets) | {n, n + 1}
        neighbours = {}
        for start in stops:  # past vertices that cannot be observed
            result, stack, seen = 0, [start], {start}
            used: set[int] = set()
            while stack:
                for k in around.get(stack.pop(), ()):
                    if k in used:
                        continue
                    used.add(k)
                    for u in families[k]:
                        if u not in seen:
                            seen.add(u)
                            if u in stops:
                                result |= 1 << u
                            else:
                                stack.append(u)
            neighbours[start] = result
        return cls(neighbours, n, n + 1)

    def component(self, start: int, without: int) -> int:
        """The vertices that paths from those of `start` reach without entering `without`."""
        result, edge = start, start
        while edge:
            reached = 0
            for v in bits(edge):
                reached |= self.neighbours[v]
            edge = reached & ~result & ~without
            result |= edge
        return result

    def around(self, result: int) -> int:
        """Neighbours of a set outside it."""
        reached = 0
        for v in bits(result):
            reached |= self.neighbours[v]
        return reached & ~result

    @property
    def is_separable(self) -> bool:
        """Whether some set separates the two."""
        return not self.neighbours[self.source] >> self.target & 1

    def minimal(self) -> int:
        """A minimal separator, of the vertices next to the source."""
        near = self.neighbours[self.source]
        return self.around(self.component(1 << self.target, near))

    def all_minimal(self) -> Iterator[int]:
        """Every minimal separator once, with polynomial delay."""
        if not self.is_separable:
            return
        last = 1 << self.target
        stack = [(1 << self.source, 0)]
        while stack:
            side, excluded = stack.pop()
            far = self.component(last, self.around(side))
            border = self.around(far)
            side = self.component(1 << self.source, border)  # the least source side that contains `side`
            if side & excluded:
                continue
            free = border & ~excluded & ~self.neighbours[self.target]
            if not free:
                yield border
                continue
            v = free & -free
            stack += [(side, excluded | v), (side | v, excluded)]

    def cheapest(self, cost: Mapping[int, float]) -> int | None:
        """A separator of least total cost, by maximum flow; None: there is none."""
        if not self.is_separable:
            return None
        import networkx as nx  # takes a tenth of a second to import

        flow: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
        for v, near in self.neighbours.items():
            if v not in (self.source, self.target):
                flow.add_edge((v, 0), (v, 1), capacity=cost[v])
            for u in bits(near):
                flow.add_edge((v, 1), (u, 0))
        if (self.source, 1) not in flow or (self.target, 0) not in flow:
            return 0
        _, (reached, _) = nx.minimum_cut(flow, (self.source, 1), (self.target, 0))
        cut = (v for v in self.neighbours if (v, 0) in reached and (v, 1) not in reached and v != self.target)
        return sum(1 << v for v in cut)


def minimal_separator(
    parents: Adjacency, sources: set[int], targets: set[int], allowed: set[int], required: set[int]
) -> set[int] | None:
    """A minimal set of allowed vertices that separates with the required ones; None: there is none. O(n + m).

    Two searches: the allowed vertices that are reached from the sources, then those of them from the targets.
    """
    above = descendants(parents, sources | targets | required)
    families: dict[int, list[int]] = {}
    for v in above:
        for u in (v, *parents[v]):
            families.setdefault(u, []).append(v)
    stops = allowed & above - required - sources - targets

    def reached(starts: set[int], stops: set[int]) -> set[int]:
        seen, stack, used = set(starts), list(starts), set()
        while stack:
            for k in families.get(stack.pop(), ()):
                if k in used:
                    continue
                used.add(k)
                for u in (k, *parents[k]):
                    if u not in seen and u not in required:
                        seen.add(u)
                        if u not in stops:
                            stack.append(u)
        return seen

    first = reached(sources, stops)
    if first & targets:
        return None
    near = first & stops
    return reached(targets, near) & near | required
