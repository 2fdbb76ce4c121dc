"""How much of the posterior the parent sets of chains cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..scores.combinations import parent_members
from .family_weights import unsqueeze

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .outer_sets import OuterSets

__all__ = ["covered_shares"]

SETS = 1 << 22  # parent sets times orders that are compared together


def covered_shares(
    log_weights: NDArray[np.float64],
    max_parents: int,
    candidates: NDArray[np.int64],
    outer: OuterSets | None,
    orders: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Share of the weight of each variable's parent sets that chains know, averaged over some orders, (n,).

    Parameters
    ----------
    log_weights : (n, M) ndarray of float64
        Of the sets of at most `max_parents` parents, in the order of a `ScoreTable`.
    max_parents : int
    candidates : (n, k) ndarray of int64
        -1 where there are fewer. All their sets are known.
    outer : OuterSets or None
        The known sets with other members.
    orders : (D, n) ndarray of int64
    """
    n = len(log_weights)
    members = parent_members(n, max_parents)
    position = np.argsort(orders, axis=1)
    found = np.ones(n)
    for v in range(n):
        own = unsqueeze(members, v)
        shares = _shares(log_weights[v], own, position, v)
        parents = candidates[v] if outer is None else outer.parents[v]
        bit = np.zeros(n + 1, np.int64)  # the last is that of no member
        is_possible = np.zeros(n + 1, np.bool_)
        is_possible[n] = True
        number = np.flatnonzero(parents >= 0)
        bit[parents[number]], is_possible[parents[number]] = np.int64(1) << number, True
        masks = bit[own].sum(axis=1)
        is_known = is_possible[own].all(axis=1)
        if outer is not None:
            is_known &= (masks >> candidates.shape[1] == 0) | np.isin(masks, outer.masks[v])
        total = float(shares.sum())
        found[v] = min(float(shares[is_known].sum()) / total, 1.0) if total else 1.0
    return found


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
