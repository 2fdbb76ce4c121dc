"""Compiled loops of Markov chains over orders of the variables.

The state of a chain is an order; the masks, each variable's candidate parents that precede it, as bits; and the values,
``table[v, masks[v]]``. The order's weight is the sum of the values. Two moves leave the distribution exp(beta * weight)
unchanged: a swap of neighbours, accepted or rejected, and the relocation of a variable to a position that is drawn from
its exact conditional distribution.
"""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import exp, log
from ....util.jit import compiled
from .philox import below, exponential, philox, uniform

__all__ = ["order_steps", "relocate", "start_order", "swap"]

NEGLIGIBLE = -700.0  # logarithm of a share that is never drawn, and still a normal number


@compiled("i8[:], i8[:, :], f8[:, :], i8[:], i8[:], f8[:]", allocates=False)
def start_order(order, bit_in, table, position, masks, values):  # type: ignore[no-untyped-def]
    """Compute the state of an order."""
    # order: (n,) int64
    # bit_in: (n, n) int64: [u, v]: 2**i if u is candidate parent number i of v, else 0
    # table: (n, 2**k) float64: Weight of each variable by its candidate parents that precede it
    # position, masks, values: (n,) int64, (n,) int64, (n,) float64, output
    for i in range(len(order)):
        v = order[i]
        position[v], masks[v] = i, 0
        for j in range(i):
            masks[v] |= bit_in[order[j], v]
        values[v] = table[v, masks[v]]


@compiled("i8, f8, f8, i8[:], i8[:], i8[:], f8[:], i8[:, :], f8[:, :]", allocates=False)
def swap(i, u, beta, order, position, masks, values, bit_in, table):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Exchange the variables at positions i and i + 1, or leave them; returns whether they were exchanged."""
    # u: A uniform random number
    # order, position, masks, values, bit_in, table: See `start_order`
    a, b = order[i], order[i + 1]
    in_a, in_b = bit_in[b, a], bit_in[a, b]
    new_a, new_b = table[a, masks[a] | in_a], table[b, masks[b] & ~in_b]
    if log(u) >= beta * (new_a + new_b - values[a] - values[b]):
        return False
    masks[a] |= in_a
    masks[b] &= ~in_b
    values[a], values[b] = new_a, new_b
    order[i], order[i + 1] = b, a
    position[a], position[b] = i + 1, i
    return True


@compiled("i8, f8, f8, i8[:], i8[:], i8[:], f8[:], i8[:, :], f8[:, :], f8[:, :]", allocates=False)
def relocate(v, u, beta, order, position, masks, values, bit_in, table, scratch):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Move a variable to a position that is drawn from all positions by their weights."""
    # u, beta, order, position, masks, values, bit_in, table: See `swap`
    # scratch: (3, n) float64: Afterwards, row 0 has the weights of all positions
    # returns The weight of the new order.
    n, now = len(order), position[v]
    weights, other, gain = scratch[0], scratch[1], scratch[2]
    base = 0.0  # sum of the values of the others if all follow v
    for i in range(now):
        w = order[i]
        other[i] = table[w, masks[w] | bit_in[v, w]]
        gain[i] = values[w] - other[i]
        base += other[i]
    for i in range(now + 1, n):
        w = order[i]
        other[i - 1] = table[w, masks[w] & ~bit_in[v, w]]
        gain[i - 1] = other[i - 1] - values[w]
        base += values[w]
    mask = 0
    for i in range(now):
        weights[i] = base + table[v, mask]
        base += gain[i]
        mask |= bit_in[order[i], v]
    for i in range(now, n - 1):
        weights[i] = base + table[v, mask]
        base += gain[i]
        mask |= bit_in[order[i + 1], v]
    weights[n - 1] = base + table[v, mask]
    most = weights[0]
    for p in range(1, n):
        most = max(most, weights[p])
    for p in range(n):
        gain[p] = exponential(max(beta * (weights[p] - most), NEGLIGIBLE))
    total = 0.0
    for p in range(n):
        total += gain[p]
    left, p = u * total, 0
    while p < n - 1 and left >= gain[p]:
        left -= gain[p]
        p += 1
    _place(v, p, order, position, masks, values, bit_in, table, other)
    return weights[p]


@compiled(allocates=False)
def _place(v, p, order, position, masks, values, bit_in, table, other):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Move v to position p.

    ``other[i]`` is the value of the i-th variable without v, if it came to the other side of v.
    """
    old = position[v]
    step = 1 if p > old else -1
    for i in range(old, p, step):
        w = order[i + step]
        order[i] = w
        position[w] = i
        masks[w] ^= bit_in[v, w]
        values[w] = other[i if step > 0 else i - 1]
    order[p] = v
    position[v] = p
    mask = 0
    for i in range(p):
        mask |= bit_in[order[i], v]
    masks[v], values[v] = mask, table[v, mask]


@compiled(allocates=False)
def _add_edges(masks, values, candidates, hits, sums):  # type: ignore[no-untyped-def]
    """Add the probabilities of all arcs, given the order, as multiples of 2**-32."""
    for v in range(len(masks)):
        for j in range(candidates.shape[1]):
            if masks[v] >> j & 1:
                low = (1 << j) - 1
                x = hits[v, j, masks[v] & low | masks[v] >> (j + 1) << j] - values[v]
                sums[candidates[v, j], v] += np.uint64(exponential(min(max(x, NEGLIGIBLE), 0.0)) * 4294967296.0 + 0.5)


@compiled(allocates=False)
def _copy(source, to):  # type: ignore[no-untyped-def]
    for i in range(len(source)):
        to[i] = source[i]


@compiled(
    "i8, i8, i8, i8, u8, f8[:], i8[:], i8[:], i8[:], f8[:], i8[:, :], f8[:, :], i8[:, :], f8[:, :, :], u8[:, :], "
    "f8[:], i8[:]"
)
def order_steps(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    n_steps, first, thin, chain, seed, settings, order, position, masks, values, bit_in, table, candidates, hits, sums,
    trace, best
):  # fmt: skip
    """Run a chain."""
    # n_steps, first: Number of steps, and the number of the first one: the same numbers are the same random numbers
    # thin: After every `thin` steps the arcs are added to `sums`, and the weight to `trace`
    # settings: (3,) float64: beta of the first and of the last step, between which it grows geometrically; share of
    #     swaps
    # order, position, masks, values, bit_in, table: See `start_order`; the state is updated
    # candidates: (n, k) int64: Candidate parents of each variable, in the order of their bits
    # hits: (n, k, 2**(k - 1)) float64: See `set_sums.log_sums_with_member`; of shape (n, k, 0) if no arcs are counted
    # sums: (n, n) uint64
    # trace: (n_steps // thin,) float64, output
    # best: (n,) int64: The order of the highest weight since the call; at first that of the state
    # returns The weight of `best`.
    n = len(order)
    scratch = np.empty((3, n))
    beta, share = settings[0], settings[2]
    growth = exp(log(settings[1] / settings[0]) / max(n_steps - 1, 1))
    total = 0.0
    for v in range(n):
        total += values[v]
    highest = total
    _copy(order, best)
    for t in range(n_steps):
        w0, w1, w2, _ = philox(seed, np.uint64(first + t), np.uint64(chain), np.uint64(0))
        if uniform(w1) < share:
            if swap(below(w0, n - 1), uniform(w2), beta, order, position, masks, values, bit_in, table):
                total = 0.0
                for v in range(n):
                    total += values[v]
        else:
            total = relocate(below(w0, n), uniform(w2), beta, order, position, masks, values, bit_in, table, scratch)
        if total > highest + 1e-9:
            highest = total
            _copy(order, best)
        if (t + 1) % thin == 0:
            trace[t // thin] = total
            if hits.shape[2]:
                _add_edges(masks, values, candidates, hits, sums)
        beta *= growth
    return highest
