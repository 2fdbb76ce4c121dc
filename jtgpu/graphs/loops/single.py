"""Compiled betweenness of one source at a time, for lengths of any kind and numbers of paths beyond 1e308.

Dijkstra's algorithm with a 4-ary heap; a path is as long as another if their float64 sums are equal. The number of
paths of a vertex is ``paths * 2**(512 * scale)``.
"""

from __future__ import annotations

from ...util.jit import compiled
from ..records import Graph, Sums, Tables

__all__ = ["sweep_single"]

UNIT, SMALL = 2.0**512, 2.0**-512
NEVER, WAITING = -2, -1  # ranks of vertices that are not reached, and of those in the heap


@compiled(allocates=False)
def _rise(t, at):  # type: ignore[no-untyped-def]
    """Move an entry of the heap towards its front; returns nothing."""
    v = t.heap[at]
    key = t.distance[v]
    while at > 0:
        parent = (at - 1) >> 2
        other = t.heap[parent]
        if not key < t.distance[other]:
            break
        t.heap[at] = other
        t.place[other] = at
        at = parent
    t.heap[at] = v
    t.place[v] = at


@compiled(allocates=False)
def _pop(t, size):  # type: ignore[no-untyped-def]
    """The nearest vertex of a heap of `size` entries, which is removed."""
    top, v = t.heap[0], t.heap[size - 1]
    size -= 1
    key, at = t.distance[v], 0
    while True:
        child = 4 * at + 1
        if child >= size:
            break
        best, nearest = child, t.distance[t.heap[child]]
        for other in range(child + 1, min(child + 4, size)):
            d = t.distance[t.heap[other]]
            if d < nearest:
                best, nearest = other, d
        if not nearest < key:
            break
        t.heap[at] = t.heap[best]
        t.place[t.heap[at]] = at
        at = best
    t.heap[at] = v
    t.place[v] = at
    return top


@compiled(allocates=False)
def _add_paths(t, u, v):  # type: ignore[no-untyped-def]
    """Add the paths of u to those of v; returns nothing."""
    more, apart = t.paths[u], t.scale[u] - t.scale[v]
    if apart == 0:
        found = t.paths[v] + more
    elif apart < 0:
        for _ in range(min(-apart, 3)):
            more *= SMALL
        found = t.paths[v] + more
    else:
        found = t.paths[v]
        for _ in range(min(apart, 3)):
            found *= SMALL
        found += more
        t.scale[v] = t.scale[u]
    if found > UNIT:
        found *= SMALL
        t.scale[v] += 1
    t.paths[v] = found


@compiled(allocates=False)
def _settle(g, length, source, lo, t):  # type: ignore[no-untyped-def]
    """Distances and numbers of shortest paths; returns the number of vertices that are reached."""
    t.rank[:] = NEVER
    s = source - lo
    t.distance[s], t.paths[s], t.scale[s], t.rank[s] = 0.0, 1.0, 0, WAITING
    t.heap[0] = s
    size, n_settled, step = 1, 0, 1.0
    while size:
        u = _pop(t, size)
        size -= 1
        t.rank[u] = n_settled
        t.order[n_settled] = u
        n_settled += 1
        for arc in range(g.first[u + lo], g.first[u + lo + 1]):
            v = g.head[arc] - lo
            if len(length):
                step = length[arc]
            to = t.distance[u] + step
            if t.rank[v] == NEVER or (t.rank[v] == WAITING and to < t.distance[v]):
                t.distance[v], t.paths[v], t.scale[v] = to, t.paths[u], t.scale[u]
                if t.rank[v] == NEVER:
                    t.rank[v] = WAITING
                    t.heap[size] = v
                    t.place[v] = size
                    size += 1
                _rise(t, t.place[v])
            elif t.rank[v] == WAITING and to == t.distance[v]:
                _add_paths(t, u, v)
    return n_settled


@compiled("Graph, const(f8[:]), const(i8[:, :]), const(i4[:]), const(f8[:]), Tables, Sums")
def sweep_single(g, length, batches, sources, multiplicity, t, out):  # type: ignore[no-untyped-def]
    """Add the dependencies of batches of sources to the sums."""
    # length: (A,) float64: Lengths of the arcs; (0,) if all are 1
    # batches, sources, multiplicity: See `sweep`
    for b in range(len(batches)):
        lo = batches[b, 2]
        for k in range(batches[b, 0], batches[b, 1]):
            source = sources[k]
            n_settled = _settle(g, length, source, lo, t)
            if out.endpoints:
                out.node[source - out.vertex] += n_settled - 1.0
            for i in range(n_settled - 1, -1, -1):
                u = t.order[i]
                delta = _dependency(g, length, lo, u, multiplicity[k], t, out)
                t.ahead[u] = (g.reach[u + lo] + delta) / t.paths[u]
                if i:
                    out.node[u + lo - out.vertex] += delta * multiplicity[k] + (1.0 if out.endpoints else 0.0)


@compiled(allocates=False)
def _dependency(g, length, lo, u, times, t, out):  # type: ignore[no-untyped-def]
    """Dependency of a source on u, from the vertices behind it; adds that on its arcs to the sums."""
    sums, far, step = 0.0, 0.0, 1.0
    for arc in range(g.first[u + lo], g.first[u + lo + 1]):
        v = g.head[arc] - lo
        if len(length):
            step = length[arc]
        if t.rank[v] > t.rank[u] and t.distance[u] + step == t.distance[v]:
            paths, apart = t.paths[u], t.scale[v] - t.scale[u]
            if apart:  # the product is in range where its factors are not
                for _ in range(min(apart, 3)):
                    paths *= SMALL
                far += t.ahead[v] * paths
            else:
                sums += t.ahead[v]
            if len(out.edge):
                out.edge[arc - out.arc] += t.ahead[v] * paths * times
    return sums * t.paths[u] + far
