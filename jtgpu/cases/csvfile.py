"""CSV in its dialects, packed or not, cut into blocks of whole rows; whoever answers a block parses it."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParseError
from ..model.network import DiscreteModel
from .arrow import arrow, arrow_csv, compute
from .chunk import Chunk, Place

__all__ = ["CsvFile"]

DELIMITERS = (",", ";", "\t", "|")
HEAD = 1 << 16  # bytes looked at before anything else
LEAST_BLOCK, MOST_BLOCK = 1 << 16, 1 << 26  # bytes of CSV parsed at a time
LONGEST_ROW = 1 << 28  # bytes; a longer one is a quote that nobody closes
AT_ONCE = 1 << 24  # bytes asked of the system
PARSED_AT_ONCE = 1 << 20  # bytes a thread takes
SHORT = 1 << 12  # bytes
PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}


class _Rows(Chunk):
    """Rows of a CSV as text, until somebody parses them."""

    def __init__(
        self, file: CsvFile, text: bytes, wanted: tuple[list[int], list[int]], line: int, position: dict[str, int]
    ):
        super().__init__(0, [], position, 0, self._place)
        self._file, self._text, self._wanted, self._line = file, text, wanted, line

    def load(self) -> None:
        """See `Chunk.load`."""
        self.n, self.columns, self.broken = self._file.parsed(self._text, *self._wanted, self._line)

    def drop(self) -> None:
        """See `Chunk.drop`."""
        super().drop()
        self._text = b""

    def _place(self, row: int) -> Place:
        return self._file.name, self._line + self._file.lines_before(self._text, row)


class CsvFile:
    """Comma-separated values, header first."""

    rows: int | None = None

    def __init__(
        self, path: Path, model: DiscreteModel, delimiter: str | None, quote: str, encoding: str, threads: bool
    ):
        self.path, self.name, self._threads = path, str(path), threads
        self._quote = quote.encode()
        self.size = path.stat().st_size
        self._encoding = "utf-8" if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii") else encoding
        with path.open("rb") as file:
            magic = file.read(4)
        self._packing = next((name for start, name in PACKED.items() if magic.startswith(start)), None)
        stream, _ = self._open()
        with stream:
            head = self._read(stream, HEAD)
            while head and not self._first_end(head) and len(head) < LONGEST_ROW:
                more = self._read(stream, len(head))
                if not more:
                    break
                head += more
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ParseError("this is UTF-16; save it as UTF-8", self.name)
        self._bom = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
        blank = len(head) - len(head[self._bom :].lstrip(b"\r\n")) - self._bom  # empty lines before the header
        first = self._bom + blank
        self._end = b"\n" if b"\n" in head or b"\r" not in head else b"\r"
        end = self._first_end(head[first:]) or len(head) - first
        self._begin = first + end, 1 + head[first - blank : first + end].count(self._end)
        text = self._decoded(head[first : first + end], 1).rstrip("\r\n")
        if not text.strip():
            raise ParseError("the file is empty; its first row holds the names of variables", self.name)
        if "\0" in text:
            raise ParseError("this is no text: neither CSV nor Parquet", self.name, 1)
        self.delimiter = delimiter or _sniffed(text, model, quote)
        self.columns = [n if n in model.variables else n.strip() for n in _cells(text, self.delimiter, quote)]

    def types(self, names: Sequence[str]) -> list[Any]:
        """See `Source.types`: text stays text, to the letter."""
        return [arrow().string() for _ in names]

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[Chunk]:
        """See `Source.chunks`."""
        stream, raw = self._open()
        at = {"byte": self._begin[0], "line": self._begin[1], **(position or {})}
        wanted = [self.columns.index(n) for n in evidence], [self.columns.index(n) for n in kept]
        size = LEAST_BLOCK  # of the first block, which tells how long rows are
        left, ended = b"", False
        with stream:
            self._skip(stream, at["byte"])
            while not ended:
                block = self._read(stream, max(size - len(left), LEAST_BLOCK // 2))
                ended = not block
                block = left + block
                end = len(block) if ended else self._cut(block)
                block, left = block[:end], block[end:]
                line, n_lines = at["line"], _count(block, self._end)
                at = {"byte": at["byte"] + len(block), "line": line + n_lines}
                if not block.strip(b"\r\n") and (len(self.columns) > 1 or not block):
                    size = 2 * size if left else size
                    continue
                chunk = _Rows(self, block, wanted, line, at)
                chunk.done = min(raw.tell() - (0 if self._packing else len(left)), self.size)
                size = max(LEAST_BLOCK, int(len(block) / max(n_lines, 1) * rows))
                if rows <= 1 << 20:  # more at a time is what the caller asked for
                    size = min(size, MOST_BLOCK)
                yield chunk

    # Bytes

    def _open(self) -> tuple[Any, Any]:
        """The unpacked file, and the file itself, whose place tells how far reading has come."""
        pa = arrow()
        raw = pa.OSFile(self.name, "rb")
        return (pa.CompressedInputStream(raw, self._packing) if self._packing else raw), raw

    def _read(self, stream: Any, n: int) -> bytes:
        parts = []
        try:
            while n > 0 and (part := stream.read(min(n, AT_ONCE))):
                parts.append(part)
                n -= len(part)
        except OSError as error:  # Arrow's word for packed data that is broken
            raise ParseError(f"the file cannot be unpacked: {error}", self.name) from None
        return b"".join(parts)

    def _skip(self, stream: Any, n: int) -> None:
        if not self._packing:
            stream.seek(n)
            return
        while n > 0:
            n -= len(self._read(stream, min(n, 1 << 22))) or n

    def _first_end(self, head: bytes) -> int:
        """Where the first row ends; 0: not within these bytes."""
        end = b"\n" if b"\n" in head else b"\r"
        at = 0
        while (found := head.find(end, at)) >= 0:
            at = found + 1
            if head[:found].strip(b"\r\n\xef\xbb\xbf") and not self._is_open(head[:found]):
                return at
        return 0

    def _is_open(self, text: bytes) -> bool:
        """Is a quote open behind this text?"""
        return bool(self._quote) and _count(text, self._quote) % 2 == 1

    def _cut(self, block: bytes) -> int:
        """Where the last whole row of a block ends; 0: there is none."""
        end = block.rfind(self._end) + 1
        if not self._quote or self._quote not in block or not self._is_open(block[:end]):
            return self._checked(end, block)
        # a cell with line ends in it, or a quote amidst a cell: only quotes that begin a cell count
        begins = self.delimiter.encode() + b"\r\n"
        at, outside, last = 0, 0, 0  # outside: where the text behind the last quoted cell begins
        while (found := block.find(self._quote, at)) >= 0:
            at = found + 1
            if outside < 0:
                if block[at : at + 1] == self._quote:
                    at += 1
                else:
                    outside = at
            elif found == 0 or block[found - 1] in begins:
                last = max(last, block.rfind(self._end, outside, found) + 1)
                outside = -1
        if outside >= 0:
            last = max(last, block.rfind(self._end, outside) + 1)
        return self._checked(last, block)

    def _checked(self, end: int, block: bytes) -> int:
        if not end and len(block) > LONGEST_ROW:
            raise ParseError(f"a row of more than {LONGEST_ROW >> 20} MiB: is a quote left open?", self.name)
        return end

    def _decoded(self, text: bytes, line: int) -> str:
        try:
            return text.decode(self._encoding)
        except UnicodeDecodeError as error:
            line += text[: error.start].count(self._end)
            byte = text[error.start]
            raise ParseError(
                f"byte {byte:#04x} is not {self._encoding.upper()}; say which encoding it is (latin-1, cp1252)",
                self.name, line,
            ) from None  # fmt: skip

    # Rows

    def parsed(
        self, block: bytes, evidence: list[int], kept: list[int], line: int
    ) -> tuple[int, list[Any], dict[int, str]]:
        """Parse whole rows, the first of which stands in some line: how many, their columns, those without cells."""
        from .cells import plain_cells

        text = block if self._encoding == "utf-8" else self._decoded(block, line).encode()
        n_lines = _count(text, b"\n") + _count(text, b"\r") + 1
        found = plain_cells(text, n_lines, self.delimiter, self._quote, len(self.columns), evidence, kept)
        if found is not None:
            return *found, {}
        pa = arrow()
        wanted, n_evidence = [str(i) for i in (*evidence, *kept)], len(evidence)
        broken: dict[int, str] = {}
        try:
            table = self._table(text, wanted, n_evidence, self._threads)
        except pa.ArrowInvalid as error:
            self._decoded(block, line)  # says where, if that is what is wrong
            table, broken = self._mended(text, wanted, n_evidence, error)
        columns = list(table.columns)
        for j in range(n_evidence, len(columns)):  # an empty cell that is kept
            columns[j] = compute().if_else(compute().equal(columns[j], ""), None, columns[j])
        return table.num_rows, columns, broken

    def lines_before(self, block: bytes, row: int) -> int:
        """How many lines of a block come before a row."""
        text = block if self._encoding == "utf-8" else block.decode(self._encoding).encode()
        return self._records(text)[row][0]

    def _table(
        self, text: bytes, wanted: list[str], n_evidence: int, threads: bool, refused: list[Any] | None = None
    ) -> Any:
        pa, reading = arrow(), arrow_csv()
        label = pa.dictionary(pa.int32(), pa.string())
        quoted = bool(self._quote) and self._quote in text

        def skip(row: Any) -> str:
            assert refused is not None
            refused.append((row.number, row.actual_columns))
            return "skip"

        if not wanted:  # nothing to look at, but rows to count
            wanted = ["0"]
        table = reading.read_csv(
            pa.BufferReader(text),
            reading.ReadOptions(
                use_threads=threads,
                block_size=PARSED_AT_ONCE if threads and not quoted else len(text) + 1,
                column_names=[str(i) for i in range(len(self.columns))],
            ),
            reading.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self._quote.decode() or False,
                newlines_in_values=quoted,
                ignore_empty_lines=len(self.columns) > 1,
                invalid_row_handler=None if refused is None else skip,
            ),
            reading.ConvertOptions(
                column_types={w: label if i < n_evidence else pa.string() for i, w in enumerate(wanted)},
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
        return table

    def _mended(self, text: bytes, wanted: list[str], n_evidence: int, error: Exception) -> tuple[Any, dict[int, str]]:
        """Parse rows some of which have too many or too few cells: those are null and said to be broken."""
        records = self._records(text)
        whole = b"".join(r if r.endswith(self._end) else r + self._end for _, r in records)
        found: list[Any] = []
        try:
            table = self._table(whole, wanted, n_evidence, False, found)
        except arrow().ArrowInvalid:
            raise ParseError(f"this CSV cannot be understood: {error}", self.name, None) from None
        n = len(self.columns)
        broken = {number - 1: f"{_cells_of(k)} in a row of {n} columns" for number, k in found}
        good = iter(range(table.num_rows))
        rows = [None if i in broken else next(good) for i in range(len(records))]
        return table.take(arrow().array(rows, arrow().int64())), broken

    def _records(self, text: bytes) -> list[tuple[int, bytes]]:
        """Rows, each with how many lines lie before it; slow, and needed only for what is wrong."""
        found: list[tuple[int, bytes]] = []
        held, start = b"", 0
        for i, line in enumerate(text.split(self._end)):
            held += line + self._end
            if self._is_open(held):
                continue
            if len(self.columns) == 1 or held.strip(b"\r\n"):
                found.append((start, held))
            held, start = b"", i + 1
        if held:
            found.append((start, held))
        if found and len(self.columns) == 1 and text.endswith(self._end):
            found.pop()  # behind the last line end there is no row
        return found


def _count(text: bytes, byte: bytes) -> int:
    """How often a byte stands in a text, in a time that does not depend on that."""
    if len(text) < SHORT:
        return text.count(byte)
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == byte[0]))


def _cells_of(n: int) -> str:
    return "1 cell" if n == 1 else f"{n} cells"


def _cells(row: str, delimiter: str, quote: str) -> list[str]:
    if not quote:
        return row.split(delimiter)
    return next(csv.reader([row], delimiter=delimiter, quotechar=quote))


def _sniffed(header: str, model: DiscreteModel, quote: str) -> str:
    """The delimiter that gives most names of variables, then most names; the first of equals."""
    known = set(model.variables)

    def score(delimiter: str) -> tuple[int, int]:
        names = _cells(header, delimiter, quote)
        return sum(n in known or n.strip() in known for n in names), len(names)

    return max(DELIMITERS, key=score)
