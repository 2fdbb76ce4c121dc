"""The algorithms of Zanirati's thesis (Bologna, 2012) for comparison, by their names.

`algorithms` has the searches for the n rows of largest weight (A1 to A6), `selection` the kernels that select the k
smallest numbers of each row of a matrix, `gpu` A4 and the selections in CUDA, `table` the published table next to times
of this machine. The printed defects are fixed; see `docs/screening.rst`. `jtgpu.screen.top_outliers` finds outliers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import DataError
from ..util.arguments import choice, whole_number
from ..util.arrays import Floats, Ints
from .outliers_gpu import MODES, select_on_gpu, solve

# The published searches for the n rows of largest weight, Euclidean distances of float64.

@dataclass(frozen=True, eq=False)
class Published:
    """The n rows of largest weight, of equal weights the first; and how they were found."""

    index: Ints  # (n,)
    weight: Floats  # (n,)
    solving_set: Ints  # ascending; all rows for nested loops
    pairs: int  # distances that were computed; 0 on a GPU, where they are not counted
    messages: int  # numbers sent between the supervisor and the nodes


class _Lists:
    """The k smallest distances of each row so far, ascending; infinite until there are k."""

    def __init__(self, n: int, k: int):
        self.near = np.full((n, k), np.inf)

    def add(self, rows: Ints, distances: Floats) -> None:
        """Add a row of distances to each of some lists."""
        k = self.near.shape[1]
        self.near[rows] = np.sort(np.concatenate([self.near[rows], distances], axis=1), axis=1)[:, :k]

    def bounds(self, rows: Ints) -> Floats:
        """Upper bounds of weights: no bound while a list has fewer than k distances."""
        weights: Floats = self.near[rows].sum(axis=1)
        return weights


def _checked(x: Any, n: int, k: int) -> Floats:
    table = np.asarray(x, np.float64)
    whole_number("n", n, 1)
    whole_number("k", k, 1)
    if table.ndim != 2 or len(table) < max(n, k) or not np.isfinite(table).all():
        raise DataError(
            f"x must be a finite (N, a) array with N of at least n={n} and k={k}, not of shape {table.shape}"
        )
    return table


def _distances(x: Floats, y: Floats) -> Floats:
    total = np.zeros((len(x), len(y)))
    for j in range(x.shape[1]):
        total += (x[:, j, None] - y[None, :, j]) ** 2
    distances: Floats = np.sqrt(total)
    return distances


def _best(weight: Floats, rows: Ints, n: int) -> Ints:
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
            distances = _distances(table[first], table[parts[j]])
            pairs += distances.size
            lists.add(first, distances)
            if j > i:
                lists.add(parts[j], distances.T)
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


def _solve(x: Floats, n: int, k: int, m: int, nodes: int, seed: int, *, is_lazy: bool) -> Published:
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
            distances = _distances(x[candidates], x[own])
            pairs += distances.size
            live = active[own] & ~inside[own]
            lists.add(own[live], distances.T[live])
            known = np.where((node[candidates] == g)[:, None], lists.near[candidates], np.inf)
            near.append(np.sort(np.concatenate([distances, known], axis=1), axis=1)[:, :k])
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


def _merged(near: list[Floats], k: int, *, is_lazy: bool) -> tuple[Floats, int]:
    """The k smallest distances of all nodes, and how many numbers the nodes sent."""
    whole = np.sort(np.concatenate(near, axis=1), axis=1)[:, :k]
    if not is_lazy:
        return whole, sum(part.size for part in near)
    sent = 0
    for q in range(len(whole)):
        counts = [min(math.ceil(k / len(near)) + 1, k)] * len(near)
        while True:
            nearest = np.sort(np.concatenate([part[q, :c] for part, c in zip(near, counts, strict=True)]))[:k]
            largest = nearest[k - 1] if len(nearest) == k else np.inf
            more = [g for g, c in enumerate(counts) if c < near[g].shape[1] and near[g][q, c - 1] < largest]
            if not more:
                break
            for g in more:
                counts[g] = min(counts[g] + math.ceil(k / len(near)) + 1, near[g].shape[1])
        sent += sum(counts)
        whole[q] = np.concatenate([nearest, np.full(k - len(nearest), np.inf)])
    return whole, sent


# Selection of the k smallest numbers of each row of a matrix, as the published kernels divide it between threads.

Select = Callable[[Sequence[float], int, int], list[float]]
BUFFER = 22  # numbers that a thread of kato collects
WARP = 32
BLOCKS = 4  # of the multi-block kernels


def select(name: str, distances: Any, k: int, n_threads: int = 64, backend: str = "reference") -> Floats:
    """The k smallest numbers of each row, ascending.

    Parameters
    ----------
    name : str
        One of `SELECTIONS`.
    distances : (m, d) array
    k : int
        At most d.
    n_threads : int
        Threads of a block; a power of two.
    backend : {"reference", "gpu"}
        ``"gpu"``: the kernels in CUDA, for distances rounded to float32 and k up to 128, with blocks of 64 threads.

    Returns
    -------
    (m, k) ndarray of float64
    """
    table = np.asarray(distances, np.float64)
    if table.ndim != 2 or table.shape[1] < whole_number("k", k, 1):
        raise DataError(f"distances must have shape (m, d) with d of at least k={k}, not {table.shape}")
    whole_number("n_threads", n_threads, 1)
    if n_threads & (n_threads - 1):
        raise DataError(f"n_threads must be a power of two, not {n_threads}")
    work = _KERNELS[choice("name", name, SELECTIONS)]
    if choice("backend", backend, ("reference", "gpu")) == "gpu":
        return select_on_gpu(name, table, k)
    return np.array([work(row, k, n_threads) for row in table.tolist()], np.float64).reshape(len(table), k)


def _insertion(row: Sequence[float], k: int, n_threads: int = 1) -> list[float]:
    """One thread, a sorted array."""
    near: list[float] = []
    for d in row:
        if len(near) < k or d < near[-1]:
            at = len(near)
            while at and near[at - 1] > d:
                at -= 1
            near.insert(at, d)
            del near[k:]
    return near


def _largest_place(row: Sequence[float], k: int, n_threads: int = 1) -> list[float]:
    """One thread, an array and the place of its largest number."""
    near = list(row[:k])
    place = near.index(max(near)) if near else 0
    for d in row[k:]:
        if d < near[place]:
            near[place] = d
            place = near.index(max(near))
    return sorted(near)


def _heap(row: Sequence[float], k: int, n_threads: int = 1) -> list[float]:
    """One thread, a heap with the largest number as its root."""
    heap = [-d for d in row[:k]]
    heapq.heapify(heap)
    for d in row[k:]:
        if d < -heap[0]:
            heapq.heapreplace(heap, -d)
    return sorted(-d for d in heap)


def _by_rank(row: Sequence[float], k: int, n_threads: int) -> list[float]:
    """A thread for each number, which ranks it within its block; one thread merges the blocks' k smallest."""
    kept: list[float] = []
    for first in range(0, len(row), n_threads):
        block = row[first : first + n_threads]
        kept += [d for i, d in enumerate(block) if sum((e, j) < (d, i) for j, e in enumerate(block)) < k]
    return _insertion(kept, k)


def _by_warps(row: Sequence[float], k: int, n_threads: int) -> list[float]:
    """A heap for each thread; threads of one warp merge groups of them, one thread merges the rest."""
    heaps = [_heap(row[t::n_threads], k) for t in range(n_threads)]
    groups = [_heap([d for h in heaps[t::WARP] for d in h], k) for t in range(WARP)]
    return _heap([d for g in groups for d in g], k)


def _buffered(row: Sequence[float], k: int, n_threads: int) -> list[float]:
    """One heap for the block; a buffer for each thread, drained by one thread when one of them is full."""
    near: list[float] = []
    buffers: list[list[float]] = [[] for _ in range(n_threads)]
    for first in range(0, len(row), n_threads):
        root = near[-1] if len(near) == k else np.inf
        for t, d in enumerate(row[first : first + n_threads]):
            if d < root or len(near) < k:
                buffers[t].append(d)
        if any(len(b) >= BUFFER for b in buffers) or first + n_threads >= len(row):
            near = _heap(near + [d for b in buffers for d in b], k)
            buffers = [[] for _ in range(n_threads)]
    return near


def _tree(row: Sequence[float], k: int, n_threads: int, one: Select) -> list[float]:
    """A list for each thread; in log2(threads) steps half of the threads take the lists of the others."""
    lists = [one(row[t::n_threads], k, 1) for t in range(n_threads)]
    step = n_threads // 2
    while step:
        for t in range(step):
            lists[t] = one(lists[t] + lists[t + step], k, 1)
        step //= 2
    return lists[0]


def _on_blocks(row: Sequence[float], k: int, n_threads: int, one: Select) -> list[float]:
    """Several blocks for one row, then one that merges their results."""
    parts = [one(row[b::BLOCKS], k, n_threads) for b in range(BLOCKS)]
    return one([d for part in parts for d in part], k, n_threads)


def _heap_reduction(row: Sequence[float], k: int, n_threads: int) -> list[float]:
    return _tree(row, k, n_threads, _heap)


_KERNELS: dict[str, Select] = {
    "garcia_insertion": _insertion,
    "arefin": _largest_place,
    "single_heap": _heap,
    "cuknn": _by_rank,
    "barrientos": _by_warps,
    "kato": _buffered,
    "hcr": _heap_reduction,
    "insertion_reduction": lambda row, k, n_threads: _tree(row, k, n_threads, _insertion),
    "kato_mb": lambda row, k, n_threads: _on_blocks(row, k, n_threads, _buffered),
    "hcr_mb": lambda row, k, n_threads: _on_blocks(row, k, n_threads, _heap_reduction),
}
SELECTIONS = tuple(_KERNELS)


__all__ = [
    "MODES",
    "SELECTIONS",
    "Published",
    "chunked_nested_loop",
    "distributed_solving_set",
    "gpu_solving_set",
    "lazy_distributed_solving_set",
    "nested_loop",
    "select",
    "solving_set",
]
