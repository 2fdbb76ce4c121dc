"""`NumericTable`: a table with columns of numbers, and of states or none."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....columns import as_numbers, open_table, reject_infinite
from ....columns.files import read_file
from ....columns.memory import read_column
from ....columns.names import reject_repeated
from ....errors import ArgumentError, DataError, EvidenceError, closest
from ....model.network import BayesianNetwork
from ....options.tables import CsvDialect
from ....util.arguments import choice, described, several
from ....util.arrays import Bools, Floats, Ints
from ....util.calls import outside
from ....util.cells import MissingReport
from ...columns import MANY_NUMBERS
from .coded import (
    CONSTANT_CHOICES,
    MIN_IDENTIFIER,
    CodedTable,
    ConstantColumn,
    code_column,
    code_table,
    complete_rows,
    declared_states,
    leave_out,
    whole_weights,
)

if TYPE_CHECKING:
    from ....columns import Table
    from .rules import ScoreRule

EQUAL = 1e-12  # 1 - |correlation| below which two columns are one up to their units
CELL_ROUNDING = 2.0**-50  # of a cell, with that of its scaled value
NO_SPREAD = 1e-12  # standard deviation, relative to the largest value, below which a column is constant


@dataclass(frozen=True)
class NumericTable(CodedTable):
    """A table of states and numbers. Numbers have no states, and the code 0 in every row."""

    is_number: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # (n,)
    values: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (numbers, N) in the units of the columns

    @cached_property
    def cardinality(self) -> Ints:
        """Number of states of each variable, 1 for numbers, (n,)."""
        return np.array([max(len(s), 1) for s in self.states], np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, states, rows, values and weights."""
        rest = CodedTable(self.names, self.states, self.codes, self.weights).digest
        return hashlib.sha256(rest.encode() + np.ascontiguousarray(self.values).tobytes()).hexdigest()

    @cached_property
    def row_of(self) -> dict[int, int]:
        """Variable to its row of `values`."""
        return {int(v): i for i, v in enumerate(np.flatnonzero(self.is_number))}

    @cached_property
    def scaled(self) -> tuple[Floats, Floats]:
        """Values with mean 0 and standard deviation 1 (of N - 1), (numbers, N), and the standard deviations."""
        z, scale = np.empty_like(self.values), np.empty(len(self.values))
        numbers = [self.names[v] for v in self.row_of]
        for i, x in enumerate(self.values):
            first = float(x[0])
            size = float(np.abs(x - first).max())  # so that squares neither overflow nor vanish
            if not size > NO_SPREAD * abs(first):
                raise DataError(f"column {numbers[i]!r} is constant ({first:g}); leave it out")
            y = (x - first) / size
            y -= self._sum(y) / self.n_cases
            sd = float(np.sqrt(self._sum(y * y) / max(self.n_cases - 1, 1)))
            z[i], scale[i] = y / sd, sd * size
        return z, scale

    @cached_property
    def rounding(self) -> Floats:
        """The most that the rounding of cells adds to the scaled values, (numbers,)."""
        return np.asarray(CELL_ROUNDING * np.abs(self.values).max(axis=1) / self.scaled[1])

    @cached_property
    def scatter(self) -> Floats:
        """Sums of products of the scaled values, (numbers, numbers)."""
        z = self.scaled[0]
        sums = np.empty((len(z), len(z)))
        for i, x in enumerate(z):
            for j in range(i + 1):
                sums[i, j] = sums[j, i] = self._sum(x * z[j])
        return sums

    def _sum(self, x: Floats) -> float:
        """Sum over the rows, with their weights; by additions in a fixed order, on every processor the same."""
        return float(np.add.reduce(x if self.weights is None else x * self.weights))


def number_columns(
    numbers: Any, table: Table, declared: Mapping[str, Any], *, only_numbers: bool
) -> dict[str, Floats]:
    """The columns that are numbers, by name, NaN where a cell is missing."""
    # numbers: True, or the names of columns
    # only_numbers: Whether the score takes no states: every column is a number then
    chosen = table.names if numbers is True else several(numbers)
    if chosen is None or isinstance(numbers, Mapping) or not all(isinstance(v, str) for v in chosen):
        raise ArgumentError(f"numbers must be True or a list of columns, such as ['age'], not {described(numbers)}")
    columns: dict[str, Floats] = {}
    for v in chosen:
        if v not in table.names:
            raise DataError(f"numbers has {v!r}, but the table has no such column{closest(v, table.names)}")
        if v in declared:
            if numbers is not True:
                raise ArgumentError(f"column {v!r} is both in numbers and in states; leave it out of one of them")
            continue
        x = as_numbers(table.column(v))
        if x is None or np.isnan(x).all():
            if numbers is not True:
                raise DataError(f"column {v!r} holds no numbers; leave it out of numbers")
            continue
        reject_infinite(table, v, x)
        if numbers is True and _counts_rows(x):
            raise DataError(
                f"column {v!r} counts the rows, from {x.min():g} to {x.max():g}: it looks like an identifier; leave it "
                "out"
            )
        if numbers is not True or only_numbers or _are_many(x):
            columns[v] = x
    return columns


def _constants(columns: Mapping[str, Floats]) -> dict[str, float]:
    """The columns of one number, and the number."""
    constants = {}
    for name, x in columns.items():
        known = x[~np.isnan(x)]
        if len(known) and float(known.max() - known.min()) <= NO_SPREAD * abs(float(known[0])):
            constants[name] = float(known[0])
    return constants


def _are_many(x: Floats) -> bool:
    """Whether a column of numbers is no column of a few whole ones."""
    distinct = np.unique(x[~np.isnan(x)])
    return len(distinct) > MANY_NUMBERS or bool((distinct != np.floor(distinct)).any())


def _counts_rows(x: Floats) -> bool:
    """Whether the cells are successive whole numbers, each once."""
    ascending = np.sort(x)
    return len(x) > MIN_IDENTIFIER and bool((np.diff(ascending) == 1.0).all()) and float(ascending[0]).is_integer()


def code_numbers(  # noqa: PLR0913
    data: Any, numbers: Any, *, only_numbers: bool = False, states: Any = None, missing: str = "error",
    weights: Any = None, na_values: Any = None, dialect: CsvDialect | None = None, constant: str = "error",
) -> NumericTable:  # fmt: skip
    """Convert a table to numbers and state numbers; see `code_table`."""
    choice("constant", constant, CONSTANT_CHOICES)
    declared = declared_states(states)
    if isinstance(data, (str, Path)):
        data = read_file(data, dialect=dialect, na_values=na_values, states=declared)
    try:
        table = open_table(None, data)
        reject_repeated(table.names, table.names, "the table")
    except EvidenceError as error:
        raise DataError(str(error)) from None
    names = list(table.names)
    if len(names) < 2:
        raise DataError(f"the table has {len(names)} columns; structure learning requires at least two")
    if not table.n:
        raise DataError("the table has no rows")
    for name in declared:
        if name not in names:
            raise DataError(f"states has {name!r}, but the table has no such column{closest(str(name), names)}")
    columns = number_columns(numbers, table, declared, only_numbers=only_numbers)
    states_of: dict[str, tuple[str, ...]] = {}
    codes_of: dict[str, Any] = {name: -np.isnan(x).astype(np.int16) for name, x in columns.items()}
    faults = {name: f"column {name!r} is constant ({x:g}); leave it out" for name, x in _constants(columns).items()}
    for name in names:
        if name not in columns:
            try:
                codes_of[name], states_of[name], _ = code_column(name, read_column(name, table), declared, frozenset())
            except ConstantColumn as error:
                faults[name] = str(error)
    if missing == "drop":
        whole = np.logical_and.reduce([c >= 0 for name, c in codes_of.items() if name not in faults])
        for name, x in _constants({v: x[whole] for v, x in columns.items() if v not in faults}).items():
            faults[name] = f"column {name!r} is constant ({x:g}) in the rows without gaps; leave it out"
    names = [name for name in names if name not in faults]
    coded = [codes_of[name] for name in names]
    columns = {name: x for name, x in columns.items() if name not in faults}
    leave_out(faults, len(names), constant)
    if only_numbers and len(columns) < len(names):
        text = next(name for name in names if name not in columns)
        raise DataError(
            f"column {text!r} has states: score='bge' takes numbers only; use score='bic-cg', which takes both, or "
            "leave it out"
        )
    absent = {name: int((c < 0).sum()) for name, c in zip(names, coded, strict=True)}
    report = MissingReport({name: n for name, n in absent.items() if n}, {})
    counts = whole_weights(weights, table.n)
    used = np.logical_and.reduce([c >= 0 for c in coded])
    if counts is not None:
        used &= counts > 0
    rows, counts, dropped = complete_rows(names, coded, counts, missing, report, has_numbers=True)
    is_number = np.array([name in columns for name in names])
    values = np.array([columns[name][used] for name in names if name in columns]).reshape(len(columns), rows.shape[1])
    labels = tuple(states_of.get(name, ()) for name in names)
    made = NumericTable(
        tuple(names), labels, rows, counts, dropped, report, is_number, values, left_out=frozenset(faults)
    )
    _check(made)
    return made


def table_of(
    data: Any, rule: ScoreRule, numbers: Any, *, missing: str, **options: Any
) -> CodedTable:
    """The table that a score takes: `code_numbers` for scores of numbers, else `code_table`."""
    if isinstance(data, CodedTable) or (not rule.takes_numbers and (numbers is None or numbers is False)):
        return code_table(data, missing=missing, **options)
    require_takes_numbers(rule)
    if missing == "available":
        rule.require_scorable(True)
    return code_numbers(
        data, True if numbers in (None, False) else numbers, only_numbers=not rule.score.takes_states, missing=missing,
        **options,
    )  # fmt: skip


def require_takes_numbers(rule: ScoreRule) -> None:
    """Reject a score of states for a table with numbers."""
    if not rule.takes_numbers:
        raise ArgumentError(
            f"score={rule.name!r} takes states only; use score='bic-cg' for tables with numbers, or 'bge' if all "
            "columns are numbers"
        )


def with_states(table: CodedTable, what: str) -> CodedTable:
    """The table; raises `ArgumentError` if there are numbers."""
    if isinstance(table, NumericTable):
        raise ArgumentError(f"{what} takes variables with states only; network() takes numbers, too")
    return table


def cases_like(table: CodedTable, data: Any) -> CodedTable:
    """Other cases with the columns and states of a table; the table itself for None."""
    if data is None or isinstance(data, NumericTable):
        return table if data is None else data
    states = {v: s for v, s in zip(table.names, table.states, strict=True) if s}
    if not isinstance(table, NumericTable):
        uniform = {v: np.full(len(s), 1.0 / len(s)) for v, s in states.items()}
        return code_table(data, states=BayesianNetwork(states, dict.fromkeys(table.names, ()), uniform))
    if isinstance(data, (str, Path)):
        data = read_file(data, states=states)
    frame = open_table(None, data)
    for name in table.names:
        if name not in frame.names:
            raise DataError(f"the table has no column {name!r}{closest(name, frame.names)}")
    columns = {v: frame.column(v) for v in table.names}
    return code_numbers(columns, [v for v in table.names if v not in states], states=states)


def _check(table: NumericTable) -> None:
    """Reject constant columns, and warn of columns that are equal up to their units."""
    if table.has_gaps:
        return
    scatter = table.scatter
    names: Sequence[str] = [table.names[v] for v in table.row_of]
    for i in range(len(names)):
        for j in range(i):
            if abs(scatter[i, j]) >= (1.0 - EQUAL) * np.sqrt(scatter[i, i] * scatter[j, j]):
                warnings.warn(
                    f"columns {names[j]!r} and {names[i]!r} are equal up to their units: the posterior is divided "
                    "between them; leave one out", stacklevel=outside(),
                )  # fmt: skip
