"""Compiled preparation of a graph: arcs by tail, trees folded away, components in breadth-first order,
and the order of sources.
"""

from __future__ import annotations

import numpy as np

from ..util.jit import compiled

__all__ = ["arcs_by_tail", "arrange", "inner_arcs", "source_order"]

DEEP = 20  # levels, from which on neighbours in a ball have more similar distances than those of one level


@compiled("i8, const(i4[:]), const(i4[:]), const(f8[:]), b1")
def arcs_by_tail(n, tail, head, length, directed):  # type: ignore[no-untyped-def]
    """Arcs by tail, then by head; loops left out, and of parallel arcs the shortest one."""
    # n: Vertices
    # tail, head: (E,) int32: The edges
    # length: (E,) float64: (0,) if all are 1
    # directed: Otherwise an edge becomes two arcs
    # returns first: (n+1,) int64
    # returns heads: (A,) int32
    # returns lengths: (A,) float64: (0,) if `length` is
    # returns arc: (E, 2) int64: The arcs of each edge, there and back; -1 where there is none
    n_edges, sides = len(tail), 1 if directed else 2
    by_head, first = np.zeros(n + 2, np.int64), np.zeros(n + 2, np.int64)
    for e in range(n_edges):
        u, v = tail[e], head[e]
        if u != v:
            by_head[v + 2] += 1
            first[u + 2] += 1
            if not directed:
                by_head[u + 2] += 1
                first[v + 2] += 1
    for v in range(2, n + 2):
        by_head[v] += by_head[v - 1]
        first[v] += first[v - 1]
    n_arcs = first[n + 1]
    sorted_arcs, order = np.empty(n_arcs, np.int64), np.empty(n_arcs, np.int64)
    for side in range(sides):
        for e in range(n_edges):
            u, v = (tail[e], head[e]) if side == 0 else (head[e], tail[e])
            if u != v:
                sorted_arcs[by_head[v + 1]] = 2 * e + side
                by_head[v + 1] += 1
    for a in sorted_arcs:
        u = tail[a >> 1] if a & 1 == 0 else head[a >> 1]
        order[first[u + 1]] = a
        first[u + 1] += 1
    heads, arc = np.empty(n_arcs, np.int32), np.full((n_edges, 2), -1, np.int64)
    lengths = np.empty(n_arcs if len(length) else 0)
    n_arcs, begin = 0, 0
    for u in range(n):
        end, start, last = first[u + 1], n_arcs, -1
        for i in range(begin, end):
            e, v = order[i] >> 1, head[order[i] >> 1] if order[i] & 1 == 0 else tail[order[i] >> 1]
            if v != last or n_arcs == start:
                heads[n_arcs] = last = v
                if len(length):
                    lengths[n_arcs] = length[e]
                n_arcs += 1
            elif len(length):
                lengths[n_arcs - 1] = min(lengths[n_arcs - 1], length[e])
            arc[e, order[i] & 1] = n_arcs - 1
        begin = end
        first[u] = start
    first[n] = n_arcs
    return first[: n + 1].copy(), heads[:n_arcs].copy(), lengths[: n_arcs if len(length) else 0].copy(), arc


@compiled("const(i8[:]), const(i4[:]), b1, b1, const(f8[:])")
def arrange(first, head, directed, fold, chosen):  # type: ignore[no-untyped-def]
    """Fold the trees of a graph, and number the rest in breadth-first order, a component at a time."""
    # first: (n+1,) int64
    # head: (A,) int32: See `arcs_by_tail`
    # directed: Components are weak ones
    # fold: Only for undirected graphs
    # chosen: (n,) float64: 1 for sources, else 0
    # returns number: (n,) int32: New number of each vertex, -1 for those that are folded
    # returns ends: (C,) int64: End of each component in the new numbers
    # returns component: (n,) int32
    # returns reach: (n,) float64: Vertices of the tree that hangs at a vertex, itself included
    # returns sources: (n,) float64: The sources among them
    # returns within: (n,) float64: Ordered pairs of a source and a target in different branches of this tree
    # returns parent: (n,) int32: The vertex that each vertex is folded into, or -1
    n = len(first) - 1
    parent = np.full(n, -1, np.int32)
    reach, sources, within = np.ones(n), chosen.copy(), np.zeros(n)
    inside = np.zeros(n)
    if fold:
        _fold(first, head, reach, sources, inside, parent)
    for v in range(n):
        within[v] = (sources[v] - chosen[v]) * (reach[v] - 1.0) - inside[v]
    back_first, back = _turned(first, head) if directed else (first, head[:0].copy())
    component, number = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    ends, queue = np.empty(n, np.int64), np.empty(n, np.int32)
    n_core, n_components, n_queue, i = 0, 0, 0, 0
    for root in range(n):
        if component[root] >= 0:
            continue
        component[root] = n_components
        queue[n_queue] = root
        n_queue += 1
        while i < n_queue:
            u = queue[i]
            i += 1
            if parent[u] < 0:
                number[u] = n_core
                n_core += 1
            for side in range(2 if directed else 1):
                pointers, others = (first, head) if side == 0 else (back_first, back)
                for arc in range(pointers[u], pointers[u + 1]):
                    v = others[arc]
                    if component[v] < 0:
                        component[v] = n_components
                        queue[n_queue] = v
                        n_queue += 1
        ends[n_components] = n_core
        n_components += 1
    return number, ends[:n_components].copy(), component, reach, sources, within, parent


@compiled()
def _fold(first, head, reach, sources, inside, parent):  # type: ignore[no-untyped-def]
    """Remove vertices of degree 1 until there are none; `inside`: pairs of a source and a target in one branch."""
    n = len(reach)
    degree, queue, n_queue = np.empty(n, np.int64), np.empty(n, np.int32), 0
    for v in range(n):
        degree[v] = first[v + 1] - first[v]
        if degree[v] == 1:
            queue[n_queue] = v
            n_queue += 1
    i = 0
    while i < n_queue:
        u = queue[i]
        i += 1
        if degree[u] != 1:  # the last vertex of a tree
            continue
        for arc in range(first[u], first[u + 1]):
            v = head[arc]
            if parent[v] < 0:
                parent[u] = v
                reach[v] += reach[u]
                sources[v] += sources[u]
                inside[v] += sources[u] * reach[u]
                degree[v] -= 1
                if degree[v] == 1:
                    queue[n_queue] = v
                    n_queue += 1


@compiled()
def _turned(first, head):  # type: ignore[no-untyped-def]
    """The arcs by head."""
    n = len(first) - 1
    back_first, back = np.zeros(n + 2, np.int64), np.empty(len(head), np.int32)
    for v in head:
        back_first[v + 2] += 1
    for v in range(2, n + 2):
        back_first[v] += back_first[v - 1]
    for u in range(n):
        for arc in range(first[u], first[u + 1]):
            v = head[arc]
            back[back_first[v + 1]] = u
            back_first[v + 1] += 1
    return back_first[: n + 1].copy(), back


@compiled("const(i8[:]), const(i4[:]), const(i4[:]), i8")
def inner_arcs(first, head, number, n):  # type: ignore[no-untyped-def]
    """The arcs between vertices that are not folded, by new numbers."""
    # first, head: See `arcs_by_tail`
    # number: (V,) int32: See `arrange`
    # n: Vertices that are not folded
    # returns new_first: (n+1,) int64
    # returns new_head: (A,) int32
    # returns arc: (A,) int64: The old number of each arc
    old = np.empty(n, np.int32)
    for v in range(len(number)):
        if number[v] >= 0:
            old[number[v]] = v
    new_first, n_arcs = np.zeros(n + 1, np.int64), 0
    new_head, arc = np.empty(len(head), np.int32), np.empty(len(head), np.int64)
    for u in range(n):
        for a in range(first[old[u]], first[old[u] + 1]):
            if number[head[a]] >= 0:
                new_head[n_arcs] = number[head[a]]
                arc[n_arcs] = a
                n_arcs += 1
        new_first[u + 1] = n_arcs
    return new_first, new_head[:n_arcs].copy(), arc[:n_arcs].copy()


@compiled("const(i8[:]), const(i4[:]), const(i8[:]), const(b1[:]), i8")
def source_order(first, head, ends, is_source, lanes):  # type: ignore[no-untyped-def]
    """Sources, a component at a time, so that those of a batch are near each other.

    In breadth-first order; in deep components each batch is a ball of vertices that are not yet in one.
    """
    # first: (n+1,) int64
    # head: (A,) int32: Arcs by new numbers; see `inner_arcs`
    # ends: (C,) int64: See `arrange`
    # is_source: (n,) bool
    # lanes: Sources of a batch
    # returns sources: (S,) int32
    n = len(is_source)
    sources, queue, taken = np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n, np.bool_)
    n_sources, lo = 0, 0
    for hi in ends:
        grows, begin = _depth(first, head, lo, hi, queue) > DEEP, n_sources
        for root in range(lo, hi):
            if taken[root]:
                continue
            taken[root] = True
            queue[0] = root
            i, n_queue = 0, 1
            if is_source[root]:
                sources[n_sources] = root
                n_sources += 1
            while grows and i < n_queue and (n_sources - begin) % lanes:
                u = queue[i]
                i += 1
                for arc in range(first[u], first[u + 1]):
                    v = head[arc]
                    if not taken[v] and (n_sources - begin) % lanes:
                        taken[v] = True
                        queue[n_queue] = v
                        n_queue += 1
                        if is_source[v]:
                            sources[n_sources] = v
                            n_sources += 1
        lo = hi
    return sources[:n_sources].copy()


@compiled()
def _depth(first, head, lo, hi, depth):  # type: ignore[no-untyped-def]
    """Levels of a component that is numbered in breadth-first order; writes to `depth`."""
    depth[lo:hi] = hi
    deepest = 0
    for u in range(lo, hi):
        if u == lo or depth[u] == hi:
            depth[u] = 0
        deepest = max(deepest, depth[u])
        for arc in range(first[u], first[u + 1]):
            depth[head[arc]] = min(depth[head[arc]], depth[u] + 1)
    return deepest
