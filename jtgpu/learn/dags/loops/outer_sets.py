"""Compiled loops that sum outer sets: parent sets with a member that is no candidate, in lists by descending weight."""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import log, log_sum, popcount
from ....util.jit import compiled
from ..chain_records import RUN, SetTables
from .orders import order_steps, start_order
from .philox import below, exponential, philox, uniform

__all__ = [
    "ANY",
    "SetTables",
    "corrected_order_steps",
    "draw_set",
    "draw_sets",
    "lowest",
    "squeezed",
    "totals_of_order",
    "with_outer",
]

# Compiled loops that draw parent sets by their weights.

ANY = -1  # in place of a set that must be met: no such condition
FIRST, BLOCK = 16, 64  # sets that are tested together, as the bits of a word
NEGLIGIBLE = -700.0  # logarithm of a share that is never drawn


@compiled(allocates=False, inline="always")
def lowest(mask):  # type: ignore[no-untyped-def]
    """Number of the lowest bit that is set."""
    return popcount(np.uint64((mask & -mask) - 1))


@compiled(allocates=False, inline="always")
def squeezed(mask, bit):  # type: ignore[no-untyped-def]
    """A set without a bit, and the bits above it moved down by one."""
    return (mask & ((1 << bit) - 1)) | (mask >> (bit + 1)) << bit


@compiled(allocates=False)
def draw_set(masks, weights, before, met, log_total, u):  # type: ignore[no-untyped-def]
    """Number of a parent set within `before` that has a member in `met`, drawn by the weights."""
    # masks, weights: (M,) int64, (M,) float64: By descending weight
    # before, met: `met` is `ANY` if no member is required
    # log_total: ln of the total weight of these sets
    # u: A uniform random number
    drawn, left, absent = 0, u, ~before
    begin, end = 0, min(FIRST, len(masks))
    while begin < len(masks):
        allowed = np.int64(0)
        block = masks[begin:end]
        for j in range(len(block)):  # in vector registers
            is_allowed = ((block[j] & absent) == 0) & (((block[j] & met) != 0) | (met == ANY))
            allowed |= np.int64(is_allowed) << j
        while allowed:
            i = begin + lowest(allowed)
            if weights[i] == -math.inf:
                return drawn
            drawn = i
            left -= exponential(min(max(weights[i] - log_total, NEGLIGIBLE), 0.0))
            if left < 0.0:
                return drawn
            allowed &= allowed - 1
        begin, end = end, min(end + BLOCK, len(masks))
    return drawn


@compiled("i8[:], f8[:], i8[:], i8[:], f8[:], f8[:], i8[:]", allocates=False)
def draw_sets(masks, weights, before, met, log_totals, u, drawn):  # type: ignore[no-untyped-def]
    """Draw several parent sets of a variable; see `draw_set`."""
    # masks, weights: (M,) int64, (M,) float64
    # before, met, log_totals, u: (D,) int64, int64, float64, float64
    # drawn: (D,) int64, output: The sets, as bits
    for d in range(len(u)):
        drawn[d] = masks[draw_set(masks, weights, before[d], met[d], log_totals[d], u[d])]


NEGLIGIBLE_REST = -16.0  # ln of the share of outer sets that are not summed
ONE = 4294967296.0
CORRECTION = 1  # last word of the counter of the random numbers by which orders are accepted; more are for relocations


@compiled(allocates=False)
def with_outer(tables, v, before, met, total):  # type: ignore[no-untyped-def]
    """Add the weights of the outer sets of v within `before` that have a member in `met` to a total; logarithms."""
    absent = ~before
    for s in range(tables.outer_units.shape[1]):
        if tables.outer_totals[v, s] <= total + NEGLIGIBLE_REST:
            break
        end, count = tables.outer_ends[v, s + 1], np.int64(0)
        begin = tables.outer_ends[v, s]
        while begin < end:
            run = begin // RUN
            stop = min((run + 1) * RUN, end)
            if tables.outer_shared[v, run] & absent == 0:
                masks, counts = tables.outer_masks[v, begin:stop], tables.outer_counts[v, begin:stop]
                for i in range(len(masks)):  # from 0: indices that may be negative are not vectorised
                    allowed = ((masks[i] & absent) == 0) & ((masks[i] & met) != 0)
                    count += counts[i] & -np.int64(allowed)
            begin = stop
        if count:
            x = tables.outer_units[v, s] + log(count)
            total = log_sum(x, total)
    return total


@compiled("i8[:], SetTables, i8[:], f8[:]", allocates=False)
def totals_of_order(order, tables, before, totals):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets of each variable that an order allows."""
    # order: (n,) int64
    # before: (n,) int64, output: The possible parents of each variable that precede it, as bits
    # totals: (n,) float64, output
    inner = (1 << tables.hits.shape[1]) - 1
    for v in range(len(order)):
        before[v] = 0
        for j in range(tables.candidates.shape[1]):
            u = tables.candidates[v, j]
            if u < 0:
                continue
            for i in range(len(order)):
                if order[i] == u:
                    before[v] |= 1 << j
                    break
                if order[i] == v:
                    break
    for v in range(len(order)):
        totals[v] = with_outer(tables, v, before[v], ANY, tables.sums[v, before[v] & inner])


@compiled(allocates=False)
def _add_shares(tables, v, before, total, shares):  # type: ignore[no-untyped-def]
    """Probability of each possible parent of v, given an order."""
    k = tables.hits.shape[1]
    inner = (1 << k) - 1
    for j in range(len(shares)):
        shares[j] = 0.0
        if j < k and before >> j & 1:
            shares[j] = exponential(min(max(tables.hits[v, j, squeezed(before & inner, j)] - total, NEGLIGIBLE), 0.0))
    for s in range(tables.outer_units.shape[1]):
        if tables.outer_totals[v, s] <= total + NEGLIGIBLE_REST:
            break
        unit = tables.outer_units[v, s] - total
        for i in range(tables.outer_ends[v, s], tables.outer_ends[v, s + 1]):
            mask = tables.outer_masks[v, i]
            if mask & ~before == 0:
                x = exponential(min(max(unit + log(tables.outer_counts[v, i]), NEGLIGIBLE), 0.0))
                while mask:
                    shares[lowest(mask)] += x
                    mask &= mask - 1


@compiled(allocates=False)
def _total_of(tables, v, before):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets of v within `before`."""
    inner = (1 << tables.hits.shape[1]) - 1
    return with_outer(tables, v, before, ANY, tables.sums[v, before & inner])


@compiled(allocates=False)
def _relocate(v, u, tables, bits, order, before, totals, scratch):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Move v to a position that is drawn by the full weights; see `jtgpu.learn.dags.loops.orders.relocate`.

    ``bits[u, v]`` is the bit of u among the possible parents of v, or 0.
    """
    n, now = len(order), 0
    while order[now] != v:
        now += 1
    weights, other, gain, own = scratch[0], scratch[1], scratch[2], scratch[3]
    base = 0.0  # sum of the totals of the others if all follow v
    for i in range(n - 1):
        w = order[i if i < now else i + 1]
        other[i] = _total_of(tables, w, before[w] ^ bits[v, w]) if bits[v, w] else totals[w]
        gain[i] = totals[w] - other[i] if i < now else other[i] - totals[w]
        base += other[i] if i < now else totals[w]
    mask = 0
    own[0] = _total_of(tables, v, 0)
    for p in range(n):
        if p > 0:
            w = order[p - 1 if p <= now else p]
            base += gain[p - 1]
            own[p] = own[p - 1]
            if bits[w, v]:
                mask |= bits[w, v]
                own[p] = _total_of(tables, v, mask)
        weights[p] = base + own[p]
    most = weights[0]
    for p in range(1, n):
        most = max(most, weights[p])
    total = 0.0
    for p in range(n):
        weights[p] = exponential(max(weights[p] - most, NEGLIGIBLE))
        total += weights[p]
    left, p = u * total, 0
    while p < n - 1 and left >= weights[p]:
        left -= weights[p]
        p += 1
    step = 1 if p > now else -1
    for i in range(now, p, step):
        w = order[i + step]
        order[i] = w
        if bits[v, w]:
            before[w] ^= bits[v, w]
            totals[w] = other[i if step > 0 else i - 1]
    order[p], before[v], totals[v] = v, 0, own[p]
    for i in range(p):
        before[v] |= bits[order[i], v]


@compiled("i8, i8, i8, i8, i8, u8, f8[:], SetTables, i8[:, :], i8[:], u8[:, :], f8[:]")
def corrected_order_steps(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    n_samples, first, thin, n_full, chain, seed, settings, tables, bit_in, order, arcs, trace
):  # fmt: skip
    """Run a chain over orders whose weights include the outer sets.

    Steps look up the sums over candidates. After `thin` of them, the new order is accepted or rejected by the weight of
    the outer sets, or the old one restored (surrogate transitions, Liu, 2001): `thin` steps, each of which is one of
    several moves at random, are a move in balance with the weight without outer sets. Then `n_full` variables are
    relocated by the full weights, so that the chain moves also where most of the weight is that of outer sets.
    """
    # first, thin, chain, seed, settings: See `jtgpu.learn.dags.loops.orders.order_steps`
    # bit_in: (n, n) int64: [u, v]: 2**i if u is candidate parent number i of v, else 0
    # order: (n,) int64: The state, updated
    # arcs: (n, n) uint64: Sums over the samples, in units of 2**-32; updated
    # trace: (n_samples,) float64, output: Weight of each sample
    # returns How many of the new orders were accepted.
    n, m = len(order), tables.candidates.shape[1]
    position, masks, values = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    before, totals, old, best = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    nothing, no_arcs, last, shares = np.empty((n, 1, 0)), np.zeros((n, n), np.uint64), np.empty(1), np.empty(m)
    start_order(order, bit_in, tables.sums, position, masks, values)
    totals_of_order(order, tables, before, totals)
    bits, scratch = np.zeros((n, n), np.int64), np.empty((4, n))
    for v in range(n):
        for j in range(m):
            if tables.candidates[v, j] >= 0:
                bits[tables.candidates[v, j], v] = 1 << j
    accepted = 0
    for s in range(n_samples):
        old[:] = order
        excess = totals.sum() - values.sum()
        begin = first + s * thin
        order_steps(
            thin, begin, thin, chain, seed, settings, order, position, masks, values, bit_in, tables.sums,
            tables.candidates, nothing, no_arcs, last, best,
        )  # fmt: skip
        totals_of_order(order, tables, before, totals)
        new = totals.sum() - values.sum()
        w, _, _, _ = philox(seed, np.uint64(begin + thin - 1), np.uint64(chain), np.uint64(CORRECTION))
        if log(uniform(w)) < new - excess:
            accepted += 1
        else:
            order[:] = old
            totals_of_order(order, tables, before, totals)
        for r in range(n_full):
            w, u, _, _ = philox(seed, np.uint64(begin + thin - 1), np.uint64(chain), np.uint64(CORRECTION + 1 + r))
            _relocate(below(w, n), uniform(u), tables, bits, order, before, totals, scratch)
        start_order(order, bit_in, tables.sums, position, masks, values)
        trace[s] = totals.sum()
        for v in range(n):
            _add_shares(tables, v, before[v], totals[v], shares)
            for j in range(m):
                if before[v] >> j & 1:
                    arcs[tables.candidates[v, j], v] += np.uint64(min(shares[j], 1.0) * ONE + 0.5)
    return accepted
