"""The published system that samples orders of the variables (M. Trosztel, 2012), for comparison.

It computes the score of every family of a few parents before the chain starts, and stores them by their index in the
combinatorial number system. A move exchanges two variables of an order; only the variables between them are summed
again. `jtgpu.learn.posterior` is the current method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..device.context import open_device
from ..errors import ArgumentError, TableTooLarge, format_bytes
from ..learn.dags.chain_records import BY_FAMILY
from ..learn.dags.scores.numeric_table import code_table
from ..learn.dags.scores.rules import ScoreRule
from ..learn.dags.scores.set_values import MAX_CELLS
from ..util.arguments import choice, whole_number
from ..util.arrays import Floats, Ints
from ..util.system import free_memory, parse_bytes
from .ordering_gpu import OrderKernels, gpu_table
from .ordering_scores import (
    FamilyScores,
    ScoreCache,
    SetRange,
    members_of_ranks,
    published_seconds,
    ranges_of_node,
    table_bytes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

# `score_cache`: fill the published table of scores, on the CPU or on GPUs.

# Rows of states as the published kernels read them: variable by variable, 16 bits, aligned and padded.

ALIGNMENT = 32  # bytes: a transaction of a GPU, and a vector register of a CPU


def aligned_rows(codes: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Copy states to rows of 16-bit numbers that begin at multiples of 32 bytes."""
    # codes: (n, N) ndarray of uint8
    # returns (n, W) ndarray of uint16: W is the next multiple of 16 after N; the padding is 0.
    n, n_rows = codes.shape
    width = -(-n_rows * 2 // ALIGNMENT) * ALIGNMENT // 2
    memory = np.zeros(n * width + ALIGNMENT // 2, np.uint16)
    first = -memory.ctypes.data % ALIGNMENT // 2
    rows = memory[first : first + n * width].reshape(n, width)
    rows[:, :n_rows] = codes
    return rows


MAX_PARENTS = 5


def score_cache(  # noqa: PLR0913
    data: Any,
    max_parents: int = 3,
    *,
    stored_parents: int | None = None,
    score: str = "bdeu",
    ess: float = 1.0,
    memory_limit: int | str | None = None,
    backend: str = "cpu",
    devices: Any = None,
) -> ScoreCache:
    """Compute the published table of scores."""
    # data: data frame, mapping of columns, list of mappings, (N, n) array, or path of a CSV or Parquet file
    # max_parents: Largest sets of parents, at most 5
    # stored_parents: Largest sets in the table; larger ones are scored on demand. Default: `max_parents`.
    # score, ess: See `jtgpu.learn.ScoreRule`; all but ``"bds"``
    # memory_limit: Of the table. Default: 80 % of the free memory.
    # backend: {"cpu", "gpu"}: ``"cpu"`` is a twin of the kernels, for comparison: the scores are equal to 1 ULP
    # devices: "all" or sequence of int: GPUs that share the table. Default: one.
    # raises DataError: If the data cannot be learned from.
    # raises TableTooLarge: If the table exceeds the memory limit, or a family has more than 1e6 cells (GPU: about
    #     50,000).
    # raises ArgumentError: If an option has no such value.
    choice("backend", backend, ("cpu", "gpu"))
    coded = code_table(data)
    n, rule = len(coded.names), ScoreRule(score, ess)
    k = min(whole_number("max_parents", max_parents, 0, MAX_PARENTS), n - 1)
    stored = k if stored_parents is None else min(whole_number("stored_parents", stored_parents, 0, k), k)
    if coded.weights is not None:
        raise ArgumentError("the published system does not take weights")
    needed = table_bytes(n, stored)
    limit = int(0.8 * free_memory()) if memory_limit is None else parse_bytes(memory_limit)
    if needed > limit:
        raise TableTooLarge(
            f"the table of {needed // 4:,} scores needs {format_bytes(needed)}, more than the limit of "
            f"{format_bytes(limit)}; lower max_parents or stored_parents", needed // 4, needed, limit,
        )  # fmt: skip
    largest = int(np.prod(np.sort(coded.cardinality)[-k - 1 :].astype(np.float64)))
    if largest > MAX_CELLS:
        raise TableTooLarge(f"a family of {k} parents has {largest:,} cells, more than {MAX_CELLS:,}", largest)
    functions = rule.functions(coded.cardinality, k + 1, MAX_CELLS, coded.n_cases)
    if functions.mode == BY_FAMILY:
        raise ArgumentError(f"the published system does not compute {rule.name!r} scores")
    families = FamilyScores(coded, rule, functions, aligned_rows(coded.codes))
    if backend == "gpu":
        return ScoreCache(families, k, stored, gpu_table(families, stored, devices))
    parts = []
    for v in range(n):
        others = [u for u in range(n) if u != v]
        parts += [families.scores(v, others, size, 0, math.comb(n - 1, size)) for size in range(stored + 1)]
    return ScoreCache(families, k, stored, np.concatenate(parts))


# The published chain over orders: flips of two positions, incremental scores, Metropolis-Hastings.

class OrderSums(Protocol):
    """Sums of scores over ranges of parent sets, and probabilities of arcs."""

    def sums(self, order: Ints, ranges: Sequence[SetRange]) -> list[tuple[float, float]]:
        """(largest score, sum of exp(score - largest)) of each range."""

    def edges(self, order: Ints, ranges: Sequence[SetRange], totals: Floats) -> Floats:
        """P(u -> v | order), (n, n)."""

    def close(self) -> None:
        """Free the memory of a device."""


class CpuSums:
    """`OrderSums` in NumPy, the twin of `jtgpu.published.ordering_gpu.OrderKernels`."""

    def __init__(self, cache: ScoreCache):
        self.cache = cache

    def _scores(self, order: Ints, r: SetRange) -> Floats:
        if r.size > self.cache.stored_parents:
            allowed = order[: r.n_predecessors].tolist()
            return self.cache.families.scores(r.child, allowed, r.size, r.begin, r.end).astype(np.float64)
        members = order[members_of_ranks(r.begin, r.end, r.size, r.n_predecessors)]
        return self.cache.of_sets(r.child, members).astype(np.float64)

    def sums(self, order: Ints, ranges: Sequence[SetRange]) -> list[tuple[float, float]]:
        """(largest score, sum of exp(score - largest)) of each range."""
        sums = []
        for r in ranges:
            scores = self._scores(order, r)
            largest = float(scores.max())
            sums.append((largest, float(np.exp(scores - largest).sum())))
        return sums

    def edges(self, order: Ints, ranges: Sequence[SetRange], totals: Floats) -> Floats:
        """P(u -> v | order), (n, n)."""
        n = len(order)
        edges = np.zeros((n, n))
        for r in ranges:
            shares = np.exp(self._scores(order, r) - totals[r.child])
            members = members_of_ranks(r.begin, r.end, r.size, r.n_predecessors)
            for column in members.T:
                edges[order, r.child] += np.bincount(column, shares, minlength=n)
        return edges

    def close(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True)
class OrderState:
    """An order, the ln sum of each variable's scores, and how many sets were summed for it."""

    order: Ints  # (n,) ndarray of int64
    sums: Floats  # (n,) ndarray of float64: By variable
    n_summed: int

    @property
    def log_score(self) -> float:
        """ln of the order's score, up to a constant."""
        return math.fsum(self.sums.tolist())


def _log(parts: Sequence[tuple[float, float]]) -> float:
    """Ln of the sum of parts (largest, sum of exp(x - largest))."""
    parts = [p for p in parts if p[1] > 0.0]
    if not parts:
        return -math.inf
    largest = max(p[0] for p in parts)
    return largest + math.log(math.fsum(s * math.exp(x - largest) for x, s in parts))


def _summed(sums: OrderSums, order: Ints, before: Floats, nodes: Sequence[tuple[int, int]], k: int) -> OrderState:
    """Sum some positions again: (position, first new predecessor), 0 for all sets."""
    by_node = [ranges_of_node(int(order[p]), new, p, k) for p, new in nodes]
    each = iter(sums.sums(order, [r for ranges in by_node for r in ranges]))
    after = before.copy()
    for (p, new), ranges in zip(nodes, by_node, strict=True):
        v = int(order[p])
        parts = [next(each) for _ in ranges]
        if new:  # sets without a new predecessor are in the sum already
            parts.append((float(before[v]), 1.0))
        after[v] = _log(parts)
    return OrderState(order, after, sum(r.end - r.begin for ranges in by_node for r in ranges))


def start(sums: OrderSums, order: Ints, max_parents: int) -> OrderState:
    """The state of an order."""
    n = len(order)
    return _summed(sums, order, np.zeros(n), [(p, 0) for p in range(n)], max_parents)


def flip(sums: OrderSums, state: OrderState, i: int, j: int, max_parents: int) -> OrderState:
    """Exchange the variables at positions i < j.

    Only the variables at i to j have other predecessors. The one that moves from i to j gains predecessors: only the
    sets with a new one are added. The others lose one, and are summed again: subtraction would cancel.
    """
    order = state.order.copy()
    order[i], order[j] = order[j], order[i]
    return _summed(sums, order, state.sums, [*((p, 0) for p in range(i, j)), (j, i)], max_parents)


@dataclass(frozen=True, eq=False)
class OrderSamples:
    """Estimates and samples of a chain."""

    names: tuple[str, ...]
    # (n, n) ndarray of float64: Estimated P(u -> v | data): means over the samples, of which each gives P(u -> v |
    #     data, order)
    edges: Floats
    log_scores: Floats  # (T,) ndarray of float64: ln score of the order after each step
    orders: Ints  # (S, n) ndarray of int64: The samples
    accepted: float  # share of accepted flips
    n_summed: int  # parent sets that were summed


def sample_orders(
    cache: ScoreCache,
    steps: int = 1000,
    *,
    thin: int | None = None,
    burn_in: int | None = None,
    seed: int = 0,
    backend: str = "cpu",
) -> OrderSamples:
    """Sample orders of the variables by the published chain."""
    # steps: Flips
    # thin: Every so many steps the order is a sample. Default: the number of variables.
    # burn_in: Steps before the first sample. Default: a fifth.
    # backend: {"cpu", "gpu"}: The same seed gives the same flips; sums differ by rounding
    # raises ArgumentError: If an option has no such value.
    choice("backend", backend, ("cpu", "gpu"))
    n, k = len(cache.names), cache.max_parents
    steps = whole_number("steps", steps, 1)
    thin = n if thin is None else whole_number("thin", thin, 1)
    burn_in = steps // 5 if burn_in is None else whole_number("burn_in", burn_in, 0)
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    sums: OrderSums = CpuSums(cache) if backend == "cpu" else OrderKernels(cache, open_device())
    try:
        state = start(sums, rng.permutation(n), k)
        n_summed, accepted = state.n_summed, 0
        edges, orders, log_scores = np.zeros((n, n)), [], np.empty(steps)
        for t in range(steps):
            i, j = sorted(rng.choice(n, 2, replace=False).tolist())
            proposed = flip(sums, state, i, j, k)
            n_summed += proposed.n_summed
            if math.log(1.0 - rng.random()) < proposed.log_score - state.log_score:
                state, accepted = proposed, accepted + 1
            log_scores[t] = state.log_score
            if t >= burn_in and (t - burn_in) % thin == 0:
                orders.append(state.order)
                ranges = [r for p in range(n) for r in ranges_of_node(int(state.order[p]), 0, p, k)]
                edges += sums.edges(state.order, ranges, state.sums)
    finally:
        sums.close()
    return OrderSamples(
        cache.names, edges / max(len(orders), 1), log_scores, np.array(orders, np.int64).reshape(-1, n),
        accepted / steps, n_summed,
    )  # fmt: skip


__all__ = ["OrderSamples", "ScoreCache", "published_seconds", "sample_orders", "score_cache", "table_bytes"]
