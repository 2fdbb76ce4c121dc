"""Results as data frames of pandas, Polars, Arrow and other libraries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ...columns import Table
from ...columns.arrow import arrow, narwhals
from ...columns.column import Column
from ...errors import JtgpuError
from ...util.arguments import text
from ...util.text_table import LazySequence


def make_frame(columns: Mapping[str, object], backend: str | None = None, *, cases: Table | None = None) -> Any:
    """A data frame of some columns."""
    # columns: mapping of str to columns: Arrays (cells that are masked are null), lists, lazy sequences, or columns of
    #     `cases`
    # backend: ``"pandas"``, ``"polars"``, ``"pyarrow"``, or another library that narwhals supports. Default: the
    #     library of `cases`; pandas if they are not a data frame.
    # cases: The cases of the rows. If these and the result are pandas frames, the result has the index of the cases.
    # raises JtgpuError: If a package is not installed or `backend` is not one; the message says what to install.
    if backend is not None:
        text("backend", backend)
    library = backend or (None if cases is None else cases.library) or "pandas"
    if library == "pandas":
        return _pandas().DataFrame(
            {name: _for_pandas(column) for name, column in columns.items()},
            index=None if cases is None else cases.index,
            copy=False,
        )
    pa = arrow()
    table = pa.table({name: _for_arrow(pa, column) for name, column in columns.items()})
    if library == "pyarrow":
        return table
    lists = {k: c.cells for k, c in columns.items() if isinstance(c, Column) and c.declared}
    enums = {k: cells for k, cells in lists.items() if all(isinstance(x, str) for x in cells)}
    try:
        frame = narwhals().from_arrow(table, backend=library).to_native()
    except (ImportError, ValueError, TypeError, AttributeError) as error:
        raise JtgpuError(
            f"there is no frame of {library!r}: {error}; use backend='pandas', 'polars' or 'pyarrow'"
        ) from None
    if library != "polars" or not enums:
        return frame
    import polars

    return frame.cast({k: polars.Enum(cells) for k, cells in enums.items()})  # only these keep their order


def table_like(cases: object, table: Table, columns: Mapping[str, Any], index: object = None) -> Any:
    """Columns as a table of the kind of some cases: a frame of their library, a list of mappings, or a mapping."""
    # table: of the cases; index: of the pandas frame
    if table.library is None and table.index is None:
        if isinstance(cases, (list, tuple)) and any(isinstance(row, Mapping) for row in cases):
            cells = [c.tolist() if isinstance(c, np.ndarray) else list(c) for c in columns.values()]
            return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]
        return dict(columns)
    frame = make_frame(columns, table.library)
    if index is not None:
        frame.index = index
    return frame


def unused_name(name: str, taken: Collection[str]) -> str:
    """`name`, with underscores appended until it is not among the names that are taken."""
    while name in taken:
        name += "_"
    return name


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise JtgpuError(
            "pandas is not installed: pip install pandas, or pass backend='polars' or backend='pyarrow'"
        ) from None
    return pandas


def _for_pandas(column: object) -> Any:
    if isinstance(column, LazySequence):
        return column.whole()
    if isinstance(column, Column):
        return _pandas().Categorical.from_codes(column.index, column.cells)
    if isinstance(column, np.ma.MaskedArray):
        return column.filled(np.nan)
    return column.to_pandas().array if hasattr(column, "to_pandas") else column


def _for_arrow(pa: Any, column: Any) -> Any:
    column = column.whole() if isinstance(column, LazySequence) else column
    if isinstance(column, Column):
        if column.declared:  # with its order, as a category of pandas
            return pa.DictionaryArray.from_arrays(
                pa.array(column.index, pa.int32(), mask=column.index < 0), _cells_for_arrow(pa, column.cells)
            )
        return _cells_for_arrow(pa, column.tolist())
    if isinstance(column, np.ma.MaskedArray):
        return pa.array(column.data, mask=np.ma.getmaskarray(column))
    if isinstance(column, np.ndarray) and column.dtype == object:
        return _cells_for_arrow(pa, column.tolist())
    if isinstance(column, list):
        return _cells_for_arrow(pa, column)
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)


def _cells_for_arrow(pa: Any, cells: Sequence[object]) -> Any:
    """An Arrow array of cells; whole numbers of more than 64 bits, which Arrow does not have, are decimals."""
    try:
        return pa.array(cells)
    except OverflowError:
        return pa.array([Decimal(x) if isinstance(x, int) else x for x in cells])
