"""Sums of a whole graph from those of the graph without its trees, which are added in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .arcs import Arcs
    from .layout import Layout


class RawSums(NamedTuple):
    """Sums over ordered pairs of a source and a target."""

    node: NDArray[np.float64]  # (n,)
    edge: NDArray[np.float64]  # (E,); (0,) if they are not wanted


def with_trees(
    arcs: Arcs, layout: Layout, chosen: NDArray[np.float64], inner: RawSums, *, edges: bool, endpoints: bool
) -> RawSums:
    """Sums of all vertices and edges, those of folded trees in closed form."""
    f = layout.folded
    left = f.number >= 0
    node = np.zeros(arcs.n)
    node[left] = inner.node[f.number[left]]
    n_targets = np.bincount(f.component, minlength=1)[f.component].astype(np.float64)
    n_sources: NDArray[Any] = n_targets
    if not arcs.directed:
        n_sources = np.bincount(f.component, chosen, minlength=1)[f.component]
        node += f.within + (f.sources - chosen) * (n_targets - f.reach) + (n_sources - f.sources) * (f.reach - 1.0)
        if endpoints:
            node += chosen * (n_targets - 1.0) + (n_sources - chosen)
    if not edges:
        return RawSums(node, np.empty(0))
    edge = np.zeros(len(arcs.of_edge))
    on_arc = np.zeros(len(arcs.head))
    on_arc[layout.arc] = inner.edge
    there, back = arcs.of_edge.T
    edge[there >= 0] = on_arc[there[there >= 0]]
    if not arcs.directed:
        e = np.flatnonzero(back >= 0)
        edge[e] += on_arc[back[e]]
        tail, head = arcs.head[back[e]], arcs.head[there[e]]
        is_up, is_down = f.parent[tail] == head, f.parent[head] == tail
        leaf = np.where(is_up, tail, head)
        crossing = f.sources * (n_targets - f.reach) + (n_sources - f.sources) * f.reach
        edge[e] += np.where(is_up | is_down, crossing[leaf], 0.0)
    return RawSums(node, edge)
