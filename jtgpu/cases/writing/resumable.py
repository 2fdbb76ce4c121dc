"""A file of answers that appears when it is complete, and that a later run can continue if it is not.

While a run writes, its data are in a folder next to the output: one file that grows chunk by chunk, and a journal with
one line per chunk that records how far that file is valid and where reading continues. Only data that have reached the
disk are recorded. At the end the file gets its last bytes and is renamed to the output in one step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import JtgpuError, OutputExists
from ...util.atomic_file import flush_folder
from ..query import check_same_run
from .formats import EncodedChunk, Writer

# A journal: one JSON object per line, on disk before the call returns, readable after a crash at any moment.

class Journal:
    """A journal that a single process writes at a time."""
    # path: Created if it does not exist
    # raises JtgpuError: If another process is writing it.

    def __init__(self, path: Path):
        self._file: Any = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise JtgpuError(f"{path.parent}: another run is writing there") from None

    def entries(self) -> list[tuple[dict[str, Any], int]]:
        """The entries up to the first incomplete line, each with the position where its line ends."""
        self._file.seek(0)
        entries, end = [], 0
        for line in self._file:
            end += len(line)
            if not line.endswith(b"\n"):
                break
            try:
                entries.append((json.loads(line), end))
            except ValueError:
                break
        return entries

    def truncate(self, end: int = 0) -> None:
        """Drop everything from a position on."""
        self._file.truncate(end)

    def append(self, entries: Iterable[dict[str, Any]]) -> None:
        """Append entries, one line each: a crash can damage the last one only."""
        self._file.write(b"".join(json.dumps(e).encode() + b"\n" for e in entries))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file and release the lock."""
        with contextlib.suppress(OSError):
            self._file.close()


SYNC_INTERVAL = 5.0  # seconds between two flushes to the disk
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def no_space(error: OSError, output: str, saved: str | None) -> JtgpuError:
    """The error for an output that cannot grow; `saved` says what is complete, None: nothing is."""
    too_long = error.errno == errno.EFBIG
    reason = "would exceed the limit of the file size (ulimit -f)"
    what = f"{output} {reason}" if too_long else f"no space left for {output}"
    do = "raise the limit" if too_long else "free some space"
    return JtgpuError(
        f"{what}: no case is saved; {do} and start again" if saved is None
        else f"{what}: {saved}; {do} and continue with resume=True"
    )  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """How much of the output has been written."""

    rows: int = 0
    flagged: int = 0
    position: dict[str, int] | None = None  # where reading continues; None: at the beginning


class ResumableFile:
    """The output of a run."""
    # identity: Everything that determines the answers, as JSON: only a run with the same identity can be continued
    # resume: Continue an unfinished run
    # force: Replace an existing output; discard an unfinished run
    # folder: Folder of the unfinished output
    # safe: Number of finished rows that the journal records
    # raises OutputExists: If the output or an unfinished run exists; the message names the arguments that resolve this.
    # raises JtgpuError: If the output is a folder, its folder does not exist, or there is no space for it.

    def __init__(self, output: Path, writer: Writer, identity: Mapping[str, Any], *, resume: bool, force: bool):
        self.output, self._writer = output, writer
        self.folder = output.with_name(output.name + ".unfinished")
        self._identity = json.loads(json.dumps(identity))
        self._force = force
        self._end = 0
        self.done = Progress()
        self.safe = 0
        self._pending: list[dict[str, Any]] = []  # entries that are not in the journal yet
        self._synced = time.monotonic()
        self._journal: Journal | None = None
        self._data: Any = None
        self._lock = threading.RLock()  # after a second Ctrl-C, two threads may get here
        if output.is_dir():
            raise JtgpuError(f"{output} is a folder")
        if output.exists() and not force:
            raise OutputExists(f"{output} exists; pass force=True to overwrite it")
        try:
            self._open(resume)
        except OSError as error:
            self.close()
            if isinstance(error, JtgpuError) or error.errno not in NO_SPACE:
                raise
            raise no_space(error, str(output), self.saved) from None
        except BaseException:
            self.close()
            raise

    def _open(self, resume: bool) -> None:
        if not self.output.parent.is_dir():
            raise JtgpuError(f"{self.output}: folder {self.output.parent} does not exist")
        self.folder.mkdir(exist_ok=True)
        self._journal = Journal(self.folder / "journal.jsonl")
        entries = self._journal.entries()
        if len(entries) > 1 and not resume and not self._force:
            raise OutputExists(
                f"{self.folder} holds an unfinished run: pass resume=True to continue it or force=True to discard it"
            )
        if resume and entries:
            self._continue(entries)
            return
        self._journal.truncate()
        self._data = (self.folder / "data").open("w+b")
        self._data.write(self._writer.start())
        self._end = self._data.tell()
        self._pending.append({"identity": self._identity, "end": self._end})
        self.sync()

    def _continue(self, entries: list[tuple[dict[str, Any], int]]) -> None:
        """Restore the state that the journal and the disk agree on; may be interrupted without losing anything."""
        (first, valid), *more = entries
        check_same_run(first["identity"], self._identity, str(self.folder))
        data = self.folder / "data"
        self._data = data.open("r+b") if data.exists() else data.open("w+b")
        size = os.fstat(self._data.fileno()).st_size
        self._end = first["end"]
        if size < self._end:  # the folder was modified, or the disk lost it
            self._data.write(self._writer.start())
        for entry, line_end in more:
            if entry["end"] > size:
                break
            valid = line_end
            if entry["end"] > self._end:  # after a full disk the same lines may occur twice
                self._writer.restore(entry["chunk"])
                self.done = Progress(entry["rows"], entry["flagged"], entry["position"])
                self.safe = self.done.rows
                self._end = entry["end"]
        self._data.seek(self._end)
        self._data.truncate()
        assert self._journal is not None
        self._journal.truncate(valid)

    @property
    def saved(self) -> str | None:
        """The cases with which a later run continues, for messages."""
        return f"{self.safe:,} cases are saved in {self.folder}" if self.safe else None

    def encode(self, table: object) -> EncodedChunk:
        """Encode a table for `append`; from any thread, in any order."""
        return self._writer.encode(table)

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk: a table, or what `encode` made of it."""
        # raises OSError: If the disk is full, among others; earlier chunks stay valid.
        chunk = table if isinstance(table, EncodedChunk) else self.encode(table)
        with self._lock:
            pieces, entry = self._writer.place(chunk, self._end)
            try:
                for piece in pieces:
                    self._data.write(piece)
                self._data.flush()
            except OSError:
                self._rollback()
                raise
            self._end += sum(map(len, pieces))
            self.done = Progress(self.done.rows + chunk.n, self.done.flagged + flagged, position)
            self._pending.append(
                {"rows": self.done.rows, "flagged": self.done.flagged, "position": position, "end": self._end,
                 "chunk": entry}
            )  # fmt: skip
            if time.monotonic() - self._synced > SYNC_INTERVAL:
                self.sync()

    def _rollback(self) -> None:
        """Free the space of an incomplete chunk, some of which may still be in the file's buffer."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._data.fileno(), self._end)
        with contextlib.suppress(OSError):
            self._data.close()
        with contextlib.suppress(OSError):
            os.truncate(self.folder / "data", self._end)
        self._data = (self.folder / "data").open("r+b")
        self._data.seek(self._end)

    def sync(self) -> None:
        """Flush the data to the disk and record them in the journal."""
        with self._lock:
            if self._data is None or self._journal is None or not self._pending:
                return
            self._data.flush()
            os.fsync(self._data.fileno())
            self._journal.append(self._pending)
            self._pending.clear()
            self._synced, self.safe = time.monotonic(), self.done.rows

    def finish(self, schema: object) -> None:
        """Complete the file, rename it to the output and delete the folder."""
        self.sync()
        try:
            self._data.write(self._writer.end(schema))
            self._data.flush()
            os.fsync(self._data.fileno())
        except OSError:
            self._rollback()
            raise
        os.replace(self.folder / "data", self.output)
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        flush_folder(str(self.output.parent))

    def close(self) -> None:
        """Keep the folder for a later run, or delete it if it holds no rows; may be called twice."""
        with self._lock:
            if self._data is not None and not self.safe:
                for name in ("data", "journal.jsonl"):
                    (self.folder / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
            if self._data is not None:
                with contextlib.suppress(OSError):
                    self._data.close()
            if self._journal is not None:
                self._journal.close()
            self._data = self._journal = None
