"""`PlainTable`: cases in a mapping of columns, a list of mappings, or an array; needs neither Arrow nor narwhals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np

from ...errors import EvidenceError, JtgpuError
from ...model.discrete import DiscreteModel
from ...util.arguments import plain
from ...util.arrays import Floats
from .arrow import arrow, as_array, is_tensor, narwhals
from .columns import reject_repeated
from .plain_cells import CategoricalColumn, without_decimals

# `NativeFrame`: a data frame of any library, read and written by columns; needs narwhals and pyarrow.

# arrays of pandas that convert to Arrow's at little cost
_ARROW_ARRAYS = {"ArrowStringArray", "ArrowExtensionArray", "IntegerArray", "FloatingArray", "BooleanArray"}


class Block(NamedTuple):
    """Columns of probabilities in one array, which pandas takes without copying."""

    names: list[str]
    values: Floats  # (columns, rows)


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
            self.native = _of_stream(native)
            self.frame = nw.from_native(self.native, eager_only=True)
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
        """A column as `jtgpu.inference.tables.columns.Encoder.encode` takes it."""
        return without_decimals(self._column(name))

    def _column(self, name: str) -> Any:
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

    def matrix(self) -> Floats | None:
        """All cells of a pandas frame of float64 alone, (rows, columns); None for other frames."""
        if not self.is_pandas or {*self.native.dtypes} != {np.dtype(np.float64)}:
            return None
        return np.asarray(self.native.to_numpy(), np.float64)

    def carried(self, name: str) -> Any:
        """A column to copy to a result, as `jtgpu.inference.results.frames.make_frame` takes it."""
        at = self.names.index(name)
        return self.native.iloc[:, at].array if self.is_pandas else self._column(name)

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


def _of_stream(given: Any) -> Any:
    """The Arrow table that an object exports as a stream, such as a relation of DuckDB."""
    lazy = type(given).__name__ == "LazyFrame"
    if hasattr(given, "__arrow_c_stream__") and not lazy:
        with contextlib.suppress(arrow().ArrowException, TypeError):  # a column is no table
            return arrow().table(given)
    hint = "; collect() it first" if lazy or hasattr(given, "collect") else ""
    raise EvidenceError(f"cases must be a data frame (pandas, Polars, Arrow, ...), not {type(given).__name__}{hint}")


def name_row(row: int, index: Any) -> str:
    """Name a row for messages: by number, and by label if there is an index of labels."""
    if index is None or type(index).__name__ == "RangeIndex":
        return f"row {row}"
    return f"row {row} (index {index[row : row + 1].tolist()[0]!r})"


def column_of_series(series: Any) -> Any:
    """A series of any library that narwhals supports, as `jtgpu.inference.tables.columns.Encoder.encode` takes it.

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


class PlainTable:
    """A table of cases that is not a data frame."""
    # names: list of str: Names of the columns
    # n: Number of rows
    # by_index: Whether numbers are always numbers of states: in arrays, whose columns have no names either

    is_pandas, library, native = False, None, None
    index: Any = None  # of a pandas frame that is read without narwhals

    def __init__(self, names: list[str], columns: list[Any], n: int, *, by_index: bool = False, is_list: bool = False):
        self.names, self.n, self.by_index = names, n, by_index
        self._columns, self._is_list = columns, is_list

    def matrix(self) -> Floats | None:
        """No array of floats: columns are read one by one."""
        return None

    @classmethod
    def of_mapping(cls, model: DiscreteModel | None, cases: Mapping[Any, Any]) -> PlainTable:
        """A mapping from variables, by name or number, to columns of equal length."""
        names = [_name(model, key) for key in cases]
        columns = [_as_column(name, value) for name, value in zip(names, cases.values(), strict=True)]
        lengths = [*map(len, columns)]
        for name, n in zip(names, lengths, strict=True):
            if n != lengths[0]:
                raise EvidenceError(
                    f"column {name!r} has {n} rows, but column {names[0]!r} has {lengths[0]}; columns must have equal "
                    "lengths"
                )
        return cls(names, columns, lengths[0] if lengths else 0)

    @classmethod
    def of_rows(cls, model: DiscreteModel | None, rows: Sequence[Mapping[Any, Any]]) -> PlainTable:
        """A list of mappings from variables to states; a variable that a mapping omits is not observed."""
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise EvidenceError(f"row {i} must be a mapping such as {{'xray': 'yes'}}, not {type(row).__name__}")
        keys = dict.fromkeys(key for row in rows for key in row)
        columns = [[row.get(key) for row in rows] for key in keys]
        return cls([_name(model, key) for key in keys], columns, len(rows), is_list=True)

    @classmethod
    def of_array(cls, model: DiscreteModel | None, table: np.ndarray[Any, Any]) -> PlainTable:
        """An array with one column for each variable, or a structured array."""
        if table.dtype.names:
            return cls.of_mapping(model, {name: table[name] for name in table.dtype.names})
        columns = [c.tolist() if isinstance(c, np.ma.MaskedArray) else c for c in table.T] if table.ndim == 2 else []
        if model is None and table.ndim == 2:
            return cls([f"x{i}" for i in range(table.shape[1])], columns, len(table), by_index=True)
        if model is None:
            raise EvidenceError(f"the table has shape {table.shape}, expected (n_rows, n_columns)")
        if table.ndim != 2 or table.shape[1] != len(model):
            raise EvidenceError(
                f"cases has shape {table.shape}, expected (n_cases, {len(model)}): one column for each variable; pass "
                "a data frame or a mapping of columns to name the columns"
            )
        return cls([*model.variables], columns, len(table), by_index=True)

    def column(self, name: str) -> Any:
        """A column as `jtgpu.inference.tables.columns.Encoder.encode` takes it."""
        return without_decimals(self.carried(name))

    def carried(self, name: str) -> Any:
        """A column to copy to a result."""
        return self._columns[self.names.index(name)]

    def row_name(self, row: int) -> str:
        """Name a row for messages."""
        return name_row(row, self.index)

    def like(self, table: Any, kept: list[str], block: Block | None = None) -> Any:
        """Convert an Arrow table to a mapping of columns, or to a list of mappings if the cases are one."""
        # kept: list of str: Columns of the cases that precede those of the table
        # block: Not used: only pandas frames have one
        front = {name: self.carried(name) for name in kept}
        if self._is_list:
            rows = table.to_pylist()
            return [{**{k: c[i] for k, c in front.items()}, **row} for i, row in enumerate(rows)]
        columns = {name: table[name] for name in table.column_names}
        return {
            **{name: np.asarray(column) for name, column in front.items()},
            **{name: c.combine_chunks().to_numpy(zero_copy_only=False) for name, c in columns.items()},
        }


def _name(model: DiscreteModel | None, key: Any) -> str:
    if model is None:
        return str(key)
    return plain(key) if isinstance(key, str) else model.variables[model.index(key)]


def _as_column(name: str, value: Any) -> Any:
    """A column as a list, an array, or what Arrow or narwhals can read."""
    if isinstance(value, np.ma.MaskedArray):
        return value.tolist()
    if isinstance(value, CategoricalColumn):  # a column of another table
        return value
    if isinstance(value, (list, np.ndarray)):
        column: Any = value
    elif type(value).__module__.partition(".")[0] == "pyarrow":
        return value
    elif is_tensor(value) and not hasattr(value, "to_frame"):
        column = as_array(value, f"column {name!r}")
    elif isinstance(value, (str, bytes, Mapping, AbstractSet)) or not isinstance(value, Iterable):
        raise EvidenceError(
            f"column {name!r} must be a sequence of states, one for each case, not {value!r}; for a single case, use "
            "posteriors()"
        )
    elif hasattr(value, "to_frame"):  # a series of pandas, Polars ...
        return column_of_series(value)
    else:
        column = np.asarray(value) if hasattr(value, "__array__") else [*value]
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise EvidenceError(f"column {name!r} has shape {column.shape}, expected one dimension")
    return column
