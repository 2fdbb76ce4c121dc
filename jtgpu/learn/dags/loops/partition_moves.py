"""Moves of a chain over partitions: swaps, splits, merges and relocations, and the reversal of an arc."""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import log, popcount
from ....util.jit import compiled
from .outer_sets import ANY, draw_set, lowest
from .partition_state import (
    ACCEPT,
    CONFIRM,
    DRAWS,
    FIRST,
    FOURTH,
    SECOND,
    SETS,
    THIRD,
    current_value,
    draw_parents,
    evaluate,
    exact_value,
    predecessors,
    rough_value,
    sort_parts,
    total_of,
    word,
)  # fmt: skip
from .philox import below, uniform

ADJACENT = 0.8  # share of swaps between neighbouring parts
OF_ALL = 0.25  # share of reversals that draw parents from all sets, not only from those of candidates


@compiled(allocates=False)
def _swap(chain, m, random):  # type: ignore[no-untyped-def]
    """Exchange a variable of one part with one of another."""
    if m == 1:
        return 0.0, 0, -1, -1
    if uniform(word(random, FIRST)) < ADJACENT:
        a = below(word(random, SECOND), m - 1)
        b = a + 1
    else:
        left = below(word(random, SECOND), m * (m - 1) // 2)
        a = 0
        while left >= m - 1 - a:
            left -= m - 1 - a
            a += 1
        b = a + 1 + left
    start = chain.start
    x = chain.order[start[a] + below(word(random, THIRD), start[a + 1] - start[a])]
    y = chain.order[start[b] + below(word(random, FOURTH), start[b + 1] - start[b])]
    chain.new[0, x], chain.new[0, y] = b, a
    return 0.0, a, b + 1, -1


@compiled(allocates=False)
def _log_subsets(tables, k, c):  # type: ignore[no-untyped-def]
    return tables.log_factorials[k] - tables.log_factorials[c] - tables.log_factorials[k - c]


@compiled(allocates=False)
def _split_or_merge(tables, chain, m, random):  # type: ignore[no-untyped-def]
    """Split a part in two, or merge two neighbouring parts, with probability 1/2 each."""
    n, start, new = len(chain.part), chain.start, chain.new
    n_large = 0
    for i in range(m):
        n_large += start[i + 1] - start[i] > 1
    if uniform(word(random, FIRST)) < 0.5:
        if not n_large:
            return 0.0, 0, -1, -1
        left, i = below(word(random, SECOND), n_large), 0
        while True:
            k = start[i + 1] - start[i]
            if k > 1:
                if left == 0:
                    break
                left -= 1
            i += 1
        c = 1 + below(word(random, THIRD), k - 1)
        for v in range(n):
            new[0, v] += chain.part[v] > i
        wanted = c
        for at in range(k):
            v = chain.order[start[i] + at]
            if below(word(random, DRAWS + 2 * n + at), k - at) < wanted:
                wanted -= 1
            else:
                new[0, v] = i + 1
        return log(n_large * (k - 1) / m) + _log_subsets(tables, k, c), i + 1, i + 2, -1
    if m == 1:
        return 0.0, 0, -1, -1
    i = below(word(random, SECOND), m - 1)
    first, second = start[i + 1] - start[i], start[i + 2] - start[i + 1]
    for v in range(n):
        new[0, v] -= chain.part[v] > i
    n_large += 1 - (first > 1) - (second > 1)
    k = first + second
    return log((m - 1) / (n_large * (k - 1))) - _log_subsets(tables, k, first), i, i + 1, -1


@compiled(allocates=False)
def _relocate(chain, m, random):  # type: ignore[no-untyped-def]
    """Move a variable to another part, or to a part of its own between two others."""
    n, part, new = len(chain.part), chain.part, chain.new
    v = below(word(random, FIRST), n)
    a = part[v]
    alone = chain.start[a + 1] - chain.start[a] == 1
    others = m - alone  # parts without v
    if not others:
        return 0.0, 0, -1, -1
    now = others + a if alone else a
    place = below(word(random, SECOND), 2 * others)
    place += place >= now
    to_part = place < others
    at = place if to_part else place - others
    for u in range(n):
        q = part[u] - (alone and part[u] > a)
        new[0, u] = q + (not to_part and q >= at)
    new[0, v] = at
    left, joined = a + (not alone), at + to_part  # parts without v whose predecessors change first
    lo, hi = min(left, joined), max(left, joined)
    return 0.0, lo + (not to_part and lo >= at), hi + (not to_part and hi >= at), v


@compiled(allocates=False)
def _gain(tables, chain, lo, hi, moved):  # type: ignore[no-untyped-def]
    """Change of the rough weight by the new parts, and the number of variables whose predecessors change."""
    part, new, count, gain = chain.part, chain.new, 0, 0.0
    for v in range(len(part)):
        if (lo <= new[0, v] <= hi) or v == moved:
            before, last = predecessors(tables, new[0], v)
            if before == chain.before[v] and last == chain.last[v] and (new[0, v] == 0) == (part[v] == 0):
                continue
            x = rough_value(tables, v, before, last) if not new[0, v] or last else -math.inf
            if x == -math.inf:
                return -math.inf, 0
            gain += x - chain.rough[v]
            new[1, count], new[2, count], new[3, count] = v, before, last
            chain.gains[0, count] = x
            count += 1
    return gain, count


@compiled(allocates=False)
def _correction(tables, chain, count):  # type: ignore[no-untyped-def]
    """How much more the exact weight changes than the rough one, by the changes that `_gain` has found."""
    new, gain = chain.new, 0.0
    for i in range(count):
        v = new[1, i]
        x = exact_value(tables, v, new[2, i], new[3, i])
        if x == -math.inf:
            return x
        chain.gains[1, i] = x
        gain += (x - chain.gains[0, i]) - (current_value(tables, chain, v) - chain.rough[v])
    return gain


@compiled(allocates=False)
def change_partition(tables, chain, m, kind, beta, random):  # type: ignore[no-untyped-def]
    """Propose another partition, and accept or reject it.

    Proposals that the rough weights reject need no exact ones (delayed acceptance, Christen and Fox, 2005).
    """
    # returns (int64, float64, bool): The number of parts, ln of the probability of acceptance (or more, if that is 1),
    #     and whether it was accepted.
    part, new = chain.part, chain.new
    for v in range(len(part)):
        new[0, v] = part[v]
    if kind == 1:
        log_ratio, lo, hi, moved = _split_or_merge(tables, chain, m, random)
    elif kind == 2:
        log_ratio, lo, hi, moved = _swap(chain, m, random)
    else:
        log_ratio, lo, hi, moved = _relocate(chain, m, random)
    if hi < 0:
        return m, 0.0, True
    gain, count = _gain(tables, chain, lo, hi, moved)
    log_ratio += beta * gain
    if not log(uniform(word(random, ACCEPT))) < log_ratio:
        return m, log_ratio, False
    if tables.outer_units.shape[1]:  # accepted by the rough weights: does the exact one confirm it?
        second = beta * _correction(tables, chain, count)
        log_ratio = min(log_ratio, 0.0) + min(second, 0.0)
        if not log(uniform(word(random, CONFIRM))) < second:
            return m, log_ratio, False
    for v in range(len(part)):
        part[v] = new[0, v]
    for i in range(count):
        v = new[1, i]
        chain.before[v], chain.last[v], chain.parents[v] = new[2, i], new[3, i], ANY
        chain.rough[v] = chain.gains[0, i]
        chain.values[v] = chain.gains[1 if tables.outer_units.shape[1] else 0, i]
    return sort_parts(chain), log_ratio, True


@compiled(allocates=False)
def _free(tables, below_of, v, excluded, k):  # type: ignore[no-untyped-def]
    """Those of the first k possible parents of v whose marks have none of the excluded bits."""
    mask = 0
    for j in range(k):
        u = tables.candidates[v, j]
        if u >= 0 and not below_of[u] & excluded:
            mask |= 1 << j
    return mask


@compiled(allocates=False)
def _bit_of(tables, u, v):  # type: ignore[no-untyped-def]
    """Number of u among the candidates of v; -1 if it is none."""
    for j in range(tables.candidates.shape[1]):
        if tables.candidates[v, j] == u:
            return j
    return -1


@compiled(allocates=False)
def _mark_descendants(tables, chain, i, j):  # type: ignore[no-untyped-def]
    """In row 2 of the scratch, bit 0 of the descendants of i and bit 1 of those of j, if both lose their parents."""
    marks = chain.new[2]
    for at in range(len(chain.order)):
        v = chain.order[at]
        marks[v] = (v == i) | (v == j) << 1
        if v not in (i, j):
            left = chain.parents[v]
            while left:
                marks[v] |= marks[tables.candidates[v, lowest(left)]]
                left &= left - 1


@compiled(allocates=False)
def _arc(tables, chain, number):  # type: ignore[no-untyped-def]
    """Parent and child of an arc of the graph, and the number of the parent among the child's candidates."""
    for j in range(len(chain.parents)):
        count = popcount(np.uint64(chain.parents[j]))
        if number < count:
            left = chain.parents[j]
            for _ in range(number):
                left &= left - 1
            return tables.candidates[j, lowest(left)], j, lowest(left)
        number -= count
    return -1, -1, -1


@compiled(allocates=False)
def reverse(tables, chain, m, random):  # type: ignore[no-untyped-def]
    """Reverse an arc and draw the parents of both its ends; results as of `change_partition`.

    The parents before and after are candidates, which look-ups suffice for, or any sets.
    """
    n, parents, arcs = len(chain.part), chain.parents, 0
    k = tables.hits.shape[1]
    if tables.outer_units.shape[1] and uniform(word(random, SETS)) < OF_ALL:
        k = tables.candidates.shape[1]
    for v in range(n):
        if parents[v] == ANY:
            parents[v], _ = draw_parents(tables, chain, v, uniform(word(random, DRAWS + v)))
        arcs += popcount(np.uint64(parents[v]))
    if not arcs:
        return m, 0.0, True
    i, j, i_in_j = _arc(tables, chain, below(word(random, FIRST), arcs))
    j_in_i = _bit_of(tables, j, i)
    if not 0 <= j_in_i < k or (parents[i] | parents[j]) >> k:  # the way back is impossible
        return m, -math.inf, False
    _mark_descendants(tables, chain, i, j)
    marks = chain.new[2]
    for_i, for_j = _free(tables, marks, i, 1, k), _free(tables, marks, j, 3, k)
    z1, z2 = total_of(tables, i, for_i, 1 << j_in_i), total_of(tables, j, for_j, ANY)
    if z1 == -math.inf or z2 == -math.inf:
        return m, -math.inf, False
    z3 = total_of(tables, j, _free(tables, marks, j, 2, k), 1 << i_in_j)
    z4 = total_of(tables, i, _free(tables, marks, i, 3, k), ANY)
    of_i = draw_set(tables.masks[i], tables.weights[i], for_i, 1 << j_in_i, z1, uniform(word(random, SECOND)))
    of_j = draw_set(tables.masks[j], tables.weights[j], for_j, ANY, z2, uniform(word(random, THIRD)))
    new_i, new_j = tables.masks[i, of_i], tables.masks[j, of_j]
    after = arcs - popcount(np.uint64(parents[i])) - popcount(np.uint64(parents[j]))
    after += popcount(np.uint64(new_i)) + popcount(np.uint64(new_j))
    log_ratio = log(arcs / after) + z1 + z2 - z3 - z4
    if not log(uniform(word(random, ACCEPT))) < log_ratio:
        return m, log_ratio, False
    parents[i], parents[j] = new_i, new_j
    _number_parts(tables, chain, marks)
    m = sort_parts(chain)
    evaluate(tables, chain)
    return m, log_ratio, True


@compiled(allocates=False)
def _number_parts(tables, chain, marks):  # type: ignore[no-untyped-def]
    """Parts of the graph after a reversal: first what is below neither end, then what is below j alone, then below i.

    Within these groups, the old order is still possible.
    """
    part, order = chain.part, chain.order
    for group in range(3):
        for at in range(len(order)):
            v = order[at]
            own = 2 if marks[v] & 1 else 1 if marks[v] else 0
            if own == group:
                part[v] = 0
                left = chain.parents[v]
                while left:
                    part[v] = max(part[v], part[tables.candidates[v, lowest(left)]] + 1)
                    left &= left - 1
