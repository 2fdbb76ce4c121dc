"""Balance a binary contraction tree, so that its critical path is short.

Forward, a contraction waits for both of its children; backward, each child waits for its parent and its sibling. A
propagation therefore sends one message in each direction over every edge of an unrooted tree whose inner vertices join
three edges, and on a parallel machine it takes as long as the longest path from leaf to leaf. The table of an edge has
the variables that factors on both of its sides contain. Two neighbouring vertices can thus exchange branches
(nearest-neighbour interchange; Robinson, Comparison of labeled trees with valency three, J. Combin. Theory B 11, 1971),
and only the edge between them gets another table. Such exchanges turn a chain of small contractions into a balanced
tree, at the cost of somewhat more products.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..util.elementary import log

# The contraction forest while it is built.

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


# Microseconds on an H100: latency of a contraction; throughput of the whole GPU per product and per stored entry.
LATENCY, LATENCY_DOUBLED, SMALL = 0.85, 0.35, 2000.0  # up to SMALL products, and the increase per doubling
PRODUCT, STORED = 0.5e-6, 3.0e-6
NEAR = 0.25  # exchanges count less the shorter their path; zero at this share below the critical path
MAX_SWEEPS = 64


@functools.lru_cache(1 << 16)
def _latency(products: int) -> float:
    """Of a contraction, in microseconds."""
    return LATENCY + LATENCY_DOUBLED / log(2.0) * max(0.0, log(products / SMALL))


def shorten(
    scopes: Sequence[frozenset[int]],
    children: Mapping[int, tuple[int, int]],
    top: int,
    cardinality: Sequence[int],
    price: float,
) -> dict[int, tuple[int, int]] | None:
    """Another tree over the same leaves with a shorter critical path; None if there is no gain."""
    # scopes: sequence of frozenset: Variables of each leaf; only the leaves of this tree are read
    # children: The two children of each inner node; all other nodes are leaves. Leaves of other trees share no
    #     variables with this one.
    # top: The root; it stays the root
    # cardinality: (V,): States of each variable
    # price: Microseconds of critical path that one microsecond of the whole GPU is worth
    tree = Tree(scopes, children, top, cardinality)
    moved = False
    for _ in range(MAX_SWEEPS):
        if not tree.sweep(price):
            break
        moved = True
    return {n: (a, b) for n, (a, b) in tree.kids.items()} if moved else None


class Tree:
    """The tree while branches are exchanged; an edge has the number of the node below it."""

    def __init__(
        self,
        scopes: Sequence[frozenset[int]],
        children: Mapping[int, tuple[int, int]],
        top: int,
        cardinality: Sequence[int],
    ):
        self.top, self.cardinality = top, cardinality
        self.kids = {n: list(pair) for n, pair in children.items()}
        self.parent = {c: n for n, pair in children.items() for c in pair}
        leaves = [c for c in self.parent if c not in self.kids]
        holders: dict[int, int] = {}
        for f in leaves:
            for v in scopes[f]:
                holders[v] = holders.get(v, 0) + 1
        self.leaves = leaves
        self.scope = {f: frozenset(v for v in scopes[f] if holders[v] > 1) for f in leaves}  # of each edge
        inside = {f: dict.fromkeys(self.scope[f], 1) for f in leaves}
        for n in self.upwards():
            a, b = self.kids[n]
            count = inside.pop(a)
            for v, k in inside.pop(b).items():
                count[v] = count.get(v, 0) + k
            inside[n] = {v: k for v, k in count.items() if k < holders[v]}
            self.scope[n] = frozenset(inside[n])

    def upwards(self) -> Iterator[int]:
        """Inner nodes, each after its children; the root last."""
        order, stack = [], [self.top]
        while stack:
            n = stack.pop()
            order.append(n)
            stack += [c for c in self.kids[n] if c in self.kids]
        return reversed(order)

    def size(self, scope: frozenset[int]) -> int:
        """Number of entries of a table."""
        return math.prod(self.cardinality[v] for v in scope)

    def _vertex(self, *scopes: frozenset[int]) -> tuple[float, int]:
        """Latency of a contraction with the given edges, in microseconds, and its number of products."""
        products = self.size(scopes[0].union(*scopes[1:]))
        return _latency(products), products

    def _times(self) -> tuple[dict[int, float], dict[int, float]]:
        """For each edge, when the upward message is ready, and the longest path to the downward message."""
        up, down, takes = dict.fromkeys(self.leaves, 0.0), dict[int, float](), dict[int, float]()
        order = list(self.upwards())
        for n in order[:-1]:
            a, b = self.kids[n]
            takes[n] = self._vertex(self.scope[a], self.scope[b], self.scope[n])[0]
            up[n] = takes[n] + max(up[a], up[b])
        a, b = self.kids[self.top]
        down[a], down[b] = up[b], up[a]
        for n in reversed(order[:-1]):
            a, b = self.kids[n]
            down[a] = takes[n] + max(down[n], up[b])
            down[b] = takes[n] + max(down[n], up[a])
        return up, down

    def sweep(self, price: float) -> int:
        """Exchange branches across edges near the critical path where that pays; the number of exchanges."""
        up, down = self._times()
        through = {n: up[n] + down[n] for n in down}
        longest = max(through.values())
        touched: set[int] = set()
        n_moved = 0
        for n in sorted((n for n in down if n in self.kids), key=lambda n: (-through[n], n)):
            close = 1.0 - (longest - through[n]) / (NEAR * longest)
            if close <= 0.0:
                break
            other = self.across(n)
            if other is None or n in touched or other in touched:
                continue
            touched |= self._exchange(n, other, up, down, close, price)
            n_moved += n in touched
        return n_moved

    def _exchange(
        self, n: int, other: int, up: Mapping[int, float], down: Mapping[int, float], close: float, price: float
    ) -> set[int]:
        """Make the best exchange across the edge between `n` and `other`, its parent or the root's other child, if one
        pays; returns the nodes whose times changed."""
        mine = self.kids[n]
        third, last = self.beyond(n, other)
        above = down[other] if last == other else up[last]
        when = {mine[0]: up[mine[0]], mine[1]: up[mine[1]], third: up[third], last: above}
        now, before = self._joined(mine[0], mine[1], third, last, when)
        best: tuple[float, int, int] | None = None
        for kept, given in (mine, mine[::-1]):  # n keeps one of its children and takes the third
            takes, cost = self._joined(kept, third, given, last, when)
            value = (now - takes) * close - price * (cost - before)
            if takes < now - 1e-9 and value > 1e-6 and (best is None or value > best[0]):
                best = value, kept, given
        if best is None:
            return set()
        _, kept, given = best
        self.give(n, other, given, third)
        return {n, other, kept, third, given, last, self.parent[other]}

    def across(self, n: int) -> int | None:
        """The vertex at the other end of the edge above n: its parent, or the root's other child; None: a leaf."""
        other = self.parent[n]
        if other != self.top:
            return other
        a, b = self.kids[self.top]
        other = b if n == a else a
        return other if other in self.kids else None

    def beyond(self, n: int, other: int) -> tuple[int, int]:
        """The two other edges of the vertex across the edge above n; `other` itself represents the rest of the tree."""
        if self.parent[n] == other:
            return next(c for c in self.kids[other] if c != n), other
        third, last = self.kids[other]
        return third, last

    def give(self, n: int, other: int, given: int, third: int) -> None:
        """Vertex n gives one of its branches to the vertex across its edge and takes one from there."""
        _, last = self.beyond(n, other)
        kept = next(c for c in self.kids[n] if c != given)
        between = (self.scope[kept] | self.scope[third]) & (self.scope[given] | self.scope[last])
        self.kids[n] = [kept, third]
        self.parent[third] = n
        self.scope[n] = between
        if self.parent[n] == other:
            self.kids[other] = [n, given]
        else:
            self.kids[other] = [given, last]
            self.scope[other] = between
        self.parent[given] = other

    def _joined(
        self, a: int, b: int, c: int, d: int, when: Mapping[int, float]
    ) -> tuple[float, float]:
        """Cost of edges a and b at one vertex and c and d at its neighbour: the longest path through both and the time
        of the whole GPU, in microseconds."""
        here, there = self.scope[a] | self.scope[b], self.scope[c] | self.scope[d]
        between = here & there
        first, products = self._vertex(here, between)
        second, more = self._vertex(there, between)
        longest = max(
            when[a] + when[b] + first,
            when[c] + when[d] + second,
            max(when[a], when[b]) + max(when[c], when[d]) + first + second,
        )
        # three messages leave a vertex, two cross the edge
        return longest, 3 * PRODUCT * (products + more) + 2 * STORED * self.size(between)
