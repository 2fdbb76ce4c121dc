"""Numeric columns as intervals: `Discretiser`, a transformer with scikit-learn's interface, and `discretise`.

scikit-learn itself is not needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..columns import Table, known_cells, open_table, read_column
from ..columns.scale import (
    Scale,
    columns_to_cut,
    given_cuts,
    kind_of,
    mdl_cuts,
    quantile_cuts,
    read_scale,
    replaced,
    whole_dates,
    width_cuts,
)
from ..errors import ArgumentError, DataError, UnknownVariable, closest
from ..util.arguments import check_keywords, choice, whole_number
from ..util.arrays import Ints
from ..util.estimator import Estimator, check_table, check_width, feature_names_out

if TYPE_CHECKING:
    from datetime import datetime

    from numpy.typing import ArrayLike, NDArray

    from ..util.options import TableLike

DEFAULT_BINS = 5


How = Literal["quantile", "width", "edges", "mdl"]
Bins = int | Sequence[Any] | Mapping[str, Any]


@check_keywords()
class Discretiser(Estimator):
    """Intervals of numeric columns: a transformer with scikit-learn's interface.

    In a pipeline the intervals come from the training rows of each fold alone. Columns of numbers and of dates with
    more distinct values than `bins` are cut; the categories of an ordinal scale (a categorical column) are joined with
    their neighbours if `columns` or `bins` names the column. Other columns stay as they are.

    Parameters
    ----------
    how, bins, target, columns
        See `jtgpu.learn.discretise`. For ``"mdl"``, the `y` of `fit` is used if there is no `target`.
    encode : {"names", "numbers"}, default "names"
        What `transform` replaces values by: names of intervals, for networks, or their numbers from 0, float64, NaN
        where the value is missing, for other estimators.

    Attributes
    ----------
    edges : mapping of str to ndarray
        Cut points of each column, ascending: k cut points make k + 1 intervals, each with its lower end. Those of dates
        are datetime64.
    states : mapping of str to tuple of str
        Names of the intervals of each column, ascending: ``"(-inf, 2.5)"``, ``"[2.5, 4)"``, ``"[4, inf)"``.
    ends : mapping of str to tuple of two numbers
        Least and greatest value of each column of numbers or dates in the data.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Names of the columns; only defined if X in `fit` had column names.

    Examples
    --------
    >>> from jtgpu.learn import Discretiser
    >>> intervals = Discretiser(bins=2).fit({"age": [31, 47, 52, 68, 75, None]})
    >>> intervals.transform({"age": [31, 90]})["age"], intervals.ends["age"]
    (['(-inf, 52)', '[52, inf)'], (31.0, 75.0))
    """

    _fitted = "scales_"

    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    scales_: dict[str, Scale]

    def __init__(
        self, how: How = "quantile", bins: Bins = DEFAULT_BINS, target: str | None = None, *,
        columns: Iterable[str] | None = None, encode: Literal["names", "numbers"] = "names",
    ):  # fmt: skip
        self.how = how
        self.bins = bins
        self.target = target
        self.columns = columns
        self.encode = encode

    def __sklearn_tags__(self) -> Any:
        tags = importlib.import_module("sklearn.utils")  # called by scikit-learn only
        return tags.Tags(
            estimator_type="transformer",
            target_tags=tags.TargetTags(required=False),
            transformer_tags=tags.TransformerTags(preserves_dtype=[]),
            input_tags=tags.InputTags(categorical=True, string=True, allow_nan=True),
        )

    # Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: TableLike, y: ArrayLike | None = None) -> Discretiser:
        """Find the intervals of a table.

        Parameters
        ----------
        X : data frame, mapping of columns, list of mappings, or array
        y : (n,) array_like, optional
            Classes, for ``how="mdl"`` without `target`; otherwise ignored.

        Returns
        -------
        Discretiser
            The estimator itself.

        Raises
        ------
        DataError, ArgumentError
            See `jtgpu.learn.discretise`.
        """
        choice("how", self.how, ("quantile", "width", "edges", "mdl"))
        choice("encode", self.encode, ("names", "numbers"))
        check_table(X)
        table = open_table(None, X)
        classes = self._classes(table, y)
        given = self.columns if self.columns is not None else self.bins if isinstance(self.bins, Mapping) else None
        most = 0 if given is not None or self.how in ("mdl", "edges") else whole_number("bins", self.bins, 2)
        wanted = columns_to_cut(table, given, most, self.target)
        self.scales_ = {name: self._scale(table, name, classes) for name in wanted}
        self.n_features_in_ = len(table.names)
        self.__dict__.pop("feature_names_in_", None)
        if not table.by_index:
            self.feature_names_in_ = np.array(table.names, object)
        return self

    def _classes(self, table: Table, y: object) -> Ints | None:
        """The class of each row (n,) for ``"mdl"``, -1: missing."""
        if self.target is not None and self.target not in table.names:
            known = closest(str(self.target), table.names)
            raise UnknownVariable(f"target: there is no column {self.target!r}{known}")
        if self.how != "mdl":
            return None
        if self.target is None and y is None:
            raise ArgumentError("how='mdl' needs the column of classes: target=, or y of fit")
        column = table.column(self.target) if self.target is not None else np.asarray(y).reshape(-1)
        codes = known_cells(self.target or "y", column, table.row_name).index
        if len(codes) != table.n:
            raise DataError(f"X has {table.n} rows and y {len(codes)}; expected equal numbers of rows")
        return codes

    def _scale(self, table: Table, name: str, classes: Ints | None) -> Scale:
        """The intervals of one column."""
        column = read_column(name, table)
        kind = kind_of(column) or "numbers"
        categories = tuple(column.cells) if kind == "categories" else ()
        numbers = read_scale(table, name, kind, categories)
        known = numbers[~np.isnan(numbers)]
        if not len(known):
            raise DataError(f"column {name!r} has no number")
        if kind == "numbers" and known.min() == known.max() and len(column.used()[1]) > 1:
            raise DataError(f"column {name!r} has different integers that are one float; subtract the least of them")
        own = self.bins.get(name, DEFAULT_BINS) if isinstance(self.bins, Mapping) else self.bins
        if self.how == "edges":
            cuts = given_cuts(name, own, kind, categories)
        elif classes is not None:
            both = ~np.isnan(numbers) & (classes >= 0)
            cuts = mdl_cuts(numbers[both], np.unique(classes[both], return_inverse=True)[1].reshape(-1))
        elif kind == "categories" and len(categories) <= whole_number("bins", own, 2):
            cuts = np.arange(1.0, len(categories))
        else:
            cuts = (quantile_cuts if self.how == "quantile" else width_cuts)(known, whole_number("bins", own, 2))
        if kind == "dates":
            cuts = whole_dates(cuts, known)
        if kind == "categories":
            cuts = np.unique(np.ceil(cuts))
        return Scale(kind, cuts, float(known.min()), float(known.max()), categories)

    # What was learned ---------------------------------------------------------------------------------------------

    @property
    def edges(self) -> Mapping[str, NDArray[np.float64] | NDArray[np.datetime64]]:
        """Cut points of each column of numbers or dates."""
        scales = self._scales("edges").items()
        return MappingProxyType({v: s.cells(s.cuts) for v, s in scales if s.has_numbers})

    @property
    def states(self) -> dict[str, tuple[str, ...]]:
        """Names of the intervals of each column, ascending."""
        return {name: scale.labels for name, scale in self._scales("states").items()}

    @property
    def ends(self) -> dict[str, tuple[float, float] | tuple[datetime, datetime]]:
        """Least and greatest value of each column of numbers or dates."""
        scales = self._scales("ends").items()
        return {v: tuple(s.cells(np.array([s.least, s.greatest])).tolist()) for v, s in scales if s.has_numbers}

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the columns of the result, those of the table, as an array of str.

        Raises
        ------
        ArgumentError
            If `input_features` are not the columns of `fit`.
        """
        self._check_fitted("get_feature_names_out")
        return feature_names_out(self, input_features)

    def _scales(self, name: str) -> dict[str, Scale]:
        self._check_fitted(name)
        return self.scales_

    # Using it -----------------------------------------------------------------------------------------------------

    def transform(self, X: TableLike) -> Any:
        """Replace values by their intervals; other columns stay as they are.

        Parameters
        ----------
        X : data frame, mapping of columns, list of mappings, or array

        Returns
        -------
        table of the same kind
            Missing cells stay missing. Arrays have the dtype object, or float64 with ``encode="numbers"`` and no text.

        Raises
        ------
        DataError
            If a column is missing, or a cell is not a number, a date or a category as in `fit`.
        """
        table = self._open(X, "transform")
        made: dict[str, Any] = {}
        for name, scale in self.scales_.items():
            at = scale.place(scale.read(table, name))
            if self.encode == "numbers":
                made[name] = np.where(at < 0, np.nan, at)
            else:
                labels = [*scale.labels, None]
                made[name] = [labels[i] for i in at.tolist()]
        return replaced(X, table, made)

    def fit_transform(self, X: TableLike, y: ArrayLike | None = None) -> Any:
        """Find the intervals of a table, and replace its values; see `fit` and `transform`."""
        return self.fit(X, y).transform(X)

    def inverse_transform(self, X: TableLike, *, seed: int | np.random.Generator | None = None) -> Any:
        """Replace intervals by numbers or dates inside them.

        Parameters
        ----------
        X : table
            Names of intervals, such as samples of a network, or their numbers with ``encode="numbers"``.
        seed : optional
            None gives the middle of each interval; otherwise values are drawn uniformly inside it
            (`numpy.random.default_rng`). The outer intervals end at the least and the greatest value in the data.

        Returns
        -------
        table of the same kind
            The groups of an ordinal scale stay as they are.
        """
        table = self._open(X, "inverse_transform")
        rng = None if seed is None else np.random.default_rng(seed)
        made: dict[str, Any] = {}
        for name, scale in self.scales_.items():
            if scale.has_numbers:
                made[name] = scale.cells(scale.middle(scale.read_names(table, name), rng))
        return replaced(X, table, made)

    def apply(self, frame: TableLike) -> Any:
        """Replace values by their intervals, as `transform`."""
        return self.transform(frame)

    def evidence(self, findings: Mapping[str, object]) -> dict[str, object]:
        """Replace the values of one case by the names of their intervals; other findings stay as they are."""
        scales = self._scales("evidence")
        return {v: scales[v].name_of(v, x) if v in scales else x for v, x in findings.items()}

    def _open(self, X: object, name: str) -> Table:
        self._check_fitted(name)
        check_table(X)
        table = open_table(None, X)
        if table.by_index:
            check_width(self, len(table.names))
        for column in self.scales_:
            if column not in table.names:
                raise DataError(f"the table has no column {column!r}{closest(column, table.names)}")
        return table


def discretise(
    frame: TableLike,
    how: How = "quantile",
    bins: Bins = DEFAULT_BINS,
    target: str | None = None,
    *,
    columns: Iterable[str] | None = None,
) -> Discretiser:
    """Find intervals for the numeric columns of a table: a fitted `Discretiser`.

    Parameters
    ----------
    frame : data frame, mapping of columns, or list of mappings
    how : {"quantile", "width", "edges", "mdl"}
        Intervals of about equal numbers of rows; of equal width; with the cut points in `bins`; or as many as tell
        something about `target` (Fayyad and Irani, IJCAI 1993).
    bins : int, sequence of float, or mapping
        Number of intervals, or the cut points for ``"edges"`` (numbers, dates, or the first categories of groups); a
        mapping gives them for each column.
    target : str, optional
        The column of classes for ``"mdl"``; it is not discretised.
    columns : iterable of str, optional
        Columns to discretise. Default: those of `bins` if it is a mapping, else all columns of numbers or dates with
        more distinct values than `bins`. Categorical columns that are named are ordinal scales: neighbouring categories
        are joined.

    Returns
    -------
    Discretiser
        ``.transform(frame)`` replaces numbers by names of intervals, ``.states`` has these names, ``.edges`` the cut
        points and ``.ends`` the least and greatest values. A network whose states are these intervals takes the numbers
        themselves as evidence, too.

    Raises
    ------
    DataError
        If a column has text, no value, or dates with a time zone.
    ArgumentError
        If an option is invalid.

    Examples
    --------
    >>> import jtgpu
    >>> table = {"age": [31, 47, 52, 68, 75, None]}
    >>> intervals = jtgpu.learn.discretise(table, bins=2)
    >>> intervals.states["age"], intervals.transform(table)["age"][0]
    (('(-inf, 52)', '[52, inf)'), '(-inf, 52)')
    """
    return Discretiser(how, bins, target, columns=columns).fit(frame)
