"""Layers that are too wide become several: node i of k layers' worth goes to layer i mod k, like bricks in a wall."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from .layers import Layers, insert_dummies

Rows = list[list[int]]


def stagger(
    graph: Layers, rows: Rows, arcs: Sequence[tuple[int, int]], width: Sequence[int], max_width: int
) -> tuple[Layers, Rows]:
    """Distribute the nodes of wide layers over several, without new crossings."""
    # rows: list of lists of int: Nodes of each layer, from left to right
    # arcs: sequence of (int, int)
    # width: sequence of int: Space that each node or dummy takes in its layer
    # max_width: Width that a layer should have at most
    # returns Layers, list of lists of int: The graph with the new layers, and its nodes from left to right.
    parts = [max(1, -(-sum(width[v] for v in row) // max_width)) for row in rows]
    if max(parts) == 1:
        return graph, rows
    first = [0, *accumulate(parts)]
    n = graph.n_nodes
    old, place, layer = [0] * len(width), [0] * len(width), [0] * n
    for at, row in enumerate(rows):
        for i, v in enumerate(row):
            old[v], place[v] = at, i
        for i, v in enumerate(v for v in row if v < n):
            layer[v] = first[at] + i % parts[at]
    made = insert_dummies(n, arcs, layer)
    origin = [at for at, k in enumerate(parts) for _ in range(k)]
    # a node keeps its place; a dummy has that of the arc's node or dummy in the old layer, then that of its neighbour
    key = [(place[v], -1) for v in range(n)] + [(0, 0)] * (len(made.above) - n)
    for (parent, child), before, chain in zip(arcs, graph.chains, made.chains, strict=True):
        path = [place[parent], *(place[d] for d in before), place[child]]
        for at, dummy in enumerate(chain, layer[parent] + 1):
            i = origin[at] - old[parent]
            neighbour = i - 1 if i else 1
            key[dummy] = (path[i], path[neighbour])
    return made, [sorted(row, key=key.__getitem__) for row in made.rows]
