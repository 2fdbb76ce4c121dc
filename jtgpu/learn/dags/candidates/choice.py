"""Candidate parents: the few variables that carry nearly all the weight of a child's parent sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....util.loops import loops

if TYPE_CHECKING:
    from numpy.typing import NDArray

_loops = loops("jtgpu.learn.dags.loops.candidates")

MAX_EXCLUSIONS = 2000  # sets of variables that are tried as unavailable


def select_candidates(
    log_weights: NDArray[np.float64], members: NDArray[np.int64], n: int, k: int, required: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Candidate parents of a child, by best-first search over exclusions.

    The members of the best parent set are candidates. What replaces a member u if it is not available? The best set
    without u: its members come next, those of the best alternatives first. The rest is filled by the best weight of any
    set that contains a variable.
    """
    # log_weights: (M,) ndarray of float64: Weights of the parent sets; -inf: impossible
    # members: (M, j) ndarray of int64: Members of the sets as numbers of variables, -1 where a set has fewer
    # n, k: Number of variables, and of candidates
    # required: (r,) ndarray of int64: Parents that are candidates in any case
    # returns (at most k,) ndarray of int64: Ascending. Fewer than k if no other variable is a possible parent.
    order = np.argsort(-log_weights, kind="stable")
    order = order[np.isfinite(log_weights[order])]
    sets, weights = np.ascontiguousarray(members[order]), log_weights[order]
    chosen = np.zeros(n, np.uint8)
    chosen[required] = 1
    scratch = np.empty((MAX_EXCLUSIONS, n), np.uint8), np.empty(MAX_EXCLUSIONS, np.int64)
    n_chosen = _loops.search_exclusions(sets, len(required), k, chosen, *scratch)
    if n_chosen < k:
        best_with = np.full(n + 1, -np.inf)
        np.maximum.at(best_with, sets, weights[:, None])
        best_with[:n][chosen > 0] = -np.inf
        more = np.argsort(-best_with[:n], kind="stable")[: k - n_chosen]
        chosen[more[best_with[more] > -np.inf]] = 1
    return np.flatnonzero(chosen)
