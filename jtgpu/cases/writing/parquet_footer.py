"""Concatenate Parquet files: row groups are copied unchanged, and only the footers are merged.

A Parquet file consists of row groups followed by a footer with the offset of each column of each row group. The footer
is a structure in Thrift's compact protocol (definition: parquet.thrift of the Apache Parquet format). A chunk that was
encoded as a file of its own is appended by copying its bytes and shifting the offsets in its footer. A long run thus
encodes nothing twice, and its data reach the disk before it finishes.
"""

from __future__ import annotations

import struct
from typing import Any

MAGIC = b"PAR1"

# types of the compact protocol
STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(14)

# fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData (parquet.thrift)
FILE_ROWS, FILE_GROUPS = 3, 4
GROUP_COLUMNS, GROUP_ROWS, GROUP_OFFSET, GROUP_ORDINAL = 1, 3, 5, 7
COLUMN_OFFSET, COLUMN_META, COLUMN_OFFSET_INDEX, COLUMN_COLUMN_INDEX = 2, 3, 4, 6
META_OFFSETS = (9, 10, 11, 14)  # data page, index page, dictionary page, bloom filter

Fields = dict[int, tuple[int, Any]]  # number of a field -> its type and value


class _Reader:
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
        found: Fields = {}
        last = 0
        while (head := self.byte()) != STOP:
            kind = head & 15
            last = last + (head >> 4) if head >> 4 else self.signed()
            found[last] = kind, None if kind in (TRUE, FALSE) else self.value(kind)
        return found

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
    kind, groups = _Reader(footer).fields()[FILE_GROUPS][1]
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
    for number, (kind, value) in _Reader(first).fields().items():
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
