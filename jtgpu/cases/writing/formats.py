"""Formats of answers, CSV and Parquet, written chunk by chunk."""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...columns.arrow import arrow, arrow_csv, arrow_parquet
from ...errors import UnknownSuffix
from ..query import escape_formulas

# Concatenate Parquet files: row groups are copied unchanged, and only the footers are merged.
#
# A Parquet file consists of row groups followed by a footer with the offset of each column of each row group. The
# footer is a structure in Thrift's compact protocol (definition: parquet.thrift of the Apache Parquet format). A
# chunk that was encoded as a file of its own is appended by copying its bytes and shifting the offsets in its footer.
# A long run thus encodes nothing twice, and its data reach the disk before it finishes.

MAGIC = b"PAR1"

# types of the compact protocol
STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(14)

# fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData (parquet.thrift)
FILE_ROWS, FILE_GROUPS = 3, 4
GROUP_COLUMNS, GROUP_ROWS, GROUP_OFFSET, GROUP_ORDINAL = 1, 3, 5, 7
COLUMN_OFFSET, COLUMN_META, COLUMN_OFFSET_INDEX, COLUMN_COLUMN_INDEX = 2, 3, 4, 6
META_OFFSETS = (9, 10, 11, 14)  # data page, index page, dictionary page, bloom filter

Fields = dict[int, tuple[int, Any]]  # number of a field -> its type and value


class _ThriftReader:
    """Decodes Thrift's compact protocol."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            if b < 0x80:
                return value
            shift += 7

    def signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):  # as an element of a list
            return self.byte()
        if kind == I8:
            return self.byte()
        if kind in (I16, I32, I64):
            return self.signed()
        if kind == DOUBLE:
            return self._take(8)
        if kind == UUID:
            return self._take(16)
        if kind == BINARY:
            return self._take(self.varint())
        if kind in (LIST, SET):
            head = self.byte()
            n = head >> 4 if head >> 4 < 15 else self.varint()
            return head & 15, [self.value(head & 15) for _ in range(n)]
        if kind == MAP:
            n = self.varint()
            kinds = self.byte() if n else 0
            return kinds, [(self.value(kinds >> 4), self.value(kinds & 15)) for _ in range(n)]
        if kind == STRUCT:
            return self.fields()
        raise ValueError(f"a Parquet footer holds the unknown type {kind}")

    def fields(self) -> Fields:
        values: Fields = {}
        last = 0
        while (head := self.byte()) != STOP:
            kind = head & 15
            last = last + (head >> 4) if head >> 4 else self.signed()
            values[last] = kind, None if kind in (TRUE, FALSE) else self.value(kind)
        return values

    def _take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]


def _varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _signed(n: int) -> bytes:
    return _varint(2 * n if n >= 0 else -2 * n - 1)


def _encode(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE, I8):
        return bytes([value])
    if kind in (I16, I32, I64):
        return _signed(value)
    if kind in (DOUBLE, UUID):
        return bytes(value)
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind in (LIST, SET):
        inner, items = value
        return _list_head(inner, len(items)) + b"".join(_encode(inner, x) for x in items)
    if kind == MAP:
        kinds, pairs = value
        if not pairs:
            return b"\0"
        inside = (_encode(kinds >> 4, k) + _encode(kinds & 15, v) for k, v in pairs)
        return _varint(len(pairs)) + bytes([kinds]) + b"".join(inside)
    return _encode_fields(value)


def _list_head(kind: int, n: int) -> bytes:
    return bytes([n << 4 | kind]) if n < 15 else bytes([0xF0 | kind]) + _varint(n)


def _field(last: int, number: int, kind: int) -> bytes:
    step = number - last
    return bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _signed(number)


def _encode_fields(fields: Fields) -> bytes:
    parts, last = [], 0
    for number, (kind, value) in fields.items():
        parts.append(_field(last, number, kind) + (b"" if value is None else _encode(kind, value)))
        last = number
    return b"".join(parts) + b"\0"


def body_and_footer(file: memoryview) -> tuple[memoryview, bytes]:
    """The row groups of a Parquet file, without the four bytes before them, and its footer."""
    n = struct.unpack("<I", file[-8:-4])[0]
    return file[4 : len(file) - 8 - n], bytes(file[len(file) - 8 - n : -8])


def shifted_row_groups(footer: bytes, by: int, ordinal: int) -> list[bytes]:
    """The row groups of a footer, encoded with shifted offsets."""
    # by: Number of bytes by which the row groups move
    # ordinal: Number of the first one among all row groups of the file
    kind, groups = _ThriftReader(footer).fields()[FILE_GROUPS][1]
    assert kind == STRUCT
    for i, group in enumerate(groups):
        _shift(group, GROUP_OFFSET, by)
        if GROUP_ORDINAL in group and ordinal + i < 2**15:
            group[GROUP_ORDINAL] = group[GROUP_ORDINAL][0], ordinal + i
        else:  # a 16-bit field that is optional
            group.pop(GROUP_ORDINAL, None)
        for column in group[GROUP_COLUMNS][1][1]:
            for offset in (COLUMN_OFFSET, COLUMN_OFFSET_INDEX, COLUMN_COLUMN_INDEX):
                _shift(column, offset, by)
            for offset in META_OFFSETS:
                _shift(column[COLUMN_META][1], offset, by)
    return [_encode_fields(g) for g in groups]


def _shift(fields: Fields, number: int, by: int) -> None:
    if number in fields and fields[number][1]:  # 0: unset, in files of older writers
        kind, value = fields[number]
        fields[number] = kind, value + by


def join_footers(first: bytes, groups: list[bytes], rows: int) -> bytes:
    """The end of a Parquet file: a footer with the row groups of all parts, its length and the magic number."""
    # first: bytes: The footer of the first part; everything but the row groups and the number of rows is copied
    # groups: list of bytes: From `shifted_row_groups`, in order
    parts, last = [], 0
    for number, (kind, value) in _ThriftReader(first).fields().items():
        parts.append(_field(last, number, kind))
        if number == FILE_ROWS:
            parts.append(_signed(rows))
        elif number == FILE_GROUPS:
            parts += [_list_head(STRUCT, len(groups)), *groups]
        elif value is not None:
            parts.append(_encode(kind, value))
        last = number
    joined = b"".join(parts) + b"\0"
    return joined + struct.pack("<I", len(joined)) + MAGIC


@dataclass
class EncodedChunk:
    """A chunk in a file format."""

    n: int  # rows
    body: Any  # bytes
    frame: bytes  # what a file of this chunk alone would have around it: a header or a footer


class Writer(Protocol):
    """A format of answers that writes a file chunk by chunk."""

    name: str

    def start(self) -> bytes:
        """First bytes of the file."""

    def encode(self, table: object) -> EncodedChunk:
        """Encode a table, independently of its place in the file; from any thread."""

    def place(self, chunk: EncodedChunk, at: int) -> tuple[list[Any], dict[str, Any]]:
        """The bytes of a chunk at position `at`, in pieces, and its entry for the journal."""

    def restore(self, entry: Mapping[str, object]) -> None:
        """Account for a chunk that an earlier run wrote, by its entry in the journal."""

    def end(self, schema: Any) -> bytes:
        """Last bytes of the file."""


def writer_for(path: Path, compression: str | None = None, escape: bool = False) -> Writer:
    """The writer for a file, by suffix: .parquet, .csv or .tsv; append .gz or .zst to compress the latter two.

    With `escape`, text that a spreadsheet would run as a formula is escaped in .csv and .tsv files.
    """
    # raises UnknownSuffix: For any other suffix.
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        return _ParquetWriter(compression or "snappy")
    for ending, codec in (("", None), (".gz", "gzip"), (".zst", "zstd")):
        for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
            if name.endswith(suffix + ending):
                return _CsvWriter(delimiter, codec, escape)
    raise UnknownSuffix(f"{path}: the suffix of the output must be .parquet, .csv or .tsv (.csv.gz, .csv.zst)")


class _CsvWriter:
    """Text: the shortest decimals that identify a float64, nothing for null."""

    def __init__(self, delimiter: str, codec: str | None, escape: bool):
        self.name = "csv"
        self._delimiter, self._codec, self._escape = delimiter, codec, escape
        self._begun = False

    def start(self) -> bytes:
        return b""

    def encode(self, table: Any) -> EncodedChunk:
        return EncodedChunk(table.num_rows, self._text(table, False), bytes(self._text(table.slice(0, 0), True)))

    def place(self, chunk: EncodedChunk, at: int) -> tuple[list[Any], dict[str, Any]]:
        begun, self._begun = self._begun, True
        return [chunk.body] if begun else [chunk.frame, chunk.body], {}

    def _text(self, table: object, header: bool) -> Any:
        if self._escape:
            table = escape_formulas(table)
        writing = arrow_csv()
        out = arrow().BufferOutputStream()
        writing.write_csv(table, out, writing.WriteOptions(include_header=header, delimiter=self._delimiter))
        return self._compressed(out.getvalue())

    def _compressed(self, data: Any) -> Any:
        """Compress a part of the file: gzip and zstd files can be concatenated."""
        if self._codec == "gzip":
            return gzip.compress(memoryview(data), compresslevel=4, mtime=0)
        if self._codec == "zstd":
            return memoryview(arrow().compress(data, codec="zstd"))
        return memoryview(data)

    def restore(self, entry: Mapping[str, object]) -> None:
        self._begun = True

    def end(self, schema: Any) -> bytes:
        return b"" if self._begun else bytes(self._text(schema.empty_table(), True))


class _ParquetWriter:
    """Parquet: one row group per chunk."""

    def __init__(self, compression: str):
        self.name = "parquet"
        self._compression = compression
        self._groups: list[bytes] = []
        self._footer = b""
        self._rows = 0

    def start(self) -> bytes:
        return MAGIC

    def _file(self, table: Any) -> memoryview:
        pa = arrow()
        out = pa.BufferOutputStream()
        text = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
        arrow_parquet().write_table(
            table, out, compression=self._compression, use_dictionary=text, row_group_size=max(table.num_rows, 1)
        )
        return memoryview(out.getvalue())

    def encode(self, table: Any) -> EncodedChunk:
        return EncodedChunk(table.num_rows, *body_and_footer(self._file(table)))

    def place(self, chunk: EncodedChunk, at: int) -> tuple[list[Any], dict[str, Any]]:
        groups = shifted_row_groups(chunk.frame, at - len(MAGIC), len(self._groups))
        entry = {"groups": [base64.b64encode(g).decode() for g in groups], "n": chunk.n}
        if not self._footer:
            entry["footer"] = base64.b64encode(chunk.frame).decode()
        self.restore(entry)
        return [chunk.body], entry

    def restore(self, entry: Mapping[str, Any]) -> None:
        if "footer" in entry:
            self._footer = base64.b64decode(entry["footer"])
        self._groups += [base64.b64decode(g) for g in entry["groups"]]
        self._rows += entry["n"]

    def end(self, schema: Any) -> bytes:
        if not self._footer:
            self._footer = body_and_footer(self._file(schema.empty_table()))[1]
        return join_footers(self._footer, self._groups, self._rows)
