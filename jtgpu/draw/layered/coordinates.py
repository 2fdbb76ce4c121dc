"""Horizontal coordinates after Brandes and Koepf, "Fast and Simple Horizontal Coordinate Assignment" (2002).

Four alignments (to the upper or lower neighbours, to the left or right) give each node a coordinate; the result is the
mean of the two in the middle. Each alignment keeps the distances between neighbours of a layer, and so does the result.
Blocks are compacted by longest paths, which the erratum of 2020 does not affect.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .layers import Layers

Rows = Sequence[Sequence[int]]


def horizontal_coordinates(graph: Layers, rows: Rows, half: Sequence[int]) -> list[int]:
    """Compute the centre of each node."""
    # rows: sequence of sequences of int: Nodes of each layer, from left to right
    # half: sequence of int: Half the space that each node takes, distances included: neighbours are at least ``half[u]
    #     + half[v]`` apart
    conflicts = _conflicts(graph, rows)
    found: list[list[int]] = []
    for neighbours, vertical in ((graph.above, 1), (graph.below, -1)):
        for horizontal in (1, -1):
            turned = [row[::horizontal] for row in rows[::vertical]]
            root = _align(turned, neighbours, conflicts)
            found.append([horizontal * x for x in _compact(turned, root, half)])
    return _balance(found, half)


def _conflicts(graph: Layers, rows: Rows) -> set[tuple[int, int]]:
    """Arcs (upper, lower) that cross the chain of a long arc, which stays straight instead."""
    n = graph.n_nodes
    found = set()
    place = [0] * len(graph.above)
    for row in rows:
        for i, v in enumerate(row):
            place[v] = i
    for upper, lower in pairwise(rows):
        left, done = -1, 0
        for i, v in enumerate(lower):
            inner = v >= n and graph.above[v][0] >= n
            if not inner and i < len(lower) - 1:
                continue
            right = place[graph.above[v][0]] if inner else len(upper)
            for w in lower[done : i + 1]:
                for u in graph.above[w]:
                    if (place[u] < left or place[u] > right) and not (u >= n and w >= n):
                        found.add((u, w))
            left, done = right, i + 1
    return found


def _align(rows: Rows, neighbours: Sequence[Sequence[int]], conflicts: set[tuple[int, int]]) -> list[int]:
    """Join nodes with the medians of their neighbours in the layer before: the first node of each node's block."""
    n = len(neighbours)
    root, is_free, place = [*range(n)], [True] * n, [0] * n
    for row in rows:
        last = -1
        for v in row:
            ends = sorted([(place[u], u) for u in neighbours[v]])
            if not ends:
                continue
            for i in dict.fromkeys(((len(ends) - 1) // 2, len(ends) // 2)):
                at, u = ends[i]
                if at > last and is_free[u] and (u, v) not in conflicts and (v, u) not in conflicts:
                    root[v], is_free[u], last = root[u], False, at
                    break
        for i, v in enumerate(row):
            place[v] = i
    return root


def _compact(rows: Rows, root: Sequence[int], half: Sequence[int]) -> list[int]:
    """Coordinates of the nodes: blocks as far left as the distances allow, then right up to the next block."""
    after: list[list[tuple[int, int]]] = [[] for _ in root]  # blocks to the right, with the distance to them
    missing = [0] * len(root)
    for row in rows:
        for u, v in pairwise(row):
            after[root[u]].append((root[v], half[u] + half[v]))
            missing[root[v]] += 1
    order = [v for v, r in enumerate(root) if v == r and not missing[v]]
    x = [0] * len(root)
    for v in order:  # grows while it is read
        at = x[v]
        for w, distance in after[v]:
            if x[w] < at + distance:
                x[w] = at + distance
            missing[w] -= 1
            if not missing[w]:
                order.append(w)
    for v in reversed(order):
        if after[v]:
            x[v] = max(x[v], min([x[w] - distance for w, distance in after[v]]))
    return [x[r] for r in root]


def _balance(found: list[list[int]], half: Sequence[int]) -> list[int]:
    """Move the four results to the extent of the narrowest one, and take the mean of the middle two of each node."""
    lows = [min([x - h for x, h in zip(xs, half, strict=True)]) for xs in found]
    highs = [max([x + h for x, h in zip(xs, half, strict=True)]) for xs in found]
    narrow = min(range(4), key=lambda i: highs[i] - lows[i])
    moved = []
    for i, xs in enumerate(found):
        # results aligned to the left share the left end, the others the right end
        shift = lows[narrow] - lows[i] if i % 2 == 0 else highs[narrow] - highs[i]
        moved.append([x + shift for x in xs])
    middle = [sorted(four)[1:3] for four in zip(*moved, strict=True)]
    return [(a + b) // 2 for a, b in middle]
