"""The process of a command: Ctrl-C before the command runs, and streams that are closed.

Imports nothing heavy, since it is at work while the rest is imported.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

INTERRUPTED = 130  # 128 + SIGINT, as shells count


def exit_on_interrupt() -> None:
    """End the process with one line on Ctrl-C; while modules are imported an exception could be lost or wrapped.

    Does nothing where Ctrl-C is ignored, as in the background of a shell, or handled otherwise.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_on_interrupt() -> None:
    """Raise `KeyboardInterrupt` on Ctrl-C from now on: a command saves its work and cleans up."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM, which batch systems send, like Ctrl-C within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def open_closed_streams() -> None:
    """Open the null device for every standard stream that is closed, so that no file takes its number.

    Writing to a closed stdout is an error; what goes to a closed stderr is lost.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


class _Closed(io.TextIOBase):
    """A stdout that is closed: the first text written is an error."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Raise `OSError`."""
        raise OSError(errno.EBADF, "stdout is closed")

    def writable(self) -> bool:
        """Return true: the error comes with the text."""
        return True

    def fileno(self) -> int:
        """Return the number of stdout."""
        return 1


def _exit(*_: Any) -> NoReturn:
    with suppress(OSError):
        os.write(2, b"jtgpu: interrupted\n")
    os._exit(INTERRUPTED)
