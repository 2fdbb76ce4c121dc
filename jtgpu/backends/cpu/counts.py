"""Expected counts: the distributions of all families, summed over a table of cases.

Rows are grouped as for posteriors (see `batch`). Every task adds its rows, in their order, to counts of its own, and
these are added in the order of the tasks: the bits do not depend on the number of threads.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ImpossibleEvidence
from ...util.loops import loops
from ..table import CountSums, Table
from .batch import CaseTable, RowGroup, group_rows, lane_memory, run_groups
from .records import CountedCells
from .runner import Runner, soft_of, with_sets
from .workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_counts = loops("jtgpu.backends.cpu.loops.lane_counts")


class _InOrder:
    """A sum of arrays that are added in the order of their numbers, whenever they come."""

    def __init__(self, cells: int):
        self.total = np.zeros(cells)
        self._next = 0
        self._waiting: dict[int, NDArray[np.float64]] = {}
        self._lock = threading.Lock()

    def add(self, number: int, counts: NDArray[np.float64]) -> None:
        """Add array `number`; numbers are 0, 1, 2, ..."""
        with self._lock:
            self._waiting[number] = counts
            while self._next in self._waiting:
                self.total += self._waiting.pop(self._next)
                self._next += 1


def _count_row(table: CaseTable, space: Workspace, row: int, out: CountedCells) -> None:
    """Add one row with a program of its own."""
    case = table.case(row)
    cached = table.get(case.state >= 0, soft_of(case))
    table.impossible[row] = False
    try:
        table.log_evidence[row] = table.runner.run(space, cached, case) - table.log_scale[row]
    except ImpossibleEvidence:
        table.log_evidence[row], table.impossible[row] = -np.inf, True
        return
    states = with_sets(case.state, table.runner.program.n_sets)[table.runner.by_rank]
    _counts.add_counts(space.arena, cached.records, states, float(out.weights[row]), out.cells, space.block)


def count_cases(runner: Runner, asked: Table[Any]) -> CountSums:
    """Expected counts of a table, by a runner of families."""
    states, weights = asked.feed.rows(), asked.weights_or_ones
    table = CaseTable(runner, states, asked.likelihood, None)
    groups = group_rows(table)
    numbers: dict[tuple[int, int], int] = {}  # of each task, in the order in which tasks are started
    for group in sorted(groups, key=lambda g: -len(g.rows)):
        for first, _ in group.tasks():
            numbers[id(group), first] = len(numbers)
    sums = _InOrder(table.model.numbers.factor_cells)

    def work(group: RowGroup, first: int, last: int) -> None:
        cells = np.zeros(len(sums.total))
        space = runner.acquire(table.model)
        try:
            cached = group.program(table)
            if cached is None:
                for row in group.rows[first:last].tolist():
                    _count_row(table, space, row, CountedCells(cells, weights))
            else:
                _counts.count_lanes(
                    lane_memory(space, table, cached, group.lanes), cached.records, table.cases(group.rows),
                    CountedCells(cells, weights), runner.limit, first, last,
                )  # fmt: skip
                for row in table.lost_rows(group.rows[first:last]):
                    _count_row(table, space, row, CountedCells(cells, weights))
        finally:
            runner.release(space)
        sums.add(numbers[id(group), first], cells)

    run_groups(table, groups, work)
    families = [np.array(view, order="C") for view in table.model.numbers.factor_views(sums.total)]
    return CountSums.of(families, table.log_evidence + table.log_scale, weights)
