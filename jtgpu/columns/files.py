"""Files of cases, CSV or Parquet, read in chunks."""

from __future__ import annotations

import re
import stat
import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import DataError, EvidenceError, FileError, FormatError, ParseError, TableTooLarge, format_bytes, shown
from ..model.discrete import DiscreteModel
from ..options.tables import CsvDialect
from ..util.calls import outside
from ..util.cells import GROUPED, MAX_EXACT, is_na_word, na_words, numeral
from ..util.system import free_memory
from ..util.text_table import intervals_of
from .arrow import arrow, arrow_csv, arrow_parquet, compute
from .csv_file import CsvFile
from .names import reject_repeated
from .source import ParquetFile, Source

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


# Whole tables as Arrow tables: CSV and Parquet files, read and written at once.

FIRST_ROWS, FIRST_COLUMNS = 1000, 64  # among whose cells the names of columns are sought
CELL_BYTES = 20  # that a cell needs besides its text: Arrow's array and the codes made of it
ROWS = 100_000  # that are parsed at a time to find a wrong one
DECIMAL_COMMA = r"^\s*[+-]?\d+,\d+\s*$"


def read_file(
    path: str | Path, *, dialect: CsvDialect | None = None, na_values: Any = None,
    states: Mapping[str, Collection[str]] | None = None, keep_words: bool = False, as_text: bool = False,
) -> Any:  # fmt: skip
    """A CSV (compressed or not) or Parquet file as an Arrow table. Empty cells, ``NA``, ``NaN`` ... of a CSV are null.

    Columns of a CSV file hold numbers if all their cells are numbers, with decimal points or, where the delimiter is no
    comma, decimal commas.
    """
    # na_values: str or iterable of str: Words of a CSV file that are null; see `jtgpu.util.cells.na_words`
    # states: Columns of a CSV file that are text, and words that are not null in them
    # keep_words: Leave these words as they are in columns of text
    # as_text: Leave the cells of a CSV file as they are: all columns are text, and no cell is null
    # raises FileError: If it cannot be opened.
    # raises ParseError: If it cannot be read; the message names the line.
    # raises DataError: If two columns have the same name.
    # raises TableTooLarge: If the table and its codes would need more memory than is free, by the file's size.
    source = open_cases(Path(path), DiscreteModel({}), dialect)
    try:
        reject_repeated(source.columns, source.columns, str(path))
    except EvidenceError as error:
        hint = ""
        if any(_NUMERAL.fullmatch(name) for name in source.columns):
            hint = "; if the first row is a case, name the columns by --header, or --header none"
        raise DataError(f"{error}{hint}") from None
    _require_memory(source)
    if isinstance(source, CsvFile):
        if as_text:
            text = dict.fromkeys(source.columns, arrow().string())
            return _read_csv(source, arrow_csv().ConvertOptions(column_types=text, strings_can_be_null=False))
        declared, words = dict(states or {}), na_words(na_values, is_text=True)
        texts = {v: s for v, s in declared.items() if intervals_of([*map(str, s)]) is None}  # intervals have numbers
        convert = arrow_csv().ConvertOptions(
            column_types={name: arrow().string() for name in source.columns if name in texts},
            null_values=[*words, *(f" {word}" for word in words)], strings_can_be_null=False,
            decimal_point=source.dialect.decimal or ".",
        )  # fmt: skip
        table = _with_thousands(_read_csv(source, convert), source, words, texts)
        if (dialect is None or dialect.header is None) and _looks_like_a_case(table):
            warnings.warn(
                f"{path}: the first row ({', '.join(map(shown, table.column_names[:4]))}, ...) looks like a case, not "
                "like names of columns: if it is one, use --header none, or --header with names (in Python, "
                "pandas.read_csv with header=None)",
                stacklevel=outside(),
            )
        return table if keep_words else _without_words(table, words, declared)
    try:
        return arrow_parquet().read_table(path)
    except (OSError, arrow().ArrowInvalid, arrow().ArrowNotImplementedError) as error:
        raise ParseError(str(error), str(path)) from None


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


def _require_memory(source: Source) -> None:
    """Raise `TableTooLarge` if a file needs more memory than is free: a table that is too large is not read at all."""
    size, rows = source.whole()
    needed, free = size + CELL_BYTES * rows * len(source.columns), free_memory()
    if needed > free:
        raise TableTooLarge(
            f"{source.name}: about {rows:,} rows of {len(source.columns):,} columns need about {format_bytes(needed)} "
            f"as a whole table, and {format_bytes(free)} are free; take a sample of the rows, or fewer columns "
            "(`jtgpu fit` of CPTs and `jtgpu batch` read a file in parts)", rows * len(source.columns), needed, free,
        )  # fmt: skip


def lines_of(path: str | Path, dialect: CsvDialect | None, rows: Collection[int]) -> dict[int, str]:
    """Places of rows of a CSV file, such as ``cases.csv:5``; empty for other files."""
    source, lines, first = open_cases(Path(path), DiscreteModel({}), dialect), dict[int, str](), 0
    for chunk in source.chunks([], source.columns, ROWS) if isinstance(source, CsvFile) else ():
        chunk.load()
        for row in rows:
            if first <= row < first + chunk.n:
                file, line = chunk.locate(row - first)
                lines[row] = f"{file}:{line}"
        first += chunk.n
        if len(lines) == len(rows):
            break
    return lines


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
    types, read = arrow().types, file.arrow_table
    try:
        table = read(convert)
    except arrow().ArrowInvalid:
        if not _n_rows(file):
            return arrow().table({name: arrow().array([], arrow().string()) for name in file.columns})
        try:  # a cell of several lines, which Arrow divided
            read = partial(read, newlines=True)
            table = read(convert)
        except arrow().ArrowInvalid as error:
            raise ParseError(str(error), file.name) from None
    if any(types.is_binary(kind) for kind in table.schema.types):  # not UTF-8
        _n_rows(file)
    whole = [field.name for field in table.schema if types.is_integer(field.type)]
    if whole and file.has_hexadecimals():  # Arrow reads 0x1F as 31
        text = dict.fromkeys(whole, arrow().string())
        cells = read(arrow_csv().ConvertOptions(column_types=text, include_columns=whole))
        has_0x = partial(compute().match_substring, pattern="0x", ignore_case=True)
        codes = {name: kind for name, kind in text.items() if compute().any(has_0x(cells[name])).as_py()}
        if codes:
            convert.column_types = {**convert.column_types, **codes}
            table = read(convert)
    table = _codes_as_text(file, convert, read, table)
    texts = [column for column in table.columns if len(column) and types.is_string(column.type)]
    if any("\n" in (column[-1].as_py() or "") for column in texts) and file.has_open_quote():
        raise ParseError("a quote is not closed", file.name)
    has_comma = partial(compute().match_substring_regex, pattern=DECIMAL_COMMA)
    is_given = file.delimiter == "," or file.dialect.decimal or file.dialect.thousands
    if not is_given and any(compute().any(has_comma(column)).as_py() for column in texts):
        _reject_thousands(file, table)
        convert.decimal_point = ","
        converted = read(convert)
        if sum(map(types.is_string, converted.schema.types)) < len(texts):
            return converted
    return table


# what a file may have in it if numbers are codes: leading zeros, exponents, signs, many digits, truth values
CODES = re.compile(
    rb"(?:^|[^0-9.eE])[+-]?0[0-9]|[0-9.][eE][+-]?[0-9]|(?:^|[^0-9eE])\+[0-9]|[0-9]{16}|[Tt][Rr][Uu][Ee]|[Ff]alse|FALSE"
)


def _codes_as_text(file: CsvFile, convert: Any, read: Callable[[Any], Any], table: Any) -> Any:
    """The table, with columns as text whose numerals are codes: with leading zeros, or two texts of one number."""
    types, text = arrow().types, arrow().string()
    kinds = {f.name: f.type for f in table.schema}
    numbers = [n for n, k in kinds.items() if types.is_integer(k) or types.is_floating(k) or types.is_boolean(k)]
    if not numbers or not file.contains(CODES):
        return table
    cells = read(arrow_csv().ConvertOptions(
        column_types=dict.fromkeys(numbers, text), include_columns=numbers, strings_can_be_null=False
    ))  # fmt: skip
    words = {*convert.null_values, ""}
    codes = {}
    for name in numbers:
        seen = [c.strip() for c in cells[name].unique().to_pylist() if c is not None]
        seen = ["0" if c == "-0" else c for c in dict.fromkeys(seen) if c not in words]
        if types.is_boolean(kinds[name]):
            is_code = any(c.casefold() not in ("true", "false") for c in seen)
        else:
            plain = {c.rstrip("0").rstrip(".") if "." in c and "e" not in c.lower() else c for c in seen}
            is_code = any(_LEADING_ZERO.match(c) for c in seen) or len(plain) > len({float(c) for c in plain}) or any(
                c.lstrip("+-").isdigit() and abs(int(c)) >= 2**53 for c in plain
            )  # fmt: skip
        if is_code:
            codes[name] = text
    if codes:
        convert.column_types = {**convert.column_types, **codes}
        table = read(convert)
    return table


_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")


def _reject_thousands(file: CsvFile, table: Any) -> None:
    """Raise where commas may separate thousands: each one of the file is followed by three digits."""
    first = None
    for name in table.column_names:
        column = table[name]
        if not arrow().types.is_string(column.type):
            continue
        cells = compute().filter(column, compute().match_substring_regex(column, DECIMAL_COMMA))
        for cell in cells.unique().to_pylist():
            if not GROUPED.fullmatch(cell.strip()):
                return  # a decimal comma: 53,0
            first = first or (name, cell.strip())
    if first is not None:
        name, cell = first
        whole, fraction = cell.replace(",", ""), cell.replace(",", ".")
        raise DataError(
            f"{file.name}: column {name!r}: {cell} may be {whole} or {fraction}, and every comma of the file is "
            f"followed by three digits: decimal=',' (--decimal) or thousands=',' (--thousands)"
        )


def _with_thousands(table: Any, file: CsvFile, words: frozenset[str], declared: Collection[str]) -> Any:
    """The table with numbers in place of texts that are numerals with a mark of thousands."""
    for j, name in enumerate(table.column_names if file.dialect.thousands else ()):
        column = table.column(j)
        if not arrow().types.is_string(column.type) or name in declared:
            continue
        coded = column.combine_chunks().dictionary_encode()
        texts = [None if is_na_word(t, words) else t for t in coded.dictionary.to_pylist()]
        if not any(t is not None and (file.dialect.thousands in t or "," in t) for t in texts):
            continue  # without a mark, texts are codes
        numbers = [None if t is None else numeral(t, file.marks) for t in texts]
        if any(x is not None for x in numbers) and [x is None for x in numbers] == [t is None for t in texts]:
            whole = all(x is None or (x.is_integer() and abs(x) < MAX_EXACT) for x in numbers)
            kind = arrow().int64() if whole else arrow().float64()
            values = arrow().array([None if x is None else int(x) if whole else x for x in numbers], kind)
            table = table.set_column(j, name, values.take(coded.indices))
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
