"""The definition: one source at a time (Brandes, 2001); numbers of paths are Python's integers, of any size."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from .layout import RawSums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .inputs import Arcs


def dependencies(arcs: Arcs, chosen: NDArray[np.float64], *, edges: bool, endpoints: bool) -> RawSums:
    node, on_arc = np.zeros(arcs.n), np.zeros(len(arcs.head))
    for source in np.flatnonzero(chosen).tolist():
        order, paths, before = _shortest_paths(arcs, source)
        delta = dict.fromkeys(order, 0.0)
        for v in reversed(order):
            for u, arc in before[v]:
                share = paths[u] / paths[v] * (1.0 + delta[v])  # a quotient of integers is rounded once
                delta[u] += share
                on_arc[arc] += share
            if v != source:
                node[v] += delta[v] + (1.0 if endpoints else 0.0)
        node[source] += len(order) - 1.0 if endpoints else 0.0
    edge = np.zeros(len(arcs.of_edge) if edges else 0)
    for column in arcs.of_edge.T if edges else ():
        edge[column >= 0] += on_arc[column[column >= 0]]
    return RawSums(node, edge)


def _shortest_paths(arcs: Arcs, source: int) -> tuple[list[int], dict[int, int], dict[int, list[tuple[int, int]]]]:
    """Vertices by distance, the number of shortest paths to each, and the last arcs of these paths with their tails."""
    distance, paths = {source: 0.0}, {source: 1}
    before: dict[int, list[tuple[int, int]]] = {source: []}
    order: dict[int, None] = {}
    heap = [(0.0, source)]
    while heap:
        _, u = heappop(heap)
        if u in order:
            continue
        order[u] = None
        for arc in range(int(arcs.first[u]), int(arcs.first[u + 1])):
            v = int(arcs.head[arc])
            to = distance[u] + (float(arcs.length[arc]) if len(arcs.length) else 1.0)
            if v in order:
                continue
            if v not in distance or to < distance[v]:
                distance[v], paths[v], before[v] = to, paths[u], [(u, arc)]
                heappush(heap, (to, v))
            elif to == distance[v]:
                paths[v] += paths[u]
                before[v].append((u, arc))
    return list(order), paths, before
