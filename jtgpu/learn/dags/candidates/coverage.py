"""How much of the posterior the parent sets of chains cover."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from ....util.elementary import exps
from ....util.system import cores
from ..scores.combinations import parent_members

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .outer_sets import OuterSets

WORD = 64  # variables of a word of bits


def covered_shares(
    log_weights: NDArray[np.float64],
    max_parents: int,
    candidates: NDArray[np.int64],
    outer: OuterSets | None,
    orders: NDArray[np.int64],
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Share of the weight of each variable's parent sets that chains know, averaged over some orders, (n,)."""
    # log_weights: (n, M) ndarray of float64: Of the sets of at most `max_parents` parents, in the order of a
    #     `ScoreTable`
    # candidates: (n, k) ndarray of int64: -1 where there are fewer. All their sets are known.
    # outer: The known sets with other members
    # orders: (D, n) ndarray of int64
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

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        return np.array(list(pool.map(share, range(n))))


def _shares(
    log_weights: NDArray[np.float64], sets: NDArray[np.uint64], before: NDArray[np.uint64]
) -> NDArray[np.float64]:
    """Posterior of each parent set of a variable, averaged over the orders."""
    # log_weights: (M,) ndarray of float64
    # sets: (M, W) ndarray of uint64: Bits of the squeezed numbers of their members
    # before: (D, W) ndarray of uint64: The variables that precede this one in each order
    found = np.zeros(len(sets))
    for own in before:
        allowed = np.flatnonzero(~(sets & ~own).any(axis=1))
        logs = log_weights[allowed]
        top = logs.max(initial=-np.inf)
        if np.isfinite(top):
            weights = exps(logs - top)
            found[allowed] += weights / weights.sum()
    return np.asarray(found / len(before))
