"""The compiled search of one chain: anneal region after region of an elimination forest (see `rotations`).

Imported on first use: this module needs Numba. The machine code is cached on disk, so that a machine compiles it once,
in some seconds, and loads it in a fraction of a second afterwards. The entry is `improve`, with one signature.
"""

from __future__ import annotations

import numpy as np

from ...util.elementary.loops.functions import exp, log
from ...util.jit import compiled
from ..ordering.anneal import AnnealingRun, AtomGraph
from .rotations import Cooling, Region, anneal, forest_of, lowest_bit, next_random, uniform

__all__ = [
    "improve",
]

LN10, LN20 = 2.302585092994046, 2.995732273553991

# mypy: disable-error-code="no-untyped-def"


@compiled()
def _rebuild(adjacent, parent, later):
    """Compute every vertex's later neighbours in a forest."""
    # adjacent: (n, W) uint64: The graph
    # parent: (n,) int64: The forest, -1 at roots
    # later: (n, W) uint64: Receives the result
    n, n_words = adjacent.shape
    waiting = np.zeros(n, np.int64)  # children of each vertex that are not eliminated yet
    left = np.zeros(n_words, np.uint64)
    for v in range(n):
        if parent[v] >= 0:
            waiting[parent[v]] += 1
        left[v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    later[:] = adjacent
    stack = np.empty(n, np.int64)
    top = 0
    for v in range(n):
        if waiting[v] == 0:
            stack[top] = v
            top += 1
    while top > 0:
        top -= 1
        v = stack[top]
        left[v >> 6] &= ~(np.uint64(1) << np.uint64(v & 63))
        p = parent[v]
        for k in range(n_words):
            later[v, k] &= left[k]
            if p >= 0:
                later[p, k] |= later[v, k]
        if p >= 0:
            waiting[p] -= 1
            if waiting[p] == 0:
                stack[top] = p
                top += 1


@compiled()
def _children(parent):
    """CSR arrays of the children of every vertex of a forest `parent`, (n,) int64: ``(ptr, children)``, int64."""
    n = len(parent)
    ptr = np.zeros(n + 1, np.int64)
    for v in range(n):
        if parent[v] >= 0:
            ptr[parent[v] + 1] += 1
    for v in range(n):
        ptr[v + 1] += ptr[v]
    children = np.empty(ptr[n], np.int64)
    fill = ptr[:n].copy()
    for v in range(n):
        p = parent[v]
        if p >= 0:
            children[fill[p]] = v
            fill[p] += 1
    return ptr, children


@compiled()
def _grow(parent, start, size, region):
    """Collect a connected region of a forest, breadth first."""
    # parent: (n,) int64
    # start: Its first vertex
    # size: Most vertices to collect
    # region: With room for n vertices; its arrays receive the result
    # returns Number of vertices of the region.
    vertices, within = region.vertices, region.within
    within[:] = False
    ptr, children = _children(parent)
    vertices[0] = start
    within[start] = True
    count = 1
    at = 0
    while at < count and count < size:
        v = vertices[at]
        at += 1
        p = parent[v]
        if p >= 0 and not within[p]:
            within[p] = True
            vertices[count] = p
            count += 1
        for k in range(ptr[v], ptr[v + 1]):
            u = children[k]
            if not within[u] and count < size:
                within[u] = True
                vertices[count] = u
                count += 1
    return count


@compiled()
def _clique_sum(weight, later, vertices):
    """Sum of the costs of the elimination cliques of some vertices, maximal or not."""
    # weight: (n,) float64
    # later: (n, W) uint64
    # vertices: (m,) int64
    total = 0.0
    for v in vertices:
        x = weight[v]
        for k in range(later.shape[1]):
            y = later[v, k]
            while y:
                x *= weight[k * 64 + lowest_bit(y)]
                y &= y - np.uint64(1)
        total += x
    return total


@compiled()
def _anneal_region(graph, weight, trial, later, region, heat, rng, stop, parents):  # noqa: PLR0913
    """Anneal a region from the forest `trial`; returns the best total."""
    # weight: (n,) float64: ``graph.weight`` or ``graph.soft``
    # trial: (n,) int64: Parents to start from; modified
    # later: (n, W) uint64: Scratch memory
    # heat: Temperatures relative to the sum of the region's cliques
    # rng: (1,) uint64
    # stop: (1,) uint8
    # parents: (n,) int64: Receives the parents of the best forest
    _rebuild(graph.adjacent, trial, later)
    scale = _clique_sum(weight, later, region.vertices)
    cooling = Cooling(heat.n_steps, heat.hot * scale, heat.cold * scale)
    forest, total = forest_of(graph.adjacent, later, weight, trial)
    return anneal(forest, total, region, cooling, rng, stop, parents)


@compiled()
def _seeded(seed):
    """A random generator for `anneal`, (1,) uint64, of an int seed."""
    rng = np.empty(1, np.uint64)
    rng[0] = (np.uint64(seed) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(0xD1B54A32D192ED03)
    for _ in range(8):
        rng[0] = next_random(rng[0])
    return rng


@compiled("AtomGraph, i8[:], AnnealingRun, u1[:]")
def improve(graph, parent, chain, stop):
    """Run one chain: anneal the whole forest if ``chain.n_start`` > 0, then regions, accepting what is not worse."""
    # parent: (n,) int64: The forest to start from; receives the best one
    # chain: Budget and parameters; at least one region is annealed, and the last one may exceed ``chain.n_steps``
    # stop: (1,) uint8: Ends the chain early when another thread sets it to 1
    # returns The best total.
    n, n_words = graph.adjacent.shape
    later = np.empty((n, n_words), np.uint64)
    room = Region(np.arange(n), np.ones(n, np.bool_))
    trial, parents = parent.copy(), parent.copy()
    rng = _seeded(chain.seed)
    spent = np.int64(0)
    if chain.n_start > 0:
        heat = Cooling(chain.n_start, chain.start_hot, 1e-4)
        _anneal_region(graph, graph.soft, trial, later, room, heat, rng, stop, parents)
        parent[:] = parents
        spent += chain.n_start
    low = min(8, n)
    best = np.inf
    while best == np.inf or (spent < chain.n_steps and not stop[0]):
        trial[:] = parent
        size = int(low * exp(log(max(chain.high_size, low) / low) * uniform(rng)))
        m = _grow(trial, int(uniform(rng) * n), size, room)
        region = Region(room.vertices[:m], room.within)
        hot = 0.3 * exp(LN10 * uniform(rng))
        steps = int(m * 50 * exp(LN20 * uniform(rng)))
        if uniform(rng) < chain.soft_share:
            steps //= 2
            _anneal_region(graph, graph.soft, trial, later, region, Cooling(steps, hot, 1e-3), rng, stop, parents)
            spent += steps
            trial[:] = parents
            hot = 0.01
        total = _anneal_region(graph, graph.weight, trial, later, region, Cooling(steps, hot, 1e-3), rng, stop, parents)
        spent += max(steps, 1)
        if total <= best:
            best = total
            parent[:] = parents
    return best
