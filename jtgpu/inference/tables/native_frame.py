"""`NativeFrame`: a data frame of any library, read and written by columns; needs narwhals and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import EvidenceError, JtgpuError
from .arrow import arrow, narwhals
from .columns import reject_repeated
from .plain_cells import CategoricalColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

# arrays of pandas that convert to Arrow's at little cost
_ARROW_ARRAYS = {"ArrowStringArray", "ArrowExtensionArray", "IntegerArray", "FloatingArray", "BooleanArray"}


class Block(NamedTuple):
    """Columns of probabilities in one array, which pandas takes without copying."""

    names: list[str]
    values: NDArray[np.float64]  # (columns, rows)


class NativeFrame:
    """A frame of any library that narwhals supports, by columns."""
    # names: list of str: Names of the columns
    # n: Number of rows

    by_index = False  # see `PlainTable`

    def __init__(self, native: Any):
        pa, nw = arrow(), narwhals()
        self.native, self._is_batch = native, isinstance(native, pa.RecordBatch)
        if self._is_batch:
            native = pa.Table.from_batches([native])
        try:
            self.frame = nw.from_native(native, eager_only=True)
        except TypeError:
            hint = "; collect() it first" if hasattr(native, "collect") else ""
            raise EvidenceError(
                f"cases must be a data frame (pandas, Polars, Arrow, ...), not {type(native).__name__}{hint}"
            ) from None
        except (ValueError, nw.exceptions.NarwhalsError) as error:
            names = [str(c) for c in getattr(native, "column_names", getattr(native, "columns", ()))]
            reject_repeated(names, names, "the table")
            raise EvidenceError(f"cases cannot be read: {error}") from None
        self.names = [str(c) for c in self.frame.columns]
        self.n = len(self.frame)

    @property
    def is_pandas(self) -> bool:
        """Whether it is a pandas frame."""
        return bool(self.frame.implementation.is_pandas())

    def column(self, name: str) -> Any:
        """A column as `jtgpu.inference.tables.encoder.Encoder.encode` takes it."""
        at = self.names.index(name)
        if self.is_pandas:  # neither copied nor wrapped: there may be thousands of columns
            values = self.native.iloc[:, at].array
            kind = type(values).__name__
            if kind == "Categorical":
                return CategoricalColumn(values.codes, values.categories.tolist())
            if kind == "NumpyExtensionArray":
                return values.to_numpy()
            if kind in _ARROW_ARRAYS:
                return values.__arrow_array__()
        return _column_of(self.frame[:, at])

    def carried(self, name: str) -> Any:
        """A column to copy to a result, as `jtgpu.inference.results.frames.make_frame` takes it."""
        at = self.names.index(name)
        return self.native.iloc[:, at].array if self.is_pandas else self.column(name)

    @property
    def library(self) -> str:
        """The library of the frame, such as ``"pandas"``."""
        return str(self.frame.implementation.value)

    @property
    def index(self) -> Any:
        """The index of a pandas frame; None for other frames."""
        return self.native.index if self.is_pandas else None

    def __reduce__(self) -> tuple[type[NativeFrame], tuple[Any]]:
        return type(self), (self.native,)

    def row_name(self, row: int) -> str:
        """Name a row for messages: by number, and by index label if the frame has one."""
        return name_row(row, getattr(self.native, "index", None))

    def like(self, table: Any, kept: list[str], block: Block | None = None) -> Any:
        """Convert an Arrow table to a frame of this kind, with the same index."""
        # kept: list of str: Columns of this frame that precede those of the table
        # block: For pandas: columns that precede those of the table
        nw = narwhals()
        kind = self.frame.implementation
        if kind.is_pyarrow():
            answer = nw.from_native(table, eager_only=True)
        elif kind.is_pandas():
            answer = nw.from_native(self._to_pandas(table, block), eager_only=True)
        else:
            answer = nw.from_arrow(table, backend=kind)
        if kept:
            front = self.frame.select([self.frame.columns[self.names.index(k)] for k in kept])
            answer = nw.concat([front, answer], how="horizontal")
        native = answer.to_native()
        return native.combine_chunks().to_batches()[0] if self._is_batch and self.n else native

    def _to_pandas(self, table: Any, block: Block | None) -> Any:
        more = table.to_pandas()
        if block is None:
            more.index = self.native.index
            return more
        pandas = self.frame.implementation.to_native_namespace()
        made = pandas.DataFrame(block.values.T, columns=block.names, index=self.native.index, copy=False)
        for name in table.column_names:
            made[name] = more[name].array
        return made


def name_row(row: int, index: Any) -> str:
    """Name a row for messages: by number, and by label if there is an index of labels."""
    label = "" if index is None or type(index).__name__ == "RangeIndex" else f" (index {index[row]!r})"
    return f"row {row}{label}"


def column_of_series(series: Any) -> Any:
    """A series of any library that narwhals supports, as `jtgpu.inference.tables.encoder.Encoder.encode` takes it.

    Without narwhals and pyarrow, an array.
    """
    try:
        nw, _ = narwhals(), arrow()
    except JtgpuError:
        return np.asarray(series)
    try:
        return _column_of(nw.from_native(series, series_only=True))
    except TypeError:
        raise EvidenceError(f"a column must be a sequence of states, not {type(series).__name__}") from None


def _column_of(series: Any) -> Any:
    """See `column_of_series`; of a narwhals series."""
    pa = arrow()
    native = series.to_native()
    if type(native).__module__.startswith("pandas") and hasattr(native, "cat"):
        return CategoricalColumn(native.cat.codes.to_numpy(), native.cat.categories.tolist())
    if series.implementation.is_pyarrow() and native.num_chunks == 1:
        return native.chunk(0)  # to_arrow() would copy it in a single thread
    try:
        return series.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError):
        return series.to_list()  # names, numbers and nulls mixed
