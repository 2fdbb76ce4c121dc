"""The kinds of the columns of a table, by their values, and their use in ``jtgpu explore``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..columns.arrow import arrow, compute
from ..learn.columns import MANY_NUMBERS, near_equal, number_of
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
    shown = ""  # the words
    if is_excluded:
        return facts("excluded")
    if distinct < 2:
        return facts("constant")
    is_moment = kind.startswith(("timestamp", "date"))
    if kind.startswith(("time32", "time64", "duration")) or (is_moment and distinct > MANY_NUMBERS):
        return facts("dates")
    is_whole = kind.startswith(("int", "uint"))
    many = distinct > bins or 2 * distinct > n  # of fractions, few that recur are states
    if is_number and many and not (is_whole and _is_identifier(column, distinct)):
        return facts("numbers", "number" if keeps_numbers else f"up to {bins} intervals")
    if not kind.startswith(("string", "large_string", "dictionary")) and _is_identifier(column, distinct):
        return facts("identifier")
    counts = column.value_counts()
    pairs = zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)
    cells = {v: n for v, n in pairs if v is not None}
    if words := _words_among_numbers(cells, bins):
        shown = ", ".join(f"{printable(w)!r} ({cells[w]:,})" for w in words[:LISTED]) + ", ..." * (len(words) > LISTED)
        options = " ".join(f"--na-values {printable(w)!r}" for w in words[:LISTED])
        notes.append(f"{name}: numbers except {shown}: {options} reads {'it' if len(words) == 1 else 'them'} as gaps")
    if _is_identifier(column, distinct) and not words:
        return facts("identifier")
    if distinct > MAX_STATES:
        return facts("text", f"left out: numbers except {shown}" if words else "left out")
    states = sorted(cells, key=lambda v: (type(v).__name__, v))
    notes += [f"{name}: {pair} are nearly equal, and two states" for pair in near_equal(states)]
    listed = ", ".join(printable(str(v)) for v in states[:LISTED]) + ", ..." * (distinct > LISTED)
    return facts("categories", f"{counted(distinct, 'state')}: {listed}")


def without_nan(table: Any) -> Any:
    """An Arrow table in which NaN is a missing cell."""
    for i, column in enumerate(table.columns):
        if arrow().types.is_floating(column.type):
            cells = compute().if_else(compute().is_nan(column), arrow().scalar(None, column.type), column)
            table = table.set_column(i, table.column_names[i], cells)
    return table


def _is_identifier(column: Any, distinct: int) -> bool:
    """Whether every known cell of a column is another one."""
    return distinct == len(column) - column.null_count and distinct > MAX_STATES


def _words_among_numbers(cells: dict[Any, int], bins: int) -> list[str]:
    """The words of a column of text in which nearly all different values are numbers."""
    words = [v for v in cells if isinstance(v, str) and number_of(v) is None]
    numbers = len(cells) - len(words) if all(isinstance(v, str) for v in cells) else 0
    return words if words and numbers > max(bins, NUMBERS_FOR_EACH_WORD * len(words)) else []
