"""Compiled betweenness of 16 sources at a time: each is a lane of vector registers.

The sweep forward visits vertices by level; a level lists the vertices that any lane has at this distance. A length is a
whole number of levels, 1 without weights. The sweep back visits the same lists in reverse (Brandes, 2001).
"""

from __future__ import annotations

from ..util.jit import compiled
from .lane_loops import (
    add,
    any_above,
    any_lane,
    both,
    divide,
    drop,
    equal,
    everywhere,
    keep,
    larger,
    load_depths,
    load_numbers,
    mix_depths,
    multiply,
    only_lane,
    splat,
    store_depths,
    store_numbers,
    total,
    zeros,
)
from .records import DEEPEST, FAR, MANY, ArcLists, PathTables, Sums, SweepScratch

__all__ = ["sweep", "sweep_single"]

# Compiled betweenness of one source at a time, for lengths of any kind and numbers of paths beyond 1e308.
#
# Dijkstra's algorithm with a 4-ary heap; a path is as long as another if their float64 sums are equal. The number of
# paths of a vertex is ``paths * 2**(512 * scale)``.

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
        paths = t.paths[v] + more
    elif apart < 0:
        for _ in range(min(-apart, 3)):
            more *= SMALL
        paths = t.paths[v] + more
    else:
        paths = t.paths[v]
        for _ in range(min(apart, 3)):
            paths *= SMALL
        paths += more
        t.scale[v] = t.scale[u]
    if paths > UNIT:
        paths *= SMALL
        t.scale[v] += 1
    t.paths[v] = paths


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


@compiled("ArcLists, const(f8[:]), const(i8[:, :]), const(i4[:]), const(f8[:]), PathTables, Sums")
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


@compiled(allocates=False)
def _forward(g, lo, sources, addresses, s):  # type: ignore[no-untyped-def]
    """Depths and numbers of shortest paths; returns the number of levels, or -1 for too many paths or levels."""
    depth, sigma, co, _ = addresses
    weighted, stride = len(g.levels) > 0, len(s.waits)
    n_buckets = len(s.bucket) // stride
    s.size[:] = 0
    for i in range(len(sources)):
        lane = only_lane(i)
        store_depths(depth, sources[i], mix_depths(lane, everywhere(0), load_depths(depth, sources[i])))
        store_numbers(sigma, sources[i], keep(lane, splat(1.0)))
        s.bucket[i] = sources[i]
    s.size[0] = n_waiting = len(sources)
    level, n_order, now, step = 0, 0, 0, 1
    s.bounds[0] = 0
    while n_waiting > 0:
        if level >= DEEPEST:
            return -1
        here, before, to = everywhere(level), everywhere(level), everywhere(level + 1)
        for i in range(s.size[now]):
            u = s.bucket[now * stride + i]
            known = load_depths(depth, u)
            lanes = equal(known, here)
            if weighted:
                s.waits[u - lo] &= ~(1 << now)
                if not any_lane(lanes):  # shorter paths were found
                    continue
            s.order[n_order] = u
            n_order += 1
            paths = keep(lanes, load_numbers(sigma, u))
            if any_above(paths, MANY):
                return -1
            if not any_lane(larger(here, known)):  # the first level of u
                store_numbers(co, u, zeros())
            for arc in range(g.first[u], g.first[u + 1]):
                v = g.head[arc]
                if weighted:
                    step = int(g.levels[arc])
                    before, to = everywhere(level + step - 1), everywhere(level + step)
                d = load_depths(depth, v)
                hit = both(lanes, larger(d, before))
                if any_lane(hit):
                    into = now + step - (n_buckets if now + step >= n_buckets else 0)
                    if weighted:
                        joins = not (s.waits[v - lo] >> into) & 1
                        s.waits[v - lo] |= 1 << into
                    else:
                        joins = not any_lane(equal(d, to))
                    if joins:
                        s.bucket[into * stride + s.size[into]] = v
                        s.size[into] += 1
                        n_waiting += 1
                    store_depths(depth, v, mix_depths(hit, to, d))
                    others = drop(both(hit, larger(d, to)), load_numbers(sigma, v))  # paths of the same length, or none
                    store_numbers(sigma, v, add(others, keep(hit, paths)))
        n_waiting -= s.size[now]
        s.size[now] = 0
        now = now + 1 if now + 1 < n_buckets else 0
        level += 1
        s.bounds[level] = n_order
    return level


@compiled(allocates=False)
def _backward(g, n_levels, addresses, s, out):  # type: ignore[no-untyped-def]
    """Dependencies of the sources on every vertex and arc, added to the sums; returns nothing."""
    depth, sigma, co, multiplicity = addresses
    weighted, with_edges = len(g.levels) > 0, len(out.edge) > 0
    times = load_numbers(multiplicity, 0)
    one = splat(1.0)
    reached = zeros()
    for level in range(n_levels - 1, -1, -1):
        here, to = everywhere(level), everywhere(level + 1)
        for i in range(s.bounds[level], s.bounds[level + 1]):
            u = s.order[i]
            lanes = equal(load_depths(depth, u), here)
            paths = load_numbers(sigma, u)
            sums = zeros()
            for arc in range(g.first[u], g.first[u + 1]):
                v = g.head[arc]
                if weighted:
                    to = everywhere(level + int(g.levels[arc]))
                hit = both(lanes, equal(load_depths(depth, v), to))
                if any_lane(hit):
                    more = keep(hit, load_numbers(co, v))
                    sums = add(sums, more)
                    if with_edges:
                        out.edge[arc - out.arc] += total(multiply(keep(hit, multiply(more, paths)), times))
            delta = keep(lanes, multiply(sums, paths))
            if out.endpoints:
                ends = keep(lanes, one)
                reached = add(reached, ends)
                if level > 0:
                    out.node[u - out.vertex] += total(ends)
            if level > 0:
                out.node[u - out.vertex] += total(multiply(delta, times))
            ahead = keep(lanes, divide(add(delta, splat(g.reach[u])), paths))
            store_numbers(co, u, add(load_numbers(co, u), ahead))
    if out.endpoints:
        for i in range(s.bounds[1]):
            u = s.order[i]
            own = keep(equal(load_depths(depth, u), everywhere(0)), reached)
            out.node[u - out.vertex] += total(own) - 1.0


@compiled("ArcLists, const(i8[:, :]), const(i4[:]), const(f8[:]), SweepScratch, Sums, b1[:]")
def sweep(g, batches, sources, multiplicity, s, out, failed):  # type: ignore[no-untyped-def]
    """Add the dependencies of batches of sources to the sums."""
    # batches: (B, 4) int64: First source and end, first vertex and end of the component
    # sources: (S,) int32
    # multiplicity: (S,) float64: Sources that each source stands for
    # failed: (B,) bool, output: Batches that have too many paths or levels for this function, and that added nothing
    start = (s.rows.ctypes.data + 63) // 64 * 64
    n = len(s.waits)
    for b in range(len(batches)):
        begin, end, lo, hi = batches[b]
        sigma, co = start + 128 - 128 * lo, start + 128 + 128 * (n - lo)
        depth = start + 128 + 256 * n - 32 * lo
        times = zeros()
        for i in range(begin, end):
            times = add(times, keep(only_lane(i - begin), splat(multiplicity[i])))
        store_numbers(start, 0, times)
        for v in range(lo, hi):
            store_depths(depth, v, everywhere(FAR))
        addresses = depth, sigma, co, start
        n_levels = _forward(g, lo, sources[begin:end], addresses, s)
        failed[b] = n_levels < 0
        if n_levels < 0:
            s.waits[: hi - lo] = 0
        else:
            _backward(g, n_levels, addresses, s, out)
