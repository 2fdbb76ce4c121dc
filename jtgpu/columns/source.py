"""The interface of a file of cases: chunks of rows, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Protocol

from ..errors import ArgumentError, ParseError
from ..util.arguments import Option
from ..util.cells import POINT, Marks
from .arrow import arrow, arrow_parquet

RowLocation = tuple[str, int | None]  # file and line number, or file with the row's number as text and None


@dataclass(frozen=True)
class CsvDialect:
    """How CSV files are written."""

    # One character. Default: the comma, semicolon, tab or bar with which most columns have the name of a variable.
    delimiter: Annotated[str | None, Option(
        "--delimiter C", "Column separator of the cases, or the word tab. Default: detected.", panel="CSV files",
    )] = None
    # one character; empty if quotes are ordinary text
    quote: Annotated[str, Option(
        "--quote C", "Quote character of the cases; none if quotes are ordinary text.", panel="CSV files")] = '"'
    encoding: Annotated[str, Option(
        "--encoding NAME", "Text encoding of the cases.", panel="CSV files")] = "utf-8"  # any superset of ASCII
    # Default: the point where commas separate cells; elsewhere the mark that the numerals show
    decimal: Annotated[str | None, Option(
        "--decimal C", "Decimal mark of the cases, a point or a comma. Default: detected; the point where commas "
        "separate cells.", choices=(".", ","), panel="CSV files")] = None
    thousands: Annotated[str | None, Option(
        "--thousands C", "Character between thousands of the cases. Default: none.", choices=(",", ".", " ", "'", "_"),
        panel="CSV files")] = None
    header: Annotated[str | None, Option(
        "--header NAMES", "Names of the columns of a file whose first row is a case, separated by commas; or none: x0, "
        "x1, ... Default: the first row has the names.", panel="CSV files")] = None

    @property
    def marks(self) -> tuple[str | None, str]:
        """The marks of decimals, None: to be detected, and of thousands."""
        # raises ArgumentError: If one is not allowed, or both are equal.
        if self.decimal not in (None, ".", ","):
            raise ArgumentError(f"decimal must be '.' or ',', not {self.decimal!r}")
        if self.thousands not in (None, "", ",", ".", " ", "'", "_"):
            raise ArgumentError(f"thousands must be ',', '.', ' ', \"'\" or '_', not {self.thousands!r}")
        if self.thousands and self.thousands == (self.decimal or "."):
            raise ArgumentError(f"thousands={self.thousands!r} is the decimal mark; decimal= gives the other one")
        return self.decimal, self.thousands or ""


@dataclass
class CaseChunk:
    """Some rows of a file."""

    n: int  # number of rows
    # Columns of n cells: first the columns of evidence in the form of `jtgpu.columns.coded.Encoder.encode`,
    #     then the columns to copy as Arrow arrays
    columns: list[Any]
    position: dict[str, int]  # position at which the next chunk begins; `Source.chunks` accepts it to continue there
    done: int  # amount of `Source.size` that has been read
    locate: Callable[[int], RowLocation]  # location of a row of this chunk, for messages
    broken: dict[int, str] = field(default_factory=dict)  # rows that cannot be split into cells, and why
    is_text: bool = False  # whether the file is text, in which words may mean missing cells
    marks: Marks = POINT  # of decimals and thousands in its numerals

    def load(self) -> None:
        """Parse the rows, if that has not been done, and set `n`, `columns` and `broken`; from any thread."""

    def drop(self) -> None:
        """Release the rows."""
        self.columns = []


class Source(Protocol):
    """A file of cases."""

    name: str
    columns: list[str]
    size: int  # the final value of `CaseChunk.done`: bytes or rows
    rows: int | None  # number of rows, if the file records it
    declared: frozenset[str]  # columns that declare their cells, in order

    def whole(self) -> tuple[int, int]:
        """Bytes of the whole file, decompressed, and the number of its rows; both may be estimates."""

    def types(self, names: Sequence[str]) -> list[Any]:
        """Arrow types of columns to copy."""

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[CaseChunk]:
        """Read the file from a position on, about `rows` rows at a time: columns of evidence, then of `kept`."""


# Parquet files of cases, read a part of a row group at a time.

BUFFER = 1 << 20  # bytes of a column read at a time; a memory-mapped file would count as memory page by page


class ParquetFile:
    """A Parquet file; see `Source`."""

    def __init__(self, path: Path, threads: bool):
        self.name, self._threads = str(path), threads
        try:
            with arrow_parquet().ParquetFile(self.name) as file:
                self._schema = file.schema_arrow
                groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
                self._groups, self._bytes = [g.num_rows for g in groups], sum(g.total_byte_size for g in groups)
        except (arrow().ArrowInvalid, OSError) as error:
            raise ParseError(f"this Parquet file cannot be read: {error}", self.name) from None
        self.columns: list[str] = list(self._schema.names)
        self.declared = frozenset(f.name for f in self._schema if arrow().types.is_dictionary(f.type))
        self.rows: int | None = sum(self._groups)
        self.size = self.rows

    def whole(self) -> tuple[int, int]:
        return self._bytes, sum(self._groups)

    def types(self, names: Sequence[str]) -> list[Any]:
        return [self._schema.field(n).type for n in names]

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[CaseChunk]:
        row = skip = position["row"] if position else 0
        group = 0
        while group < len(self._groups) and skip >= self._groups[group]:
            skip -= self._groups[group]
            group += 1
        names = list(dict.fromkeys((*evidence, *kept)))
        text = [n for n in evidence if n not in kept and is_text(self._schema.field(n).type)]
        with arrow_parquet().ParquetFile(self.name, read_dictionary=text, buffer_size=BUFFER) as file:
            # one group at a time: a request for all of them fails at once if a later one is damaged
            groups = (
                file.iter_batches(rows, row_groups=[g], columns=names, use_threads=self._threads)
                for g in range(group, len(self._groups))
            )
            for table in regroup(chain.from_iterable(groups), rows, row, skip, self.name):
                yield parquet_chunk(table, [*evidence, *kept], self.name, row)
                row += table.num_rows


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, which can be read as a dictionary of the distinct values."""
    t = arrow().types
    return bool(t.is_string(kind) or t.is_large_string(kind))


def regroup(batches: Iterator[Any], rows: int, row: int, skip: int, name: str) -> Iterator[Any]:
    """Tables of `rows` rows each, the last one smaller, from Arrow record batches of any size."""
    # row: Number of the first row, for messages
    # skip: Number of rows to skip
    # name: The file's, for messages
    # raises ParseError: If the file is damaged, after the rows before the damage.
    pa = arrow()
    held: list[Any] = []
    damaged: ParseError | None = None
    while True:
        batch = None
        try:
            batch = next(batches, None)
        except (OSError, pa.ArrowInvalid) as error:
            end = row + sum(b.num_rows for b in held)
            damaged = ParseError(f"cannot be read after row {end}: {str(error).splitlines()[0]}", name)
        if batch is not None:
            skipped = min(skip, batch.num_rows)
            skip -= skipped
            held.append(batch.slice(skipped))
        ready = sum(b.num_rows for b in held)
        while held and ready and (batch is None or ready >= rows):
            table = pa.Table.from_batches(held)
            part, rest = table.slice(0, rows), table.slice(rows)
            held, ready = rest.to_batches() if rest.num_rows else [], rest.num_rows
            yield part
            row += part.num_rows
        if damaged is not None:
            raise damaged
        if batch is None:
            return


def parquet_chunk(table: Any, names: Sequence[str], file: str, row: int) -> CaseChunk:
    """A chunk of columns of an Arrow table whose first row has this number in the file."""

    def locate(i: int) -> RowLocation:
        return f"{file}: row {row + i + 1}", None

    done = row + table.num_rows
    return CaseChunk(table.num_rows, [table.column(n) for n in names], {"row": done}, done, locate)
