"""The kinds of the columns of a table, by their values, and their use in ``jtgpu explore``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..columns import known_cells
from ..columns.arrow import arrow, compute
from ..columns.schema import Schema, has_decimal_comma, near_equal
from ..util.cells import finite, numeral
from ..util.text_table import counted, printable

MAX_STATES = 60  # of a column that is kept
LISTED = 6  # states, or words among numbers
NUMBERS_FOR_EACH_WORD = 5  # different numbers in a column of numbers and a few words


@dataclass(frozen=True)
class ColumnFacts:
    """A column and what becomes of it."""

    name: str
    kind: str  # "numbers", "categories", "identifier", "dates", "constant", "text"
    distinct: int
    missing: float  # share of the rows
    use: str

    @property
    def is_kept(self) -> bool:
        """Whether it is a variable of the network."""
        return self.kind in ("numbers", "categories")


def facts_of(table: Any, name: str, bins: int, is_excluded: bool, keeps_numbers: bool) -> tuple[ColumnFacts, list[str]]:
    """The kind of a column of an Arrow table, and what users should know about its values."""
    column = table.column(name)
    n = len(column)
    missing = column.null_count / n if n else 0.0
    kind = str(column.type)
    distinct = len(column.unique().drop_null()) if n else 0
    is_number = kind.startswith(("int", "uint", "float", "double", "decimal", "halffloat"))

    def facts(kind: str, use: str = "left out") -> tuple[ColumnFacts, list[str]]:
        return ColumnFacts(name, kind, distinct, missing, use), notes

    notes: list[str] = []
    if is_excluded:
        return facts("excluded")
    is_identifier = distinct == n - column.null_count and distinct > MAX_STATES
    many = distinct > bins or 2 * distinct > n  # of fractions, few that recur are states
    if is_number and distinct > 1 and many and not (kind.startswith(("int", "uint")) and is_identifier):
        return facts("numbers", "number" if keeps_numbers else f"up to {bins} intervals")
    schema = Schema(of_graph=True, most=MAX_STATES)
    read = known_cells(name, column)
    _, cells, counts = read.used()
    schema.add(name, cells, counts, n, declared=read.declared)
    if words := _words_among_numbers(cells, bins):
        options = " ".join(f"--na-values {printable(w)!r}" for w in words[:LISTED])
        some = ", ".join(f"{printable(w)!r} ({counts[cells.index(w)]:,})" for w in words[:LISTED])
        some += ", ..." * (len(words) > LISTED)
        notes.append(f"{name}: numbers except {some}: {options} reads {'it' if len(words) == 1 else 'them'} as gaps")
    for decimal, thousands in (",.", ".,"):
        if any("," in v and "." in v for v in map(str, cells)) and all(
            isinstance(v, str) and numeral(v, (decimal, thousands)) is not None for v in cells
        ):
            notes.append(f"{name}: numbers such as {cells[0]}: --decimal {decimal} --thousands {thousands} reads them")
    for finding in schema.findings:
        return facts(finding.kind, f"left out: {finding.why}")
    states = schema.states[name]
    notes += [f"{name}: {pair} are nearly equal, and two states" for pair in near_equal(states)]
    signs = [s for s in states if not any(map(str.isalnum, s))]
    if len(signs) == 1 and len(states) > 2:
        notes.append(f"{name}: {signs[0]!r} is a state: --na-values {printable(signs[0])!r} reads it as gaps")
    listed = ", ".join(map(printable, states[:LISTED])) + ", ..." * (len(states) > LISTED)
    return facts("categories", f"{counted(len(states), 'state')}: {listed}")


def n_repeated(table: Any, facts: Sequence[ColumnFacts]) -> int:
    """The number of rows that repeat others, if a column says that this is no chance: most rows differ in it."""
    if not any(2 * f.distinct > table.num_rows for f in facts):
        return 0
    with suppress(arrow().ArrowNotImplementedError):  # of lists
        return int(table.num_rows - table.group_by(table.column_names).aggregate([]).num_rows)
    return 0


def without_nan(table: Any) -> Any:
    """An Arrow table in which NaN is a missing cell."""
    for i, column in enumerate(table.columns):
        if arrow().types.is_floating(column.type):
            cells = compute().if_else(compute().is_nan(column), arrow().scalar(None, column.type), column)
            table = table.set_column(i, table.column_names[i], cells)
    return table


def _words_among_numbers(cells: Sequence[Any], bins: int) -> list[str]:
    """The words of a column of text in which nearly all different values are numbers."""
    words = [v for v in cells if isinstance(v, str) and finite(v) is None and not has_decimal_comma(v)]
    numbers = len(cells) - len(words) if all(isinstance(v, str) for v in cells) else 0
    return words if words and numbers > max(bins, NUMBERS_FOR_EACH_WORD * len(words)) else []
