"""Exact posteriors over the structures of few variables: of every parent set, and the evidence."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import NetworkError, TableTooLarge, format_bytes
from ...util.arrays import Floats, Ints
from ...util.elementary import exps, logs
from ...util.loops import loops
from ...util.system import cores, free_memory
from .set_tables import ANY, draw_sets, set_tables, sorted_sets

if TYPE_CHECKING:
    from .candidate_tables import CandidateTables
    from .chain_records import SetTables

# Independent graphs from exact posteriors: an order or an ordered partition first, then a parent set of each variable.
#
# The sums of the exact algorithms are walked backward with their terms as weights, so each graph is drawn with its
# posterior probability, and independently of the others.

_partitions = loops("jtgpu.learn.dags.loops.exact_partitions")

ZERO_EXPONENT = -(1 << 40)  # of zeros in the loops


def draw_by_orders(
    tables: CandidateTables, exact: ExactPosterior, n_draws: int, seed: int, threads: int | None = None
) -> Ints:
    """Draw graphs from the posterior that `exact_by_orders` computed."""
    # tables: All other variables are candidates, ascending
    # returns (n_draws, n) Parents of each variable as bits of its candidates.
    sums, forward = exact.set_sums, exact.order_sums
    assert sums is not None
    assert forward is not None
    n = len(sums)
    rng = np.random.Generator(np.random.Philox(key=[seed, 1 << 32]))
    u = rng.random((n, n_draws))
    before = np.empty((n, n_draws), np.int64)
    left, rows = np.full(n_draws, (1 << n) - 1, np.int64), np.arange(n_draws)
    for position in range(n - 1, -1, -1):  # the last variable first
        terms = np.full((n, n_draws), -np.inf)
        for v in range(n):
            inside = np.flatnonzero(left >> v & 1)
            others = left[inside] & ~np.int64(1 << v)
            terms[v, inside] = sums[v, _squeezed(others, v)] + forward[others]
        chosen = _choose(terms, u[position])
        left &= ~(np.int64(1) << chosen)
        before[chosen, rows] = _squeezed(left, chosen)
    top = tables.log_weights.max(axis=1, keepdims=True)
    totals = np.take_along_axis(sums, before, axis=1) + top
    graphs = draw_sets(
        *sorted_sets(tables), before, np.full_like(before, ANY), totals, rng.random((n, n_draws)), threads
    )
    return np.ascontiguousarray(graphs.T)


def draw_by_partitions(tables: CandidateTables, n_draws: int, seed: int, threads: int | None = None) -> Ints:
    """Draw graphs from the modular posterior; parameters and result as for `draw_by_orders`."""
    n = len(tables.candidates)
    every, size = (1 << n) - 1, 1 << n
    subsets = np.arange(size)
    n_members = sum((subsets >> v & 1 for v in range(n)), np.zeros(size, np.int64))
    ptr = np.concatenate([[0], np.cumsum(np.int64(1) << (n - n_members))])
    f_m, f_e = np.zeros(ptr[-1]), np.full(ptr[-1], ZERO_EXPONENT)
    sums = np.zeros((n, n, size)), np.full((n, n, size), ZERO_EXPONENT)
    scaled = np.ascontiguousarray(tables.log_weights - tables.log_weights.max(axis=1, keepdims=True))
    _partitions.partition_sums(scaled, tables.masks, *sums, ptr, f_m, f_e)
    rng = np.random.Generator(np.random.Philox(key=[seed, 1 << 33]))
    u = rng.random((n + 1, n_draws))
    at = ptr[(every ^ subsets[1:]) + 1] - 1  # F of all graphs with a last part
    shares = np.ldexp(f_m[at], np.maximum(f_e[at] - f_e[at].max(), -1000))
    last = 1 + np.searchsorted(np.cumsum(shares), u[n] * shares.sum(), side="right").clip(0, size - 2)
    before = every ^ last
    of_before, of_last = np.zeros((n, n_draws), np.int64), np.full((n, n_draws), ANY)
    for depth in range(n):
        if not before.any():
            break
        new = np.zeros_like(last)
        states, state_of = np.unique(np.stack([before, last]), axis=1, return_inverse=True)
        for number, (whole, part) in enumerate(states.T.tolist()):
            if whole:
                own = np.flatnonzero(state_of.reshape(-1) == number)
                own = own[np.argsort(u[depth, own], kind="stable")]
                drawn = np.empty(len(own), np.int64)
                _partitions.draw_parts(*sums, ptr, f_m, f_e, whole, part, u[depth, own], drawn)
                new[own] = drawn
                for v in range(n):
                    if part >> v & 1:
                        of_before[v, own], of_last[v, own] = _squeezed(np.int64(whole), v), _squeezed(drawn, v)
        before, last = before & ~new, new
    chains = set_tables(tables, threads=threads)
    totals = meeting_totals(chains, of_before, of_last)
    graphs = draw_sets(chains.masks, chains.weights, of_before, of_last, totals, rng.random((n, n_draws)), threads)
    return np.ascontiguousarray(graphs.T)


def meeting_totals(tables: SetTables, before: Ints, met: Ints) -> Floats:
    """ln of the total weight of the parent sets within `before` that have a member in `met`, unless that is `ANY`."""
    # before, met (n, D)
    n, k = tables.candidates.shape
    totals = np.take_along_axis(tables.sums, before, axis=1)
    for v in range(n):
        inside, own = met[v] != ANY, before[v].copy()
        totals[v, inside] = -np.inf
        for j in range(k):
            at = np.flatnonzero(inside & (met[v] >> j & 1 > 0))
            totals[v, at] = _log_sums(totals[v, at], tables.hits[v, j, _squeezed(own[at], j)])
            own[at] &= ~np.int64(1 << j)
    return totals


def _log_sums(x: Floats, y: Floats) -> Floats:
    """ln(exp(x) + exp(y))."""
    high, low = np.maximum(x, y), np.minimum(x, y)
    gap = np.subtract(low, high, out=np.full_like(low, -np.inf), where=low > -np.inf)
    return np.asarray(high + logs(1.0 + exps(gap)))


def _squeezed(sets: Ints | np.int64, v: Ints | int) -> Ints:
    """Sets without bit v, and the bits above it moved down by one."""
    low = (np.int64(1) << v) - 1
    return np.asarray((sets & low) | (sets >> (v + np.int64(1)) << v))


def _choose(log_terms: Floats, u: Floats) -> Ints:
    """A row of each column, drawn by exp(terms)."""
    shares = exps(log_terms - log_terms.max(axis=0)).cumsum(axis=0)
    return np.asarray((shares <= u * shares[-1]).sum(axis=0).clip(0, len(shares) - 1))


_set_sums = loops("jtgpu.learn.dags.loops.set_sums")

MAX_BY_ORDERS, MAX_BY_PARTITIONS = 24, 15  # variables: seconds or minutes


class ExactPosterior(NamedTuple):
    """The posterior of every family."""

    # (n, M) probability of each parent set of each variable, in the order of a `ScoreTable`
    families: Floats
    # ln of the sum of the weights of all graphs: of P(data | graph) if the prior is uniform and not normalised
    log_evidence: float
    # of `exact_by_orders`, for `draw_by_orders`: ln of the total weight of the parent sets of each variable within each
    # set of the others, (n, 2**(n-1)), relative to the largest weight
    set_sums: Floats | None = None
    order_sums: Floats | None = None  # (2**n,) ln of that of the orders of each set of variables


def exact_by_orders(
    log_weights: Floats, masks: Ints, *, memory_limit: int | None = None, threads: int | None = None
) -> ExactPosterior:
    """The posterior under the order-modular prior: each graph counts once for each order that it allows.

    The algorithm of Koivisto and Sood (2004), in n^2 2^n additions of logarithmic numbers.
    """
    # log_weights: (n, M) ln weight of each parent set of each variable
    # masks: (M,) the parent sets as bits; bits above the child are squeezed down by one
    n = len(log_weights)
    half = 1 << max(n - 1, 0)
    threads = threads or cores()
    _require_size(n, MAX_BY_ORDERS, 8 * half * (n + 4 + 4 * threads), memory_limit)
    top = log_weights.max(axis=1, keepdims=True)
    require_finite(top)
    scaled = np.ascontiguousarray(log_weights - top)
    sums, posteriors = np.empty((n, half)), np.empty_like(scaled)
    forward, backward = np.empty(2 * half), np.empty(2 * half)
    with ThreadPoolExecutor(threads, "jtgpu-learn") as pool:
        list(pool.map(lambda v: _set_sums.log_sums_of_subsets(scaled[v], masks, sums[v]), range(n)))
        _set_sums.order_sums(sums, forward, backward)
        if forward[-1] == -math.inf:
            raise NetworkError("no graph satisfies the constraints")

        def fill(v: int) -> None:
            _set_sums.set_posteriors(v, scaled[v], masks, forward, backward, posteriors[v])

        list(pool.map(fill, range(n)))
    return ExactPosterior(posteriors, float(forward[-1] + math.fsum(top[:, 0])), sums, forward)


def exact_by_partitions(log_weights: Floats, masks: Ints, *, memory_limit: int | None = None) -> ExactPosterior:
    """The posterior under a modular prior: each graph counts once.

    Sums over the ordered partitions of all graphs, in about 2 * 4^n additions; nothing is subtracted, so no digits are
    lost. Parameters and errors as for `exact_by_orders`.
    """
    n = len(log_weights)
    _require_size(n, MAX_BY_PARTITIONS, 16 * (2 * 3**n + 2 * n * n * 2**n), memory_limit)
    top = log_weights.max(axis=1, keepdims=True)
    require_finite(top)
    posteriors = np.empty_like(log_weights)
    log_z = _partitions.partition_posteriors(np.ascontiguousarray(log_weights - top), masks, posteriors)
    if log_z == -math.inf:
        raise NetworkError("no graph satisfies the constraints")
    return ExactPosterior(posteriors, float(log_z + math.fsum(top[:, 0])))


def _require_size(n: int, most: int, needed: int, limit: int | None) -> None:
    limit = int(0.8 * free_memory()) if limit is None else limit
    if n > most or needed > limit:
        reason = f"at most {most} are supported" if n > most else f"the limit is {format_bytes(limit)}"
        raise TableTooLarge(
            f"the exact posterior of {n} variables needs {format_bytes(needed)}; {reason}", 1 << n, needed, limit
        )


def require_finite(top: Floats) -> None:
    """Raise `NetworkError` if a variable has no possible parent set."""
    if not np.isfinite(top).all():
        raise NetworkError("the constraints leave a variable without a possible set of parents")
