"""A folder of answers, one file per part, that appears when it is complete and that a later run can continue.

Parts are complete files: a worker writes a part under a temporary name and renames it. The name of a part is its
number, and its footer records the run that it belongs to and its rows. A part that two workers answer, because one of
them seemed lost, therefore exists once, and the parts that exist are the progress of an interrupted run. On disks the
folder is called ``OUT.unfinished`` until it is complete. Object storage cannot rename folders: parts are written to the
output, and ``_SUCCESS``, written last, marks it as complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..cases.query import check_same_run
from ..cases.writing import ResumableFile, writer_for
from ..columns.arrow import arrow_parquet
from ..errors import JtgpuError, OutputExists, ParseError
from .parts import TEMPORARY, Part, RowCounts, part_name, read_counts
from .tables import CONCURRENT_READS, locate

SUCCESS = "_SUCCESS"
RUN = "_run.json"
LOCK = "_lock"
TEMPORARY_NAMES = (TEMPORARY, ".jtgpu-")  # of parts, and of `jtgpu.util.atomic_file`
PART = re.compile(r"part-\d{6,}\.parquet")


class Folder:
    """The output of a run on a cluster, in the process that leads the run."""
    # output: Path or URI of the folder
    # identity: Everything that determines the answers, as JSON: only a run with the same identity can be continued
    # resume, force: Continue an unfinished run; replace an existing output
    # single: The output is a single file, which `join` makes of the parts
    # at: Where parts are written
    # run: Digest of the identity, which tells to which run a part belongs
    # settings: Division of the work by an earlier run; empty for a new run
    # raises JtgpuError: If the output or an unfinished run exists; the message names the options that resolve this.

    def __init__(self, output: str, identity: Mapping[str, Any], *, resume: bool, force: bool, single: bool = False):
        self.output = locate(output)
        if single and not self.output.local:
            raise JtgpuError(f"{output}: object storage requires a folder; a single file must be on a disk")
        self.at = self.output.sibling(self.output.name + ".unfinished") if self.output.local else self.output
        self._identity = json.loads(json.dumps(identity))
        self.run = hashlib.sha256(json.dumps(self._identity, sort_keys=True).encode()).hexdigest()[:32]
        self._lock: int | None = None
        self._begun = False
        self._force = force
        before = self._earlier_run(output, resume, single)
        self._is_new = before is None
        self.settings: dict[str, Any] = (before or {}).get("settled", {})

    def _earlier_run(self, output: str, resume: bool, single: bool) -> dict[str, Any] | None:
        """The record of the run to continue; raises for everything that is in the way of a new one."""
        existing = self.output.kind()
        if existing and existing != ("file" if single else "folder"):
            raise JtgpuError(f"{output} is a {existing}")
        complete = existing and (self.output.local or self.output.child(SUCCESS).kind())
        if complete and not self._force:
            raise OutputExists(f"{output} exists; pass force=True to overwrite it")
        before = self._read_record() if not complete or self.output.local else None
        if before is not None and not resume and not self._force:
            raise OutputExists(
                f"{self.at.uri} holds an unfinished run: pass resume=True to continue it or force=True to discard it"
            )
        if before is not None and resume:
            check_same_run(before["identity"], self._identity, self.at.uri)
            return before
        if not self.output.local and existing and not self._force and self.at.names():
            raise OutputExists(f"{output} is not empty; pass force=True to overwrite it")
        return None

    def _read_record(self) -> dict[str, Any] | None:
        """The record of an earlier run."""
        record = self.at.child(RUN)
        if not record.kind():
            return None
        try:
            content = json.loads(record.read())
            return {"identity": dict(content["identity"]), "settled": dict(content["settled"])}
        except (ValueError, KeyError, TypeError):
            raise JtgpuError(f"{record.uri} does not describe a run; pass force=True to discard it") from None

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Lock the folder and record what a later run needs to continue."""
        # raises JtgpuError: If another run is writing there.
        self.at.make_folder()
        self._acquire_lock()
        self._begun = True
        if self._is_new:
            for name in self.at.names():
                if name != LOCK:
                    self.at.child(name).remove()
        self._delete_temporary()
        self.settings = dict(settings)
        record = {"identity": self._identity, "settled": self.settings}
        self.at.child(RUN).write(json.dumps(record, indent=1).encode())

    def _acquire_lock(self) -> None:
        if not self.at.local:  # object storage has no locks
            return
        self._lock = os.open(Path(self.at.path, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise JtgpuError(f"{self.at.uri}: another run is writing there") from None

    def _delete_temporary(self) -> None:
        """Delete incomplete files of workers that no longer run."""
        for name in self.at.names():
            if name.startswith(TEMPORARY_NAMES):
                with suppress(OSError):
                    self.at.child(name).remove()

    def finished_parts(self) -> dict[int, RowCounts]:
        """Row counts of the parts of this run, by number; parts of other runs are deleted."""
        names = [n for n in self.at.names() if PART.fullmatch(n)]
        with ThreadPoolExecutor(CONCURRENT_READS) as pool:
            counts = list(pool.map(lambda n: read_counts(self.at.child(n), self.run), names))
        finished: dict[int, RowCounts] = {}
        for name, count in zip(names, counts, strict=True):
            if count is None:
                self.at.child(name).remove()
            else:
                finished[int(name[5:-8])] = count
        return finished

    def finish(self, parts: Sequence[Part]) -> RowCounts:
        """Check that every part exists and nothing else does, and rename the folder to the output."""
        # returns Of all parts.
        # raises ParseError: If a part does not have the expected number of rows.
        # raises JtgpuError: If a part is missing.
        total = self._check(parts)
        self._delete_temporary()
        record = {"run": self.run, "rows": total.rows, "flagged": total.flagged, "parts": len(parts)}
        self.at.child(SUCCESS).write(json.dumps(record, indent=1).encode())
        if self.output.local:
            target = Path(self.output.path)
            if target.is_dir() and self._force:
                shutil.rmtree(target)
            Path(self.at.path).rename(target)
            with suppress(OSError):
                (target / LOCK).unlink()
        self.close()
        return total

    def join(self, parts: Sequence[Part], schema: Any, compression: str | None, escape: bool = False) -> RowCounts:
        """Concatenate the parts into a single file and delete the folder; see `finish` and `writer_for`."""
        total = self._check(parts)
        output = Path(self.output.path)
        identity = {"run": self.run, "compression": compression}
        file = ResumableFile(output, writer_for(output, compression, escape), identity, resume=True, force=self._force)
        try:
            for part in parts[file.done.position["part"] + 1 if file.done.position else 0 :]:
                path = self.at.child(part_name(part.number)).path
                table = arrow_parquet().read_table(path, schema=schema, memory_map=True)
                file.append(table, {"part": part.number}, 0)
            file.finish(schema)
        finally:
            file.close()
            self.close()
        return total

    def _check(self, parts: Sequence[Part]) -> RowCounts:
        finished = self.finished_parts()
        missing = sorted({p.number for p in parts} - set(finished))
        if missing:
            raise JtgpuError(f"{self.at.uri}: {part_name(missing[0])} is missing; continue with resume=True")
        for number in set(finished) - {p.number for p in parts}:
            self.at.child(part_name(number)).remove()
        counts = [finished[p.number] for p in parts]
        for part, count in zip(parts, counts, strict=True):
            if part.rows not in (-1, count.rows):
                raise ParseError(f"{part_name(part.number)} has {count.rows} rows instead of {part.rows}", part.file)
        return RowCounts(sum(c.rows for c in counts), sum(c.flagged for c in counts))

    def close(self) -> None:
        """Keep the folder for a later run, or delete it if it holds no part; may be called twice."""
        if self._begun:
            self._begun = False
            with suppress(OSError):
                self._delete_if_empty()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _delete_if_empty(self) -> None:
        """Delete a run without parts, which failed in the first row, say, and must not be in the way of the next."""
        if not {*self.at.names()} <= {LOCK, RUN}:
            return
        self.at.child(RUN).remove()
        if self.at.local:
            Path(self.at.path, LOCK).unlink()
            Path(self.at.path).rmdir()
