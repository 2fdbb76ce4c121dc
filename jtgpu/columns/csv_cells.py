"""Cells of plain CSV rows, by compiled code: the distinct texts of each column, and which of them each cell is.

Rows of plain cells, quoted or not, are parsed several times as fast as by Arrow's reader and without the interpreter
lock. Anything else (an escaped quote, a line end within a cell, a row with another number of cells, text that is not
UTF-8, a column with very many distinct texts) is left to Arrow's reader, which also reports errors.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ParseError
from ..util.cells import POINT, Marks
from ..util.loops import loops
from .arrow import arrow, arrow_csv, compute
from .column import Column
from .csv_records import MAX_TEXTS, NEWLINE, PADDING, SLOTS, WORD, Block, Texts, Wanted

_loops = loops("jtgpu.columns.loops.csv")

def parse_plain_cells(
    text: bytes, max_rows: int, rows: CsvRows, evidence: Sequence[int], kept: Sequence[int]
) -> tuple[int, list[Any]] | None:
    """Parse whole rows if they are plain."""
    # text: bytes: UTF-8
    # max_rows: An upper bound of the number of rows
    # rows: Delimiter, quote and number of columns
    # evidence, kept: sequence of int: Columns of evidence, columns to copy
    # returns n: Number of rows
    # returns columns: A `Column` per column of evidence, then an Arrow array of text, with null for empty
    #     cells, per column to copy
    if len(text) >= 2**31 or len(set(evidence)) < len(evidence) or len(set(kept)) < len(kept):
        return None
    data = np.zeros(-(-(len(text) + PADDING) // 8) * 8, np.uint8)
    data[: len(text)] = np.frombuffer(text, np.uint8)
    data[len(text)] = NEWLINE
    delimiter, quote = ord(rows.delimiter), rows.quote[0] if rows.quote else -1
    special = _special_positions(data, len(text), delimiter, quote)
    block = Block(data, data.view(np.uint64), len(text), special, delimiter, quote, rows.n_columns)
    wanted = Wanted(
        _numbers_of(evidence, rows.n_columns), _numbers_of(kept, rows.n_columns),
        np.empty((len(evidence), max_rows), np.int32), np.empty((len(kept), max_rows, 2), np.int64),
    )  # fmt: skip
    texts = Texts(
        np.empty((len(evidence), MAX_TEXTS, 4), np.int64), np.zeros(len(evidence), np.int64),
        np.full((len(evidence), SLOTS), -1, np.int32),
    )  # fmt: skip
    n = int(_loops.parse_rows(block, wanted, texts))
    if n < 0:
        return None
    columns: list[Any] = []
    try:
        for e in range(len(evidence)):
            spans = texts.entries[e, : texts.n_texts[e], :WORD].tolist()
            columns.append(Column(wanted.indices[e, :n], [text[i : i + k].decode() for i, k in spans]))
        columns += [_text_column(data, wanted.spans[k, :n]) for k in range(len(kept))]
    except (UnicodeDecodeError, arrow().ArrowInvalid):
        return None
    return n, columns


def _numbers_of(wanted: Sequence[int], n_columns: int) -> NDArray[np.int64]:
    """Number of each column among the wanted ones, -1 for the others."""
    numbers = np.full(n_columns, -1, np.int64)
    numbers[list(wanted)] = np.arange(len(wanted))
    return numbers


def _special_positions(data: NDArray[np.uint8], end: int, delimiter: int, quote: int) -> NDArray[np.int32]:
    """Positions of the special bytes of a block, then its end."""
    marks = np.zeros(len(data), np.uint8)
    n = int(_loops.mark(data, np.uint8(delimiter), np.uint8(quote if quote >= 0 else delimiter), marks[:end]))
    positions = np.empty(n + 8, np.int32)
    _loops.list_marked(marks, marks.view(np.uint64), positions)
    positions[n] = end
    return positions


def _text_column(data: NDArray[np.uint8], spans: NDArray[np.int64]) -> Any:
    """Cells as an Arrow array of text."""
    pa = arrow()
    out, offsets = _loops.gather(data, spans)
    nonempty = spans[:, 1] > 0
    valid = None if nonempty.all() else pa.py_buffer(np.packbits(nonempty, bitorder="little"))
    array = pa.StringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(out), valid)
    if len(out) and out.max() >= 128:
        array.validate(full=True)
    return array


# Rows of a CSV dialect: where they end in a block of text, and their cells as Arrow columns.

PARSE_SIZE = 1 << 20  # bytes that one of Arrow's threads parses at a time
SHORT = 1 << 12  # bytes


class ParsedRows(NamedTuple):
    """The wanted columns of a block of rows."""

    n: int
    columns: list[Any]
    broken: dict[int, str]  # rows with too many or too few cells, and why


@dataclass
class CsvRows:
    """How the rows of a file are written."""

    name: str  # the file's, for messages
    quote: bytes  # bytes: Empty if quotes are ordinary text
    encoding: str
    threads: bool  # whether several cores may parse
    # line_end, delimiter, n_columns: Known once the header has been read
    line_end: bytes = b"\n"
    delimiter: str = ","
    n_columns: int = 0
    marks: Marks = POINT  # of decimals and thousands

    # Text

    def decode(self, text: bytes, line: int) -> str:
        """Decode text that begins in some line; raises `ParseError` with the line of a wrong byte."""
        try:
            return text.decode(self.encoding)
        except UnicodeDecodeError as error:
            line += text[: error.start].count(self.line_end)
            byte = text[error.start]
            raise ParseError(
                f"byte {byte:#04x} is not {self.encoding.upper()}; encoding='cp1252' reads files of Western "
                "European Windows, other names are latin-1 and cp1250",
                self.name, line,
            ) from None  # fmt: skip

    def in_quotes(self, text: bytes) -> bool:
        """Whether a quote is open at the end of a text."""
        return bool(self.quote) and count_byte(text, self.quote) % 2 == 1

    def last_row_end(self, block: bytes) -> int:
        """End of the last whole row of a block that begins with a row; 0 if there is none."""
        if not self.quote or self.quote not in block:
            return block.rfind(self.line_end) + 1
        return _whole_rows(self.delimiter.encode(), self.quote).match(block).end()  # type: ignore[union-attr]

    def lines_before(self, block: bytes, row: int) -> int:
        """Number of lines of a block before one of its rows."""
        text = block if self.encoding == "utf-8" else block.decode(self.encoding).encode()
        return self._records(text)[row][0]

    # Cells

    def parse(self, block: bytes, evidence: list[int], kept: list[int], line: int) -> ParsedRows:
        """Parse whole rows, the first of which is in some line: columns of evidence, then columns to copy."""
        text = block if self.encoding == "utf-8" else self.decode(block, line).encode()
        max_rows = count_byte(text, b"\n") + count_byte(text, b"\r") + 1
        plain = parse_plain_cells(text, max_rows, self, evidence, kept)
        if plain is not None:
            return ParsedRows(*plain, {})
        pa = arrow()
        wanted, n_evidence = [str(i) for i in (*evidence, *kept)], len(evidence)
        broken: dict[int, str] = {}
        try:
            table = self._read_csv(text, wanted, n_evidence, self.threads)
        except pa.ArrowInvalid as error:
            self.decode(block, line)  # raises for a wrong byte, naming its line
            table, broken = self._read_irregular(text, wanted, n_evidence, error)
        columns = list(table.columns)
        for j in range(n_evidence, len(columns)):  # an empty cell is null in a copied column
            columns[j] = compute().if_else(compute().equal(columns[j], ""), None, columns[j])
        return ParsedRows(table.num_rows, columns, broken)

    def _read_csv(
        self, text: bytes, wanted: list[str], n_evidence: int, threads: bool, skipped: list[Any] | None = None
    ) -> Any:
        """The wanted columns, by Arrow's reader; rows with another number of cells are listed in `skipped`."""
        pa, reading = arrow(), arrow_csv()
        label = pa.dictionary(pa.int32(), pa.string())
        quoted = bool(self.quote) and self.quote in text

        def skip(row: Any) -> str:
            assert skipped is not None
            skipped.append((row.number, row.actual_columns))
            return "skip"

        if not wanted:  # Arrow needs a column to count rows
            wanted = ["0"]
        return reading.read_csv(
            pa.BufferReader(text),
            reading.ReadOptions(
                use_threads=threads,
                block_size=PARSE_SIZE if threads and not quoted else len(text) + 1,
                column_names=[str(i) for i in range(self.n_columns)],
            ),
            reading.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote.decode() or False,
                newlines_in_values=quoted,
                ignore_empty_lines=self.n_columns > 1,
                invalid_row_handler=None if skipped is None else skip,
            ),
            reading.ConvertOptions(
                column_types={w: label if i < n_evidence else pa.string() for i, w in enumerate(wanted)},
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )

    def _read_irregular(
        self, text: bytes, wanted: list[str], n_evidence: int, error: Exception
    ) -> tuple[Any, dict[int, str]]:
        """Parse rows some of which have too many or too few cells: those are null, and listed with the reason."""
        records = self._records(text)
        whole = b"".join(r if r.endswith(self.line_end) else r + self.line_end for _, r in records)
        skipped: list[Any] = []
        try:
            table = self._read_csv(whole, wanted, n_evidence, False, skipped)
        except arrow().ArrowInvalid:
            raise ParseError(f"this CSV cannot be parsed: {error}", self.name, None) from None
        broken = {
            number - 1: f"{n} cell{'s' if n != 1 else ''} in a row of {self.n_columns} columns"
            for number, n in skipped
        }
        if len(records) != table.num_rows + len(broken) or max(broken, default=0) >= len(records):
            raise ParseError(f"this CSV cannot be parsed: {error}", self.name, None)
        good = iter(range(table.num_rows))
        rows = [None if i in broken else next(good) for i in range(len(records))]
        return table.take(arrow().array(rows, arrow().int64())), broken

    def _records(self, text: bytes) -> list[tuple[int, bytes]]:
        """Rows, each with the number of lines before it; slow, and used for rows of other widths and messages only."""
        records: list[tuple[int, bytes]] = []
        line = 0
        for match in _row(self.delimiter.encode(), self.quote).finditer(text):
            record = match[0]
            if record and (self.n_columns == 1 or record.strip(b"\r\n")):
                records.append((line, record))
            line += count_byte(record, self.line_end)
        return records


def _cells(delimiter: bytes, quote: bytes, closed: bytes) -> bytes:
    """A pattern of a row's cells: as in Arrow's reader, a quote opens a cell only as its first byte, two quotes within
    are one, and what follows the closing one is text."""
    d, q = re.escape(delimiter), re.escape(quote)
    plain = rb"[^" + d + rb"\r\n]*+"
    cell = rb"(?:" + q + rb"(?:[^" + q + rb"]++|" + q + q + rb")*+" + closed.replace(b"Q", q) + plain + rb"|(?!" + q
    cell = cell + rb")" + plain + rb")" if quote else plain
    return cell + rb"(?:" + d + cell + rb")*+"


@functools.cache
def _row(delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    return re.compile(_cells(delimiter, quote, rb"(?:Q|\Z)") + rb"(?:\r\n|\n|\r|\Z)")


@functools.cache
def _whole_rows(delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:" + _cells(delimiter, quote, b"Q") + rb"(?:\r\n|\n|\r(?!\Z)))*+")


def count_byte(text: bytes, byte: bytes) -> int:
    """How often a byte occurs in a text, in time that does not depend on the number of occurrences."""
    if len(text) < SHORT:
        return text.count(byte)
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == byte[0]))
