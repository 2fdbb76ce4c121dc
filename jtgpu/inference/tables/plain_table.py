"""`PlainTable`: cases in a mapping of columns, a list of mappings, or an array; needs neither Arrow nor narwhals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from ...errors import EvidenceError
from ...model.discrete import DiscreteModel
from .native_frame import Block, column_of_series, name_row
from .tensors import as_array, is_tensor


class PlainTable:
    """A table of cases that is not a data frame."""
    # names: list of str: Names of the columns
    # n: Number of rows
    # by_index: Whether numbers are always numbers of states: in arrays, whose columns have no names either

    is_pandas, library, native = False, None, None
    index: Any = None  # of a pandas frame that is read without narwhals

    def __init__(
        self, names: list[str], columns: list[Any], n: int, *, by_index: bool = False, is_list: bool = False
    ):
        self.names, self.n, self.by_index = names, n, by_index
        self._columns, self._is_list = columns, is_list

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
        """A column as `jtgpu.inference.tables.encoder.Encoder.encode` takes it."""
        return self._columns[self.names.index(name)]

    def carried(self, name: str) -> Any:
        """A column to copy to a result."""
        return self.column(name)

    def row_name(self, row: int) -> str:
        """Name a row for messages."""
        return name_row(row, self.index)

    def like(self, table: Any, kept: list[str], block: Block | None = None) -> Any:
        """Convert an Arrow table to a mapping of columns, or to a list of mappings if the cases are one."""
        # kept: list of str: Columns of the cases that precede those of the table
        # block: Not used: only pandas frames have one
        front = {name: self.column(name) for name in kept}
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
    return key if isinstance(key, str) else model.variables[model.index(key)]


def _as_column(name: str, value: Any) -> Any:
    """A column as a list, an array, or what Arrow or narwhals can read."""
    if isinstance(value, np.ma.MaskedArray):
        return value.tolist()
    if isinstance(value, (list, np.ndarray)):
        found: Any = value
    elif type(value).__module__.partition(".")[0] == "pyarrow":
        return value
    elif is_tensor(value) and not hasattr(value, "to_frame"):
        found = as_array(value, f"column {name!r}")
    elif isinstance(value, (str, bytes, Mapping, AbstractSet)) or not isinstance(value, Iterable):
        raise EvidenceError(
            f"column {name!r} must be a sequence of states, one for each case, not {value!r}; for a single case, use "
            "posteriors()"
        )
    elif hasattr(value, "to_frame"):  # a series of pandas, Polars ...
        return column_of_series(value)
    else:
        found = np.asarray(value) if hasattr(value, "__array__") else [*value]
    if isinstance(found, np.ndarray) and found.ndim != 1:
        raise EvidenceError(f"column {name!r} has shape {found.shape}, expected one dimension")
    return found
