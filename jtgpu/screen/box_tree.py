"""The engine for columns of numbers on the CPU: a tree of boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..util.loops import loops
from .arrays import Tree
from .engine import Engine, Ranking
from .rows import Measure, Rows
from .workers import on_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

_points = loops("jtgpu.screen.loops.points")

SMALLEST_LEAF = 16  # rows
MARGIN = 1 + 1e-9  # of bounds that are added in another order than distances


class BoxTree(Engine):
    """A tree of median splits, whose leaves have at least k rows: these bound the weights of their rows."""

    def __init__(self, measure: Measure, references: Rows, k: int):
        self._measure, self._k = measure, k
        self._references = references
        x = np.ascontiguousarray(references.numbers)
        n, a = x.shape
        self._levels = max((n // max(k, SMALLEST_LEAF)).bit_length() - 1, 0)
        self._order, points = np.empty(n, np.int64), np.empty(n * a)
        boxes = np.empty((2 << self._levels, 2 * a))
        boxes[0] = 0.0
        _points.build(x, self._levels, self._order, boxes, points)
        self._tree = Tree(points, boxes, n, measure.is_squared)

    def ranking(self) -> Ranking:
        """See `Engine`. No row of a leaf is farther from k-1 others than the diagonal of the leaf's box."""
        bounds, starts = (self._k - 1) * MARGIN * self._diagonals(), self._starts()
        leaves = np.argsort(-bounds, kind="stable")
        return Ranking(self._order, starts[leaves], np.diff(starts)[leaves], bounds[leaves])

    def similar(self) -> NDArray[np.int64]:
        return self._order

    def settled(self, other: Engine, threshold: float, threads: int | None) -> NDArray[np.bool_]:
        """See `Engine`. A row is no farther from any point than the centre of its leaf's box and half the diagonal."""
        found = np.zeros(len(self._order), np.bool_)
        a, n_leaves = self._tree.boxes.shape[1] // 2, 1 << self._levels
        low, high = self._tree.boxes[n_leaves:, :a], self._tree.boxes[n_leaves:, a:]
        cuts = threshold - self._k * MARGIN * self._diagonals() / 2
        small = np.flatnonzero(cuts > 0)
        codes = np.empty((len(small), 0), np.int32)
        centres = Rows(low[small] + (high[small] - low[small]) / 2, codes, np.full(len(small), a))
        weights, _ = other.search(centres, cuts[small], threads)
        starts = self._starts()
        for leaf in small[weights < cuts[small]]:
            found[self._order[starts[leaf] : starts[leaf + 1]]] = True
        return found

    def _starts(self) -> NDArray[np.int64]:
        """Where the rows of each leaf start."""
        return np.array([(len(self._order) * i) >> self._levels for i in range((1 << self._levels) + 1)])

    def _diagonals(self) -> NDArray[np.float64]:
        """Diagonal of each leaf's box: no two of its rows have a larger distance."""
        a = self._tree.boxes.shape[1] // 2
        with np.errstate(over="ignore"):
            sides = self._tree.boxes[1 << self._levels :, a:] - self._tree.boxes[1 << self._levels :, :a]
            found: NDArray[np.float64] = sides.sum(axis=1)
            return np.sqrt((sides**2).sum(axis=1)) if self._measure.is_squared else found

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        x, weights = np.ascontiguousarray(rows.numbers), np.empty(len(rows))

        def work(some: slice) -> int:
            return int(_points.search(self._tree, x[some], self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)
