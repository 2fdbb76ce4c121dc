"""Answers for tables of cases in memory, as tables of the same kind."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..inference.tables import Table, at_row, open_table, read_states
from ..inference.tables.arrow import arrow
from ..inference.tables.plain_table import Block
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..util import doors
from .answer_table import answer_table
from .options import TableKeywords, TableOptions
from .query import resolve_query
from .solver import Progress, RowError, Solver, progress_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_THREADS = 16  # that encode and copy the columns of a frame for one GPU


def answer_frame(
    tree: JunctionTree, frame: Any, *, cluster: Any = None, progress: bool | Progress | None = None,
    **keywords: Unpack[TableKeywords],
) -> Any:  # fmt: skip
    """Answer every row of a table; see `jtgpu.JunctionTree.predict_proba`."""
    if type(frame).__module__.startswith("ray.data"):
        return doors.cluster().answer_dataset(tree, frame, cluster=cluster or "auto", **keywords)
    options = TableOptions(**keywords)
    model = tree.model
    cases = open_table(model, frame)
    query, kept = resolve_query(model, cases.names, options)
    query.schema(model, [(k, arrow().null()) for k in kept])  # rejects duplicate names before the computation
    columns = [cases.column(model.variables[v]) for v in query.evidence]
    with progress_of(progress) as report:
        if cluster is not None:
            with doors.cluster().solver_on(cluster, tree, query, options, by_index=cases.by_index) as solver:
                solver.report = report
                return cases.like(_answer_rows(cases, solver, columns, 0, cases.n), kept)
        solver = Solver(tree, query, options, by_index=cases.by_index)
        if solver.by_columns:
            threads = min(os.cpu_count() or 1, MAX_THREADS * tree.max_concurrent_tables)
            with ThreadPoolExecutor(threads, "jtgpu-frame") as pool:
                solver.each = pool.map
                answered = _answer_columns(cases, solver, columns, kept)
            if report is not None:
                report(cases.n, cases.n, cases.n)
            return cases.like(*answered)
        step = query.rows_per_call(model)
        tables = []
        for first in range(0, max(cases.n, 1), step):
            last = min(first + step, cases.n)
            tables.append(_answer_rows(cases, solver, [c[first:last] for c in columns], first, last))
            if report is not None:
                report(last, last, cases.n)
        return cases.like(arrow().concat_tables(tables), kept)


def _answer_rows(cases: Table, solver: Solver, columns: list[Any], first: int, last: int) -> Any:
    """The answers of some rows as an Arrow table."""
    return answer_table(solver, solver.answer(columns, last - first, _error_of(cases, first)))


def _error_of(cases: Table, first: int) -> RowError:
    """Makes the error for a row, counted from a first one."""
    return lambda row, reason, kind: kind(at_row(cases, first + row, reason))


def _answer_columns(
    cases: Table, solver: Solver, columns: list[Any], kept: list[str]
) -> tuple[Any, list[str], Block | None]:
    """The answers of all rows from a backend that computes columns, as `NativeFrame.like` takes them.

    For pandas, the probabilities are a separate block if none of them is null.
    """
    rows = solver.answer(columns, cases.n, _error_of(cases, 0))
    if rows.flagged or solver.query.labels or not cases.is_pandas:
        return answer_table(solver, rows), kept, None
    values = rows.answers.posterior.T
    block = Block(solver.query.columns(solver.model)[: len(values)], values)
    return answer_table(solver, rows, probabilities=False), kept, block


def frame_states(model: DiscreteModel, frame: Any) -> NDArray[np.int32]:
    """The columns of a table that are variables, as state numbers: (n, V) int32, -1 if not observed.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError
        See `answer_frame`.
    """
    return read_states(model, frame)[0]
