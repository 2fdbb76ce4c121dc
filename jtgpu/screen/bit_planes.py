"""The engine for tables with states on the CPU: bit planes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..util.loops import loops
from .arrays import Coded, CodedRows
from .engine import Engine, Ranking
from .planes import Planes
from .rows import Measure, Rows
from .workers import on_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BitPlanes"]

_shares = loops("jtgpu.screen.loops.shares")


class BitPlanes(Engine):
    """Blocks of rows as bit planes, ordered so that equal states are close to each other."""

    def __init__(self, measure: Measure, references: Rows, counts: NDArray[np.int64], k: int):
        self._measure, self._k, self._references = measure, k, references
        self._planes = Planes(references)
        places = self._planes.places(references)
        self._order = np.argsort(places, kind="stable")
        self._sorted_places = places[self._order]
        ordered = references.take(self._order)
        planes, observed, _ = self._planes.words(ordered)
        self._coded = Coded(
            np.ascontiguousarray(planes.T), np.ascontiguousarray(observed.T), np.ascontiguousarray(ordered.numbers.T),
            counts[self._order], self._planes.first, measure.has_holes,
        )  # fmt: skip

    def ranking(self) -> Ranking:
        """See `Engine`. Rows of rare states come first; there is no bound."""
        return Ranking.of_rows(np.argsort(-self._planes.rareness(self._references), kind="stable"))

    def similar(self) -> NDArray[np.int64]:
        """See `Engine`."""
        return self._order

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        """See `Engine`."""
        weights = np.empty(len(rows))
        starts = np.searchsorted(self._sorted_places, self._planes.places(rows)).clip(max=len(self._order) - 1)
        planes, observed, unseen = map(np.ascontiguousarray, self._planes.words(rows))
        numbers, divisors = np.ascontiguousarray(rows.numbers), rows.divisors(self._measure)
        coded = CodedRows(planes, observed, unseen, numbers, starts.astype(np.int64), divisors)

        def work(some: slice) -> int:
            part = CodedRows._make(column[some] for column in coded)
            return int(_shares.search(self._coded, part, self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)
