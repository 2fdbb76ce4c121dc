"""Options of all functions that answer a table of cases: frames, files and clusters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict, Unpack

from ..inference.tables.arrow import arrow, compute
from ..util.arguments import choice, flag, whole_number

# Cells that a spreadsheet would run as a formula, and how they are escaped in text files.
#
# OWASP, CSV Injection: a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end, or with the full-width
# forms of the signs, gets an apostrophe in front. Plain numbers such as ``-5`` are no formulas and stay as they are.

_FORMULA = "^[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"
_NUMBER = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"


def escape_formula(cell: str) -> str:
    """A cell with an apostrophe in front if a spreadsheet would run it."""
    return f"'{cell}" if re.match(_FORMULA, cell) and not re.fullmatch(_NUMBER, cell) else cell


def escape_formulas(table: Any) -> Any:
    """An Arrow table whose names and texts are escaped; numbers are untouched."""
    pa, pc = arrow(), compute()
    columns = []
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            text = column.cast(kind)
            risky = pc.and_not(
                pc.match_substring_regex(text, _FORMULA), pc.match_substring_regex(text, _NUMBER)
            )
            escaped = pc.binary_join_element_wise(pa.scalar("'", kind), text, pa.scalar("", kind))
            column = pc.if_else(risky, escaped, text)
        columns.append(column)
    return pa.table(columns, names=[escape_formula(name) for name in table.column_names])


class TableKeywords(TypedDict, total=False):
    """Keywords that all functions on tables accept; see `TableOptions`."""

    targets: str | int | Iterable[str | int] | None
    evidence_columns: str | Iterable[str] | None
    keep: str | Iterable[str]
    labels: bool
    log_evidence: bool
    conflict: bool
    mpe: bool
    on_error: str
    na_values: str | Iterable[str] | None
    do: Mapping[Any, Any] | None


@dataclass(frozen=True)
class TableOptions:
    """The results to compute for every row of a table; `jtgpu.JunctionTree.predict_proba` documents the fields."""

    targets: str | int | Iterable[str | int] | None = None
    evidence_columns: str | Iterable[str] | None = None
    keep: str | Iterable[str] = ()
    labels: bool = False  # the most probable state of each target in place of its probabilities
    log_evidence: bool = False
    conflict: bool = False
    mpe: bool = False
    on_error: str = "error"
    na_values: str | Iterable[str] | None = None
    do: Mapping[Any, Any] | None = None

    def __post_init__(self) -> None:
        choice("on_error", self.on_error, ("error", "flag"))
        for name in ("labels", "log_evidence", "conflict", "mpe"):
            flag(name, getattr(self, name))
        for name in ("targets", "evidence_columns", "keep", "na_values"):  # iterators would be used up, and not pickled
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, int)) and isinstance(value, Iterable):
                object.__setattr__(self, name, tuple(value))


class FileKeywords(TypedDict, total=False):
    """Keywords that all functions on files of cases accept; see `FileOptions`."""

    delimiter: str | None
    quote: str
    encoding: str
    chunk: int | None
    compression: str | None
    threads: int | None
    resume: bool
    force: bool
    part_rows: int | None
    escape_formulas: bool


@dataclass(frozen=True)
class CsvDialect:
    """How CSV files are written."""

    # One character. Default: the comma, semicolon, tab or bar with which most columns have the name of a variable.
    delimiter: str | None = None
    quote: str = '"'  # one character; empty if quotes are ordinary text
    encoding: str = "utf-8"  # any superset of ASCII


@dataclass(frozen=True)
class FileOptions:
    """How files of cases are read and files of answers are written; `jtgpu.cases.answer_file` documents the fields."""

    dialect: CsvDialect = field(default_factory=CsvDialect)
    chunk: int | None = None
    compression: str | None = None
    threads: int | None = None
    resume: bool = False
    force: bool = False
    part_rows: int | None = None  # on a cluster: approximate number of rows of a part
    escape_formulas: bool = False  # in text: see `jtgpu.cases.formulas`

    def __post_init__(self) -> None:
        for name in ("chunk", "threads", "part_rows"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=1)

    @classmethod
    def of(cls, **keywords: Unpack[FileKeywords]) -> Self:
        """The options that keywords give."""
        given: dict[str, Any] = dict(keywords)
        dialect = {name: given.pop(name) for name in ("delimiter", "quote", "encoding") if name in given}
        return cls(CsvDialect(**dialect), **given)
