"""Selection of the k smallest numbers of each row of a matrix, as the published kernels divide it between threads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ...util.arguments import choice, whole_number
from .gpu.selection import select_on_gpu

Select = Callable[[Sequence[float], int, int], list[float]]
BUFFER = 22  # numbers that a thread of kato collects
WARP = 32
BLOCKS = 4  # of the multi-block kernels


def select(name: str, distances: Any, k: int, n_threads: int = 64, backend: str = "reference") -> NDArray[np.float64]:
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
