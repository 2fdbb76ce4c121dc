"""Tables on stdout: aligned text on a terminal, tab-separated values in a pipe or a file."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from ..util.terminal_table import Cell, TableStyle, folded, format_number, format_table
from ..util.text_table import DIGITS, printable
from ..util.text_table import printable as shown
from .console import print_stderr

MIN_WIDTH = 40  # narrower terminals wrap the lines themselves


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def print_rows(
    header: Sequence[str], rows: Iterable[Iterable[Any]], *, digits: int | None = None, bars: bool = False,
    named: bool = True,
) -> None:  # fmt: skip
    """Print results: a table on a terminal, tab-separated values elsewhere."""
    # rows: Strings, numbers, None: empty, and what is printed as text
    # digits: Significant digits. Default: 6 on a terminal; elsewhere as many as identify the number.
    # bars: On a terminal, draw the last number of each row as a bar
    # named: Print the header
    cells = [["" if x is None else x if isinstance(x, str | int | float) else str(x) for x in row] for row in rows]
    if on_terminal():
        _print_lines(header, cells, _style(digits or DIGITS, bars=bars, header=named))
        return
    for row in [header, *cells] if named else cells:
        print("\t".join(shown(x) if isinstance(x, str) else show_number(x, digits) for x in row))


def print_report(header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "", *, named: bool = True) -> None:
    """Print a table that is for people: aligned text everywhere. Programs use ``--json``."""
    # align: One letter per column, ``l`` or ``r``
    # named: Print the header
    style = _style(DIGITS, header=named, align=align) if on_terminal() else TableStyle(header=named, align=align)
    _print_lines(header, rows, style)


def print_note(text: str) -> None:
    """Print what belongs to a table, such as its title: folded on a terminal, elsewhere after number signs."""
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns) if on_terminal() else None
    for line in text.split("\n"):
        print(f"# {line}" if width is None else "\n".join(folded(line, width)), flush=True)


def show_number(x: float, digits: int | None = None) -> str:
    """A number as commands print it; see `print_rows`."""
    if isinstance(x, int):
        return str(x)
    if digits is None and not on_terminal():
        return repr(float(x))
    return format_number(float(x), digits or DIGITS)


def bold(text: str) -> str:
    """Text in bold on a terminal; unprintable characters are escaped."""
    text = shown(text)
    return f"\x1b[1m{text}\x1b[0m" if on_terminal() and _has_colours() else text


def _print_lines(header: Sequence[str], rows: Sequence[Sequence[Cell]], style: TableStyle) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in format_table(header, rows, style)))


def _style(digits: int, *, bars: bool = False, header: bool = True, align: str = "") -> TableStyle:
    """The style for the terminal that stdout is."""
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns)
    style = TableStyle(digits, width, bars, header, align, _has_blocks())
    if not _has_colours():
        return style
    return replace(style, emphasis="\x1b[1m{}\x1b[0m".format, accent="\x1b[36m{}\x1b[0m".format)


def _has_colours() -> bool:
    """Whether to write escape sequences: see https://no-color.org."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def _has_blocks() -> bool:
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


# Progress on stderr: a status line on a terminal, or one line per step if ``--progress`` requests it elsewhere.

DELAY = 0.3  # seconds before the line appears: quick commands show none
INTERVAL = 0.1
_FRAMES = "|/-\\"


def is_shown(wanted: Any) -> bool:
    """Whether to show progress: as ``--progress`` says; by default if stderr is a terminal."""
    return _on_terminal() if wanted is None else bool(wanted)


@contextmanager
def status(text: str, wanted: Any = None) -> Iterator[Callable[[str], None]]:
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
