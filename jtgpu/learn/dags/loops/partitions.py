"""Compiled loop of Markov chains over ordered partitions of the variables (Kuipers and Moffa, 2017), with reversals.

The state is a graph and its ordered partition: part i holds the variables whose longest path from a root has i arcs.
Swaps, splits, merges and relocations change the partition, whose weight is the sum over all its graphs; the parents of
a variable are drawn again if its predecessors have changed. The reversal of an arc (Grzegorczyk and Husmeier, 2008)
changes the graph. ``tests/support/partitions_reference.py`` defines all moves.

A chain may have replicas at other levels of a ladder (parallel tempering, MC3): level i has the weights of partitions
to the power beta_i, and neighbouring levels exchange their states.
``tests/support/partitions_reference.py`` defines it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....util.array_types import Matrix
from ....util.elementary.loops.functions import exp, log, log_sum, popcount
from ....util.jit import compiled
from ..chain_records import Ladder, SetTables
from .outer_sets import ANY, NEGLIGIBLE, draw_set, lowest, squeezed, with_outer
from .philox import below, exponential, philox, uniform

__all__ = ["Ladder", "SetTables", "partition_steps"]

EXCHANGE = 0xFFFFFFFF  # last word of the counter of the random numbers that exchange levels
ADJACENT = 0.8  # share of swaps between neighbouring parts
OF_ALL = 0.25  # share of reversals that draw parents from all sets, not only from those of candidates
KIND, FIRST, SECOND, THIRD, FOURTH, ACCEPT, CONFIRM, SETS, DRAWS = 0, 1, 2, 3, 4, 5, 6, 7, 8  # words of a step
UNKNOWN = math.inf  # in place of a value that is not computed yet


class _Random(NamedTuple):
    """Where the random words of a step come from."""

    seed: np.uint64
    step: np.uint64
    chain: np.uint64
    script: Matrix[np.uint64]  # the words of all steps; empty: from the counters
    row: int  # of the script


class _Chain(NamedTuple):
    """The state of a chain."""

    part: NDArray[np.int64]  # (n,) part of each variable
    parents: NDArray[np.int64]  # (n,) bits of the candidates; ANY: not drawn yet
    before: NDArray[np.int64]  # (n,) candidates in earlier parts
    last: NDArray[np.int64]  # (n,) candidates in the part before
    rough: NDArray[np.float64]  # (n,) approximate ln of the total weight of the parent sets that the partition allows
    values: NDArray[np.float64]  # (n,) the exact one, or UNKNOWN
    order: NDArray[np.int64]  # (n,) the variables, part by part
    start: NDArray[np.int64]  # (n + 1,) where each part begins in the order
    new: Matrix[np.int64]  # (5, n) scratch: new parts, changed variables, their predecessors, two of reversals
    gains: Matrix[np.float64]  # (2, n) scratch: new rough and exact values


class _Replicas(NamedTuple):
    """The states of R replicas of a chain: the fields of `_Chain` with another axis, apart from the scratch."""

    part: Matrix[np.int64]  # (R, n)
    parents: Matrix[np.int64]
    before: Matrix[np.int64]
    last: Matrix[np.int64]
    rough: Matrix[np.float64]
    values: Matrix[np.float64]
    order: Matrix[np.int64]
    start: Matrix[np.int64]  # (R, n + 1)
    new: Matrix[np.int64]  # (5, n)
    gains: Matrix[np.float64]  # (2, n)


@compiled()
def _replica(s, r):  # type: ignore[no-untyped-def]
    """The state of a replica."""
    return _Chain(
        s.part[r], s.parents[r], s.before[r], s.last[r], s.rough[r], s.values[r], s.order[r], s.start[r], s.new, s.gains
    )


@compiled(allocates=False)
def _word(random, i):  # type: ignore[no-untyped-def]
    if len(random.script):
        return random.script[random.row, i]
    w0, w1, w2, w3 = philox(random.seed, random.step, random.chain, np.uint64(i // 4))
    k = i % 4
    return w0 if k == 0 else w1 if k == 1 else w2 if k == 2 else w3


@compiled(allocates=False)
def _of_candidates(tables, v, before, last):  # type: ignore[no-untyped-def]
    """ln of the total weight of the sets of candidates of v within `before` that have a member in `last`.

    The first member in `last` is its lowest candidate, or the second lowest and not the lowest, and so on.
    """
    inner = (1 << tables.hits.shape[1]) - 1
    last &= inner
    before &= inner
    total = -math.inf
    while last:
        bit = lowest(last)
        x = tables.hits[v, bit, squeezed(before, bit)]
        if x > -math.inf:
            total = log_sum(x, total)
        last &= last - 1
        before &= ~(1 << bit)
    return total


@compiled(allocates=False)
def _value(tables, v, before, last):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets of v within `before` that have a member in `last`, if v is no root."""
    if not before:
        return tables.sums[v, 0]
    return with_outer(tables, v, before, last, _of_candidates(tables, v, before, last))


@compiled(allocates=False)
def _rough(tables, v, before, last):  # type: ignore[no-untyped-def]
    """Approximation of `_value` by look-ups: outer sets weigh as much as the others wherever these may be.

    It is exact without outer sets, and -inf only if the value is.
    """
    if not before:
        return tables.sums[v, 0]
    total = _of_candidates(tables, v, before, last)
    if last and tables.outer_ratios[v] > -math.inf:
        x = tables.sums[v, before & ((1 << tables.hits.shape[1]) - 1)] + tables.outer_ratios[v]
        total = log_sum(x, total)
    return total


@compiled(allocates=False)
def _current(tables, chain, v):  # type: ignore[no-untyped-def]
    """The value of a variable, which is computed if it is unknown."""
    if chain.values[v] == UNKNOWN:
        chain.values[v] = _value(tables, v, chain.before[v], chain.last[v])
    return chain.values[v]


@compiled(allocates=False)
def _total(tables, v, before, met):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets of v within `before` that have a single member, or ANY."""
    inner = (1 << tables.hits.shape[1]) - 1
    total = tables.sums[v, before & inner] if met == ANY else _of_candidates(tables, v, before, met)
    return with_outer(tables, v, before, met, total) if before & ~inner else total


@compiled(allocates=False)
def _hit(tables, v, bit, before):  # type: ignore[no-untyped-def]
    """ln of the total weight of the sets of candidates of v that contain a candidate, within a set that has it."""
    return tables.hits[v, bit, squeezed(before & ((1 << tables.hits.shape[1]) - 1), bit)]


@compiled(allocates=False)
def _predecessors(tables, part, v):  # type: ignore[no-untyped-def]
    """Candidates of v in earlier parts, and in the part before."""
    own, before, last = part[v], 0, 0
    for j in range(tables.candidates.shape[1]):
        u = tables.candidates[v, j]
        if u >= 0 and part[u] < own:
            before |= 1 << j
            if part[u] == own - 1:
                last |= 1 << j
    return before, last


@compiled(allocates=False)
def _sort(chain):  # type: ignore[no-untyped-def]
    """Sort the variables by part; returns the number of parts."""
    part, order, start = chain.part, chain.order, chain.start
    n, m = len(part), 0
    for i in range(n + 1):
        start[i] = 0
    for v in range(n):
        start[part[v] + 1] += 1
        m = max(m, part[v] + 1)
    for i in range(m):
        start[i + 1] += start[i]
    for v in range(n):
        order[start[part[v]]] = v
        start[part[v]] += 1
    for i in range(m, 0, -1):
        start[i] = start[i - 1]
    start[0] = 0
    return m


@compiled(allocates=False)
def _swap(chain, m, random):  # type: ignore[no-untyped-def]
    """Exchange a variable of one part with one of another."""
    if m == 1:
        return 0.0, 0, -1, -1
    if uniform(_word(random, FIRST)) < ADJACENT:
        a = below(_word(random, SECOND), m - 1)
        b = a + 1
    else:
        left = below(_word(random, SECOND), m * (m - 1) // 2)
        a = 0
        while left >= m - 1 - a:
            left -= m - 1 - a
            a += 1
        b = a + 1 + left
    start = chain.start
    x = chain.order[start[a] + below(_word(random, THIRD), start[a + 1] - start[a])]
    y = chain.order[start[b] + below(_word(random, FOURTH), start[b + 1] - start[b])]
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
    if uniform(_word(random, FIRST)) < 0.5:
        if not n_large:
            return 0.0, 0, -1, -1
        left, i = below(_word(random, SECOND), n_large), 0
        while True:
            k = start[i + 1] - start[i]
            if k > 1:
                if left == 0:
                    break
                left -= 1
            i += 1
        c = 1 + below(_word(random, THIRD), k - 1)
        for v in range(n):
            new[0, v] += chain.part[v] > i
        wanted = c
        for at in range(k):
            v = chain.order[start[i] + at]
            if below(_word(random, DRAWS + 2 * n + at), k - at) < wanted:
                wanted -= 1
            else:
                new[0, v] = i + 1
        return log(n_large * (k - 1) / m) + _log_subsets(tables, k, c), i + 1, i + 2, -1
    if m == 1:
        return 0.0, 0, -1, -1
    i = below(_word(random, SECOND), m - 1)
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
    v = below(_word(random, FIRST), n)
    a = part[v]
    alone = chain.start[a + 1] - chain.start[a] == 1
    others = m - alone  # parts without v
    if not others:
        return 0.0, 0, -1, -1
    now = others + a if alone else a
    place = below(_word(random, SECOND), 2 * others)
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
            before, last = _predecessors(tables, new[0], v)
            if before == chain.before[v] and last == chain.last[v] and (new[0, v] == 0) == (part[v] == 0):
                continue
            x = _rough(tables, v, before, last) if not new[0, v] or last else -math.inf
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
        x = _value(tables, v, new[2, i], new[3, i])
        if x == -math.inf:
            return x
        chain.gains[1, i] = x
        gain += (x - chain.gains[0, i]) - (_current(tables, chain, v) - chain.rough[v])
    return gain


@compiled(allocates=False)
def _change_partition(tables, chain, m, kind, beta, random):  # type: ignore[no-untyped-def]
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
    if not log(uniform(_word(random, ACCEPT))) < log_ratio:
        return m, log_ratio, False
    if tables.outer_units.shape[1]:  # accepted by the rough weights: does the exact one confirm it?
        second = beta * _correction(tables, chain, count)
        log_ratio = min(log_ratio, 0.0) + min(second, 0.0)
        if not log(uniform(_word(random, CONFIRM))) < second:
            return m, log_ratio, False
    for v in range(len(part)):
        part[v] = new[0, v]
    for i in range(count):
        v = new[1, i]
        chain.before[v], chain.last[v], chain.parents[v] = new[2, i], new[3, i], ANY
        chain.rough[v] = chain.gains[0, i]
        chain.values[v] = chain.gains[1 if tables.outer_units.shape[1] else 0, i]
    return _sort(chain), log_ratio, True


@compiled(allocates=False)
def _draw_parents(tables, chain, v, u):  # type: ignore[no-untyped-def]
    """Draw the parents of v, given the partition; returns the set and its weight."""
    if not chain.before[v]:
        return np.int64(0), tables.sums[v, 0]
    i = draw_set(tables.masks[v], tables.weights[v], chain.before[v], chain.last[v], _current(tables, chain, v), u)
    return tables.masks[v, i], tables.weights[v, i]


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
def _reverse(tables, chain, m, random):  # type: ignore[no-untyped-def]
    """Reverse an arc and draw the parents of both its ends; results as of `_change_partition`.

    The parents before and after are candidates, which look-ups suffice for, or any sets.
    """
    n, parents, arcs = len(chain.part), chain.parents, 0
    k = tables.hits.shape[1]
    if tables.outer_units.shape[1] and uniform(_word(random, SETS)) < OF_ALL:
        k = tables.candidates.shape[1]
    for v in range(n):
        if parents[v] == ANY:
            parents[v], _ = _draw_parents(tables, chain, v, uniform(_word(random, DRAWS + v)))
        arcs += popcount(np.uint64(parents[v]))
    if not arcs:
        return m, 0.0, True
    i, j, i_in_j = _arc(tables, chain, below(_word(random, FIRST), arcs))
    j_in_i = _bit_of(tables, j, i)
    if not 0 <= j_in_i < k or (parents[i] | parents[j]) >> k:  # the way back is impossible
        return m, -math.inf, False
    _mark_descendants(tables, chain, i, j)
    marks = chain.new[2]
    for_i, for_j = _free(tables, marks, i, 1, k), _free(tables, marks, j, 3, k)
    z1, z2 = _total(tables, i, for_i, 1 << j_in_i), _total(tables, j, for_j, ANY)
    if z1 == -math.inf or z2 == -math.inf:
        return m, -math.inf, False
    z3 = _total(tables, j, _free(tables, marks, j, 2, k), 1 << i_in_j)
    z4 = _total(tables, i, _free(tables, marks, i, 3, k), ANY)
    of_i = draw_set(tables.masks[i], tables.weights[i], for_i, 1 << j_in_i, z1, uniform(_word(random, SECOND)))
    of_j = draw_set(tables.masks[j], tables.weights[j], for_j, ANY, z2, uniform(_word(random, THIRD)))
    new_i, new_j = tables.masks[i, of_i], tables.masks[j, of_j]
    after = arcs - popcount(np.uint64(parents[i])) - popcount(np.uint64(parents[j]))
    after += popcount(np.uint64(new_i)) + popcount(np.uint64(new_j))
    log_ratio = log(arcs / after) + z1 + z2 - z3 - z4
    if not log(uniform(_word(random, ACCEPT))) < log_ratio:
        return m, log_ratio, False
    parents[i], parents[j] = new_i, new_j
    _number_parts(tables, chain, marks)
    m = _sort(chain)
    _evaluate(tables, chain)
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


@compiled(allocates=False)
def _evaluate(tables, chain):  # type: ignore[no-untyped-def]
    """Predecessors and values of all variables whose predecessors have changed."""
    for v in range(len(chain.part)):
        before, last = _predecessors(tables, chain.part, v)
        if before == chain.before[v] and last == chain.last[v]:
            continue
        chain.before[v], chain.last[v] = before, last
        chain.rough[v] = _rough(tables, v, before, last)
        chain.values[v] = UNKNOWN if tables.outer_units.shape[1] else chain.rough[v]


@compiled(allocates=False)
def _add_arcs(tables, chain, arcs):  # type: ignore[no-untyped-def]
    """Add the graph's arcs, in units of 2**-32.

    If all parents of a variable are candidates, its arcs from the part before count by their probability given that and
    the partition.
    """
    inner = (1 << tables.hits.shape[1]) - 1
    for v in range(len(chain.part)):
        left, last = chain.before[v], chain.last[v]
        total = _current(tables, chain, v)
        if chain.parents[v] & ~inner:
            last = 0
        elif tables.outer_units.shape[1]:
            left &= inner
            total = _of_candidates(tables, v, left, last)
        while left:
            bit = lowest(left)
            u = tables.candidates[v, bit]
            if last >> bit & 1:
                x = _hit(tables, v, bit, chain.before[v]) - total
                arcs[u, v] += np.uint64(exponential(min(max(x, NEGLIGIBLE), 0.0)) * 4294967296.0 + 0.5)
            elif chain.parents[v] >> bit & 1:
                arcs[u, v] += np.uint64(4294967296)
            left &= left - 1


@compiled(allocates=False)
def _take_sample(tables, chain, random, arcs, best, highest):  # type: ignore[no-untyped-def]
    """Draw a graph and add it to the sums; returns the highest weight of a graph."""
    n, weight = len(chain.part), 0.0
    for v in range(n):
        chain.parents[v], x = _draw_parents(tables, chain, v, uniform(_word(random, DRAWS + n + v)))
        weight += x
    _add_arcs(tables, chain, arcs)
    if weight > highest:
        highest = weight
        for v in range(n):
            best[v] = chain.parents[v]
    return highest


@compiled(allocates=False)
def _step(tables, chain, m, shares, beta, random):  # type: ignore[no-untyped-def]
    """A move of a kind that is drawn by the shares; reversals, which change the graph, only if beta is 1."""
    # returns (int64, int64, float64, bool): The kind, and the results of `_change_partition`.
    u = uniform(_word(random, KIND))
    x = u - shares[0] if beta == 1.0 else u * (1.0 - shares[0])
    if x < 0.0:
        m, log_ratio, accepted = _reverse(tables, chain, m, random)
        return 0, m, log_ratio, accepted
    kind = 1 if x < shares[1] else 2 if x < shares[1] + shares[2] else 3
    m, log_ratio, accepted = _change_partition(tables, chain, m, kind, beta, random)
    return kind, m, log_ratio, accepted


@compiled(allocates=False)
def _weight(tables, chain):  # type: ignore[no-untyped-def]
    """ln weight of the partition."""
    total = 0.0
    for v in range(len(chain.part)):
        total += _current(tables, chain, v)
    return total


@compiled(allocates=False)
def _exchange(ladder, weights, seed, step, chain, parents):  # type: ignore[no-untyped-def]
    """Exchange neighbouring levels between replicas: even pairs of levels, or odd ones, in turn.

    A replica that comes to the first level draws its graph again: the others have none.
    """
    n_levels = len(weights)
    for level in range(np.int64(step) // ladder.every % 2, n_levels - 1, 2):
        i, j = -1, -1
        for r in range(n_levels):
            i = r if ladder.levels[r] == level else i
            j = r if ladder.levels[r] == level + 1 else j
        log_ratio = (ladder.betas[level] - ladder.betas[level + 1]) * (weights[j] - weights[i])
        ladder.swaps[level, 0] += 1.0
        ladder.swaps[level, 1] += exp(min(log_ratio, 0.0))
        w, _, _, _ = philox(seed, step, np.uint64(chain * n_levels + level), np.uint64(EXCHANGE))
        if log(uniform(w)) < log_ratio:
            ladder.levels[i], ladder.levels[j] = level + 1, level
            if level == 0:
                for v in range(parents.shape[1]):
                    parents[i, v], parents[j, v] = ANY, ANY


@compiled(
    "i8, i8, i8, i8, u8, f8[:], SetTables, Ladder, i8[:, :], i8[:, :], u8[:, :], f8[:], i8[:], i8[:], u8[:, :], f8[:]"
)
def partition_steps(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    n_steps, first, thin, chain, seed, shares, tables, ladder, part, parents, arcs, trace, best, counts, script, ratios
):  # fmt: skip
    """Run a chain of R replicas, each at a level of the ladder; the first level has the posterior."""
    # n_steps, first: Number of steps, and the number of the first one: the same numbers are the same random numbers
    # thin: After every `thin` steps a graph is drawn; its arcs are added to `arcs`, the partition's weight to `trace`
    # shares: (3,) float64: Of reversals, of splits and merges, and of swaps. The other steps relocate a variable.
    # ladder: `levels` and `swaps` are updated
    # part, parents: (R, n) int64: The state, updated: the part of each variable, and its parents as bits, or -1 where
    #     they are not drawn
    # arcs: (n, n) uint64: Sums over the samples of the first level, in units of 2**-32
    # trace: (n_steps // thin,) float64, output
    # best: (n,) int64, output: Parents in the drawn graph of the highest weight
    # counts: (8,) int64: Proposals and acceptances of each kind of move at the first level, in the order of `shares`;
    #     updated
    # script: (n_steps, W) uint64: Random words for each step, for tests; none: they are functions of the counters
    # ratios: (n_steps,) float64, output: With a script: ln of the ratio by which each step was accepted or rejected
    # returns The weight of `best`; -inf if no graph was drawn.
    n_replicas, n = part.shape
    replicas = _Replicas(
        part, parents, np.full((n_replicas, n), -2), np.full((n_replicas, n), -2), np.zeros((n_replicas, n)),
        np.zeros((n_replicas, n)), np.zeros((n_replicas, n), np.int64), np.zeros((n_replicas, n + 1), np.int64),
        np.zeros((5, n), np.int64), np.zeros((2, n)),
    )  # fmt: skip
    weights, sizes = np.zeros(n_replicas), np.zeros(n_replicas, np.int64)
    highest, done = -math.inf, 0
    while done < n_steps:
        end = min(done - done % thin + thin, n_steps)
        if n_replicas > 1:
            end = min(end, done + ladder.every - (first + done) % ladder.every)
        for r in range(n_replicas):
            own, level, n_parts = _replica(replicas, r), ladder.levels[r], sizes[r]
            if not n_parts:
                n_parts = _sort(own)
                _evaluate(tables, own)
            for t in range(done, end):
                random = _Random(seed, np.uint64(first + t), np.uint64(chain * n_replicas + r), script, t)
                kind, n_parts, log_ratio, accepted = _step(tables, own, n_parts, shares, ladder.betas[level], random)
                if level == 0:
                    counts[2 * kind] += 1
                    counts[2 * kind + 1] += accepted
                if len(script):
                    ratios[t] = log_ratio
            sizes[r] = n_parts
        done = end
        step = np.uint64(first + done - 1)
        if n_replicas > 1 and (first + done) % ladder.every == 0:
            for r in range(n_replicas):
                weights[r] = _weight(tables, _replica(replicas, r))
            _exchange(ladder, weights, seed, step, chain, parents)
        if done % thin == 0:
            for r in range(n_replicas):
                if ladder.levels[r] == 0:
                    own = _replica(replicas, r)
                    trace[done // thin - 1] = _weight(tables, own)
                    random = _Random(seed, step, np.uint64(chain * n_replicas + r), script, done - 1)
                    highest = _take_sample(tables, own, random, arcs, best, highest)
    return highest
