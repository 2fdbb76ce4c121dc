"""Options of all functions that answer a table of cases: frames, files and clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict, Unpack

from ..util.arguments import choice, flag, whole_number


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
