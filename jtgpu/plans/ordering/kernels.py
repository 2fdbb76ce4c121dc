"""The compiled inner loop: annealing by rotations of the elimination forest (see `jtgpu.plans.ordering.anneal`).

Imported on use: this module needs Numba. The machine code is kept on disk (``cache=True``), so that a machine compiles
it once, in some seconds, and loads it in a fraction of one. There is one entry, `improve`, with one signature.

A *rotation* exchanges a vertex u and its parent p in the elimination forest: p is eliminated before u. What the two
leave behind together stays the same, so nothing outside the two changes: p's new clique is the union of what p knows
among itself and its children (p's other children, and those of u that know p), u's new clique is p's old one with u for
p. A move costs some tens of nanoseconds whatever the size of the graph. Rotations reach every elimination forest.

Bit sets are rows of 64-bit words, vertex v at bit v % 64 of word v // 64.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["improve"]

# mypy: disable-error-code="no-untyped-def"


@numba.njit(cache=True, nogil=True)
def _popcount(x):
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, nogil=True)
def _low_bit(x):
    """Number of the lowest set bit."""
    return _popcount((x & (~x + np.uint64(1))) - np.uint64(1))


@numba.njit(cache=True, nogil=True)
def _random(state):
    """A uniform number in [0, 1) from the one-word generator xorshift64* (Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) * 1.1102230246251565e-16


@numba.njit(cache=True, nogil=True)
def _anneal(adjacent, later, weight, parent, movable, within, n_steps, hot, cold, rng, stop, best_parent):
    """Anneal the vertices of a region against each other, the temperature falling geometrically.

    adjacent, later: (n, W) uint64, later kept in step with the forest; weight: (n,) float64; parent: (n,) int64, left
    at the last forest; movable: (m,) int64, the region, and within: (n,) bool, the same; hot, cold: temperatures in
    units of the total; rng: (1,) uint64 state; stop: (1,) uint8, set from outside; best_parent: (n,) int64, out.
    Returns the best total.
    """
    n, n_words = adjacent.shape
    first = np.full(n, -1, np.int64)
    after = np.full(n, -1, np.int64)
    before = np.full(n, -1, np.int64)
    size = np.zeros(n, np.int64)
    product = np.ones(n, np.float64)
    cost = np.zeros(n, np.float64)
    fresh = np.zeros(n_words, np.uint64)
    one = np.uint64(1)
    for v in range(n):
        p = parent[v]
        if p >= 0:
            after[v] = first[p]
            if first[p] >= 0:
                before[first[p]] = v
            first[p] = v
        for k in range(n_words):
            x = later[v, k]
            size[v] += _popcount(x)
            while x:
                product[v] *= weight[k * 64 + _low_bit(x)]
                x &= x - one
    total = 0.0
    for v in range(n):
        keep = True
        c = first[v]
        while c >= 0:
            if size[c] == size[v] + 1:
                keep = False
            c = after[c]
        if keep:
            cost[v] = product[v] * weight[v]
            total += cost[v]
    best = total
    best_parent[:] = parent
    pending = False  # the present forest is the best and not yet copied
    state = rng[0]
    cooling = (cold / hot) ** (1.0 / max(1, n_steps // 256))
    temperature = hot
    for step in range(n_steps):
        if step & 255 == 255:
            temperature *= cooling
            if stop[0]:
                break
        state ^= state >> np.uint64(12)
        state ^= state << np.uint64(25)
        state ^= state >> np.uint64(27)
        draw = state * np.uint64(0x2545F4914F6CDD1D)
        u = np.int64(((draw >> np.uint64(32)) * np.uint64(len(movable))) >> np.uint64(32))
        u = movable[u]
        p = parent[u]
        if p < 0 or not within[p]:
            continue
        # rotate: p goes before its child u
        p_word, p_bit = p >> 6, np.uint64(p & 63)
        u_word, u_bit = u >> 6, np.uint64(u & 63)
        for k in range(n_words):
            fresh[k] = adjacent[p, k] & later[p, k]
        fresh[u_word] |= one << u_bit
        tallest = np.int64(0)  # size of the largest child that p will have
        c = first[p]
        while c >= 0:
            if c != u:
                for k in range(n_words):
                    fresh[k] |= later[c, k]
                if size[c] > tallest:
                    tallest = size[c]
            c = after[c]
        tallest_left = np.int64(0)  # and u
        c = first[u]
        while c >= 0:
            if (later[c, p_word] >> p_bit) & one:
                for k in range(n_words):
                    fresh[k] |= later[c, k]
                if size[c] > tallest:
                    tallest = size[c]
            elif size[c] > tallest_left:
                tallest_left = size[c]
            c = after[c]
        fresh[p_word] &= ~(one << p_bit)
        new_size = np.int64(0)
        lost = 1.0
        for k in range(n_words):
            new_size += _popcount(fresh[k])
            x = later[p, k] & ~fresh[k]
            while x:
                lost *= weight[k * 64 + _low_bit(x)]
                x &= x - one
        new_product = product[p] * weight[u] / lost
        p_cost = 0.0 if tallest == new_size + 1 else new_product * weight[p]
        u_cost = 0.0 if (tallest_left == size[p] + 1 or new_size == size[p] + 1) else product[p] * weight[u]
        change = p_cost + u_cost - cost[p] - cost[u]
        if change > 0.0:
            if pending:
                best_parent[:] = parent
                pending = False
            chance = np.float64((draw * np.uint64(0xDA942042E4DD58B5)) >> np.uint64(11)) * 1.1102230246251565e-16
            if chance >= np.exp(-change / temperature):
                continue
        # take u out of p's children
        if before[u] >= 0:
            after[before[u]] = after[u]
        else:
            first[p] = after[u]
        if after[u] >= 0:
            before[after[u]] = before[u]
        # u takes p's place
        grand = parent[p]
        parent[u] = grand
        before[u] = before[p]
        after[u] = after[p]
        if before[p] >= 0:
            after[before[p]] = u
        elif grand >= 0:
            first[grand] = u
        if after[p] >= 0:
            before[after[p]] = u
        # children of u that know p become p's
        c = first[u]
        while c >= 0:
            follow = after[c]
            if (later[c, p_word] >> p_bit) & one:
                if before[c] >= 0:
                    after[before[c]] = follow
                else:
                    first[u] = follow
                if follow >= 0:
                    before[follow] = before[c]
                before[c] = -1
                after[c] = first[p]
                if first[p] >= 0:
                    before[first[p]] = c
                first[p] = c
                parent[c] = p
            c = follow
        # p becomes u's child
        parent[p] = u
        before[p] = -1
        after[p] = first[u]
        if first[u] >= 0:
            before[first[u]] = p
        first[u] = p
        for k in range(n_words):
            later[u, k] = later[p, k]
            later[p, k] = fresh[k]
        size[u] = size[p]
        size[p] = new_size
        product[u] = product[p]
        product[p] = new_product
        cost[p] = p_cost
        cost[u] = u_cost
        total += change
        if total < best:
            best = total
            pending = True
    if pending:
        best_parent[:] = parent
    rng[0] = state
    return best


@numba.njit(cache=True, nogil=True)
def _rebuild(adjacent, parent, later):
    """Fill `later` (n, W): every vertex's later neighbours in the forest `parent`."""
    n, n_words = adjacent.shape
    waiting = np.zeros(n, np.int64)
    left = np.zeros(n_words, np.uint64)
    one = np.uint64(1)
    for v in range(n):
        if parent[v] >= 0:
            waiting[parent[v]] += 1
        left[v >> 6] |= one << np.uint64(v & 63)
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
        left[v >> 6] &= ~(one << np.uint64(v & 63))
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


@numba.njit(cache=True, nogil=True)
def _grow(parent, start, size, movable, within):
    """Collect a connected region of at most `size` vertices of the forest, breadth first; returns its size."""
    n = len(parent)
    within[:] = False
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
    movable[0] = start
    within[start] = True
    count = 1
    at = 0
    while at < count and count < size:
        v = movable[at]
        at += 1
        p = parent[v]
        if p >= 0 and not within[p]:
            within[p] = True
            movable[count] = p
            count += 1
        for k in range(ptr[v], ptr[v + 1]):
            u = children[k]
            if not within[u] and count < size:
                within[u] = True
                movable[count] = u
                count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _clique_sum(weight, later, movable):
    """Sum of the elimination cliques of some vertices."""
    total = 0.0
    for v in movable:
        x = weight[v]
        for k in range(later.shape[1]):
            y = later[v, k]
            while y:
                x *= weight[k * 64 + _low_bit(y)]
                y &= y - np.uint64(1)
        total += x
    return total


@numba.njit(cache=True, nogil=True)
def improve(adjacent, weight, soft, parent, n_steps, n_start, start_hot, high_size, soft_share, seed, stop):
    """Anneal the whole forest once, if asked, then region after region, keeping what is no worse.

    Parameters
    ----------
    adjacent : (n, W) uint64
    weight : (n,) float64
    soft : (n,) float64
        A power below one of `weight`: a smoother landscape, on which some rounds are run first.
    parent : (n,) int64
        The forest to start from; the best one on return.
    n_steps, n_start : int
        Rotations tried in all, and those of them spent on annealing the whole forest with `soft` first.
    start_hot : float
        Temperature of that, relative to the start's total.
    high_size : int
        Largest region.
    soft_share : float
        Share of the regions that are annealed with `soft` first.
    seed : int
    stop : (1,) uint8
        Set from another thread to end early.

    Returns
    -------
    float
        The best total; the steps made are not more than `n_steps` by more than one region's.
    """
    n, n_words = adjacent.shape
    later = np.empty((n, n_words), np.uint64)
    movable = np.arange(n)
    within = np.ones(n, np.bool_)
    trial = parent.copy()
    found = parent.copy()
    rng = np.empty(1, np.uint64)
    rng[0] = (np.uint64(seed) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(0xD1B54A32D192ED03)
    for _ in range(8):
        _random(rng)
    spent = np.int64(0)
    if n_start > 0:
        _rebuild(adjacent, trial, later)
        scale = _clique_sum(soft, later, movable)
        hot, cold = start_hot * scale, 1e-4 * scale
        _anneal(adjacent, later, soft, trial, movable, within, n_start, hot, cold, rng, stop, found)
        parent[:] = found
        spent += n_start
    best = np.inf
    while best == np.inf or (spent < n_steps and not stop[0]):
        trial[:] = parent
        _rebuild(adjacent, trial, later)
        low = min(8, n)
        size = int(low * (max(high_size, low) / low) ** _random(rng))
        m = _grow(trial, int(_random(rng) * n), size, movable, within)
        hot = 0.3 * 10.0 ** _random(rng)
        steps = int(m * 50 * 20.0 ** _random(rng))
        if _random(rng) < soft_share:
            steps //= 2
            scale = _clique_sum(soft, later, movable[:m])
            _anneal(
                adjacent, later, soft, trial, movable[:m], within, steps, hot * scale, 1e-3 * scale, rng, stop, found
            )
            spent += steps
            trial[:] = found
            _rebuild(adjacent, trial, later)
            hot = 0.01
        scale = _clique_sum(weight, later, movable[:m])
        total = _anneal(
            adjacent, later, weight, trial, movable[:m], within, steps, hot * scale, 1e-3 * scale, rng, stop, found
        )
        spent += max(steps, 1)
        if total <= best:
            best = total
            parent[:] = found
    return best
