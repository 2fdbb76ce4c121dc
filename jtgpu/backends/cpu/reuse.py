"""Tables that overwrite what is read no more, and contractions in an order in which large tables are soon read.

The tables of a wide network exceed the caches: written once and read much later, each passes memory twice. Where only
the answers of a run are read, contractions run depth first, and a large table takes the cells of the one that was read
for the last time most recently; a product cell by cell replaces its input. Every contraction does what it did before,
so the bits are the same.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .records import (
    ANSWER,
    FIRST_LOOP,
    INPUTS,
    LISTED,
    OUT,
    OUT_EXP,
    PACKED,
    REDUCED,
    ROW_A,
    ROW_B,
    ROW_OUT,
    SIZE,
    A,
    B,
    Records,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LARGE = 1 << 13  # cells of a table that may move
LEAST = 1 << 18  # cells of all of them from which it pays: 2 MiB


class _Graph:
    """Contractions and the tables that they write and read, by the places of their exponents."""

    def __init__(self, records: Records):
        r, at = records.records, records.record_ptr[:-1]
        self.out: list[int] = r[at + OUT_EXP].tolist()
        self.cell, self.size = r[at + OUT].tolist(), (-(-r[at + SIZE] // 8) * 8).tolist()
        inputs, listed, answer = r[at + INPUTS].tolist(), r[at + LISTED].tolist(), r[at + ANSWER].tolist()
        self.fields = [[A, B, *range(FIRST_LOOP, FIRST_LOOP + 3 * (k - 2), 3)] for k in inputs]
        self.ins = [
            r[np.array(fields) + (first + 1)].tolist() for fields, first in zip(self.fields, at.tolist(), strict=True)
        ]
        maker = {t: i for i, t in enumerate(self.out)}
        self.readers: list[list[int]] = [[] for _ in self.out]  # of each contraction's table
        self.needs = [sorted({maker[t] for t in ins if t in maker}) for ins in self.ins]
        for i, needs in enumerate(self.needs):
            for j in needs:
                self.readers[j].append(i)
        fixed = {*records.roots[:, 1].tolist(), *records.wanted[:, 1].tolist()}
        self.moves = [
            size >= LARGE and answer[i] < 0 and listed[i] == 0 and self.out[i] not in fixed and bool(self.readers[i])
            for i, size in enumerate(self.size)
        ]
        for i, needs in enumerate(self.needs):
            if listed[i]:  # its terms are cells
                for j in needs:
                    self.moves[j] = False

        parts = pairwise(records.record_ptr.tolist())
        self.same = [self._same(r[first:end], i) for i, (first, end) in enumerate(parts)]

    def _same(self, record: NDArray[np.int64], i: int) -> int:
        """The contraction whose table this one multiplies cell by cell, and may replace; -1: none."""
        if not self.moves[i] or len(self.fields[i]) != 2 or record[PACKED] or record[REDUCED] or record[ROW_OUT] != 1:
            return -1
        strides = np.vstack([record[FIRST_LOOP:].reshape(-1, 4)[:, 1:], record[[ROW_OUT, ROW_A, ROW_B]]])
        for t, x in enumerate(self.ins[i]):
            j = next((j for j in self.needs[i] if self.out[j] == x), -1)
            if j >= 0 and self.moves[j] and (strides[:, 0] == strides[:, 1 + t]).all():
                return j
        return -1

    def order(self) -> list[int]:
        """The contractions, those first that read the latest large table and free as many cells as they take."""
        waiting, left = [len(needs) for needs in self.needs], [len(readers) for readers in self.readers]
        order: list[int] = []
        when: dict[int, int] = {}

        def key(i: int) -> tuple[bool, int, int, int]:
            read = [j for j in self.needs[i] if self.moves[j]]
            grows = self.moves[i] * self.size[i] - sum(self.size[j] for j in read if left[j] == 1)
            return grows > 0, -max((when[j] for j in read), default=-1), grows, i

        ready = [i for i, n in enumerate(waiting) if n == 0]
        large, small = [i for i in ready if self.moves[i]], [i for i in ready if not self.moves[i]]
        while small or large:
            best = min(map(key, large), default=(True, 0, 0, -1))
            if small and best[0]:
                i = heapq.heappop(small)
            else:
                i = best[3]
                large.remove(i)
            when[i] = len(order)
            order.append(i)
            for j in self.needs[i]:
                left[j] -= 1
            for j in self.readers[i]:
                waiting[j] -= 1
                if waiting[j] == 0 and (self.moves[j] or any(self.moves[k] for k in self.needs[j])):
                    large.append(j)
                elif waiting[j] == 0:
                    heapq.heappush(small, j)
        return order

    def places(self, order: Sequence[int], end: int) -> tuple[list[int], int]:
        """The first cell of each table, and the cells of the arena, `end` at least."""
        cell, left = list(self.cell), [len(readers) for readers in self.readers]
        unused: list[tuple[int, int]] = []  # (first cell, end) where large tables were before
        for i in sorted((i for i, moves in enumerate(self.moves) if moves), key=self.cell.__getitem__):
            _free(unused, self.cell[i], self.cell[i] + self.size[i])
        free: list[tuple[int, int]] = []  # the last one was read last
        for i in order:
            same = self.same[i]
            if same >= 0 and left[same] == 1:
                cell[i], left[same] = cell[same], 0
            elif self.moves[i]:
                cell[i] = _take(free, self.size[i])
                if cell[i] < 0:
                    cell[i] = _take(unused, self.size[i])
                if cell[i] < 0:
                    cell[i], end = end, end + self.size[i]
            for j in self.needs[i]:
                left[j] -= 1
                if left[j] == 0 and self.moves[j]:
                    _free(free, cell[j], cell[j] + self.size[j])
        return cell, end


def _take(parts: list[tuple[int, int]], size: int) -> int:
    """Take so many cells from the last part that is large enough; -1 if there is none."""
    for p in range(len(parts) - 1, -1, -1):
        first, end = parts[p]
        if end - first >= size:
            parts[p : p + 1] = [(first + size, end)] if end - first > size else []
            return first
    return -1


def _free(parts: list[tuple[int, int]], first: int, end: int) -> None:
    """Append a part, joined with its neighbours."""
    for part in [part for part in parts if part[0] == end or part[1] == first]:
        parts.remove(part)
        first, end = min(first, part[0]), max(end, part[1])
    parts.append((first, end))


def reuse_cells(records: Records) -> Records:
    """A program that leaves only answers and roots; the same one where that does not pay."""
    graph = _Graph(records)
    if sum(size for size, moves in zip(graph.size, graph.moves, strict=True) if moves) < LEAST:
        return records
    order = graph.order()
    cell, cells = graph.places(order, records.cells)
    if cells > records.cells:  # what is free is in pieces
        return records
    ptr, maker = records.record_ptr.tolist(), {t: i for i, t in enumerate(graph.out)}
    parts = []
    for i in order:
        record = records.records[ptr[i] : ptr[i + 1]].copy()
        record[OUT] = cell[i]
        for field, t in zip(graph.fields[i], graph.ins[i], strict=True):
            if t in maker:
                record[field] = cell[maker[t]]
        parts.append(record)
    return records._replace(records=np.concatenate(parts), record_ptr=np.cumsum([0, *map(len, parts)]))
