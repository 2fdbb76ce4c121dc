"""The engine for tables with states on the CPU: bit planes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..util.loops import loops
from .arrays import Coded, CodedRows, Sliced, SlicedRows
from .engine import Engine, Measure, Ranking, Rows, on_threads
from .planes import Planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_shares, _slices = loops("jtgpu.screen.loops.shares"), loops("jtgpu.screen.loops.slices")

BLOCK, WORD = 1024, 64  # rows, of a block and of a word of `Sliced`
MOST_COLUMNS = 1 << 16


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
        is_plain = not (measure.has_holes or references.numbers.shape[1]) and references.codes.shape[1] < MOST_COLUMNS
        self._sliced = self._slice(ordered, counts[self._order]) if is_plain else None

    def _slice(self, rows: Rows, counts: NDArray[np.int64]) -> Sliced:
        n_blocks = -(-len(rows) // BLOCK)
        bits, first = self._planes.sliced(rows)
        padded = np.zeros((n_blocks * BLOCK, bits.shape[1]), np.bool_)
        padded[: len(rows)] = bits
        words = np.packbits(np.ascontiguousarray(padded.T), axis=1, bitorder="little").view(
            np.uint64
        )  # (P, blocks * 16)
        by_block = words.reshape(len(words), n_blocks, BLOCK // WORD).transpose(1, 0, 2)
        more = np.zeros(n_blocks * BLOCK, np.int64)
        more[: len(rows)] = counts
        n_columns = rows.codes.shape[1]
        return Sliced(np.ascontiguousarray(by_block).reshape(-1), first, more, len(rows), n_columns.bit_length())

    def ranking(self) -> Ranking:
        return Ranking.of_rows(np.argsort(-self._planes.rareness(self._references), kind="stable"))

    def similar(self) -> NDArray[np.int64]:
        return self._order

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        if self._sliced is None:
            return self._search_columns(rows, cuts, threads)
        is_known = self._planes.known(rows)
        if is_known.all():
            return self._search_slices(self._sliced, rows, cuts, threads)
        weights, pairs = np.empty(len(rows)), 0
        known, others = np.flatnonzero(is_known), np.flatnonzero(~is_known)
        if len(known):
            weights[known], pairs = self._search_slices(self._sliced, rows.take(known), cuts[known], threads)
        weights[others], more = self._search_columns(rows.take(others), cuts[others], threads)
        return weights, pairs + more

    def _starts(self, rows: Rows) -> NDArray[np.int64]:
        """For each row a reference that is probably near."""
        starts = np.searchsorted(self._sorted_places, self._planes.places(rows)).clip(max=len(self._order) - 1)
        return starts.astype(np.int64)

    def _search_slices(
        self, sliced: Sliced, rows: Rows, cuts: NDArray[np.float64], threads: int | None
    ) -> tuple[NDArray[np.float64], int]:
        """`search` of rows whose states the references have."""
        weights = np.empty(len(rows))
        masks = np.where(self._planes.sliced(rows)[0], ~np.uint64(0), np.uint64(0))
        encoded = SlicedRows(masks, self._starts(rows), rows.divisors(self._measure))

        def work(some: slice) -> int:
            part = SlicedRows._make(column[some] for column in encoded)
            return int(_slices.search(sliced, part, self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)

    def _search_columns(
        self, rows: Rows, cuts: NDArray[np.float64], threads: int | None
    ) -> tuple[NDArray[np.float64], int]:
        """`search` of any rows."""
        weights = np.empty(len(rows))
        planes, observed, unseen = map(np.ascontiguousarray, self._planes.words(rows))
        numbers, divisors = np.ascontiguousarray(rows.numbers), rows.divisors(self._measure)
        coded = CodedRows(planes, observed, unseen, numbers, self._starts(rows), divisors)

        def work(some: slice) -> int:
            part = CodedRows._make(column[some] for column in coded)
            return int(_shares.search(self._coded, part, self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)
