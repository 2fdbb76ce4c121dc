"""From series to tables of cases: the lags that matter, and rows that hold several times."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from ..columns import Table, as_numbers, read_column, reject_infinite
from ..columns.column import Column
from ..columns.kinds import ordered
from ..dynamic.times import check_times as check_sequence_times
from ..dynamic.times import groups, is_whole, times_of, with_dates
from ..errors import ArgumentError, DataError, closest
from ..inference.results.frames import table_like
from ..util.arguments import having, number, several, whole_number
from ..util.arrays import Floats, Ints
from .autoregression import Autoregression
from .inputs import check_times, series_table

LEVELS = {1: ["all"], 2: ["low", "high"], 3: ["low", "middle", "high"]}  # names of states, by their number

Lags = Mapping[str, Iterable[int] | int] | Iterable[int] | int
Bins = Mapping[str, Any] | Iterable[float] | int | None


def significance_bound(fit: Autoregression, alpha: float) -> float:
    """The magnitude that partial autocorrelations of series without memory exceed with probability `alpha`."""
    having("fit", fit, "n_times", "the result of jtgpu.series.ar")
    if not 0 < number("alpha", alpha) < 1:
        raise ArgumentError(f"alpha must be between 0 and 1, not {alpha}")
    return NormalDist().inv_cdf(1 - alpha / 2) / math.sqrt(fit.n_times)


def lag_parents(fit: Autoregression, alpha: float = 0.05) -> dict[str, list[int]]:
    """The lags at which each series depends on its own past.

    Parameters
    ----------
    fit : Autoregression
        See `ar`.
    alpha : float
        Probability with which a lag of a series without memory is listed, between 0 and 1.

    Returns
    -------
    dict of str to list of int
        For each series the lags whose partial autocorrelation exceeds ``z / sqrt(T)`` in magnitude, where z is the
        two-sided quantile of the normal distribution.
    """
    bound = significance_bound(fit, alpha)
    partial = fit.partial.reshape(len(fit.names), -1)
    return {n: (np.flatnonzero(np.abs(p[1:]) > bound) + 1).tolist() for n, p in zip(fit.names, partial, strict=True)}


def two_slices(
    x: object, lags: Lags = 1, bins: Bins = 3, *, id: str | None = None, time: str | None = None
) -> Any:
    """A table of cases of series: each row holds the states of the variables now and at earlier times.

    Parameters
    ----------
    x : table, or (..., T) array
        A column for each variable, a row for each time. An array has a row for each variable, named ``x0``, ``x1`` ...
    lags : mapping of str to lags, lags, or int
        Earlier times to add: for each variable, as `lag_parents` returns them, or for all. A number k stands for all
        lags from 1 to k, ``[k]`` for lag k alone.
    bins : int, sequence of float, mapping, or None
        States of columns of numbers: so many of about equal frequency, or those between edges (each edge belongs to
        the lower state); None keeps the values. A mapping says it for each variable; variables that it lacks have 3.
        Columns of other values keep these as states.
    id : str, optional
        Column of a long frame that names the sequence of each row, such as a patient. It is left out.
    time : str, optional
        Column with the times, which must increase, with `id` in each sequence. It is left out. Without it, the index
        of a pandas frame must increase.

    Returns
    -------
    table
        Of the kind of `x`, for an array a mapping of columns. For a variable ``x`` the columns are ``x[t]`` and, for
        each lag k, ``x[t-k]``. The first times, as many as the longest lag, have no row; with `id`, those of each
        sequence, and an earlier time that is missing from whole numbers is a missing cell. States are ``low`` and
        ``high``, ``low``, ``middle`` and ``high``, or ``q1``, ``q2`` ... Missing cells stay missing. Data frames
        declare this order of the states; of lists, learning sorts the states by name.

    Examples
    --------
    >>> from jtgpu import series
    >>> table = series.two_slices({"x": [1.0, 5.0, 2.0, 6.0]}, bins=2)
    >>> table["x[t-1]"], table["x[t]"]
    (['low', 'high', 'low'], ['high', 'low', 'high'])
    """
    table = series_table(x)
    if table is None:
        values = np.atleast_2d(np.asarray(x))
        if not values.size:
            raise DataError("x has no values")
        x = {f"x{i}": row for i, row in enumerate(values.reshape(-1, values.shape[-1]))}
        table = series_table(x)
        assert table is not None
    if id is None:
        check_times(table, time)
    names = [n for n in table.names if n not in (id, time)]
    if not names:
        raise DataError("the table has no column" + ("" if time is None else f" besides the times {time!r}"))
    wanted = _lags_of(names, lags)
    longest = max((ks[-1] for ks in wanted.values() if ks), default=0)
    if longest >= table.n and id is None:
        raise DataError(f"a table of {table.n} times has no rows with lag {longest}; use shorter lags")
    if isinstance(bins, Mapping):
        _reject_unknown("bins", bins, names)
    rows = None if id is None else _rows_of_sequences(table, id, time, longest)
    columns: dict[str, Any] = {}
    for name in names:
        states = _states(table, name, bins.get(name, 3) if isinstance(bins, Mapping) else bins)
        for k in (0, *wanted[name]):
            part = states[longest - k : table.n - k]
            if rows is not None:
                codes = np.where(rows[k] >= 0, np.asarray(states.index)[rows[k]], -1)
                part = Column(codes, states.cells, states.declared)
            is_plain = table.library is None and table.index is None
            columns[f"{name}[t-{k}]" if k else f"{name}[t]"] = part.tolist() if is_plain else part
    return table_like(x, table, columns)


def _rows_of_sequences(table: Table, id: str, time: str | None, longest: int) -> list[Ints]:
    """For each lag from 0, the rows of the table that stand in the rows of the result; -1: there is none."""
    for what, name in (("id", id), ("time", time)):
        if name is not None and name not in table.names:
            raise DataError(f"{what}={name!r} is no column of the table, which has {', '.join(map(repr, table.names))}")
    if not table.n:
        raise DataError("there are no sequences")
    group, ids = groups(id, table)
    order = np.argsort(group, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(group))])
    at = np.arange(table.n) - np.repeat(ptr[:-1], np.diff(ptr))  # the time of each row, from 0 in each sequence
    if time is not None:
        column = with_dates(given := table.column(time))
        times = times_of(time, column, table.row_name)[order]

        def label(s: int) -> str:
            return f"sequence {s} ({ids[s]!r})"

        check_sequence_times(times, ptr, order, table, f"column {time!r}", label, given)
        if is_whole(times, column):
            at = (times - np.repeat(times[ptr[:-1]], np.diff(ptr))).astype(np.int64)
    kept = at >= longest
    if not kept.any():
        raise DataError(f"no sequence has more than {longest} times, so there are no rows; use shorter lags")
    keys = group[order] * (int(at.max()) + longest + 1) + at  # ascending
    rows = []
    for k in range(longest + 1):
        place = np.minimum(np.searchsorted(keys, keys[kept] - k), len(keys) - 1)
        rows.append(np.where(keys[place] == keys[kept] - k, order[place], -1))
    return rows


def _lags_of(names: list[str], lags: Lags) -> dict[str, Sequence[int]]:
    """The lags of each variable, ascending."""
    if isinstance(lags, Mapping):
        _reject_unknown("lags", lags, names)
        return {name: _ascending(lags.get(name, ())) for name in names}
    return dict.fromkeys(names, _ascending(lags))


def _ascending(lags: Iterable[int] | int) -> Sequence[int]:
    listed = several(lags)
    if listed is None:
        return range(1, whole_number("lags", lags, 1, sys.maxsize - 1) + 1)
    return sorted({whole_number("a lag", k, 1) for k in listed})


def _reject_unknown(argument: str, given: Mapping[str, object], names: list[str]) -> None:
    for name in given:
        if name not in names:
            raise DataError(f"{argument} names {name!r}, which is no column{closest(str(name), names)}")


def _states(table: Table, name: str, bins: object) -> Column:
    """The states of a column."""
    column = table.column(name)
    numbers = None if bins is None else as_numbers(column)
    if numbers is None:
        return ordered(name, read_column(name, table))
    reject_infinite(table, name, numbers)
    known = ~np.isnan(numbers)
    edges = _edges(name, numbers[known], bins)
    codes = np.where(known, np.searchsorted(edges, numbers, side="left"), -1)
    n = len(edges) + 1
    return Column(codes, LEVELS.get(n) or [f"q{i + 1}" for i in range(n)], declared=True)


def _edges(name: str, numbers: Floats, bins: object) -> Floats:
    """Where one state ends and the next begins."""
    listed = several(bins)
    if listed is not None:
        edges: Floats = np.array([number("an edge of bins", e) for e in listed])
        if (np.diff(edges) <= 0).any():
            raise ArgumentError(f"bins of {name!r} must be edges that increase, not {listed}")
        return edges
    n = whole_number("bins", bins, 2)
    if not len(numbers) or numbers.min() == numbers.max():
        raise DataError(
            f"column {name!r} is constant and cannot have {n} states; leave it out, or use bins={{{name!r}: None}}"
        )
    n = min(n, 2 * len(numbers))  # more have the same edges: all numbers
    edges = np.unique(np.quantile(numbers, np.arange(1, n) / n, method="inverted_cdf"))
    below: Floats = edges[edges < numbers.max()]
    return below
