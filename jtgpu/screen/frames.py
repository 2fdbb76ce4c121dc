"""Tables of the kind of the cases: all rows with more columns, or some rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inference.results.frames import make_frame, unused_name
from ..inference.tables import Table
from ..inference.tables.arrow import arrow
from ..inference.tables.plain_cells import CategoricalColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_array_like(cases: Any) -> bool:
    """Whether cases are an array without names of columns, or rows that make one."""
    if isinstance(cases, np.ndarray):
        return not cases.dtype.names
    is_rows = isinstance(cases, (list, tuple)) and not any(isinstance(row, Mapping) for row in cases)
    return is_rows or (hasattr(cases, "__array__") and not hasattr(cases, "columns") and not hasattr(cases, "schema"))


def like_cases(cases: Any, table: Table, more: Mapping[str, Any]) -> Any:
    """All rows, with more columns."""
    return _table(cases, table, {name: table.carried(name) for name in table.names}, more, None)


def take_rows(cases: Any, table: Table, index: NDArray[np.int64], more: Mapping[str, Any]) -> Any:
    """Some rows, with more columns; of a pandas frame with their index."""
    columns = {name: _take(table.carried(name), index) for name in table.names}
    return _table(cases, table, columns, more, index)


def _table(
    cases: Any, table: Table, columns: dict[str, Any], more: Mapping[str, Any], index: NDArray[np.int64] | None
) -> Any:
    for name, column in more.items():
        columns[unused_name(name, columns)] = column
    if table.library is None and table.index is None:
        if isinstance(cases, (list, tuple)) and not as_array_like(cases):
            cells = [c.tolist() if isinstance(c, np.ndarray) else list(c) for c in columns.values()]
            return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]
        return columns
    found = make_frame(columns, table.library)
    if table.index is not None:
        found.index = table.index if index is None else table.index[index]
    return found


def _take(column: Any, index: NDArray[np.int64]) -> Any:
    """Some cells of a column."""
    if isinstance(column, CategoricalColumn):
        return CategoricalColumn(column.indices[index], column.values)
    if isinstance(column, np.ndarray):
        return column[index]
    if isinstance(column, list):
        return [column[i] for i in index.tolist()]
    if type(column).__module__.partition(".")[0] == "pyarrow":
        return column.take(arrow().array(index))
    return column.take(index)  # of pandas
