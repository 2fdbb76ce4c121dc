"""Layers: a number for each node such that every arc points to a higher one, and dummy nodes where an arc passes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

Arcs = Sequence[tuple[int, int]]  # (parent, child)


class Layers(NamedTuple):
    """A graph whose arcs connect neighbouring layers only.

    Nodes from ``n_nodes`` on are dummies: points at which a long arc crosses a layer.
    """

    n_nodes: int
    rows: list[list[int]]  # nodes of each layer
    above: list[list[int]]  # neighbours of each node in the layer above
    below: list[list[int]]  # neighbours of each node in the layer below
    chains: list[list[int]]  # dummies of each arc, from the top


def assign_layers(n: int, arcs: Arcs) -> list[int]:
    """Number the layer of each node: the longest path from a source, then shorter where that shortens arcs.

    A node with more children than parents moves down to its uppermost child: sources do, which a longest path puts on
    top.
    """
    parents: list[list[int]] = [[] for _ in range(n)]
    children: list[list[int]] = [[] for _ in range(n)]
    for parent, child in arcs:
        parents[child].append(parent)
        children[parent].append(child)
    missing = [len(p) for p in parents]
    order = [v for v in range(n) if not missing[v]]
    layer = [0] * n
    for v in order:  # grows while it is read
        for child in children[v]:
            layer[child] = max(layer[child], layer[v] + 1)
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    for v in reversed(order):
        if len(children[v]) > len(parents[v]):
            layer[v] = min(layer[child] for child in children[v]) - 1
    return layer


def insert_dummies(n: int, arcs: Arcs, layer: Sequence[int]) -> Layers:
    """Replace every arc that passes layers by a chain of dummy nodes."""
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    above: list[list[int]] = [[] for _ in range(n)]
    below: list[list[int]] = [[] for _ in range(n)]
    for v in range(n):
        rows[layer[v]].append(v)
    chains = []
    for parent, child in arcs:
        chain: list[int] = []
        last = parent
        for at in range(layer[parent] + 1, layer[child]):
            dummy = len(above)
            rows[at].append(dummy)
            above.append([last])
            below.append([])
            below[last].append(dummy)
            chain.append(dummy)
            last = dummy
        above[child].append(last)
        below[last].append(child)
        chains.append(chain)
    return Layers(n, rows, above, below, chains)


# The order of nodes within layers: median sweeps, then exchanges of neighbours (Gansner et al., 1993, section 3).

MAX_SWEEPS, MIN_SWEEPS = 24, 6
MAX_PASSES = 8  # over all pairs of neighbours
WORK = 40_000  # nodes that sweeps visit at most
PATIENCE = 4  # sweeps without fewer crossings, after which the search ends

Rows = list[list[int]]


def reduce_crossings(graph: Layers) -> Rows:
    """Return the nodes of each layer from left to right, with few crossings of arcs between layers."""
    rows = _first_order(graph)
    n = len(graph.above)
    best, fewest, stale = [row[:] for row in rows], count_crossings(graph, rows), 0
    for sweep in range(max(MIN_SWEEPS, min(MAX_SWEEPS, WORK // max(n, 1)))):
        if not fewest or stale >= PATIENCE:
            break
        _sweep(rows, graph.above if sweep % 2 == 0 else graph.below, down=sweep % 2 == 0)
        crossings = count_crossings(graph, rows)
        stale += 1
        if crossings < fewest:
            best, fewest, stale = [row[:] for row in rows], crossings, 0
    if fewest:
        _exchange(graph, best)
    return best


def count_crossings(graph: Layers, rows: Sequence[Sequence[int]]) -> int:
    """Number of pairs of arcs that cross between two layers."""
    place = _places(rows, len(graph.above))
    total = 0
    for row in rows[1:]:
        seen: list[int] = []  # ends in the layer above, of the arcs further to the left
        for v in row:
            ends = [place[u] for u in graph.above[v]]
            for end in ends:
                total += len(seen) - bisect_right(seen, end)
            for end in ends:
                insort(seen, end)
    return total


def _places(rows: Sequence[Sequence[int]], n: int) -> list[int]:
    place = [0] * n
    for row in rows:
        for i, v in enumerate(row):
            place[v] = i
    return place


def _first_order(graph: Layers) -> Rows:
    """Nodes in the order in which a depth-first search from the first sources meets them."""
    layer = [0] * len(graph.above)
    for i, row in enumerate(graph.rows):
        for v in row:
            layer[v] = i
    rows: Rows = [[] for _ in graph.rows]
    seen = [False] * len(layer)
    for start in (v for row in graph.rows for v in row):
        stack = [start]
        while stack:
            v = stack.pop()
            if seen[v]:
                continue
            seen[v] = True
            rows[layer[v]].append(v)
            stack.extend(reversed(graph.above[v]))
            stack.extend(reversed(graph.below[v]))
    return rows


def _sweep(rows: Rows, neighbours: Sequence[Sequence[int]], *, down: bool) -> None:
    """Sort each layer by the medians of the neighbours in the layer before; nodes without any stay in place."""
    place = _places(rows, len(neighbours))
    for at in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
        row = rows[at]
        keys: list[tuple[int, int]] = []
        slots = []
        for i, v in enumerate(row):
            ends = sorted([place[u] for u in neighbours[v]])
            if ends:
                half = len(ends) // 2
                keys.append((ends[half] + ends[half - (len(ends) % 2 == 0)], v))
                slots.append(i)
        keys.sort(key=_key)
        for i, (_, v) in zip(slots, keys, strict=True):
            row[i] = v
        for i, v in enumerate(row):
            place[v] = i


def _key(pair: tuple[int, int]) -> int:
    return pair[0]


def _exchange(graph: Layers, rows: Rows) -> None:
    """Exchange neighbours in a layer while that removes crossings."""
    place = _places(rows, len(graph.above))
    dirty = [True] * len(rows)
    for _ in range(MAX_PASSES):
        changed = [False] * len(rows)
        for at, row in enumerate(rows):
            if not dirty[at]:
                continue
            ends = [_ends(graph, v, place) for v in row]
            for i in range(len(row) - 1):
                if _gain(ends[i], ends[i + 1]) > 0:
                    row[i], row[i + 1] = row[i + 1], row[i]
                    ends[i], ends[i + 1] = ends[i + 1], ends[i]
                    changed[at] = True
            if changed[at]:
                for i, v in enumerate(row):
                    place[v] = i
        if not any(changed):
            break
        dirty = [any(changed[max(0, at - 1) : at + 2]) for at in range(len(rows))]


def _ends(graph: Layers, v: int, place: Sequence[int]) -> tuple[list[int], list[int]]:
    return sorted([place[u] for u in graph.above[v]]), sorted([place[u] for u in graph.below[v]])


def _gain(left: tuple[list[int], list[int]], right: tuple[list[int], list[int]]) -> int:
    """Crossings of the arcs of two neighbours that an exchange removes."""
    gain = 0
    for a, b in zip(left, right, strict=True):
        if a and b and a[-1] > b[0]:  # else the arcs do not cross, and would after the exchange
            for end in b:
                gain += len(a) - bisect_right(a, end) - bisect_left(a, end)
        elif a and b:
            gain -= len(a) * len(b) - sum(end == a[-1] for end in b) * sum(end == b[0] for end in a)
    return gain
