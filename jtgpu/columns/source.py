"""The interface of a file of cases: chunks of rows, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from ..errors import ParseError
from ..util.cells import POINT, Marks
from .arrow import arrow, arrow_parquet

RowLocation = tuple[str, int | None]  # file and line number, or file with the row's number as text and None


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
        except (arrow().ArrowInvalid, arrow().ArrowNotImplementedError, OSError) as error:
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
