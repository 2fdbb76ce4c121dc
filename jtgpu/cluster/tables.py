"""The files of a table: their columns and sizes, checked before the work begins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cases.options import CsvDialect
from ..cases.reading import open_cases
from ..cases.reading.csv_file import COMPRESSIONS
from ..cases.reading.parquet_file import is_text
from ..errors import EvidenceError, JtgpuError, ParseError
from ..inference.tables.arrow import arrow, arrow_parquet
from ..model.discrete import DiscreteModel
from .find_cases import CaseFile
from .storage import StoragePath

CONCURRENT_READS = 16  # files inspected at the same time: most of it is waiting
HEADER_BYTES = 1 << 20  # of a remote CSV, downloaded to read its header


@dataclass(frozen=True)
class Table:
    """A file of cases."""

    file: CaseFile
    columns: list[str]
    groups: list[int] | None  # list of int: Rows of each row group of a Parquet file; None for a CSV
    types: dict[str, Any]  # arrow types of the columns
    compressed: bool = False  # whether it is a compressed CSV

    @property
    def rows(self) -> int:
        """Number of rows; 0 if the file does not record it."""
        return sum(self.groups or ())


def inspect_files(files: Sequence[CaseFile], model: DiscreteModel, dialect: CsvDialect) -> list[Table]:
    """Columns and sizes of all files. Every file is opened, so that an invalid one is found before the work begins."""
    # raises JtgpuError: If a file is not a table of cases; the message names it.
    with ThreadPoolExecutor(CONCURRENT_READS) as pool:
        return list(pool.map(lambda f: _inspect(f, model, dialect), files))


def _inspect(file: CaseFile, model: DiscreteModel, dialect: CsvDialect) -> Table:
    place = file.place
    try:
        magic = place.read(4)
        if magic == b"PAR1":
            with open_parquet(place) as parquet:
                schema, data = parquet.schema_arrow, parquet.metadata
                groups = [data.row_group(i).num_rows for i in range(data.num_row_groups)]
            return Table(file, list(schema.names), groups, {f.name: f.type for f in schema})
        if place.local:
            source = open_cases(Path(place.path), model, dialect, threads=False)
        else:
            with tempfile.TemporaryDirectory(prefix="jtgpu-") as folder:
                path = Path(folder) / place.name
                place.download(path, HEADER_BYTES)
                source = open_cases(path, model, dialect, threads=False)
    except ParseError as error:
        raise ParseError(error.message, place.uri, error.line, error.column) from None
    except (OSError, arrow().ArrowInvalid) as error:
        if isinstance(error, JtgpuError):
            raise
        raise ParseError(f"this file cannot be read: {error}", place.uri) from None
    types = dict.fromkeys(source.columns, arrow().string())
    return Table(file, source.columns, None, types, any(magic.startswith(start) for start in COMPRESSIONS))


@contextmanager
def open_parquet(place: StoragePath, evidence: Sequence[str] = (), kept: Sequence[str] = ()) -> Iterator[Any]:
    """A Parquet file; text that is only evidence is read as a dictionary of its distinct values."""
    parquet = arrow_parquet()
    with place.fs.open_input_file(place.path) as file:
        schema = parquet.read_schema(file)
        text = [n for n in evidence if n not in kept and is_text(schema.field(n).type)]
        file.seek(0)
        with parquet.ParquetFile(file, read_dictionary=text) as opened:
            yield opened


def check_columns(
    tables: Sequence[Table], model: DiscreteModel, evidence: Sequence[str], kept: Sequence[str], *, explicit: bool
) -> None:
    """Check that all files have the columns of the first one."""
    # evidence, kept: sequences of str: Columns of evidence; columns to copy
    # explicit: Whether the columns of evidence were given explicitly. If not, no file may have a column that is a
    #     variable and that the first file does not have.
    # raises EvidenceError: If the columns differ; the message names the file and the column.
    first = tables[0]
    name_of_first = first.file.place.uri
    for table in tables:
        uri = table.file.place.uri
        for name in dict.fromkeys((*evidence, *kept)):
            if (n := table.columns.count(name)) != 1:
                problem = f"has {n} columns" if n else "has no column"
                raise EvidenceError(f"{uri} {problem} {name!r}, unlike {name_of_first}")
        for name in kept:
            if table.types[name] != first.types[name]:
                raise EvidenceError(
                    f"{uri}: the column {name!r} has type {table.types[name]}, but {first.types[name]} in "
                    f"{name_of_first}"
                )
        if not explicit:
            _check_no_more_variables(table, first, model)


def _check_no_more_variables(table: Table, first: Table, model: DiscreteModel) -> None:
    more = sorted((set(model.variables) & set(table.columns)) - set(first.columns))
    if more:
        raise EvidenceError(
            f"{table.file.place.uri} has the column {more[0]!r}, which is a variable, but {first.file.place.uri} does "
            "not; pass evidence_columns to choose the evidence"
        )
