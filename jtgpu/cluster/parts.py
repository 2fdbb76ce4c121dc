"""Parts of a table, each of which a worker answers as a whole.

Parts are determined before the work begins and do not depend on the workers: the same files and options give the same
parts, so that a part that is answered twice, or by a later run, is the same part. Parquet files are divided by rows and
large CSV files by bytes. Dividing a CSV takes one pass over the file, because only a count of all earlier quotes shows
whether a line end is the end of a row. A compressed CSV is a single part.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from ..cases.query import TableQuery
from ..cases.solver import CaseSolver
from ..columns.arrow import arrow, arrow_parquet
from ..columns.files import open_cases
from ..columns.source import CaseChunk, RowLocation, parquet_chunk, regroup
from ..errors import JtgpuError, ParseError
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..options.tables import CsvDialect, TableOptions
from ..util.options import BackendName
from ..util.version import __version__
from .connect import Share
from .tables import StoragePath, TableFile, locate, open_parquet


@dataclass(frozen=True)
class WorkerSpec:
    """The data that a worker needs to answer cases, pickled and sent once."""

    plan: NetworkPlan
    share: Share  # resources and backend of each worker
    options: dict[str, Any]  # options of the backend
    query: TableQuery
    table: TableOptions
    version: str = __version__  # version of jtgpu in the process that leads the run

    def compile(self) -> JunctionTree:
        """A tree, on the worker; raises `JtgpuError` if the worker has another version of jtgpu."""
        if self.version != __version__:
            raise JtgpuError(f"this worker has jtgpu {__version__}, but the run was started by jtgpu {self.version}")
        tree: JunctionTree = self.plan.compile(cast("BackendName", self.share.backend), **self.options)
        return tree

    def solver(self, tree: JunctionTree | None = None) -> CaseSolver:
        """A solver, on the worker."""
        return CaseSolver(tree or self.compile(), self.query, self.table)


def plan_of(plan: NetworkPlan | JunctionTree, backend: str) -> tuple[NetworkPlan, str, dict[str, Any]]:
    """Plan, backend and options; a tree provides its own."""
    if isinstance(plan, JunctionTree):
        return plan.plan, plan.backend, plan.options
    return plan, backend, {}


MIN_ROWS, MAX_ROWS = 1 << 16, 1 << 20  # of a part, approximately
CSV_BYTES = 1 << 26  # of a part of a CSV, approximately
READ_SIZE = 1 << 24  # bytes
PARTS_PER_WORKER = 4  # so that workers finish at about the same time
PARTS_PER_GROUP = 4  # at most: every part reads its row group from the beginning


@dataclass(frozen=True)
class FilePart:
    """Some rows of a file: everything that a worker needs to know about its input."""

    number: int  # from 0, in the order of the rows
    file: str  # path or URI
    # first, rows: First row of the part, from 0, and number of rows. For a CSV: the byte at which the part begins (0:
    #     all of the file), and -1.
    first: int
    rows: int
    weight: int  # approximate bytes of the file; exact for a part of a CSV
    # head, lines: For a CSV that is divided: bytes of the header; lines between the header and the part
    head: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Division:
    """How a table is divided into parts."""

    # Cases per chunk. The number of rows of a part is a multiple of it, so that chunks are the same as without parts.
    step: int
    workers: int  # number of workers that the parts are for
    rows: int | None = None  # approximate number of rows of a part. Default: from the number of workers.
    max_rows: int = MAX_ROWS  # upper bound of the default


def divide(tables: Sequence[TableFile], quote: str, division: Division) -> tuple[list[FilePart], int]:
    """The parts of all files, in order, and the number of rows of a part that was chosen."""
    # quote: Quote character of CSV files
    rows = division.rows
    if rows is None:
        total = sum(t.rows for t in tables)
        rows = min(max(total // (PARTS_PER_WORKER * division.workers), MIN_ROWS), MAX_ROWS, division.max_rows)
        largest = max((g for t in tables for g in t.groups or ()), default=0)
        rows = max(rows, largest // PARTS_PER_GROUP)
    rows = max(1, round(rows / division.step)) * division.step
    parts: list[FilePart] = []
    for table in tables:
        if table.groups is None:
            parts += _csv_parts(table, quote, len(parts))
        else:
            parts += _parquet_parts(table, rows, len(parts))
    if not parts:  # the answer of files without rows has its columns nevertheless
        parts.append(FilePart(0, tables[0].file.place.uri, 0, 0, 0))
    return parts, rows


def _parquet_parts(table: TableFile, rows: int, number: int) -> list[FilePart]:
    uri, size = table.file.place.uri, table.file.size
    parts = []
    for i, first in enumerate(range(0, table.rows, rows)):
        last = min(first + rows, table.rows)
        weight = size * last // table.rows - size * first // table.rows
        parts.append(FilePart(number + i, uri, first, last - first, weight))
    return parts


def _csv_parts(table: TableFile, quote: str, number: int) -> list[FilePart]:
    place, size = table.file.place, table.file.size
    bounds = [] if table.compressed or size <= CSV_BYTES else _row_bounds(place, quote.encode())
    if len(bounds) < 2:
        return [FilePart(number, place.uri, 0, -1, size)]
    head, header_lines = bounds[0]
    return [
        FilePart(number + i, place.uri, begin, -1, end - begin, head, lines - header_lines)
        for i, ((begin, lines), (end, _)) in enumerate(pairwise([*bounds, (size, 0)]))
    ]


def _row_bounds(place: StoragePath, quote: bytes) -> list[tuple[int, int]]:
    """Where parts of a CSV begin: bytes, and lines before them. The first one is the end of the header.

    A line end is the end of a row if the number of quotes before it is even (RFC 4180). After an unmatched quote within
    a cell no number is even, and the rest of the file is one part.
    """
    bounds: list[tuple[int, int]] = []
    byte = lines = quotes = 0  # before the block
    wanted = 0  # a part begins at the first row that ends after this byte
    with place.fs.open_input_stream(place.path) as file:
        while block := bytes(file.read(READ_SIZE)):
            at = max(wanted - byte, 0)
            while at < len(block) and (end := block.find(b"\n", at) + 1):
                blank = not bounds and not block[:end].strip(b"\r\n\xef\xbb\xbf")  # empty lines before the header
                if blank or (quote and (quotes + block.count(quote, 0, end)) % 2):
                    at = end
                    continue
                bounds.append((byte + end, lines + block.count(b"\n", 0, end)))
                wanted = byte + end + CSV_BYTES
                at = wanted - byte
            byte += len(block)
            lines += block.count(b"\n")
            quotes += block.count(quote) if quote else 0
    return bounds if bounds[-1:] != [(byte, lines)] else bounds[:-1]


# Read the rows of a part in chunks.

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
    def open(self, part: FilePart) -> Iterator[Iterator[CaseChunk]]:
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

    def _parquet_chunks(self, file: Any, part: FilePart) -> Iterator[CaseChunk]:
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


def _extract(place: StoragePath, part: FilePart, to: Path) -> None:
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


def _relocated(chunks: Iterator[CaseChunk], part: FilePart) -> Iterator[CaseChunk]:
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

    def encode(self, table: object) -> Any:
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
