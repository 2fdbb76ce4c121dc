"""Scores of families: from the values of sets, or with missing cells each by the rows in which it is known."""

from __future__ import annotations

import math

import numpy as np

from ....util.elementary.loops.functions import log
from ....util.jit import compiled
from .counts import advance, unrank

MISSING = 255  # in place of a state


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
