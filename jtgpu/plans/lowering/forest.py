"""The contraction forest while it is built."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


class ContractionForest:
    """Nodes 0..F-1 are the factors; inner nodes follow, children before parents."""

    def __init__(self, scopes: Sequence[Iterable[int]], cardinality: Sequence[int]):
        self.scope: list[frozenset[int]] = [frozenset(s) for s in scopes]
        self.children: list[tuple[int, ...]] = [() for _ in scopes]
        self.cardinality = cardinality
        self.live = [0] * len(cardinality)  # for each variable, the parentless nodes that contain it
        for s in self.scope:
            for v in s:
                self.live[v] += 1

    def size(self, scope: Iterable[int]) -> int:
        """Number of entries of a table."""
        return math.prod(self.cardinality[v] for v in scope)

    def needed_outside(self, nodes: Sequence[int]) -> frozenset[int]:
        """Variables of some parentless nodes that other parentless nodes contain too."""
        count: dict[int, int] = {}
        for n in nodes:
            for v in self.scope[n]:
                count[v] = count.get(v, 0) + 1
        return frozenset(v for v, k in count.items() if self.live[v] > k)

    def contract(self, nodes: Sequence[int]) -> int:
        """Add a node with the given parentless nodes as children; its number."""
        out = self.needed_outside(nodes)
        for n in nodes:
            for v in self.scope[n]:
                self.live[v] -= 1
        for v in out:
            self.live[v] += 1
        self.scope.append(out)
        self.children.append(tuple(nodes))
        return len(self.scope) - 1
