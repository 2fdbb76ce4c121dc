"""Files of answers: whole or absent, and what a stopped run had finished is kept.

While a run goes on, what it writes lies in a folder beside the output: one file that grows chunk by chunk, and a
journal with a line for every chunk that says how far that file is good and where reading goes on. Only what is on disk
is entered there. At the end the file gets its last bytes and the output's name, in one step.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import gzip
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import FormatError, JtgpuError
from .arrow import arrow, arrow_csv, arrow_parquet
from .footer import MAGIC, body_and_footer, join_footers, shifted_row_groups

__all__ = ["Done", "Unfinished", "Writer", "writer_for"]

SYNC_EVERY = 5.0  # seconds between two times at which chunks are made sure of
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Writer(Protocol):
    """A format of answers, whose chunks follow each other in a file."""

    name: str

    def start(self) -> bytes:
        """The file's first bytes."""

    def chunk(self, table: Any, at: int) -> tuple[Any, dict[str, Any]]:
        """A table as bytes at a place in the file, and what the journal must remember of it."""

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Take up what an earlier run wrote."""

    def end(self, schema: Any) -> bytes:
        """The file's last bytes."""


def writer_for(path: Path, compression: str | None = None) -> Writer:
    """How a file is written, by its suffix: .parquet, .csv, .tsv; .gz or .zst behind the latter two packs.

    Raises
    ------
    FormatError
        For any other.
    """
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        return _ParquetWriter(compression or "snappy")
    for packed, codec in (("", None), (".gz", "gzip"), (".zst", "zstd")):
        for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
            if name.endswith(suffix + packed):
                return _CsvWriter(delimiter, codec)
    raise FormatError(f"{path}: answers are written as .parquet, .csv or .tsv (.csv.gz, .csv.zst), by the file's name")


class _CsvWriter:
    """Text: numbers as short as they can be without another value, null as nothing."""

    def __init__(self, delimiter: str, codec: str | None):
        self.name = "csv"
        self._delimiter, self._codec = delimiter, codec
        self._begun = False

    def start(self) -> bytes:
        return b""

    def chunk(self, table: Any, at: int) -> tuple[Any, dict[str, Any]]:
        writing = arrow_csv()
        out = arrow().BufferOutputStream()
        options = writing.WriteOptions(include_header=not self._begun, delimiter=self._delimiter)
        writing.write_csv(table, out, options)
        self._begun = True
        return self._packed(out.getvalue()), {}

    def _packed(self, data: Any) -> Any:
        """A part of a packed file: gzip and zstd files may stand behind each other."""
        if self._codec == "gzip":
            return gzip.compress(memoryview(data), compresslevel=4, mtime=0)
        if self._codec == "zstd":
            return memoryview(arrow().compress(data, codec="zstd"))
        return memoryview(data)

    def restore(self, entry: Mapping[str, Any]) -> None:
        self._begun = True

    def end(self, schema: Any) -> bytes:
        return b"" if self._begun else bytes(self.chunk(schema.empty_table(), 0)[0])


class _ParquetWriter:
    """Parquet: a row group a chunk."""

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

    def chunk(self, table: Any, at: int) -> tuple[Any, dict[str, Any]]:
        body, footer = body_and_footer(self._file(table))
        groups = shifted_row_groups(footer, at - len(MAGIC), len(self._groups))
        entry = {"groups": [base64.b64encode(g).decode() for g in groups], "n": table.num_rows}
        if not self._footer:
            entry["footer"] = base64.b64encode(footer).decode()
        self.restore(entry)
        return body, entry

    def restore(self, entry: Mapping[str, Any]) -> None:
        if "footer" in entry:
            self._footer = base64.b64decode(entry["footer"])
        self._groups += [base64.b64decode(g) for g in entry["groups"]]
        self._rows += entry["n"]

    def end(self, schema: Any) -> bytes:
        if not self._footer:
            self._footer = body_and_footer(self._file(schema.empty_table()))[1]
        return join_footers(self._footer, self._groups, self._rows)


@dataclass(frozen=True)
class Done:
    """How far an unfinished run has come."""

    rows: int = 0
    flagged: int = 0
    position: dict[str, int] | None = None  # None: nothing has been read


class Unfinished:
    """The folder of a run, and its end.

    Parameters
    ----------
    output : Path
    writer : Writer
    identity : mapping
        What the answers depend on, as JSON: a run goes on only with the same.
    resume : bool
        Go on with what is there.
    force : bool
        Replace an output that is there; begin anew where another run was not finished.

    Raises
    ------
    JtgpuError
        Where something is in the way, saying what and how to go on.
    """

    def __init__(self, output: Path, writer: Writer, identity: Mapping[str, Any], *, resume: bool, force: bool):
        self.output, self._writer = output, writer
        self.folder = output.with_name(output.name + ".unfinished")
        self._identity = json.loads(json.dumps(identity))
        self._force = force
        self._end = 0
        self.done = Done()
        self._pending: list[dict[str, Any]] = []
        self._synced = time.monotonic()
        self._journal: Any = None
        self._data: Any = None
        if output.is_dir():
            raise JtgpuError(f"{output} is a folder")
        if output.exists() and not force:
            raise JtgpuError(f"{output} is there already; --force writes over it")
        try:
            self._open(resume)
        except BaseException:
            self.close()
            raise

    @property
    def _journal_file(self) -> Path:
        return self.folder / "journal.jsonl"

    def _open(self, resume: bool) -> None:
        there = self._journal_file.exists()
        if there and not resume and not self._force:
            raise JtgpuError(f"{self.folder} holds an unfinished run: --resume goes on with it, --force begins anew")
        self.folder.mkdir(exist_ok=True)
        self._journal = self._journal_file.open("a+b")
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JtgpuError(f"{self.folder}: another run is writing there") from None
        data = self.folder / "data"
        entries = self._entries() if there and resume else []
        if not entries:
            self._journal.truncate(0)
            self._data = data.open("w+b")
            self._data.write(self._writer.start())
            self._end = self._data.tell()
            self._note({"identity": self._identity, "end": self._end})
            self.sync()
            return
        _same(entries[0]["identity"], self._identity, self.folder)
        self._data = data.open("r+b") if data.exists() else data.open("w+b")
        size = os.fstat(self._data.fileno()).st_size
        kept = [entries[0]] + [e for e in entries[1:] if e["end"] <= size]
        if size < entries[0]["end"]:  # not even that: the folder was tampered with, or the disk lost it
            self._data.write(self._writer.start())
        for entry in kept[1:]:
            self._writer.restore(entry["chunk"])
            self.done = Done(entry["rows"], entry["flagged"], entry["position"])
        self._end = kept[-1]["end"]
        self._back()
        self._journal.truncate(0)
        for entry in kept:
            self._note(entry)
        self.sync()

    def _entries(self) -> list[dict[str, Any]]:
        """What the journal holds, up to a line that was not finished."""
        self._journal.seek(0)
        entries = []
        for line in self._journal:
            try:
                entries.append(json.loads(line))
            except ValueError:
                break
        return entries

    def _note(self, entry: dict[str, Any]) -> None:
        self._pending.append(entry)

    def _back(self) -> None:
        """Forget what lies behind the last whole chunk."""
        self._data.seek(self._end)
        self._data.truncate()

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk.

        Raises
        ------
        OSError
            When the disk is full, among others; what was written before stays good.
        """
        body, remembered = self._writer.chunk(table, self._end)
        try:
            self._data.write(body)
            self._data.flush()
        except OSError:
            self._forget()
            raise
        self._end += len(body)
        self.done = Done(self.done.rows + table.num_rows, self.done.flagged + flagged, position)
        self._note(
            {"rows": self.done.rows, "flagged": self.done.flagged, "position": position, "end": self._end,
             "chunk": remembered}
        )  # fmt: skip
        if time.monotonic() - self._synced > SYNC_EVERY:
            self.sync()

    def _forget(self) -> None:
        """Give room back that half a chunk has taken. The file's buffer may still hold some of it."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._data.fileno(), self._end)
        with contextlib.suppress(OSError):
            self._data.close()
        with contextlib.suppress(OSError):
            os.truncate(self.folder / "data", self._end)
        self._data = (self.folder / "data").open("r+b")
        self._data.seek(self._end)

    def sync(self) -> None:
        """Make sure of what was written, and enter it in the journal."""
        if self._data is None or self._journal is None or not self._pending:
            return
        self._data.flush()
        os.fsync(self._data.fileno())
        # a line each: what a crash cuts off is the last one
        self._journal.write(b"".join(json.dumps(e).encode() + b"\n" for e in self._pending))
        self._journal.flush()
        os.fsync(self._journal.fileno())
        self._pending.clear()
        self._synced = time.monotonic()

    def finish(self, schema: Any) -> None:
        """Give the file its end and its name; the folder goes."""
        self.sync()
        try:
            self._data.write(self._writer.end(schema))
            self._data.flush()
            os.fsync(self._data.fileno())
        except OSError:
            self._forget()
            raise
        os.replace(self.folder / "data", self.output)
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the new name, too
            folder = os.open(self.output.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def close(self) -> None:
        """Leave the folder as it is; may be called twice."""
        for file in (self._data, self._journal):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        self._data = self._journal = None


def _same(was: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    for key in dict.fromkeys((*was, *now)):
        one, other = was.get(key), now.get(key)
        if one != other:
            if isinstance(one, dict) and isinstance(other, dict):
                _same(one, other, folder)
            raise JtgpuError(
                f"{folder} holds a run with another {key} ({_brief(one)}, now {_brief(other)}); --force begins anew"
            )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
