"""The engine on one GPU: a tree built on the device, and searches by cuda/screen/knn.cu."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..device.context import open_device
from ..errors import JtgpuError
from ..util.arrays import Floats, Ints
from .engine import Engine, Measure, Ranking, Rows
from .gpu_tree import NAN_BITS, SEARCH, WARPS, Buffers, Cells, DeviceTree, Launcher, groups_of
from .planes import MARGIN, Planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_BATCH, LARGEST_BATCH = 1 << 11, 1 << 20  # rows
BATCH_BYTES = 1 << 30
WAYS = (1, 2, 4, 8, 16, 32)  # entries of a list in each lane of a warp; one kernel each


class GpuEngine(Engine):
    """Searches rows on one GPU. Weights have the bits of the CPU."""
    # raises BackendUnavailable: If there is no such device, or its kernels cannot be compiled.
    # raises TableTooLarge: If the device has too little memory.

    def __init__(self, measure: Measure, references: Rows, counts: Ints, k: int, ordinal: int):
        self._measure, self._k, self._references = measure, k, references
        self._device, self._lock = open_device(ordinal), threading.Lock()
        self._planes = Planes(references) if measure.is_share else None
        self._ways = next(w for w in WAYS if 32 * w >= k)
        if measure.has_holes:
            self._kernel = "screen_holes"
        else:
            self._kernel = {"euclidean": "screen_squared", "manhattan": "screen_absolute"}.get(
                measure.metric, "screen_shares"
            )
        self._order: NDArray[np.uint32] | None = None
        self._buffers: Buffers | None = None
        self._is_open = True
        places = None if self._planes is None else self._planes.places(references)
        with self._device.active():
            self._launcher = Launcher(self._device)
            try:
                self._tree = DeviceTree(
                    self._launcher, self._cells(references), counts, places, has_boxes=not measure.has_holes
                )
            except BaseException:
                self._release()
                raise
        each = 16 * (self._tree.n_numbers + self._tree.n_words) + 32
        self.batches = (FIRST_BATCH, max(min(LARGEST_BATCH, BATCH_BYTES // each), FIRST_BATCH))

    def _cells(self, rows: Rows) -> Cells:
        numbers = np.ascontiguousarray(rows.numbers)
        if self._planes is None:
            return Cells(numbers, np.empty((len(rows), 0), np.uint64), np.zeros(1, np.uint32))
        return Cells(numbers, np.concatenate(self._planes.words(rows), axis=1), self._planes.first.astype(np.uint32))

    def ranking(self) -> Ranking:
        """See `Engine`. No row of some leaves is farther from k-1 others than the diagonal of their box."""
        if self._planes is not None:
            return Ranking.of_rows(np.argsort(-self._planes.rareness(self._references), kind="stable"))
        order = self._sorted()
        with self._lock, self._device.active():
            leaves, diagonals = self._tree.diagonals(self._k, is_squared=self._measure.is_squared)
        bounds, starts = (self._k - 1) * MARGIN * diagonals, np.arange(len(diagonals)) * 32 * leaves
        parts = np.argsort(-bounds, kind="stable")
        sizes = np.diff(starts, append=len(order))
        return Ranking(order, starts[parts], sizes[parts], bounds[parts])

    def similar(self) -> Ints:
        return self._sorted().astype(np.int64)

    def _sorted(self) -> NDArray[np.uint32]:
        if self._order is None:
            with self._lock, self._device.active():
                self._check_open()
                self._order = self._launcher.get(self._tree.rows, self._tree.n, np.uint32)
        return self._order

    def search(self, rows: Rows, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        weights, pairs = np.empty(len(rows)), 0
        for some in self._pieces(len(rows)):
            part = Rows(rows.numbers[some], rows.codes[some], rows.n_observed[some])
            cells, divisors = self._cells(part), part.divisors(self._measure)
            with self._lock, self._device.active():
                buffers = self._reserved(some.stop - some.start)
                buffers.put("new_numbers", cells.numbers)
                buffers.put("new_words", cells.words)
                sources = buffers["new_numbers"], buffers["new_words"], 0
                pairs += self._run(buffers, sources, divisors, cuts[some], weights[some])
        return weights, pairs

    def search_own(self, index: Ints, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        weights, pairs = np.empty(len(index)), 0
        for some in self._pieces(len(index)):
            divisors = self._references.n_observed[index[some]].astype(np.float64)
            with self._lock, self._device.active():
                buffers = self._reserved(some.stop - some.start)
                buffers.put("rows", index[some].astype(np.uint32))
                sources = self._tree.numbers, self._tree.words, buffers["rows"]
                pairs += self._run(buffers, sources, divisors, cuts[some], weights[some])
        return weights, pairs

    def _pieces(self, n: int) -> list[slice]:
        return [slice(at, min(at + self.batches[1], n)) for at in range(0, n, self.batches[1])]

    def _reserved(self, n: int) -> Buffers:
        """Device memory for n rows, reused by later calls."""
        self._check_open()
        if self._buffers is None or self._buffers.size < n:
            if self._buffers is not None:
                self._buffers.close()
                self._buffers = None
            size = 32 * groups_of(max(n, self.batches[0]))
            width = self._tree.n_numbers, self._tree.n_words
            self._buffers = Buffers(self._launcher, size, *width)
        return self._buffers

    def _run(
        self, buffers: Buffers, sources: tuple[int, int, int], divisors: Floats,
        cuts: Floats, weights: Floats,
    ) -> int:  # fmt: skip
        """Search rows, given as addresses of numbers, words and places, and return how many distances were computed."""
        tree, launcher, n = self._tree, self._launcher, len(weights)
        numbers, words, places = sources
        tree.gather(tree.n_numbers, numbers, NAN_BITS, places, n, buffers["numbers"])
        tree.gather(tree.n_words, words, 0, places, n, buffers["words"])
        job = {"tree": tree.struct, "n": n, "k": self._k}
        job |= {name: buffers[name] for name in ("numbers", "words", "weights", "pairs")}
        if (cuts > -np.inf).any():
            job["cuts"] = buffers.put("cuts", cuts)
        if self._measure.is_share and not self._measure.has_holes:
            job["divisors"] = buffers.put("divisors", divisors)
        buffers.put("pairs", np.zeros(1, np.uint64))
        launcher.launch("screen/knn", self._kernel, -(-n // WARPS), SEARCH, job, ways=self._ways)
        weights[:] = launcher.get(buffers["weights"], n, np.float64)
        return int(launcher.get(buffers["pairs"], 1, np.uint64)[0])

    def _check_open(self) -> None:
        if not self._is_open:
            raise JtgpuError("this engine is closed")

    def _release(self) -> None:
        self._is_open = False
        if self._buffers is not None:
            self._buffers.close()
            self._buffers = None
        self._launcher.close()

    def close(self) -> None:
        """Free the device's memory; may be called twice."""
        with self._lock:
            if self._is_open:
                with self._device.active():
                    self._release()


# Several GPUs: each has all references, and searches a part of the rows.

Part = tuple["Floats", int]  # weights, and how many distances were computed
FEWEST = 1024  # rows for which one more GPU pays


class SeveralGpus(Engine):
    """Divides every search between GPUs. Weights do not depend on their number."""

    def __init__(
        self, measure: Measure, references: Rows, counts: Ints, k: int, devices: Sequence[int]
    ):  # fmt: skip
        self._references = references
        self._pool = ThreadPoolExecutor(len(devices), "jtgpu-screen")
        made = [self._pool.submit(GpuEngine, measure, references, counts, k, d) for d in devices]
        failed = [e for e in (f.exception() for f in made) if e is not None]
        self._engines = [f.result() for f in made if f.exception() is None]
        if failed:
            self.close()
            raise failed[0]
        first, largest = self._engines[0].batches
        self.batches = (first * len(devices), largest * len(devices))

    def ranking(self) -> Ranking:
        return self._engines[0].ranking()

    def similar(self) -> Ints:
        return self._engines[0].similar()

    def search(self, rows: Rows, cuts: Floats, threads: int | None) -> Part:

        def work(engine: GpuEngine, some: slice) -> Part:
            part = Rows(rows.numbers[some], rows.codes[some], rows.n_observed[some])
            return engine.search(part, cuts[some], threads)

        return self._divided(work, len(rows))

    def search_own(self, index: Ints, cuts: Floats, threads: int | None) -> Part:
        return self._divided(lambda engine, some: engine.search_own(index[some], cuts[some], threads), len(index))

    def _divided(self, work: Callable[[GpuEngine, slice], Part], n: int) -> Part:
        """The parts of some consecutive rows, each by one GPU."""
        n_parts = max(min(len(self._engines), n // FEWEST), 1)
        bounds = [n * i // n_parts for i in range(n_parts + 1)]
        parts = [slice(a, b) for a, b in pairwise(bounds)]
        parts_done = list(self._pool.map(work, self._engines[:n_parts], parts))
        return np.concatenate([weights for weights, _ in parts_done]), sum(pairs for _, pairs in parts_done)

    def close(self) -> None:
        """Free the memory of all devices."""
        for engine in self._engines:
            engine.close()
        self._pool.shutdown()
