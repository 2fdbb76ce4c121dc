"""Columns that are cut into intervals: numbers, dates and the categories of an ordinal scale, each as numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from ..errors import ArgumentError, DataError, UnknownState, UnknownVariable, closest, shown
from ..util.arguments import names, several
from ..util.arrays import Floats, Ints
from ..util.elementary import log, logs
from ..util.text_table import interval_labels
from . import Table, as_numbers, known_cells, read_column, reject_infinite
from .arrow import narwhals
from .column import Column
from .kinds import moment_names
from .memory import NativeFrame

Kind = Literal["numbers", "dates", "categories"]

DAY = 86_400.0  # seconds
SHORT = ("float16", "float32", "halffloat", "float")  # whose cells are read as their text: .1 of 32 bits is .1
_DATE = re.compile(r"\s*\d{4}-\d\d-\d\d(?!\d)")
Values = tuple[Ints, list[Any]]  # of a column: which of its distinct values each cell is, -1: missing


def kind_of(column: Column) -> Kind | None:
    """The kind of scale of a column; None: it is text, or has no value."""
    if not column.cells:
        return None
    if all(isinstance(v, (date, np.datetime64)) for v in column.cells):
        return "dates"
    if all(isinstance(v, (int, float, Decimal, np.number)) and not isinstance(v, bool) for v in column.cells):
        return "numbers"
    return "categories" if column.declared else None


@dataclass(frozen=True, eq=False)
class Scale:
    """The intervals of one column."""

    kind: Kind
    cuts: Floats  # (k,) ascending; dates in seconds since 1970; categories by number, the first one of each group
    least: float = np.nan  # of the data, as `cuts`
    greatest: float = np.nan
    categories: tuple[Any, ...] = ()  # in order

    @property
    def has_numbers(self) -> bool:
        """Whether the column has numbers or dates, not categories."""
        return self.kind != "categories"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the intervals, ascending."""
        if self.kind == "categories":
            firsts = [0, *self.cuts.astype(int).tolist(), len(self.categories)]
            pairs = itertools.pairwise(firsts)
            ends = [(str(self.categories[i]), str(self.categories[j - 1])) for i, j in pairs]
            return tuple(low if low == high else f"{low} to {high}" for low, high in ends)
        if self.kind == "dates":
            texts = ["-inf", *moment_names(self.cuts.astype(np.int64).astype("datetime64[s]")), "inf"]
            return tuple(f"{'(' if low == '-inf' else '['}{low}, {high})" for low, high in itertools.pairwise(texts))
        return interval_labels(self.cuts.tolist())

    def read(self, table: Table, name: str) -> Floats:
        """A column as numbers (n,), NaN where it is missing."""
        # raises DataError: For the first cell that is none.
        return read_scale(table, name, self.kind, self.categories)

    def place(self, numbers: Floats) -> Ints:
        """The interval of each number (n,); -1: missing."""
        return np.where(np.isnan(numbers), -1, np.searchsorted(self.cuts, numbers, side="right")).astype(np.int64)

    def read_names(self, table: Table, name: str) -> Ints:
        """A column of names or numbers of intervals as their numbers (n,); -1: missing."""
        # raises UnknownState: For the first cell that is none.
        labels = self.labels
        place: dict[Any, int] = {**{label: i for i, label in enumerate(labels)}, **{i: i for i in range(len(labels))}}
        column = read_column(name, table)
        codes, values = column.index, column.cells
        at = [place.get(v, -1) for v in values]
        for i in np.flatnonzero(np.array(at) < 0).tolist():
            if (codes == i).any():
                row = table.row_name(int(np.argmax(codes == i)))
                raise UnknownState(
                    f"{row}, column {name!r}: {values[i]!r} is none of its intervals{closest(str(values[i]), labels)}"
                )
        return np.asarray(np.array([*at, -1], np.int64)[codes])

    def middle(self, at: Ints, rng: np.random.Generator | None) -> Floats:
        """The middle of intervals (n,), or draws inside them; the outer ones end at the data's least and greatest."""
        ends = np.array([self.least, *self.cuts, self.greatest])
        if len(self.cuts):  # given cut points may be outside the data
            ends[0], ends[-1] = min(ends[0], ends[1]), max(ends[-1], ends[-2])
        share = 0.5 if rng is None else rng.random(len(at))
        return np.asarray(np.where(at < 0, np.nan, ends[at] + share * (ends[at + 1] - ends[at])))

    def name_of(self, variable: str, value: object) -> Any:
        """The name of the interval of one value; values that are none, such as names of intervals, stay as they are."""
        if isinstance(value, bool) or (isinstance(value, str) and value in self.labels):
            return value
        try:
            number = number_of(value, self.kind, places_of(self.categories))
        except (TypeError, ValueError, OverflowError, KeyError):
            return value
        return self.labels[int(self.place(np.array([number]))[0])] if np.isfinite(number) else value

    def cells(self, numbers: Floats) -> Any:
        """Numbers as cells of the column's type: dates are datetime64."""
        if self.kind != "dates":
            return numbers
        known = np.where(np.isnan(numbers), 0.0, numbers).astype(np.int64).astype("datetime64[s]")
        return np.where(np.isnan(numbers), np.datetime64("NaT"), known)


def columns_to_cut(table: Table, given: object, most: int, target: str | None) -> list[str]:
    """The columns that are named, or those of numbers and dates with more than `most` distinct values."""
    # raises UnknownVariable: If the table has no column of a name.
    if given is not None:
        named = [str(c) for c in names("columns", given)]
        for name in named:
            if name not in table.names:
                raise UnknownVariable(f"there is no column {name!r}{closest(name, table.names)}")
        return named
    wanted = []
    for name in table.names:
        column = read_column(name, table)
        distinct = sum(n > 0 for n in column.used()[2]) if len(column.cells) > most else 0
        if name != target and distinct > most and kind_of(column) in ("numbers", "dates"):
            wanted.append(name)
    return wanted


def whole_dates(cuts: Floats, values: Floats) -> Floats:
    """Cut points between dates that divide the same values at whole days, or at whole seconds."""
    unit = DAY if (np.mod(values, DAY) == 0).all() else 1.0
    return np.unique(np.ceil(cuts / unit) * unit)


def read_scale(table: Table, name: str, kind: Kind, categories: tuple[object, ...]) -> Floats:
    """A column as numbers (n,), NaN where it is missing; see `Scale`."""
    # raises DataError: For the first cell that is not of the kind.
    column = table.column(name)
    is_short = str(getattr(column, "dtype", getattr(column, "type", ""))) in SHORT
    if kind == "numbers" and not is_short and (plain := as_numbers(column)) is not None:
        reject_infinite(table, name, plain)
        return plain
    if isinstance(column, np.ndarray) and column.dtype.kind == "M" and kind == "dates":
        return np.asarray(np.where(np.isnat(column), np.nan, column.astype("datetime64[s]").astype(np.float64)))
    read = known_cells(name, column, table.row_name)
    codes, values = read.index, read.cells
    numbers = np.full(len(values) + 1, np.nan)
    places = places_of(categories)
    for i, value in enumerate(values):
        try:
            numbers[i] = number_of(value, kind, places)
        except (TypeError, ValueError, OverflowError, KeyError):
            numbers[i] = np.inf
        if not np.isfinite(numbers[i]) and len(rows := np.flatnonzero(codes == i)):
            raise DataError(f"{table.row_name(int(rows[0]))}, column {name!r}: {_refusal(value, kind, places)}")
    return np.asarray(numbers[codes], np.float64)


def places_of(categories: tuple[object, ...]) -> dict[str, float]:
    """Number of each category by its text."""
    return {str(c): float(i) for i, c in enumerate(categories)}


def number_of(value: Any, kind: Kind, places: dict[str, float]) -> float:
    """One value as a number."""
    # raises TypeError, ValueError, KeyError: If it is none.
    if kind == "categories":
        return places[str(value)]
    if kind == "numbers":
        return float(value)
    if getattr(value, "tzinfo", None) is not None or isinstance(value, (int, float)):
        raise TypeError
    moment = np.datetime64(value, "s")
    if np.isnat(moment):
        raise ValueError
    return float(moment.astype(np.int64))


def _refusal(value: object, kind: Kind, places: dict[str, float]) -> str:
    """Why a cell is not of the kind."""
    if kind == "categories":
        return f"{value!r} is none of the categories {shown([*places])}"
    if kind == "dates":
        zone = getattr(value, "tzinfo", None) is not None
        return f"{value!r} " + ("has a time zone; convert the column to UTC without one" if zone else "is not a date")
    if isinstance(value, (date, np.datetime64)):
        return f"{value!r} is a date; the column had numbers when the intervals were made"
    if isinstance(value, str) and _DATE.match(value):
        return f"{value!r} is text; make dates of the column first, as by pandas.to_datetime"
    return f"{value!r} is not a finite number"


def given_cuts(name: str, edges: object, kind: Kind, categories: tuple[object, ...]) -> Floats:
    """The cut points of ``how="edges"`` of one column."""
    # raises ArgumentError: If they are not ascending.
    try:
        cuts = np.array([number_of(e, kind, places_of(categories)) for e in several(edges) or ()], np.float64)
    except (TypeError, ValueError, KeyError):
        cuts = np.zeros(0)
    if not len(cuts) or not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
        raise ArgumentError(f"bins: the cut points of {name!r} must be ascending {kind}, not {edges!r}")
    return cuts


def replaced(given: Any, table: Table, made: Mapping[str, Any]) -> Any:
    """A table with some columns replaced, of the same kind."""
    # given: the table as the user gave it; table: the same, opened
    if isinstance(table, NativeFrame):
        if table.is_pandas:
            return table.native.assign(**made)
        nw, own = narwhals(), table.frame
        made_of = {name: _series(nw, name, cells, own.implementation) for name, cells in made.items()}
        return own.with_columns(*made_of.values()).to_native()
    if isinstance(given, Mapping):
        return {**given, **made}
    if not table.by_index and isinstance(given, (list, tuple)):
        return [
            {**row, **{name: cells[i] for name, cells in made.items() if name in row}} for i, row in enumerate(given)
        ]
    columns = [made.get(name, table.column(name)) for name in table.names]
    plain = all(isinstance(c, np.ndarray) and c.dtype.kind in "iufb" for c in columns)
    result = np.empty((table.n, len(columns)), np.float64 if plain else object)
    for j, column in enumerate(columns):
        result[:, j] = column
    return result


def _series(nw: Any, name: str, cells: Any, library: Any) -> Any:
    """A column of a frame; NaN of float64 is null."""
    if isinstance(cells, list):
        return nw.new_series(name, cells, nw.String, backend=library)
    if cells.dtype.kind == "M":
        return nw.new_series(name, [None if np.isnat(c) else c.item() for c in cells], nw.Datetime, backend=library)
    return nw.new_series(name, [None if c != c else c for c in cells.tolist()], nw.Float64, backend=library)


# Cut points of a numeric column: by quantiles, by equal width, and by the information about a class.

LN2 = log(2.0)


def quantile_cuts(values: Floats, bins: int, counts: Ints | None = None) -> Floats:
    """Cut points between intervals of about equal numbers of values; fewer where values recur, but one."""
    # values: (n,) float64
    # bins: Number of intervals
    # counts: (n,) int64: How often each value occurs. Default: once.
    distinct, kind = np.unique(values, return_inverse=True)
    own = np.bincount(kind.reshape(-1), counts, len(distinct))
    below = np.cumsum(own)
    # the first value after each quantile: half of the cells that are between two values count to either side
    at = np.searchsorted(below, below[-1] * np.arange(1, bins) / bins * (1 - 1e-12), side="left")
    exact = np.isclose(below[at], below[-1] * np.arange(1, bins) / bins, rtol=1e-12)
    following = np.minimum(at + 1, len(distinct) - 1)
    above, first = np.unique(np.where(exact, following, at), return_index=True)  # the least value above each cut
    cuts = np.where(exact, _middles(distinct[at], distinct[following]), distinct[at])[first[above > 0]]
    cuts = cuts[cuts > distinct[0]]
    if not len(cuts) and len(distinct) > 1:  # the least value is at every quantile, such as 0 of what few do
        cuts = np.array([max((distinct[0] + distinct[1]) / 2, np.nextafter(distinct[0], np.inf))])
    return np.asarray(cuts, np.float64)


def _middles(low: Floats, high: Floats) -> Floats:
    """Points between numbers, without the digits that rounding makes: 24242.105, not 24242.105000000003."""
    middle = (low + high) / 2
    short = np.array([float(f"{x:.12g}") for x in middle.tolist()])
    return np.where((low < short) & (short <= high), short, middle)


def width_cuts(values: Floats, bins: int) -> Floats:
    """Cut points between intervals of equal width."""
    low, high = float(values.min()), float(values.max())
    cuts = np.unique(low + (high - low) * np.arange(1, bins) / bins)
    return np.asarray(cuts[(cuts > low) & (cuts <= high)], np.float64)


def mdl_cuts(values: Floats, classes: Ints) -> Floats:
    """Cut points that pay for their description length (Fayyad and Irani, IJCAI 1993)."""
    # values: (n,) float64
    # classes: (n,) int64: Number of each value's class, >= 0
    # returns (k,) ndarray of float64: Ascending; empty if no cut pays.
    order = np.argsort(values, kind="stable")
    x, y = values[order], classes[order]
    counts = np.zeros((len(x) + 1, int(y.max(initial=0)) + 1))
    np.add.at(counts, (np.arange(1, len(x) + 1), y), 1.0)
    counts = counts.cumsum(axis=0)  # of each class among the first i values
    cuts: list[float] = []
    parts = [(0, len(x))]
    while parts:
        first, last = parts.pop()
        at = _best_cut(x, counts, first, last)
        if at is not None:
            cuts.append(float((x[at - 1] + x[at]) / 2 if x[at - 1] < (x[at - 1] + x[at]) / 2 else x[at]))
            parts += [(first, at), (at, last)]
    return np.array(sorted(cuts))


def _best_cut(x: Floats, counts: Floats, first: int, last: int) -> int | None:
    """The place in values[first:last] that leaves the least entropy, if it pays."""
    places = first + 1 + np.flatnonzero(x[first + 1 : last] > x[first : last - 1])
    if not len(places):
        return None
    n = last - first
    left, right = counts[places] - counts[first], counts[last] - counts[places]
    whole = (counts[last] - counts[first])[None, :]
    h, h_left, h_right = _entropy(whole)[0], _entropy(left), _entropy(right)
    n_left = (places - first).astype(np.float64)
    rest = (n_left * h_left + (n - n_left) * h_right) / n
    best = int(np.argmin(rest))
    k, k_left, k_right = ((part > 0).sum(axis=1) for part in (whole, left[best : best + 1], right[best : best + 1]))
    delta = log(3 ** int(k[0]) - 2) / LN2 - (k[0] * h - k_left[0] * h_left[best] - k_right[0] * h_right[best])
    gain = h - rest[best]
    return int(places[best]) if gain > (log(n - 1) / LN2 + delta) / n else None


def _entropy(counts: Floats) -> Floats:
    """Entropy in bits of each row of counts."""
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.where(total > 0, total, 1.0)
    return np.asarray(-(share * logs(np.where(share > 0, share, 1.0)) / LN2).sum(axis=1))
