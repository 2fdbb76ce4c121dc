"""Open a table of cases in memory, of any kind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import DataError, EvidenceError, JtgpuError, UnknownState
from ..model.discrete import DiscreteModel
from ..util.arguments import plain
from ..util.arrays import Floats
from ..util.cells import finite, is_missing
from ..util.rows import extremes, thread_map
from .arrow import arrow, as_array, is_tensor, log_copy, narwhals, to_double
from .coded import Encoder
from .column import Column, known_cells
from .names import evidence_columns, reject_repeated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .likelihoods import LikelihoodCells

# `NativeFrame`: a data frame of any library, read and written by columns; needs narwhals and pyarrow.

# arrays of pandas that convert to Arrow's at little cost
_ARROW_ARRAYS = {"ArrowStringArray", "ArrowExtensionArray", "IntegerArray", "FloatingArray", "BooleanArray"}


class ProbabilityBlock(NamedTuple):
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
        """A column as `jtgpu.columns.coded.Encoder.encode` takes it."""
        at = self.names.index(name)
        if self.is_pandas:  # neither copied nor wrapped: there may be thousands of columns
            values = self.native.iloc[:, at].array
            kind = type(values).__name__
            if kind == "Categorical":
                return Column(values.codes, values.categories.tolist(), True)
            if kind == "NumpyExtensionArray":
                return values.to_numpy()
            if kind in ("PeriodArray", "IntervalArray"):  # Arrow has its number, its ends
                return [None if is_missing(v) else str(v) for v in values]
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

    def like(self, table: Any, kept: list[str], block: ProbabilityBlock | None = None) -> Any:
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

    def _to_pandas(self, table: Any, block: ProbabilityBlock | None) -> Any:
        more = table.to_pandas()
        if block is None:
            more.index = self.native.index
            return more
        pandas = self.frame.implementation.to_native_namespace()
        made = pandas.DataFrame(block.values.T, columns=block.names, index=self.native.index, copy=False)
        for name in table.column_names:
            made[name] = more[name].array
        return made


def _of_stream(given: object) -> Any:
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
    """A series of any library that narwhals supports, as `jtgpu.columns.coded.Encoder.encode` takes it.

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
        return Column(native.cat.codes.to_numpy(), native.cat.categories.tolist(), True)
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
    def of_mapping(cls, model: DiscreteModel | None, cases: Mapping[Any, object]) -> PlainTable:
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
    def of_rows(cls, model: DiscreteModel | None, rows: Sequence[Mapping[Any, object]]) -> PlainTable:
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
        """A column as `jtgpu.columns.coded.Encoder.encode` takes it, and to copy to a result."""
        return self._columns[self.names.index(name)]

    carried = column

    def row_name(self, row: int) -> str:
        """Name a row for messages."""
        return name_row(row, self.index)

    def like(self, table: Any, kept: list[str], block: ProbabilityBlock | None = None) -> Any:
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


def _as_column(name: str, value: object) -> Any:
    """A column as a list, an array, or what Arrow or narwhals can read."""
    if isinstance(value, np.ma.MaskedArray):
        return value.tolist()
    if isinstance(value, Column):  # a column of another table
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
    elif type(value).__name__ == "Categorical":
        categorical: Any = value
        return Column(categorical.codes, categorical.categories.tolist(), True)
    else:
        column = np.asarray(value) if hasattr(value, "__array__") else [*value]
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise EvidenceError(f"column {name!r} has shape {column.shape}, expected one dimension")
    return column


Table = NativeFrame | PlainTable

_EXPECTED = (
    "cases must be a data frame (pandas, Polars, Arrow, ...), a mapping of columns such as {'xray': ['yes', None]}, a "
    "list of mappings such as [{'xray': 'yes'}], or an array or tensor with a column for each variable"
)


def is_frame(cases: object) -> bool:
    """Whether this is a data frame and not an array or a mapping; imports nothing."""
    signs = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__", "collect")
    if isinstance(cases, (np.ndarray, Mapping)) or is_tensor(cases):
        return False
    return any(hasattr(cases, sign) for sign in signs)


def is_codes(cases: Any) -> bool:
    """Whether this is an array with rows of integers, none of which is masked."""
    is_plain = isinstance(cases, np.ndarray) and not isinstance(cases, np.ma.MaskedArray)
    return is_plain and cases.dtype.kind in "iu" and cases.ndim == 2


def open_table(model: DiscreteModel | None, cases: object) -> Table:
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


def open_data(data: object) -> Table:
    """A table that is no table of cases of a model; raises `DataError` if it is none, or two columns have one name."""
    try:
        table = open_table(None, data)
        reject_repeated(table.names, table.names, "the table")
        return table
    except EvidenceError as error:
        raise DataError(str(error)) from None


def cells_of(column: Any) -> list[Any]:
    """The cells of a table's column as objects of Python."""
    return [*column.to_pylist()] if hasattr(column, "to_pylist") else list(column)


def read_column(name: str, table: Table) -> Column:
    """A column of a table."""
    return known_cells(name, without_found_categories(table, name), table.row_name)


def without_found_categories(table: Table, name: str) -> Any:
    """A column; as texts where Polars has found its categories, in the order of their first cells (not an Enum)."""
    frame: Any = getattr(table, "native", None)
    cells = table.column(name)
    if type(frame).__module__.startswith("polars") and str(frame.schema[name]) == "Categorical":
        return cells.cast(cells.type.value_type)
    return cells


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


def _as_array(rows: Sequence[object]) -> np.ndarray[Any, Any]:
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

def read_states(
    model: DiscreteModel, cases: Any, likelihoods: LikelihoodCells | None = None
) -> tuple[NDArray[np.int32], Table | None]:
    """State numbers of B cases, and the table that they were read from."""
    # cases: data frame, mapping, list of mappings, array, or tensor: See `jtgpu.JunctionTree.posteriors_batch`
    # likelihoods: Takes the cells that are likelihoods, whose codes are -2 and less. Default: they are errors.
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
        encode = encoder.encode if likelihoods is None else partial(likelihoods.encode, encoder)
        encoded = encode(columns, table.n, each, first_only=True)
    for row, reason in encoded.rejected.items():
        raise UnknownState(at_row(table, row, reason))
    if variables == [*range(len(model))]:  # without a list of columns, which is slower
        states[:] = encoded.codes.T
    else:
        states[:] = -1
        states[:, variables] = encoded.codes.T
    return states, table


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
    numbers = (int, float, Decimal, np.integer, np.floating)
    if not all(is_missing(c) or (isinstance(c, numbers) and not isinstance(c, bool)) for c in cells):
        return None
    try:
        return np.array([np.nan if is_missing(c) else c for c in cells], np.float64)
    except OverflowError:  # an integer above all floats
        return None


def reject_infinite(table: Table, name: str, x: Floats) -> None:
    """Raise for the first infinite cell of a column, if there is one."""
    infinite = np.isinf(x)
    if infinite.any():
        raise DataError(f"{table.row_name(int(np.argmax(infinite)))}, column {name!r}: the value is infinite (inf)")


def first_text(column: object) -> tuple[int, Any]:
    """The first cell of a column that is no number; of a column of text, the first one that denotes none."""
    cells = [(i, cell) for i, cell in enumerate(cells_of(column)) if not is_missing(cell)] or [(0, None)]
    odd = [(i, c) for i, c in cells if isinstance(c, (str, bool)) or not hasattr(c, "__float__")]
    return next((pair for pair in odd if finite(pair[1]) is None), odd[0] if odd else cells[0])
