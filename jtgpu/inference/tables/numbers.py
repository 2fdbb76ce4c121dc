"""Columns of numbers of a table of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ...util.missing import is_missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .open_table import Table


def as_numbers(column: Any) -> NDArray[np.float64] | None:
    """A column of a table as numbers, NaN where they are missing; None if it holds something else."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iuf":
        return column.astype(np.float64)
    if hasattr(column, "type"):  # Arrow
        kind = str(column.type)
        if not kind.startswith(("int", "uint", "float", "double", "halffloat", "decimal", "null")):
            return None
        column = column.cast("double")
        return np.asarray(column.fill_null(np.nan).to_numpy(), np.float64)
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    if not isinstance(cells, list) or (isinstance(column, np.ndarray) and column.dtype.kind in "Mm"):
        return None
    if not all(is_missing(c) or (isinstance(c, (int, float, np.number)) and not isinstance(c, bool)) for c in cells):
        return None
    return np.array([np.nan if is_missing(c) else c for c in cells], np.float64)


def reject_infinite(table: Table, name: str, x: NDArray[np.float64]) -> None:
    """Raise for the first infinite cell of a column, if there is one."""
    infinite = np.isinf(x)
    if infinite.any():
        raise DataError(f"{table.row_name(int(np.argmax(infinite)))}, column {name!r}: the value is infinite (inf)")
