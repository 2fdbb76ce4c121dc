"""Open a table of cases in memory, of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError, EvidenceError, JtgpuError, UnknownState
from ...model.discrete import DiscreteModel
from ...util.arrays import Floats
from ...util.missing import is_missing
from ...util.rows import BLOCK, BLOCKS, Mapper, extremes, thread_map
from .arrow import as_array, is_tensor, log_copy, to_double
from .columns import Encoder, evidence_columns
from .plain_table import NativeFrame, PlainTable, column_of_series

if TYPE_CHECKING:
    from numpy.typing import NDArray

Table = NativeFrame | PlainTable

_EXPECTED = (
    "cases must be a data frame (pandas, Polars, Arrow, ...), a mapping of columns such as {'xray': ['yes', None]}, a "
    "list of mappings such as [{'xray': 'yes'}], or an array or tensor with a column for each variable"
)


def is_frame(cases: Any) -> bool:
    """Whether this is a data frame and not an array or a mapping; imports nothing."""
    signs = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__", "collect")
    if isinstance(cases, (np.ndarray, Mapping)) or is_tensor(cases):
        return False
    return any(hasattr(cases, sign) for sign in signs)


def is_codes(cases: Any) -> bool:
    """Whether this is an array with rows of integers, none of which is masked."""
    is_plain = isinstance(cases, np.ndarray) and not isinstance(cases, np.ma.MaskedArray)
    return is_plain and cases.dtype.kind in "iu" and cases.ndim == 2


def open_table(model: DiscreteModel | None, cases: Any) -> Table:
    """Open a table of cases."""
    # model: Names the columns of an array, and those that a mapping gives by number. None: these have other names.
    # cases: data frame, mapping, sequence of mappings, array, or tensor: See `jtgpu.JunctionTree.posteriors_batch`
    # raises EvidenceError: If it is nothing of that kind, or its shape does not fit.
    # raises UnknownVariable: If a variable is given by a number that the model does not have.
    # raises JtgpuError: If a data frame is given, and narwhals or pyarrow is not installed.
    if isinstance(cases, Mapping):
        return PlainTable.of_mapping(model, cases)
    if isinstance(cases, np.ndarray):
        return PlainTable.of_array(model, cases)
    if is_tensor(cases):
        return PlainTable.of_array(model, as_array(cases, "cases"))
    if is_frame(cases):
        return _open_frame(cases)
    if isinstance(cases, (list, tuple)):
        if not cases or any(isinstance(row, Mapping) for row in cases):
            return PlainTable.of_rows(model, cases)
        return PlainTable.of_array(model, _as_array(cases))
    if hasattr(cases, "__array__"):
        return PlainTable.of_array(model, np.asarray(cases))
    raise EvidenceError(f"{_EXPECTED}; got {type(cases).__name__}")


def open_data(data: Any) -> Table:
    """A table that is no table of cases of a model; raises `DataError` if it is none."""
    try:
        return open_table(None, data)
    except EvidenceError as error:
        raise DataError(str(error)) from None


def cells_of(column: Any) -> list[Any]:
    """The cells of a table's column as objects of Python."""
    return [*column.to_pylist()] if hasattr(column, "to_pylist") else list(column)


def _open_frame(frame: Any) -> Table:
    try:
        return NativeFrame(frame)
    except EvidenceError:
        raise
    except JtgpuError:  # narwhals or pyarrow is not installed: pandas frames are read by columns
        if not type(frame).__module__.startswith("pandas") or not hasattr(frame, "columns"):
            raise
        columns = [frame.iloc[:, i] for i in range(len(frame.columns))]
        table = PlainTable([*map(str, frame.columns)], [*map(column_of_series, columns)], len(frame))
        table.index = frame.index
        return table


def _as_array(rows: list[Any] | tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Rows as an array; an object array keeps labels, numbers and None apart."""
    try:
        array = np.asarray(rows)
        array = array if array.dtype.kind in "iuf" else np.array(rows, object)
    except ValueError:  # rows of different lengths
        raise EvidenceError(f"{_EXPECTED}; got a list of {type(rows[0]).__name__}") from None
    if array.ndim != 2:
        raise EvidenceError(f"{_EXPECTED}; got a list of {type(rows[0]).__name__}")
    return array


# State numbers of a table of cases of any kind.

def read_states(model: DiscreteModel, cases: Any) -> tuple[NDArray[np.int32], Table | None]:
    """State numbers of B cases, and the table that they were read from."""
    # cases: data frame, mapping, list of mappings, array, or tensor: See `jtgpu.JunctionTree.posteriors_batch`
    # returns states: (B, V) ndarray of int32: -1: not observed. May be `cases` itself, or share the memory of a tensor.
    # returns table: None for an array of integers
    # raises UnknownVariable: If no column is a variable, or the name of a column is almost that of a variable.
    # raises UnknownState: If a cell is not a state; the message names row and column and suggests the closest state.
    # raises EvidenceError: If `cases` is not a table, a shape or dtype is wrong, or a column occurs twice.
    if is_tensor(cases):
        cases = as_array(cases, "cases")
        log_copy(cases, np.int32, "cases")
    if is_codes(cases) and cases.shape[1] == len(model):
        low, high = extremes(cases)
        if (low >= -1).all() and (high < model.cardinality).all():
            return np.ascontiguousarray(cases, np.int32), None
    table = open_table(model, cases)
    names = evidence_columns(model, table.names)
    variables = [model.index(name) for name in names]
    encoder = Encoder(model, variables, by_index=table.by_index)
    columns = [table.column(name) for name in names]
    states = np.empty((table.n, len(model)), np.int32)
    with thread_map(states.nbytes) as each:
        if _copy_numbers(encoder, variables, columns, states, each):
            return states, table
        encoded = encoder.encode(columns, table.n, each, first_only=True)
    for row, reason in encoded.rejected.items():
        raise UnknownState(at_row(table, row, reason))
    states[:] = -1
    states[:, variables] = encoded.codes.T
    return states, table


def _copy_numbers(
    encoder: Encoder, variables: list[int], columns: list[Any], states: NDArray[np.int32], each: Mapper
) -> bool:
    """Copy columns of numbers of states, all in one pass; False, and no more than a part, if there are others."""
    plain = all(isinstance(c, np.ndarray) and c.dtype.kind in "iu" for c in columns)
    if not plain or not all(x.numbers_are_states for x in encoder.lookups):
        return False
    most, least = [len(x.states) for x in encoder.lookups], max((x.least for x in encoder.lookups), default=0)
    absent = sorted({*range(states.shape[1])} - {*variables})

    def copy(first: int) -> bool:
        for at in range(first, min(first + BLOCKS * BLOCK, len(states)), BLOCK):
            some = slice(at, at + BLOCK)
            for v in absent:
                states[some, v] = -1
            for v, column, n in zip(variables, columns, most, strict=True):
                part = column[some]
                if part.min() < least or part.max() >= n:
                    return False
                states[some, v] = part
        return True

    return all(each(copy, range(0, len(states), BLOCKS * BLOCK)))


def at_row(table: Table | None, row: int, reason: str) -> str:
    """A message about a row: ``"row 17 (index 'p2'), column 'lung': ..."``."""
    name = f"row {row}" if table is None else table.row_name(row)
    return f"{name}{', ' if reason.startswith('column ') else ': '}{reason}"


# Columns of numbers of a table of any kind.

def as_numbers(column: Any) -> Floats | None:
    """A column of a table as numbers, NaN where they are missing; None if it holds something else."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iuf":
        return column.astype(np.float64)
    if hasattr(column, "type"):  # Arrow
        kind = str(column.type)
        if not kind.startswith(("int", "uint", "float", "double", "halffloat", "decimal", "null")):
            return None
        return np.asarray(to_double(column).fill_null(np.nan).to_numpy(), np.float64)
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    if not isinstance(cells, list) or (isinstance(column, np.ndarray) and column.dtype.kind in "Mm"):
        return None
    if not all(is_missing(c) or (isinstance(c, (int, float, np.number)) and not isinstance(c, bool)) for c in cells):
        return None
    return np.array([np.nan if is_missing(c) else c for c in cells], np.float64)


def reject_infinite(table: Table, name: str, x: Floats) -> None:
    """Raise for the first infinite cell of a column, if there is one."""
    infinite = np.isinf(x)
    if infinite.any():
        raise DataError(f"{table.row_name(int(np.argmax(infinite)))}, column {name!r}: the value is infinite (inf)")
