"""Compiled loops that tabulate sums and maxima over the subsets of a child's candidate parents."""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import as_bits, as_float, exp, log
from ....util.jit import compiled

# Positive numbers beyond the range of doubles: mantissa and binary exponent, added and multiplied without logarithms.
#
# A number is ``mantissa * 2**exponent``, two arrays of float64 and int64. Mantissas of sums grow above 2 and are
# normalised on request; zero has the mantissa 0 and an exponent far below all others. Weights of parent sets differ by
# thousands of nats, so plain doubles would underflow; a sum here takes a fifth of the time of log-sum-exp, and has no
# cancellation because nothing is subtracted.

LOG2 = 0.6931471805599453  # ln 2
ZERO = -(1 << 40)  # exponent of 0
_MANTISSA = (1 << 52) - 1
_ONE = 1023 << 52  # bits of 1.0


@compiled(allocates=False, inline="always")
def scale(shift):  # type: ignore[no-untyped-def]
    """2**-shift for shift >= 0; 0 from 1023 on."""
    return as_float((1023 - min(shift, 1023)) << 52)


@compiled(allocates=False)
def split(log_x):  # type: ignore[no-untyped-def]
    """Mantissa and exponent of exp(log_x)."""
    if log_x == -math.inf:
        return 0.0, np.int64(ZERO)
    y = log_x / LOG2
    exponent = math.floor(y)
    return exp((y - exponent) * LOG2), np.int64(exponent)


@compiled(allocates=False)
def log_of(mantissa, exponent):  # type: ignore[no-untyped-def]
    """Natural logarithm of a number; -inf of 0."""
    return log(mantissa) + exponent * LOG2 if mantissa > 0.0 else -math.inf


@compiled(allocates=False)
def normalised(mantissa, exponent):  # type: ignore[no-untyped-def]
    """The same number with a mantissa in [1, 2)."""
    if mantissa == 0.0:
        return 0.0, np.int64(ZERO)
    bits = as_bits(mantissa)
    return as_float((bits & _MANTISSA) | _ONE), exponent + (bits >> 52) - 1023


@compiled(allocates=False)
def normalise(mantissas, exponents):  # type: ignore[no-untyped-def]
    """Bring all mantissas to [1, 2)."""
    for i in range(len(mantissas)):
        mantissas[i], exponents[i] = normalised(mantissas[i], exponents[i])


@compiled(allocates=False)
def add_to(mantissas, exponents, i, mantissa, exponent):  # type: ignore[no-untyped-def]
    """Add a number to number i of an array."""
    top = max(exponents[i], exponent)
    mantissas[i] = mantissas[i] * scale(top - exponents[i]) + mantissa * scale(top - exponent)
    exponents[i] = top


@compiled(allocates=False)
def subset_sums(mantissas, exponents):  # type: ignore[no-untyped-def]
    """Replace the value of each set by the sum over its subsets (zeta transform)."""
    # mantissas, exponents: (2**k,) float64, (2**k,) int64: By set, as a number of k bits
    half = 1
    while half < len(mantissas):
        for base in range(0, len(mantissas), 2 * half):
            for low in range(base, base + half):
                high = low + half
                x, y = exponents[low], exponents[high]
                top = max(x, y)
                mantissas[high] = mantissas[low] * scale(top - x) + mantissas[high] * scale(top - y)
                exponents[high] = top
        half *= 2


@compiled(allocates=False)
def superset_sums(mantissas, exponents):  # type: ignore[no-untyped-def]
    """Replace the value of each set by the sum over its supersets; see `subset_sums`."""
    half = 1
    while half < len(mantissas):
        for base in range(0, len(mantissas), 2 * half):
            for low in range(base, base + half):
                high = low + half
                x, y = exponents[low], exponents[high]
                top = max(x, y)
                mantissas[low] = mantissas[low] * scale(top - x) + mantissas[high] * scale(top - y)
                exponents[low] = top
        half *= 2


# Compiled loop that selects the candidate parents of a child.


@compiled(allocates=False)
def _first_disjoint(sets, excluded, first):  # type: ignore[no-untyped-def]
    """The first set from a position on without an excluded member; -1 if there is none."""
    for i in range(first, len(sets)):
        free = True
        for j in range(sets.shape[1]):
            u = sets[i, j]
            if u >= 0 and excluded[u]:
                free = False
                break
        if free:
            return i
    return -1


@compiled(allocates=False)
def _is_known(excluded, sets_excluded, n):  # type: ignore[no-untyped-def]
    """Whether one of the first n rows is equal to a row."""
    for i in range(n):
        equal = True
        for u in range(len(excluded)):
            if sets_excluded[i, u] != excluded[u]:
                equal = False
                break
        if equal:
            return True
    return False


@compiled("i8[:, :], i8, i8, u1[:], u1[:, :], i8[:]")
def search_exclusions(sets, n_chosen, k, chosen, excluded, best_sets):  # type: ignore[no-untyped-def]
    """Choose the members of the best set, then those of the best sets without one of them, and so on."""
    # sets: (M, j) int64: Parent sets by descending weight: members, or -1
    # n_chosen, k: Number of variables that are chosen at first, and at most at last
    # chosen: (n,) uint8: The chosen variables, which are updated. Those that are chosen at first are never excluded.
    # excluded: (E, n) uint8: Scratch memory: the exclusions that were tried, of which there are at most E
    # best_sets: (E,) int64: Scratch memory: the best set without each of them; -1 once it was used
    fixed = chosen.copy()
    n_entries = 1
    for u in range(len(chosen)):
        excluded[0, u] = 0
    best_sets[0] = 0 if len(sets) else -1
    while n_chosen < k:
        entry = -1
        for e in range(n_entries):
            if best_sets[e] >= 0 and (entry < 0 or best_sets[e] < best_sets[entry]):
                entry = e
        if entry < 0:
            return n_chosen
        best = best_sets[entry]
        best_sets[entry] = -1
        for j in range(sets.shape[1]):
            u = sets[best, j]
            if u >= 0 and not chosen[u] and n_chosen < k:
                chosen[u] = 1
                n_chosen += 1
        for j in range(sets.shape[1]):
            u = sets[best, j]
            if u < 0 or fixed[u] or n_entries == len(excluded):
                continue
            for i in range(len(chosen)):
                excluded[n_entries, i] = excluded[entry, i]
            excluded[n_entries, u] = 1
            if not _is_known(excluded[n_entries], excluded, n_entries):
                best_sets[n_entries] = _first_disjoint(sets, excluded[n_entries], best)
                n_entries += 1
    return n_chosen


@compiled("f8[:], i8[:], f8[:]")
def log_sums_of_subsets(log_weights, masks, log_sums):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets within each set of candidates."""
    # log_weights: (M,) float64
    # masks: (M,) int64: The parent sets, as bits
    # log_sums: (2**k,) float64, output
    size = len(log_sums)
    mantissas, exponents = np.zeros(size), np.full(size, np.int64(ZERO))
    for i in range(len(masks)):
        mantissas[masks[i]], exponents[masks[i]] = split(log_weights[i])
    subset_sums(mantissas, exponents)
    for i in range(size):
        log_sums[i] = log_of(mantissas[i], exponents[i])


@compiled("f8[:], i8[:], i8, f8[:]")
def log_sums_with_member(log_weights, masks, bit, log_sums):  # type: ignore[no-untyped-def]
    """ln of the total weight of the parent sets that contain a candidate, within each set of the other candidates."""
    # log_weights, masks: See `log_sums_of_subsets`
    # bit: The candidate; its bit is squeezed out of the sets
    # log_sums: (2**(k - 1),) float64, output
    size = len(log_sums)
    mantissas, exponents = np.zeros(size), np.full(size, np.int64(ZERO))
    low = (1 << bit) - 1
    for i in range(len(masks)):
        if masks[i] >> bit & 1:
            at = masks[i] & low | masks[i] >> (bit + 1) << bit
            mantissas[at], exponents[at] = split(log_weights[i])
    subset_sums(mantissas, exponents)
    for i in range(size):
        log_sums[i] = log_of(mantissas[i], exponents[i])


@compiled("f8[:], i8[:], f8[:]")
def best_of_subsets(log_weights, masks, best):  # type: ignore[no-untyped-def]
    """The largest weight of the parent sets within each set of candidates; see `log_sums_of_subsets`."""
    best[:] = -math.inf
    for i in range(len(masks)):
        best[masks[i]] = log_weights[i]
    half = 1
    while half < len(best):
        for base in range(0, len(best), 2 * half):
            for low in range(base, base + half):
                best[low + half] = max(best[low], best[low + half])
        half *= 2


# Compiled loop that finds the graph of the highest weight (Silander and Myllymaki, 2006).


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


# Compiled loops of the exact posterior under the order-modular prior (Koivisto and Sood, 2004).


@compiled(allocates=False, inline="always")
def squeeze(mask, v):  # type: ignore[no-untyped-def]
    """A set without variable v, with the bits above v moved down by one."""
    return (mask & ((1 << v) - 1)) | ((mask >> (v + 1)) << v)


@compiled("f8[:, :], f8[:], f8[:]")
def order_sums(log_sums, forward, backward):  # type: ignore[no-untyped-def]
    """Total weights of the orders of every set of variables, as the first ones and as the last ones."""
    # log_sums: (n, 2**(n-1)) float64: See `set_sums.log_sums_of_subsets`; the bits of predecessors are squeezed
    # forward, backward: (2**n,) float64, output
    n = log_sums.shape[0]
    every = (1 << n) - 1
    terms = np.empty((2, n))
    forward[0] = backward[0] = 0.0
    for s in range(1, 1 << n):
        most_first, most_last, k = -math.inf, -math.inf, 0
        for v in range(n):
            if s >> v & 1:
                others = s & ~(1 << v)
                terms[0, k] = log_sums[v, squeeze(others, v)] + forward[others]
                terms[1, k] = log_sums[v, squeeze(every & ~s, v)] + backward[others]
                most_first, most_last = max(most_first, terms[0, k]), max(most_last, terms[1, k])
                k += 1
        first = last = 0.0
        for i in range(k):
            if terms[0, i] > -math.inf:
                first += exp(terms[0, i] - most_first)
            if terms[1, i] > -math.inf:
                last += exp(terms[1, i] - most_last)
        forward[s] = most_first + log(first) if first > 0.0 else -math.inf
        backward[s] = most_last + log(last) if last > 0.0 else -math.inf


@compiled("i8, f8[:], i8[:], f8[:], f8[:], f8[:]")
def set_posteriors(v, log_weights, masks, forward, backward, posteriors):  # type: ignore[no-untyped-def]
    """Posterior probabilities of a child's parent sets."""
    # log_weights, masks: See `set_sums.log_sums_of_subsets`
    # forward, backward: (2**n,) float64: See `order_sums`
    # posteriors: (M,) float64, output
    size = len(forward) // 2
    every = len(forward) - 1
    mantissas, exponents = np.empty(size), np.empty(size, np.int64)
    total = forward[every]
    for i in range(size):
        before = (i & ((1 << v) - 1)) | (i >> v) << (v + 1)
        after = every & ~before & ~(1 << v)
        mantissas[i], exponents[i] = split(forward[before] + backward[after] - total)
    superset_sums(mantissas, exponents)
    for i in range(len(masks)):
        posteriors[i] = exp(log_weights[i] + log_of(mantissas[masks[i]], exponents[masks[i]]))
