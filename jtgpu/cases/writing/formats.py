"""Formats of answers, CSV and Parquet, written chunk by chunk."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...errors import UnknownSuffix
from ...inference.tables.arrow import arrow, arrow_csv, arrow_parquet
from ..formulas import escape_formulas
from .parquet_footer import MAGIC, body_and_footer, join_footers, shifted_row_groups


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

    def encode(self, table: Any) -> EncodedChunk:
        """Encode a table, independently of its place in the file; from any thread."""

    def place(self, chunk: EncodedChunk, at: int) -> tuple[list[Any], dict[str, Any]]:
        """The bytes of a chunk at position `at`, in pieces, and its entry for the journal."""

    def restore(self, entry: Mapping[str, Any]) -> None:
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

    def _text(self, table: Any, header: bool) -> Any:
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

    def restore(self, entry: Mapping[str, Any]) -> None:
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
