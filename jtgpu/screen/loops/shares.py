"""Compiled loops over rows with states: the columns that differ, counted in bit planes, and the k smallest distances.

Bit p of a column's state stands in plane p of the column's group, which has up to 64 columns. The columns in which two
rows differ are the union of the exclusive ors of their planes.
"""

from __future__ import annotations

import math

import numpy as np

from ...util.jit import compiled
from ..arrays import Coded, CodedRows
from .points import add_near, nth_block, ones, weight

__all__ = ["Coded", "CodedRows", "search"]

BLOCK = 512  # references at a time: their keys stay in the L1 cache
CHUNK = 32  # keys that are compared at once
LARGE = 1 << 40  # more than any number of columns


@compiled(allocates=False)
def _first_plane(a, x, unseen, union):  # type: ignore[no-untyped-def]
    for r in range(len(union)):
        union[r] = (a[r] ^ x) | unseen


@compiled(allocates=False)
def _add_plane(a, x, union):  # type: ignore[no-untyped-def]
    for r in range(len(union)):
        union[r] |= a[r] ^ x


@compiled(allocates=False)
def _add_ones(words, observed, counts):  # type: ignore[no-untyped-def]
    for r in range(len(counts)):
        counts[r] += ones(words[r] & observed)


@compiled(allocates=False)
def _add_masked(words, holes, observed, counts):  # type: ignore[no-untyped-def]
    for r in range(len(counts)):
        counts[r] += ones(words[r] & holes[r] & observed)


@compiled(allocates=False)
def _add_numbers(column, x, keys, common):  # type: ignore[no-untyped-def]
    """Absolute differences; none where one is missing (NaN)."""
    for r in range(len(keys)):
        d = abs(column[r] - x)
        is_common = d == d
        keys[r] += d if is_common else 0.0
        common[r] += 1 if is_common else 0


@compiled(allocates=False)
def _add_counts(counts, common, has_holes, keys):  # type: ignore[no-untyped-def]
    """Add the columns that differ; with holes, divide by the columns that both rows have."""
    for r in range(len(keys)):
        if has_holes:
            keys[r] = (keys[r] + counts[r]) / common[r] if common[r] else 1.0
        else:
            keys[r] += counts[r]


@compiled(allocates=False)
def _keys_of(refs, first, last, row, scratch):  # type: ignore[no-untyped-def]
    """Keys of a row and the references first..last-1; only `counts` if keys are whole numbers."""
    planes, observed, unseen, numbers = row
    union, counts, common, keys = scratch
    m = last - first
    union, counts, common, keys = union[:m], counts[:m], common[:m], keys[:m]
    is_whole = not (refs.has_holes or len(numbers))
    for r in range(m):
        counts[r] = 0
    if not is_whole:
        for r in range(m):
            common[r], keys[r] = 0, 0.0
    for g in range(len(refs.first) - 1):
        p, n = refs.first[g], refs.first[g + 1] - refs.first[g]
        x, some = planes[p : p + n], observed[g]
        _first_plane(refs.planes[p, first:last], x[0], unseen[g], union)
        for i in range(1, n):
            _add_plane(refs.planes[p + i, first:last], x[i], union)
        if refs.has_holes:
            _add_masked(union, refs.observed[g, first:last], some, counts)
            _add_ones(refs.observed[g, first:last], some, common)
        else:
            _add_ones(union, some, counts)
    if is_whole:
        return
    for j in range(len(numbers)):
        _add_numbers(refs.numbers[j, first:last], numbers[j], keys, common)
    _add_counts(counts, common, refs.has_holes, keys)


@compiled(allocates=False)
def _any_below(keys, limit):  # type: ignore[no-untyped-def]
    """Whether some key is below a limit; vectorised, since most are not."""
    below = 0
    for r in range(len(keys)):
        below += 1 if keys[r] < limit else 0
    return below > 0


@compiled("Coded, CodedRows, i8, const(f8[:]), f8[:]")
def search(refs, rows, k, cuts, weights):  # type: ignore[no-untyped-def]
    """Weights of rows: the sums of their k smallest distances."""
    # refs: At least k rows of a table
    # cuts: (B,) float64: The search of a row ends as soon as its weight is known to be less
    # weights: (B,) float64, output: Exact, unless less than the row's cut: then upper bounds
    # returns Distances that were computed.
    n = len(refs.counts)
    n_blocks = (n + BLOCK - 1) // BLOCK
    is_whole = not refs.has_holes and not len(refs.numbers)
    near, keys, counts = np.empty(k), np.empty(BLOCK), np.empty(BLOCK, np.int64)
    scratch = (np.empty(BLOCK, np.uint64), counts, np.empty(BLOCK, np.int64), keys)
    pairs = 0
    for b in range(len(cuts)):
        near[:] = math.inf
        row = (rows.planes[b], rows.observed[b], rows.unseen[b], rows.numbers[b])
        least, is_new = math.inf, False
        for i in range(n_blocks):
            block = nth_block(i, rows.starts[b] // BLOCK, n_blocks)
            first = block * BLOCK
            last = min(first + BLOCK, n)
            _keys_of(refs, first, last, row, scratch)
            pairs += last - first
            worst = near[k - 1]
            for at in range(0, last - first, CHUNK):
                end = min(at + CHUNK, last - first)
                limit = int(worst) if worst < LARGE else LARGE
                if _any_below(counts[at:end], limit) if is_whole else _any_below(keys[at:end], worst):
                    for r in range(at, end):
                        key = float(counts[r]) if is_whole else keys[r]
                        if key < worst:
                            add_near(near, key, refs.counts[first + r])
                            worst, is_new = near[k - 1], True
            if is_new and worst < math.inf:
                least, is_new = weight(near, False) / rows.divisors[b], False
                if least < cuts[b]:
                    break
        weights[b] = least
    return pairs
