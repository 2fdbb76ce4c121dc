"""Options of all functions on tables of cases: what is computed, and how files are read and written."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypedDict, Unpack

from ..errors import ArgumentError, EvidenceError
from ..util.arguments import several, whole_number
from .record import Opt, Record, defaults_of, fields_of

_NAMED_CHARACTERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "none": ""}

Names = str | Iterable[str]


class TableOptions(Record):
    """The results to compute for every row of a table; `jtgpu.JunctionTree.predict_proba` documents the fields."""

    targets: Annotated[str | int | Iterable[str | int] | None, Opt(
        "Variables to compute. Repeatable. Default: all that are not evidence.", "-t, --target A,B", complete="targets",
    )] = None
    evidence_columns: Annotated[Names | None, Opt(
        "Columns that are evidence. Repeatable. Default: all that are variables, except the targets.",
        "--evidence-columns A,B", complete="targets")] = None
    keep: Annotated[Names, Opt("Columns to copy to the output. Repeatable.", "--keep A,B")] = ()
    labels: Annotated[bool, Opt(
        "Write the most probable state instead of probabilities, and the mean of a number.")] = False
    log_evidence: Annotated[bool, Opt("Add a column with ln P(evidence).")] = False
    conflict: Annotated[bool, Opt("Add a column with the conflict measure of the case's evidence.")] = False
    mpe: Annotated[bool, Opt("Add each target's state in the most probable explanation, and its ln P.")] = False
    on_error: Annotated[Literal["error", "flag"], Opt(
        "Stop at the first invalid row or sequence, or write the reason into the column 'error'.")] = "error"
    na_values: str | Iterable[str] | None = None
    do: Mapping[Any, Any] | None = None
    joints: Iterable[Sequence[str | int]] | None = None
    codes: Literal["names", "index"] | Mapping[str, Mapping[Any, str]] | None = None

    def _check(self) -> None:
        super()._check()
        if self.labels and self.joints is not None:
            raise EvidenceError("joints= adds columns of probabilities; predict has states, use predict_proba")
        # iterators would be used up, and not pickled
        for name in ("targets", "joints", "evidence_columns", "keep", "na_values"):
            value = getattr(self, name)
            if (listed := several(value)) is not None:
                vars(self)[name] = tuple(listed)


class FileKeywords(TypedDict, total=False):
    """Keywords that all functions on files of cases accept; see `FileOptions`."""

    delimiter: str | None
    quote: str
    encoding: str
    decimal: str | None
    thousands: str | None
    header: str | None
    chunk: int | None
    compression: str | None
    threads: int | None
    resume: bool
    force: bool
    part_rows: int | None
    escape_formulas: bool


def _character(given: str) -> str:
    """One character, or none, from the command line."""
    given = _NAMED_CHARACTERS.get(given, given)
    if len(given.encode()) > 1:
        raise ArgumentError(f"{given!r} is not a single ASCII character")
    return given


def _delimiter(given: str) -> str:
    """One character from the command line."""
    if not (character := _character(given)):
        raise ArgumentError(f"{given!r} is not a single ASCII character")
    return character


def _encoding(name: str) -> str:
    """The name of a text encoding that is a superset of ASCII."""
    try:
        is_ascii = "a,\n".encode(codecs.lookup(name).name) == b"a,\n"
    except (LookupError, UnicodeError):
        raise ArgumentError(f"{name!r} is not a text encoding") from None
    if not is_ascii:
        raise ArgumentError(f"{name!r} is not a superset of ASCII")
    return name


class CsvDialect(Record, title="Reading"):
    """How CSV files are written."""

    # One character. Default: the comma, semicolon, tab or bar with which most columns have the name of a variable.
    delimiter: Annotated[str | None, Opt(
        "Column separator of the cases, or the word tab. Default: detected.", "--delimiter C", check=_delimiter)] = None
    # one character; empty if quotes are ordinary text
    quote: Annotated[str, Opt(
        "Quote character of the cases; none if quotes are ordinary text.", "--quote C", check=_character)] = '"'
    # any superset of ASCII
    encoding: Annotated[str, Opt("Text encoding of the cases.", "--encoding NAME", check=_encoding)] = "utf-8"
    # Default: the point where commas separate cells; elsewhere the mark that the numerals show
    decimal: Annotated[str | None, Opt(
        "Decimal mark of the cases, a point or a comma. Default: detected; the point where commas separate cells.",
        "--decimal C", choices=(".", ","))] = None
    thousands: Annotated[str | None, Opt(
        "Character between thousands of the cases: , . ' _ or a blank. Default: none.", "--thousands C",
        choices=(",", ".", " ", "'", "_"))] = None
    header: Annotated[str | None, Opt(
        "Names of the columns of a file whose first row is a case, separated by commas; or none: x0, x1, ... Default: "
        "the first row has the names.", "--header NAMES")] = None

    @property
    def marks(self) -> tuple[str | None, str]:
        """The marks of decimals, None: to be detected, and of thousands."""
        # raises ArgumentError: If both are equal.
        if self.thousands and self.thousands == (self.decimal or "."):
            raise ArgumentError(f"thousands={self.thousands!r} is the decimal mark; decimal= gives the other one")
        return self.decimal, self.thousands or ""

    @property
    def identity(self) -> list[Any]:
        """Values of the options of CSV files, by which an interrupted run is recognised; other options do not count."""
        return [getattr(self, name) for name in fields_of(CsvDialect)]


# fields of `ReadOptions` that all functions on tables use
OF_TABLES = "delimiter quote encoding decimal thousands header na_values"


class ReadOptions(CsvDialect, title="Reading"):
    """How tables of cases are read."""

    # of a file; a list of words in Python, where () means no others than empty cells
    na_values: Annotated[Names | None, Opt(
        "Word that means a missing cell, unless it is a state. Repeatable. Besides NA, N/A, NaN, None, null and the "
        "others of pandas.read_csv, unless WORD is empty. Empty cells are always missing.", "--na-values WORD")] = None
    codes: Any = None  # "names", "index" or mapping: see `jtgpu.DiscreteModel.with_codes`
    constant: Annotated[Literal["error", "drop"], Opt(
        "Columns with only one value: error, or drop, with a note.", "--constant HOW")] = "error"
    chunk: Annotated[int | None, Opt(
        "Rows that are read at a time, or of a chunk of stepwise EM. Default: 100,000, or 1,000.", least=1)] = None


class FileOptions(Record, title="Output"):
    """How files of cases are read and files of answers are written; `jtgpu.cases.answer_file` documents the fields."""

    dialect: CsvDialect = CsvDialect()
    resume: Annotated[bool, Opt("Continue an interrupted run.")] = False
    force: Annotated[bool, Opt("Replace an existing output.", "-f, --force", front=True)] = False
    compression: Annotated[str | None, Opt(
        "Compression of a Parquet output. Default: snappy.", "--compression NAME",
        choices=("snappy", "zstd", "lz4", "gzip", "brotli", "none"))] = None
    chunk: Annotated[int | None, Opt(
        "Approximate number of cases per chunk. Default: some tens of MB.", "--chunk N", least=1)] = None
    threads: int | None = None
    part_rows: Annotated[int | None, Opt(
        "Approximate number of cases that a worker of a cluster processes at a time. Default: up to a million.",
        "--part-rows N", least=1)] = None
    escape_formulas: Annotated[bool, Opt(
        "Put an apostrophe before cells of a CSV that a spreadsheet would run as a formula (=, +, -, @ first), as "
        "OWASP recommends.")] = False

    def _check(self) -> None:
        super()._check()
        if self.threads is not None:
            whole_number("threads", self.threads, least=1)

    @classmethod
    def of(cls, **keywords: Unpack[FileKeywords]) -> Self:
        """The options that keywords give."""
        given: dict[str, Any] = dict(keywords)
        dialect = {name: given.pop(name) for name in defaults_of(CsvDialect) if name in given}
        return cls(dialect=CsvDialect(**dialect), **given)
