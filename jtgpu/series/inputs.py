"""Arrays and tables of time series as a float64 matrix with a row for each series."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..columns import Table, as_numbers, cells_of, is_frame, open_data
from ..columns.memory import first_text
from ..device.arrays import DeviceArray
from ..errors import ArgumentError, DataError, shown
from ..util.arrays import Floats
from ..util.cells import finite, is_missing
from . import gpu_run as run


@dataclass
class SeriesData:
    """Series of equal length."""

    values: Floats  # (B, T) ndarray of float64: Missing values are NaN
    names: list[str]  # list of str: ``x0``, ``x1`` ... for arrays.
    shape: tuple[int, ...]  # tuple of int: Axes of an array before time; ``(B,)`` for a table
    table: Table | None  # the table that the series are columns of

    @property
    def n_series(self) -> int:
        """Number of series."""
        return len(self.names)

    @property
    def n_times(self) -> int:
        """Length of the series."""
        return int(self.values.shape[1])

    def value(self, series: int, at: int) -> float:
        """One value."""
        return float(self.values[series, at])

    def locate(self, series: int, at: int | None = None) -> str:
        """Name a series, and a time, in messages."""
        name = f"series {self.names[series]!r}" if self.table is not None else f"series {series}"
        if at is None:
            return name
        return f"{name}, {f'time {at}' if self.table is None else self.table.row_name(at)}"


class DeviceSeries(SeriesData):
    """Series in a GPU's memory: `values` has no rows."""

    def __init__(self, source: DeviceArray):
        if not source.shape:
            raise ArgumentError("x must be an array of real numbers with an axis of times at least")
        self.source = source
        n = math.prod(source.shape[:-1])
        super().__init__(np.empty((0, source.shape[-1])), [f"x{i}" for i in range(n)], source.shape[:-1], None)

    def value(self, series: int, at: int) -> float:
        """One value, copied from the device."""
        return float(run.download(self.source).reshape(len(self.names), -1)[series, at])


def as_floats(name: str, value: object) -> Floats:
    """An array of numbers with at least one axis, as float64; masked elements are NaN."""
    if isinstance(value, np.ma.MaskedArray):
        value = np.ma.filled(value.astype(np.float64), np.nan)
    try:
        values: NDArray[np.generic] = np.asarray(value)
        if values.dtype.kind == "O":
            values = np.array(values.tolist(), np.float64)
        if values.dtype.kind not in "iuf" or not values.ndim:
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name} must be an array of real numbers, not {shown(value)}") from None
    return values.astype(np.float64, copy=False)


def as_rows(values: Floats) -> Floats:
    """(..., T) as a C-contiguous and writable (B, T), as compiled loops declare it; copied only if necessary."""
    rows = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
    return rows if rows.flags.c_contiguous and rows.flags.writeable else rows.copy("C")


def series_table(x: object) -> Table | None:
    """The table, if series are given as the columns of one; None for an array."""
    is_rows = isinstance(x, (list, tuple)) and len(x) > 0 and isinstance(x[0], Mapping)
    is_records = isinstance(x, np.ndarray) and bool(x.dtype.names)
    is_column = hasattr(x, "to_frame")  # a series of pandas or Polars
    if not (is_rows or is_records or isinstance(x, Mapping) or (is_frame(x) and not is_column)):
        return None
    return open_data(x)


def read_series(x: object, time: str | None = None, columns: list[str] | None = None) -> SeriesData:
    """Read series."""
    # x: (T,) or (..., T) array, or table: A table has a column for each series: a data frame, a mapping of columns, a
    #     list of mappings
    # time: Column of a table with the times, which must increase. It is no series.
    # columns: list of str: Columns of a table that are series. Default: all.
    # raises DataError: For a column that is missing or does not hold numbers, and for times that do not increase.
    table = series_table(x)
    if table is None:
        if time is not None:
            raise ArgumentError("time= names a column; an array has none")
        values = as_floats("x", x)
        flat = as_rows(values)
        return SeriesData(flat, [f"x{i}" for i in range(len(flat))], values.shape[:-1], None)
    check_times(table, time)
    names = [n for n in table.names if n != time] if columns is None else columns
    if not table.n:
        raise DataError("the table has no rows")
    if not names:
        raise DataError(
            "the table has no column of a series" + ("" if time is None else f" besides the times {time!r}")
        )
    if len(set(names)) < len(names) or not {*names} <= {*table.names}:
        raise DataError(f"the table must have a column for each series {shown(names)}, not {shown(table.names)}")
    values = np.empty((len(names), table.n))
    for row, name in zip(values, names, strict=True):
        numbers = as_numbers(table.column(name))
        if numbers is None:
            raise DataError(_no_number(table, name))
        row[:] = numbers
    return SeriesData(values, names, (len(names),), table)


def _no_number(table: Table, name: str) -> str:
    """Message for a column with cells that are no numbers: the first of them, and what to try."""
    i, cell = first_text(table.column(name))
    if isinstance(cell, str) and finite(cell) is not None:
        return f"column {name!r} holds numbers as text; convert it to numbers"
    at = f"column {name!r}, {table.row_name(i)}: {shown(str(cell))} is no number"
    if isinstance(cell, str) and finite(cell.replace(".", "").replace(",", ".")) is not None:
        return f"{at}; write decimal points, not commas (pandas.read_csv has decimal=',')"
    return f"{at}; leave the column out, or pass time={name!r} if it is time"


def check_times(table: Table, time: str | None) -> None:
    """Raise `DataError` if the column `time`, or else the index of a pandas frame, does not increase."""
    if time is None:
        index = getattr(table, "index", None)
        if index is None or (index.is_monotonic_increasing and index.is_unique):
            return
        cells, name = index.tolist(), "the index"
    elif time not in table.names:
        raise DataError(f"there is no column {time!r} of times; the columns are {shown(table.names)}")
    else:
        cells, name = cells_of(table.column(time)), f"column {time!r}"
    for i in range(len(cells)):
        if is_missing(cells[i]) or (i and not cells[i] > cells[i - 1]):
            before = f" after {shown(str(cells[i - 1]))}" if i else ""
            raise DataError(
                f"{name} must increase from row to row, but row {i} has {shown(str(cells[i]))}{before}; sort the rows, "
                "and keep one of those with the same time"
            )
