"""Markov equivalence of directed acyclic graphs: compelled arcs, CPDAGs and distances, on adjacency matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..util.arrays import Bools

if TYPE_CHECKING:
    import networkx


def digraph(names: Sequence[str], arcs: Bools) -> networkx.DiGraph[str]:
    """A networkx graph; nodes and arcs in the order of the variables."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[u], names[v]) for v, u in np.argwhere(arcs.T))
    return graph


def compelled_arcs(arcs: Bools, known: Bools | None = None) -> Bools:
    """The arcs that have the same direction in every equivalent graph.

    An arc is compelled if it is part of a collider u -> v <- w without an arc between u and w, or if its reversal would
    create such a collider or a cycle: Meek's first three rules, applied until nothing changes.
    """
    # arcs: (n, n) of an acyclic graph
    # known: arcs whose direction is known, all from an earlier tier of variables to a later one
    n = len(arcs)
    linked = arcs | arcs.T
    directed = np.zeros_like(arcs) if known is None else known.copy()
    for v in range(n):
        parents = np.flatnonzero(arcs[:, v])
        for u in parents:
            if (~linked[u, parents] & (parents != u)).any():
                directed[u, v] = True
    while True:
        free = arcs & ~directed
        change = [(u, v) for u, v in np.argwhere(free) if _is_compelled(u, v, directed, linked)]
        if not change:
            return directed
        directed[tuple(np.array(change).T)] = True


def _is_compelled(u: int, v: int, directed: Bools, linked: Bools) -> bool:
    """Whether Meek's rules 1 to 3 direct u - v as u -> v."""
    if (directed[:, u] & ~linked[:, v] & (np.arange(len(linked)) != v)).any():
        return True  # w -> u - v: else a collider
    if (directed[u] & directed[:, v]).any():
        return True  # u -> w -> v: else a cycle
    undirected = linked & ~directed & ~directed.T
    between = np.flatnonzero(undirected[u] & directed[:, v])
    return any(not linked[a, b] for i, a in enumerate(between) for b in between[i + 1 :])


def experimental_arcs(arcs: Bools, targets: Bools) -> Bools:
    """Arcs whose direction experiments tell: of two variables one was set, and the other not."""
    # targets: (K, n) variables that were set in each experiment (Hauser and Bühlmann, 2012)
    apart = np.zeros_like(arcs)
    for target in targets:
        apart |= target[:, None] != target
    return np.asarray(arcs & apart)


def cpdag_of(arcs: Bools, known: Bools | None = None) -> Bools:
    """The equivalence class of an acyclic graph: both directions of an arc that is not compelled."""
    compelled = compelled_arcs(arcs, known)
    return np.asarray(arcs | (arcs & ~compelled).T)


def hamming_distance(first: Bools, second: Bools) -> int:
    """Number of pairs of variables that two graphs, or two classes, link differently."""
    differs = first != second
    return int(np.triu(differs | differs.T, 1).sum())


def structural_hamming_distance(first: Bools, second: Bools) -> int:
    """Number of pairs of variables that the equivalence classes of two acyclic graphs link differently."""
    return hamming_distance(cpdag_of(first), cpdag_of(second))


def are_equivalent(first: Bools, second: Bools, targets: Bools | None = None) -> bool:
    """Whether two acyclic graphs have the same links and the same colliders of unlinked parents (Verma, Pearl 1990)."""
    # targets: see `experimental_arcs`, which must be the same, too
    if targets is not None and (experimental_arcs(first, targets) != experimental_arcs(second, targets)).any():
        return False
    linked = first | first.T
    return bool((linked == (second | second.T)).all()) and _colliders(first, linked) == _colliders(second, linked)


def _colliders(arcs: Bools, linked: Bools) -> set[tuple[int, int, int]]:
    """Triples (u, v, w) with u -> v <- w, u < w and no link between u and w."""
    colliders = set()
    for v in range(len(arcs)):
        parents = np.flatnonzero(arcs[:, v]).tolist()
        colliders |= {(u, v, w) for i, u in enumerate(parents) for w in parents[i + 1 :] if not linked[u, w]}
    return colliders
