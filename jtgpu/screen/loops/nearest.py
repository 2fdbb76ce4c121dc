"""Parts of the searches: bits that are set, the order of blocks, the k smallest distances and their sum."""

from __future__ import annotations

import math

import numpy as np

from ...util.jit import compiled

__all__ = ["UNIT", "add_near", "nth_block", "ones", "weight"]

PAIRS, FOURS, NIBBLES, BYTES = (
    np.uint64(x) for x in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F, 0x0101010101010101)
)
UNIT, TWO, FOUR, TOP = (np.uint64(x) for x in (1, 2, 4, 56))


@compiled(allocates=False)
def ones(x):  # type: ignore[no-untyped-def]
    """Number of bits that are set; LLVM makes it one instruction where there is one."""
    x = x - ((x >> UNIT) & PAIRS)
    x = (x & FOURS) + ((x >> TWO) & FOURS)
    x = (x + (x >> FOUR)) & NIBBLES
    return np.int64((x * BYTES) >> TOP)


@compiled(allocates=False)
def nth_block(i, first, n):  # type: ignore[no-untyped-def]
    """The i-th of n blocks, from the first outwards."""
    step = (i + 1) // 2
    return (first + (step if i % 2 else n - step)) % n


@compiled(allocates=False)
def add_near(near, key, count):  # type: ignore[no-untyped-def]
    """Put a key into an ascending list, as often as its row occurs and while it is below the last."""
    k = len(near)
    while count and key < near[k - 1]:
        i = k - 1
        while i > 0 and near[i - 1] > key:
            near[i] = near[i - 1]
            i -= 1
        near[i] = key
        count -= 1


@compiled(allocates=False)
def weight(near, is_squared):  # type: ignore[no-untyped-def]
    """The sum of distances in ascending order; `is_squared`: of their square roots."""
    total = 0.0
    for i in range(len(near)):
        total += math.sqrt(near[i]) if is_squared else near[i]
    return total
