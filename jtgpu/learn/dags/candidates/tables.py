"""`CandidateTables`: for each variable, weights of its candidate parent sets, and their sums over all subsets."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....errors import NetworkError, TableTooLarge, format_bytes
from ....util.loops import loops
from ....util.system import cores, free_memory
from ..scores.coded import CodedTable
from ..scores.combinations import binomial_table, parent_masks, parent_members
from ..scores.rules import CellFunctions, ScoreRule
from ..scores.set_values import MAX_CELLS, set_values
from .choice import select_candidates
from .family_weights import unsqueeze

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ..constraints import Constraints
    from ..priors import StructurePrior

_set_sums = loops("jtgpu.learn.dags.loops.set_sums")
_counts = loops("jtgpu.learn.dags.loops.counts")

MAX_CANDIDATES = 16  # by default


@dataclass(frozen=True, eq=False)
class CandidateTables:
    """Tables over the subsets of each variable's candidate parents."""

    # (n, k) ndarray of int64: Candidate parents, ascending; -1 where a variable has fewer. Their position is their bit.
    candidates: NDArray[np.int64]
    bit_in: NDArray[np.int64]  # (n, n) ndarray of int64: [u, v]: 2**i if u is candidate number i of v, else 0
    masks: NDArray[np.int64]  # (M,) ndarray of int64: The parent sets, as bits
    # (n, M) ndarray of float64: ln weight of each parent set; -inf if a member is not a candidate, or the set is
    #     impossible
    log_weights: NDArray[np.float64]

    def sums(self, threads: int | None = None) -> NDArray[np.float64]:
        """ln of the total weight of the parent sets within each set of candidates, (n, 2**k)."""
        n, k = self.candidates.shape
        found = np.empty((n, 1 << k))
        _each(n, lambda v: _set_sums.log_sums_of_subsets(self.log_weights[v], self.masks, found[v]), threads)
        return found

    def best(self, threads: int | None = None) -> NDArray[np.float64]:
        """The largest weight of the parent sets within each set of candidates, (n, 2**k)."""
        n, k = self.candidates.shape
        found = np.empty((n, 1 << k))
        _each(n, lambda v: _set_sums.best_of_subsets(self.log_weights[v], self.masks, found[v]), threads)
        return found

    def hits(self, threads: int | None = None) -> NDArray[np.float64]:
        """ln of the total weight of the parent sets that contain a candidate, within each set of the others."""
        # returns (n, k, 2**(k - 1)) ndarray
        n, k = self.candidates.shape
        found = np.empty((n, k, 1 << max(k - 1, 0)))

        def fill(v: int) -> None:
            for j in range(k):
                _set_sums.log_sums_with_member(self.log_weights[v], self.masks, j, found[v, j])

        _each(n, fill, threads)
        return found


def choose_candidates(
    log_weights: NDArray[np.float64], max_parents: int, k: int, constraints: Constraints
) -> NDArray[np.int64]:
    """Candidate parents of all variables, (n, k), from the weights of all small families."""
    # log_weights: (n, M) ndarray of float64: Of the sets of at most `max_parents` parents, in the order of a
    #     `ScoreTable`
    n = len(log_weights)
    members = parent_members(n, max_parents)
    found = np.full((n, min(k, n - 1)), -1, np.int64)
    for v in range(n):
        required = np.flatnonzero(constraints.required[:, v])
        own = select_candidates(log_weights[v], unsqueeze(members, v), n, found.shape[1], required)
        found[v, : len(own)] = own
    return found


def all_parents(log_weights: NDArray[np.float64], masks: NDArray[np.int64]) -> CandidateTables:
    """Tables in which all other variables are candidates, from the weights of all families."""
    n = len(log_weights)
    others = np.array([[u for u in range(n) if u != v] for v in range(n)], np.int64).reshape(n, -1)
    bit_in = np.zeros((n, n), np.int64)
    for v in range(n):
        bit_in[others[v], v] = np.int64(1) << np.arange(n - 1)
    return CandidateTables(others, bit_in, masks, log_weights)


def candidate_tables(  # noqa: PLR0913
    coded: CodedTable,
    rule: ScoreRule,
    prior: StructurePrior,
    constraints: Constraints,
    candidates: NDArray[np.int64],
    max_parents: int,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> CandidateTables:
    """Score every set of at most `max_parents` candidate parents."""
    # candidates: (n, k) ndarray of int64: See `CandidateTables`
    # raises TableTooLarge: If the tables exceed the memory limit: 80 % of the free memory by default.
    # raises NetworkError: If no set of parents of a variable is possible.
    n, k = candidates.shape
    limit = int(0.8 * free_memory()) if memory_limit is None else memory_limit
    if 8 * n * 2**k > limit:
        fits = max(int(math.log2(max(limit // (8 * n), 1))), 0)
        raise TableTooLarge(
            f"the tables of {k} candidate parents of {n} variables need {format_bytes(8 * n * 2**k)}, more than the "
            f"limit of {format_bytes(limit)}; candidates={fits} fits",
            n << k,
            8 * n * 2**k,
            limit,
        )
    max_parents = min(max_parents, k)
    masks, members = parent_masks(k + 1, max_parents), parent_members(k + 1, max_parents)
    functions = rule.functions(coded.cardinality, max_parents + 1, MAX_CELLS, coded.n_cases, coded.has_gaps)
    log_weights = np.full((n, len(masks)), -np.inf)
    bit_in = np.zeros((n, n), np.int64)

    def fill(v: int) -> None:
        own = candidates[v][candidates[v] >= 0]
        bit_in[own, v] = np.int64(1) << np.arange(len(own))
        present = (members < len(own)).all(axis=1)
        sets = np.where(members[present] >= 0, own[members[present]] if len(own) else -1, -1)
        weights = _scores_of_child(coded, rule, functions, v, own, max_parents)
        weights += prior.log_weights(v, sets, n)
        weights[~constraints.possible(v, sets)] = -np.inf
        log_weights[v, present] = weights

    _each(n, fill, threads)
    possible = np.isfinite(log_weights).any(axis=1)
    if not possible.all():
        name = coded.names[int(np.argmin(possible))]
        raise NetworkError(f"the constraints, or the limit of {MAX_CELLS:,} cells, leave no parents for {name!r}")
    return CandidateTables(candidates, bit_in, masks, log_weights)


def _scores_of_child(
    coded: CodedTable,
    rule: ScoreRule,
    functions: CellFunctions,
    v: int,
    candidates: NDArray[np.int64],
    max_parents: int,
) -> NDArray[np.float64]:
    """Scores of v with every set of at most `max_parents` candidates, by size and rank."""
    chosen = [*candidates.tolist(), v]  # the child is the last variable: sets with it have the last ranks
    names, states = tuple(coded.names[u] for u in chosen), tuple(coded.states[u] for u in chosen)
    few = CodedTable(names, states, coded.codes[chosen], coded.weights)
    k, penalty = len(candidates), rule.penalty(coded.n_cases)
    max_parents = min(max_parents, k)
    values = set_values(few, functions, max_parents, ess=float(rule.ess), threads=1, only_last=True)
    card, binomials = few.cardinality, binomial_table(len(chosen), max_parents + 2)
    row = functions.parent_row(int(card[-1]))
    parts = []
    for size in range(max_parents + 1):
        part = np.empty(math.comb(k, size))
        _counts.fill_scores(k, size, card, binomials, values[size + 1], values[size], row, penalty, part)
        parts.append(part)
    return np.concatenate(parts)


def _each(n: int, work: Callable[[int], None], threads: int | None) -> None:
    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        list(pool.map(work, range(n)))
