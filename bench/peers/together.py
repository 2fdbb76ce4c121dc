"""Peers on one card: all compile at once on the cores there are, then each is timed with the card to itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PEER = Path(__file__).resolve().parent / "einsum_peer.py"
TIMING_SECONDS = 60.0  # after which a peer that was ready has not answered


@dataclass(frozen=True)
class Job:
    """One peer on one network, one case at a time or a table of cases."""

    network: str
    path: Path
    order: Any
    engine: str
    batch: int = 0  # 0: single cases
    cells: int = 0  # see einsum_peer.py

    @property
    def row(self) -> dict[str, Any]:
        """What every row of it says."""
        return {"network": self.network, "peer": self.engine, "batch": self.batch}

    def command(self) -> list[str]:
        """As a process."""
        words = [sys.executable, str(PEER), str(self.path), str(self.order), "--engine", self.engine, "--wait"]
        return [*words, "--batch", str(self.batch), "--cells", str(self.cells)]


class _Waiting:
    """A process that compiles, and what it said."""

    def __init__(self, job: Job, until: float):
        self.job = job
        self.failed = ""
        self._requested = time.monotonic()
        if self._requested > until:
            self.failed = "not begun: the others took the time there was"
            return
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the process has ended
        environment = {**os.environ, "PYTHONHASHSEED": "0"}  # opt_einsum goes through sets
        self._process = subprocess.Popen(
            job.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        said = self._line(until - self._requested)
        if said is None:
            seconds = time.monotonic() - self._requested
            self.failed = f"did not compile in {seconds:.0f} s, others compiled at the same time"
        elif said != "ready":
            self.failed = said or self._last_error()
        if self.failed:
            self._end()

    def _line(self, seconds: float) -> str | None:
        """Its next line; None where it takes longer, which ends it."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        timer.cancel()
        return None if late.is_set() else said

    def _last_error(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = [x.strip() for x in self._errors.read().splitlines() if x.strip()]
        named = [x for x in lines if "Error" in x or "RESOURCE_EXHAUSTED" in x]
        return ([*lines, *named] or ["ended without a word"])[-1][:200]

    def time(self) -> dict[str, Any]:
        """Its row, measured now."""
        if self.failed:
            return self.job.row | {"failed": self.failed}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("now\n")
            self._process.stdin.flush()
            said = self._line(TIMING_SECONDS)
        except OSError:
            said = ""
        row = self.job.row | (json.loads(said) if said else {"failed": self._last_error()})
        self._end()
        return row

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


def together(jobs: Sequence[Job], seconds: float, at_once: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of peers, in the order of the jobs.

    A compiler may use several cores, so that many at once take longer each. A peer that is not ready when the time is
    over is stopped, and its row reports it.

    Parameters
    ----------
    jobs : sequence of Job
        The most wanted first; of equals, those that compile longest.
    seconds : float
        For all compiling together. The timing that follows takes about a second a job.
    at_once : int, optional
        How many compile at the same time; default: a core each.
    """
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(at_once or os.cpu_count()) as pool:
        waiting = list(pool.map(lambda job: _Waiting(job, until), jobs))
    for each in waiting:
        yield each.time()
