"""Properties of many graphs together: arcs, paths, compelled arcs, with standard errors over chains."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from ....util import elementary
from ..chains.diagnostics import standard_errors
from ..graphs import compelled_arcs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates.tables import CandidateTables

MAX_WORK = 2e10  # multiplications of the transitive closures
MAX_COMPELLED = 4000  # graphs whose equivalence classes are computed
MAX_ENUMERATED = 5  # variables whose graphs are all enumerated, 29,281 of them
DIGITS = 12  # of shares of graphs: 0.9685, not 0.9684999999999999


def arcs_of(graphs: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Adjacency matrices [..., parent, child] of graphs."""
    # graphs: (..., n) ndarray of int64: Parents as bits of the candidates
    # candidates: (n, k) ndarray of int64: -1 where there are fewer
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
    """Probability that a path leads from one variable to another, and its standard error, (n, n) each."""
    # graphs: (T, C, n) ndarray of int64: T graphs of each of C chains
    # candidates: (n, k) ndarray of int64
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


# properties of a pair of variables in a graph: functions of (T, C, n) graphs and candidates
PROPERTIES = {"path": path_probabilities, "compelled": compelled_probabilities}


def exact_properties(tables: CandidateTables, by_orders: bool) -> dict[str, NDArray[np.float64]]:
    """Exact probabilities of `PROPERTIES`, (n, n) each, by enumeration of all graphs."""
    n = len(tables.candidates)
    parents, weights = _all_graphs(n)
    log_weight = np.zeros(len(parents))
    for v in range(n):
        of_set = np.full(1 << n, -np.inf)
        bits = np.zeros(len(tables.masks), np.int64)
        for j, u in enumerate(tables.candidates[v].tolist()):
            bits |= (tables.masks >> j & 1) << u if u >= 0 else 0
        of_set[bits] = tables.log_weights[v]
        log_weight += of_set[parents[:, v]]
    p = elementary.exps(log_weight - log_weight.max()) * (weights if by_orders else 1)
    p /= p.sum()
    arcs = (parents[:, None, :] >> np.arange(n)[None, :, None] & 1) > 0  # [graph, parent, child]
    return {
        name: np.einsum("g,guv->uv", p, found).round(DIGITS)
        for name, found in (("path", reachable(arcs)), ("compelled", _common_arcs(arcs)))
    }


def _all_graphs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Parents of all acyclic graphs as bits, (G, n), and the number of orders that each allows."""
    rows = np.zeros((1, 0), np.int64)
    for v in range(n):
        sets = np.array([s for s in range(1 << n) if not s >> v & 1], np.int64)
        rows = np.concatenate([np.repeat(rows, len(sets), axis=0), np.tile(sets, len(rows))[:, None]], axis=1)
        if v:  # a pair of opposite arcs is the most frequent cycle: leave it out early
            rows = rows[~((rows[:, :v] >> v & 1) & (rows[:, [v]] >> np.arange(v) & 1)).any(axis=1)]
    orders = np.zeros(len(rows), np.int64)
    for order in itertools.permutations(range(n)):
        allowed, before = np.ones(len(rows), np.bool_), 0
        for v in order:
            allowed &= rows[:, v] & ~before == 0
            before |= 1 << v
        orders += allowed
    return rows[orders > 0], orders[orders > 0]


def _common_arcs(arcs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The arcs of each graph that all equivalent ones have, given all graphs: same links, same v-structures."""
    n = arcs.shape[-1]
    linked = arcs | arcs.transpose(0, 2, 1)
    key = np.zeros(len(arcs), np.int64)
    for u, w in itertools.combinations(range(n), 2):
        key = key << 1 | linked[:, u, w]
        for v in range(n):
            key = key << 1 | (arcs[:, u, v] & arcs[:, w, v] & ~linked[:, u, w])
    classes = np.unique(key, return_inverse=True)[1].reshape(-1)
    common = np.ones((int(classes.max()) + 1, n, n), np.bool_)
    np.logical_and.at(common, classes, arcs)
    return common[classes]


def distinct(graphs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Distinct graphs, the most frequent first, and their shares."""
    # graphs: (D, n) ndarray of int64
    found, counts = np.unique(graphs, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return found[order], counts[order] / len(graphs)
