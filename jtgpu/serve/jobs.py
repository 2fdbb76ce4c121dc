"""Jobs: tables that are answered while their clients wait elsewhere. Their state is in files, for all workers."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..util.atomic_file import write_text
from .requests import Refusal

FINISHED = ("done", "failed", "cancelled")
MOST = 100  # jobs
AGE = 3600.0  # seconds after which a finished job is removed
INTERVAL = 0.2  # seconds between reports of progress
PREFIX = "jtgpu-serve-"
_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")


class Cancelled(Exception):
    """The client has cancelled the job, or the server stops."""


class Job:
    """A table, its answer, and the state of the computation, in a folder."""

    def __init__(self, folder: Path):
        self.id, self.folder = folder.name, folder
        self.cases = folder / "cases"
        self._state: dict[str, Any] = {}
        self._reported = 0.0

    def output(self, suffix: str) -> Path:
        """The file of the answers."""
        return self.folder / f"answers.{suffix}"

    def read(self) -> dict[str, Any] | None:
        """The state; None for a job that has been removed."""
        try:
            state: dict[str, Any] = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return state

    def write(self, **changes: Any) -> None:
        """Change the state."""
        self._state.update(changes)
        if self._state["state"] == "done":
            self._state["url"] = f"/v1/jobs/{self.id}/file"
        with suppress(OSError):  # the folder has been removed
            write_text(self.folder / "state.json", json.dumps(self._state), durable=False)

    def progress(self, cases: int, read: Any, total: Any) -> None:
        """Report progress; raises `Cancelled` if the job has been cancelled."""
        now = time.monotonic()
        if now - self._reported >= INTERVAL:
            self._reported = now
            if self.is_cancelled:
                raise Cancelled
            self.write(done=int(cases), read=int(read), total=int(total))

    @property
    def is_cancelled(self) -> bool:
        """Whether the job is to end."""
        return (self.folder / "cancel").exists() or not self.folder.exists()

    def cancel(self) -> None:
        """End the job soon."""
        with suppress(OSError):
            (self.folder / "cancel").touch()

    def remove(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder, ignore_errors=True)


class JobFolder:
    """The folder of all jobs."""
    # folder: An existing folder that several workers share. Default: a private one, removed by `close`, and at the
    #     start of another server if this process dies.

    def __init__(self, folder: str = ""):
        sweep()
        self._folder = Path(folder) if folder else None
        self._is_own = not folder
        self._jobs: list[Job] = []

    @property
    def path(self) -> Path:
        """The folder, made on first use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        return self._folder

    def new(self, network: str) -> Job:
        """Create a job."""
        # raises Refusal: If there are too many.
        self._remove_old()
        if sum(1 for _ in self.path.iterdir()) >= MOST:
            raise Refusal("busy", f"{MOST} tables are waiting or have not been fetched; try again later")
        folder = self.path / secrets.token_urlsafe(16)
        folder.mkdir(mode=0o700)
        job = Job(folder)
        job.write(
            job=job.id, network=network, state="waiting", done=0, read=0, total=0, url=None, report=None, error=None,
            format="csv",
        )  # fmt: skip
        self._jobs.append(job)
        return job

    def find(self, name: str) -> Job | None:
        """The job of a name."""
        if not _ID.match(name) or self._folder is None:
            return None
        folder = self.path / name
        return Job(folder) if folder.is_dir() else None

    def cancel_all(self) -> None:
        """End the jobs of this process."""
        for job in self._jobs:
            job.cancel()

    def _remove_old(self) -> None:
        now = time.time()
        self._jobs = [job for job in self._jobs if job.folder.exists()]
        for folder in self.path.iterdir():
            job = Job(folder)
            state = job.read()
            with suppress(OSError):
                if state and state["state"] in FINISHED and now - (folder / "state.json").stat().st_mtime > AGE:
                    job.remove()

    def close(self) -> None:
        """Remove the folder."""
        if self._is_own and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def sweep() -> None:
    """Remove the folders of servers that died: those of tables, of workers, and of networks that were opened."""
    for folder in Path(tempfile.gettempdir()).glob("jtgpu-*-*-*"):
        kind, _, rest = folder.name.removeprefix("jtgpu-").partition("-")
        owner = rest.partition("-")[0] if kind in ("serve", "open") else ""
        with suppress(OSError):
            if owner.isdigit() and folder.stat().st_uid == os.getuid() and not _is_alive(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
