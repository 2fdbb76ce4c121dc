"""The state of a chain over partitions, its random words, and the weights that it looks up."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....util.array_types import Matrix
from ....util.elementary.loops.functions import log_sum
from ....util.jit import compiled
from .outer_sets import ANY, draw_set, lowest, squeezed, with_outer
from .philox import philox

KIND, FIRST, SECOND, THIRD, FOURTH, ACCEPT, CONFIRM, SETS, DRAWS = 0, 1, 2, 3, 4, 5, 6, 7, 8  # words of a step
UNKNOWN = math.inf  # in place of a value that is not computed yet


class Random(NamedTuple):
    """Where the random words of a step come from."""

    seed: np.uint64
    step: np.uint64
    chain: np.uint64
    script: Matrix[np.uint64]  # the words of all steps; empty: from the counters
    row: int  # of the script


class PartitionChain(NamedTuple):
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


class Replicas(NamedTuple):
    """The states of R replicas of a chain: the fields of `PartitionChain` with another axis, apart from the scratch."""

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
def replica_of(s, r):  # type: ignore[no-untyped-def]
    """The state of a replica."""
    return PartitionChain(
        s.part[r], s.parents[r], s.before[r], s.last[r], s.rough[r], s.values[r], s.order[r], s.start[r], s.new, s.gains
    )


@compiled(allocates=False)
def word(random, i):  # type: ignore[no-untyped-def]
    if len(random.script):
        return random.script[random.row, i]
    w0, w1, w2, w3 = philox(random.seed, random.step, random.chain, np.uint64(i // 4))
    k = i % 4
    return w0 if k == 0 else w1 if k == 1 else w2 if k == 2 else w3


@compiled(allocates=False)
def of_candidates(tables, v, before, last):  # type: ignore[no-untyped-def]
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
def exact_value(tables, v, before, last):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets of v within `before` that have a member in `last`, if v is no root."""
    if not before:
        return tables.sums[v, 0]
    return with_outer(tables, v, before, last, of_candidates(tables, v, before, last))


@compiled(allocates=False)
def rough_value(tables, v, before, last):  # type: ignore[no-untyped-def]
    """Approximation of `exact_value` by look-ups: outer sets weigh as much as the others wherever these may be.

    It is exact without outer sets, and -inf only if the value is.
    """
    if not before:
        return tables.sums[v, 0]
    total = of_candidates(tables, v, before, last)
    if last and tables.outer_ratios[v] > -math.inf:
        x = tables.sums[v, before & ((1 << tables.hits.shape[1]) - 1)] + tables.outer_ratios[v]
        total = log_sum(x, total)
    return total


@compiled(allocates=False)
def current_value(tables, chain, v):  # type: ignore[no-untyped-def]
    """The value of a variable, which is computed if it is unknown."""
    if chain.values[v] == UNKNOWN:
        chain.values[v] = exact_value(tables, v, chain.before[v], chain.last[v])
    return chain.values[v]


@compiled(allocates=False)
def total_of(tables, v, before, met):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets of v within `before` that have a single member, or ANY."""
    inner = (1 << tables.hits.shape[1]) - 1
    total = tables.sums[v, before & inner] if met == ANY else of_candidates(tables, v, before, met)
    return with_outer(tables, v, before, met, total) if before & ~inner else total


@compiled(allocates=False)
def hit(tables, v, bit, before):  # type: ignore[no-untyped-def]
    """ln of the total weight of the sets of candidates of v that contain a candidate, within a set that has it."""
    return tables.hits[v, bit, squeezed(before & ((1 << tables.hits.shape[1]) - 1), bit)]


@compiled(allocates=False)
def predecessors(tables, part, v):  # type: ignore[no-untyped-def]
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
def sort_parts(chain):  # type: ignore[no-untyped-def]
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
def evaluate(tables, chain):  # type: ignore[no-untyped-def]
    """Predecessors and values of all variables whose predecessors have changed."""
    for v in range(len(chain.part)):
        before, last = predecessors(tables, chain.part, v)
        if before == chain.before[v] and last == chain.last[v]:
            continue
        chain.before[v], chain.last[v] = before, last
        chain.rough[v] = rough_value(tables, v, before, last)
        chain.values[v] = UNKNOWN if tables.outer_units.shape[1] else chain.rough[v]


@compiled(allocates=False)
def draw_parents(tables, chain, v, u):  # type: ignore[no-untyped-def]
    """Draw the parents of v, given the partition; returns the set and its weight."""
    if not chain.before[v]:
        return np.int64(0), tables.sums[v, 0]
    i = draw_set(tables.masks[v], tables.weights[v], chain.before[v], chain.last[v], current_value(tables, chain, v), u)
    return tables.masks[v, i], tables.weights[v, i]
