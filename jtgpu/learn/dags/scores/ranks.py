"""Ranks of sets of variables in the combinatorial number system, and the published index of families.

A set {a < b < ... < z} of variables has the colexicographic rank C(a, 1) + C(b, 2) + ... + C(z, l) among the sets
of l variables. `parent_index` is the published index of a family: child by child, size by size, in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....util.arrays import Ints


def binomial_table(n: int, size: int) -> Ints:
    """(n + 1, size + 1) C(c, j) for c = 0..n and j = 0..size; numbers above 2^63 - 1 are set to 2^63 - 1."""
    most = np.iinfo(np.int64).max
    return np.array([[min(math.comb(c, j), most) for j in range(size + 1)] for c in range(n + 1)], np.int64)


def rank(members: Sequence[int]) -> int:
    """Rank of a set among those of its size."""
    return sum(math.comb(m, j) for j, m in enumerate(sorted(members), 1))


def n_parent_sets(n: int, max_parents: int) -> int:
    """Number of sets of at most `max_parents` parents of one of n variables."""
    return sum(math.comb(n - 1, j) for j in range(max_parents + 1))


def parent_index(v: int, parents: Sequence[int], n: int, max_parents: int) -> int:
    """Index of a family among all families of n variables with at most `max_parents` parents."""
    squeezed = [p - (p > v) for p in parents]
    smaller = sum(math.comb(n - 1, j) for j in range(len(squeezed)))
    return v * n_parent_sets(n, max_parents) + smaller + rank(squeezed)


def family_of(index: int, n: int, max_parents: int) -> tuple[int, tuple[int, ...]]:
    """The child and the parents, ascending, of an index: the inverse of `parent_index`."""
    v, left = divmod(index, n_parent_sets(n, max_parents))
    size = 0
    while left >= math.comb(n - 1, size):
        left -= math.comb(n - 1, size)
        size += 1
    parents, c = [], n - 1
    for j in range(size, 0, -1):
        c -= 1
        while math.comb(c, j) > left:
            c -= 1
        left -= math.comb(c, j)
        parents.append(c)
    return v, tuple(sorted(p + (p >= v) for p in parents))


def parent_masks(n: int, max_parents: int) -> Ints:
    """The sets of at most `max_parents` parents of one of n <= 63 variables as bits, (M,).

    The child's own bit is squeezed out: the sets are the same for every child.
    """
    parts = []
    for size in range(max_parents + 1):
        sets = set_array(n - 1, size)
        parts.append((np.int64(1) << sets).sum(axis=1))
    return np.concatenate(parts)


def parent_members(n: int, max_parents: int) -> Ints:
    """Members of these sets, (M, max_parents), ascending and squeezed; -1 where a set has fewer."""
    parts = []
    for size in range(max_parents + 1):
        sets = set_array(n - 1, size)
        parts.append(np.pad(sets, ((0, 0), (0, max_parents - size)), constant_values=-1))
    return np.concatenate(parts)


def set_array(n: int, size: int) -> Ints:
    """All sets of `size` variables out of n by rank, (C(n, size), size)."""
    if not size:
        return np.zeros((1, 0), np.int64)
    smaller = set_array(n - 1, size - 1)
    sets = np.empty((math.comb(n, size), size), np.int64)
    at = 0
    for largest in range(size - 1, n):
        count = math.comb(largest, size - 1)
        sets[at : at + count, :-1] = smaller[:count]
        sets[at : at + count, -1] = largest
        at += count
    return sets
