"""The columns of a table of any kind: frame, mapping, list of mappings, array or file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ....cases.options import CsvDialect
from ....cases.table_files import is_text_file, read_file
from ....errors import DataError, EvidenceError
from ....inference.tables import Table, column_values, open_table
from ....inference.tables.arrow import arrow
from ....inference.tables.columns import reject_repeated
from ....inference.tables.plain_cells import CategoricalColumn
from ....util.missing import na_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ColumnValues(NamedTuple):
    """A column as distinct values and indices."""

    indices: NDArray[np.int64]  # (N,) ndarray of int64: -1: missing
    values: list[Any]  # python values, of which some may not occur
    has_order: bool  # whether `values` are the categories of a categorical column, in the user's order


def read_columns(
    data: Any, states: Mapping[str, Any] | None = None, na_values: Any = None, dialect: CsvDialect | None = None
) -> tuple[list[str], list[ColumnValues], frozenset[str]]:
    """Names and columns of a table, and the words that mean a missing cell; columns of a CSV file in `states` are text.
    """
    # raises DataError: If it is not a table, two columns have the same name, or columns differ in length.
    # raises JtgpuError: If a file cannot be opened or read.
    is_file = isinstance(data, (str, Path))
    words = na_words(na_values, is_text=is_file and is_text_file(data, dialect))
    if is_file:
        data = read_file(data, dialect=dialect, na_values=na_values, states=states, keep_words=True)
    try:
        table = open_table(None, data)
        reject_repeated(table.names, table.names, "the table")
    except EvidenceError as error:
        raise DataError(str(error)) from None
    return list(table.names), [_column(name, table) for name in table.names], words


def _column(name: str, table: Table) -> ColumnValues:
    cells = table.column(name)
    found = column_values(name, cells, table.row_name)
    return ColumnValues(*found, isinstance(cells, CategoricalColumn) or _is_dictionary(cells))


def _is_dictionary(cells: Any) -> bool:
    """Whether it is an Arrow array of categories."""
    return type(cells).__module__.startswith("pyarrow") and arrow().types.is_dictionary(cells.type)
