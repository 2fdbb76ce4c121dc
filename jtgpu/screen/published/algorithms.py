"""The published searches for the n rows of largest weight, Euclidean distances of float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ...util.arguments import whole_number
from .gpu.solving_set import solve

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Published:
    """The n rows of largest weight, of equal weights the first; and how they were found."""

    index: NDArray[np.int64]  # (n,)
    weight: NDArray[np.float64]  # (n,)
    solving_set: NDArray[np.int64]  # ascending; all rows for nested loops
    pairs: int  # distances that were computed; 0 on a GPU, where they are not counted
    messages: int  # numbers sent between the supervisor and the nodes


class _Lists:
    """The k smallest distances of each row so far, ascending; infinite until there are k."""

    def __init__(self, n: int, k: int):
        self.near = np.full((n, k), np.inf)

    def add(self, rows: NDArray[np.int64], distances: NDArray[np.float64]) -> None:
        """Add a row of distances to each of some lists."""
        k = self.near.shape[1]
        self.near[rows] = np.sort(np.concatenate([self.near[rows], distances], axis=1), axis=1)[:, :k]

    def bounds(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Upper bounds of weights: no bound while a list has fewer than k distances."""
        found: NDArray[np.float64] = self.near[rows].sum(axis=1)
        return found


def _checked(x: Any, n: int, k: int) -> NDArray[np.float64]:
    table = np.asarray(x, np.float64)
    whole_number("n", n, 1)
    whole_number("k", k, 1)
    if table.ndim != 2 or len(table) < max(n, k) or not np.isfinite(table).all():
        raise DataError(
            f"x must be a finite (N, a) array with N of at least n={n} and k={k}, not of shape {table.shape}"
        )
    return table


def _distances(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.zeros((len(x), len(y)))
    for j in range(x.shape[1]):
        total += (x[:, j, None] - y[None, :, j]) ** 2
    found: NDArray[np.float64] = np.sqrt(total)
    return found


def _best(weight: NDArray[np.float64], rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Places of the n largest weights; of equal weights those of the first rows."""
    return np.lexsort((rows, -weight))[:n]


def nested_loop(x: Any, n: int, k: int) -> Published:
    """A1, ``ODPNestedLoop``: every pair once, for the lists of both rows."""
    return chunked_nested_loop(x, n, k, chunk=1)


def chunked_nested_loop(x: Any, n: int, k: int, chunk: int = 256) -> Published:
    """A3, ``CUDA_ODPNestedLoop``: pairs of chunks; the matrix of two chunks serves both, the second one transposed."""
    table = _checked(x, n, k)
    whole_number("chunk", chunk, 1)
    every = np.arange(len(table))
    lists, pairs = _Lists(len(table), k), 0
    parts = [every[at : at + chunk] for at in range(0, len(table), chunk)]
    for i, first in enumerate(parts):
        for j in range(i, len(parts)):
            found = _distances(table[first], table[parts[j]])
            pairs += found.size
            lists.add(first, found)
            if j > i:
                lists.add(parts[j], found.T)
    weight = lists.bounds(every)
    top = _best(weight, every, n)
    return Published(top, weight[top], every, pairs, 0)


def solving_set(x: Any, n: int, k: int, m: int = 100, seed: int = 0) -> Published:
    """A2, ``ODPSolvingSet``: m candidates at a time, the rows of largest upper bound, until all others are below."""
    return replace(distributed_solving_set(x, n, k, m, nodes=1, seed=seed), messages=0)


def gpu_solving_set(x: Any, n: int, k: int, m: int = 100, mode: str = "redMS", seed: int = 0) -> Published:
    """A4, ``CUDA_ODPSolvingSet``, on a GPU: distances are float32, and k is at most 128.

    Parameters
    ----------
    x : (N, a) array
    n, k, m, seed
        As for `solving_set`.
    mode : {"redMS", "red", "kato", "ndm", "hgm", "hgmA1A2"}
        How the lists of the candidates are found: from a matrix of distances by one heap and buffers (``"kato"``), by a
        heap for each thread (``"red"``), the same every 1,024 columns (``"redMS"``); or without a matrix, with heaps
        in shared memory (``"ndm"``) or global memory, merged at once (``"hgm"``) or by block first (``"hgmA1A2"``).
    """
    table = _checked(x, n, k)
    whole_number("m", m, 1)
    index, weight, inside = solve(table, n, k, m, mode, seed)
    return Published(index, weight, inside, 0, 0)


def distributed_solving_set(x: Any, n: int, k: int, m: int = 100, nodes: int = 4, seed: int = 0) -> Published:
    """A5: each node has a part of the rows and sends the k smallest distances of every candidate."""
    return _solve(_checked(x, n, k), n, k, m, nodes, seed, is_lazy=False)


def lazy_distributed_solving_set(x: Any, n: int, k: int, m: int = 100, nodes: int = 4, seed: int = 0) -> Published:
    """A6: nodes send ``ceil(k / nodes) + 1`` distances first, and more only where they may be among the k smallest."""
    return _solve(_checked(x, n, k), n, k, m, nodes, seed, is_lazy=True)


def _solve(x: NDArray[np.float64], n: int, k: int, m: int, nodes: int, seed: int, *, is_lazy: bool) -> Published:
    whole_number("m", m, 1)
    whole_number("nodes", nodes, 1, len(x))
    every = np.arange(len(x))
    node = every % nodes
    lists, active, inside = _Lists(len(x), k), np.ones(len(x), np.bool_), np.zeros(len(x), np.bool_)
    top, weight = np.empty(0, np.int64), np.empty(0)
    candidates = np.random.default_rng(seed).permutation(len(x))[:m]
    pairs = messages = 0
    while len(candidates):
        inside[candidates] = True
        cut = weight[-1] if len(weight) == n else -np.inf
        others = np.flatnonzero(~inside)
        near = []  # of each node: the distances of the candidates, ascending
        for g in range(nodes):
            own = np.concatenate([candidates[node[candidates] == g], others[node[others] == g]])
            found = _distances(x[candidates], x[own])
            pairs += found.size
            live = active[own] & ~inside[own]
            lists.add(own[live], found.T[live])
            known = np.where((node[candidates] == g)[:, None], lists.near[candidates], np.inf)
            near.append(np.sort(np.concatenate([found, known], axis=1), axis=1)[:, :k])
        merged, sent = _merged(near, k, is_lazy=is_lazy)
        messages += sent + 2 * x.shape[1] * len(candidates)
        top, weight = np.concatenate([top, candidates]), np.concatenate([weight, merged.sum(axis=1)])
        best = _best(weight, top, n)
        top, weight = top[best], weight[best]
        bounds = lists.bounds(others)
        active[others] &= bounds >= cut
        left = active[others]
        candidates = others[left][_best(bounds[left], others[left], m)]
    return Published(top, weight, np.flatnonzero(inside), pairs, messages)


def _merged(near: list[NDArray[np.float64]], k: int, *, is_lazy: bool) -> tuple[NDArray[np.float64], int]:
    """The k smallest distances of all nodes, and how many numbers the nodes sent."""
    whole = np.sort(np.concatenate(near, axis=1), axis=1)[:, :k]
    if not is_lazy:
        return whole, sum(part.size for part in near)
    sent = 0
    for q in range(len(whole)):
        counts = [min(math.ceil(k / len(near)) + 1, k)] * len(near)
        while True:
            found = np.sort(np.concatenate([part[q, :c] for part, c in zip(near, counts, strict=True)]))[:k]
            largest = found[k - 1] if len(found) == k else np.inf
            more = [g for g, c in enumerate(counts) if c < near[g].shape[1] and near[g][q, c - 1] < largest]
            if not more:
                break
            for g in more:
                counts[g] = min(counts[g] + math.ceil(k / len(near)) + 1, near[g].shape[1])
        sent += sum(counts)
        whole[q] = np.concatenate([found, np.full(k - len(found), np.inf)])
    return whole, sent
