"""Acyclic graphs of probable arcs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_EXACT = 14  # variables on cycles of probable arcs, whose orders are compared by dynamic programming


def most_probable_first(p: NDArray[np.float64], threshold: float) -> NDArray[np.bool_]:
    """The arcs above a probability, the most probable first, each unless it closes a cycle."""
    # p: (n, n) ndarray of float64: [parent, child]
    n = len(p)
    arcs, reach = np.zeros((n, n), np.bool_), np.eye(n, dtype=np.bool_)
    found = [(u, v) for u, v in np.argwhere(p > threshold).tolist() if u != v]
    for u, v in sorted(found, key=lambda arc: (-p[arc], arc)):
        if not reach[v, u]:
            arcs[u, v] = True
            reach |= reach[:, [u]] & reach[[v], :]
    return arcs


def fewest_errors(p: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The acyclic graph that maximises the sum of p - 1/2 over its arcs: it has the fewest expected errors.

    Only arcs with p > 1/2 add to the sum, and all of them are in the graph unless they form cycles. The variables of
    each strongly connected component are ordered by dynamic programming; components of more than 14 variables take the
    most probable arcs first.
    """
    gain = np.maximum(p - 0.5, 0.0)
    np.fill_diagonal(gain, 0.0)
    arcs = gain > 0.0
    reach = arcs | np.eye(len(p), dtype=np.bool_)
    for _ in range(len(p).bit_length()):
        reach = reach.astype(np.float32) @ reach.astype(np.float32) > 0.0
    together = reach & reach.T
    for component in {tuple(np.flatnonzero(row).tolist()) for row in together if row.sum() > 1}:
        inside = np.ix_(component, component)
        if len(component) > MAX_EXACT:
            arcs[inside] = most_probable_first(p[inside], 0.5)
        else:
            position = np.argsort(_best_order(gain[inside]))
            arcs[inside] &= position[:, None] < position[None, :]
    return np.asarray(arcs)


def _best_order(gain: NDArray[np.float64]) -> list[int]:
    """The order with the largest sum of the gains that point forward."""
    n = len(gain)
    best, last = np.zeros(1 << n), np.zeros(1 << n, np.int64)
    for s in range(1, 1 << n):
        members = [v for v in range(n) if s >> v & 1]
        ends = [best[s ^ 1 << v] + gain[[u for u in members if u != v], v].sum() for v in members]
        best[s], last[s] = max(ends), members[int(np.argmax(ends))]
    order, s = list[int](), (1 << n) - 1
    while s:
        order.append(int(last[s]))
        s ^= 1 << int(last[s])
    return order[::-1]
