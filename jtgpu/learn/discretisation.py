"""Numeric columns as intervals; see `jtgpu.learn.discretise`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import ArgumentError, DataError, UnknownVariable, closest
from ..inference.tables import Table, column_values, open_table
from ..inference.tables.arrow import narwhals
from ..inference.tables.plain_table import NativeFrame
from ..util.arguments import choice, several, whole_number
from ..util.arguments import names as given_names
from ..util.arrays import Floats, Ints
from ..util.elementary import log, logs
from ..util.text_table import interval_labels

if TYPE_CHECKING:
    from ..util.options import TableLike

# Cut points of a numeric column: by quantiles, by equal width, and by the information about a class.

LN2 = log(2.0)


def quantile_cuts(values: Floats, bins: int, counts: Ints | None = None) -> Floats:
    """Cut points between intervals of about equal numbers of values; fewer where values recur."""
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
    cuts = np.unique(np.where(exact, (distinct[at] + distinct[following]) / 2, distinct[at]))
    return np.asarray(cuts[cuts > distinct[0]], np.float64)


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


# `discretise`: intervals for the numeric columns of a table.

HOW = ("quantile", "width", "edges", "mdl")


@dataclass(frozen=True, eq=False)
class Discretiser:
    """Intervals of numeric columns, made by `discretise`.

    Attributes
    ----------
    edges : mapping of str to ndarray
        Cut points of each column, ascending: k cut points make k + 1 intervals, each with its lower end.
    """

    edges: Mapping[str, Floats]

    @property
    def states(self) -> dict[str, tuple[str, ...]]:
        """Names of the intervals of each column, ascending: ``"(-inf, 2.5)"``, ``"[2.5, 4)"``, ``"[4, inf)"``."""
        return {name: interval_labels(cuts.tolist()) for name, cuts in self.edges.items()}

    def apply(self, frame: Any) -> Any:
        """Replace the numbers of a table by the names of their intervals; other columns stay as they are.

        Parameters
        ----------
        frame : data frame, mapping of columns, or list of mappings

        Returns
        -------
        table of the same kind
            Missing cells stay missing.

        Raises
        ------
        DataError
            If a column is missing, or a cell is not a number.
        """
        table = open_table(None, frame)
        columns = {}
        for name, cuts in self.edges.items():
            if name not in table.names:
                raise DataError(f"the table has no column {name!r}{closest(name, table.names)}")
            columns[name] = self._names(cuts, numbers_of(table, name))
        if isinstance(table, NativeFrame):
            if table.is_pandas:
                return table.native.assign(**columns)
            nw, own = narwhals(), table.frame
            made = (nw.new_series(n, cells, nw.String, backend=own.implementation) for n, cells in columns.items())
            return own.with_columns(*made).to_native()
        if isinstance(frame, Mapping):
            return {**frame, **columns}
        if isinstance(frame, (list, tuple)) and all(isinstance(row, Mapping) for row in frame):
            return [
                {**row, **{name: cells[i] for name, cells in columns.items() if name in row}}
                for i, row in enumerate(frame)
            ]
        raise DataError("columns need names: pass a data frame, a mapping of columns, or a list of mappings")

    def evidence(self, findings: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the numbers of one case by the names of their intervals."""
        return {
            v: self._names(self.edges[v], np.array([float(x)]))[0]
            if v in self.edges and isinstance(x, (int, float, np.number)) and not isinstance(x, bool)
            else x
            for v, x in findings.items()
        }

    @staticmethod
    def _names(cuts: Floats, numbers: Floats) -> list[str | None]:
        labels = [*interval_labels(cuts.tolist()), None]
        at = np.searchsorted(cuts, numbers, side="right")
        return [labels[i] for i in np.where(np.isnan(numbers), len(labels) - 1, at).tolist()]


def discretise(
    frame: TableLike,
    how: Literal["quantile", "width", "edges", "mdl"] = "quantile",
    bins: int | Sequence[float] | Mapping[str, Any] = 5,
    target: str | None = None,
    *,
    columns: Iterable[str] | None = None,
) -> Discretiser:
    """Find intervals for the numeric columns of a table.

    Parameters
    ----------
    frame : data frame, mapping of columns, or list of mappings
    how : {"quantile", "width", "edges", "mdl"}
        Intervals of about equal numbers of rows; of equal width; with the cut points in `bins`; or as many as tell
        something about `target` (Fayyad and Irani, IJCAI 1993).
    bins : int, sequence of float, or mapping
        Number of intervals, or the cut points for ``"edges"``; a mapping gives them for each column.
    target : str, optional
        The column of classes for ``"mdl"``; it is not discretised.
    columns : iterable of str, optional
        Columns to discretise. Default: those of `bins` if it is a mapping, else all columns of numbers with more
        distinct values than `bins`.

    Returns
    -------
    Discretiser
        ``.apply(frame)`` replaces numbers by names of intervals, ``.states`` has these names, and ``.edges`` the cut
        points. A network whose states are these intervals takes the numbers themselves as evidence, too.

    Raises
    ------
    DataError
        If a column is not numeric, or has no number; or if a column has dates, unless `columns` or `bins` name others.
    ArgumentError
        If an option is invalid.

    Examples
    --------
    >>> import jtgpu
    >>> table = {"age": [31, 47, 52, 68, 75, None]}
    >>> intervals = jtgpu.learn.discretise(table, bins=2)
    >>> intervals.states["age"], intervals.apply(table)["age"][0]
    (('(-inf, 52)', '[52, inf)'), '(-inf, 52)')
    """
    choice("how", how, HOW)
    table = open_table(None, frame)
    if how == "mdl" and target is None:
        raise ArgumentError("how='mdl' needs the column of classes: target=")
    if target is not None and target not in table.names:
        raise UnknownVariable(f"target: there is no column {target!r}{closest(str(target), table.names)}")
    wanted = _columns(table, bins, target, columns, how)
    intervals = {}
    for name in wanted:
        numbers = numbers_of(table, name)
        known = numbers[~np.isnan(numbers)]
        if not len(known):
            raise DataError(f"column {name!r} has no number")
        own = bins.get(name, 5) if isinstance(bins, Mapping) else bins
        if how == "edges":
            intervals[name] = _given_edges(name, own)
        elif how == "mdl":
            assert target is not None
            classes, _ = column_values(target, table.column(target), table.row_name)
            both = ~np.isnan(numbers) & (classes >= 0)
            intervals[name] = mdl_cuts(numbers[both], np.unique(classes[both], return_inverse=True)[1].reshape(-1))
        else:
            n = whole_number("bins", own, 2)
            intervals[name] = (quantile_cuts if how == "quantile" else width_cuts)(known, n)
    return Discretiser(intervals)


def _columns(table: Table, bins: Any, target: str | None, columns: Iterable[str] | None, how: str) -> list[str]:
    """The columns to discretise."""
    given = columns if columns is not None else bins if isinstance(bins, Mapping) else None
    if given is not None:
        names = [given] if isinstance(given, str) else [str(c) for c in given_names("columns", given)]
        for name in names:
            if name not in table.names:
                raise UnknownVariable(f"there is no column {name!r}{closest(name, table.names)}")
        return names
    most = 0 if how in ("mdl", "edges") else whole_number("bins", bins, 2)
    named = []
    for name in table.names:
        if name == target:
            continue
        values = column_values(name, table.column(name), table.row_name)[1]
        if len(values) > most and all(isinstance(v, (date, np.datetime64)) for v in values):
            raise DataError(
                f"column {name!r} has dates, which have no intervals: make a number of it, such as days since a date, "
                "leave it out, or name the columns of numbers: columns=[...]"
            )
        if len(values) > most and all(
            isinstance(v, (int, float, np.number)) and not isinstance(v, bool) for v in values
        ):
            named.append(name)
    return named


def _given_edges(name: str, edges: Any) -> Floats:
    try:
        cuts = np.asarray(several(edges), np.float64)
    except (TypeError, ValueError):
        cuts = np.zeros((0, 0))
    if cuts.ndim != 1 or not len(cuts) or not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
        raise ArgumentError(f"bins: the cut points of {name!r} must be ascending numbers, not {edges!r}")
    return cuts


def numbers_of(table: Table, name: str) -> Floats:
    """A column as numbers, NaN where it is missing."""
    # raises DataError: For the first cell that is not a number.
    codes, values = column_values(name, table.column(name), table.row_name)
    numbers = np.full(len(values) + 1, np.nan)
    for i, value in enumerate(values):
        try:
            numbers[i] = float(value)
        except (TypeError, ValueError):
            numbers[i] = np.inf
        if not np.isfinite(numbers[i]):
            rows = np.flatnonzero(codes == i)
            if not len(rows):
                continue
            raise DataError(f"{table.row_name(int(rows[0]))}, column {name!r}: {value!r} is not a finite number")
    return np.asarray(numbers[codes], np.float64)
