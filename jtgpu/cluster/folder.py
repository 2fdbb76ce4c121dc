"""A folder of answers, a file a part: whole or absent, and a part that is there is whole.

A worker writes a part under a name that nobody looks at and then gives it its own, in one step; the part's number is
its name, and its footer says which run it belongs to and how many rows it has. So a part that two workers answer, for
one of them seemed lost, is there once, and what a stopped run has done is what lies there. The folder is called
``OUT.unfinished`` and gets the output's name at the end; object storage cannot rename folders, so there the parts lie
where they belong, and ``_SUCCESS``, written last, says that all are there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..cases.arrow import arrow, arrow_parquet
from ..cases.output import Unfinished, writer_for
from ..errors import JtgpuError, ParseError
from .parts import LOOKING, Part
from .storage import Place, locate

__all__ = ["SUCCESS", "Folder", "PartWriter", "part_name"]

SUCCESS = "_SUCCESS"
RUN = "_run.json"
LOCK = "_lock"
TEMPORARY = "_tmp-"
KEY = b"jtgpu"  # of a part's footer
IS_PART = re.compile(r"part-\d{6,}\.parquet")

Count = tuple[int, int]  # rows, and those of them that have no answer


def part_name(number: int) -> str:
    """A part's file, so that the order of the names is that of the rows."""
    return f"part-{number:06d}.parquet"


class PartWriter:
    """A part that is being written, by a worker: a sink of `jtgpu.cases.pipeline.run_chunks`.

    Parameters
    ----------
    folder : str
        Path or URI.
    number : int
    run : str
        Of `Folder.run`.
    schema : Arrow schema
    compression : str
    """

    def __init__(self, folder: str, number: int, run: str, schema: Any, compression: str):
        self.rows = self.flagged = 0
        self._run = run
        at = locate(folder)
        self._final = at.child(part_name(number))
        self._part = at.child(f"{TEMPORARY}{part_name(number)}-{uuid.uuid4().hex[:12]}")
        types = arrow().types
        text = [f.name for f in schema if not types.is_floating(f.type)]
        self._file = self._part.fs.open_output_stream(self._part.path)
        self._writer: Any = None
        try:
            self._writer = arrow_parquet().ParquetWriter(
                self._file, schema, compression=compression, use_dictionary=text
            )
        except BaseException:
            self.discard()
            raise

    def append(self, table: Any, position: dict[str, int], flagged: int) -> None:
        """Write a chunk, as a row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows
        self.flagged += flagged

    def finish(self) -> None:
        """Give the part its name; from now on it is there."""
        what = {"run": self._run, "rows": self.rows, "flagged": self.flagged}
        self._writer.add_key_value_metadata({KEY: json.dumps(what).encode()})
        self._writer.close()
        self._file.close()
        self._part.publish(self._final)

    def discard(self) -> None:
        """Leave nothing behind."""
        for opened in (self._writer, self._file):
            with suppress(Exception):  # on a full disk closing fails as well; the file goes all the same
                opened.close()
        with suppress(Exception):
            self._part.remove()


class Folder:
    """The output of a run on a cluster, as the process that leads it sees it.

    Parameters
    ----------
    output : str
        Path or URI of the folder.
    identity : mapping
        What the answers depend on, as JSON: a run goes on only with the same.
    resume, force : bool
        Go on with what is there; replace it.
    single : bool
        The output is to be one file, which `join` makes of the parts.

    Attributes
    ----------
    at : Place
        Where parts are written.
    run : str
        Digest of the identity: which run a part belongs to.
    settled : dict
        How an earlier run that goes on had divided the work; empty for a new one.

    Raises
    ------
    JtgpuError
        Where something is in the way, saying what and how to go on.
    """

    def __init__(
        self, output: str, identity: Mapping[str, Any], *, resume: bool, force: bool, single: bool = False
    ):
        self.output = locate(output)
        if single and not self.output.local:
            raise JtgpuError(f"{output}: one file is written to a disk; to object storage a folder is")
        self.at = self.output.sibling(self.output.name + ".unfinished") if self.output.local else self.output
        self._identity = json.loads(json.dumps(identity))
        self.run = hashlib.sha256(json.dumps(self._identity, sort_keys=True).encode()).hexdigest()[:32]
        self._lock: int | None = None
        self._begun = False
        self._force = force
        there = self.output.kind()
        if there and there != ("file" if single else "folder"):
            raise JtgpuError(f"{output} is a {there}")
        whole = there and (self.output.local or self.output.child(SUCCESS).kind())
        if whole and not force:
            raise JtgpuError(f"{output} is there already; --force writes over it")
        before = self._before() if not whole or self.output.local else None
        if before is not None and not resume and not force:
            raise JtgpuError(f"{self.at.uri} holds an unfinished run: --resume goes on with it, --force begins anew")
        if before is None or not resume:
            before = None
            if not self.output.local and there and not force and self.at.names():
                raise JtgpuError(f"{output} is not empty; --force writes over it")
        else:
            _same(before["identity"], self._identity, self.at.uri)
        self._new = before is None
        self.settled: dict[str, Any] = (before or {}).get("settled", {})

    def _before(self) -> dict[str, Any] | None:
        """What an earlier run says of itself."""
        note = self.at.child(RUN)
        if not note.kind():
            return None
        try:
            found = json.loads(note.read())
            return {"identity": dict(found["identity"]), "settled": dict(found["settled"])}
        except (ValueError, KeyError, TypeError):
            raise JtgpuError(f"{note.uri} says nothing of a run; --force begins anew") from None

    def _hold(self) -> None:
        """One run at a time, where that can be had: object storage knows no locks."""
        if not self.at.local:
            return
        self._lock = os.open(Path(self.at.path, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise JtgpuError(f"{self.at.uri}: another run is writing there") from None

    def _clear(self) -> None:
        for name in self.at.names():
            if name != LOCK:
                self.at.child(name).remove()

    def begin(self, settled: Mapping[str, Any]) -> None:
        """Take the folder, and write down what a later run needs to go on.

        Raises
        ------
        JtgpuError
            Where another run is writing there.
        """
        self.at.make()
        self._hold()
        self._begun = True
        if self._new:
            self._clear()
        self._tidy()
        self.settled = dict(settled)
        note = {"identity": self._identity, "settled": self.settled}
        self.at.child(RUN).write(json.dumps(note, indent=1).encode())

    def _tidy(self) -> None:
        """Remove what workers that are no more have left half-written."""
        for name in self.at.names():
            if name.startswith(TEMPORARY):
                with suppress(OSError):
                    self.at.child(name).remove()

    def there(self) -> dict[int, Count]:
        """Rows of the parts of this run that lie there, by number; what belongs to no run of this kind is removed."""
        names = [n for n in self.at.names() if IS_PART.fullmatch(n)]
        with ThreadPoolExecutor(LOOKING) as pool:
            counts = list(pool.map(lambda n: self._count(self.at.child(n)), names))
        found: dict[int, Count] = {}
        for name, count in zip(names, counts, strict=True):
            if count is None:
                self.at.child(name).remove()
            else:
                found[int(name[5:-8])] = count
        return found

    def _count(self, part: Place) -> Count | None:
        try:
            with part.fs.open_input_file(part.path) as file:
                data = arrow_parquet().read_metadata(file).metadata or {}
            what = json.loads(data[KEY])
            return (int(what["rows"]), int(what["flagged"])) if what["run"] == self.run else None
        except (arrow().ArrowInvalid, KeyError, ValueError, TypeError):
            return None

    def finish(self, parts: Sequence[Part]) -> Count:
        """Make sure that every part is there once and nothing else is, and give the folder its name.

        Returns
        -------
        (int, int)
            Rows, and those of them that have no answer.

        Raises
        ------
        ParseError
            Where a part has not the rows that it should have.
        JtgpuError
            Where parts are gone.
        """
        rows, flagged = self.check(parts)
        self._tidy()
        done = {"run": self.run, "rows": rows, "flagged": flagged, "parts": len(parts)}
        self.at.child(SUCCESS).write(json.dumps(done, indent=1).encode())
        if self.output.local:
            self._rename()
        self.close()
        return rows, flagged

    def check(self, parts: Sequence[Part]) -> Count:
        """Make sure of the parts; see `finish`."""
        there = self.there()
        missing = sorted({p.number for p in parts} - set(there))
        if missing:
            raise JtgpuError(f"{self.at.uri}: {part_name(missing[0])} is not there any more; go on with --resume")
        for number in set(there) - {p.number for p in parts}:
            self.at.child(part_name(number)).remove()
        counts = [there[p.number] for p in parts]
        for part, (rows, _) in zip(parts, counts, strict=True):
            if part.rows not in (-1, rows):
                raise ParseError(f"{part_name(part.number)} has {rows} rows of {part.rows}", part.file)
        return sum(n for n, _ in counts), sum(n for _, n in counts)

    def join(self, parts: Sequence[Part], schema: Any, compression: str | None) -> Count:
        """The parts one behind the other in one file, by the writer of such files; the folder goes."""
        rows, flagged = self.check(parts)
        output = Path(self.output.path)
        identity = {"run": self.run, "compression": compression}
        whole = Unfinished(output, writer_for(output, compression), identity, resume=True, force=self._force)
        try:
            for part in parts[whole.done.position["part"] + 1 if whole.done.position else 0 :]:
                path = self.at.child(part_name(part.number)).path
                table = arrow_parquet().read_table(path, schema=schema, memory_map=True)
                whole.append(table, {"part": part.number}, 0)
            whole.finish(schema)
        finally:
            whole.close()
            self.close()
        return rows, flagged

    def _rename(self) -> None:
        target = Path(self.output.path)
        if target.is_dir() and self._force:
            shutil.rmtree(target)
        Path(self.at.path).rename(target)
        with suppress(OSError):
            (target / LOCK).unlink()

    def close(self) -> None:
        """Leave the folder as it is, or take it away where no part was begun; may be called twice."""
        if self._begun:
            self._begun = False
            with suppress(OSError):
                self._leave_nothing()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


    def _leave_nothing(self) -> None:
        """A run that did nothing, for a first row with an unknown state, say, shall not be in the way of the next."""
        if not {*self.at.names()} <= {LOCK, RUN}:
            return
        self.at.child(RUN).remove()
        if self.at.local:
            Path(self.at.path, LOCK).unlink()
            Path(self.at.path).rmdir()


def _same(was: Mapping[str, Any], now: Mapping[str, Any], folder: str) -> None:
    for key in dict.fromkeys((*was, *now)):
        one, other = (json.dumps(x.get(key)) for x in (was, now))
        if one != other:
            shown = ", now ".join(t if len(t) <= 60 else t[:57] + "..." for t in (one, other))
            raise JtgpuError(f"{folder} holds a run with another {key} ({shown}); --force begins anew")
