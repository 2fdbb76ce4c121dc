"""Write a part: a Parquet file that appears under its name when it is complete."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from typing import Any, NamedTuple

from ..inference.tables.arrow import arrow, arrow_parquet
from .storage import StoragePath, locate

TEMPORARY = "_tmp-"
KEY = b"jtgpu"  # in the footer of a part


class RowCounts(NamedTuple):
    """Numbers of rows, and of those that have no answer."""

    rows: int
    flagged: int


class PartTarget(NamedTuple):
    """Where and how the parts of a run are written."""

    folder: str  # path or URI
    run: str  # `Folder.run`
    schema: Any
    compression: str


def part_name(number: int) -> str:
    """The file of a part; sorted by name, the files are in the order of the rows."""
    return f"part-{number:06d}.parquet"


class PartWriter:
    """The file of a part; a `jtgpu.cases.pipeline.Sink`."""

    def __init__(self, target: PartTarget, number: int):
        self.rows = self.flagged = 0
        self._run = target.run
        folder = locate(target.folder)
        self._final = folder.child(part_name(number))
        self._temporary = folder.child(f"{TEMPORARY}{part_name(number)}-{uuid.uuid4().hex[:12]}")
        types = arrow().types
        text = [f.name for f in target.schema if not types.is_floating(f.type)]
        self._file = self._temporary.fs.open_output_stream(self._temporary.path)
        self._writer: Any = None
        try:
            self._writer = arrow_parquet().ParquetWriter(
                self._file, target.schema, compression=target.compression, use_dictionary=text
            )
        except BaseException:
            self.discard()
            raise

    def encode(self, table: Any) -> Any:
        return table

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk as a row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows
        self.flagged += flagged

    def finish(self) -> None:
        """Complete the file and rename it to the part's name."""
        counts = {"run": self._run, "rows": self.rows, "flagged": self.flagged}
        self._writer.add_key_value_metadata({KEY: json.dumps(counts).encode()})
        self._writer.close()
        self._file.close()
        self._temporary.publish(self._final)

    def discard(self) -> None:
        """Delete the incomplete file."""
        for opened in (self._writer, self._file):
            with suppress(Exception):  # closing fails on a full disk; the file is deleted nevertheless
                opened.close()
        with suppress(Exception):
            self._temporary.remove()


def read_counts(part: StoragePath, run: str) -> RowCounts | None:
    """Row counts from the footer of a part; None if it does not belong to this run."""
    try:
        with part.fs.open_input_file(part.path) as file:
            data = arrow_parquet().read_metadata(file).metadata or {}
        counts = json.loads(data[KEY])
        return RowCounts(int(counts["rows"]), int(counts["flagged"])) if counts["run"] == run else None
    except (arrow().ArrowInvalid, KeyError, ValueError, TypeError):
        return None
