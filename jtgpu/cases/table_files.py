"""Whole tables as Arrow tables: CSV and Parquet files, read and written at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..errors import DataError, EvidenceError, ParseError
from ..inference.tables.arrow import arrow, arrow_csv, arrow_parquet, compute
from ..inference.tables.columns import reject_repeated
from ..model.discrete import DiscreteModel
from ..util.atomic_file import open_atomic
from ..util.missing import is_na_word, na_words
from .options import CsvDialect
from .reading import open_cases
from .reading.csv_file import CsvFile
from .writing.formats import writer_for

ROWS = 100_000  # that are parsed at a time to find a wrong one
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")


def read_file(
    path: str | Path, *, dialect: CsvDialect | None = None, na_values: Any = None,
    states: Mapping[str, Collection[str]] | None = None, keep_words: bool = False, as_text: bool = False,
) -> Any:  # fmt: skip
    """A CSV (compressed or not) or Parquet file as an Arrow table. Empty cells, ``NA``, ``NaN`` ... of a CSV are null.

    Columns of a CSV file hold numbers if all their cells are numbers, with decimal points or, where the delimiter is no
    comma, decimal commas.
    """
    # na_values: str or iterable of str: Words of a CSV file that are null; see `jtgpu.util.missing.na_words`
    # states: Columns of a CSV file that are text, and words that are not null in them
    # keep_words: Leave these words as they are in columns of text
    # as_text: Leave the cells of a CSV file as they are: all columns are text, and no cell is null
    # raises FileError: If it cannot be opened.
    # raises ParseError: If it cannot be read; the message names the line.
    # raises DataError: If two columns have the same name.
    source = open_cases(Path(path), DiscreteModel({}), dialect)
    try:
        reject_repeated(source.columns, source.columns, str(path))
    except EvidenceError as error:
        raise DataError(str(error)) from None
    if isinstance(source, CsvFile):
        if as_text:
            text = dict.fromkeys(source.columns, arrow().string())
            return _read_csv(source, arrow_csv().ConvertOptions(column_types=text, strings_can_be_null=False))
        declared, words = dict(states or {}), na_words(na_values, is_text=True)
        convert = arrow_csv().ConvertOptions(
            column_types={name: arrow().string() for name in source.columns if name in declared},
            null_values=[*words, *(f" {word}" for word in words)], strings_can_be_null=False,
        )  # fmt: skip
        table = _read_csv(source, convert)
        return table if keep_words else _without_words(table, words, declared)
    try:
        return arrow_parquet().read_table(path)
    except (OSError, arrow().ArrowInvalid, arrow().ArrowNotImplementedError) as error:
        raise ParseError(str(error), str(path)) from None


def is_text_file(path: str | Path, dialect: CsvDialect | None = None) -> bool:
    """Whether a file of cases is text, in which words may mean missing cells."""
    return isinstance(open_cases(Path(path), DiscreteModel({}), dialect), CsvFile)


def _without_words(table: Any, words: frozenset[str], states: Mapping[str, Collection[str]]) -> Any:
    """The table with nulls in place of words that mean a missing cell and are not states of the column."""
    for j, name in enumerate(table.column_names):
        column = table.column(j)
        if arrow().types.is_string(column.type):
            known = states.get(name, ())
            gone = [v for v in column.unique().to_pylist() if is_na_word(v, words) and v.strip() not in known]
            if gone:
                is_gone = compute().is_in(column, arrow().array(gone, arrow().string()))
                table = table.set_column(j, name, compute().if_else(is_gone, None, column))
    return table


def _read_csv(file: CsvFile, convert: Any) -> Any:
    """A CSV file, by Arrow's reader."""
    types = arrow().types
    try:
        table = file.arrow_table(convert)
    except arrow().ArrowInvalid:
        if not _n_rows(file):
            return arrow().table({name: arrow().array([], arrow().string()) for name in file.columns})
        try:  # a cell of several lines, which Arrow divided
            table = file.arrow_table(convert, newlines=True)
        except arrow().ArrowInvalid as error:
            raise ParseError(str(error), file.name) from None
    if any(types.is_binary(kind) for kind in table.schema.types):  # not UTF-8
        _n_rows(file)
    texts = [column for column in table.columns if len(column) and types.is_string(column.type)]
    if any("\n" in (column[-1].as_py() or "") for column in texts) and file.has_open_quote():
        raise ParseError("a quote is not closed", file.name)
    if file.delimiter != "," and any(DECIMAL_COMMA.fullmatch(column[0].as_py() or "") for column in texts):
        convert.decimal_point = ","
        found = file.arrow_table(convert)
        if sum(map(types.is_string, found.schema.types)) < len(texts):
            return found
    return table


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
