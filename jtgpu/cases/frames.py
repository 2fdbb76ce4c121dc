"""Data frames of any library in, the same kind out: pandas, Polars, Arrow, and what else narwhals knows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Unpack

import numpy as np

from ..errors import EvidenceError, ImpossibleEvidence, UnknownState
from ..inference.frame_options import FrameOptions
from ..inference.tree import JunctionTree
from ..model.network import DiscreteModel
from ..util import doors
from .arrow import arrow, narwhals
from .encode import MISSING, Categories, Encoder
from .solve import Question, Solver, Wanted, ask

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FrameOptions", "answer_frame", "frame_states", "is_frame"]

MOST_THREADS = 16  # that encode and copy a frame's columns beside a card


def is_frame(cases: Any) -> bool:
    """Is this a data frame, rather than an array or a mapping? Without importing anything."""
    signs = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__")
    return not isinstance(cases, (np.ndarray, Mapping)) and any(hasattr(cases, sign) for sign in signs)


class _Frame:
    """A frame of whatever library, by columns."""

    def __init__(self, native: Any):
        pa, nw = arrow(), narwhals()
        self.native, self._batch = native, isinstance(native, pa.RecordBatch)
        if self._batch:
            native = pa.Table.from_batches([native])
        try:
            self.frame = nw.from_native(native, eager_only=True)
        except TypeError:
            hint = "; collect() it first" if hasattr(native, "collect") else ""
            raise EvidenceError(
                "cases are a data frame (pandas, Polars, Arrow ...), not " + type(native).__name__ + hint
            ) from None
        except (ValueError, nw.exceptions.NarwhalsError) as error:  # columns of the same name
            raise EvidenceError(f"cases cannot be read: {error}") from None
        self.names = [str(c) for c in self.frame.columns]
        self.n = len(self.frame)

    def column(self, name: str) -> Any:
        """A column as `Encoder.encode` takes it."""
        pa = arrow()
        at = self.names.index(name)
        if self.frame.implementation.is_pandas():
            values = self.native.iloc[:, at].array
            if type(values).__name__ == "Categorical":  # nothing is copied, nor wrapped: there may be thousands
                return Categories(values.codes, values.categories.tolist())
        series = self.frame[:, at]
        native = series.to_native()
        if type(native).__module__.startswith("pandas") and hasattr(native, "cat"):
            return Categories(native.cat.codes.to_numpy(), native.cat.categories.tolist())
        if self.frame.implementation.is_pyarrow() and native.num_chunks == 1:
            return native.chunk(0)  # to_arrow() would copy it, by one thread
        try:
            return series.to_arrow()
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError):
            return series.to_list()  # labels, numbers and nulls mixed

    def place(self, row: int) -> str:
        """A row as its owner finds it."""
        index = getattr(self.native, "index", None)
        name = "" if index is None or type(index).__name__ == "RangeIndex" else f" (index {index[row]!r})"
        return f"row {row}{name}"

    def like(self, table: Any, kept: list[str], block: _Block | None = None) -> Any:
        """An Arrow table as a frame of this kind, with its index, behind some of its columns; `block`: the first
        columns, where the table has only the others."""
        nw = narwhals()
        kind = self.frame.implementation
        if kind.is_pyarrow():
            answer = nw.from_native(table, eager_only=True)
        elif kind.is_pandas():
            answer = nw.from_native(self._like_pandas(table, block), eager_only=True)
        else:
            answer = nw.from_arrow(table, backend=kind)
        if kept:
            front = self.frame.select([self.frame.columns[self.names.index(k)] for k in kept])
            answer = nw.concat([front, answer], how="horizontal")
        native = answer.to_native()
        return native.combine_chunks().to_batches()[0] if self._batch and self.n else native


    def _like_pandas(self, table: Any, block: _Block | None) -> Any:
        more = table.to_pandas()
        if block is None:
            more.index = self.native.index
            return more
        pandas = self.frame.implementation.to_native_namespace()
        made = pandas.DataFrame(block.values.T, columns=block.names, index=self.native.index, copy=False)
        for name in table.column_names:
            made[name] = more[name].array
        return made


class _Block(NamedTuple):
    """Columns of probabilities in one piece, which pandas takes as it is."""

    names: list[str]
    values: NDArray[np.float64]  # a row a column


def answer_frame(
    tree: JunctionTree,
    frame: Any,
    *,
    missing: Iterable[str] = MISSING,
    do: Mapping[Any, Any] | None = None,
    cluster: Any = None,
    **wanted: Unpack[Wanted],
) -> Any:
    """Answer every row of a frame; see `jtgpu.JunctionTree.predict_proba`."""
    if type(frame).__module__.startswith("ray.data"):
        return doors.cluster().answer_dataset(tree, frame, missing=missing, do=do, cluster=cluster or "auto", **wanted)
    cases = _Frame(frame)
    model = tree.model
    question, kept = ask(model, cases.names, source="the frame", **wanted)
    question.schema(model, [(k, arrow().null()) for k in kept])  # refuses names that stand twice, before the work
    encoder = Encoder(model, question.evidence, missing)
    columns = [cases.column(model.variables[v]) for v in question.evidence]
    if cluster is not None:
        with doors.cluster().solver_on(cluster, tree, question, do) as solver:
            return cases.like(_answer_rows(cases, solver, encoder, columns, 0, cases.n)[0], kept)
    solver = Solver(tree, question, do)
    if solver.by_columns:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS * tree.max_concurrent_tables), "jtgpu-frame") as pool:
            solver.each = pool.map
            table, block = _answer_rows(cases, solver, encoder, columns, 0, cases.n)
        return cases.like(table, kept, block)
    step = question.rows_at_once(model)
    tables = []
    for first in range(0, max(cases.n, 1), step):
        last = min(first + step, cases.n)
        tables.append(_answer_rows(cases, solver, encoder, [c[first:last] for c in columns], first, last)[0])
    return cases.like(arrow().concat_tables(tables), kept)


def _answer_rows(
    cases: _Frame, solver: Solver, encoder: Encoder, columns: list[Any], first: int, last: int
) -> tuple[Any, _Block | None]:
    """The answers as an Arrow table; for pandas its probabilities apart where they are one piece and none is null."""
    encoded = encoder.encode(columns, last - first, solver.each)
    if encoded.refused and not solver.question.flag:
        row, why = next(iter(encoded.refused.items()))
        _refuse(f"{cases.place(first + row)}, {why}")
    answers = solver.solve(encoded.codes)
    flagged = encoded.refused | {
        row: why for row, why in solver.impossible_rows(answers, encoded).items() if row not in encoded.refused
    }
    if flagged and not solver.question.flag:
        row, why = next(iter(flagged.items()))
        raise ImpossibleEvidence(f"{cases.place(first + row)}: {why}")
    if solver.by_columns:
        answers = answers.spread_out(solver.each)
    whole = solver.by_columns and not flagged and not solver.question.labels
    if not whole or not cases.frame.implementation.is_pandas():
        return solver.table(answers, encoded, flagged), None
    values = answers.posterior.T
    block = _Block(solver.question.columns(solver.model)[: len(values)], values)
    return solver.table(answers, encoded, flagged, first=len(values)), block


def frame_states(model: DiscreteModel, frame: Any) -> NDArray[np.int32]:
    """The columns of a frame that are variables, as `jtgpu.JunctionTree.posteriors_batch` takes them: (n, V) int32.

    Raises
    ------
    UnknownVariable, UnknownState, EvidenceError
        See `answer_frame`.
    """
    cases = _Frame(frame)
    question: Question = ask(model, cases.names, source="the frame")[0]
    columns = [cases.column(model.variables[v]) for v in question.evidence]
    encoded = Encoder(model, question.evidence).encode(columns, cases.n)
    for row, why in encoded.refused.items():
        _refuse(f"{cases.place(row)}, {why}")
    states = np.full((cases.n, len(model)), -1, np.int32)
    states[:, list(question.evidence)] = encoded.codes.T
    return states


def _refuse(why: str) -> NoReturn:
    raise UnknownState(why)
