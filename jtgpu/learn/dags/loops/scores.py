"""Formulas of structure scores: functions of the counts of a family's table; a new formula is a function here.

`counts.count_sets` sums them over the tables of sets of variables, `greedy.climb` over those of families.
"""

from __future__ import annotations

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
