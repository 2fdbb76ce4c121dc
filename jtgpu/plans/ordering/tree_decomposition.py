"""Tree decompositions (``.td`` files, PACE 2017 format) as elimination orders, and junction trees as ``.td`` files."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...errors import OrderError, ParseError
from ...model.discrete import DiscreteModel
from .elimination import as_order_array
from .files import parse_error, read_text, write_text
from .reduce import Atom, bits

# The optimal order of a small atom, by a shortest path over sets of eliminated vertices.
#
# The graph that remains depends on the set of eliminated vertices, not on their order (Bertele, Brioschi 1972), so a
# shortest path over sets finds an optimal order. In small atoms few sets can be reached at a cost below that of a
# known order; if they are exhausted, that order is optimal. A step eliminates a vertex v at the cost of its clique,
# and at no further cost all vertices whose closed neighbourhoods are contained in that clique. Removing the leaves of
# a clique tree one by one is such a path, hence the sum of the maximal cliques of any triangulation is the length of
# some path. A simplicial vertex is eliminated without trying the others, which is safe with two states or more (see
# `jtgpu.plans.ordering.reduce`).

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


MAX_BAGS = 10**7
_NUMBER = re.compile(r"[0-9]{1,9}")


def read_td(
    path: str | os.PathLike[str], model: DiscreteModel, neighbours: Sequence[Iterable[int]] | None = None
) -> NDArray[np.int64]:
    """Read a tree decomposition of the model's graph (vertex i + 1 is variable number i) as an elimination order.

    The cliques of the order are subsets of the bags, so its tables are never larger than those of the decomposition.
    """
    # neighbours: sequence of iterables of int: The graph that the decomposition has to cover; default: the model's
    #     interaction graph
    # raises ParseError: If a line is not a ``c``, ``s``, ``b`` or edge line, or contradicts the declared numbers.
    # raises OrderError: If a vertex or an edge is in no bag, the bags are not a tree, or the bags of a vertex are not
    #     connected.
    n = len(model)
    bags, edges = _TdParser(path, read_text(path), n).parse()
    if neighbours is None:
        around: list[set[int]] = [set() for _ in range(n)]
        for scope, _ in model.factors:
            for v in scope:
                around[v].update(scope)
        neighbours = [sorted(s - {v}) for v, s in enumerate(around)]
    _check(path, bags, edges, neighbours, model)
    return as_order_array(_order_of(bags, edges, n))


def write_td(
    path: str | os.PathLike[str], cliques: Sequence[Sequence[int]], parent: Sequence[int], n_variables: int
) -> None:
    """Write a junction forest as a PACE tree decomposition; the roots of several components are joined."""
    roots = [c for c, up in enumerate(parent) if up < 0]
    edges = sorted((min(c, up), max(c, up)) for c, up in enumerate(parent) if up >= 0)
    edges += list(pairwise(roots))
    lines = [f"s td {len(cliques)} {max(map(len, cliques), default=0)} {n_variables}"]
    lines += [" ".join(["b", str(c + 1), *(str(v + 1) for v in sorted(bag))]) for c, bag in enumerate(cliques)]
    lines += [f"{a + 1} {b + 1}" for a, b in edges]
    write_text(path, "\n".join(lines) + "\n")


class _TdParser:
    """Reads the lines of a ``.td`` file."""
    # path, text: The file and its contents
    # n: Number of vertices to expect

    def __init__(self, path: str | os.PathLike[str], text: str, n: int):
        self.path, self.text, self.n = path, text, n
        self.bags: list[set[int] | None] | None = None  # None before the line "s td"
        self.edges: list[tuple[int, int]] = []
        self.line, self.start = "", 0  # the current line, and where it begins in the text

    def parse(self) -> tuple[list[set[int]], list[tuple[int, int]]]:
        """The bags and the edges between them, numbered from 0."""
        end = 0
        for raw in self.text.splitlines(keepends=True):
            self.line, self.start, end = raw.strip(), end, end + len(raw)
            words = raw.split()
            if not words or words[0] == "c":
                continue
            if words[0] == "s":
                self.head(words)
            elif self.bags is None:
                raise self.error(f"found {self.line[:60]!r}, expected the line 's td bags width n'")
            elif words[0] == "b":
                self.bag(self.bags, self.numbers(words[1:]))
            else:
                self.edge(self.bags, self.numbers(words))
        if self.bags is None:
            raise ParseError("found no line 's td bags width n', expected one", os.fspath(self.path))
        missing = [i + 1 for i, b in enumerate(self.bags) if b is None]
        if missing:
            raise ParseError(f"found no bag {missing[0]}, expected {len(self.bags)} bags", os.fspath(self.path))
        return [b for b in self.bags if b is not None], self.edges

    def error(self, message: str) -> ParseError:
        return parse_error(self.path, self.text, self.start, message)

    def numbers(self, words: Sequence[str]) -> list[int]:
        if not all(_NUMBER.fullmatch(w) for w in words):
            raise self.error(f"found {self.line[:60]!r}, expected numbers")
        return [int(w) for w in words]

    def head(self, words: Sequence[str]) -> None:
        values = self.numbers(words[2:])
        if self.bags is not None or words[:2] != ["s", "td"] or len(values) != 3 or values[0] > MAX_BAGS:
            raise self.error(f"found {self.line[:60]!r}, expected one 's td bags width n'")
        if values[2] != self.n:
            raise self.error(f"found {values[2]} vertices, expected the model's {self.n}")
        self.bags = [None] * values[0]

    def bag(self, bags: list[set[int] | None], values: Sequence[int]) -> None:
        if not values or not 1 <= values[0] <= len(bags) or bags[values[0] - 1] is not None:
            raise self.error(f"found a bag line {self.line[:60]!r}, expected each bag once")
        if any(not 1 <= v <= self.n for v in values[1:]):
            raise self.error(f"found a vertex outside 1..{self.n} in {self.line[:60]!r}")
        bags[values[0] - 1] = {v - 1 for v in values[1:]}

    def edge(self, bags: Sequence[object], values: Sequence[int]) -> None:
        if len(values) != 2 or any(not 1 <= b <= len(bags) for b in values) or values[0] == values[1]:
            raise self.error(f"found {self.line[:60]!r}, expected an edge between two bags")
        self.edges.append((values[0] - 1, values[1] - 1))


def _check(
    path: str | os.PathLike[str],
    bags: list[set[int]],
    edges: list[tuple[int, int]],
    neighbours: Sequence[Iterable[int]],
    model: DiscreteModel,
) -> None:
    """Raise `OrderError` unless the bags are a tree decomposition of the graph."""
    name = os.fspath(path)
    group = list(range(len(bags)))

    def find(b: int) -> int:
        while group[b] != b:
            group[b] = group[group[b]]
            b = group[b]
        return b

    for a, b in edges:
        if find(a) == find(b):
            raise OrderError(f"{name}: the bags are not a tree: the edge {a + 1} {b + 1} closes a cycle")
        group[find(a)] = find(b)
    holders: list[list[int]] = [[] for _ in neighbours]
    for b, bag in enumerate(bags):
        for v in bag:
            holders[v].append(b)
    shared = [0] * len(holders)
    for a, b in edges:
        for v in bags[a] & bags[b]:
            shared[v] += 1
    for v, held in enumerate(holders):
        if not held:
            raise OrderError(f"{name}: no bag contains vertex {v + 1} ({model.variables[v]!r})")
        if shared[v] != len(held) - 1:
            raise OrderError(f"{name}: the bags of vertex {v + 1} ({model.variables[v]!r}) are not connected")
        for u in neighbours[v]:
            if u > v and not any(u in bags[b] for b in held):
                pair = f"{model.variables[v]!r} and {model.variables[u]!r}"
                raise OrderError(f"{name}: no bag contains both {pair}, which are neighbours")


def _order_of(bags: list[set[int]], edges: list[tuple[int, int]], n: int) -> list[int]:
    """Remove leaf bags from the forest one by one; eliminate the vertices that no remaining bag contains."""
    around: list[set[int]] = [set() for _ in bags]
    for a, b in edges:
        around[a].add(b)
        around[b].add(a)
    left = [0] * n
    for bag in bags:
        for v in bag:
            left[v] += 1
    order: list[int] = []
    leaves = [b for b in range(len(bags)) if len(around[b]) <= 1]
    gone: set[int] = set()
    while leaves:
        b = leaves.pop()
        if b in gone:
            continue
        gone.add(b)
        for v in sorted(bags[b]):
            left[v] -= 1
            if left[v] == 0:
                order.append(v)
        for other in sorted(around[b]):
            around[other].discard(b)
            if len(around[other]) <= 1:
                leaves.append(other)
    return order
