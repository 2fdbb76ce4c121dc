"""`DeviceScores`: counts and scores on one GPU, by cuda/learn/counts.cu, sliced_counts.cu and scores.cu."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels, most_shared
from ....device.structs import struct
from ....errors import ArgumentError, TableTooLarge
from ..chain_records import BY_CELLS, BY_FAMILY
from .ranks import binomial_table, n_parent_sets
from .set_values import Planes, planes_of, set_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .coded import CodedTable
    from .rules import CellFunctions, ScoreRule

# `CountProblem`: families to count, shared by all GPUs, and the bit planes of their table.

MAX_PARENTS = 5
MAX_COMBOS = 384  # AND-combinations of a set, above which its rows are scanned


@dataclass
class CountProblem:
    """Families to count, shared by all devices."""

    coded: CodedTable
    rule: ScoreRule
    functions: CellFunctions
    max_parents: int
    max_cells: int
    order: NDArray[np.int64]  # the variables by ascending number of states
    cards: NDArray[np.int64]  # in this order
    planes: Planes
    small: list[NDArray[np.float64]]  # values of sets of 0 and 1 variables
    most_combos: int = MAX_COMBOS

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
        return combos > self.most_combos or largest[0] > 8


def gpu_can_score(rule: ScoreRule, max_parents: int) -> bool:
    """Whether GPUs compute such scores."""
    return rule.score.runs_on_gpu and max_parents <= MAX_PARENTS


def count_problem(
    coded: CodedTable, rule: ScoreRule, functions: CellFunctions, max_parents: int, max_cells: int
) -> CountProblem:
    """Sort the variables, and make planes and the values of small sets."""
    if functions.mode == BY_FAMILY:
        raise ArgumentError(f"GPUs do not compute {rule.name!r} scores; use backend='cpu'")
    if max_parents > MAX_PARENTS:
        raise ArgumentError(f"GPUs score families of at most {MAX_PARENTS} parents; use backend='cpu'")
    order = np.argsort(coded.cardinality, kind="stable")
    cards = coded.cardinality[order]
    planes = planes_of(coded.codes[order], cards, coded.weights)
    small = set_values(coded, functions, 0, ess=float(rule.ess), max_cells=max_cells)
    return CountProblem(coded, rule, functions, max_parents, max_cells, order, cards, planes, small)


MAX_VALUES = 8  # functions of one launch of `count_sets_by_rows`
BINOMIAL_SIZES = 8
THREADS = 128  # of a block that counts
FILL_THREADS = 256
TILE_BYTES = 24 << 10  # words of a prefix in shared memory
TILES = 4096  # blocks of a launch, if there are so many sets
MAX_TILE = 4096  # sets of a block
SHARED_CELLS = 8192  # of a scan's histogram in shared memory
SCAN_BYTES = 1 << 30  # of histograms in device memory
LANES = 32  # sets of a block whose warps share the words
SLICED_BYTES = 96 << 10  # words of a prefix in shared memory, all of them
MARGIN_BYTES = 256 << 20  # of the counts of prefixes with one further variable
WARPS = ((192, 8), (64, 4))  # words from which so many warps share them

SETS = struct("learn/counts.cuh", "Sets")
FAMILIES = struct("learn/scores.cu", "Families")


def _pairs_of_prefixes(n: int, size: int) -> NDArray[np.int64]:
    """Number of pairs of variables below each set of `size` variables, by rank."""
    if not size:
        return np.array([n * (n - 1) // 2], np.int64)
    smallest = np.arange(n)
    for length in range(2, size + 1):
        smallest = np.concatenate([smallest[: math.comb(m, length - 1)] for m in range(n)])
    return smallest * (smallest - 1) // 2


def _fewer(at_once: int, exceeds: Callable[[int], bool]) -> int:
    """The largest number of configurations that are counted at once and do not exceed a limit."""
    while at_once > 1 and exceeds(at_once):
        at_once = {16: 9, 9: 6, 6: 4, 4: 1}[at_once]
    return at_once


class DeviceScores:
    """The values of all sets of variables in the memory of one GPU. Used inside ``device.active()``."""

    # warps: {2, 4, 8, 16, 0}: Warps of a block that share the words; 0: each thread takes all words of a set. Default:
    #     by the number of words.
    # values: list of int: Addresses of the values of the sets of 0, 1, ... variables.

    def __init__(self, device: Device, problem: CountProblem, warps: int | None = None):
        self.device, self.problem = device, problem
        n_words = len(problem.planes.words)
        self._warps = next((w for least, w in WARPS if n_words >= least), 0) if warps is None else warps
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
        slices = [f"count_slices_{warps}" for warps in (2, 4, 8, 16)]
        self._sliced = Kernels(self.device, "learn/sliced_counts", ("count_margins", *slices))
        self._kernels.append(self._sliced)
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
        sets["most_combos"] = p.most_combos
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
        at_once = _fewer(16, lambda size: 4 * size * n_planes > most - TILE_BYTES)
        if 4 * at_once * n_planes > most - TILE_BYTES:
            raise TableTooLarge(
                f"{n_planes:,} bit planes exceed the GPU's shared memory; use backend='cpu'", n_planes, 4 * n_planes,
                most,
            )  # fmt: skip
        tile_words = min(n_words, TILE_BYTES // (4 * max(at_once, 4)))
        self._shared = 16 * (-(-at_once // 4)) * tile_words + 4 * at_once * (n_planes + 1)
        self._shape = {"most_at_once": at_once, "tile_words": tile_words}
        for name in ("count_sets", "count_sets_by_rows"):
            self._counting.allow_shared(name, self._shared)
        at_once = _fewer(16, lambda size: 16 * -(-size // 4) * n_words > SLICED_BYTES)
        shared = 16 * -(-at_once // 4) * n_words + 4 * LANES * at_once * self._warps
        if self.problem.n_values > 1 or 16 * -(-at_once // 4) * n_words > SLICED_BYTES or shared > most:
            self._warps = 0
        if self._warps:
            self._sliced_shared = shared
            self._sliced_shape = {"most_at_once": at_once, "tile_words": n_words}
            for name in ("count_margins", f"count_slices_{self._warps}"):
                self._sliced.allow_shared(name, shared)

    def _margins(self, n_prefixes: int, size: int) -> int:
        """Configurations of a prefix at most, if the counts of all prefixes with one further variable fit; else 0."""
        p = self.problem
        most = math.prod(int(r) for r in p.cards[len(p.cards) - size + 2 :])
        n_bytes = 4 * n_prefixes * most * (p.planes.words.shape[1] + 1)
        return most if self._warps and n_bytes <= MARGIN_BYTES else 0

    def count(self, size: int, share: tuple[int, int] = (0, 1)) -> tuple[int, int]:
        """Count the sets of one size, or a share of them, and append the address of the values."""
        # size: At least 2
        # share: (int, int) number i of n parts
        # returns First rank that was counted, and one beyond the last one.
        p, sets = self.problem, self._sets
        n_sets, pairs = math.comb(p.n, size), _pairs_of_prefixes(p.n, size - 2)
        most_configs = self._margins(len(pairs), size)
        tile = LANES if most_configs else THREADS
        while not most_configs and tile < MAX_TILE and n_sets > tile * TILES:
            tile *= 2
        tiles = np.concatenate([[0], np.cumsum(-(-pairs // tile))])
        begin, end = (int(tiles[-1]) * (share[0] + i) // share[1] for i in (0, 1))
        ranks = np.concatenate([[0], np.cumsum(pairs)])
        first, last = (int(self._rank_of_tile(t, tile, tiles, ranks)) for t in (begin, end))
        values = self.memory.empty(8 * p.n_values * n_sets)
        tiles_at = self._put(tiles.astype(np.uint64))
        sets["first_tile"], sets["n_prefixes"], sets["n_sets"], sets["origin"] = tiles_at, len(pairs), n_sets, 0
        sets["begin"], sets["n_tiles"], sets["size"], sets["tile"] = begin, end - begin, size, tile
        margins, n_prefixes = Memory(self.device), 0
        if most_configs and end > begin:
            first_prefix, last_prefix = (int(np.searchsorted(tiles, t, side="right")) for t in (begin, end - 1))
            n_prefixes = last_prefix - first_prefix + 1
            sets["first_prefix"], sets["most_configs"] = first_prefix - 1, most_configs
            sets["margins"] = margins.empty(4 * n_prefixes * most_configs * (p.planes.words.shape[1] + 1))
        if end > begin:
            for first_value in range(0, p.n_values, MAX_VALUES):
                sets["values"] = values + 8 * n_sets * first_value
                sets["first_value"] = first_value
                sets["n_values"] = min(p.n_values - first_value, MAX_VALUES)
                self._launch(size, end - begin, n_prefixes)
        margins.close()
        self.values.append(values)
        return first, last

    @staticmethod
    def _rank_of_tile(at: int, tile: int, tiles: NDArray[np.int64], ranks: NDArray[np.int64]) -> int:
        """Rank of the first set of a tile."""
        if at >= tiles[-1]:
            return int(ranks[-1])
        prefix = int(np.searchsorted(tiles, at, side="right")) - 1
        return int(ranks[prefix] + (at - tiles[prefix]) * tile)

    def _launch(self, size: int, n_tiles: int, n_prefixes: int) -> None:
        """Count the sets of some tiles; n_prefixes: of them, if the warps of a block share the words."""
        p, sets = self.problem, self._sets
        start, stop = self.device.event(timing=True), self.device.event(timing=True)
        start.record(self.stream)
        for name, value in (self._sliced_shape if n_prefixes else self._shape).items():
            sets[name] = value
        if n_prefixes:
            threads, shared = 32 * self._warps, self._sliced_shared
            self._sliced.launch("count_margins", n_prefixes, threads, self.stream, Arguments(sets), shared=shared)
            name = f"count_slices_{self._warps}"
            self._sliced.launch(name, n_tiles, threads, self.stream, Arguments(sets), shared=shared)
        else:
            name = "count_sets" if p.n_values == 1 else "count_sets_by_rows"
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
