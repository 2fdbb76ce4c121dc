"""Compiled loops over rows of states: the columns that differ, counted in bit planes, and the k smallest distances.

Bit p of a column's state stands in plane p of the column's group, of up to 64 columns; the columns in which two rows
differ are the union of the exclusive ors of their planes. Rows without missing cells also exist as slices: 64
references a word, one word for each plane of a column.
"""

from __future__ import annotations

import math

import numpy as np

from ..util.jit import compiled
from .arrays import Coded, CodedRows, Sliced, SlicedRows
from .point_loops import UNIT, add_near, nth_block, ones, weight

__all__ = ["Coded", "CodedRows", "Sliced", "SlicedRows", "search_shares", "search_slices"]

# Columns of groups, one row after the other.

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
def search_shares(refs, rows, k, cuts, weights):  # type: ignore[no-untyped-def]
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


# Slices. The columns in which the references differ from a row are counted in vertical counters: bit b of all counts
# stands in word b. Seven full adders add eight columns, so that 32 columns of 256 references take about 300
# instructions. A count is taken out of the words only if it is below the k-th.

WORDS = 16  # of 64 references each: a block; loops over them are vectorised
BITS = 64
SMALL = 6  # counters that eight columns are added to at once
LEVELS = 16  # of counters: up to 65,535 columns
ZERO = np.uint64(0)
W1, W2, W3, W4, W5, W6, W7, W8 = (np.uint64(WORDS * i) for i in range(1, 9))  # unsigned: no index is negative
W9, W10, W11, W12, W13, W14, W15 = (np.uint64(WORDS * i) for i in range(9, 16))


@compiled(allocates=False, inline="always")
def _add(a, b, c):  # type: ignore[no-untyped-def]
    """Sum and carry of three bits."""
    either = a ^ b
    return either ^ c, (a & b) | (either & c)


@compiled(allocates=False, inline="always")
def _add_words(counts, carry, w, x0, x1, x2, x3, x4, x5, x6, x7):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Add a word of each of eight columns to the lowest six counters; `carry` are the sixty-fours."""
    s, c0 = _add(counts[w], x0, x1)
    s, c1 = _add(s, x2, x3)
    s, c2 = _add(s, x4, x5)
    s, c3 = _add(s, x6, x7)
    t, d0 = _add(counts[w + W1], c0, c1)
    t, d1 = _add(t, c2, c3)
    f, e = _add(counts[w + W2], d0, d1)
    counts[w], counts[w + W1], counts[w + W2] = s, t, f
    eights, sixteens, more = counts[w + W3], counts[w + W4], counts[w + W5]
    counts[w + W3], e = eights ^ e, eights & e
    counts[w + W4], e = sixteens ^ e, sixteens & e
    counts[w + W5], carry[w] = more ^ e, more & e


@compiled(allocates=False)
def _add_eight(p, q, counts, carry):  # type: ignore[no-untyped-def]
    """Add eight columns of one plane."""
    for i in range(WORDS):
        w = np.uint64(i)
        _add_words(
            counts, carry, w, p[w] ^ q[0], p[w + W1] ^ q[1], p[w + W2] ^ q[2], p[w + W3] ^ q[3], p[w + W4] ^ q[4],
            p[w + W5] ^ q[5], p[w + W6] ^ q[6], p[w + W7] ^ q[7],
        )  # fmt: skip


@compiled(allocates=False)
def _add_eight_pairs(p, q, counts, carry):  # type: ignore[no-untyped-def]
    """The same for columns of two planes: the first planes of all columns, then the second ones."""
    q0, q1, q2, q3, q4, q5, q6, q7 = q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]
    r0, r1, r2, r3, r4, r5, r6, r7 = q[8], q[9], q[10], q[11], q[12], q[13], q[14], q[15]
    for i in range(WORDS):
        w = np.uint64(i)
        _add_words(
            counts, carry, w, (p[w] ^ q0) | (p[w + W8] ^ r0), (p[w + W1] ^ q1) | (p[w + W9] ^ r1),
            (p[w + W2] ^ q2) | (p[w + W10] ^ r2), (p[w + W3] ^ q3) | (p[w + W11] ^ r3),
            (p[w + W4] ^ q4) | (p[w + W12] ^ r4), (p[w + W5] ^ q5) | (p[w + W13] ^ r5),
            (p[w + W6] ^ q6) | (p[w + W14] ^ r6), (p[w + W7] ^ q7) | (p[w + W15] ^ r7),
        )  # fmt: skip


@compiled(allocates=False)
def _unite(p, q, first, union):  # type: ignore[no-untyped-def]
    """Where eight references differ in one plane, added to other planes; `first`: there are none."""
    for j in range(8):
        mask = q[j]
        for i in range(WORDS):
            at = np.uint64(j * WORDS + i)
            united = p[at] ^ mask
            union[at] = united if first else union[at] | united


@compiled(allocates=False)
def _carry_on(counts, carry, n_levels):  # type: ignore[no-untyped-def]
    """Add the sixty-fours to the counters from the seventh on."""
    for level in range(SMALL, n_levels):
        part = counts[level * WORDS : (level + 1) * WORDS]
        for i in range(WORDS):
            old = part[i]
            part[i] = old ^ carry[i]
            carry[i] &= old


@compiled(allocates=False)
def _below(counts, limit, n_levels, below):  # type: ignore[no-untyped-def]
    """Mark the references whose count is below a limit; whether there are any."""
    for i in range(WORDS):
        below[i] = ZERO
    for level in range(n_levels):
        part = counts[level * WORDS : (level + 1) * WORDS]
        if (limit >> level) & 1:
            for i in range(WORDS):
                below[i] |= ~part[i]
        else:
            for i in range(WORDS):
                below[i] &= ~part[i]
    some = ZERO
    for i in range(WORDS):
        some |= below[i]
    return some != ZERO


@compiled(allocates=False)
def _first_limit(counts, k, n_levels, below):  # type: ignore[no-untyped-def]
    """Mark the references of a block below the least limit that k of them are below; all, if there are fewer."""
    low, high = 1, 1 << n_levels
    while low < high:
        middle = (low + high) >> 1
        _below(counts, middle, n_levels, below)
        n = 0
        for w in range(WORDS):
            n += ones(below[w])
        if n >= k:
            high = middle
        else:
            low = middle + 1
    if high >> n_levels:
        for w in range(WORDS):
            below[w] = ~ZERO
    else:
        _below(counts, high, n_levels, below)


@compiled(allocates=False)
def _count_block(refs, block, masks, scratch):  # type: ignore[no-untyped-def]
    """Count the columns in which the references of a block differ from a row."""
    counts, carry, union, zeros = scratch
    counts[:] = ZERO
    n_planes = refs.first[len(refs.first) - 1]
    for g in range(len(refs.first) - 1):
        first, n = refs.first[g], refs.first[g + 1] - refs.first[g]
        at = (block * n_planes + first) * WORDS
        planes, q = refs.planes[at : at + n * WORDS], masks[first : first + n]
        if n == 8:
            _add_eight(planes, q, counts, carry)
        elif n == 16:
            _add_eight_pairs(planes, q, counts, carry)
        else:
            for p in range(n // 8):
                _unite(planes[p * 8 * WORDS : (p + 1) * 8 * WORDS], q[8 * p : 8 * p + 8], p == 0, union)
            _add_eight(union, zeros, counts, carry)
        if refs.n_levels > SMALL:
            _carry_on(counts, carry, refs.n_levels)


@compiled("Sliced, SlicedRows, i8, const(f8[:]), f8[:]")
def search_slices(refs, rows, k, cuts, weights):  # type: ignore[no-untyped-def]
    """Weights of rows: the sums of their k smallest numbers of columns that differ, divided by the number of columns.
    """
    # refs: At least k rows of a table
    # cuts: (B,) float64: The search of a row ends as soon as its weight is known to be less
    # weights: (B,) float64, output: Exact, unless less than the row's cut: then upper bounds
    # returns Distances that were computed.
    size = WORDS * BITS
    n_blocks = len(refs.counts) // size
    highest = (1 << refs.n_levels) - 1
    near = np.empty(k, np.int64)
    counts = np.empty(LEVELS * WORDS, np.uint64)
    scratch = (counts, np.empty(WORDS, np.uint64), np.empty(8 * WORDS, np.uint64), np.zeros(8, np.uint64))
    below = np.empty(WORDS, np.uint64)
    n_searched = 0
    for b in range(len(cuts)):
        near[:] = highest + 1
        least, is_new = math.inf, False
        for i in range(n_blocks):
            block = nth_block(i, rows.starts[b] // size, n_blocks)
            _count_block(refs, block, rows.masks[b], scratch)
            n_searched += min(size, refs.n_rows - block * size)
            if near[k - 1] > highest:  # the last block has rows that count zero times: no limit there
                _first_limit(counts, k if block < n_blocks - 1 else size + 1, refs.n_levels, below)
            elif not _below(counts, near[k - 1], refs.n_levels, below):
                continue
            for w in range(WORDS):
                bits = below[w]
                while bits:
                    lowest = bits & (~bits + UNIT)
                    bits ^= lowest
                    key = np.int64(0)
                    for level in range(refs.n_levels):
                        key |= np.int64(counts[level * WORDS + w] & lowest != ZERO) << level
                    if key < near[k - 1]:
                        add_near(near, key, refs.counts[block * size + w * BITS + ones(lowest - UNIT)])
                        is_new = True
            if is_new and near[k - 1] <= highest:
                least, is_new = weight(near, False) / rows.divisors[b], False
                if least < cuts[b]:
                    break
        weights[b] = least
    return n_searched
