"""The engine of a backend: reference, CPU or GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import reference
from .bit_planes import BitPlanes
from .box_tree import BoxTree
from .engine import Engine, Ranking
from .gpu.engine import GpuEngine
from .gpu.several import SeveralGpus
from .rows import Measure, Rows
from .workers import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray


def make_engine(measure: Measure, references: Rows, counts: NDArray[np.int64], k: int, target: Target) -> Engine:
    """The engine for some rows, each of which stands for `counts` equal rows of the table."""
    if target.backend == "reference":
        return Everything(measure, references, counts, k)
    if target.backend == "gpu":
        if len(target.devices) == 1:
            return GpuEngine(measure, references, counts, k, target.devices[0])
        return SeveralGpus(measure, references, counts, k, target.devices)
    return BitPlanes(measure, references, counts, k) if measure.is_share else BoxTree(measure, references, k)


class Everything(Engine):
    """All distances of every row, by the reference."""

    def __init__(self, measure: Measure, references: Rows, counts: NDArray[np.int64], k: int):
        self._measure, self._k, self._references = measure, k, references
        self._repeated = references.take(np.repeat(np.arange(len(references)), counts))

    def ranking(self) -> Ranking:
        return Ranking.of_rows(self.similar())

    def similar(self) -> NDArray[np.int64]:
        return np.arange(len(self._references))

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        return reference.weights(self._measure, rows, self._repeated, self._k), len(rows) * len(self._repeated)
