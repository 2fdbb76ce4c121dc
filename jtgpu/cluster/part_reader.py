"""Read the rows of a part in chunks."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..cases.query import CsvDialect
from ..cases.reading import CaseChunk, RowLocation, open_cases
from ..cases.reading.source import parquet_chunk, regroup
from ..errors import ParseError
from ..inference.tables.arrow import arrow, arrow_parquet
from ..model.discrete import DiscreteModel
from .parts import READ_SIZE, Part
from .storage import StoragePath, locate
from .tables import open_parquet


@dataclass(frozen=True)
class PartReader:
    """How the parts of a table are read."""

    model: DiscreteModel
    dialect: CsvDialect
    # evidence, kept: sequence of str: Columns of evidence, columns to copy
    evidence: Sequence[str]
    kept: Sequence[str]
    step: int  # rows per chunk
    threads: bool  # whether several cores may parse

    @contextmanager
    def open(self, part: Part) -> Iterator[Iterator[CaseChunk]]:
        """The chunks of a part; a remote CSV is downloaded first."""
        place = locate(part.file)
        if part.rows >= 0:
            with open_parquet(place, self.evidence, self.kept) as file:
                yield self._parquet_chunks(file, part)
            return
        if place.local and not part.head:
            yield self._csv_chunks(Path(place.path))
            return
        with tempfile.TemporaryDirectory(prefix="jtgpu-") as folder:
            path = Path(folder) / place.name
            if part.head:
                _extract(place, part, path)
            else:
                place.download(path)
            try:
                yield _relocated(self._csv_chunks(path), part)
            except ParseError as error:
                if error.source == part.file:  # raised for a row, which has its right location
                    raise
                line = None if error.line is None else error.line + part.lines
                raise ParseError(error.message, part.file, line, error.column) from None

    def _csv_chunks(self, path: Path) -> Iterator[CaseChunk]:
        source = open_cases(path, self.model, self.dialect, threads=self.threads)
        return source.chunks(self.evidence, self.kept, self.step)

    def _parquet_chunks(self, file: Any, part: Part) -> Iterator[CaseChunk]:
        groups: list[int] = []
        skip = end = 0  # skip: rows of the first row group before the part
        for i in range(file.metadata.num_row_groups):
            begin, end = end, end + file.metadata.row_group(i).num_rows
            if begin < part.first + part.rows and end > part.first:
                skip = skip if groups else part.first - begin
                groups.append(i)
        if not groups:
            return
        names = [*self.evidence, *self.kept]
        columns = list(dict.fromkeys(names))
        batches = file.iter_batches(self.step, row_groups=groups, columns=columns, use_threads=self.threads)
        row, last = part.first, part.first + part.rows
        for table in regroup(_limited(batches, skip + part.rows), self.step, row, skip, part.file):
            yield parquet_chunk(table, names, part.file, row)
            row += table.num_rows
        if row < last:
            raise ParseError(f"ends at row {row}, but its footer lists more rows", part.file)


def _limited(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The first rows of Arrow record batches."""
    while rows > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, rows)
        rows -= batch.num_rows


def _extract(place: StoragePath, part: Part, to: Path) -> None:
    """Write a part of a CSV, with the header, to a file on this machine."""
    with place.fs.open_input_file(place.path) as file, to.open("wb") as out:
        out.write(file.read(part.head))
        file.seek(part.first)
        left = part.weight
        while left > 0 and (block := file.read(min(left, READ_SIZE))):
            out.write(block)
            left -= len(block)
    if left:
        raise ParseError(f"is {left} bytes shorter than when the work began", part.file)


def _relocated(chunks: Iterator[CaseChunk], part: Part) -> Iterator[CaseChunk]:
    """Chunks whose rows are located in the file that the user knows."""

    def locate_row(row: int, original: Callable[[int], RowLocation]) -> RowLocation:
        line = original(row)[1]
        return part.file, None if line is None else line + part.lines

    for chunk in chunks:
        chunk.locate = partial(locate_row, original=chunk.locate)
        yield chunk


# Write a part: a Parquet file that appears under its name when it is complete.

TEMPORARY = "_tmp-"
KEY = b"jtgpu"  # in the footer of a part


class RowCounts(NamedTuple):
    """Numbers of rows, and of those that have no answer."""

    rows: int
    flagged: int


class PartTarget(NamedTuple):
    """Where and how the parts of a run are written."""

    folder: str  # path or URI
    run: str  # `Folder.run`
    schema: Any
    compression: str


def part_name(number: int) -> str:
    """The file of a part; sorted by name, the files are in the order of the rows."""
    return f"part-{number:06d}.parquet"


class PartWriter:
    """The file of a part; a `jtgpu.cases.pipeline.Sink`."""

    def __init__(self, target: PartTarget, number: int):
        self.rows = self.flagged = 0
        self._run = target.run
        folder = locate(target.folder)
        self._final = folder.child(part_name(number))
        self._temporary = folder.child(f"{TEMPORARY}{part_name(number)}-{uuid.uuid4().hex[:12]}")
        types = arrow().types
        text = [f.name for f in target.schema if not types.is_floating(f.type)]
        self._file = self._temporary.fs.open_output_stream(self._temporary.path)
        self._writer: Any = None
        try:
            self._writer = arrow_parquet().ParquetWriter(
                self._file, target.schema, compression=target.compression, use_dictionary=text
            )
        except BaseException:
            self.discard()
            raise

    def encode(self, table: Any) -> Any:
        return table

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk as a row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows
        self.flagged += flagged

    def finish(self) -> None:
        """Complete the file and rename it to the part's name."""
        counts = {"run": self._run, "rows": self.rows, "flagged": self.flagged}
        self._writer.add_key_value_metadata({KEY: json.dumps(counts).encode()})
        self._writer.close()
        self._file.close()
        self._temporary.publish(self._final)

    def discard(self) -> None:
        """Delete the incomplete file."""
        for opened in (self._writer, self._file):
            with suppress(Exception):  # closing fails on a full disk; the file is deleted nevertheless
                opened.close()
        with suppress(Exception):
            self._temporary.remove()


def read_counts(part: StoragePath, run: str) -> RowCounts | None:
    """Row counts from the footer of a part; None if it does not belong to this run."""
    try:
        with part.fs.open_input_file(part.path) as file:
            data = arrow_parquet().read_metadata(file).metadata or {}
        counts = json.loads(data[KEY])
        return RowCounts(int(counts["rows"]), int(counts["flagged"])) if counts["run"] == run else None
    except (arrow().ArrowInvalid, KeyError, ValueError, TypeError):
        return None
