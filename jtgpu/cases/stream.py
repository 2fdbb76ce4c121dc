"""Files of cases, read in chunks: CSV in its dialects, packed or not, and Parquet. Memory does not grow with the file.

A chunk knows where its rows stand in the file, for messages, and where the next one begins, for `--resume`.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..errors import FormatError, JtgpuError, ParseError
from ..network import DiscreteModel
from .arrow import arrow, arrow_csv, arrow_parquet, compute

__all__ = ["Chunk", "Source", "open_cases"]

DELIMITERS = (",", ";", "\t", "|")
HEAD = 1 << 16  # bytes looked at before anything else
LEAST_BLOCK, MOST_BLOCK = 1 << 16, 1 << 26  # bytes of CSV parsed at a time
LONGEST_ROW = 1 << 28  # bytes; a longer one is a quote that nobody closes
AT_ONCE = 1 << 24  # bytes asked of the system
PARSED_AT_ONCE = 1 << 20  # bytes a thread takes
PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}

Place = tuple[str, int | None]  # how a row is called: file and line, or file with the row's number in words


class _OSProblem(JtgpuError, OSError):
    """A file that cannot be opened: our error, and one that programs which catch `OSError` catch."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass
class Chunk:
    """Some rows of a file."""

    n: int
    columns: list[Any]  # Arrow arrays of n cells, as many as were asked for
    position: dict[str, int]  # where the next chunk begins; what `Source.chunks` takes to go on there
    done: int  # of `Source.size`
    place: Callable[[int], Place]  # of a row of this chunk
    broken: dict[int, str] = field(default_factory=dict)  # rows that have no cells: why


class Source(Protocol):
    """A file of cases."""

    columns: list[str]
    size: int  # what `Chunk.done` counts to: bytes or rows
    rows: int | None  # how many there are, where the file says so

    def types(self, names: Sequence[str]) -> list[Any]:
        """Arrow types of columns that are kept."""

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[Chunk]:
        """The file's rows from a position on, about so many at a time: columns of evidence, then those kept."""


def open_cases(
    path: Path, model: DiscreteModel, *, delimiter: str | None = None, quote: str = '"', encoding: str = "utf-8",
    threads: bool = True,
) -> Source:  # fmt: skip
    """Open a file of cases: Parquet by what is in it, else CSV.

    Parameters
    ----------
    path : Path
    model : DiscreteModel
        Its variables' names tell what separates the columns of a CSV.
    delimiter : str, optional
        One character; default: the comma, semicolon, tab or bar that gives most columns a known name.
    quote : str
        One character, or empty: quotes are part of what they stand in.
    encoding : str
        Any in which line ends are the bytes of ASCII.
    threads : bool
        May several cores parse?

    Raises
    ------
    JtgpuError, OSError
        One error that is both, for a file that cannot be opened.
    ParseError
        For a file without a header, or one that is no text.
    """
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise _OSProblem(f"{path}: {error.strerror or error}") from None
    if head[:4] == b"PAR1":
        return _Parquet(path, threads)
    if head[:6] == b"ARROW1":
        raise FormatError(f"{path}: an Arrow file; cases are read from CSV and Parquet")
    return _Csv(path, model, delimiter, quote, encoding, threads)


# CSV ------------------------------------------------------------------------------------------------------------


class _Csv:
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
        at = dict(position or {"byte": self._begin[0], "line": self._begin[1], "row": 0})
        wanted = [str(self.columns.index(n)) for n in (*evidence, *kept)]
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
                if not block.strip(b"\r\n") and (len(self.columns) > 1 or not block):
                    at["byte"] += len(block)
                    at["line"] += block.count(self._end)
                    size = 2 * size if left else size
                    continue
                n_left = len(left)
                chunk = self._parsed(block, wanted, len(evidence), at)
                chunk.done = min(raw.tell() - (0 if self._packing else n_left), self.size)
                at = chunk.position
                per_row = len(block) / max(chunk.n, 1)
                size = max(LEAST_BLOCK, int(per_row * rows))
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
        return bool(self._quote) and text.count(self._quote) % 2 == 1

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

    def _parsed(self, block: bytes, wanted: list[str], n_evidence: int, at: dict[str, int]) -> Chunk:
        """Parse whole rows."""
        pa = arrow()
        text = block
        if self._encoding != "utf-8":
            text = self._decoded(block, at["line"]).encode()
        broken: dict[int, str] = {}
        try:
            table = self._table(text, wanted, n_evidence, self._threads)
        except pa.ArrowInvalid as error:
            self._decoded(block, at["line"])  # says where, if that is what is wrong
            table, broken = self._mended(text, wanted, n_evidence, error)
        columns = list(table.columns)
        for j in range(n_evidence, len(columns)):  # an empty cell that is kept
            columns[j] = compute().if_else(compute().equal(columns[j], ""), None, columns[j])
        line = at["line"]
        position = {
            "byte": at["byte"] + len(block), "line": line + block.count(self._end), "row": at["row"] + table.num_rows
        }  # fmt: skip

        def place(row: int) -> Place:
            return self.name, line + self._records(text)[row][0]

        return Chunk(table.num_rows, columns, position, 0, place, broken)

    def _table(
        self, text: bytes, wanted: list[str], n_evidence: int, threads: bool, refused: list[Any] | None = None
    ) -> Any:
        pa, reading = arrow(), arrow_csv()
        label = pa.dictionary(pa.int32(), pa.string())
        quoted = bool(self._quote) and self._quote in text

        def skip(row: Any) -> str:
            if refused is None:
                return "error"
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
                invalid_row_handler=skip,
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


# Parquet --------------------------------------------------------------------------------------------------------


class _Parquet:
    """A Parquet file, a part of a row group at a time."""

    def __init__(self, path: Path, threads: bool):
        self.name, self._threads = str(path), threads
        try:
            with arrow_parquet().ParquetFile(self.name) as file:
                self._schema = file.schema_arrow
                self._groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        except (arrow().ArrowInvalid, OSError) as error:
            raise ParseError(f"this Parquet file cannot be read: {error}", self.name) from None
        self.columns: list[str] = list(self._schema.names)
        self.rows: int | None = sum(self._groups)
        self.size = self.rows

    def types(self, names: Sequence[str]) -> list[Any]:
        """See `Source.types`."""
        return [self._schema.field(n).type for n in names]

    def chunks(
        self, evidence: Sequence[str], kept: Sequence[str], rows: int, position: dict[str, int] | None = None
    ) -> Iterator[Chunk]:
        """See `Source.chunks`."""
        pa = arrow()
        first = row = position["row"] if position else 0
        group = 0
        while group < len(self._groups) and first >= self._groups[group]:
            first -= self._groups[group]
            group += 1
        names = list(dict.fromkeys((*evidence, *kept)))
        text = [n for n in evidence if n not in kept and self._is_text(n)]
        held: list[Any] = []
        with arrow_parquet().ParquetFile(self.name, read_dictionary=text, memory_map=True) as file:
            groups = range(group, len(self._groups))
            batches = file.iter_batches(rows, row_groups=groups, columns=names, use_threads=self._threads)
            while True:
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowInvalid) as error:
                    raise ParseError(f"cannot be read behind row {row + 1}: {error}", self.name) from None
                if batch is not None:
                    skipped = min(first, batch.num_rows)
                    first -= skipped
                    held.append(batch.slice(skipped))
                ready = sum(b.num_rows for b in held)
                while held and ready and (batch is None or ready >= rows):
                    table = pa.Table.from_batches(held)
                    part, rest = table.slice(0, rows), table.slice(rows)
                    held, ready = rest.to_batches() if rest.num_rows else [], rest.num_rows
                    yield self._chunk(part, [*evidence, *kept], row)
                    row += part.num_rows
                if batch is None:
                    return

    def _is_text(self, name: str) -> bool:
        t = arrow().types
        kind = self._schema.field(name).type
        return bool(t.is_string(kind) or t.is_large_string(kind))

    def _chunk(self, part: Any, names: Sequence[str], row: int) -> Chunk:
        def place(i: int) -> Place:
            return f"{self.name}: row {row + i + 1}", None

        done = row + part.num_rows
        return Chunk(part.num_rows, [part.column(n) for n in names], {"row": done}, done, place)
