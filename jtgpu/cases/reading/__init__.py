"""Files of cases, CSV or Parquet, read in chunks."""

from __future__ import annotations

import stat
from pathlib import Path

from ...errors import FileError, FormatError
from ...model.discrete import DiscreteModel
from ...options.tables import CsvDialect
from .csv_file import CsvFile
from .source import CaseChunk, ParquetFile, RowLocation, Source

# Open a file of cases: Parquet or CSV, recognized by content.

def open_cases(path: Path, model: DiscreteModel, dialect: CsvDialect | None = None, *, threads: bool = True) -> Source:
    """Open a file of cases."""
    # model: The names of its variables determine the delimiter of a CSV, if the dialect does not
    # threads: Whether several cores may parse
    # raises FileError: If the file cannot be opened.
    # raises ParseError: If the file has no header or is not text.
    try:
        if stat.S_ISFIFO(path.stat().st_mode) or path.is_char_device():
            raise FileError(f"{path}: cases must be in a regular file, so that an interrupted run can continue")
        with path.open("rb") as file:
            head = file.read(8)
    except FileError:
        raise
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        raise FileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if head[:4] == b"PAR1":
        return ParquetFile(path, threads)
    if head[:6] == b"ARROW1":
        raise FormatError(f"{path}: Arrow files are not supported; convert it to CSV or Parquet")
    return CsvFile(path, model, dialect or CsvDialect(), threads)


__all__ = ["CaseChunk", "RowLocation", "Source", "open_cases"]
