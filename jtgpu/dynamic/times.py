"""Ids and times of tables of sequences: which rows belong together, their order, and gaps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from ..columns import as_numbers, cells_of, read_column
from ..errors import DataError, shown
from ..util.arrays import Floats, Ints
from ..util.calls import outside
from ..util.cells import is_missing

MOST_EMPTY = 10_000_000  # slices that gaps may add


def is_whole(times: Floats, column: object) -> bool:
    """Whether times are numbered, so that gaps can be seen."""
    return not _are_dates(column) and bool((times == np.floor(times)).all())


def _are_dates(column: object) -> bool:
    if isinstance(column, np.ndarray):
        return column.dtype.kind in "mM"
    return str(getattr(column, "type", "")).startswith(("timestamp", "date", "duration", "time"))


def index_of(table: object) -> Floats | None:
    """The dates that are the index of a pandas frame as numbers, None if it is no index of dates."""
    index = getattr(table, "index", None)
    values = getattr(index, "asi8", None)  # of DatetimeIndex, TimedeltaIndex and PeriodIndex
    if index is None or values is None:
        return None
    return np.where(index.isna(), np.nan, np.asarray(values, np.float64))


def check_steps(times: Floats, ptr: Ints, on_gap: str, name: str, column: object) -> None:
    """Warn of dates and fractions whose steps differ: they are taken as slices that follow each other."""
    if on_gap == "empty":
        are_dates = _are_dates(column)
        recipe = f"; of days in pandas: (frame[{name!r}] - frame[{name!r}].min()).dt.days" if are_dates else ""
        raise DataError(
            f"column {name!r} has {'dates' if are_dates else 'fractions'}, whose gaps are unknown: on_gap=\"empty\" "
            f"needs times that are whole numbers, such as the number of the day{recipe}"
        )
    inside = np.ones(max(len(times) - 1, 0), np.bool_)
    inside[ptr[1:-1] - 1] = False
    steps = np.diff(times)[inside]
    if len(steps) and steps.max() >= 1.5 * steps.min():
        warnings.warn(
            f"column {name!r} is unevenly spaced: its longest step is {steps.max() / steps.min():.3g} times "
            "its shortest, and each is taken as the next slice; number the days, or other steps, to have gaps checked",
            UserWarning, stacklevel=outside(),
        )  # fmt: skip


def groups(id: str, table: Any) -> tuple[Ints, list[Any]]:
    """The sequence of each row, numbered in the order in which they come; and their names."""
    column = read_column(id, table)
    codes = column.index
    if (codes < 0).any():
        raise DataError(f"{table.row_name(int(np.argmax(codes < 0)))}, column {id!r}: the sequence's id is missing")
    present, first = np.unique(codes, return_index=True)
    ranked = np.argsort(first, kind="stable")
    number = np.zeros(int(codes.max()) + 1, np.int64)
    number[present[ranked]] = np.arange(len(present))
    return number[codes], [column.cells[c] for c in present[ranked].tolist()]


def with_dates(column: Any) -> Any:
    """A column of times; texts of numbers, ISO dates in texts, and dates of Python become numbers and dates."""
    if _are_dates(column) or as_numbers(column) is not None:
        return column
    cells = cells_in(column)
    texts = [(c.strip() or None) if isinstance(c, str) else None if is_missing(c) else c for c in cells]
    try:
        return np.array([np.nan if c is None else float(c) for c in texts])
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        if all(isinstance(c, timedelta) for c in texts if c is not None):
            return np.array(texts, "timedelta64[us]")
        return np.array([None if c is None else _naive(c) for c in texts], "datetime64[us]")
    except (AttributeError, TypeError, ValueError, OverflowError):
        return cells


def cells_in(column: object) -> list[Any]:
    """The cells of a column of times as objects of Python."""
    if isinstance(column, np.ndarray):  # nanoseconds would be integers
        return list((column.astype("M8[us]") if column.dtype == "M8[ns]" else column).tolist())
    return cells_of(column)


def _naive(cell: Any) -> datetime:
    """A date or a text as a time without a zone."""
    if isinstance(cell, date) and not isinstance(cell, datetime):
        return datetime(cell.year, cell.month, cell.day)
    time = datetime.fromisoformat(cell) if isinstance(cell, str) else cell
    return time if time.utcoffset() is None else time.astimezone(UTC).replace(tzinfo=None)


def times_of(name: str, column: Any, row_name: Callable[[int], str]) -> Floats:
    """The times of the rows as numbers."""
    numbers = as_numbers(column)
    if numbers is None and str(getattr(column, "type", "")).startswith(("timestamp", "date", "duration")):
        numbers = as_numbers(column.cast("int32" if str(column.type).startswith("date32") else "int64"))
    if numbers is None and isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        numbers = np.where(np.isnat(column), np.nan, column.astype(np.int64).astype(np.float64))
    if numbers is None:
        cells = cells_in(column)
        row = next((i for i, c in enumerate(cells) if isinstance(with_dates([c]), list)), 0)
        raise DataError(
            f"{row_name(row)}, column {name!r}: the time {shown(cells[row])} is no number and no date; times are "
            "numbers such as 0, 1, 2, or dates such as 2026-01-31, all of one kind"
        )
    return numbers


def check_times(
    times: Floats, ptr: Ints, order: Ints, table: Any, name: str, label: Callable[[int], str], column: Any
) -> None:
    """Raise unless the times of every sequence are given and increase."""
    # times, order: By sequence; column: As it is in the table
    unknown = ~np.isfinite(times)
    back = np.zeros(len(times), np.bool_)
    back[1:] = times[1:] <= times[:-1]
    back[ptr[:-1][np.diff(ptr) > 0]] = False
    bad = np.flatnonzero(unknown | back)
    if not len(bad):
        return
    i = int(bad[0])
    where = f"{label(int(np.searchsorted(ptr, i, side='right')) - 1)}, {table.row_name(int(order[i]))}, {name}"
    if unknown[i]:
        raise DataError(f"{where}: the time is missing or infinite")
    earlier, this = (str(cells_in(column)[int(order[k])]) for k in (i - 1, i))
    what = "occurs twice" if times[i] == times[i - 1] else f"comes after {earlier}"
    raise DataError(f"{where}: the time {this} {what}; times must increase in each sequence, so sort the rows")


def with_gaps(
    times: Floats, ptr: Ints, on_gap: str, order: Ints, table: Any, name: str, label: Callable[[int], str]
) -> tuple[Ints, Ints, Floats]:
    """Rows, or -1 for slices that are missing; where sequences begin; and times."""
    steps = np.diff(times)
    inside = np.ones(len(steps), np.bool_)
    inside[ptr[1:-1] - 1] = False
    gaps = np.flatnonzero(inside & (steps != 1))
    if not len(gaps):
        return np.arange(len(times)), ptr, times
    if on_gap == "error":
        i = int(gaps[0])
        where = f"{label(int(np.searchsorted(ptr, i, side='right')) - 1)}, {table.row_name(int(order[i + 1]))}"
        raise DataError(
            f"{where}, column {name!r}: time {times[i] + 1:.0f} is missing, {times[i]:.0f} is followed by "
            f"{times[i + 1]:.0f}; on_gap=\"empty\" takes missing times as slices without observations"
        )
    start = times[ptr[:-1]]
    lengths = (times[ptr[1:] - 1] - start).astype(np.int64) + 1
    if int(lengths.sum()) - len(times) > MOST_EMPTY:
        raise DataError(
            f"column {name!r}: the gaps are {int(lengths.sum()) - len(times)} slices, more than {MOST_EMPTY}"
        )
    new = np.concatenate([[0], np.cumsum(lengths)])
    of_row = np.repeat(np.arange(len(start)), np.diff(ptr))
    at = new[:-1][of_row] + (times - start[of_row]).astype(np.int64)
    rows = np.full(int(new[-1]), -1)
    rows[at] = np.arange(len(times))
    each = np.repeat(np.arange(len(start)), lengths)
    return rows, new, start[each] + (np.arange(len(rows)) - new[:-1][each])
