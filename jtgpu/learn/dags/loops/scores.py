"""Scores of families: formulas, functions of the counts of a family's table, and the scores of all families.

`counts.count_sets` sums them over the tables of sets of variables, `greedy.climb` over those of families. A new formula
is a function here.
"""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import log
from ....util.jit import compiled
from ..chain_records import DIVIDED_OCCURRING, LIKELIHOOD, PER_CELL, TABULATED


@compiled(allocates=False)
def log_gamma(x):  # type: ignore[no-untyped-def]
    """ln Gamma(x) for x > 0: Stirling's series, after a shift by the recurrence."""
    product = 1.0
    shift = 0.0
    while x < 16.0:
        product *= x
        if product > 1e200:
            shift += log(product)
            product = 1.0
        x += 1.0
    y = 1.0 / (x * x)
    series = (((-1.0 / 1680.0 * y + 1.0 / 1260.0) * y - 1.0 / 360.0) * y + 1.0 / 12.0) / x
    return (x - 0.5) * log(x) - x + 0.9189385332046727 + series - log(product) - shift


@compiled(allocates=False)
def count_function(x, count):  # type: ignore[no-untyped-def]
    """ln Gamma(x + count) - ln Gamma(x), or count ln count if x is 0."""
    if count == 0:
        return 0.0
    if x == 0.0:
        return count * log(count)
    return log_gamma(x + count) - log_gamma(x)


@compiled("f8[:], i8, f8[:, :]")
def tabulate(shapes, first, functions):  # type: ignore[no-untyped-def]
    """Tabulate the functions of a count, see `count_function`."""
    # shapes: (G,) float64
    # functions: (G, F) float64, output: Of the counts from `first` on
    for g in range(len(shapes)):
        for c in range(functions.shape[1]):
            functions[g, c] = count_function(shapes[g], first + c)


@compiled(allocates=False)
def sum_of_cells(cells, first, n, shape, function):  # type: ignore[no-untyped-def]
    """Sum of a function of n cells."""
    # cells: (..) int32
    # shape: See `count_function`
    # function: (G,) float64: Its values for the counts 0 to G - 1
    a = b = 0.0
    limit = len(function)
    for i in range(first, first + n - 1, 2):
        c, d = cells[i], cells[i + 1]
        a += function[c] if c < limit else count_function(shape, c)
        b += function[d] if d < limit else count_function(shape, d)
    if n % 2:
        c = cells[first + n - 1]
        a += function[c] if c < limit else count_function(shape, c)
    return a + b


@compiled(allocates=False)
def family_score(cells, first, n, parents, parents_first, n_parents, r, ess):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """BDs score of a family: the prior's weight is divided among the parent configurations that occur."""
    # cells, first, n: (..) int32, int64, int64: Table of the family
    # parents, parents_first, n_parents: (..) int32, int64, int64: Table of the parents
    # r: Number of states of the child
    occurring = 0
    for i in range(parents_first, parents_first + n_parents):
        occurring += parents[i] > 0
    if occurring == 0:
        return 0.0
    of_parents, of_cells = ess / occurring, ess / (occurring * r)
    total = 0.0
    base = log_gamma(of_parents)
    for i in range(parents_first, parents_first + n_parents):
        if parents[i] > 0:
            total += base - log_gamma(of_parents + parents[i])
    base = log_gamma(of_cells)
    for i in range(first, first + n):
        if cells[i] > 0:
            total += log_gamma(of_cells + cells[i]) - base
    return total


@compiled(allocates=False)
def table_score(cells, q, r, formula, a, functions, of_parents):  # type: ignore[no-untyped-def]
    """Score of a family's table of q rows and r columns, by a formula."""
    # a: Pseudo-count, or equivalent sample size
    # functions, of_parents: (G, F) float64, int64: With `TABULATED`: function 0 of the counts of cells, minus function
    #     number `of_parents` of those of rows
    total = 0.0
    if formula == TABULATED:
        for j in range(q):
            n = 0
            for k in range(r):
                c = cells[j * r + k]
                n += c
                total += functions[0, c]
            total -= functions[of_parents, n]
        return total
    divisor = q
    if formula == DIVIDED_OCCURRING:
        divisor = 0
        for j in range(q):
            for k in range(r):
                if cells[j * r + k] > 0:
                    divisor += 1
                    break
    is_likelihood = formula == LIKELIHOOD
    of_cell = 0.0 if is_likelihood else a if formula == PER_CELL else a / (max(divisor, 1) * r)
    base = 0.0 if is_likelihood else log_gamma(of_cell)
    for j in range(q):
        n = 0
        for k in range(r):
            c = cells[j * r + k]
            if c > 0:
                n += c
                total += c * log(c) if is_likelihood else log_gamma(of_cell + c) - base
        if n > 0:
            total -= count_function(r * of_cell, n)
    return total


# Scores of all families: from the values of sets of variables, or with missing cells by the rows in which it is known.


@compiled(allocates=False)
def unrank(rank, size, binomials, members):  # type: ignore[no-untyped-def]
    """Write the members of the set of a rank, ascending."""
    c = binomials.shape[0] - 1
    for j in range(size, 0, -1):
        c -= 1
        while binomials[c, j] > rank:
            c -= 1
        rank -= binomials[c, j]
        members[j - 1] = c


@compiled(allocates=False)
def advance(members, size):  # type: ignore[no-untyped-def]
    """Replace a set by the next one; returns the position of the largest member that changed."""
    j = 0
    while j + 1 < size and members[j] + 1 == members[j + 1]:
        members[j] = j
        j += 1
    members[j] += 1
    return j


@compiled("i8, i8, i8[:], i8[:, :], f8[:, :], f8[:, :], i8, f8, f8[:]")
def fill_scores(v, size, card, binomials, families, parents, parent_row, penalty, scores):  # type: ignore[no-untyped-def]  # noqa: PLR0913
    """Scores of a variable with every parent set of one size, in colexicographic order."""
    # card, binomials: (n,) int64, (n + 1, L) int64
    # families, parents: (K, C(n, size + 1)) float64, (K, C(n, size)) float64: Values of `count_sets`
    # parent_row: Row of `parents` to subtract; -1: `families` has the scores, by the position of the child
    # penalty: Subtracted for each free parameter
    # scores: (C(n - 1, size),) float64, output
    members = np.empty(size + 1, np.int64)
    for t in range(size + 1):
        members[t] = t
    for i in range(len(scores)):
        if i and size:
            advance(members, size)
        family = parent = at = 0
        q = 1
        for t in range(size):
            p = members[t] + (members[t] >= v)
            q *= card[p]
            parent += binomials[p, t + 1]
            if p < v:
                at += 1
                family += binomials[p, t + 1]
            else:
                family += binomials[p, t + 2]
        family += binomials[v, at + 1]
        if parent_row < 0:
            scores[i] = families[at, family]
        elif families[0, family] == -math.inf:
            scores[i] = -math.inf
        else:
            scores[i] = families[0, family] - parents[parent_row, parent] - penalty * q * (card[v] - 1)


MISSING = 255  # in place of a state


@compiled(allocates=False)
def _find_row_cells(members, first, n_members, codes, card, row_cell):  # type: ignore[no-untyped-def]
    """Compute the cell of every row in the table of members `first` and later; -1 where one is missing."""
    for i in range(codes.shape[1]):
        row_cell[i] = 0
    step = 1
    for t in range(first, n_members):
        v = members[t]
        for i in range(codes.shape[1]):
            if row_cell[i] >= 0:
                row_cell[i] = row_cell[i] + step * codes[v, i] if codes[v, i] != MISSING else -1
        step *= card[v]


@compiled(allocates=False)
def _likelihood_of(child, members, size, card, cells, n_cells):  # type: ignore[no-untyped-def]
    """Sum of n ln(n) over the configurations of the parents; member 0 has the largest stride, those of others grow."""
    stride = 1
    for t in range(1, child):
        stride *= card[members[t]]
    if child == 0:
        stride = n_cells // card[members[0]]
    r, total = card[members[child]], 0.0
    for high in range(0, n_cells, r * stride):
        for low in range(high, high + stride):
            n = 0
            for k in range(r):
                n += cells[low + k * stride]
            if n > 0:
                total += n * log(n)
    return total


@compiled("i8, i8, i8, u1[:, :], i8[:], i8[:], i8[:, :], f8, f8, i8, f8[:, :]")
def score_sets(  # type: ignore[no-untyped-def]  # noqa: PLR0913
    size, begin, end, codes, weights, card, binomials, n_cases, penalty, max_cells, values
):  # fmt: skip
    """Score the sets of one size with the ranks begin to end - 1, each member as the child of the others.

    A score is the log-likelihood of the rows in which the whole set is known, times the number of all cases by that of
    these rows, minus the penalty.
    """
    # size, begin, end: `size` >= 1
    # codes, card: (n, N) uint8, (n,) int64: 255: missing
    # weights: (N,) int64: Empty if all are 1
    # binomials: (n + 1, L) int64: L > size
    # n_cases, penalty: Number of cases; what is subtracted for each free parameter
    # max_cells: Values of larger tables are -inf, like those of sets that are never known
    # values: (size, C(n, size)) float64, output: [i, rank]: with the i-th member, ascending, as the child
    members, row_cell = np.empty(size, np.int64), np.empty(codes.shape[1], np.int64)
    cells = np.empty(max_cells, np.int64)
    unrank(begin, size, binomials, members)
    is_stale = True  # whether the cells of the rows belong to other members
    for rank in range(begin, end):
        if rank > begin and advance(members, size) > 0:
            is_stale = True
        n_cells = 1
        for t in range(size):
            if n_cells <= max_cells:
                n_cells *= card[members[t]]
        for i in range(size):
            values[i, rank] = -math.inf
        if n_cells > max_cells:
            continue
        if is_stale:
            _find_row_cells(members, 1, size, codes, card, row_cell)
            is_stale = False
        for i in range(n_cells):
            cells[i] = 0
        smallest = members[0]
        stride, known = n_cells // card[smallest], 0
        for i in range(codes.shape[1]):
            if row_cell[i] >= 0 and codes[smallest, i] != MISSING:
                w = weights[i] if len(weights) else 1
                cells[row_cell[i] + stride * codes[smallest, i]] += w
                known += w
        if known == 0:
            continue
        joint = 0.0
        for i in range(n_cells):
            if cells[i] > 0:
                joint += cells[i] * log(cells[i])
        for i in range(size):
            r = card[members[i]]
            likelihood = joint - _likelihood_of(i, members, size, card, cells, n_cells)
            values[i, rank] = likelihood * (n_cases / known) - penalty * (n_cells // r) * (r - 1)
