"""Betweenness in rational arithmetic, from the definition: all pairs, numbers of paths through each vertex and edge."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import networkx as nx

__all__ = ["diamond_sums", "diamonds", "edge_sums", "node_sums"]

Table = dict[Any, dict[Any, Any]]


def _distances_and_paths(graph: Any, weight: Any) -> tuple[Table, Table]:
    """Distance and number of shortest paths of every pair that has a path."""
    distances: Table = {}
    paths: Table = {}
    for s in graph:
        distance = nx.single_source_dijkstra_path_length(graph, s, weight=lambda u, v, d: d.get(weight, 1))
        distances[s], paths[s] = distance, {s: 1}
        for v in sorted(distance, key=distance.__getitem__):
            if v != s:
                before = [u for u in _tails(graph, v) if u != v and u in distance]
                lengths = {u: graph[u][v].get(weight, 1) for u in before}
                paths[s][v] = sum(paths[s][u] for u in before if distance[u] + lengths[u] == distance[v])
    return distances, paths


def _tails(graph: Any, v: Any) -> list[Any]:
    return list(graph.predecessors(v) if graph.is_directed() else graph[v])


def node_sums(graph: Any, weight: Any = None) -> dict[Any, Fraction]:
    """Sum over ordered pairs (s, t) of the share of shortest paths that pass through each vertex between them."""
    distance, paths = _distances_and_paths(graph, weight)
    sums = dict.fromkeys(graph, Fraction(0))
    for s in graph:
        for t in distance[s]:
            for v in graph:
                is_between = v not in (s, t) and s != t and v in distance[s] and t in distance[v]
                if is_between and distance[s][v] + distance[v][t] == distance[s][t]:
                    sums[v] += Fraction(paths[s][v] * paths[v][t], paths[s][t])
    return sums


def edge_sums(graph: Any, weight: Any = None) -> dict[Any, Fraction]:
    """The same for edges."""
    distance, paths = _distances_and_paths(graph, weight)
    sums = {}
    for a, b in graph.edges():
        total = Fraction(0)
        for u, v in {(a, b)} if graph.is_directed() or a == b else {(a, b), (b, a)}:
            length = graph[u][v].get(weight, 1)
            for s in graph:
                for t in distance[s] if u in distance[s] and u != v else ():
                    if t in distance[v] and distance[s][u] + length + distance[v][t] == distance[s][t]:
                        total += Fraction(paths[s][u] * paths[v][t], paths[s][t])
        sums[a, b] = total
    return sums


def diamonds(n: int) -> Any:
    """A chain of n diamonds, 0 - (1, 2) - 3 - (4, 5) - 6 ...: there are 2**n shortest paths from end to end."""
    return nx.Graph((3 * i + a, 3 * i + b) for i in range(n) for a, b in ((0, 1), (0, 2), (1, 3), (2, 3)))


def diamond_sums(n: int) -> dict[int, Fraction]:
    """`node_sums` of a chain of diamonds, in closed form."""
    last, size = 3 * n, 3 * n + 1
    sums = {}
    for v in range(size):
        if v % 3 == 0:
            before, behind = v, last - v  # pairs within a diamond: its two middle vertices, through either joint
            inside = Fraction((v > 0) + (v < last), 1)
            sums[v] = 2 * Fraction(before * behind) + inside
        else:
            i = v // 3
            before, behind = 3 * i + 1, last - 3 * i - 2
            sums[v] = Fraction(before * behind)
    return sums
