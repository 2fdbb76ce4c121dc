"""Outliers of a table by distance: the n rows that are farthest from their nearest rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..columns import Table
from ..errors import DataError
from ..options.compute import Compute
from ..util import late_imports
from ..util.arguments import callback, check_keywords, choice, whole_number
from ..util.arrays import Bools, Floats, Ints
from ..util.equality import ByValue
from ..util.options import Against, EngineName, Metric, OutlierMethod, Scale, ScreenMissing, TableLike
from . import reference
from .columns import LearnedColumns, as_array_like, like_cases, open_rows, take_rows
from .engine import ScreenTarget
from .table import Progress, Screened, Top, check_finite

# Screening on a cluster: each worker has all rows, and searches a part of them.

Part = tuple[int, int]


def top_on(cluster: object, screened: Screened, n: int, progress: Progress | None = None) -> tuple[Top, dict[str, int]]:
    top, searched, pairs, n_done = Top.of(n), 0, 0, 0
    for (best, stats), n_parts in _results(cluster, screened, _top_of_part, n):
        top.add(best.weight, best.index)
        searched, pairs, n_done = searched + stats["searched"], pairs + stats["pairs"], n_done + 1
        if progress is not None:
            progress(len(screened.rows) * n_done // n_parts, len(screened.rows), "outliers")
    check_finite(top.weight)
    return top, {"rows": len(screened.rows), "different": stats["different"], "searched": searched, "pairs": pairs}


def weights_on(cluster: object, screened: Screened, progress: Progress | None = None) -> tuple[Floats, int]:
    kinds, pairs, n_done = screened.kinds[1], 0, 0
    weights_of_rows = np.empty(len(screened.kinds[0]))
    for (items, weights, more), n_parts in _results(cluster, screened, _weights_of_part, None):
        weights_of_rows[items] = weights
        pairs, n_done = pairs + more, n_done + 1
        if progress is not None:
            progress(len(kinds) * n_done // n_parts, len(kinds), "weights")
    return weights_of_rows[kinds], pairs


def _results(cluster: object, screened: Screened, work: object, more: object) -> Any:
    """The result of each part, and the number of parts."""
    parts: list[Part] = []

    def divide(n_workers: int) -> list[Part]:
        n = max(min(n_workers, len(screened.kinds[0])), 1)
        parts.extend((i, n) for i in range(n))
        return parts

    shared = replace(screened), more
    for run_task in late_imports.cluster().run_tasks(cluster, work, shared, divide, screened.target.backend):
        yield run_task, len(parts)


def _on_worker(screened: Screened, threads: int) -> Screened:
    devices = (0,) if screened.target.backend == "gpu" else ()  # a worker sees its own GPU only
    return replace(screened, target=ScreenTarget(screened.target.backend, threads, devices))


def _top_of_part(shared: tuple[Screened, int], part: Part, threads: int) -> tuple[Top, dict[str, int]]:
    """The task of a worker."""
    screened, n = shared
    return _on_worker(screened, threads).top(n, None, *part)


def _weights_of_part(shared: tuple[Screened, None], part: Part, threads: int) -> Any:
    """The task of a worker."""
    return _on_worker(shared[0], threads).weights_of_part(*part)


METHODS = ("auto", "search", "all")


@check_keywords()
@dataclass(frozen=True, eq=False)
class Outliers(ByValue):
    """The n rows of a table with the largest weights. A row's weight is the sum of its k smallest distances.

    Attributes
    ----------
    index : (n,) ndarray of int64
        Rows, by weight descending; of equal weights the first rows.
    weight : (n,) ndarray of float64
    threshold : float
        Weight of the n-th row: rows that reach it are outliers.
    k : int
        Number of distances that are added; one is that of the row to itself.
    metric, missing, backend, reason : str
        What was chosen for ``"auto"``, and why this backend.
    stats : dict
        Number of rows, of different rows, of rows that were searched, and of distances that were computed.
    all_weights : (N,) ndarray of float64, or None
        Weights of all rows, for ``method="all"``.
    """

    index: Ints
    weight: Floats
    threshold: float
    k: int
    metric: str
    missing: str
    backend: str
    reason: str
    stats: dict[str, int]
    all_weights: Floats | None = field(repr=False)
    _cases: Any = field(repr=False)
    _table: Table = field(repr=False)
    _screened: Screened = field(repr=False)

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        n, total = len(self.index), self.stats["rows"]
        return f"<Outliers: {n} of {total:,} rows, {self.metric}, k={self.k}, weight >= {self.threshold:.6g}>"

    @cached_property
    def solving_set(self) -> Ints:
        """A certificate, computed on first use: rows S, ascending, that alone prove the result.

        S holds every row whose weight reaches the threshold. Every other row is nearer than that to k rows of S, and
        therefore no outlier.
        """
        return self._screened.solving_set(Top(len(self.index), self.weight, self.index))

    @cached_property
    def neighbours(self) -> Ints:
        """(n, k-1) nearest other rows of each outlier, the nearest first; ties are in the table's order."""
        rows, neighbours = self._screened.rows, np.empty((len(self.index), self.k - 1), np.int64)
        for i, row in enumerate(self.index):
            keys = reference.keys(self._screened.columns.measure, rows, int(row), rows)
            keys[row] = np.inf
            if self.k > 1:
                near = np.flatnonzero(keys <= np.partition(keys, self.k - 2)[self.k - 2])
                neighbours[i] = near[np.lexsort((near, keys[near]))[: self.k - 1]]
        return neighbours

    @cached_property
    def others(self) -> Ints:
        """The rows that are no outliers, ascending."""
        return np.delete(np.arange(self.stats["rows"]), self.index)

    def frame(self, **more: Any) -> Any:
        """The outliers as a table of the kind of the cases, with the columns ``rank``, ``weight`` and ``nearest``.

        ``nearest`` is the number of the nearest other row, from 0. `more`: additional columns of n cells.
        """
        nearest = self.neighbours[:, 0] if self.k > 1 else self.index
        columns = {"rank": np.arange(1, len(self.index) + 1), "weight": self.weight, "nearest": nearest, **more}
        return take_rows(self._cases, self._table, self.index, columns)

    def drop(self) -> Any:
        """The table without the outliers, of the same kind."""
        return take_rows(self._cases, self._table, self.others, {})

    def weights(self, new: TableLike, against: Against = "all") -> Floats:
        """Weights of new rows: the sums of their k smallest distances to the rows of the table, (B,).

        A row of the table has the weight that it has among the others, since its distance to itself counts.

        Parameters
        ----------
        new : table
            With the columns of the cases.
        against : {"all", "solving_set"}
            ``"solving_set"`` computes upper bounds from the rows of `solving_set` alone, in much less time.
        """
        choice("against", against, ("all", "solving_set"))
        some = self.solving_set if against == "solving_set" else None
        return self._screened.against(self._screened.columns.read(new), some)

    def predict(self, new: TableLike, against: Against = "all") -> Bools:
        """Whether new rows are outliers: whether their weights reach the threshold, (B,).

        With ``against="solving_set"`` every outlier is found, but some other rows may be reported, too.
        """
        outlying: Bools = self.weights(new, against) >= self.threshold
        return outlying


USED = "backend threads devices cluster progress"  # of Compute


def _screen(
    cases: Any, k: Any, columns: Callable[[Table], LearnedColumns], compute: Compute, every: bool
) -> tuple[Table, Screened]:
    whole_number("k", k, 1)
    callback("progress", compute.progress)
    table = open_rows(cases)
    if not table.n:
        raise DataError("the table has no rows")
    target = ScreenTarget.resolve(
        compute.backend, compute.threads, compute.devices, table.n, int(k), every=every, cluster=compute.cluster
    )
    learned = columns(table)
    if table.n < k:
        raise DataError(f"the table has {table.n} rows, fewer than k={k}; use a smaller k")
    return table, Screened(learned, int(k), target)


def _weights(screened: Screened, compute: Compute) -> tuple[Floats, int]:
    progress: Any = compute.progress
    result = screened.weights(progress) if compute.cluster is None else weights_on(compute.cluster, screened, progress)
    check_finite(result[0])
    return result


def top_outliers(  # noqa: PLR0913 (public)
    cases: TableLike, n: int = 50, k: int = 21, metric: Metric = "auto", missing: ScreenMissing = "auto", *,
    scale: Scale | None = None, method: OutlierMethod = "auto", net: object = None,
    columns: Iterable[str] | None = None, compute: Compute | EngineName = Compute(),
) -> Outliers:  # fmt: skip
    """Find the n rows of a table that are farthest from their nearest rows. The result is exact.

    Parameters
    ----------
    cases : data frame, mapping of columns, list of mappings, or (N, a) array
    n : int
        Number of outliers.
    k : int
        A row's weight is the sum of its k smallest distances, that to itself included: scikit-learn's and PyOD's
        ``n_neighbors`` plus one.
    metric : {"auto", "euclidean", "manhattan", "hamming", "gower"}
        ``"hamming"``: share of columns that differ. ``"gower"``: mean over columns of ``|x - y| / range`` for numbers
        and of 0 or 1 for others. ``"auto"``: Euclidean for columns of numbers, Hamming for other columns and for those
        of `net`, Gower for both kinds.
    missing : {"auto", "ignore", "state", "error"}
        ``"ignore"``: distances are means over the columns that both rows have, and 1 if there is none; ``"state"``: a
        missing cell is one more state. Both for ``"hamming"`` and ``"gower"``. ``"auto"``: ``"ignore"`` for these,
        ``"error"`` for others.
    scale : {"std", "range"}, optional
        For ``"euclidean"`` and ``"manhattan"``: divide each column by its standard deviation or its range.
    method : {"auto", "search", "all"}
        ``"search"``: stop computing a row's weight as soon as it is too small; ``"all"``: compute all weights.
    net : network or compiled tree, optional
        Compare the columns that are its variables, by their states.
    columns : list of str, optional
        Columns to compare. Default: all. Leave out columns that number or name the rows.
    compute : Compute or {"auto", "cpu", "gpu", "reference"}
        Results are bit-identical on all of them. ``"auto"``: ``"gpu"`` for large tables where there is one. The workers
        of a cluster search parts of the rows; the table has to fit the memory of each. A function ``progress`` is
        called with the number of rows that are settled, the number of all rows, and what is computed.

    Returns
    -------
    Outliers

    Raises
    ------
    DataError
        If the table has fewer than k or n rows, a cell that is missing or infinite and may not be, a row without
        observed cells, or columns that do not fit the metric; the message names row and column.

    Examples
    --------
    >>> from jtgpu import screen
    >>> found = screen.top_outliers({"x": [1.0, 1.5, 9.0, 2.0], "y": [0.0, 0.5, 9.0, 1.0]}, n=1, k=2)
    >>> found.index.tolist(), found.neighbours.tolist()
    ([2], [[3]])
    """
    whole_number("n", n, 1)
    choice("method", method, METHODS)
    every = method == "all"
    compute = Compute.of(compute, USED, "top_outliers")
    table, screened = _screen(
        cases, k, lambda t: LearnedColumns.learn(t, cases, metric, missing, scale, net, columns), compute, every
    )
    if table.n < n:
        raise DataError(f"the table has {table.n} rows, fewer than n={n}; use a smaller n")
    outliers = None
    if every or screened.target.backend == "reference":
        outliers, pairs = _weights(screened, compute)
        top = Top.of(n)
        top.add(outliers, np.arange(table.n))
        different = len(screened.kinds[0])
        stats = {"rows": table.n, "different": different, "searched": different, "pairs": pairs}
    else:
        progress: Any = compute.progress
        on = compute.cluster
        top, stats = screened.top(n, progress) if on is None else top_on(on, screened, n, progress)
    learned = screened.columns
    return Outliers(
        top.index, top.weight, float(top.weight[-1]), screened.k, learned.measure.metric, learned.missing,
        screened.target.backend, screened.target.reason, stats, outliers, cases, table, screened,
    )  # fmt: skip


def weights(  # noqa: PLR0913 (public)
    cases: TableLike, k: int = 21, metric: Metric = "auto", missing: ScreenMissing = "auto", *,
    scale: Scale | None = None, net: Any = None, columns: Iterable[str] | None = None,
    compute: Compute | EngineName = Compute(),
) -> Any:  # fmt: skip
    """The weights of all rows of a table: the sums of their k smallest distances.

    For columns of numbers the time grows with the square of the number of rows from about eight columns on.
    `top_outliers` is much faster if only the largest weights are needed.

    Parameters
    ----------
    cases, k, metric, missing, scale, net, columns, compute
        See `top_outliers`.

    Returns
    -------
    (N,) ndarray of float64, or table
        For an array its weights; for another table one of the same kind with the additional column ``weight``.

    Examples
    --------
    >>> from jtgpu import screen
    >>> screen.weights([[0.0], [1.0], [5.0]], k=2).tolist()
    [1.0, 1.0, 4.0]
    """
    compute = Compute.of(compute, USED, "weights")
    table, screened = _screen(
        cases, k, lambda t: LearnedColumns.learn(t, cases, metric, missing, scale, net, columns), compute, True
    )
    result, _ = _weights(screened, compute)
    return result if as_array_like(cases) else like_cases(cases, table, {"weight": result})
