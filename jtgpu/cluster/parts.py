"""Tables of cases in parts that workers take: what there is, where one part ends and the next begins, how one is read.

Parts are settled before the work begins and do not depend on who does it: the same files and options give the same
parts, so that a part that is done twice, or by a later run, is the same part. A Parquet file is divided by rows, a
large CSV by bytes: it is read through once for that, for where its rows begin is known only to whoever has counted the
quotes before. A packed CSV is one part.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..cases.arrow import arrow, arrow_parquet
from ..cases.csvfile import PACKED
from ..cases.stream import Chunk, Source, open_cases
from ..errors import EvidenceError, JtgpuError, ParseError
from ..model.network import DiscreteModel
from .storage import Place, Stored, locate

__all__ = ["Dialect", "Part", "Table", "divide", "look", "opened"]

LOOKING = 16  # files that are looked at at the same time: it is waiting, mostly
HEAD = 1 << 20  # bytes of a CSV from afar that its header must lie within
LEAST_ROWS, MOST_ROWS = 1 << 16, 1 << 20  # of a part, about
BYTES = 1 << 26  # of a part of a CSV, about
READ_AT_ONCE = 1 << 24  # bytes
PARTS_A_WORKER = 4  # so that none waits long for the last one
GROUPS_A_PART = 4  # parts of a row group at most: each reads that group from its beginning


@dataclass(frozen=True)
class Dialect:
    """How CSVs are written; see `jtgpu.cases.stream.open_cases`."""

    delimiter: str | None = None
    quote: str = '"'
    encoding: str = "utf-8"

    def open(self, path: Path, model: DiscreteModel, threads: bool = False) -> Source:
        """A file of this machine."""
        return open_cases(
            path, model, delimiter=self.delimiter, quote=self.quote, encoding=self.encoding, threads=threads
        )


@dataclass(frozen=True)
class Table:
    """A file of cases that was looked at.

    Attributes
    ----------
    stored : Stored
    columns : list of str
    groups : list of int, optional
        Rows of each row group of a Parquet file; None: a CSV.
    types : dict
        Arrow types of columns that are kept.
    packed : bool
    """

    stored: Stored
    columns: list[str]
    groups: list[int] | None
    types: dict[str, Any]
    packed: bool = False

    @property
    def rows(self) -> int:
        """How many; 0 where the file does not say."""
        return sum(self.groups or ())


@dataclass(frozen=True)
class Part:
    """Some rows of a file: all that a worker is told.

    Attributes
    ----------
    number : int
        From 0, in the order of the rows.
    file : str
        Path or URI.
    first, rows : int
        Row of the file, from 0, and how many; -1: a CSV, and the byte where the part begins, 0: all of it.
    weight : int
        Bytes of the file, about; of a part of a CSV exactly.
    head, lines : int
        Bytes of the header of a CSV that is divided; lines between it and the part.
    """

    number: int
    file: str
    first: int
    rows: int
    weight: int
    head: int = 0
    lines: int = 0


def look(files: Sequence[Stored], model: DiscreteModel, dialect: Dialect) -> list[Table]:
    """Columns and sizes of all files; every one is opened, so that a wrong one is found before the work begins.

    Raises
    ------
    JtgpuError
        For a file that is no table of cases, naming it.
    """
    with ThreadPoolExecutor(LOOKING) as pool:
        return list(pool.map(lambda f: _look(f, model, dialect), files))


def _look(file: Stored, model: DiscreteModel, dialect: Dialect) -> Table:
    place = file.place
    try:
        magic = place.read(4)
        if magic == b"PAR1":
            with _parquet(place) as parquet:
                schema, data = parquet.schema_arrow, parquet.metadata
                groups = [data.row_group(i).num_rows for i in range(data.num_row_groups)]
            return Table(file, list(schema.names), groups, {f.name: f.type for f in schema})
        if place.local:
            source = dialect.open(Path(place.path), model)
        else:
            with tempfile.TemporaryDirectory(prefix="jtgpu-") as folder:
                path = Path(folder) / place.name
                place.fetch(path, HEAD)
                source = dialect.open(path, model)
    except ParseError as error:
        raise ParseError(error.message, place.uri, error.line, error.column) from None
    except (OSError, arrow().ArrowInvalid) as error:
        if isinstance(error, JtgpuError):
            raise
        raise ParseError(f"this file cannot be read: {error}", place.uri) from None
    types = dict.fromkeys(source.columns, arrow().string())
    return Table(file, source.columns, None, types, any(magic.startswith(start) for start in PACKED))


def same_columns(tables: Sequence[Table], model: DiscreteModel, wanted: Sequence[str], kept: Sequence[str],
                 named: bool) -> None:  # fmt: skip
    """Hold all files to the columns of the first one.

    Parameters
    ----------
    tables : sequence of Table
    model : DiscreteModel
    wanted, kept : sequences of str
        Columns of evidence; those that are copied.
    named : bool
        Did the user name the columns of evidence? Else a file must not have more of them than the first one.

    Raises
    ------
    EvidenceError
        Naming file and column.
    """
    first = tables[0]
    known = set(model.variables)
    for table in tables:
        uri = table.stored.place.uri
        for name in dict.fromkeys((*wanted, *kept)):
            if (n := table.columns.count(name)) != 1:
                several = f"has {n} columns" if n else "has no column"
                raise EvidenceError(f"{uri} {several} {name!r}, which {first.stored.place.uri} has")
        for name in kept:
            if table.types[name] != first.types[name]:
                raise EvidenceError(
                    f"{uri}: the column {name!r} is of type {table.types[name]}, in {first.stored.place.uri} of type "
                    f"{first.types[name]}"
                )
        more = [] if named else sorted((known & set(table.columns)) - set(first.columns))
        if more:
            raise EvidenceError(
                f"{uri} has the column {more[0]!r}, which is a variable, and {first.stored.place.uri} has not; "
                "evidence_columns= says which are evidence"
            )


def divide(
    tables: Sequence[Table], dialect: Dialect, step: int, workers: int, part_rows: int | None = None,
    most: int = MOST_ROWS,
) -> tuple[list[Part], int]:  # fmt: skip
    """Parts of all files, in order.

    Parameters
    ----------
    tables : sequence of Table
    dialect : Dialect
    step : int
        Cases at a time: a part's rows are a multiple of it, so that cases come together as they do without parts.
    workers : int
        To be kept busy.
    part_rows : int, optional
        Rows of a part, about.
    most : int
        Rows that are enough for a part where nothing is said, whatever the number of workers.

    Returns
    -------
    list of Part, int
        And the rows of a part as it was chosen.
    """
    if part_rows is None:
        total = sum(t.rows for t in tables)
        part_rows = min(max(total // (PARTS_A_WORKER * workers), LEAST_ROWS), MOST_ROWS, most)
        largest = max((g for t in tables for g in t.groups or ()), default=0)
        part_rows = max(part_rows, largest // GROUPS_A_PART)
    rows = max(1, round(part_rows / step)) * step
    parts: list[Part] = []
    for table in tables:
        place, size = table.stored.place, table.stored.size
        if table.groups is None:
            cuts = [] if table.packed or size <= BYTES else _cuts(place, dialect.quote.encode())
            if len(cuts) < 2:
                parts.append(Part(len(parts), place.uri, 0, -1, size))
            for (begin, lines), (end, _) in pairwise([*cuts, (size, 0)] if len(cuts) > 1 else []):
                parts.append(Part(len(parts), place.uri, begin, -1, end - begin, cuts[0][0], lines - cuts[0][1]))
            continue
        for first in range(0, table.rows, rows):
            last = min(first + rows, table.rows)
            weight = size * last // table.rows - size * first // table.rows
            parts.append(Part(len(parts), place.uri, first, last - first, weight))
    if not parts:  # files without rows: the answer has its columns nevertheless
        parts.append(Part(0, tables[0].stored.place.uri, 0, 0, 0))
    return parts, rows


def _cuts(place: Place, quote: bytes) -> list[tuple[int, int]]:
    """Where parts of a CSV begin: bytes, and lines before them. The first one is the end of the header.

    A line's end is a row's end where the quotes before it are even, as RFC 4180 has it; where a quote stands alone in a
    cell none is even any more, and the rest is one part.
    """
    cuts: list[tuple[int, int]] = []
    byte = lines = quotes = 0  # before the block
    wanted = 0  # a part begins at the first row that ends behind this byte
    with place.fs.open_input_stream(place.path) as file:
        while block := bytes(file.read(READ_AT_ONCE)):
            at = max(wanted - byte, 0)
            while at < len(block) and (end := block.find(b"\n", at) + 1):
                blank = not cuts and not block[:end].strip(b"\r\n\xef\xbb\xbf")  # empty lines before the header
                if blank or (quote and (quotes + block.count(quote, 0, end)) % 2):
                    at = end
                    continue
                cuts.append((byte + end, lines + block.count(b"\n", 0, end)))
                wanted = byte + end + BYTES
                at = wanted - byte
            byte += len(block)
            lines += block.count(b"\n")
            quotes += block.count(quote) if quote else 0
    return cuts if cuts[-1:] != [(byte, lines)] else cuts[:-1]


# Reading --------------------------------------------------------------------------------------------------------


@contextmanager
def opened(
    part: Part, model: DiscreteModel, dialect: Dialect, evidence: Sequence[str], kept: Sequence[str], step: int,
    threads: bool,
) -> Iterator[Iterator[Chunk]]:  # fmt: skip
    """The chunks of a part, as `jtgpu.cases.pipeline.run_chunks` takes them; a CSV from afar is fetched first."""
    place = locate(part.file)
    if part.rows >= 0:
        with _parquet(place, evidence, kept) as file:
            yield _rows(file, part, [*evidence, *kept], step, threads)
        return
    if place.local and not part.head:
        yield dialect.open(Path(place.path), model, threads).chunks(evidence, kept, step)
        return
    with tempfile.TemporaryDirectory(prefix="jtgpu-") as folder:
        path = Path(folder) / place.name
        if part.head:
            _cut_out(place, part, path)
        else:
            place.fetch(path)
        try:
            yield _called(dialect.open(path, model, threads).chunks(evidence, kept, step), part)
        except ParseError as error:
            if error.source == part.file:  # of a row, which is called by its right name
                raise
            line = None if error.line is None else error.line + part.lines
            raise ParseError(error.message, part.file, line, error.column) from None


def _cut_out(place: Place, part: Part, to: Path) -> None:
    """A part of a CSV as a CSV of its own, with the header."""
    with place.fs.open_input_file(place.path) as file, to.open("wb") as out:
        out.write(file.read(part.head))
        file.seek(part.first)
        left = part.weight
        while left > 0 and (block := file.read(min(left, READ_AT_ONCE))):
            out.write(block)
            left -= len(block)
    if left:
        raise ParseError(f"is {left} bytes shorter than it was", part.file)


def _called(chunks: Iterator[Chunk], part: Part) -> Iterator[Chunk]:
    """Chunks whose rows are named by the file that the user knows."""

    def place(row: int, of: Callable[[int], tuple[str, int | None]]) -> tuple[str, int | None]:
        line = of(row)[1]
        return part.file, None if line is None else line + part.lines

    for chunk in chunks:
        chunk.place = partial(place, of=chunk.place)
        yield chunk


@contextmanager
def _parquet(place: Place, evidence: Sequence[str] = (), kept: Sequence[str] = ()) -> Iterator[Any]:
    """A Parquet file; text that is evidence alone is read as numbers of different texts."""
    parquet = arrow_parquet()
    types = arrow().types
    with place.fs.open_input_file(place.path) as file:
        schema = parquet.read_schema(file)
        text = [
            n for n in evidence
            if n not in kept and (types.is_string(t := schema.field(n).type) or types.is_large_string(t))
        ]  # fmt: skip
        file.seek(0)
        with parquet.ParquetFile(file, read_dictionary=text) as opened_file:
            yield opened_file


def _rows(file: Any, part: Part, names: Sequence[str], step: int, threads: bool) -> Iterator[Chunk]:
    """The rows of a part, `step` at a time."""
    pa = arrow()
    groups: list[int] = []
    before = end = 0
    for i in range(file.metadata.num_row_groups):
        begin, end = end, end + file.metadata.row_group(i).num_rows
        if begin < part.first + part.rows and end > part.first:
            before = before if groups else part.first - begin  # rows of the first group that are not of this part
            groups.append(i)
    if not groups:
        return
    wanted = list(dict.fromkeys(names))
    row, left = part.first, part.rows
    held: list[Any] = []
    batches = file.iter_batches(step, row_groups=groups, columns=wanted, use_threads=threads)
    while left:
        try:
            batch = next(batches, None)
        except (OSError, pa.ArrowInvalid) as error:
            raise ParseError(f"cannot be read behind row {row + 1}: {error}", part.file) from None
        if batch is None:
            raise ParseError(f"ends at row {row}, where its footer says that it goes on", part.file)
        skipped = min(before, batch.num_rows)
        before -= skipped
        held.append(batch.slice(skipped))
        while sum(b.num_rows for b in held) >= min(step, left) and left:
            table = pa.Table.from_batches(held)
            chosen = table.slice(0, min(step, left))
            held = table.slice(chosen.num_rows).to_batches()
            yield _chunk(chosen, names, part.file, row)
            row += chosen.num_rows
            left -= chosen.num_rows


def _chunk(table: Any, names: Sequence[str], uri: str, row: int) -> Chunk:
    def place(i: int) -> tuple[str, int | None]:
        return f"{uri}: row {row + i + 1}", None

    done = row + table.num_rows
    return Chunk(table.num_rows, [table.column(n) for n in names], {"row": done}, done, place)
