"""`NumericTable`: a table with columns of numbers, and of states or none."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ....columns import as_numbers, read_column, reject_infinite
from ....columns.names import delimiter_hint
from ....columns.schema import MANY_NUMBERS, MIN_IDENTIFIER, Finding, Schema, warn_of_near_equal
from ....errors import ArgumentError, DataError, closest
from ....model.discrete import DiscreteModel
from ....model.network import BayesianNetwork
from ....options.record import require_only
from ....options.tables import OF_TABLES, CsvDialect, ReadOptions
from ....util.arguments import choice, described, several
from ....util.arrays import Bools, Floats, Ints
from ....util.calls import outside
from ....util.cells import MissingReport
from ....util.text_table import counted
from ...columns import read_data, read_interventions
from .coded import (
    CONSTANT_CHOICES,
    DRAWN,
    MAX_ROWS,
    MISSING_CHOICES,
    CodedTable,
    code_column,
    complete_rows,
    declared_states,
    require_free_rows,
    warn_of_copies,
    whole_weights,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....columns import Table
    from ....util.options import Data
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
        rest = CodedTable(
            self.names, self.states, self.codes, self.weights, interventions=self.interventions
        ).digest
        return hashlib.sha256(rest.encode() + np.ascontiguousarray(self.values).tobytes()).hexdigest()

    def rows(self, kept: Bools) -> NumericTable:
        """Some of the rows, as if nothing had been set in them."""
        return replace(cast(NumericTable, super().rows(kept)), values=self.values[:, kept])

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
        """The weighted sum over the rows, in a fixed order of additions: the same on every processor."""
        return float(np.add.reduce(x if self.weights is None else x * self.weights))


def number_columns(
    numbers: object, table: Table, declared: Mapping[str, object], *, only_numbers: bool
) -> dict[str, Floats]:
    """The columns that are numbers, by name, NaN where a cell is missing."""
    # numbers: True, or the names of columns
    # only_numbers: Whether the score takes no states: every column is a number then
    chosen = table.names if numbers is True else several(numbers)
    if chosen is None or isinstance(numbers, Mapping) or not all(isinstance(v, str) for v in chosen):
        raise ArgumentError(f"continuous must be True or a list of columns, such as ['age'], not {described(numbers)}")
    columns: dict[str, Floats] = {}
    for v in chosen:
        if v not in table.names:
            raise DataError(f"continuous has {v!r}, but the table has no such column{closest(v, table.names)}")
        if v in declared:
            if numbers is not True:
                raise ArgumentError(f"column {v!r} is both in continuous and in states; leave it out of one of them")
            continue
        x = as_numbers(table.column(v))
        if x is None or np.isnan(x).all():
            if numbers is not True:
                raise DataError(f"column {v!r} holds no numbers; leave it out of continuous")
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


def _constants(columns: Mapping[str, Floats], where: str = "") -> Iterator[Finding]:
    """The columns of one number."""
    for name, x in columns.items():
        known = x[~np.isnan(x)]
        if len(known) and float(known.max() - known.min()) <= NO_SPREAD * abs(float(known[0])):
            yield Finding(name, "constant", f"only one value ({known[0]:g}){where}", "; leave it out")


def _are_many(x: Floats) -> bool:
    """Whether a column of numbers is no column of a few whole ones."""
    distinct = np.unique(x[~np.isnan(x)])
    return len(distinct) > MANY_NUMBERS or bool((distinct != np.floor(distinct)).any())


def _counts_rows(x: Floats) -> bool:
    """Whether the cells are successive whole numbers, each once."""
    ascending = np.sort(x)
    return len(x) > MIN_IDENTIFIER and bool((np.diff(ascending) == 1.0).all()) and float(ascending[0]).is_integer()


def code_table(  # noqa: PLR0913
    data: Data | CodedTable, *, numbers: object = None, only_numbers: bool = False,
    states: Mapping[str, Sequence[object]] | BayesianNetwork | None = None, missing: str = "error",
    weights: object = None, na_values: object = None,
    dialect: CsvDialect | None = None, constant: str = "error", interventions: object = None,
) -> CodedTable:  # fmt: skip
    """Convert a table to state numbers, and the columns of numbers as they are."""
    # data: data frame, mapping of columns, list of mappings, (N, n) array, path of a CSV or Parquet file, or
    #     CodedTable: The columns of an array are named ``x0``, ``x1``,
    # numbers: True, or the names of columns; see `number_columns`. None: all columns have states.
    # only_numbers: Whether the score takes no states
    # states: The states of variables, in order. If it is a network, its variables must be columns, and only they are
    #     used. Default: the categories of a categorical column, otherwise those of `jtgpu.columns.kinds`.
    # missing: {"error", "drop", "available"}: How to treat rows with missing cells: refuse them, leave them out, or
    #     keep them unless all cells are missing
    # weights: (N,) array_like of int: How often each row occurs
    # na_values: str or iterable of str: See `jtgpu.learn.structure`
    # constant: {"error", "drop"}: See `jtgpu.learn.structure`
    # interventions: Name of a column, which is no variable, or mapping from variable to rows in which it was set
    choice("missing", missing, (*MISSING_CHOICES, *DRAWN))
    choice("constant", constant, CONSTANT_CHOICES)
    if isinstance(data, CodedTable):
        if states is not None or weights is not None or interventions is not None:
            raise ArgumentError(
                "a CodedTable has its states, weights and interventions; pass the original table to change them"
            )
        return data
    declared = declared_states(states)
    table, words = read_data(data, declared, na_values, dialect)
    names = _variables(table, states, declared, interventions)
    values = {} if numbers is None else number_columns(numbers, table, declared, only_numbers=only_numbers)
    if isinstance(interventions, str):
        values.pop(interventions, None)
    schema = Schema(of_graph=True)
    schema.findings += _constants(values)
    coded: dict[str, NDArray[np.int16]] = {}
    marked: dict[str, tuple[str, ...]] = {}  # words that were read as missing cells
    chosen = set(declared)
    for name in names:
        if name in values:
            coded[name], schema.states[name] = -np.isnan(values[name]).astype(np.int16), ()
            continue
        column = read_column(name, table)
        coded[name], marked[name] = code_column(name, column, declared, words, schema)
        if column.declared:
            chosen.add(name)
    if missing == "drop" and values:
        complete = np.logical_and.reduce([coded[v] >= 0 for v in schema.states])
        known = {f.column for f in schema.findings}
        own = {v: x[complete] for v, x in values.items() if v not in known}
        schema.findings += _constants(own, " in the rows without gaps")
    faults = {f.column for f in schema.findings}
    coded = {v: x for v, x in coded.items() if v not in faults}
    labels = {v: own for v, own in schema.states.items() if v not in faults}
    schema.settle(len(coded), constant)
    values = {name: x for name, x in values.items() if name not in faults}
    if only_numbers and len(values) < len(coded):
        text = next(name for name in coded if name not in values)
        raise DataError(
            f"column {text!r} has states: score='bge' takes numbers only; use score='bic-cg', which takes both, or "
            "leave it out"
        )
    counts = whole_weights(weights, table.n)
    absent = {name: int((c < 0).sum()) for name, c in coded.items()}
    gaps = MissingReport({v: k for v, k in absent.items() if k}, {v: given for v, given in marked.items() if given})
    codes, counts, dropped, used = complete_rows([*coded], [*coded.values()], counts, missing, gaps, bool(values))
    was_set = None
    if interventions is not None:
        was_set = read_interventions(interventions, table, [*coded], faults, words)[:, used]
    made = CodedTable(
        tuple(coded), tuple(labels.values()), codes, counts, dropped, gaps, left_out=frozenset(faults),
        interventions=was_set,
    )  # fmt: skip
    require_free_rows(made)
    if numbers is None:
        warn_of_copies(made)
        schema.warn()
    warn_of_near_equal({v: own for v, own in labels.items() if v not in chosen})
    if numbers is None:
        return made
    of_numbers = np.array([x[used] for x in values.values()]).reshape(len(values), codes.shape[1])
    is_number = np.array([name in values for name in coded])
    numeric = NumericTable(
        made.names, made.states, codes, counts, dropped, gaps, is_number, of_numbers, left_out=made.left_out,
        interventions=was_set,
    )  # fmt: skip
    _check(numeric)
    return numeric


def _variables(table: Table, states: object, declared: Mapping[str, object], interventions: object) -> list[str]:
    """The columns that are variables: all but that of interventions, or those of a network."""
    names = list(table.names)
    if isinstance(interventions, str):
        if interventions not in names:
            hint = closest(interventions, names)
            raise DataError(f"interventions is {interventions!r}, but the table has no such column{hint}")
        if interventions in declared:
            raise ArgumentError(f"column {interventions!r} is both in interventions and in states; it is no variable")
        names.remove(interventions)
    for name in declared:
        if name not in names:
            hint = closest(str(name), names)
            if isinstance(states, DiscreteModel):
                raise DataError(f"the table has no column {name!r}, a variable of the network{hint}")
            raise DataError(f"states has {name!r}, but the table has no such column{hint}")
    if isinstance(states, DiscreteModel):
        names = list(states.variables)
    if len(names) < 2:
        n = counted(len(names), "column")
        raise DataError(f"the table has {n}; structure learning requires at least two{delimiter_hint(names)}")
    if not 0 < table.n <= MAX_ROWS:
        n_rows = f"{table.n:,} rows, more than {MAX_ROWS:,}" if table.n else "no rows"
        raise DataError(f"the table has {n_rows}")
    return names


def table_of(
    data: Any, rule: ScoreRule, numbers: Any, *, missing: str, read: ReadOptions, **options: Any
) -> CodedTable:
    """The table that a score takes: with numbers as they are, or states only."""
    require_only(read, OF_TABLES + " constant", "learning of graphs")
    options |= {"constant": read.constant, "na_values": read.na_values, "dialect": read}
    if isinstance(data, CodedTable) or (not rule.takes_numbers and (numbers is None or numbers is False)):
        return code_table(data, missing=missing, **options)
    require_takes_numbers(rule)
    if missing == "available":
        rule.require_scorable(True)
    return code_table(
        data, numbers=True if numbers in (None, False) else numbers, only_numbers=not rule.score.takes_states,
        missing=missing, **options,
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
    frame, _ = read_data(data, states)
    for name in table.names:
        if name not in frame.names:
            raise DataError(f"the table has no column {name!r}{closest(name, frame.names)}")
    columns = {v: frame.column(v) for v in table.names}
    return code_table(columns, numbers=[v for v in table.names if v not in states], states=states)


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
