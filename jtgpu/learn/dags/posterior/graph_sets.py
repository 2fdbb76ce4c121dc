"""Properties of many graphs together: arcs, paths, compelled arcs, with standard errors over chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..chains.diagnostics import standard_errors
from ..graphs import compelled_arcs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["arcs_of", "compelled_probabilities", "distinct", "evenly", "path_probabilities", "reachable"]

MAX_WORK = 2e10  # multiplications of the transitive closures
MAX_COMPELLED = 400  # graphs whose equivalence classes are computed
DIGITS = 12  # of shares of graphs: 0.9685, not 0.9684999999999999


def arcs_of(graphs: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Adjacency matrices [..., parent, child] of graphs.

    Parameters
    ----------
    graphs : (..., n) ndarray of int64
        Parents as bits of the candidates.
    candidates : (n, k) ndarray of int64
        -1 where there are fewer.
    """
    n, k = candidates.shape
    found = np.zeros((*graphs.shape[:-1], n, n), np.bool_)
    for v in range(n):
        for j in range(k):
            if candidates[v, j] >= 0:
                found[..., candidates[v, j], v] = graphs[..., v] >> j & 1 > 0
    return found


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of the numbers 0 to n - 1, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, max(most, 1))).round().astype(np.int64))


def reachable(arcs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[..., u, v]: whether a path of one arc or more leads from u to v."""
    found, length = arcs.astype(np.float32), 1
    while length < arcs.shape[-1]:
        found = np.minimum(found + found @ found, 1.0)
        length *= 2
    return np.asarray(found > 0.5)


def path_probabilities(
    graphs: NDArray[np.int64], candidates: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probability that a path leads from one variable to another, and its standard error, (n, n) each.

    Parameters
    ----------
    graphs : (T, C, n) ndarray of int64
        T graphs of each of C chains.
    candidates : (n, k) ndarray of int64
    """
    length, n_chains, n = graphs.shape
    rows = evenly(length, int(MAX_WORK / (n_chains * n**3 * max(n.bit_length(), 1))))
    means = np.zeros((n_chains, n, n))
    for row in rows:
        means += reachable(arcs_of(graphs[row], candidates))
    means /= len(rows)
    return means.mean(axis=0).round(DIGITS), standard_errors(means)


def compelled_probabilities(
    graphs: NDArray[np.int64], candidates: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probability that an arc is present, and directed alike in all equivalent graphs; see `path_probabilities`."""
    length, n_chains, n = graphs.shape
    rows = evenly(length, MAX_COMPELLED // n_chains)
    means = np.zeros((n_chains, n, n))
    known: dict[bytes, NDArray[np.bool_]] = {}
    for row in rows:
        for chain in range(n_chains):
            graph = graphs[row, chain]
            key = graph.tobytes()
            if key not in known:
                known[key] = compelled_arcs(arcs_of(graph, candidates))
            means[chain] += known[key]
    means /= len(rows)
    return means.mean(axis=0).round(DIGITS), standard_errors(means)


def distinct(graphs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Distinct graphs, the most frequent first, and their shares.

    Parameters
    ----------
    graphs : (D, n) ndarray of int64
    """
    found, counts = np.unique(graphs, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return found[order], counts[order] / len(graphs)
