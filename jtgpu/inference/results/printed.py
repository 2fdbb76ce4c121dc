"""`Printed`: how results print, the same for all of them.

``print(result)`` and the prompt show one line that says what the result is, and its numbers as an aligned table, as
much as fits a page; `jtgpu.util.text_table` sets the limits. ``to_frame()`` has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, overload

import numpy as np

from ...columns import Table
from ...columns.arrow import arrow, narwhals
from ...columns.column import Column
from ...errors import JtgpuError
from ...util import late_imports
from ...util.arguments import check_keywords_of, text
from ...util.text_table import abridged, display_width, format_cell, format_table, justified, shown_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas
    import polars
    import pyarrow
    from numpy.typing import NDArray

HINT = "to_frame() has all of them"
MAX_STATE = 16  # columns of text that the name of a state takes next to its number
MAX_STATES = 30  # states of a variable that may fit into a line


class LazySequence(Sequence[Any]):
    """A column whose cells are computed when they are read."""
    # n: Number of cells
    # cell: The cell of a row

    def __init__(self, n: int, cell: Callable[[int], Any]):
        self._n, self._cell = n, cell

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self._cell(i) for i in range(*row.indices(self._n))]
        return self._cell(row)

    def __iter__(self) -> Iterator[Any]:
        return map(self._cell, range(self._n))


class Printed:
    """A result that prints as a title and a table."""

    __slots__ = ()

    def _title(self) -> str:
        """The kind of result, in one line."""
        raise NotImplementedError

    def _table(self) -> tuple[list[str], list[Any], int]:
        """Names and columns of the table, and how many columns are always shown."""
        raise NotImplementedError

    def __str__(self) -> str:
        names, columns, fixed = self._table()
        table = format_table(names, columns, fixed=fixed, hint=HINT) if columns else ""
        return f"{self._title()}\n{table}" if table else self._title()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return late_imports.html(self)


class ByTarget(Printed, Mapping[str, Any]):
    """Results of a query by the names of its targets."""

    def __init__(self, posteriors: Mapping[str, Any]):
        self._posteriors = dict(posteriors)

    def __getitem__(self, variable: str) -> Any:  # the caller knows the kind of a variable
        if variable not in self._posteriors:
            raise KeyError(f"{variable!r} is not among the targets of this query; add it to targets=")
        return self._posteriors[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self._posteriors)

    def __len__(self) -> int:
        return len(self._posteriors)


def row_labels(n: int, cases: Table | None) -> Sequence[Any]:
    """Names of the rows of a table of n cases: the index of a pandas frame, or their numbers."""
    if cases is None or cases.index is None:
        return range(n)
    index = cases.index
    return LazySequence(n, lambda i: str(index[i]))


def state_columns(
    n: int, states: Callable[[int], Sequence[str]], numbers: Callable[[int], NDArray[np.float64]]
) -> list[Sequence[Any]]:
    """Columns of a table whose rows have different states: a cell holds the name of a state and its number."""
    # n: Number of rows
    # states, numbers: Names of the states of a row, and their numbers. Only rows that are shown are read.
    rows = {i: (states(i), numbers(i)) for i in shown_rows(n)}
    columns: list[Sequence[Any]] = []
    for k in range(min(max((len(names) for names, _ in rows.values()), default=0), MAX_STATES)):
        having = [i for i, (names, _) in rows.items() if k < len(names)]
        labels = [abridged(rows[i][0][k], MAX_STATE) for i in having]
        width = max(map(display_width, labels))
        cells = {
            i: f"{justified(label, width)} {format_cell(rows[i][1][k])}"
            for i, label in zip(having, labels, strict=True)
        }
        columns.append(LazySequence(n, cells.get))
    return columns


# Results as data frames of pandas, Polars, Arrow and other libraries.

class _ToFrame(Protocol):
    @overload
    def __call__(self, backend: Literal["pandas"] | None = None) -> pandas.DataFrame: ...
    @overload
    def __call__(self, backend: Literal["polars"]) -> polars.DataFrame: ...
    @overload
    def __call__(self, backend: Literal["pyarrow"]) -> pyarrow.Table: ...
    @overload
    def __call__(self, backend: str) -> Any: ...


class _ToFrameMethod(Protocol):
    def __get__(self, instance: object, owner: type | None = None) -> _ToFrame: ...


def to_frame_method(method: Callable[..., Any]) -> _ToFrameMethod:
    """Type a method ``to_frame(backend=None)`` by the library that is named; pandas is the default."""
    return cast(_ToFrameMethod, check_keywords_of()(method))


def as_array(array: NDArray[Any], dtype: Any, copy: bool | None) -> NDArray[Any]:
    """`array` as ``__array__`` must return it: the array itself, unless another dtype or a copy is requested."""
    if dtype is None or np.dtype(dtype) == array.dtype:
        return array.copy() if copy else array
    return array.astype(dtype)


def make_frame(columns: Mapping[str, Any], backend: str | None = None, *, cases: Table | None = None) -> Any:
    """A data frame of some columns."""
    # columns: mapping of str to columns: Arrays (cells that are masked are null), lists, or columns of `cases`
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
    try:
        return narwhals().from_arrow(table, backend=library).to_native()
    except (ImportError, ValueError, TypeError, AttributeError) as error:
        raise JtgpuError(
            f"there is no frame of {library!r}: {error}; use backend='pandas', 'polars' or 'pyarrow'"
        ) from None


def table_like(cases: Any, table: Table, columns: Mapping[str, Any], index: Any = None) -> Any:
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


def _for_pandas(column: Any) -> Any:
    if isinstance(column, Column):
        return _pandas().Categorical.from_codes(column.index, column.cells)
    if isinstance(column, np.ma.MaskedArray):
        return column.filled(np.nan)
    return column.to_pandas().array if hasattr(column, "to_pandas") else column


def _for_arrow(pa: Any, column: Any) -> Any:
    if isinstance(column, Column):
        return pa.array(column.tolist())
    if isinstance(column, np.ma.MaskedArray):
        return pa.array(column.data, mask=np.ma.getmaskarray(column))
    if isinstance(column, np.ndarray) and column.dtype == object:
        return pa.array(column.tolist())
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)
