"""What every command shares: stdout and stderr, exit codes, and how things are written for people."""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import EvidenceError, FormatError, ImpossibleEvidence, JtgpuError, OrderError, ParseError, TableTooLarge

__all__ = [
    "cell",
    "exit_code",
    "format_seconds",
    "guarded",
    "print_error",
    "print_json",
    "print_table",
    "shown",
    "status",
    "stdout",
    "warn",
]

OK, ERROR, USAGE, TOO_LARGE, IMPOSSIBLE, UNREADABLE = range(6)
INTERRUPTED = 130  # 128 + SIGINT, as shells count
CLOSED_PIPE = 141  # 128 + SIGPIPE: what `cat` ends with when nobody reads on

PLAIN_WIDTH = 200  # characters a line where stdout is no terminal: nothing is cut or wrapped
LEAST_WIDTH = 100  # on narrower terminals the terminal wraps, which keeps every digit

P = ParamSpec("P")
R = TypeVar("R")


def exit_code(error: BaseException) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, (TableTooLarge, MemoryError)):
        return TOO_LARGE
    if isinstance(error, ImpossibleEvidence):
        return IMPOSSIBLE
    if isinstance(error, (ParseError, FormatError)):
        return UNREADABLE
    # an OSError among ours is a file that the caller named and that cannot be opened
    if isinstance(error, (EvidenceError, OrderError)) or (isinstance(error, JtgpuError) and isinstance(error, OSError)):
        return USAGE
    return ERROR


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """A command whose errors end in one line on stderr and an exit code, never in a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # names of variables may hold what the terminal's encoding does not have
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()
            return result
        except (JtgpuError, MemoryError) as error:
            print_error(error)
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            _print_stderr("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except SystemError as error:
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            _print_stderr("interrupted")  # inside Python that Numba's C calls
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            _end_on(error)

    return run


def _end_on(error: OSError) -> NoReturn:
    if error.errno != errno.EPIPE:
        print_error(error)
        code = ERROR
    else:
        code = CLOSED_PIPE
    # Python flushes stdout once more when it ends, and would complain again
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(code) from None


def print_error(error: BaseException) -> None:
    """One line on stderr."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = f"out of memory{f' ({text})' if text else ''}; try a memory_limit below what is free"
    _print_stderr(f"error: {text or type(error).__name__}")


def warn(text: str) -> None:
    """A warning, one line on stderr."""
    _print_stderr(f"warning: {text}")


def _print_stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # stderr is closed or full: there is nobody left to tell
        print("jtgpu: " + "\n".join(shown(line) for line in text.splitlines()), file=sys.stderr, flush=True)


def shown(text: str) -> str:
    """Text that a terminal shows and does not obey: what is not printable is written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def cell(text: str, style: str = "") -> Text:
    """Foreign text for a table: no markup in it is read."""
    return Text(shown(text), style=style)


def stdout() -> Console:
    """A console on stdout as it is now; tables come out whole whatever the width."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        return console if console.width >= LEAST_WIDTH else Console(highlight=False, width=LEAST_WIDTH)
    return Console(file=sys.stdout, highlight=False, width=PLAIN_WIDTH, no_color=True)


def print_table(table: Table) -> None:
    """A table on stdout, without the blanks that fill its last column."""
    console = stdout()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as text:
        console.print(table)
    print("\n".join(line.rstrip() for line in text.get().splitlines()))


def print_json(value: Any) -> None:
    """JSON on stdout: ASCII, so that any terminal and any file takes it; never NaN."""
    print(json.dumps(value, indent=2, allow_nan=False))


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is done now; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status(Text(shown(text))) as line:
        yield lambda now: line.update(Text(shown(now)))


def format_seconds(seconds: float) -> str:
    """Three digits and a unit: ``"1.23 ms"``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} us"


def _three_digits(x: float) -> str:
    return f"{x:.2f}" if x < 9.995 else f"{x:.1f}" if x < 99.95 else f"{x:.0f}"
