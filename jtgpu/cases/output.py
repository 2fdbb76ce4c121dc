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
import threading
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


@dataclass
class Packed:
    """A chunk as a format writes it."""

    n: int  # rows
    body: Any  # bytes
    frame: bytes  # what stands round it where it is a file of its own: header or footer


class Writer(Protocol):
    """A format of answers, whose chunks follow each other in a file."""

    name: str

    def start(self) -> bytes:
        """The file's first bytes."""

    def pack(self, table: Any) -> Packed:
        """A table as bytes, wherever they will stand: by any thread."""

    def place(self, packed: Packed, at: int) -> tuple[list[Any], dict[str, Any]]:
        """The bytes of a chunk at a place in the file, in pieces, and what the journal must remember of it."""

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

    def pack(self, table: Any) -> Packed:
        return Packed(table.num_rows, self._text(table, False), bytes(self._text(table.slice(0, 0), True)))

    def place(self, packed: Packed, at: int) -> tuple[list[Any], dict[str, Any]]:
        begun, self._begun = self._begun, True
        return [packed.body] if begun else [packed.frame, packed.body], {}

    def _text(self, table: Any, header: bool) -> Any:
        writing = arrow_csv()
        out = arrow().BufferOutputStream()
        writing.write_csv(table, out, writing.WriteOptions(include_header=header, delimiter=self._delimiter))
        return self._packed(out.getvalue())

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
        return b"" if self._begun else bytes(self._text(schema.empty_table(), True))


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

    def pack(self, table: Any) -> Packed:
        return Packed(table.num_rows, *body_and_footer(self._file(table)))

    def place(self, packed: Packed, at: int) -> tuple[list[Any], dict[str, Any]]:
        groups = shifted_row_groups(packed.frame, at - len(MAGIC), len(self._groups))
        entry = {"groups": [base64.b64encode(g).decode() for g in groups], "n": packed.n}
        if not self._footer:
            entry["footer"] = base64.b64encode(packed.frame).decode()
        self.restore(entry)
        return [packed.body], entry

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
        self.safe = 0  # rows, of those that are done, that the journal holds
        self._pending: list[dict[str, Any]] = []
        self._synced = time.monotonic()
        self._journal: Any = None
        self._data: Any = None
        self._lock = threading.RLock()  # after Ctrl-C twice, two threads may be at it
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
        if not self.output.parent.is_dir():
            raise JtgpuError(f"{self.output}: there is no folder {self.output.parent}")
        self.folder.mkdir(exist_ok=True)
        self._journal = self._journal_file.open("a+b")
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JtgpuError(f"{self.folder}: another run is writing there") from None
        entries = self._entries()
        if len(entries) > 1 and not resume and not self._force:
            raise JtgpuError(f"{self.folder} holds an unfinished run: --resume goes on with it, --force begins anew")
        if resume and entries:
            self._go_on(entries)
            return
        self._journal.truncate(0)
        self._data = (self.folder / "data").open("w+b")
        self._data.write(self._writer.start())
        self._end = self._data.tell()
        self._note({"identity": self._identity, "end": self._end})
        self.sync()

    def _go_on(self, entries: list[tuple[dict[str, Any], int]]) -> None:
        """Take up what the journal holds and the disk has kept; nothing is lost if this is stopped, too."""
        (first, good), *more = entries
        _same(first["identity"], self._identity, self.folder)
        data = self.folder / "data"
        self._data = data.open("r+b") if data.exists() else data.open("w+b")
        size = os.fstat(self._data.fileno()).st_size
        self._end = first["end"]
        if size < self._end:  # not even that: the folder was tampered with, or the disk lost it
            self._data.write(self._writer.start())
        for entry, behind in more:
            if entry["end"] > size:
                break
            good = behind
            if entry["end"] > self._end:  # a full disk may have the same lines written twice
                self._writer.restore(entry["chunk"])
                self.done = Done(entry["rows"], entry["flagged"], entry["position"])
                self._end = entry["end"]
        self.safe = self.done.rows
        self._data.seek(self._end)  # what lies behind the last whole chunk goes
        self._data.truncate()
        self._journal.truncate(good)

    def _entries(self) -> list[tuple[dict[str, Any], int]]:
        """What the journal holds, up to a line that was not finished, and where each line ends."""
        self._journal.seek(0)
        entries, end = [], 0
        for line in self._journal:
            end += len(line)
            try:
                entries.append((json.loads(line), end))
            except ValueError:
                break
            if not line.endswith(b"\n"):  # all but its end is there
                entries.pop()
                break
        return entries

    def _note(self, entry: dict[str, Any]) -> None:
        self._pending.append(entry)

    def pack(self, table: Any) -> Packed:
        """A table as the file will hold it; may be called by any thread, in any order."""
        return self._writer.pack(table)

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk: a table, or what `pack` made of it.

        Raises
        ------
        OSError
            When the disk is full, among others; what was written before stays good.
        """
        packed = table if isinstance(table, Packed) else self.pack(table)
        with self._lock:
            pieces, remembered = self._writer.place(packed, self._end)
            try:
                for piece in pieces:
                    self._data.write(piece)
                self._data.flush()
            except OSError:
                self._forget()
                raise
            self._end += sum(map(len, pieces))
            self.done = Done(self.done.rows + packed.n, self.done.flagged + flagged, position)
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
        with self._lock:
            if self._data is None or self._journal is None or not self._pending:
                return
            self._data.flush()
            os.fsync(self._data.fileno())
            # a line each: what a crash cuts off is the last one
            self._journal.write(b"".join(json.dumps(e).encode() + b"\n" for e in self._pending))
            self._journal.flush()
            os.fsync(self._journal.fileno())
            self._pending.clear()
            self._synced, self.safe = time.monotonic(), self.done.rows

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

    def _remove(self) -> None:
        """Take away what this run put into the folder, and the folder if that was all."""
        for path in (self.folder / "data", self._journal_file):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def close(self) -> None:
        """Leave the folder as it is, or take it away where it holds nothing; may be called twice."""
        with self._lock:
            if self._data is not None and not self.done.rows:
                self._remove()
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
