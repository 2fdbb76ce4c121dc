"""Several GPUs: each has all references, and searches a part of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..engine import Engine, Ranking
from ..rows import Measure, Rows
from .engine import GpuEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

Part = tuple["NDArray[np.float64]", int]  # weights, and how many distances were computed
FEWEST = 1024  # rows for which one more GPU pays


class SeveralGpus(Engine):
    """Divides every search between GPUs. Weights do not depend on their number."""

    def __init__(
        self, measure: Measure, references: Rows, counts: NDArray[np.int64], k: int, devices: Sequence[int]
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

    def similar(self) -> NDArray[np.int64]:
        return self._engines[0].similar()

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> Part:

        def work(engine: GpuEngine, some: slice) -> Part:
            part = Rows(rows.numbers[some], rows.codes[some], rows.n_observed[some])
            return engine.search(part, cuts[some], threads)

        return self._divided(work, len(rows))

    def search_own(self, index: NDArray[np.int64], cuts: NDArray[np.float64], threads: int | None) -> Part:
        return self._divided(lambda engine, some: engine.search_own(index[some], cuts[some], threads), len(index))

    def _divided(self, work: Callable[[GpuEngine, slice], Part], n: int) -> Part:
        """The parts of some consecutive rows, each by one GPU."""
        n_parts = max(min(len(self._engines), n // FEWEST), 1)
        bounds = [n * i // n_parts for i in range(n_parts + 1)]
        parts = [slice(a, b) for a, b in pairwise(bounds)]
        found = list(self._pool.map(work, self._engines[:n_parts], parts))
        return np.concatenate([weights for weights, _ in found]), sum(pairs for _, pairs in found)

    def close(self) -> None:
        """Free the memory of all devices."""
        for engine in self._engines:
            engine.close()
        self._pool.shutdown()
