"""Files of cases, CSV or Parquet, read in chunks."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import (
    ArgumentError,
    DataError,
    EvidenceError,
    FileError,
    FormatError,
    ParseError,
    TableTooLarge,
    format_bytes,
    shown,
)
from ..model.discrete import DiscreteModel
from ..options.record import fields_of
from ..options.tables import CsvDialect
from ..util.calls import outside
from ..util.cells import GROUPED, POINT, UNDECIDED, Marks, is_na_word, moment, na_words, number_text, numeral
from ..util.system import free_memory
from ..util.text_table import counted, intervals_of
from .arrow import arrow, arrow_parquet, compute, without_words
from .column import Column
from .csv_file import CsvFile
from .kinds import INFINITE, typed_words
from .memory import open_table, read_column
from .names import reject_repeated
from .source import ParquetFile, Source

# Open a file of cases: Parquet or CSV, recognized by content.

OTHER_KINDS = {  # by their first bytes
    b"ARROW1": "Arrow files", b"FEA1": "Feather files", b"PK\x03\x04": "workbooks and zip archives",
    b"\xd0\xcf\x11\xe0": "workbooks", b"\xfd7zXZ": "files compressed by xz", b'{"': "JSON files", b"[{": "JSON files",
}  # fmt: skip


def open_cases(path: Path, model: DiscreteModel, dialect: CsvDialect | None = None, *, threads: bool = True) -> Source:
    """Open a file of cases."""
    # model: The names of its variables determine the delimiter of a CSV, if the dialect does not
    # threads: Whether several cores may parse
    # raises FileError: If the file cannot be opened.
    # raises ParseError: If the file has no header or is not text.
    try:
        if path.is_dir():
            raise FileError(f"{path} is a folder: name one file of cases in it")
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
    for begin, kind in OTHER_KINDS.items():
        if head.startswith(begin):
            raise FormatError(f"{path}: {kind} are not supported; convert it to CSV or Parquet")
    return CsvFile(path, model, dialect or CsvDialect(), threads)


# Whole tables as Arrow tables: CSV and Parquet files, read and written at once.

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".gz", ".zst", ".bz2", ".lz4")
FIRST_ROWS, FIRST_COLUMNS = 1000, 64  # among whose cells the names of columns are sought
CELL_BYTES = 20  # that a cell needs besides its text: Arrow's array and the codes made of it
HEAD = 50  # cells, any of which shows that a column is words
DAY = 10  # characters: 2024-08-28
ROWS = 100_000  # that are parsed at a time
DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")


def files_of(cases: Any, dialect: CsvDialect | None = None) -> list[Path]:
    """The files that a path or several paths stand for; none if the cases are a table in memory.

    A folder stands for the files in it with a suffix of cases, by name.
    """
    # raises ArgumentError: If there is no file, and the dialect says how one is written.
    is_paths = isinstance(cases, (list, tuple)) and cases and all(isinstance(p, (str, os.PathLike)) for p in cases)
    if not is_paths and not isinstance(cases, (str, os.PathLike)):
        for name, option in fields_of(CsvDialect).items():
            if dialect is not None and getattr(dialect, name) != option.default:
                raise ArgumentError(f"{name}= says how a CSV file is written; the table is in memory")
        return []
    return [file for p in (cases if is_paths else [cases]) for file in _in_folder(Path(p))]


def _in_folder(path: Path) -> list[Path]:
    """A file, or those of a folder."""
    if not os.path.isdir(path):  # False, too, for a name that is too long
        return [path]
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith((".", "_")))
    if not files:
        raise DataError(f"the folder {path} has no files of cases ({', '.join(SUFFIXES)})")
    return files


def in_memory(
    cases: object, dialect: CsvDialect | None = None, na_values: object = None,
    states: Mapping[str, Collection[str]] | None = None,
) -> Any:  # fmt: skip
    """Cases of any kind as a table in memory: files are read, one after the other."""
    # na_values, states: See `read_file`; `na_values` hold for tables in memory, too
    files = files_of(cases, dialect)
    table = read_file(*files, dialect=dialect, na_values=na_values, states=states) if files else cases
    return table if na_values is None else _without_words(table, na_values, states or {})


def require_columns(file: str | Path, names: Collection[str], first: str | Path, expected: Collection[str]) -> None:
    """Raise `DataError` if two files differ in their columns."""
    if set(names) != set(expected):
        raise DataError(f"{file} and {first} differ in the column {sorted(set(names) ^ set(expected))[0]!r}")


def _without_words(cases: Any, na_values: Any, states: Mapping[str, Collection[str]]) -> Any:
    """A table in memory in which some words are missing cells, unless they are states."""
    words, table = na_words(na_values, is_text=False), open_table(None, cases)
    columns: dict[str, Any] = {}
    for name in table.names:
        read = read_column(name, table)
        gone = [i for i, v in enumerate(read.cells) if is_na_word(v, words) and v.strip() not in states.get(name, ())]
        if gone:
            columns[name] = Column(np.where(np.isin(read.index, gone), -1, read.index), read.cells, read.declared)
    return {name: columns.get(name, table.column(name)) for name in table.names} if columns else cases


def read_file(
    *files: str | Path, dialect: CsvDialect | None = None, na_values: Any = None,
    states: Mapping[str, Collection[str]] | None = None, keep_words: bool = False, as_text: bool = False,
) -> Any:  # fmt: skip
    """CSV (compressed or not) or Parquet files, one after the other, as an Arrow table.

    Empty cells, ``NA``, ``NaN`` ... of a CSV are null. Its columns hold numbers if all their cells are numbers, with
    decimal points or, where the delimiter is no comma, decimal commas.
    """
    # na_values: str or iterable of str: Words of a CSV file that are null; see `jtgpu.util.cells.na_words`
    # states: Columns of a CSV file that are text, and words that are not null in them
    # keep_words: Leave these words as they are in columns of text
    # as_text: Leave the cells of a CSV file as they are: all columns are text, and no cell is null
    # raises FileError: If one cannot be opened.
    # raises ParseError: If one cannot be read; the message names the line.
    # raises DataError: If two columns have the same name, or the files differ in columns or kind.
    # raises TableTooLarge: If the table and its codes would need more memory than is free, by the files' size.
    sources = [open_cases(Path(file), DiscreteModel({}), dialect) for file in files]
    names = sources[0].columns
    for source in sources:
        _require_names(source)
        require_columns(source.name, source.columns, sources[0].name, names)
    require_memory(sources, free_memory(), "are free")
    texts_of = [source for source in sources if isinstance(source, CsvFile)]
    if len(texts_of) < len(sources):
        return _read_parquet(sources)
    parts = [dict(zip(source.columns, _read_csv(source), strict=True)) for source in texts_of]
    texts = [arrow().chunked_array([c for part in parts for c in part[v].chunks], arrow().string()) for v in names]
    if as_text:
        return arrow().table([compute().fill_null(column, "") for column in texts], names)
    declared, words = dict(states or {}), na_words(na_values, is_text=True)
    as_words = {v for v, s in declared.items() if intervals_of([*map(str, s)]) is None}  # intervals have numbers
    table, marks = _typed_table(texts_of, dict(zip(names, texts, strict=True)), as_words, words)
    if (dialect is None or dialect.header is None) and _looks_like_a_case(table):
        warnings.warn(
            f"{files[0]}: the first row ({', '.join(map(shown, names[:4]))}, ...) looks like a case, not "
            "like names of columns: if it is one, use --header none, or --header with names (in Python, "
            "read=ReadOptions(header=...))",
            stacklevel=outside(),
        )
    for j, name in enumerate(names):
        if name in as_words and marks not in (POINT, UNDECIDED):
            table = table.set_column(j, name, _with_points(table.column(j), marks, declared[name]))
        if not keep_words and arrow().types.is_string(table.column(j).type):
            table = table.set_column(j, name, without_words(table.column(j), words, declared.get(name, ())))
    return table


def _require_names(source: Source) -> None:
    """Raise `DataError` for a file with columns without names, or of one name."""
    if n_unnamed := len(source.columns) - max((i for i, name in enumerate(source.columns, 1) if name), default=0):
        raise DataError(
            f"{source.name}: {counted(n_unnamed, 'column')} without names at the end; delete them, or name all columns "
            "by header= (--header)"
        )
    try:
        reject_repeated(source.columns, source.columns, source.name)
    except EvidenceError as error:
        hint = ""
        if any(_NUMERAL.fullmatch(name) for name in source.columns):
            hint = "; if the first row is a case, name the columns by --header, or --header none"
        raise DataError(f"{error}{hint}") from None


def _with_points(column: Any, marks: Marks, states: Collection[str]) -> Any:
    """A column of text whose numerals have the marks of Python, but for names of states."""
    coded = column.combine_chunks().dictionary_encode()
    numbers = [(text, None if text in states else numeral(text, marks)) for text in coded.dictionary.to_pylist()]
    points = [text if x is None or not {*marks} & {*text} else number_text(x) for text, x in numbers]
    return arrow().array(points, arrow().string()).take(coded.indices)


def _typed_table(
    files: list[CsvFile], texts: dict[str, Any], as_words: set[str], words: frozenset[str]
) -> tuple[Any, Marks]:
    """Columns of text with numbers, truth values or moments where all their words are such, and the files' marks."""
    is_string, columns = arrow().types.is_string, dict(texts)
    known = {file.marks for file in files} - {UNDECIDED}
    if len(known) > 1:
        raise DataError(f"the files {files[0].name}, ... differ in their decimal marks; decimal= says one (--decimal)")
    marks = known.pop() if known else UNDECIDED
    for _ in range(2):
        for name, text in texts.items():
            if name not in as_words and is_string(columns[name].type):
                typed = _typed(text, words, marks)
                columns[name] = text if typed is None else typed
        words_of = (
            (name, compute().filter(c, compute().match_substring(c, ",")).unique().to_pylist())
            for name, c in columns.items() if is_string(c.type)
        )
        if marks != UNDECIDED or not (decimal := decimal_of(files[0].name, words_of)):
            break
        marks = decimal, marks[1]
    return arrow().table(columns), marks


def _read_parquet(sources: list[Source]) -> Any:
    """Parquet files, one after the other, as an Arrow table."""
    if any(isinstance(source, CsvFile) for source in sources):
        raise DataError(f"{sources[0].name}, ...: files of one table must be of one kind, CSV or Parquet")
    tables = []
    for source in sources:
        try:
            tables.append(arrow_parquet().read_table(source.name).select(sources[0].columns))
        except (OSError, arrow().ArrowInvalid, arrow().ArrowNotImplementedError) as error:
            raise ParseError(str(error), source.name) from None
    try:
        return arrow().concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]
    except (arrow().ArrowInvalid, arrow().ArrowTypeError, arrow().ArrowNotImplementedError) as error:
        raise DataError(f"{sources[0].name}, ...: the files differ in the type of a column: {error}") from None


_NUMERAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+")


def _looks_like_a_case(table: Any) -> bool:
    """Whether most of the first names are cells of their own columns, or numbers with fractions."""
    names, rows = table.column_names[:FIRST_COLUMNS], table.slice(0, FIRST_ROWS)
    first = int(names[0]) if names[0].isascii() and names[0].isdigit() and len(names[0]) < 10 else 0
    if len(names) < 2 or not rows.num_rows or names == [str(first + i) for i in range(len(names))]:  # pixels, years
        return False
    types, n_cells = arrow().types, 0
    for j, name in enumerate(names):
        column = rows.column(j)
        is_number = types.is_integer(column.type) or types.is_floating(column.type)
        if is_number and _NUMERAL.fullmatch(name):
            n_cells += "." in name or compute().any(compute().equal(column, float(name))).as_py() is True
        elif types.is_string(column.type):
            n_cells += compute().any(compute().equal(column, name)).as_py() is True
    return 2 * n_cells >= len(names)


def require_memory(sources: Sequence[Source], limit: int, what: str) -> None:
    """Raise `TableTooLarge` if files need more memory than a limit: a table that is too large is not read at all."""
    # what: the end of a clause about the limit
    size, rows = map(sum, zip(*(source.whole() for source in sources), strict=True))
    n = len(sources[0].columns)
    needed = size + CELL_BYTES * rows * n
    if needed > limit:
        raise TableTooLarge(
            f"{sources[0].name}: about {rows:,} rows of {n:,} columns need about {format_bytes(needed)} "
            f"as a whole table, and {format_bytes(limit)} {what}; take a sample of the rows, or fewer columns "
            "(`jtgpu fit` of CPTs and `jtgpu batch` read a file in parts)", rows * n, needed, limit,
        )  # fmt: skip


def lines_of(path: str | Path, dialect: CsvDialect | None, rows: Collection[int]) -> dict[int, str]:
    """Places of rows of CSV files, such as ``cases.csv:5``; empty for other files."""
    lines: dict[int, str] = {}
    first = 0
    for source in (open_cases(file, DiscreteModel({}), dialect) for file in files_of(path)):
        for chunk in source.chunks([], source.columns, ROWS) if isinstance(source, CsvFile) else ():
            chunk.load()
            for row in rows:
                if first <= row < first + chunk.n:
                    file, line = chunk.locate(row - first)
                    lines[row] = f"{file}:{line}"
            first += chunk.n
            if len(lines) == len(rows):
                return lines
    return lines


def is_text_file(path: str | Path, dialect: CsvDialect | None = None) -> bool:
    """Whether a file of cases is text, in which words may mean missing cells."""
    return isinstance(open_cases(Path(path), DiscreteModel({}), dialect), CsvFile)


def _read_csv(file: CsvFile) -> list[Any]:
    """The columns of a CSV file as text, null where a cell is empty."""
    parts: list[list[Any]] = [[] for _ in file.columns]
    for chunk in file.chunks([], file.columns, ROWS):
        chunk.load()
        if chunk.broken:
            at, reason = min(chunk.broken.items())
            raise ParseError(reason, *chunk.locate(at))
        for own, column in zip(parts, chunk.columns, strict=True):
            own += getattr(column, "chunks", [column])
        chunk.drop()
    return [arrow().chunked_array(own, arrow().string()) for own in parts]


# numerals without leading zeros that are no codes by their digits, and those of which two may be one number
_PLAIN = r"(?i)^[+-]?(?:inf(?:inity)?|(?:0|[1-9][0-9]{0,14})?(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)$"
_REWRITTEN = r"[+eE]|^-?\.|.{17}"


def _typed(column: Any, words: frozenset[str], marks: Marks) -> Any:
    """A column of text as numbers, truth values or moments, None if not all its words are such; see `typed_words`."""
    pa, pc = arrow(), compute()
    head = [x for x in column.slice(0, HEAD).to_pylist() if x is not None and not is_na_word(x, words)]
    if any(isinstance(typed_words([x], marks)[0], str) and not INFINITE.fullmatch(x.strip()) for x in head):
        return None
    text = pc.utf8_trim_whitespace(column)
    text = pc.if_else(pc.is_in(text, pa.array(sorted(words), pa.string())), None, text)
    if text.null_count == len(text):
        return pa.nulls(len(text)) if len(text) else None
    if marks[0] != "," and not marks[1] and pc.all(pc.match_substring_regex(text, _PLAIN)).as_py():
        for kind in (pa.int64(), pa.float64()):
            with suppress(pa.ArrowInvalid):
                numbers = text.cast(kind)
                rewritten = pc.any(pc.match_substring_regex(text, _REWRITTEN)).as_py()
                if not rewritten or pc.count_distinct(text) == pc.count_distinct(numbers):
                    return numbers
                break
    if head and moment(head[0]) is not None:
        with suppress(pa.ArrowInvalid):
            return text.cast(pa.date32() if pc.max(pc.binary_length(text)).as_py() == DAY else pa.timestamp("us"))
    coded = text.combine_chunks().dictionary_encode()
    cells = typed_words(coded.dictionary.to_pylist(), marks)
    if isinstance(cells[0], str):
        return None
    if all(isinstance(x, float) and x.is_integer() for x in cells):
        cells = [*map(int, cells)]
    return pa.array(np.array(cells)).take(coded.indices)


def decimal_of(title: str, columns: Iterable[tuple[str, Iterable[str]]]) -> str:
    """The decimal mark that words of columns show, if the beginning of the file has not: a comma, or none."""
    # raises DataError: Where commas may separate thousands: each one of the file is followed by three digits.
    first = None
    for name, words in columns:
        for word in words:
            if not DECIMAL_COMMA.fullmatch(word):
                continue
            if not GROUPED.fullmatch(word.strip()):
                return ","  # 53,0
            first = first or (name, word.strip())
    if first is not None:
        name, cell = first
        whole, fraction = cell.replace(",", ""), cell.replace(",", ".")
        raise DataError(
            f"{title}: column {name!r}: {cell} may be {whole} or {fraction}, and every comma of the file is "
            f"followed by three digits: decimal=',' (--decimal) or thousands=',' (--thousands)"
        )
    return ""


def time_column(table: Any) -> str | None:
    """The first column of dates or times, if there is one."""
    return next((f.name for f in table.schema if arrow().types.is_temporal(f.type)), None)
