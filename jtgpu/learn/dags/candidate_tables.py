"""`CandidateTables`: for each variable, weights of its candidate parent sets, and their sums over all subsets."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import NetworkError, TableTooLarge, format_bytes
from ...util.arrays import Floats, Ints
from ...util.loops import loops
from ...util.system import cores, free_memory
from .scores.coded import CodedTable
from .scores.given_scores import candidate_scores
from .scores.ranks import parent_index, parent_masks, parent_members
from .scores.rules import ScoreRule
from .scores.set_values import MAX_CELLS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .constraints import ArcLimits, StructurePrior
    from .scores.score_table import ScoreTable

_set_sums = loops("jtgpu.learn.dags.loops.set_sums")

# Candidate parents: the few variables that carry nearly all the weight of a child's parent sets.

MAX_EXCLUSIONS = 2000  # sets of variables that are tried as unavailable


def select_candidates(log_weights: Floats, members: Ints, n: int, k: int, required: Ints) -> Ints:
    """Candidate parents of a child, by best-first search over exclusions.

    The members of the best parent set are candidates. What replaces a member u if it is not available? The best set
    without u: its members come next, those of the best alternatives first. The rest is filled by the best weight of any
    set that contains a variable.
    """
    # log_weights: (M,) weights of the parent sets; -inf: impossible
    # members: (M, j) members of the sets as numbers of variables, -1 where a set has fewer
    # n, k: Number of variables, and of candidates
    # required: (r,) parents that are candidates in any case
    # returns (at most k,) Ascending. Fewer than k if no other variable is a possible parent.
    order = np.argsort(-log_weights, kind="stable")
    order = order[np.isfinite(log_weights[order])]
    sets, weights = np.ascontiguousarray(members[order]), log_weights[order]
    chosen = np.zeros(n, np.uint8)
    chosen[required] = 1
    scratch = np.empty((MAX_EXCLUSIONS, n), np.uint8), np.empty(MAX_EXCLUSIONS, np.int64)
    n_chosen = _set_sums.search_exclusions(sets, len(required), k, chosen, *scratch)
    if n_chosen < k:
        best_with = np.full(n + 1, -np.inf)
        np.maximum.at(best_with, sets, weights[:, None])
        best_with[:n][chosen > 0] = -np.inf
        more = np.argsort(-best_with[:n], kind="stable")[: k - n_chosen]
        chosen[more[best_with[more] > -np.inf]] = 1
    return np.flatnonzero(chosen)


# ln weight of every family: its score, its prior, and -inf if the constraints exclude it.


def unsqueeze(members: Ints, v: int) -> Ints:
    """Members of parent sets of v as numbers of variables; -1 stays."""
    return members + (members >= v)


def family_weights(table: ScoreTable, prior: StructurePrior, constraints: ArcLimits) -> Floats:
    """ln weights in the order of the table, (n, M)."""
    n = len(table.names)
    members = parent_members(n, table.max_parents)
    weights = np.empty_like(table.scores)
    for v in range(n):
        own = unsqueeze(members, v)
        weights[v] = table.scores[v] + prior.log_weights(v, own, n)
        weights[v, ~constraints.possible(v, own)] = -np.inf
    return weights


MAX_CANDIDATES = 16  # by default


@dataclass(frozen=True, eq=False)
class CandidateTables:
    """Tables over the subsets of each variable's candidate parents."""

    # (n, k) candidate parents, ascending; -1 where a variable has fewer. Their position is their bit.
    candidates: Ints
    bit_in: Ints  # (n, n) [u, v]: 2**i if u is candidate number i of v, else 0
    masks: Ints  # (M,) the parent sets, as bits
    # (n, M) ln weight of each parent set; -inf if a member is not a candidate, or the set is impossible
    log_weights: Floats

    def sums(self, threads: int | None = None) -> Floats:
        """ln of the total weight of the parent sets within each set of candidates, (n, 2**k)."""
        n, k = self.candidates.shape
        log_sums = np.empty((n, 1 << k))
        _each(n, lambda v: _set_sums.log_sums_of_subsets(self.log_weights[v], self.masks, log_sums[v]), threads)
        return log_sums

    def best(self, threads: int | None = None) -> Floats:
        """The largest weight of the parent sets within each set of candidates, (n, 2**k)."""
        n, k = self.candidates.shape
        best_weights = np.empty((n, 1 << k))
        _each(n, lambda v: _set_sums.best_of_subsets(self.log_weights[v], self.masks, best_weights[v]), threads)
        return best_weights

    def hits(self, threads: int | None = None) -> Floats:
        """ln of the total weight of the parent sets that contain a candidate, within each set of the others."""
        # returns (n, k, 2**(k - 1)) ndarray
        n, k = self.candidates.shape
        log_sums = np.empty((n, k, 1 << max(k - 1, 0)))

        def fill(v: int) -> None:
            for j in range(k):
                _set_sums.log_sums_with_member(self.log_weights[v], self.masks, j, log_sums[v, j])

        _each(n, fill, threads)
        return log_sums


def choose_candidates(log_weights: Floats, max_parents: int, k: int, constraints: ArcLimits) -> Ints:
    """Candidate parents of all variables, (n, k), from the weights of all small families."""
    # log_weights: (n, M) of the sets of at most `max_parents` parents, in the order of a `ScoreTable`
    n = len(log_weights)
    members = parent_members(n, max_parents)
    candidates = np.full((n, min(k, n - 1)), -1, np.int64)
    for v in range(n):
        required = np.flatnonzero(constraints.required[:, v])
        own = select_candidates(log_weights[v], unsqueeze(members, v), n, candidates.shape[1], required)
        candidates[v, : len(own)] = own
    return candidates


def all_parents(log_weights: Floats, masks: Ints) -> CandidateTables:
    """Tables in which all other variables are candidates, from the weights of all families."""
    n = len(log_weights)
    others = np.array([[u for u in range(n) if u != v] for v in range(n)], np.int64).reshape(n, -1)
    bit_in = np.zeros((n, n), np.int64)
    for v in range(n):
        bit_in[others[v], v] = np.int64(1) << np.arange(n - 1)
    return CandidateTables(others, bit_in, masks, log_weights)


def candidate_tables(  # noqa: PLR0913
    coded: CodedTable, rule: ScoreRule, prior: StructurePrior, constraints: ArcLimits, candidates: Ints,
    max_parents: int, *, memory_limit: int | None = None, threads: int | None = None, given: ScoreTable | None = None,
) -> CandidateTables:  # fmt: skip
    """Score every set of at most `max_parents` candidate parents."""
    # candidates: (n, k) see `CandidateTables`
    # given: scores of a function or a file, which are looked up
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
    scores = None
    if given is None or given.max_parents < max_parents:
        scores = candidate_scores(coded, rule, [row[row >= 0] for row in candidates], max_parents, threads)
    log_weights = np.full((n, len(masks)), -np.inf)
    bit_in = np.zeros((n, n), np.int64)

    def fill(v: int) -> None:
        own = candidates[v][candidates[v] >= 0]
        bit_in[own, v] = np.int64(1) << np.arange(len(own))
        present = (members < len(own)).all(axis=1)
        sets = np.where(members[present] >= 0, own[members[present]] if len(own) else -1, -1)
        if scores is not None:
            weights = scores(v)
        else:
            assert given is not None
            families = [parent_index(v, s[s >= 0].tolist(), n, given.max_parents) for s in sets]
            weights = given.scores.ravel()[families]
        weights += prior.log_weights(v, sets, n)
        weights[~constraints.possible(v, sets)] = -np.inf
        log_weights[v, present] = weights

    _each(n, fill, threads)
    possible = np.isfinite(log_weights).any(axis=1)
    if not possible.all():
        name = coded.names[int(np.argmin(possible))]
        raise NetworkError(f"the constraints, or the limit of {MAX_CELLS:,} cells, leave no parents for {name!r}")
    return CandidateTables(candidates, bit_in, masks, log_weights)


def _each(n: int, work: Callable[[int], None], threads: int | None) -> None:
    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        list(pool.map(work, range(n)))
