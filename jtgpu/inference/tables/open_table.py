"""Open a table of cases in memory, of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import EvidenceError, JtgpuError
from ...model.discrete import DiscreteModel
from .native_frame import NativeFrame, column_of_series
from .plain_table import PlainTable
from .tensors import as_array, is_tensor

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
        return _open_frame(model, cases)
    if isinstance(cases, (list, tuple)):
        if not cases or any(isinstance(row, Mapping) for row in cases):
            return PlainTable.of_rows(model, cases)
        return PlainTable.of_array(model, _as_array(cases))
    if hasattr(cases, "__array__"):
        return PlainTable.of_array(model, np.asarray(cases))
    raise EvidenceError(f"{_EXPECTED}; got {type(cases).__name__}")


def _open_frame(model: DiscreteModel | None, frame: Any) -> Table:
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
        found = np.asarray(rows)
        found = found if found.dtype.kind in "iuf" else np.array(rows, object)
    except ValueError:  # rows of different lengths
        raise EvidenceError(f"{_EXPECTED}; got a list of {type(rows[0]).__name__}") from None
    if found.ndim != 2:
        raise EvidenceError(f"{_EXPECTED}; got a list of {type(rows[0]).__name__}")
    return found
