"""The command line: parse options, call one function, print. ``jtgpu --help`` lists the commands.

Results go to stdout, and nothing else does. Progress goes to stderr, by default only on a terminal; warnings and errors
go to stderr. `commands.EXIT_CODES` lists the exit codes.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .commands import app

__all__ = ["app", "main"]


def main() -> None:
    """The console script."""
    exit_on_interrupt()
    open_closed_streams()
    gc.disable()  # imports make no garbage, and looking for it takes a tenth of their time; `console.run` enables it
    completes = "_JTGPU_COMPLETE" in os.environ
    if completes:
        import_module(".shell_request", __name__).join_findings()
    try:
        import_module(".commands", __name__).app(prog_name="jtgpu")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # while help is printed; commands report their own errors
        sys.exit(f"jtgpu: error: {error.strerror or error}")
    except SystemExit as end:
        if not completes:
            raise
        sys.stdout.flush()
        os._exit(int(end.code or 0))  # a user waits at each Tab, and there is nothing to clean up
    finally:
        exit_on_interrupt()  # nothing is left to save


def __getattr__(name: str) -> Any:
    if name == "app":
        return import_module(".commands", __name__).app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# The process of a command: Ctrl-C, also while modules are imported, SIGTERM, and streams that are closed.

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
    """Treat SIGTERM, which batch systems send, like Ctrl-C within the block: what is unfinished is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    process = os.getpid()

    def stop(*_: Any) -> NoReturn:
        if os.getpid() != process:  # a fork, which has nothing to clean up
            os._exit(128 + signal.SIGTERM)
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
