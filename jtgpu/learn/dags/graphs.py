"""Directed acyclic graphs of structure learning: as networkx graphs, and their equivalence classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import networkx
    from numpy.typing import NDArray


def adjacency(parents: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """[u, v]: whether the graph has the arc u -> v."""
    found = np.zeros((len(parents), len(parents)), np.bool_)
    for v, members in enumerate(parents):
        found[list(members), v] = True
    return found


def has_cycle(arcs: NDArray[np.bool_]) -> bool:
    """Whether a graph [parent, child] has a cycle; an arc from a variable to itself is one."""
    left = np.arange(len(arcs))
    while len(left):
        has_parent = arcs[np.ix_(left, left)].any(axis=0)
        if has_parent.all():
            return True
        left = left[has_parent]
    return False


def digraph(names: Sequence[str], arcs: NDArray[np.bool_]) -> networkx.DiGraph[str]:
    """A networkx graph; nodes and arcs in the order of the variables."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[u], names[v]) for v, u in np.argwhere(arcs.T))
    return graph


def compelled_arcs(arcs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The arcs that have the same direction in every equivalent graph.

    An arc is compelled if it is part of a collider u -> v <- w without an arc between u and w, or if its reversal would
    create such a collider or a cycle: Meek's first three rules, applied until nothing changes.
    """
    # arcs: (n, n) ndarray of bool: Of an acyclic graph
    n = len(arcs)
    linked = arcs | arcs.T
    directed = np.zeros_like(arcs)
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


def _is_compelled(u: int, v: int, directed: NDArray[np.bool_], linked: NDArray[np.bool_]) -> bool:
    """Whether Meek's rules 1 to 3 direct u - v as u -> v."""
    if (directed[:, u] & ~linked[:, v] & (np.arange(len(linked)) != v)).any():
        return True  # w -> u - v: else a collider
    if (directed[u] & directed[:, v]).any():
        return True  # u -> w -> v: else a cycle
    undirected = linked & ~directed & ~directed.T
    between = np.flatnonzero(undirected[u] & directed[:, v])
    return any(not linked[a, b] for i, a in enumerate(between) for b in between[i + 1 :])


def structural_hamming_distance(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> int:
    """Number of pairs of variables that the equivalence classes of two graphs link differently."""
    # first, second: (n, n) ndarray of bool: Of acyclic graphs
    a, b = (_pattern(arcs) for arcs in (first, second))
    differs = a != b
    return int(np.triu(differs | differs.T, 1).sum())


def _pattern(arcs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The equivalence class: both directions of an arc that is not compelled."""
    compelled = compelled_arcs(arcs)
    return np.asarray(arcs | (arcs & ~compelled).T)
