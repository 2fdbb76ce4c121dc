"""Scores of families on GPUs: cuda/learn/counts.cu counts the sets of variables, cuda/learn/scores.cu subtracts.

The scores agree with those of the CPU to the rounding of sums: counts are exact, the functions of a count are the CPU's
tables, and only the order of the additions differs. They do not depend on the number of GPUs.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device.context import Device, device_numbers, open_device
from ....device.driver import Arguments, Kernels, most_shared
from ....device.memory import Memory
from ....errors import ArgumentError, TableTooLarge, format_bytes
from ..count_modes import BY_CELLS, BY_FAMILY
from .combinations import binomial_table, n_parent_sets
from .set_values import set_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .coded import CodedTable
    from .rules import CellFunctions, ScoreRule

__all__ = ["MAX_PARENTS", "DeviceScores", "gpu_can_score", "gpu_scores"]

MAX_PARENTS = 5
MAX_VALUES = 8  # functions of one launch of `count_sets_by_rows`
MAX_COMBOS = 384  # AND-combinations of a set, above which its rows are scanned
BINOMIAL_SIZES = 8
THREADS = 128  # of a block that counts
FILL_THREADS = 256
TILE_BYTES = 24 << 10  # words of a prefix in shared memory
TILES = 4096  # blocks of a launch, if there are so many sets
MAX_TILE = 4096  # sets of a block
SHARED_CELLS = 8192  # of a scan's histogram in shared memory
SCAN_BYTES = 1 << 30  # of histograms in device memory
SHARE = 0.9  # of a device's free memory that may be used

SETS = np.dtype(
    [
        (name, np.uint64)
        for name in (
            "planes", "lasts", "start", "cards", "codes", "weights", "binomials", "segments", "products", "shapes",
            "functions", "first_tile", "values", "cells", "n_sets", "n_prefixes", "begin", "n_tiles", "max_cells",
            "origin",
        )
    ]
    + [
        (name, np.uint32)
        for name in (
            "n", "n_planes", "n_rows", "n_cases", "n_segments", "n_functions", "n_tabulated", "n_values", "size",
            "tile", "most_combos", "tile_words", "most_at_once", "first_value", "stride", "pad",
        )
    ]
)  # fmt: skip
FAMILIES = np.dtype(
    [
        (name, np.uint64)
        for name in (
            "families", "parents", "number", "cards", "parent_row", "binomials", "scores", "n_scores", "first",
            "n_parent_sets", "n_warps",
        )
    ]
    + [("penalty", np.float64)]
    + [(name, np.uint32) for name in ("n", "first_child", "is_single", "pad")]
)  # fmt: skip


class Planes(NamedTuple):
    """Bit planes of a table, variables by ascending number of states, words of 32 rows.

    Attributes
    ----------
    words : (W, P) ndarray of uint32
        The plane of variable v in state s, not its last one, is column ``start[s] + v``.
    lasts : (W, n) ndarray of uint32
        The planes of the last states.
    start : (S,) ndarray of int32
    segments : (B + 1,) ndarray of uint32
        First words of the rows whose weights have a bit, the most significant bit first.
    """

    words: NDArray[np.uint32]
    lasts: NDArray[np.uint32]
    start: NDArray[np.int32]
    segments: NDArray[np.uint32]


def planes_of(codes: NDArray[np.uint8], cards: NDArray[np.int64], weights: NDArray[np.int64] | None) -> Planes:
    """Make the planes of a table whose variables are sorted by their number of states."""
    most = int(cards[-1])
    first = np.searchsorted(cards, np.arange(1, most) + 1)  # of the variables that have a plane of each state
    counts = len(cards) - first
    start = np.concatenate([[0], np.cumsum(counts)[:-1]]) - first
    parts = [np.ones(codes.shape[1], np.bool_)]
    if weights is not None:
        n_bits = int(weights.max()).bit_length()
        parts = [(weights >> bit & 1).astype(np.bool_) for bit in range(n_bits - 1, -1, -1)]
    words, lasts, segments = [], [], [0]
    for part in parts:
        rows = codes if weights is None else codes[:, part]
        packed = [_pack(rows[first[s] :] == s) for s in range(most - 1)]
        words.append(np.concatenate(packed))
        lasts.append(_pack(rows == (cards - 1)[:, None]))
        segments.append(segments[-1] + words[-1].shape[1])
    return Planes(
        np.ascontiguousarray(np.concatenate(words, axis=1).T),
        np.ascontiguousarray(np.concatenate(lasts, axis=1).T),
        start.astype(np.int32),
        np.array(segments, np.uint32),
    )


def _pack(bits: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Rows of bits as words of 32."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded = np.zeros((len(bits), -(-packed.shape[1] // 4) * 4), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u4").astype(np.uint32, copy=False)


def _pairs_of_prefixes(n: int, size: int) -> NDArray[np.int64]:
    """Number of pairs of variables below each set of `size` variables, by rank."""
    if not size:
        return np.array([n * (n - 1) // 2], np.int64)
    smallest = np.arange(n)
    for length in range(2, size + 1):
        smallest = np.concatenate([smallest[: math.comb(m, length - 1)] for m in range(n)])
    return smallest * (smallest - 1) // 2


@dataclass
class _Problem:
    """What all devices count."""

    coded: CodedTable
    rule: ScoreRule
    functions: CellFunctions
    max_parents: int
    max_cells: int
    order: NDArray[np.int64]  # the variables by ascending number of states
    cards: NDArray[np.int64]  # in this order
    planes: Planes
    small: list[NDArray[np.float64]]  # values of sets of 0 and 1 variables

    @property
    def n(self) -> int:
        return len(self.cards)

    @property
    def n_values(self) -> int:
        """Values of a set."""
        return 1 if self.functions.mode == BY_CELLS else len(self.functions.shapes)

    def value_bytes(self) -> int:
        """Bytes of the values of all sets."""
        return sum(8 * self.n_values * math.comb(self.n, size) for size in range(self.max_parents + 2))

    def is_scanned(self, size: int) -> bool:
        """Whether rows of some sets are scanned."""
        largest = [int(r) for r in self.cards[-size:]]
        combos = (largest[0] - 1) * (largest[1] - 1) * math.prod(largest[2:])
        return combos > MAX_COMBOS or largest[0] > 8


class DeviceScores:
    """The values of all sets of variables in the memory of one GPU. Used inside ``device.active()``.

    Parameters
    ----------
    device : Device
    problem : _Problem

    Attributes
    ----------
    values : list of int
        Addresses of the values of the sets of 0, 1, ... variables.
    """

    def __init__(self, device: Device, problem: _Problem):
        self.device, self.problem = device, problem
        self.memory = Memory(device)
        self.stream = device.stream()
        self._kernels: list[Kernels] = []
        self.microseconds = {"count": 0.0, "fill": 0.0}
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        p, f, put = self.problem, self.problem.functions, self._put
        self._counting = Kernels(self.device, "learn/counts", ("count_sets", "count_sets_by_rows", "scan_sets"))
        self._kernels.append(self._counting)
        names = tuple(f"fill_{k}" for k in range(p.max_parents + 1))
        self._filling = Kernels(self.device, "learn/scores", names)
        self._kernels.append(self._filling)
        binomials = binomial_table(p.n, BINOMIAL_SIZES - 1).astype(np.uint64)
        sets = np.zeros(1, SETS)
        codes = np.ascontiguousarray(p.coded.codes[p.order])
        sets["planes"], sets["lasts"] = put(p.planes.words), put(p.planes.lasts)
        sets["start"], sets["cards"] = put(p.planes.start), put(p.cards.astype(np.uint32))
        if any(p.is_scanned(size) for size in range(2, p.max_parents + 2)):
            sets["codes"] = put(codes)
            if p.coded.weights is not None:
                sets["weights"] = put(p.coded.weights.astype(np.uint32))
        sets["binomials"], sets["segments"] = put(binomials), put(p.planes.segments)
        if f.mode == BY_CELLS:
            sets["products"] = put(f.products.astype(np.uint64))
        sets["shapes"], sets["functions"] = put(f.shapes), put(f.values)
        sets["max_cells"], sets["n"] = p.max_cells, p.n
        sets["n_planes"], sets["n_rows"] = p.planes.words.shape[1], codes.shape[1]
        sets["n_cases"], sets["n_segments"] = p.coded.n_cases, len(p.planes.segments) - 1
        sets["n_functions"], sets["n_tabulated"] = len(f.shapes), f.values.shape[1]
        sets["most_combos"] = MAX_COMBOS
        self._sets = sets
        self._scan_blocks = 8 * self.device.multiprocessors
        largest = min(math.prod(int(r) for r in p.cards[-p.max_parents - 1 :]), p.max_cells)
        if sets["codes"][0] and largest > SHARED_CELLS:
            self._scan_blocks = max(min(self._scan_blocks, SCAN_BYTES // (4 * largest)), 1)
            sets["stride"], sets["cells"] = largest, self.memory.empty(4 * largest * self._scan_blocks)
        self._shape_shared(p.planes.words.shape)
        number = np.empty(p.n, np.uint32)
        number[p.order] = np.arange(p.n, dtype=np.uint32)
        rows = [max(f.parent_row(int(r)), 0) for r in p.coded.cardinality]
        families = np.zeros(1, FAMILIES)
        families["number"], families["cards"] = put(number), put(p.coded.cardinality.astype(np.uint32))
        families["parent_row"], families["binomials"] = put(np.array(rows, np.uint32)), sets["binomials"]
        families["n"], families["penalty"] = p.n, p.rule.penalty(p.coded.n_cases)
        self._families = families
        self.values = [put(v if size == 0 else np.ascontiguousarray(v[:, p.order])) for size, v in enumerate(p.small)]

    def _put(self, array: NDArray[Any]) -> int:
        return self.memory.put(np.ascontiguousarray(array), self.stream)

    def _shape_shared(self, shape: tuple[int, int]) -> None:
        """Choose how many configurations of a prefix are counted at once, and how many of their words are in shared
        memory."""
        n_words, n_planes = shape
        most = most_shared(self.device) - 1024
        at_once = 16
        while at_once > 1 and 4 * at_once * n_planes > most - TILE_BYTES:
            at_once = {16: 9, 9: 6, 6: 4, 4: 1}[at_once]
        if 4 * at_once * n_planes > most - TILE_BYTES:
            raise TableTooLarge(
                f"{n_planes:,} bit planes exceed the GPU's shared memory; use backend='cpu'", n_planes, 4 * n_planes,
                most,
            )  # fmt: skip
        tile_words = min(n_words, TILE_BYTES // (4 * max(at_once, 4)))
        self._shared = 16 * (-(-at_once // 4)) * tile_words + 4 * at_once * (n_planes + 1)
        self._sets["most_at_once"], self._sets["tile_words"] = at_once, tile_words
        for name in ("count_sets", "count_sets_by_rows"):
            self._counting.allow_shared(name, self._shared)

    def count(self, size: int, share: tuple[int, int] = (0, 1)) -> tuple[int, int]:
        """Count the sets of one size, or a share of them, and append the address of the values.

        Parameters
        ----------
        size : int
            At least 2.
        share : (int, int)
            Number i of n parts.

        Returns
        -------
        int, int
            First rank that was counted, and one beyond the last one.
        """
        p, sets = self.problem, self._sets
        n_sets, pairs = math.comb(p.n, size), _pairs_of_prefixes(p.n, size - 2)
        tile = THREADS
        while tile < MAX_TILE and n_sets > tile * TILES:
            tile *= 2
        tiles = np.concatenate([[0], np.cumsum(-(-pairs // tile))])
        begin, end = (int(tiles[-1]) * (share[0] + i) // share[1] for i in (0, 1))
        ranks = np.concatenate([[0], np.cumsum(pairs)])
        first, last = (int(self._rank_of_tile(t, tile, tiles, ranks)) for t in (begin, end))
        values = self.memory.empty(8 * p.n_values * n_sets)
        tiles_at = self._put(tiles.astype(np.uint64))
        sets["first_tile"], sets["n_prefixes"], sets["n_sets"], sets["origin"] = tiles_at, len(pairs), n_sets, 0
        sets["begin"], sets["n_tiles"], sets["size"], sets["tile"] = begin, end - begin, size, tile
        if end > begin:
            for first_value in range(0, p.n_values, MAX_VALUES):
                sets["values"] = values + 8 * n_sets * first_value
                sets["first_value"] = first_value
                sets["n_values"] = min(p.n_values - first_value, MAX_VALUES)
                self._launch(size, end - begin)
        self.values.append(values)
        return first, last

    @staticmethod
    def _rank_of_tile(at: int, tile: int, tiles: NDArray[np.int64], ranks: NDArray[np.int64]) -> int:
        """Rank of the first set of a tile."""
        if at >= tiles[-1]:
            return int(ranks[-1])
        prefix = int(np.searchsorted(tiles, at, side="right")) - 1
        return int(ranks[prefix] + (at - tiles[prefix]) * tile)

    def _launch(self, size: int, n_tiles: int) -> None:
        p, sets = self.problem, self._sets
        name = "count_sets" if p.n_values == 1 else "count_sets_by_rows"
        start, stop = self.device.event(timing=True), self.device.event(timing=True)
        start.record(self.stream)
        self._counting.launch(name, n_tiles, THREADS, self.stream, Arguments(sets), shared=self._shared)
        if p.is_scanned(size):
            self._counting.launch("scan_sets", min(self._scan_blocks, n_tiles), THREADS, self.stream, Arguments(sets))
        stop.record(self.stream)
        self.stream.synchronize()
        self.microseconds["count"] += stop.time_since(start) * 1e3

    def fill(self, address: int, first_child: int, n_children: int, *, is_single: bool = False) -> None:
        """Queue the scores of some children, (n_children, M) float64 or float32, at an address."""
        p, f = self.problem, self._families
        f["scores"], f["first_child"], f["is_single"] = address, first_child, is_single
        f["n_scores"] = n_parent_sets(p.n, p.max_parents)
        start, stop = self.device.event(timing=True), self.device.event(timing=True)
        start.record(self.stream)
        first = 0
        for size in range(p.max_parents + 1):
            n_warps = n_children * math.comb(p.n - 1, max(size - 1, 0))
            f["families"], f["parents"] = self.values[size + 1], self.values[size]
            f["first"], f["n_parent_sets"], f["n_warps"] = first, math.comb(p.n, size), n_warps
            n_blocks = -(-n_warps // (FILL_THREADS // 32))
            self._filling.launch(f"fill_{size}", n_blocks, FILL_THREADS, self.stream, Arguments(f))
            first += math.comb(p.n - 1, size)
        stop.record(self.stream)
        self.stream.synchronize()
        self.microseconds["fill"] += stop.time_since(start) * 1e3

    def close(self) -> None:
        """Free the device's memory; may be called twice."""
        for kernels in self._kernels:
            kernels.close()
        self._kernels = []
        self.memory.close()
        self.stream = None


def gpu_can_score(rule: ScoreRule, max_parents: int) -> bool:
    """Whether GPUs compute such scores."""
    return rule.name != "bds" and max_parents <= MAX_PARENTS


def make_problem(
    coded: CodedTable, rule: ScoreRule, functions: CellFunctions, max_parents: int, max_cells: int
) -> _Problem:
    """Sort the variables, and make planes and the values of small sets.

    Raises
    ------
    ArgumentError
        If GPUs do not compute such scores.
    """
    if functions.mode == BY_FAMILY:
        raise ArgumentError(f"GPUs do not compute {rule.name!r} scores; use backend='cpu'")
    if max_parents > MAX_PARENTS:
        raise ArgumentError(f"GPUs score families of at most {MAX_PARENTS} parents; use backend='cpu'")
    order = np.argsort(coded.cardinality, kind="stable")
    cards = coded.cardinality[order]
    planes = planes_of(coded.codes[order], cards, coded.weights)
    small = set_values(coded, functions, 0, ess=float(rule.ess), max_cells=max_cells)
    return _Problem(coded, rule, functions, max_parents, max_cells, order, cards, planes, small)


def gpu_scores(
    coded: CodedTable,
    rule: ScoreRule,
    functions: CellFunctions,
    max_parents: int,
    max_cells: int,
    *,
    devices: Any = None,
) -> NDArray[np.float64]:
    """Scores of all families, as `jtgpu.learn.dags.scores.score_table.score_families` computes them, on GPUs.

    Parameters
    ----------
    devices : "all", int or sequence of int, optional
        Default: one GPU, that of the highest compute capability.

    Returns
    -------
    (n, M) ndarray of float64

    Raises
    ------
    ArgumentError
        If GPUs do not compute such scores.
    BackendUnavailable
        If a GPU is missing.
    TableTooLarge
        If the values of the sets do not fit a GPU's memory.
    """
    problem = make_problem(coded, rule, functions, max_parents, max_cells)
    opened = [open_device(d) for d in device_numbers(devices)] if devices is not None else [open_device()]
    scores = np.empty((problem.n, n_parent_sets(problem.n, max_parents)))
    workers: list[DeviceScores] = []
    try:
        for device in opened:
            with device.active():
                _require_memory(device, problem, scores.shape[1])
                workers.append(DeviceScores(device, problem))
        with ThreadPoolExecutor(len(workers), "jtgpu-learn-gpu") as pool:
            for size in range(2, max_parents + 2):
                _count_together(problem, workers, size, pool)
            shares = [problem.n * i // len(workers) for i in range(len(workers) + 1)]
            list(pool.map(_fill_share, workers, shares[:-1], shares[1:], [scores] * len(workers)))
    finally:
        for worker in workers:
            with worker.device.active():
                worker.close()
    return scores


def _require_memory(device: Device, problem: _Problem, n_scores: int) -> None:
    needed = problem.value_bytes() + 8 * n_scores + problem.planes.words.nbytes + problem.planes.lasts.nbytes
    needed += problem.functions.values.nbytes
    limit = int(SHARE * device.free_memory())
    if needed > limit:
        raise TableTooLarge(
            f"the values of {math.comb(problem.n, problem.max_parents + 1):,} sets of variables need "
            f"{format_bytes(needed)}, more than {device.name} has free ({format_bytes(limit)}); lower max_parents",
            math.comb(problem.n, problem.max_parents + 1),
            needed,
            limit,
        )


def _count_together(problem: _Problem, workers: Sequence[DeviceScores], size: int, pool: ThreadPoolExecutor) -> None:
    """Count the sets of a size, each GPU a share, and give all values to all GPUs."""
    n, n_sets = len(workers), math.comb(problem.n, size)

    def count(i: int) -> tuple[int, int]:
        with workers[i].device.active():
            return workers[i].count(size, (i, n))

    ranges = list(pool.map(count, range(n)))
    if n == 1:
        return
    values = np.empty((problem.n_values, n_sets))

    def download(i: int) -> None:
        worker, (first, last) = workers[i], ranges[i]
        with worker.device.active():
            for k in range(problem.n_values):
                if last > first:
                    worker.device.download(
                        values[k, first:last], worker.values[size] + 8 * (k * n_sets + first), worker.stream
                    )
            worker.stream.synchronize()

    def upload(i: int) -> None:
        worker = workers[i]
        with worker.device.active():
            worker.device.upload(worker.values[size], values, worker.stream)
            worker.stream.synchronize()

    list(pool.map(download, range(n)))
    list(pool.map(upload, range(n)))


def _fill_share(worker: DeviceScores, begin: int, end: int, scores: NDArray[np.float64]) -> None:
    """Compute the scores of the children begin to end - 1, as many at a time as fit the device."""
    device = worker.device
    with device.active():
        one = 8 * scores.shape[1]
        at_once = max(min(end - begin, int(SHARE * device.free_memory()) // one), 1)
        address = worker.memory.empty(one * at_once)
        for first in range(begin, end, at_once):
            last = min(first + at_once, end)
            worker.fill(address, first, last - first)
            device.download(scores[first:last], address, worker.stream)
            worker.stream.synchronize()
