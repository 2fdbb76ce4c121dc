"""Progress on stderr: a status line on a terminal, or one line per step if ``--progress`` requests it elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..util.text_table import printable
from .console import print_stderr

DELAY = 0.3  # seconds before the line appears: quick commands show none
INTERVAL = 0.1
_FRAMES = "|/-\\"


def is_shown(wanted: bool | None) -> bool:
    """Whether to show progress: as ``--progress`` says; by default if stderr is a terminal."""
    return _on_terminal() if wanted is None else wanted


@contextmanager
def status(text: str, wanted: bool | None = None) -> Iterator[Callable[[str], None]]:
    """Show what a command is doing, and for how long."""
    # text: The first step
    # wanted: ``--progress`` or ``--no-progress``. Default: if stderr is a terminal.
    # yields Takes the text of the next step.
    if not is_shown(wanted):
        yield lambda _: None
        return
    if not _on_terminal():
        print_stderr(text)
        yield print_stderr
        return
    line = _StatusLine(text)
    try:
        yield line.update
    finally:
        line.close()


class _StatusLine:
    """A line at the bottom of a terminal, which a thread redraws."""

    def __init__(self, text: str):
        self._text = text
        self._begun = time.monotonic()
        self._stopped = threading.Event()
        self._drawn = False
        self._thread = threading.Thread(target=self._run, name="jtgpu-status", daemon=True)
        self._thread.start()

    def update(self, text: str) -> None:
        """Set the text."""
        self._text = text

    def close(self) -> None:
        """Erase the line."""
        self._stopped.set()
        self._thread.join()
        if self._drawn:
            self._write("\r\x1b[K")

    def _run(self) -> None:
        wait, i = DELAY, 0
        while not self._stopped.wait(wait):
            seconds = time.monotonic() - self._begun
            text = f"{_FRAMES[i % len(_FRAMES)]} {printable(self._text)} ({seconds:.0f} s)"
            self._write("\r\x1b[K" + text[: max(10, shutil.get_terminal_size().columns - 1)])
            self._drawn, wait, i = True, INTERVAL, i + 1

    @staticmethod
    def _write(text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
