"""`GpuExact`: exact posteriors on one GPU, with draws of graphs and the best graph."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...device.structs import struct
from ...errors import NetworkError
from ...util.elementary import exps
from . import gpu_exact_orders as orders
from .best_graph import BestGraph, graph_of_best_order
from .exact import ExactPosterior, require_finite
from .gpu_exact_orders import CELL_BYTES, Workspace, first_device, require_memory
from .set_tables import ANY, draw_sets, sorted_sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.context import Device
    from .candidate_tables import CandidateTables

# The exact posterior under a modular prior on a GPU: cuda/learn/exact_partitions.cu.

MAX_VARIABLES = 20  # 3**20 cells have numbers of 32 bits
THREADS = 128  # of a block
CHUNK, ROW, LOW = 64, 512, 3  # as in the kernels
PART = 32  # free bytes for each derivative that is stored
BLOCKS = 2048  # of a launch, if there are so many subsets

PARTITIONS = struct("learn/exact_partitions.cu", "Partitions")


class PartitionDraws(NamedTuple):
    """Ordered partitions drawn from the posterior."""

    # before, met: (n, D) ndarray of int64: All variables before the part of each variable, and those of the part
    #     before, as squeezed bits; 0 and `ANY` for the first part
    before: NDArray[np.int64]
    met: NDArray[np.int64]
    # (n, D) ln of the total weight of the parent sets within `before` that have a member in `met`, relative to the
    # largest weight of the variable
    totals: NDArray[np.float64]


class _Sets(NamedTuple):
    """All sets of variables."""

    powers: NDArray[np.uint32]
    sets: NDArray[np.uint32]
    rank: NDArray[np.uint32]
    first: NDArray[np.int64]  # of each size


@lru_cache(maxsize=1)
def _all_sets(n: int) -> _Sets:
    powers, sizes = np.zeros(1, np.uint32), np.zeros(1, np.uint8)
    for v in range(n):
        powers = np.concatenate([powers, powers + np.uint32(3**v)])
        sizes = np.concatenate([sizes, sizes + np.uint8(1)])
    sets = np.argsort(sizes, kind="stable").astype(np.uint32)
    first = np.concatenate([[0], np.cumsum([math.comb(n, size) for size in range(n + 1)])])
    rank = np.empty(1 << n, np.uint32)
    rank[sets] = np.arange(1 << n) - first[sizes[sets]]
    return _Sets(powers, sets, rank, first)


def _n_splits(n: int, level: int) -> int:
    """Parts of the sum of a row of F."""
    n_splits, n_blocks = 1, math.comb(n, level) * _n_tiles(n - level)
    while n_splits < 1 << max(level - 6, 0) and n_splits * n_blocks < BLOCKS:
        n_splits *= 2
    return n_splits


def _n_tiles(c: int) -> int:
    return max((1 << max(c - LOW, 0)) // THREADS, 1)


def _most_partial(n: int) -> int:
    return max(math.comb(n, level) * _n_splits(n, level) << (n - level) for level in range(1, n + 1))


def _n_shares(n: int, level: int) -> int:
    """Derivatives by the sums over the parent sets that meet a part, of a level."""
    return math.comb(n, level) * (n - level) << level


def _most_shares(n: int) -> int:
    return max((_n_shares(n, level) for level in range(1, n)), default=0)


def bytes_for(n: int, n_sets: int) -> int:
    """Memory for n variables with so many parent sets each."""
    cells = (2 * n * n + 4 << n) + 2 * int(3**n) + _most_partial(n) + _most_shares(n)
    return 8 * cells + 24 * n * n_sets


def partitions_on_gpu(
    device: Device, log_weights: NDArray[np.float64], masks: NDArray[np.int64], u: NDArray[np.float64]
) -> tuple[ExactPosterior, PartitionDraws]:
    """The posterior as `exact_by_partitions` computes it, and draws."""
    # masks (M,)
    # log_weights: (n, M) the empty set is the first
    # u: (n + 1, D) random numbers of the draws
    n, n_sets = log_weights.shape
    require_memory(device, n, MAX_VARIABLES, lambda m: bytes_for(m, n_sets))
    top = log_weights.max(axis=1, keepdims=True)
    require_finite(top)
    with Workspace(device) as w:
        sets = _all_sets(n)
        p = _tables(w, log_weights - top, masks, sets)
        _forward(w, p, sets)
        log_z = float(w.get(np.empty(1), int(p["forward"][0]) + 8 * int(sets.powers[-1]))[0])
        if log_z == -math.inf:
            raise NetworkError("no graph satisfies the constraints")
        p["log_z"] = log_z
        _backward(w, p, sets)
        posteriors = _families(w, p, log_weights.shape)
        draws = _draws(w, p, u)
    return ExactPosterior(posteriors, log_z + math.fsum(top[:, 0])), draws


def _tables(w: Workspace, scaled: NDArray[np.float64], masks: NDArray[np.int64], sets: _Sets) -> NDArray[np.void]:
    """Sums over the parent sets with each member, and memory for the others."""
    n, n_sets = scaled.shape
    p = np.zeros(1, PARTITIONS)
    p["n"], p["n_parent_sets"] = n, n_sets
    p["log_weights"], p["masks"] = w.put(scaled), w.put(masks)
    p["powers"], p["sets"], p["rank"] = w.put(sets.powers), w.put(sets.sets), w.put(sets.rank)
    p["hits"], p["ends"] = w.empty(8 * n * n << n), w.empty(8 << n)
    p["forward"], p["backward"] = w.empty(8 * 3**n), w.empty(8 * 3**n)
    at = int(p["hits"][0])
    w.place(at, (n, n, n_sets), int(p["log_weights"][0]), int(p["masks"][0]), members=True)
    w.transform(at, n * n, n)
    return p


def _launch(w: Workspace, p: NDArray[np.void], name: str, n_threads: int) -> None:
    """Queue a kernel with a thread for each cell."""
    w.launch(name, -(-n_threads // THREADS), p, threads=THREADS)


def _begin_level(p: NDArray[np.void], sets: _Sets, n: int, level: int) -> int:
    """Number of sets of a size."""
    p["level"], p["first"], p["n_sets"] = level, sets.first[level], math.comb(n, level)
    return math.comb(n, level)


def _forward(w: Workspace, p: NDArray[np.void], sets: _Sets) -> None:
    n = int(p["n"][0])
    p["partial"] = w.empty(8 * _most_partial(n))
    _launch(w, p, "first_parts", 1 << n)
    for level in range(1, n + 1):
        c, count = n - level, _begin_level(p, sets, n, level)
        p["n_tiles"], p["n_splits"] = _n_tiles(c), _n_splits(n, level)
        n_groups = max(-(-c // 3), 2)
        shared = CELL_BYTES * (c * CHUNK + n_groups * 8 * CHUNK)
        blocks = count * _n_tiles(c) * _n_splits(n, level)
        w.launch("forward_level", blocks, p, threads=THREADS, shared=shared)
        if _n_splits(n, level) > 1:
            _launch(w, p, "join_splits", count << c)


def _backward(w: Workspace, p: NDArray[np.void], sets: _Sets) -> None:
    """B, and the derivatives of ln Z by the sums over the parent sets with each member.

    Derivatives of several levels are gathered together, as many as fit a quarter of the free memory.
    """
    n = int(p["n"][0])
    p["of_hits"] = w.empty(8 * n * n << n)
    w.clear(int(p["of_hits"][0]), n * n << n)
    limit = max(min(w.device.free_memory() // PART, sum(_n_shares(n, level) for level in range(1, n))), _most_shares(n))
    p["shares"] = w.empty(8 * limit)
    end, p["last_level"] = 0, n - 1
    for level in range(n - 1, 0, -1):
        c, count = n - level, _begin_level(p, sets, n, level)
        p["starts"][0, level] = end
        end += _n_shares(n, level)
        shared = CELL_BYTES * (c * CHUNK + -(-c // 3) * 8 * CHUNK + ROW + (c + 1) * THREADS)
        w.launch("backward_level", count << max(level - 6, 0), p, threads=THREADS, shared=shared)
        w.launch("fold_shares", count * c, p, threads=THREADS)
        if level == 1 or end + _n_shares(n, level - 1) > limit:
            _launch(w, p, "gather_shares", n * n << n)
            end, p["last_level"] = 0, level - 1


def _families(w: Workspace, p: NDArray[np.void], shape: tuple[int, int]) -> NDArray[np.float64]:
    n = shape[0]
    w.transform(int(p["of_hits"][0]), n * n, n, supersets=True)
    p["families"] = w.empty(8 * shape[0] * shape[1])
    _launch(w, p, "partition_families", shape[0] * shape[1])
    posteriors = w.get(np.empty(shape), int(p["families"][0]))
    roots = exps(_ends(w, p, "root_parts"))
    for v in range(n):
        posteriors[v, 0] = roots.reshape(-1, 2, 1 << v)[:, 1].sum()
    return np.asarray(posteriors)


def _ends(w: Workspace, p: NDArray[np.void], kernel: str) -> NDArray[np.float64]:
    n = int(p["n"][0])
    _launch(w, p, kernel, 1 << n)
    return np.asarray(w.get(np.empty(1 << n), int(p["ends"][0])))


def _draws(w: Workspace, p: NDArray[np.void], u: NDArray[np.float64]) -> PartitionDraws:
    n, n_draws = int(p["n"][0]), u.shape[1]
    draws = PartitionDraws(
        np.zeros((n, n_draws), np.int64), np.full((n, n_draws), ANY, np.int64), np.zeros((n, n_draws))
    )
    if n_draws:
        log_shares = _ends(w, p, "last_parts")[1:]
        shares = exps(log_shares - log_shares.max())
        last = 1 + np.searchsorted(np.cumsum(shares), u[n] * shares.sum(), side="right").clip(0, (1 << n) - 2)
        arrays: dict[str, NDArray[Any]] = draws._asdict()
        p["n_draws"], p["u"], p["last"] = n_draws, w.put(u[:n]), w.put(last.astype(np.uint32))
        for name, array in arrays.items():
            p[name] = w.put(array)
        w.launch("draw_parts", n_draws, p, threads=THREADS)
        for name, array in arrays.items():
            w.get(array, int(p[name][0]))
    return draws


class GpuExact:
    """Exact posteriors on a GPU. Memory is taken for each call only."""

    # devices: "all", int, sequence of int or None: The first one is used
    # by_orders: Whether each graph counts once for each order that it allows
    # seed: Of the draws, which are those of the CPU, except where a decision depends on the last digits

    def __init__(self, devices: Any, by_orders: bool, seed: int, threads: int | None = None):
        self._device = first_device(devices)
        self._by_orders, self._seed, self._threads = by_orders, seed, threads

    def require_memory(self, n: int, n_sets: int) -> None:
        """Raise `TableTooLarge` if n variables of so many parent sets each do not fit the device."""
        most, needed = (orders.MAX_VARIABLES, orders.bytes_for) if self._by_orders else (MAX_VARIABLES, bytes_for)
        require_memory(self._device, n, most, lambda m: int(needed(m, n_sets)))

    def posterior(self, tables: CandidateTables, n_draws: int) -> tuple[ExactPosterior, NDArray[np.int64]]:
        """The posterior, and graphs drawn from it."""
        # tables: All other variables are candidates, ascending
        # returns (n_draws, n) Parents of each variable as bits of its candidates.
        weights, masks = tables.log_weights, tables.masks
        n = len(weights)
        rng = np.random.Generator(np.random.Philox(key=[self._seed, 1 << (32 if self._by_orders else 33)]))
        if self._by_orders:
            posterior, drawn = orders.orders_on_gpu(self._device, weights, masks, rng.random((n, n_draws)))
            before, met, totals = drawn.before, np.full_like(drawn.before, ANY), drawn.totals
        else:
            posterior, (before, met, totals) = partitions_on_gpu(
                self._device, weights, masks, rng.random((n + 1, n_draws))
            )
            roots = np.where(met == ANY, weights[:, :1] - weights.max(axis=1, keepdims=True), 0.0)
            totals = totals + roots
        totals = totals + weights.max(axis=1, keepdims=True)
        u = rng.random((n, n_draws))
        graphs = draw_sets(*sorted_sets(tables), before, met, totals, u, self._threads)
        return posterior, np.ascontiguousarray(graphs.T)

    def best(self, tables: CandidateTables) -> BestGraph:
        """The graph of the highest weight."""
        order = orders.best_order(self._device, tables.log_weights, tables.masks)
        return graph_of_best_order(order, tables.log_weights, tables.masks)
