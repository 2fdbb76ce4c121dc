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
from .outer_sets import ANY, NEGLIGIBLE, lowest
from .partition_moves import change_partition, reverse
from .partition_state import (
    DRAWS,
    KIND,
    Random,
    Replicas,
    current_value,
    draw_parents,
    evaluate,
    hit,
    of_candidates,
    replica_of,
    sort_parts,
    word,
)
from .philox import below, exponential, philox, uniform

__all__ = ["Ladder", "SetTables", "partition_steps"]

EXCHANGE = 0xFFFFFFFF  # last word of the counter of the random numbers that exchange levels


@compiled(allocates=False)
def _add_arcs(tables, chain, arcs):  # type: ignore[no-untyped-def]
    """Add the graph's arcs, in units of 2**-32.

    If all parents of a variable are candidates, its arcs from the part before count by their probability given that and
    the partition.
    """
    inner = (1 << tables.hits.shape[1]) - 1
    for v in range(len(chain.part)):
        left, last = chain.before[v], chain.last[v]
        total = current_value(tables, chain, v)
        if chain.parents[v] & ~inner:
            last = 0
        elif tables.outer_units.shape[1]:
            left &= inner
            total = of_candidates(tables, v, left, last)
        while left:
            bit = lowest(left)
            u = tables.candidates[v, bit]
            if last >> bit & 1:
                x = hit(tables, v, bit, chain.before[v]) - total
                arcs[u, v] += np.uint64(exponential(min(max(x, NEGLIGIBLE), 0.0)) * 4294967296.0 + 0.5)
            elif chain.parents[v] >> bit & 1:
                arcs[u, v] += np.uint64(4294967296)
            left &= left - 1


@compiled(allocates=False)
def _take_sample(tables, chain, random, arcs, best, highest):  # type: ignore[no-untyped-def]
    """Draw a graph and add it to the sums; returns the highest weight of a graph."""
    n, weight = len(chain.part), 0.0
    for v in range(n):
        chain.parents[v], x = draw_parents(tables, chain, v, uniform(word(random, DRAWS + n + v)))
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
    # returns (int64, int64, float64, bool): The kind, and the results of `change_partition`.
    u = uniform(word(random, KIND))
    x = u - shares[0] if beta == 1.0 else u * (1.0 - shares[0])
    if x < 0.0:
        m, log_ratio, accepted = reverse(tables, chain, m, random)
        return 0, m, log_ratio, accepted
    kind = 1 if x < shares[1] else 2 if x < shares[1] + shares[2] else 3
    m, log_ratio, accepted = change_partition(tables, chain, m, kind, beta, random)
    return kind, m, log_ratio, accepted


@compiled(allocates=False)
def _weight(tables, chain):  # type: ignore[no-untyped-def]
    """ln weight of the partition."""
    total = 0.0
    for v in range(len(chain.part)):
        total += current_value(tables, chain, v)
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
    replicas = Replicas(
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
            own, level, n_parts = replica_of(replicas, r), ladder.levels[r], sizes[r]
            if not n_parts:
                n_parts = sort_parts(own)
                evaluate(tables, own)
            for t in range(done, end):
                random = Random(seed, np.uint64(first + t), np.uint64(chain * n_replicas + r), script, t)
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
                weights[r] = _weight(tables, replica_of(replicas, r))
            _exchange(ladder, weights, seed, step, chain, parents)
        if done % thin == 0:
            for r in range(n_replicas):
                if ladder.levels[r] == 0:
                    own = replica_of(replicas, r)
                    trace[done // thin - 1] = _weight(tables, own)
                    random = Random(seed, step, np.uint64(chain * n_replicas + r), script, done - 1)
                    highest = _take_sample(tables, own, random, arcs, best, highest)
    return highest
