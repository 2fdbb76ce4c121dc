"""Output that all commands share: stdout and stderr, exit codes, tables and units."""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import EvidenceError, FormatError, ImpossibleEvidence, JtgpuError, OrderError, ParseError, TableTooLarge
from .option_groups import expand_groups

__all__ = [
    "cell",
    "command",
    "exit_code",
    "format_seconds",
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
CLOSED_PIPE = 141  # 128 + SIGPIPE, the exit code of `cat` when its reader goes away

PLAIN_WIDTH = 200  # characters per line if stdout is not a terminal, so that no cell is truncated or wrapped
MIN_WIDTH = 100  # narrower terminals wrap the lines themselves, which preserves every digit

R = TypeVar("R")


def exit_code(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, (TableTooLarge, MemoryError)):
        return TOO_LARGE
    if isinstance(error, ImpossibleEvidence):
        return IMPOSSIBLE
    if isinstance(error, (ParseError, FormatError)):
        return UNREADABLE
    # a JtgpuError that is also an OSError: a file named on the command line cannot be opened
    if isinstance(error, (EvidenceError, OrderError)) or (isinstance(error, JtgpuError) and isinstance(error, OSError)):
        return USAGE
    return ERROR


def command(function: Callable[..., R]) -> Callable[..., R]:
    """A Typer command: option groups are expanded, and errors end in one line on stderr and an exit code."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> R:
        # names of variables may contain characters that the terminal's encoding cannot represent
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            result = function(*args, **options)
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
            _print_stderr("interrupted")  # inside Python code that Numba calls from C
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            _exit_after(error)

    return expand_groups(run)


def _exit_after(error: OSError) -> NoReturn:
    """End the command after an error of the operating system, silently after a closed pipe."""
    if error.errno != errno.EPIPE:
        print_error(error)
        code = ERROR
    else:
        code = CLOSED_PIPE
    # the interpreter flushes stdout again at exit and would report the error a second time
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(code) from None


def print_error(error: BaseException) -> None:
    """Print an error as one line on stderr."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = f"out of memory{f' ({text})' if text else ''}; try a memory_limit below the free memory"
    _print_stderr(f"error: {text or type(error).__name__}")


def warn(text: str) -> None:
    """Print a warning as one line on stderr."""
    _print_stderr(f"warning: {text}")


def _print_stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # stderr is closed or full
        print("jtgpu: " + "\n".join(shown(line) for line in text.splitlines()), file=sys.stderr, flush=True)


def shown(text: str) -> str:
    """Text that is safe to print on a terminal: unprintable characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def cell(text: str, style: str = "") -> Text:
    """Text from a file as a table cell: markup in it is not interpreted."""
    return Text(shown(text), style=style)


def stdout() -> Console:
    """A console on the current stdout, wide enough that no table is truncated."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        return console if console.width >= MIN_WIDTH else Console(highlight=False, width=MIN_WIDTH)
    return Console(file=sys.stdout, highlight=False, width=PLAIN_WIDTH, no_color=True)


def print_table(table: Table) -> None:
    """Print a table on stdout, without trailing blanks."""
    console = stdout()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as text:
        console.print(table)
    print("\n".join(line.rstrip() for line in text.get().splitlines()))


def print_json(value: Any) -> None:
    """Print JSON on stdout, in ASCII and without NaN."""
    print(json.dumps(value, indent=2, allow_nan=False))


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Show a status line on stderr, if that is a terminal; yields the function that sets its text."""
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
