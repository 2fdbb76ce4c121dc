"""CSV files of cases, compressed or not, divided into blocks of whole rows that the workers parse."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ParseError
from ..model.discrete import DiscreteModel
from ..options.tables import CsvDialect
from ..util.arguments import described
from ..util.cells import Marks
from .arrow import arrow
from .csv_cells import CsvRows, ParsedRows, count_byte
from .names import DELIMITERS
from .source import CaseChunk, RowLocation

HEAD = 1 << 16  # bytes read to find the header
SAMPLE = 1 << 22  # bytes read to estimate the number of rows
MIN_BLOCK, MAX_BLOCK = 1 << 16, 1 << 26  # bytes parsed at a time
MAX_ROW = 1 << 26  # bytes; a longer row means that a quote is never closed
READ_SIZE = 1 << 24  # bytes per system call
MARKED = 1 << 20  # bytes in which the decimal mark is looked for
_NUMERAL = re.compile(rb"(?:^|[;\t|\"])[ ]*[+-]?[0-9]+([.,])([0-9]+)[ ]*(?=[;\t|\"\r\n])", re.MULTILINE)
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}


class _CsvChunk(CaseChunk):
    """Rows of a CSV as text, until a worker parses them."""

    def __init__(self, rows: CsvRows, text: bytes, wanted: tuple[list[int], list[int]], line: int, end: dict[str, int]):
        super().__init__(0, [], end, 0, self._location, is_text=True, marks=rows.marks)
        self._rows, self._text, self._wanted, self._line = rows, text, wanted, line

    def load(self) -> None:
        parsed: ParsedRows = self._rows.parse(self._text, *self._wanted, self._line)
        self.n, self.columns, self.broken = parsed

    def drop(self) -> None:
        super().drop()
        self._text = b""

    def _location(self, row: int) -> RowLocation:
        return self._rows.name, self._line + self._rows.lines_before(self._text, row)


class CsvFile:
    """A CSV file with a header; see `Source`."""

    rows: int | None = None
    declared: frozenset[str] = frozenset()

    def __init__(self, path: Path, model: DiscreteModel, dialect: CsvDialect, threads: bool):
        self.name = str(path)
        self.size = path.stat().st_size
        with path.open("rb") as file:
            magic = file.read(4)
        self._compression = next((name for start, name in COMPRESSIONS.items() if magic.startswith(start)), None)
        try:
            utf8 = codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig", "ascii")
        except LookupError:
            given = described(dialect.encoding)
            raise ArgumentError(f"encoding must be the name of an encoding, not {given}") from None
        rows = CsvRows(self.name, dialect.quote.encode(), "utf-8" if utf8 else dialect.encoding, threads)
        head = self._read_head(rows)
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ParseError("the file is UTF-16; save it as UTF-8", self.name)
        mark = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
        blank = len(head) - len(head[mark:].lstrip(b"\r\n")) - mark  # empty lines before the header
        first = mark + blank
        rows.line_end = b"\n" if b"\n" in head or b"\r" not in head else b"\r"
        end = first + (_first_row_end(head[first:], rows) or len(head) - first)
        begin = end if dialect.header is None else first
        self._begin = {"byte": begin, "line": 1 + head[mark:begin].count(rows.line_end)}
        text = rows.decode(head[first:end], 1).rstrip("\r\n")
        if not text.strip():
            raise ParseError("the file is empty; the first row must contain the names of variables", self.name)
        if "\0" in text:
            raise ParseError("the file is not text: neither CSV nor Parquet", self.name, 1)
        rows.delimiter = dialect.delimiter or _detect_delimiter(text, model, dialect.quote)
        names = _split_row(text, rows.delimiter, dialect.quote)
        if dialect.header is not None:
            names = _given_names(dialect.header, len(names), self.name)
        self.columns = [n if n in model.variables else n.strip() for n in names]
        rows.n_columns = len(self.columns)
        self._rows, self.dialect = rows, dialect
        decimal, thousands = dialect.marks
        rows.marks = _decimal_mark(rows.delimiter, self._sample(end)) if decimal is None else decimal, thousands

    def whole(self) -> tuple[int, int]:
        """See `Source.whole`: estimates by the beginning of the file."""
        stream, raw = self._open()
        with stream:
            head = self._read(stream, SAMPLE)
            # of compressed data, Arrow reads a little more than it has decompressed
            size = self.size if not self._compression else self.size * len(head) // max(raw.tell(), 1)
        lines = max(count_byte(head, self._rows.line_end), 1)
        return max(size, len(head)), max(size, len(head)) * lines // max(len(head), 1)

    def types(self, names: Sequence[str]) -> list[Any]:
        """See `Source.types`: all columns are text, unchanged."""
        return [arrow().string() for _ in names]

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[CaseChunk]:
        stream, raw = self._open()
        at = {**self._begin, **(position or {})}
        place = {name: i for i, name in enumerate(self.columns)}  # there may be a hundred thousand
        wanted = [place[n] for n in evidence], [place[n] for n in kept]
        size = MIN_BLOCK  # the first block shows how long rows are
        rest, ended = b"", False
        with stream:
            self._skip(stream, at["byte"])
            while not ended:
                block = self._read(stream, max(size - len(rest), MIN_BLOCK // 2))
                ended = not block
                block = rest + block
                end = len(block) if ended else self._rows.last_row_end(block)
                if ended and block and not self._rows.last_row_end(block + b"\n"):  # it would hold all rows that follow
                    raise ParseError("a quote is not closed", self.name, at["line"])
                block, rest = block[:end], block[end:]
                if len(rest) > MAX_ROW:
                    line = at["line"] + count_byte(block, self._rows.line_end)
                    reason = f"a row is longer than {MAX_ROW >> 20} MiB: a quote may be missing"
                    raise ParseError(reason, self.name, line)
                line, n_lines = at["line"], count_byte(block, self._rows.line_end)
                at = {"byte": at["byte"] + len(block), "line": line + n_lines}
                if not block.strip(b"\r\n") and (len(self.columns) > 1 or not block):
                    size = 2 * size if rest else size
                    continue
                chunk = _CsvChunk(self._rows, block, wanted, line, at)
                chunk.done = min(raw.tell() - (0 if self._compression else len(rest)), self.size)
                size = max(MIN_BLOCK, int(len(block) / max(n_lines, 1) * rows))
                if rows <= 1 << 20:  # a larger number was requested explicitly
                    size = min(size, MAX_BLOCK)
                yield chunk

    def _sample(self, begin: int) -> bytes:
        """The beginning of the rows."""
        stream, _ = self._open()
        with stream:
            self._skip(stream, begin)
            return self._read(stream, MARKED) if self._rows.delimiter != "," else b""

    @property
    def marks(self) -> Marks:
        """The marks of decimals and thousands in its numerals."""
        return self._rows.marks

    @property
    def delimiter(self) -> str:
        """The delimiter of columns, one character."""
        return self._rows.delimiter

    def _open(self) -> tuple[Any, Any]:
        """The decompressed stream, and the raw file, whose position shows the progress."""
        pa = arrow()
        raw = pa.OSFile(self.name, "rb")
        return (pa.CompressedInputStream(raw, self._compression) if self._compression else raw), raw

    def _read(self, stream: Any, n: int) -> bytes:
        parts = []
        try:
            while n > 0 and (part := stream.read(min(n, READ_SIZE))):
                parts.append(part)
                n -= len(part)
        except OSError as error:  # raised by Arrow for damaged compressed data
            raise ParseError(f"the file cannot be decompressed: {error}", self.name) from None
        return b"".join(parts)

    def _read_head(self, rows: CsvRows) -> bytes:
        """The beginning of the file, with at least the header in it."""
        stream, _ = self._open()
        with stream:
            head = self._read(stream, HEAD)
            while head and not _first_row_end(head, rows):
                if len(head) > MAX_ROW:
                    raise ParseError(f"the first row is longer than {MAX_ROW >> 20} MiB: this is no CSV", self.name, 1)
                more = self._read(stream, len(head))
                if not more:
                    break
                head += more
        return head

    def _skip(self, stream: Any, n: int) -> None:
        if not self._compression:
            stream.seek(n)
            return
        while n > 0:
            n -= len(self._read(stream, min(n, 1 << 22))) or n


def _given_names(header: str, n: int, file: str) -> list[str]:
    """Names of the columns of a file without a header."""
    if header.strip() == "none":
        return [f"x{i}" for i in range(n)]
    names = [name.strip() for name in header.split(",")]
    if len(names) != n or not all(names):
        raise ArgumentError(
            f"header: {file} has {n:,} columns, and {header!r} names {len(names):,}; give a name for each, separated "
            "by commas, or none for x0, x1, ..."
        )
    return names


def _decimal_mark(delimiter: str, rows: bytes) -> str:
    """The decimal mark of some rows: "" if it is undecided: 1,200 is ambiguous."""
    if delimiter == ",":
        return "."
    marks = {mark for mark, digits in _NUMERAL.findall(rows) if len(digits) != 3}
    return marks.pop().decode() if len(marks) == 1 else ""


def _first_row_end(head: bytes, rows: CsvRows) -> int:
    """End of the first row that is not empty; 0 if it is not in these bytes."""
    line_end = b"\n" if b"\n" in head else b"\r"
    at = 0
    while (end := head.find(line_end, at)) >= 0:
        at = end + 1
        if head[:end].strip(b"\r\n\xef\xbb\xbf") and not rows.in_quotes(head[:end]):
            return at
    return 0


def _split_row(row: str, delimiter: str, quote: str) -> list[str]:
    """Cells of a row, of any size (those of the module csv are limited, for all its users)."""
    if not quote or quote not in row:
        return row.split(delimiter)
    cells: list[str] = []
    at = 0
    while True:
        parts = []
        if row.startswith(quote, at):
            part, at = _quoted(row, at + 1, quote)
            parts.append(part)
        end = row.find(delimiter, at)
        parts.append(row[at:] if end < 0 else row[at:end])
        cells.append("".join(parts))
        if end < 0:
            return cells
        at = end + 1


def _quoted(row: str, at: int, quote: str) -> tuple[str, int]:
    """Text up to the closing quote, where a doubled quote stands for one, and the position after it."""
    parts = []
    while (end := row.find(quote, at)) >= 0:
        parts.append(row[at:end])
        at = end + 1
        if not row.startswith(quote, at):
            return "".join(parts), at
        parts.append(quote)
        at += 1
    return "".join([*parts, row[at:]]), len(row)


def _detect_delimiter(header: str, model: DiscreteModel, quote: str) -> str:
    """The delimiter that gives the most names of variables, then the most names; the first one if equal."""
    known = set(model.variables)

    def score(delimiter: str) -> tuple[int, int]:
        names = _split_row(header, delimiter, quote)
        return sum(n in known or n.strip() in known for n in names), len(names)

    return max(DELIMITERS, key=score)
