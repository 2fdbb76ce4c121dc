"""Whole tables as Arrow tables: CSV and Parquet files, read and written at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import DataError, EvidenceError, ParseError
from ..inference.tables.arrow import arrow, arrow_csv, arrow_parquet
from ..inference.tables.columns import reject_repeated
from ..inference.tables.states import MISSING
from ..model.discrete import DiscreteModel
from ..util.atomic_file import open_atomic
from .options import CsvDialect
from .reading import open_cases
from .reading.csv_file import CsvFile
from .writing.formats import writer_for

__all__ = ["read_file", "time_column", "write_file"]

ROWS = 100_000  # that are parsed at a time to find a wrong one
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")


def read_file(path: str | Path, *, dialect: CsvDialect | None = None, as_text: bool = False) -> Any:
    """A CSV (compressed or not) or Parquet file as an Arrow table. Empty cells, ``NA``, ``NaN`` ... are null.

    Columns of a CSV file hold numbers if all their cells are numbers, with decimal points or, where the delimiter is no
    comma, decimal commas.

    Parameters
    ----------
    path : str or Path
    dialect : CsvDialect, optional
    as_text : bool
        Leave the cells of a CSV file as they are: all columns are text, and no cell is null.

    Raises
    ------
    FileError
        If it cannot be opened.
    ParseError
        If it cannot be read; the message names the line.
    DataError
        If two columns have the same name.
    """
    source = open_cases(Path(path), DiscreteModel({}), dialect)
    try:
        reject_repeated(source.columns, source.columns, str(path))
    except EvidenceError as error:
        raise DataError(str(error)) from None
    if isinstance(source, CsvFile):
        return _read_csv(source, as_text)
    try:
        return arrow_parquet().read_table(path)
    except (OSError, arrow().ArrowInvalid, arrow().ArrowNotImplementedError) as error:
        raise ParseError(str(error), str(path)) from None


def _read_csv(file: CsvFile, as_text: bool) -> Any:
    """A CSV file, by Arrow's reader."""
    types = arrow().types
    try:
        table = _by_arrow(file, as_text)
    except arrow().ArrowInvalid:
        if not _n_rows(file):
            return arrow().table({name: arrow().array([], arrow().string()) for name in file.columns})
        try:  # a cell of several lines, which Arrow divided
            table = _by_arrow(file, as_text, newlines=True)
        except arrow().ArrowInvalid as error:
            raise ParseError(str(error), file.name) from None
    if any(types.is_binary(kind) for kind in table.schema.types):  # not UTF-8
        _n_rows(file)
    texts = [column for column in table.columns if len(column) and types.is_string(column.type)]
    if any("\n" in (column[-1].as_py() or "") for column in texts) and file.has_open_quote():
        raise ParseError("a quote is not closed", file.name)
    if file.delimiter != "," and any(DECIMAL_COMMA.fullmatch(column[0].as_py() or "") for column in texts):
        found = _by_arrow(file, as_text, decimal_point=",")
        if sum(map(types.is_string, found.schema.types)) < len(texts):
            return found
    return table


def _by_arrow(file: CsvFile, as_text: bool, *, newlines: bool = False, decimal_point: str = ".") -> Any:
    if as_text:
        text = dict.fromkeys(file.columns, arrow().string())
        convert = arrow_csv().ConvertOptions(column_types=text, strings_can_be_null=False)
    else:
        convert = arrow_csv().ConvertOptions(
            null_values=list(MISSING), strings_can_be_null=True, decimal_point=decimal_point
        )
    return file.arrow_table(convert, newlines=newlines)


def _n_rows(file: CsvFile) -> int:
    """The number of rows; raises for the first one that cannot be read, naming its line."""
    n = 0
    for chunk in file.chunks([], file.columns, ROWS):
        chunk.load()
        if chunk.broken:
            at, reason = min(chunk.broken.items())
            raise ParseError(reason, *chunk.locate(at))
        n += chunk.n
    return n


def time_column(table: Any) -> str | None:
    """The first column of dates or times, if there is one."""
    return next((f.name for f in table.schema if arrow().types.is_temporal(f.type)), None)


def write_file(table: Any, path: str | Path) -> None:
    """Write an Arrow table as CSV, TSV or Parquet, by suffix; the file appears when it is complete."""
    writer = writer_for(Path(path))
    pieces, _ = writer.place(writer.encode(table), len(writer.start()))
    with open_atomic(path) as file:
        for piece in (writer.start(), *pieces, writer.end(table.schema)):
            file.write(piece)
