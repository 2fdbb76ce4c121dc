"""Compiled loops over points: a tree of median splits, and the k smallest distances of rows.

Additions run in the order of the columns and are never fused or reordered, so that every distance has the bits of the
NumPy reference.
"""

from __future__ import annotations

import math

import numpy as np

from ..util.jit import compiled
from .arrays import PointTree

__all__ = ["UNIT", "PointTree", "add_near", "build", "nth_block", "ones", "search", "weight"]

# Parts of the searches: bits that are set, the order of blocks, the k smallest distances and their sum.

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


DEPTH = 64  # of the stack; a tree has fewer levels
MARGIN = 1 - 1e-9  # the sums of distances to boxes are added in any order


@compiled(allocates=False)
def _select(keys, order, first, last, place):  # type: ignore[no-untyped-def]
    """Reorder keys[first:last], and `order` with them, so that none before `place` exceeds any from there on."""
    low, high = first, last - 1
    while low < high:
        pivot = keys[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while pivot < keys[j]:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            return


@compiled("const(f8[:, :]), i8, i8[:], f8[:, :], f8[:]")
def build(x, n_levels, order, boxes, points):  # type: ignore[no-untyped-def]
    """Split rows at medians of the widest column, level by level."""
    # x: (N, a) float64: Finite
    # n_levels: There are ``2**n_levels`` leaves; leaf i has the rows ``order[N*i >> n_levels : N*(i+1) >> n_levels]``
    # order: (N,) int64, output
    # boxes, points: See `PointTree`
    n, a = x.shape
    keys = np.empty(n)
    for t in range(n):
        order[t] = t
    for level in range(n_levels + 1):
        for i in range(1 << level):
            first, last = (n * i) >> level, (n * (i + 1)) >> level
            low, high = boxes[(1 << level) + i, :a], boxes[(1 << level) + i, a:]
            low[:], high[:] = x[order[first]], x[order[first]]
            for t in range(first + 1, last):
                row = order[t]
                for j in range(a):
                    v = x[row, j]
                    low[j], high[j] = min(low[j], v), max(high[j], v)
            if level == n_levels:
                m = last - first
                for j in range(a):
                    for r in range(m):
                        points[first * a + j * m + r] = x[order[first + r], j]
                continue
            widest = 0
            for j in range(1, a):
                if high[j] - low[j] > high[widest] - low[widest]:
                    widest = j
            for t in range(first, last):
                keys[t] = x[order[t], widest]
            _select(keys, order, first, last, (n * (2 * i + 1)) >> (level + 1))


@compiled(allocates=False)
def _add_squares(keys, c, x):  # type: ignore[no-untyped-def]
    for r in range(len(keys)):
        d = x - c[r]
        keys[r] += d * d


@compiled(allocates=False)
def _add_four_squares(keys, c0, c1, c2, c3, x0, x1, x2, x3):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Four columns at a time: keys are loaded and stored once."""
    for r in range(len(keys)):
        d0, d1, d2, d3 = x0 - c0[r], x1 - c1[r], x2 - c2[r], x3 - c3[r]
        keys[r] = keys[r] + d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3


@compiled(allocates=False)
def _add_absolute(keys, c, x):  # type: ignore[no-untyped-def]
    for r in range(len(keys)):
        keys[r] += abs(x - c[r])


@compiled(allocates=False)
def _keys_of(block, a, x, is_squared, keys):  # type: ignore[no-untyped-def]
    """Keys of a row x against the m rows of a leaf, an (a, m) block."""
    m = len(keys)
    for r in range(m):
        keys[r] = 0.0
    j = 0
    if is_squared:
        while j + 3 < a:
            four = block[j * m : (j + 4) * m]
            _add_four_squares(
                keys, four[:m], four[m : 2 * m], four[2 * m : 3 * m], four[3 * m :], x[j], x[j + 1], x[j + 2], x[j + 3]
            )
            j += 4
        while j < a:
            _add_squares(keys, block[j * m : (j + 1) * m], x[j])
            j += 1
    else:
        while j < a:
            _add_absolute(keys, block[j * m : (j + 1) * m], x[j])
            j += 1


@compiled(allocates=False, fastmath={"reassoc", "nsz", "contract"})
def _box_key(low, high, x, is_squared):  # type: ignore[no-untyped-def]
    """A lower bound of the keys of a row and the rows in a box."""
    total = 0.0
    if is_squared:
        for j in range(len(x)):
            d = max(low[j] - x[j], x[j] - high[j])
            d = max(d, 0.0)
            total += d * d
    else:
        for j in range(len(x)):
            total += max(max(low[j] - x[j], x[j] - high[j]), 0.0)
    return total * MARGIN


@compiled("PointTree, const(f8[:, :]), i8, const(f8[:]), f8[:]")
def search(tree, rows, k, cuts, weights):  # type: ignore[no-untyped-def]
    """Weights of rows: the sums of their k smallest distances to the rows of a tree."""
    # tree: Of at least k rows
    # rows: (B, a) float64
    # cuts: (B,) float64: The search of a row ends as soon as its weight is known to be less
    # weights: (B,) float64, output: Exact, unless less than the row's cut: then upper bounds
    # returns Distances that were computed.
    a, n = rows.shape[1], tree.n_rows
    n_leaves = len(tree.boxes) >> 1
    near, keys = np.empty(k), np.empty(n // n_leaves + 1)
    nodes, least = np.empty(DEPTH, np.int64), np.empty(DEPTH)
    pairs = 0
    for b in range(len(rows)):
        x, cut = rows[b], cuts[b]
        near[:] = math.inf
        nodes[0], least[0], depth = 1, 0.0, 1
        least_sum, is_new = math.inf, False
        while depth and not least_sum < cut:
            depth -= 1
            if least[depth] >= near[k - 1]:
                continue
            node = nodes[depth]
            while node < n_leaves:
                left, right = tree.boxes[2 * node], tree.boxes[2 * node + 1]
                to_left = _box_key(left[:a], left[a:], x, tree.is_squared)
                to_right = _box_key(right[:a], right[a:], x, tree.is_squared)
                is_left = to_left <= to_right
                nodes[depth] = 2 * node + (1 if is_left else 0)
                least[depth] = to_right if is_left else to_left
                depth += 1
                node = 2 * node + (0 if is_left else 1)
            leaf = node - n_leaves
            first, last = n * leaf // n_leaves, n * (leaf + 1) // n_leaves
            nearest = keys[: last - first]
            _keys_of(tree.points[first * a : last * a], a, x, tree.is_squared, nearest)
            pairs += last - first
            worst = near[k - 1]
            for r in range(last - first):
                if nearest[r] < worst:
                    add_near(near, nearest[r], 1)
                    worst, is_new = near[k - 1], True
            if is_new and worst < math.inf:
                least_sum, is_new = weight(near, tree.is_squared), False
        weights[b] = least_sum
    return pairs
