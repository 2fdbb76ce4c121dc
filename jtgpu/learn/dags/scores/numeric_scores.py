"""Scores of families with numbers: BGe of numbers alone, BIC of conditional Gaussian families.

Both come from the pivots of L D L' factorisations of matrices of sums of products, the child last: the last pivot is
the residual sum of squares of the child's regression. All arithmetic is element by element, or of whole numbers, so
that every processor gives the same bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....errors import DataError, TableTooLarge
from ....util.arrays import Bools, Floats, Ints
from ....util.elementary import log, logs
from .coded import CodedTable
from .ranks import binomial_table, n_parent_sets, set_array
from .rules import ScoreRule
from .set_values import run_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .numeric_table import NumericTable

CHUNK = 1 << 14  # families whose matrices are factorised together
LN_PI = 1.1447298858494002
LN_2PI = 1.8378770664093453
FEW_DIGITS = 1e-5  # pivot, relative to the diagonal, below which `products` computes it
NO_RESIDUAL = 1e-16  # below which a number is a function of others
NO_SPREAD = 1e-20  # mean square within a configuration, relative to the variance of the column
MAX_GROUPED = 1_000_000  # sets of discrete parents of numbers
BITS = 64  # of each value, below the largest of its column
SPLIT = 134217729.0  # 2^27 + 1: divides a double into halves whose products are exact

Pair = tuple[Floats, Floats]  # a number is the sum of the two; the second is within rounding of the first


def pivots(sums: Floats, sets: Ints) -> tuple[Floats, Floats]:
    """Pivots of the matrices of sets, and the diagonals of these."""
    # sums (q, g, g), sets (B, l) -> (l, q, B) each
    size = sets.shape[1]
    at = [sets[:, i] for i in range(size)]
    a = [[sums[:, at[i], at[j]] for j in range(i + 1)] for i in range(size)]
    diagonal = np.array([a[i][i] for i in range(size)])
    for j in range(size):
        for i in range(j + 1, size):
            c = a[i][j] / a[j][j]
            for k in range(j + 1, i + 1):
                a[i][k] = a[i][k] - c * a[k][j]
    return np.array([a[i][i] for i in range(size)]), diagonal


# BGe: Geiger and Heckerman, Ann. Stat. 30 (2002) 1412, as corrected by Kuipers, Moffa and Heckerman, Ann. Stat. 42
# (2014) 1689, of the columns with mean 0 and standard deviation 1. Prior: mean 0 with the weight of one row, n + 2
# degrees of freedom, T = I / 2 (the defaults of the R package BiDAG).

MEAN_ROWS = 1.0  # alpha_mu
DEGREES = 2  # alpha_w - n
T = 0.5


class BGeConstants(NamedTuple):
    """Of families of 0, 1, ... parents."""

    constant: list[float]
    of_child: list[float]  # factor of ln of the last pivot


def bge_matrix(table: NumericTable) -> Floats:
    """Sums of products of the scaled columns with those of the prior, (n, n)."""
    return np.asarray(table.scatter + T * np.eye(len(table.names)))


def bge_constants(n_cases: int, max_parents: int) -> BGeConstants:
    """Of families of up to `max_parents` parents."""
    constant, of_child = [], []
    for p in range(max_parents + 1):
        size, a = p + 1, DEGREES + p + 1
        of_t = 0.5 * (a * size - (a - 1) * p)
        gammas = log_gamma_half(n_cases + a) - log_gamma_half(a)
        mean = 0.5 * log(MEAN_ROWS / (n_cases + MEAN_ROWS))
        constant.append(mean + gammas - 0.5 * n_cases * LN_PI + of_t * log(T))
        of_child.append(0.5 * (n_cases + a))
    return BGeConstants(constant, of_child)


def log_gamma_half(k: int) -> float:
    """ln Gamma(k / 2) as a sum of logarithms."""
    first = 0.5 if k % 2 else 1.0
    terms = logs(first + np.arange((k - 1) // 2)) if k > 2 else np.zeros(0)
    return float(np.add.reduce(terms)) + (0.5 * LN_PI if k % 2 else 0.0)


def bge_scores(
    table: NumericTable, candidates: Sequence[Ints], max_parents: int, threads: int | None = None
) -> list[Floats]:
    """Scores of each variable with every set of at most `max_parents` candidates, by size and rank."""
    matrix = bge_matrix(table)[None]
    most = min(max_parents, max(map(len, candidates)))
    constants = bge_constants(table.n_cases, most)
    scores = [np.empty(n_parent_sets(len(c) + 1, min(most, len(c)))) for c in candidates]
    places = {k: [set_array(k, p) for p in range(min(most, k) + 1)] for k in {len(c) for c in candidates}}

    def fill(chunk: tuple[int, int]) -> None:
        for v in range(*chunk):
            own, begin = candidates[v], 0
            for p, positions in enumerate(places[len(own)]):
                sets = own[positions]
                sets = np.concatenate([sets, np.full((len(sets), 1), v)], axis=1)
                for first in range(0, len(sets), CHUNK):
                    d = pivots(matrix, sets[first : first + CHUNK])[0][:, 0]
                    part = constants.constant[p] - constants.of_child[p] * logs(d[-1])
                    if p:
                        part -= 0.5 * logs(np.multiply.reduce(d[:-1], axis=0))  # each is at least T
                    scores[v][begin : begin + len(part)] = part
                    begin += len(part)

    run_chunks(fill, 0, len(candidates), sum(map(len, scores)), threads)
    return scores


# BIC of conditional Gaussian families: a regression for each configuration of the discrete parents.


@dataclass
class _Grouped:
    """Rows by configuration of discrete variables."""

    counts: Floats  # (q,) cases of the configurations that occur
    sums: Floats  # (q, numbers, numbers) sums of products of the scaled numbers less their means
    n_cells: int  # configurations, with those that do not occur
    cell: Ints  # (N,) of each row
    centred: Floats  # (numbers, N)
    weights: Floats | None
    _exact: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)

    @cached_property
    def _rows(self) -> list[Ints]:
        return np.split(np.argsort(self.cell, kind="stable"), np.cumsum(np.bincount(self.cell))[:-1])

    def exact(self, cells: Ints) -> tuple[Floats, Floats]:
        """Sums of products of some configurations to 30 digits."""
        for c in cells.tolist():
            if c not in self._exact:
                own = self._rows[c]
                self._exact[c] = products(self.centred[:, own], None if self.weights is None else self.weights[own])
        pairs = [self._exact[c] for c in cells.tolist()]
        return np.array([high for high, _ in pairs]), np.array([low for _, low in pairs])


def _grouped(table: NumericTable, members: tuple[int, ...]) -> _Grouped:
    """Rows by the configuration of `members`."""
    cell, n_cells = np.zeros(table.codes.shape[1], np.int64), 1
    for v in members:
        cell = cell * len(table.states[v]) + table.codes[v]
        n_cells *= len(table.states[v])
        if n_cells > 4 * len(cell):  # only those that occur get a number
            cell = np.unique(cell, return_inverse=True)[1].reshape(-1)
    used, cell = np.unique(cell, return_inverse=True)
    cell, q = cell.reshape(-1), len(used)
    w = None if table.weights is None else table.weights.astype(np.float64)
    counts = np.bincount(cell, w, q).astype(np.float64)
    centred = np.empty_like(table.scaled[0])
    for i, x in enumerate(table.scaled[0]):
        centred[i] = x - (np.bincount(cell, x if w is None else x * w, q) / counts)[cell]
    sums = np.empty((q, len(centred), len(centred)))
    for i, x in enumerate(centred):
        weighted = x if w is None else x * w
        for j in range(i + 1):
            sums[:, i, j] = sums[:, j, i] = np.bincount(cell, weighted * centred[j], q)
    return _Grouped(counts, sums, n_cells, cell, centred, w)


def _regressions(table: NumericTable, grouped: _Grouped, sets: Ints) -> Floats:
    """Log-likelihood of the last number of each set given the others, in units of the scaled numbers, (B,)."""
    # -inf where a configuration has fewer than k + 2 rows of k parents, or no residual
    q, size = len(grouped.counts), sets.shape[1]
    if (grouped.counts < size + 1).any():
        return np.full(len(sets), -np.inf)
    total = np.empty(len(sets))
    step = max(CHUNK // q, 1)
    for first in range(0, len(sets), step):
        with np.errstate(divide="ignore", invalid="ignore"):  # of numbers without a residual
            d, diagonal = pivots(grouped.sums, sets[first : first + step])
        n = grouped.counts[:, None]
        is_regular = np.asarray((diagonal > NO_SPREAD * n).all(axis=0))
        few = is_regular & ~np.asarray((d > FEW_DIGITS * diagonal).all(axis=0))
        if few.any():
            d[-1][few], is_regular[few] = _precise(table, grouped, sets[first : first + step], few)
        is_regular = np.asarray(is_regular.all(axis=0))
        residual = np.where(is_regular, d[-1], 1.0) / n
        terms = -0.5 * n * (logs(residual) + (LN_2PI + 1.0))
        total[first : first + step] = np.where(is_regular, np.add.reduce(terms, axis=0), -np.inf)
    return total


def _precise(table: NumericTable, grouped: _Grouped, sets: Ints, few: Bools) -> tuple[Floats, Bools]:
    """Last pivots of sets in configurations (q, B) where those of doubles have few digits; where they are any."""
    used, chosen = np.nonzero(few)
    cells, place = np.unique(used, return_inverse=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        d, diagonal, blur = residuals(grouped.exact(cells), place.reshape(-1), sets[chosen], table.rounding)
    least = np.maximum(NO_RESIDUAL * diagonal, blur**2 * grouped.counts[used])
    return d[-1], np.asarray((d > least).all(axis=0))


def bic_cg_scores(
    table: NumericTable, candidates: Sequence[Ints], max_parents: int,
    score_states: Callable[[CodedTable, ScoreRule, int], Floats], threads: int | None = None,
) -> list[Floats]:
    """Scores of each variable with every set of at most `max_parents` candidates, by size and rank."""
    # score_states: scores of a child with states, from a table of states: see `candidate_scores.counted_scores`
    most = [min(max_parents, len(c)) for c in candidates]
    scores = [np.full(n_parent_sets(len(c) + 1, k), -np.inf) for c, k in zip(candidates, most, strict=True)]
    ends = [np.cumsum([0, *(math.comb(len(c), i) for i in range(k))]) for c, k in zip(candidates, most, strict=True)]
    binomials = binomial_table(max(map(len, candidates)) + 1, max_parents + 1)
    is_number, penalty = table.is_number, 0.5 * log(table.n_cases)
    groups: dict[tuple[int, ...], list[int]] = {}
    for v, own in enumerate(candidates):
        with_states = np.flatnonzero(~is_number[own])
        if is_number[v]:
            for size in range(most[v] + 1):
                for members in itertools.combinations(with_states.tolist(), size):
                    groups.setdefault(tuple(own[list(members)].tolist()), []).append(v)
            if len(groups) > MAX_GROUPED:
                raise TableTooLarge(
                    f"numbers have more than {MAX_GROUPED:,} sets of parents with states; lower max_parents or "
                    "candidates", len(groups), -1, -1,
                )  # fmt: skip
            continue
        family = [*own[with_states].tolist(), v]
        few = CodedTable(
            tuple(table.names[u] for u in family), tuple(table.states[u] for u in family),
            np.ascontiguousarray(table.codes[family]), table.weights,
        )  # fmt: skip
        values, begin = score_states(few, ScoreRule("bic"), min(most[v], len(with_states))), 0
        for size in range(min(most[v], len(with_states)) + 1):
            sets = with_states[set_array(len(with_states), size)]
            scores[v][ends[v][size] + _ranks(sets, binomials)] = values[begin : begin + len(sets)]
            begin += len(sets)
    todo = sorted(groups.items())

    def fill(chunk: tuple[int, int]) -> None:
        for members, children in todo[chunk[0] : chunk[1]]:
            grouped = _grouped(table, members)
            for v in children:
                own = candidates[v]
                given = np.searchsorted(own, members)
                numbers = np.flatnonzero(is_number[own])
                rows = np.array([table.row_of[int(own[i])] for i in numbers], np.int64)
                for size in range(min(most[v] - len(members), len(numbers)) + 1):
                    chosen = set_array(len(numbers), size)
                    sets = np.concatenate([rows[chosen], np.full((len(chosen), 1), table.row_of[v])], axis=1)
                    value = _regressions(table, grouped, sets) - penalty * grouped.n_cells * (size + 2)
                    value -= table.n_cases * log(float(table.scaled[1][table.row_of[v]]))
                    places = np.broadcast_to(given, (len(chosen), len(members)))
                    places = np.sort(np.concatenate([numbers[chosen], places], axis=1), axis=1)
                    scores[v][ends[v][size + len(members)] + _ranks(places, binomials)] = value

    if todo:
        _ = table.scaled  # before threads ask for it
    run_chunks(fill, 0, len(todo), table.codes.shape[1] * len(todo), threads)
    empty = [v for v, own in enumerate(scores) if own[0] == -np.inf]
    if empty:
        raise DataError(f"column {table.names[empty[0]]!r} has too few rows for a mean and a variance")
    return scores


def _ranks(sets: Ints, binomials: Ints) -> Ints:
    """Rank of each ascending set among those of its size, (B,)."""
    ranks = np.zeros(len(sets), np.int64)
    for j in range(sets.shape[1]):
        ranks += binomials[sets[:, j], j + 1]
    return ranks


def products(columns: Floats, weights: Floats | None) -> Pair:
    """Sums of products of columns (n, N) with whole weights, (n, n)."""
    n, total = len(columns), columns.shape[1] if weights is None else float(weights.sum())
    width = max((53 - int(np.frexp(total)[1])) // 2, 1)
    powers = np.frexp(np.abs(columns).max(axis=1))[1]
    left, parts = np.ldexp(columns, -powers[:, None]), []
    for _ in range(-(-BITS // width)):
        left = np.ldexp(left, width)
        parts.append(np.rint(left))
        left -= parts[-1]
    sums = np.zeros((n, n)), np.zeros((n, n))
    for order in range(2 * len(parts) - 1):  # the largest first
        for i in range(max(order - len(parts) + 1, 0), min(order, len(parts) - 1) + 1):
            first = parts[i] if weights is None else parts[i] * weights
            exact = first @ parts[order - i].T  # of whole numbers below 2^53
            sums = _add(sums, (np.ldexp(exact, -width * (order + 2)), np.zeros((n, n))))
    back = powers[:, None] + powers
    return np.ldexp(sums[0], back), np.ldexp(sums[1], back)


def residuals(sums: Pair, cells: Ints, sets: Ints, noise: Floats) -> tuple[Floats, Floats, Floats]:
    """(l, B) pivots of the members of sets in cells, the diagonals, and the error by the rounding of the rows."""
    # sums (q, n, n), cells (B,), sets (B, l), noise (n,): root mean square of a column
    size, at = sets.shape[1], sets.T
    a = [[(sums[0][cells, at[i], at[j]], sums[1][cells, at[i], at[j]]) for j in range(i + 1)] for i in range(size)]
    diagonal, blur = np.array([a[i][i][0] for i in range(size)]), noise[at]
    for j in range(size):
        for i in range(j + 1, size):
            c = _over(a[i][j], a[j][j])
            blur[i] += np.abs(c[0]) * blur[j]
            for k in range(j + 1, i + 1):
                less = _times(c, a[k][j])
                a[i][k] = _add(a[i][k], (-less[0], -less[1]))
    return np.array([a[i][i][0] for i in range(size)]), diagonal, blur


def _sum(a: Floats, b: Floats) -> Pair:
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _product(a: Floats, b: Floats) -> Pair:
    product, a_cut, b_cut = a * b, SPLIT * a, SPLIT * b
    a_high, b_high = a_cut - (a_cut - a), b_cut - (b_cut - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _add(a: Pair, b: Pair) -> Pair:
    high, low = _sum(a[0], b[0])
    more, less = _sum(a[1], b[1])
    high, low = _sum(high, low + more)
    return _sum(high, low + less)


def _times(a: Pair, b: Pair) -> Pair:
    high, low = _product(a[0], b[0])
    return _sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def _over(a: Pair, b: Pair) -> Pair:
    quotient = a[0] / b[0]
    zero = np.zeros_like(quotient)
    less = _times((quotient, zero), b)
    rest = _add(a, (-less[0], -less[1]))
    return _sum(quotient, rest[0] / b[0])
