"""Compiled loop that finds the graph of the highest weight (Silander and Myllymaki, 2006)."""

from __future__ import annotations

import math

import numpy as np

from ....util.jit import compiled

__all__ = ["best_order"]


@compiled("f8[:, :], f8[:], i8[:]")
def best_order(best_sets, highest, order):  # type: ignore[no-untyped-def]
    """The order of the variables whose best graph has the highest weight."""
    # best_sets: (n, 2**(n-1)) float64: The largest weight of the parent sets of each variable within each set of the
    #     others, as squeezed bits
    # highest: (2**n,) float64: Scratch memory: the highest weight of a graph over each set of variables
    # order: (n,) int64, output
    # returns The highest weight; -inf if no graph is possible.
    n = best_sets.shape[0]
    last = np.zeros(len(highest), np.uint8)
    highest[0] = 0.0
    for s in range(1, len(highest)):
        highest[s] = -math.inf
        for v in range(n):
            if s >> v & 1:
                others = s ^ 1 << v
                x = highest[others] + best_sets[v, others & ((1 << v) - 1) | others >> (v + 1) << v]
                if x > highest[s]:
                    highest[s] = x
                    last[s] = v
    left = len(highest) - 1
    for i in range(n - 1, -1, -1):
        order[i] = last[left]
        left ^= left & 1 << order[i]
    return highest[len(highest) - 1]
