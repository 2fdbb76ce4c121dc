"""Whole tables as Arrow tables: CSV and Parquet files, read and written at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ParseError
from ..formats import FileError
from ..inference.tables.arrow import arrow, arrow_csv, arrow_parquet
from ..inference.tables.states import MISSING
from ..util.atomic_file import open_atomic
from .writing.formats import writer_for

__all__ = ["read_file", "time_column", "write_file"]

DELIMITERS = ",;\t|"


def read_file(path: str | Path, *, as_text: bool = False) -> Any:
    """A CSV (compressed or not) or Parquet file as an Arrow table. Empty cells, ``NA``, ``NaN`` ... are null.

    Parameters
    ----------
    path : str or Path
    as_text : bool
        Leave the cells of a CSV file as they are: all columns are text, and no cell is null.

    Raises
    ------
    FileError, ParseError
        If it cannot be opened or read.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(4)
        if head == b"PAR1":
            return arrow_parquet().read_table(path)
        csv = arrow_csv()
        with arrow().input_stream(str(path)) as stream:  # decompresses by suffix
            line = stream.read(1 << 16).removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
        parse = csv.ParseOptions(delimiter=max(DELIMITERS, key=line.count))
        if as_text:
            names = csv.open_csv(path, None, parse).schema.names
            text = dict.fromkeys(names, arrow().string())
            return csv.read_csv(path, None, parse, csv.ConvertOptions(column_types=text, strings_can_be_null=False))
        convert = csv.ConvertOptions(null_values=list(MISSING), strings_can_be_null=True)
        return csv.read_csv(path, None, parse, convert)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except (arrow().ArrowInvalid, arrow().ArrowNotImplementedError) as error:
        raise ParseError(str(error), str(path)) from None


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
