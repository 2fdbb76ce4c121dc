"""How much of the posterior the candidate parents cover, and better candidates from sampled orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..scores.combinations import parent_members
from .family_weights import unsqueeze

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..constraints import Constraints

__all__ = ["Coverage", "cover"]

NOTABLE = 1e-3  # share of a variable's posterior that makes it a candidate
SETS = 1 << 22  # parent sets times orders that are looked at together


class Coverage(NamedTuple):
    """What the candidates cover.

    Attributes
    ----------
    outside : (n,) ndarray of float64
        Share of the weight of each variable's small parent sets that has a member outside its candidates, averaged over
        the orders.
    candidates : (n, k) ndarray of int64
        Candidates after replacing those of the least posterior by variables outside of at least 0.1 %.
    """

    outside: NDArray[np.float64]
    candidates: NDArray[np.int64]


def cover(
    log_weights: NDArray[np.float64],
    max_parents: int,
    candidates: NDArray[np.int64],
    orders: NDArray[np.int64],
    constraints: Constraints,
) -> Coverage:
    """Compare the candidates with all small parent sets that sampled orders allow.

    Parameters
    ----------
    log_weights : (n, M) ndarray of float64
        Of the sets of at most `max_parents` parents, in the order of a `ScoreTable`.
    max_parents : int
    candidates : (n, k) ndarray of int64
        Ascending; -1 where there are fewer.
    orders : (D, n) ndarray of int64
    constraints : Constraints
    """
    n = len(log_weights)
    members = parent_members(n, max_parents)
    position = np.argsort(orders, axis=1)
    outside, new = np.zeros(n), candidates.copy()
    for v in range(n):
        own = unsqueeze(members, v)
        shares = _shares(log_weights[v], own, position, v)
        is_candidate = np.zeros(n + 1, np.bool_)
        is_candidate[candidates[v]] = True
        is_candidate[n] = True  # -1: no member
        missing = ~is_candidate[own].all(axis=1)
        outside[v] = min(float(shares[missing].sum()), 1.0)
        of_variable = np.zeros(n + 1)
        np.add.at(of_variable, own, shares[:, None])
        new[v] = _replace(candidates[v], of_variable[:n], is_candidate[:n], constraints.required[:, v])
    return Coverage(outside, new)


def _shares(
    log_weights: NDArray[np.float64], members: NDArray[np.int64], position: NDArray[np.int64], v: int
) -> NDArray[np.float64]:
    """Posterior of each parent set of v, averaged over the orders."""
    n_orders = len(position)
    found = np.zeros(len(members))
    if not np.isfinite(log_weights).any():
        return found
    latest = np.concatenate([position, np.full((n_orders, 1), -1)], axis=1)  # -1: before all variables
    few = max(SETS // max(len(members), 1), 1)
    for first in range(0, n_orders, few):
        chunk = latest[first : first + few]
        allowed = chunk[:, members].max(axis=2, initial=-1) < chunk[:, [v]]
        logs = np.where(allowed, log_weights, -np.inf)
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
        found += (weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)).sum(axis=0)
    return np.asarray(found / n_orders)


def _replace(
    candidates: NDArray[np.int64],
    shares: NDArray[np.float64],
    is_candidate: NDArray[np.bool_],
    required: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Candidates with the least shares make room for variables with notable and larger ones."""
    own = [int(u) for u in candidates if u >= 0]
    fixed = [u for u in own if required[u]]
    free = sorted((u for u in own if not required[u]), key=lambda u: (shares[u], u))
    waiting = sorted(np.flatnonzero(~is_candidate & (shares >= NOTABLE)).tolist(), key=lambda u: (-shares[u], u))
    i = 0
    while i < min(len(free), len(waiting)) and shares[waiting[i]] > shares[free[i]]:
        free[i] = waiting[i]
        i += 1
    chosen = sorted([*fixed, *free])
    return np.array([*chosen, *[-1] * (len(candidates) - len(chosen))], np.int64)
