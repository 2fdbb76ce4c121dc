"""A journal: one JSON object per line, on disk before the call returns, readable after a crash at any moment."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...errors import JtgpuError


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
