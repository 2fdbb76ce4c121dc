"""The part of a large model that a picture shows: the neighbourhood of some variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..model.directed import DirectedModel
from ..model.discrete import DiscreteModel


class Graph(NamedTuple):
    """The arcs of a model, by number."""

    arcs: list[tuple[int, int]]  # (parent, child)
    parents: list[list[int]]
    children: list[list[int]]
    is_directed: bool


def graph_of(model: DiscreteModel) -> Graph:
    """Return the arcs of a network, or the pairs of variables that share a factor of a Markov network."""
    n = len(model)
    is_directed = isinstance(model, DirectedModel)
    if isinstance(model, DirectedModel):
        arcs = [(model.index(p), v) for v, name in enumerate(model.variables) for p in model.parents(name)]
    else:
        pairs = {(min(a, b), max(a, b)) for f in model.factors for a in f.scope for b in f.scope if a != b}
        arcs = sorted(pairs)
    parents: list[list[int]] = [[] for _ in range(n)]
    children: list[list[int]] = [[] for _ in range(n)]
    for parent, child in arcs:
        parents[child].append(parent)
        children[parent].append(child)
    return Graph(arcs, parents, children, is_directed)


def hub(graph: Graph) -> int:
    """The node with the most neighbours; the first one in case of a tie."""
    degree = [len(p) + len(c) for p, c in zip(graph.parents, graph.children, strict=True)]
    return degree.index(max(degree))


def neighbourhood(graph: Graph, start: Sequence[int], hops: int, most: int) -> list[int]:
    """Nodes at most `hops` arcs away from the first ones, the nearest first; at most `most`, ascending."""
    found = dict.fromkeys(start[:most])
    ring: Iterable[int] = list(found)
    for _ in range(hops):
        following: dict[int, None] = {}
        for v in ring:
            following.update(dict.fromkeys(w for w in (*graph.parents[v], *graph.children[v]) if w not in found))
        for w in following:
            if len(found) >= most:
                return sorted(found)
            found[w] = None
        ring = following
    return sorted(found)
