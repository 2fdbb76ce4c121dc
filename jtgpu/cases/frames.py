"""Answers for data frames of any library, as frames of the same kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..errors import UnknownState
from ..inference.frame_options import FrameOptions
from ..inference.tree import JunctionTree
from ..model.network import DiscreteModel
from ..util import doors
from .answer_table import answer_table
from .arrow import arrow
from .encoder import Encoder
from .native_frame import Block, NativeFrame
from .options import TableKeywords, TableOptions
from .query import resolve_query
from .solver import RowError, Solver

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FrameOptions", "answer_frame", "frame_states", "is_frame"]

MAX_THREADS = 16  # that encode and copy the columns of a frame for one GPU


def is_frame(cases: Any) -> bool:
    """Whether this is a data frame and not an array or a mapping; imports nothing."""
    signs = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__")
    return not isinstance(cases, (np.ndarray, Mapping)) and any(hasattr(cases, sign) for sign in signs)


def answer_frame(tree: JunctionTree, frame: Any, *, cluster: Any = None, **keywords: Unpack[TableKeywords]) -> Any:
    """Answer every row of a frame; see `jtgpu.JunctionTree.predict_proba`."""
    if type(frame).__module__.startswith("ray.data"):
        return doors.cluster().answer_dataset(tree, frame, cluster=cluster or "auto", **keywords)
    options = TableOptions(**keywords)
    cases, model = NativeFrame(frame), tree.model
    query, kept = resolve_query(model, cases.names, options, source="the frame")
    query.schema(model, [(k, arrow().null()) for k in kept])  # rejects duplicate names before the computation
    columns = [cases.column(model.variables[v]) for v in query.evidence]
    if cluster is not None:
        with doors.cluster().solver_on(cluster, tree, query, options) as solver:
            return cases.like(_answer_rows(cases, solver, columns, 0, cases.n), kept)
    solver = Solver(tree, query, options)
    if solver.by_columns:
        threads = min(os.cpu_count() or 1, MAX_THREADS * tree.max_concurrent_tables)
        with ThreadPoolExecutor(threads, "jtgpu-frame") as pool:
            solver.each = pool.map
            return cases.like(*_answer_columns(cases, solver, columns, kept))
    step = query.rows_per_call(model)
    tables = []
    for first in range(0, max(cases.n, 1), step):
        last = min(first + step, cases.n)
        tables.append(_answer_rows(cases, solver, [c[first:last] for c in columns], first, last))
    return cases.like(arrow().concat_tables(tables), kept)


def _answer_rows(cases: NativeFrame, solver: Solver, columns: list[Any], first: int, last: int) -> Any:
    """The answers of some rows as an Arrow table."""
    return answer_table(solver, solver.answer(columns, last - first, _error_of(cases, first)))


def _error_of(cases: NativeFrame, first: int) -> RowError:
    """Makes the error for a row, counted from a first one."""
    return lambda row, reason, kind: kind(f"{cases.row_name(first + row)}: {reason}")


def _answer_columns(
    cases: NativeFrame, solver: Solver, columns: list[Any], kept: list[str]
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
    """The columns of a frame that are variables, as `jtgpu.JunctionTree.posteriors_batch` takes them: (n, V) int32.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError
        See `answer_frame`.
    """
    cases = NativeFrame(frame)
    query, _ = resolve_query(model, cases.names, TableOptions(), source="the frame")
    columns = [cases.column(model.variables[v]) for v in query.evidence]
    encoded = Encoder(model, query.evidence).encode(columns, cases.n)
    for row, reason in encoded.rejected.items():
        raise UnknownState(f"{cases.row_name(row)}: {reason}")
    states = np.full((cases.n, len(model)), -1, np.int32)
    states[:, list(query.evidence)] = encoded.codes.T
    return states
