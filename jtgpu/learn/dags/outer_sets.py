"""`OuterSets`: the parent sets that matter and have a member which is no candidate.

Tables of sums grow like 2^k, so a variable has few candidates. All other parent sets are scored as well, and nearly all
of them are dominated: wherever such a set is possible, its subsets are possible too and carry 100,000 times its weight.
The others are a few thousand, which chains sum one by one. So probabilities depend neither on the choice of candidates
nor on a seed.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...util.elementary import exps
from ...util.system import cores
from .scores.rules import binomial_table, parent_members

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_POSSIBLE = 62  # possible parents of a variable: bits of a set
DOMINATED = 1e-5  # share of its subsets' weight below which a set is left out
CLEARLY = 11.6  # more than ln of 100,000
MAX_RATIO = 60.0  # ln of the largest ratio of weights that is distinguished


@dataclass(frozen=True, eq=False)
class OuterSets:
    """Parent sets with a member that is no candidate."""

    # (n, m) possible parents: the candidates, then others, each group ascending; -1 where there are fewer. Their
    # position is their bit.
    parents: NDArray[np.int64]
    masks: list[NDArray[np.int64]]  # list of n arrays: The sets of each variable, as bits
    log_weights: list[NDArray[np.float64]]
    # list of n arrays: Their numbers in the order of a `ScoreTable`; empty if they are unknown
    numbers: list[NDArray[np.int64]] = field(default_factory=list)


def outer_sets(
    log_weights: NDArray[np.float64], max_parents: int, candidates: NDArray[np.int64], threads: int | None = None
) -> OuterSets:
    """Select the parent sets with a member outside the candidates that are not dominated by their subsets.

    A chain sums the sets that have a member among some variables. So a set is left out if, for each of its members, the
    subsets with that member have 100,000 times its weight together.
    """
    # log_weights: (n, M) of the sets of at most `max_parents` parents, in the order of a `ScoreTable`
    # candidates: (n, k) -1 where a variable has fewer
    n, k = candidates.shape
    members = parent_members(n, max_parents)
    subsets, with_member = _subsets(members, n), _sets_with_member(members, n)
    m = min(n - 1, MAX_POSSIBLE)
    parents = np.full((n, m), -1, np.int64)

    def select(v: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        own = candidates[v][candidates[v] >= 0]
        others = _others(log_weights[v], with_member, v, own, m - k)
        parents[v, : len(own)], parents[v, k : k + len(others)] = own, others
        bit = np.zeros(n, np.int64)  # of each squeezed number; the last is that of no member
        bit[own - (own > v)] = np.int64(1) << np.arange(len(own))
        bit[others - (others > v)] = np.int64(1) << np.arange(k, k + len(others))
        is_known = bit > 0
        is_known[n - 1] = True
        masks = bit[members].sum(axis=1)
        rows = np.flatnonzero(np.isfinite(log_weights[v]) & is_known[members].all(axis=1) & (masks >> k > 0))
        rows = rows[~_is_clearly_dominated(log_weights[v], members, subsets, rows)]
        rows = rows[_is_undominated(log_weights[v], members, subsets, rows)]
        return masks[rows], log_weights[v, rows], rows

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        selected = list(pool.map(select, range(n)))
    masks, weights, numbers = zip(*selected, strict=True)
    return OuterSets(parents, list(masks), list(weights), list(numbers))


def _sets_with_member(members: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the sets with each squeezed member, one after the other, and where those of each member begin."""
    order = np.argsort(members, axis=None, kind="stable")
    begin = np.searchsorted(members.reshape(-1)[order], np.arange(n - 1))
    return order[begin[0] :] // members.shape[1], begin - begin[0]


def _others(
    weights: NDArray[np.float64], with_member: tuple[NDArray[np.int64], NDArray[np.int64]], v: int,
    candidates: NDArray[np.int64], most: int,
) -> NDArray[np.int64]:  # fmt: skip
    """Variables that may be parents of v besides the candidates, those of the best sets, ascending."""
    numbers, begin = with_member
    best_with = np.insert(np.maximum.reduceat(weights[numbers], begin), v, -np.inf)
    best_with[candidates] = -np.inf
    most_probable = np.argsort(-best_with, kind="stable")[:most]
    return np.sort(most_probable[best_with[most_probable] > -np.inf])


def _subsets(members: NDArray[np.int64], n: int) -> list[NDArray[np.int64]]:
    """Number of the subset with some of the members of each set, by pattern of members; -1 if it has fewer members."""
    n_sets, size = members.shape
    binomials = binomial_table(n, size + 1)
    first = np.concatenate([[0], np.cumsum([math.comb(n - 1, j) for j in range(size + 1)])])
    subsets = []
    for pattern in range(1 << size):
        ranks, count, last = np.zeros(n_sets, np.int64), 0, 0
        for j in range(size):
            if pattern >> j & 1:
                count, last = count + 1, j
                ranks += binomials[np.maximum(members[:, j], 0), count]
        ranks += first[count]
        if count:
            ranks[members[:, last] < 0] = -1
        subsets.append(ranks)
    return subsets


def _is_clearly_dominated(
    weights: NDArray[np.float64], members: NDArray[np.int64], subsets: list[NDArray[np.int64]], rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether for each member a single subset with it, of one member less, has 100,000 times the weight of a set."""
    sizes, dominated = (members[rows] >= 0).sum(axis=1), np.zeros(len(rows), np.bool_)
    for size in range(2, members.shape[1] + 1):
        own = rows[sizes == size]
        without = [weights[subsets[(1 << size) - 1 ^ 1 << j][own]] for j in range(size)]  # member j
        least = np.full(len(own), np.inf)
        for j in range(size):
            np.minimum(least, np.maximum.reduce([x for i, x in enumerate(without) if i != j]), out=least)
        dominated[sizes == size] = least - weights[own] > CLEARLY
    return dominated


def _is_undominated(
    weights: NDArray[np.float64], members: NDArray[np.int64], subsets: list[NDArray[np.int64]], rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the subsets with some member of each set have less than 100,000 times its weight."""
    own, known = weights[rows], np.append(weights, -np.inf)  # number -1: no subset
    totals = np.zeros((members.shape[1], len(rows)))
    for pattern, numbers in enumerate(subsets):
        share = exps(np.minimum(known[numbers[rows]] - own, MAX_RATIO)) if pattern else 0.0
        for j in range(len(totals)):
            if pattern >> j & 1:
                totals[j] += share
    return np.asarray(((totals < 1.0 / DOMINATED) & (members[rows] >= 0).T).any(axis=0))
