"""The columns that rows are compared by: kinds, states and scales, learned from a table and applied to new rows."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import Table, as_numbers, is_codes, open_data, read_column, read_states, reject_infinite
from ..columns.arrow import arrow
from ..columns.column import Column
from ..columns.names import evidence_columns
from ..errors import ArgumentError, DataError, closest, shown
from ..inference.results.frames import table_like, unused_name
from ..model.discrete import DiscreteModel
from ..util.arguments import choice, several
from ..util.arrays import Bools, Cell, Floats, Ints
from ..util.rows import thread_map
from .engine import MISSING, UNSEEN, Measure, Rows

# Tables of the kind of the cases: all rows with more columns, or some rows.

def as_array_like(cases: object) -> bool:
    """Whether cases are an array without names of columns, or rows that make one."""
    if isinstance(cases, np.ndarray):
        return not cases.dtype.names
    is_rows = isinstance(cases, (list, tuple)) and not any(isinstance(row, Mapping) for row in cases)
    return is_rows or (hasattr(cases, "__array__") and not hasattr(cases, "columns") and not hasattr(cases, "schema"))


def like_cases(cases: object, table: Table, more: Mapping[str, object]) -> Any:
    """All rows, with more columns."""
    return table_like(cases, table, _joined({name: table.carried(name) for name in table.names}, more), table.index)


def take_rows(cases: object, table: Table, index: Ints, more: Mapping[str, object]) -> Any:
    """Some rows, with more columns; of a pandas frame with their index."""
    columns = _joined({name: _take(table.carried(name), index) for name in table.names}, more)
    return table_like(cases, table, columns, None if table.index is None else table.index[index])


def _joined(columns: dict[str, Any], more: Mapping[str, object]) -> dict[str, Any]:
    for name, column in more.items():
        columns[unused_name(name, columns)] = column
    return columns


def _take(column: Any, index: Ints) -> Any:
    """Some cells of a column."""
    if isinstance(column, Column):
        return Column(column.index[index], column.cells, column.declared)
    if isinstance(column, np.ndarray):
        return column[index]
    if isinstance(column, list):
        return [column[i] for i in index.tolist()]
    if type(column).__module__.partition(".")[0] == "pyarrow":
        return column.take(arrow().array(index))
    return column.take(index)  # of pandas


METRICS = ("auto", "euclidean", "manhattan", "hamming", "gower")
MISSING_RULES = ("auto", "ignore", "state", "error")
SCALES = ("std", "range")
BLOCK = 1 << 12  # rows

Holes = dict[str, "Bools"]  # of the columns that have any: where cells are missing


def open_rows(cases: Any) -> Table:
    """The table that rows are columns of."""
    # raises DataError: If it is none.
    if is_codes(cases) and cases.flags.c_contiguous:
        cases = _by_columns(cases)
    return open_data(cases)


def _by_columns(cells: NDArray[Cell]) -> NDArray[Cell]:
    """A copy whose columns are contiguous, made block by block so that reads and writes stay in the cache."""
    arranged = np.empty(cells.shape, cells.dtype, order="F")
    for at in range(0, len(cells), BLOCK):
        arranged[at : at + BLOCK] = cells[at : at + BLOCK]
    return arranged


@dataclass
class LearnedColumns:
    """Scales and states learned from the columns of a table."""

    names: list[str]
    measure: Measure
    missing: str  # ``"ignore"``, ``"state"`` or ``"error"``
    scales: dict[str, float]  # dict of str to float: What each column of numbers is divided by
    # dict of str to dict: Number of each value of the other columns; None is a value if ``missing="state"``
    states: dict[str, dict[Any, int]]
    model: DiscreteModel | None  # the model whose states the columns have
    rows: Rows = field(repr=False)

    @classmethod
    def learn(
        cls, table: Table, cases: object, metric: str, missing: str, scale: str | None, net: object = None,
        columns: Iterable[str] | None = None,
    ) -> LearnedColumns:  # fmt: skip
        """Read the rows of a table, and everything that is needed to read new rows in the same way."""
        choice("metric", metric, METRICS)
        choice("missing", missing, MISSING_RULES)
        if scale is not None:
            choice("scale", scale, SCALES)
        model = _model_of(net)
        names = _names(table, model, columns)
        numbers, coded = _read(table, cases, names, model, () if metric == "hamming" else None)
        metric = _resolve_metric(metric, numbers, coded)
        if metric in ("euclidean", "manhattan") and coded:
            raise DataError(
                f"column {next(iter(coded))!r} does not hold numbers, which metric={metric!r} requires; use 'gower', "
                "or leave the column out with columns=[...]"
            )
        if scale is not None and metric not in ("euclidean", "manhattan"):
            raise ArgumentError(
                f"scale applies to 'euclidean' and 'manhattan'; metric={metric!r} has scales of its own"
            )
        missing = _resolve_missing(missing, metric)
        holes = _holes(numbers, coded)
        if missing == "error":
            _reject_missing(table, holes, metric)
        scales = {n: _scale(n, x, "range" if metric == "gower" else scale) for n, x in numbers.items()}
        states = {n: {v: i for i, v in enumerate(column.cells)} for n, column in coded.items()}
        if missing == "state":
            for name in states:
                if name in holes:
                    states[name][None] = len(states[name])
        measure = Measure(metric, len(names), bool(holes) and missing == "ignore")
        learned = cls(names, measure, missing, scales, states, model, Rows(*[np.empty(0)] * 3))  # type: ignore[arg-type]
        learned.rows = learned._encode(table, numbers, coded, holes)
        return learned

    def read(self, cases: object) -> Rows:
        """Read new rows."""
        # raises DataError: If a column is missing or has another type, or a cell is missing that may not be.
        table = open_rows(cases)
        for name in self.names:
            if name not in table.names:
                raise DataError(f"the table has no column {name!r}{closest(name, table.names)}")
        numbers, coded = _read(table, cases, self.names, self.model, self.scales)
        holes = _holes(numbers, coded)
        if self.missing == "error":
            _reject_missing(table, holes, self.measure.metric)
        return self._encode(table, numbers, coded, holes)

    def _encode(self, table: Table, numbers: dict[str, Floats], coded: dict[str, Column], holes: Holes) -> Rows:
        values = np.empty((table.n, len(self.scales)))
        n_more = len(self.scales) if self.missing == "state" else 0  # columns that tell where numbers are missing
        codes = np.zeros((table.n, len(self.states) + n_more), np.int32, order="F")
        for j, (name, scale) in enumerate(self.scales.items()):
            if not _is_finite(numbers[name]):
                reject_infinite(table, name, numbers[name])
            if scale == 1.0:
                values[:, j] = numbers[name]
            else:
                np.divide(numbers[name], scale, out=values[:, j])
            if n_more and name in holes:
                codes[:, len(self.states) + j] = holes[name]
        for j, (name, known) in enumerate(self.states.items()):
            column = coded[name]
            lookup = [known.get(v, UNSEEN) for v in column.cells] + [known.get(None, UNSEEN)]
            codes[:, j] = np.array(lookup, np.int32)[column.index]
            if self.missing != "state" and name in holes:
                codes[column.index < 0, j] = MISSING
        n_observed = np.broadcast_to(np.int64(len(self.names)), (table.n,))
        if holes and self.missing != "state":
            n_observed = n_observed - np.sum([*holes.values()], axis=0)
            if not n_observed.min():
                raise DataError(f"{table.row_name(int(np.argmin(n_observed)))} has no observed cell; leave it out")
        return Rows(values, codes, n_observed)


def _holes(numbers: dict[str, Floats], coded: dict[str, Column]) -> Holes:
    """Where cells are missing, of the columns in which some are."""
    holes = {n: np.isnan(x) for n, x in numbers.items() if not _is_finite(x)}
    holes |= {n: c.index < 0 for n, c in coded.items() if len(c) and c.index.min() < 0}
    return {n: hole for n, hole in holes.items() if hole.any()}


def _is_finite(x: Floats) -> bool:
    """Whether all numbers certainly are finite: in one pass, since a sum is not if one of its terms is not."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(x.sum()))


def _model_of(net: object) -> DiscreteModel | None:
    model = getattr(net, "model", net)
    if model is None or isinstance(model, DiscreteModel):
        return model
    raise ArgumentError(f"net must be a network or a compiled tree, not {shown(net)}")


def _names(table: Table, model: DiscreteModel | None, columns: Iterable[str] | None) -> list[str]:
    """The columns that rows are compared by."""
    names = table.names if model is None else evidence_columns(model, table.names)
    listed = several(columns)
    if listed is not None:
        for name in listed:
            if not isinstance(name, Hashable) or name not in names:
                raise DataError(f"there is no column {shown(name)} to compare{closest(str(name), names)}")
        names = [n for n in names if n in listed]
    elif columns is not None:
        raise ArgumentError(f"columns must be a list of names, not {shown(columns)}")
    if not names:
        raise DataError("the table has no columns to compare rows by")
    return list(names)


def _read(
    table: Table, cases: object, names: Sequence[str], model: DiscreteModel | None, scaled: Collection[str] | None
) -> tuple[dict[str, Floats], dict[str, Column]]:
    """Columns of numbers, and the other columns as codes. `scaled` names the numbers; None: all columns that can be."""
    numbers: dict[str, Floats] = {}
    coded: dict[str, Column] = {}
    if model is not None:
        states, _ = read_states(model, cases)
        for name in names:
            v = model.index(name)
            coded[name] = Column(states[:, v].astype(np.int64), list(range(int(model.cardinality[v]))))
        return numbers, coded
    if scaled is not None and not scaled:
        with thread_map(8 * table.n * len(names)) as each:
            return numbers, dict(zip(names, each(lambda name: read_column(name, table), names), strict=True))
    for name in names:
        as_read = as_numbers(table.column(name)) if scaled is None or name in scaled else None
        if as_read is None and scaled is not None and name in scaled:
            raise DataError(f"column {name!r} must hold numbers, as in the table that was screened")
        empty = as_read is not None and (not len(as_read) or (np.isnan(as_read[0]) and np.isnan(as_read).all()))
        if as_read is None or (scaled is None and empty):
            coded[name] = read_column(name, table)
        else:
            numbers[name] = as_read
    return numbers, coded


def _resolve_metric(metric: str, numbers: Mapping[str, object], coded: dict[str, Column]) -> str:
    if metric != "auto":
        return metric
    if not coded:
        return "euclidean"
    return "gower" if numbers else "hamming"


def _resolve_missing(missing: str, metric: str) -> str:
    if metric in ("hamming", "gower"):
        return "ignore" if missing == "auto" else missing
    if missing in ("ignore", "state"):
        raise ArgumentError(
            f"missing={missing!r} applies to 'hamming' and 'gower', not to metric={metric!r}; use 'gower'"
        )
    return "error"


def _reject_missing(table: Table, holes: Holes, metric: str) -> None:
    """Raise for the first row with a missing cell, if there is one."""
    if holes:
        bad = np.column_stack(list(holes.values()))
        row = int(np.argmax(bad.any(axis=1)))
        name = list(holes)[int(np.argmax(bad[row]))]
        rule = "metric='gower'" if metric in ("euclidean", "manhattan") else "missing='ignore'"
        raise DataError(f"{table.row_name(row)}, column {name!r}: the value is missing (NaN); fill it, or use {rule}")


def _scale(name: str, x: Floats, scale: str | None) -> float:
    """The divisor of a column; 1 for constant columns."""
    if scale is None:
        return 1.0
    known = x[~np.isnan(x)]
    if not len(known) or not np.isfinite(known).all():
        return 1.0
    with np.errstate(over="ignore"):
        divisor = float(known.max() - known.min()) if scale == "range" else float(known.std())
    if not np.isfinite(divisor):
        raise DataError(f"column {name!r}: the range of its values overflows; divide the column by its magnitude")
    return divisor or 1.0
