"""The parent sets that chains sum: `OuterSets` have a member that is no candidate, `SetTables` are what chains look up.

Tables of sums grow like 2^k, so a variable has few candidates. All other parent sets are scored as well, and nearly all
of them are dominated: wherever such a set is possible, its subsets are possible too and carry 100,000 times its weight.
The others are a few thousand, which chains sum one by one. So probabilities depend neither on the choice of candidates
nor on a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...errors import TableTooLarge, format_bytes
from ...util.arrays import Bools, Cell, Floats, Ints
from ...util.elementary import exps, log
from ...util.loops import loops
from ...util.system import cores
from .chain_records import RUN, SetTables
from .scores.ranks import binomial_table, parent_members

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .candidate_tables import CandidateTables

MAX_POSSIBLE = 62  # possible parents of a variable: bits of a set
DOMINATED = 1e-5  # share of its subsets' weight below which a set is left out
CLEARLY = 11.6  # more than ln of 100,000
MAX_RATIO = 60.0  # ln of the largest ratio of weights that is distinguished


@dataclass(frozen=True, eq=False)
class OuterSets:
    """Parent sets with a member that is no candidate."""

    # (n, m) possible parents: the candidates, then others, each group ascending; -1 where there are fewer. Their
    # position is their bit.
    parents: Ints
    masks: list[Ints]  # list of n arrays: The sets of each variable, as bits
    log_weights: list[Floats]
    # list of n arrays: Their numbers in the order of a `ScoreTable`; empty if they are unknown
    numbers: list[Ints] = field(default_factory=list)


def outer_sets(log_weights: Floats, max_parents: int, candidates: Ints, threads: int | None = None) -> OuterSets:
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

    def select(v: int) -> tuple[Ints, Floats, Ints]:
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


def _sets_with_member(members: Ints, n: int) -> tuple[Ints, Ints]:
    """Numbers of the sets with each squeezed member, one after the other, and where those of each member begin."""
    order = np.argsort(members, axis=None, kind="stable")
    begin = np.searchsorted(members.reshape(-1)[order], np.arange(n - 1))
    return order[begin[0] :] // members.shape[1], begin - begin[0]


def _others(weights: Floats, with_member: tuple[Ints, Ints], v: int, candidates: Ints, most: int) -> Ints:
    """Variables that may be parents of v besides the candidates, those of the best sets, ascending."""
    numbers, begin = with_member
    best_with = np.insert(np.maximum.reduceat(weights[numbers], begin), v, -np.inf)
    best_with[candidates] = -np.inf
    most_probable = np.argsort(-best_with, kind="stable")[:most]
    return np.sort(most_probable[best_with[most_probable] > -np.inf])


def _subsets(members: Ints, n: int) -> list[Ints]:
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


def _is_clearly_dominated(weights: Floats, members: Ints, subsets: list[Ints], rows: Ints) -> Bools:
    """Whether each member of a set is in a subset with one member less that has 100,000 times the weight of the set."""
    sizes, dominated = (members[rows] >= 0).sum(axis=1), np.zeros(len(rows), np.bool_)
    for size in range(2, members.shape[1] + 1):
        own = rows[sizes == size]
        without = [weights[subsets[(1 << size) - 1 ^ 1 << j][own]] for j in range(size)]  # member j
        least = np.full(len(own), np.inf)
        for j in range(size):
            np.minimum(least, np.maximum.reduce([x for i, x in enumerate(without) if i != j]), out=least)
        dominated[sizes == size] = least - weights[own] > CLEARLY
    return dominated


def _is_undominated(weights: Floats, members: Ints, subsets: list[Ints], rows: Ints) -> Bools:
    """Whether the subsets with some member of each set have less than 100,000 times its weight."""
    own, known = weights[rows], np.append(weights, -np.inf)  # number -1: no subset
    totals = np.zeros((members.shape[1], len(rows)))
    for pattern, numbers in enumerate(subsets):
        share = exps(np.minimum(known[numbers[rows]] - own, MAX_RATIO)) if pattern else 0.0
        for j in range(len(totals)):
            if pattern >> j & 1:
                totals[j] += share
    return np.asarray(((totals < 1.0 / DOMINATED) & (members[rows] >= 0).T).any(axis=0))


# How much of the posterior the parent sets of chains cover.

WORD = 64  # variables of a word of bits


def covered_shares(
    log_weights: Floats, max_parents: int, candidates: Ints, outer: OuterSets | None, orders: Ints
) -> Floats:
    """(n,) share of the weight of each variable's parent sets that the tables of chains hold, averaged over orders."""
    # orders (D, n)
    # log_weights: (n, M) of the sets of at most `max_parents` parents, in the order of a `ScoreTable`
    # candidates: (n, k) -1 where there are fewer. All their sets are known.
    # outer: The known sets with other members
    n = len(log_weights)
    others = np.arange(max(n - 1, 1))
    bits = np.zeros((n, -(-n // WORD)), np.uint64)  # of each squeezed number; the last is that of no member
    bits[others, others // WORD] = np.uint64(1) << (others % WORD).astype(np.uint64)
    bits[n - 1] = 0
    sets = bits[parent_members(n, max_parents)].sum(axis=1)
    position = np.argsort(orders, axis=1)

    def share(v: int) -> float:
        before = np.delete(position < position[:, [v]], v, axis=1)
        shares = _shares(log_weights[v], sets, before @ bits[: n - 1])
        own = candidates[v][candidates[v] >= 0]
        inside = ~bits[own - (own > v)].sum(axis=0, dtype=np.uint64)
        is_known = ~(sets & inside).any(axis=1)
        if outer is not None:
            is_known[outer.numbers[v]] = True
        total = float(shares.sum())
        return min(float(shares[is_known].sum()) / total, 1.0) if total else 1.0

    with ThreadPoolExecutor(cores(), "jtgpu-learn") as pool:
        return np.array(list(pool.map(share, range(n))))


def _shares(log_weights: Floats, sets: NDArray[np.uint64], before: NDArray[np.uint64]) -> Floats:
    """Posterior of each parent set of a variable, averaged over the orders."""
    # log_weights (M,)
    # sets: (M, W) bits of the squeezed numbers of their members
    # before: (D, W) the variables that precede this one in each order
    shares = np.zeros(len(sets))
    for own in before:
        allowed = np.flatnonzero(~(sets & ~own).any(axis=1))
        logs = log_weights[allowed]
        top = logs.max(initial=-np.inf)
        if np.isfinite(top):
            weights = exps(logs - top)
            shares[allowed] += weights / weights.sum()
    return np.asarray(shares / len(before))


# Lists of weighted sets in segments, in each of which weights are whole numbers of a common unit.

SPAN = 16.0  # ln of the ratio of weights in a segment, at most
LARGEST = 47.0 * log(2.0)  # ln of the largest whole number
MAX_SETS = 1 << 15  # of a segment, whose sum does not overflow


def padded(rows: Sequence[NDArray[Cell]], filler: float) -> NDArray[Cell]:
    """Rows of different lengths as one array."""
    values = np.full((len(rows), max(map(len, rows), default=0)), filler, rows[0].dtype)
    for i, row in enumerate(rows):
        values[i, : len(row)] = row
    return values


def _log_total(logs: Floats) -> float:
    """ln of the sum of the exponentials of descending numbers."""
    return float(logs[0]) + log(math.fsum(exps(logs - logs[0])))


def segments(masks: Sequence[Ints], log_weights: Sequence[Floats]) -> tuple[Ints, Ints, Ints, Floats, Floats]:
    """Divide the sets of each variable into segments of similar weight, heaviest first. Sets ascend in each."""
    # masks, log_weights: n ndarrays of int64 and float64: Finite ln weights
    # returns masks, counts, ends, units, totals: See ``outer_masks`` and so on of
    #     `jtgpu.learn.dags.chain_records.SetTables`
    of_masks, of_counts, of_ends, of_units, of_totals = [], [], [], [], []
    for own, weights in zip(masks, log_weights, strict=True):
        order = np.argsort(-weights, kind="stable")
        sets, logs = own[order], weights[order]
        ends, units, counts = [0], [], np.empty(len(logs), np.int64)
        while ends[-1] < len(logs):
            begin = ends[-1]
            end = min(int(np.searchsorted(-logs, SPAN - logs[begin], side="right")), begin + MAX_SETS)
            units.append(float(logs[begin]) - LARGEST)
            ascending = begin + np.argsort(sets[begin:end], kind="stable")  # chains skip runs that share members
            counts[begin:end] = np.rint(exps(logs[ascending] - units[-1])).astype(np.int64)
            sets[begin:end] = sets[ascending]
            ends.append(end)
        totals = [_log_total(logs[begin:]) for begin in ends[:-1]]
        of_masks.append(sets)
        of_counts.append(counts)
        of_ends.append(np.array(ends, np.int64))
        of_units.append(np.array(units, np.float64))
        of_totals.append(np.array(totals, np.float64))
    width = max(map(len, of_units), default=0)
    ends_of = np.array([np.pad(ends, (0, width + 1 - len(ends)), mode="edge") for ends in of_ends], np.int64)
    return (
        padded(of_masks, 0), padded(of_counts, 0), ends_of.reshape(len(of_masks), width + 1), padded(of_units, 0.0),
        padded(of_totals, -np.inf),
    )  # fmt: skip


def shared_members(masks: Ints) -> Ints:
    """Members that all of `RUN` neighbouring sets have, (n, runs)."""
    n, width = masks.shape
    whole = np.pad(masks, ((0, 0), (0, -width % RUN)))
    return np.ascontiguousarray(np.bitwise_and.reduce(whole.reshape(n, -1, RUN), axis=2))


_draws = loops("jtgpu.learn.dags.loops.outer_sets")

ANY = -1  # in place of a set that a parent set must meet: no such condition


def table_bytes(n: int, k: int) -> int:
    """Memory of the tables of sums of n variables with k candidate parents each."""
    return 8 * n * (k + 2) << max(k - 1, 0)


def set_tables(
    tables: CandidateTables,
    outer: OuterSets | None = None,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> SetTables:
    """Compute the tables of sums."""
    # outer: Of the same candidates. Default: only candidates are possible parents.
    # raises TableTooLarge: If they exceed the memory limit; the message says how many candidates fit.
    n, k = tables.candidates.shape
    if memory_limit is not None and table_bytes(n, k) > memory_limit:
        fits = k
        while fits > 1 and table_bytes(n, fits) > memory_limit:
            fits -= 1
        raise TableTooLarge(
            f"the tables of {k} candidate parents of {n} variables need {format_bytes(table_bytes(n, k))}, more than "
            f"the limit of {format_bytes(memory_limit)}; candidates={fits} fits",
            n * (k + 2) << max(k - 1, 0),
            table_bytes(n, k),
            memory_limit,
        )
    log_factorials = np.cumsum([0.0, *(log(i) for i in range(1, n + 1))])
    if outer is None:
        outer = OuterSets(tables.candidates, [np.empty(0, np.int64)] * n, [np.empty(0)] * n)
    outer_masks, counts, ends, units, totals = segments(outer.masks, outer.log_weights)
    sums = tables.sums(threads)
    ratios = totals[:, 0] - sums[:, -1] if totals.shape[1] else np.full(n, -np.inf)
    return SetTables(
        np.ascontiguousarray(outer.parents), sums, tables.hits(threads), *sorted_sets(tables, outer), outer_masks,
        shared_members(outer_masks), counts, ends, units, totals, ratios, log_factorials,
    )  # fmt: skip


def sorted_sets(tables: CandidateTables, outer: OuterSets | None = None) -> tuple[Ints, Floats]:
    """The parent sets of each variable as bits of its possible parents, by descending weight, and the ln weights."""
    # returns masks, weights: (n, M) ndarray: -inf where a variable has fewer sets
    masks, weights = np.broadcast_to(tables.masks, tables.log_weights.shape), tables.log_weights
    if outer is not None:
        masks = np.concatenate([masks, padded(outer.masks, 0)], axis=1)
        weights = np.concatenate([weights, padded(outer.log_weights, -np.inf)], axis=1)
    order = np.argsort(-weights, axis=1, kind="stable")
    return np.take_along_axis(masks, order, axis=1), np.take_along_axis(weights, order, axis=1)


def draw_sets(
    masks: Ints, weights: Floats, before: Ints, met: Ints, log_totals: Floats, u: Floats, threads: int | None = None
) -> Ints:
    """Draw parent sets of all variables."""
    # masks, weights: (n, M) ndarray: See `sorted_sets`
    # before, met: (n, D) ndarray of int64: Each set is within the candidates `before` of its variable and has a member
    #     in `met`, unless that is `ANY`
    # log_totals: (n, D) ndarray of float64: ln of the total weight of these sets
    # u: (n, D) ndarray of float64: Uniform random numbers
    # returns (n, D) ndarray of int64: Bits of the candidates.
    drawn = np.empty_like(before)

    def draw(v: int) -> None:
        _draws.draw_sets(masks[v], weights[v], before[v], met[v], log_totals[v], u[v], drawn[v])

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        list(pool.map(draw, range(len(before))))
    return drawn
