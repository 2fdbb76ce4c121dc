"""Results as data frames of pandas, Polars, Arrow and other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, overload

import numpy as np

from ...errors import JtgpuError
from ..tables import Table
from ..tables.arrow import arrow, narwhals
from ..tables.plain_cells import CategoricalColumn

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas
    import polars
    import pyarrow


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
    return cast(_ToFrameMethod, method)


def make_frame(columns: Mapping[str, Any], backend: str | None = None, *, cases: Table | None = None) -> Any:
    """A data frame of some columns."""
    # columns: mapping of str to columns: Arrays (cells that are masked are null), lists, or columns of `cases`
    # backend: ``"pandas"``, ``"polars"``, ``"pyarrow"``, or another library that narwhals supports. Default: the
    #     library of `cases`; pandas if they are not a data frame.
    # cases: The cases of the rows. If these and the result are pandas frames, the result has the index of the cases.
    # raises JtgpuError: If a package is not installed or `backend` is not one; the message says what to install.
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
    if isinstance(column, CategoricalColumn):
        return _pandas().Categorical.from_codes(column.indices, column.values)
    if isinstance(column, np.ma.MaskedArray):
        return column.filled(np.nan)
    return column.to_pandas().array if hasattr(column, "to_pandas") else column


def _for_arrow(pa: Any, column: Any) -> Any:
    if isinstance(column, CategoricalColumn):
        values = [*column.values, None]
        return pa.array([values[i] for i in column.indices.tolist()])
    if isinstance(column, np.ma.MaskedArray):
        return pa.array(column.data, mask=np.ma.getmaskarray(column))
    if isinstance(column, np.ndarray) and column.dtype == object:
        return pa.array(column.tolist())
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)
