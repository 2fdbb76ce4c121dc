"""Simulated annealing of an elimination forest by rotations, compiled by Numba.

A *rotation* exchanges a vertex u and its parent p in the elimination forest, so that p is eliminated before u. The
graph that remains after both is the same as before, hence only the cliques of u and p change: the new clique of p is
the union of its own neighbourhood with the cliques of its new children (its other children, and those children of u
that contain p); the new clique of u is the old one of p with u in place of p. A move takes some tens of nanoseconds
regardless of the size of the graph. Rotations connect all elimination forests.

Sets of vertices are rows of W 64-bit words; vertex v is bit v % 64 of word v // 64. The module needs Numba and is
therefore imported on first use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...util.elementary.loops.functions import exp, log
from ...util.jit import compiled

__all__ = [
    "Cooling",
    "Forest",
    "Region",
    "anneal",
    "forest_of",
    "lowest_bit",
    "next_random",
    "uniform",
]

# mypy: disable-error-code="no-untyped-def"


VERTEX = np.dtype(
    [
        ("first_child", np.int64),  # of the doubly linked list of children; -1 means "none" in all three
        ("next_sibling", np.int64),
        ("previous_sibling", np.int64),
        ("size", np.int64),  # number of later neighbours, those at the vertex's elimination
        ("weight", np.float64),  # factor of the vertex in the cost of a clique
        ("product", np.float64),  # product of the later neighbours' weights
        ("cost", np.float64),  # product of the clique's weights if it is maximal, else 0
    ]
)


class Forest(NamedTuple):
    """An elimination forest of n vertices, with all that a rotation reads and updates."""

    adjacent: NDArray[np.uint64]  # (n, W) the graph
    later: NDArray[np.uint64]  # (n, W) later neighbours of each vertex
    parent: NDArray[np.int64]  # (n,) the first later neighbour to be eliminated; -1 at roots
    vertices: NDArray[np.void]  # (n,) VERTEX


class Region(NamedTuple):
    """The vertices that a run of the annealer may rotate."""

    vertices: NDArray[np.int64]  # (m,)
    within: NDArray[np.bool_]  # (n,) whether each vertex of the graph is one of them


class Cooling(NamedTuple):
    """A geometric cooling schedule, temperatures in units of the total cost."""

    n_steps: int
    hot: float  # first temperature
    cold: float  # last temperature


@compiled()
def _count_bits(x):
    """Number of set bits of a uint64, as int64."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled()
def lowest_bit(x):
    """Position of the lowest set bit of a non-zero uint64, as int64."""
    return _count_bits((x & (~x + np.uint64(1))) - np.uint64(1))


@compiled()
def next_random(state):
    """The next state of the generator xorshift64* (Vigna 2016), uint64 to uint64; neither is zero."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state


@compiled()
def _fraction(draw):
    """The upper 53 bits of a uint64 as a float64 in [0, 1)."""
    return np.float64(draw >> np.uint64(11)) * 1.1102230246251565e-16


@compiled()
def uniform(rng):
    """A uniform float64 in [0, 1); advances the generator state `rng`, (1,) uint64."""
    rng[0] = next_random(rng[0])
    return _fraction(rng[0] * np.uint64(0x2545F4914F6CDD1D))


@compiled()
def forest_of(adjacent, later, weight, parent):
    """The `Forest` of a parent array, and its total cost."""
    # adjacent, later: (n, W) uint64: The graph, and each vertex's later neighbours. `later` becomes part of the forest,
    #     which rotations modify.
    # weight: (n,) float64
    # parent: (n,) int64: Becomes part of the forest
    # returns total: Sum of the costs of the maximal cliques
    n, n_words = adjacent.shape
    vertices = np.empty(n, VERTEX)
    for v in range(n):
        vertices[v].first_child = vertices[v].next_sibling = vertices[v].previous_sibling = -1
    for v in range(n):
        if parent[v] >= 0:
            _prepend_child(vertices, parent[v], v)
        size, product = np.int64(0), 1.0
        for k in range(n_words):
            x = later[v, k]
            size += _count_bits(x)
            while x:
                product *= weight[k * 64 + lowest_bit(x)]
                x &= x - np.uint64(1)
        vertices[v].size, vertices[v].weight, vertices[v].product = size, weight[v], product
    total = 0.0
    for v in range(n):
        is_maximal = True
        c = vertices[v].first_child
        while c >= 0:
            if vertices[c].size == vertices[v].size + 1:
                is_maximal = False
            c = vertices[c].next_sibling
        vertices[v].cost = 0.0
        if is_maximal:
            vertices[v].cost = vertices[v].product * weight[v]
            total += vertices[v].cost
    return Forest(adjacent, later, parent, vertices), total


# The functions of one rotation. They are inlined, and take arrays instead of a `Forest`: each access to an array of a
# tuple would count its references. Arguments: `vertices`, (n,) VERTEX; `adjacent`, `later` and `parent` as in `Forest`;
# `fresh`, (W,) uint64, the later neighbours of p after the rotation; the vertex u and its parent p.


@compiled(inline="always")
def _contains(sets, c, v):
    """Whether set number `c` of the bit sets `sets`, (n, W) uint64, contains vertex `v`."""
    return (sets[c, v >> 6] >> np.uint64(v & 63)) & np.uint64(1) != 0


@compiled(inline="always")
def _prepend_child(vertices, p, c):
    """Make vertex `c` the first child of `p` in the linked lists; `parent` is left to the caller."""
    head = vertices[p].first_child
    vertices[c].previous_sibling = -1
    vertices[c].next_sibling = head
    if head >= 0:
        vertices[head].previous_sibling = c
    vertices[p].first_child = c


@compiled(inline="always")
def _remove_child(vertices, p, c):
    """Take vertex `c` out of the list of the children of `p`; the links of `c` itself keep their values."""
    before, after = vertices[c].previous_sibling, vertices[c].next_sibling
    if before >= 0:
        vertices[before].next_sibling = after
    else:
        vertices[p].first_child = after
    if after >= 0:
        vertices[after].previous_sibling = before


@compiled(inline="always")
def _collect_neighbours(vertices, adjacent, later, fresh, u, p):
    """Compute `fresh`."""
    # returns p_child, u_child: Size of the largest child that p and u have after the rotation (p itself not counted as
    #     a child of u)
    for k in range(len(fresh)):
        fresh[k] = adjacent[p, k] & later[p, k]
    fresh[u >> 6] |= np.uint64(1) << np.uint64(u & 63)
    p_child = np.int64(0)
    c = vertices[p].first_child
    while c >= 0:
        if c != u:
            for k in range(len(fresh)):
                fresh[k] |= later[c, k]
            if vertices[c].size > p_child:
                p_child = vertices[c].size
        c = vertices[c].next_sibling
    u_child = np.int64(0)
    c = vertices[u].first_child
    while c >= 0:
        if _contains(later, c, p):
            for k in range(len(fresh)):
                fresh[k] |= later[c, k]
            if vertices[c].size > p_child:
                p_child = vertices[c].size
        elif vertices[c].size > u_child:
            u_child = vertices[c].size
        c = vertices[c].next_sibling
    fresh[p >> 6] &= ~(np.uint64(1) << np.uint64(p & 63))
    return p_child, u_child


@compiled(inline="always")
def _propose(vertices, adjacent, later, fresh, u, p):
    """Evaluate the rotation of `u` and `p`: compute `fresh` and what the two would cost."""
    # returns size, product: New values of p; u takes those that p has now
    # returns p_cost, u_cost: New costs of p and u
    p_child, u_child = _collect_neighbours(vertices, adjacent, later, fresh, u, p)
    size = np.int64(0)
    lost = 1.0
    for k in range(len(fresh)):
        size += _count_bits(fresh[k])
        x = later[p, k] & ~fresh[k]
        while x:
            lost *= vertices[k * 64 + lowest_bit(x)].weight
            x &= x - np.uint64(1)
    u_size = vertices[p].size
    product = vertices[p].product * vertices[u].weight / lost
    p_cost, u_cost = product * vertices[p].weight, vertices[p].product * vertices[u].weight
    if p_child == size + 1:  # not maximal: contained in the clique of a child
        p_cost = 0.0
    if u_child == u_size + 1 or size == u_size + 1:
        u_cost = 0.0
    return size, product, p_cost, u_cost


@compiled(inline="always")
def _relink(vertices, later, parent, u, p):
    """Exchange `u` and its parent `p` in the parent array and the linked lists."""
    _remove_child(vertices, p, u)
    # u takes the place of p among the children of p's parent
    above, before, after = parent[p], vertices[p].previous_sibling, vertices[p].next_sibling
    parent[u] = above
    vertices[u].previous_sibling = before
    vertices[u].next_sibling = after
    if before >= 0:
        vertices[before].next_sibling = u
    elif above >= 0:
        vertices[above].first_child = u
    if after >= 0:
        vertices[after].previous_sibling = u
    # the children of u whose cliques contain p become children of p
    c = vertices[u].first_child
    while c >= 0:
        following = vertices[c].next_sibling
        if _contains(later, c, p):
            _remove_child(vertices, u, c)
            _prepend_child(vertices, p, c)
            parent[c] = p
        c = following
    parent[p] = u
    _prepend_child(vertices, u, p)


@compiled()
def anneal(forest, total, region, cooling, rng, stop, best_parent):
    """Anneal the vertices of a region, the rest of the forest being fixed."""
    # forest: Modified; holds the last state, not the best one, on return
    # total: Its cost
    # rng: (1,) uint64: State of the random generator; advanced
    # stop: (1,) uint8: Ends the run early when another thread sets it to 1
    # best_parent: (n,) int64: Receives the parents of the best forest
    # returns The cost of the best forest.
    adjacent, later, parent, vertices = forest
    fresh = np.empty(adjacent.shape[1], np.uint64)
    best = total
    best_parent[:] = parent
    unsaved = False  # the current forest is the best one and not copied yet
    state = rng[0]
    temperature = cooling.hot
    factor = exp(log(cooling.cold / cooling.hot) / max(1, cooling.n_steps // 256))
    for step in range(cooling.n_steps):
        if step & 255 == 255:
            temperature *= factor
            if stop[0]:
                break
        state = next_random(state)
        draw = state * np.uint64(0x2545F4914F6CDD1D)
        u = region.vertices[np.int64(((draw >> np.uint64(32)) * np.uint64(len(region.vertices))) >> np.uint64(32))]
        p = parent[u]
        if p < 0 or not region.within[p]:
            continue
        size, product, p_cost, u_cost = _propose(vertices, adjacent, later, fresh, u, p)
        change = p_cost + u_cost - vertices[p].cost - vertices[u].cost
        if change > 0.0:
            if unsaved:
                best_parent[:] = parent
                unsaved = False
            if _fraction(draw * np.uint64(0xDA942042E4DD58B5)) >= exp(-change / temperature):
                continue
        _relink(vertices, later, parent, u, p)
        for k in range(len(fresh)):
            later[u, k] = later[p, k]
            later[p, k] = fresh[k]
        vertices[u].size, vertices[u].product, vertices[u].cost = vertices[p].size, vertices[p].product, u_cost
        vertices[p].size, vertices[p].product, vertices[p].cost = size, product, p_cost
        total += change
        if total < best:
            best = total
            unsaved = True
    if unsaved:
        best_parent[:] = parent
    rng[0] = state
    return best
