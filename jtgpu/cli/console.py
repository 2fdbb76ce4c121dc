"""Output that all commands share: stdout and stderr, exit codes and units."""

from __future__ import annotations

import csv
import errno
import gc
import io
import json
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from io import TextIOWrapper
from typing import Any, NoReturn

import click
from click.exceptions import Exit

from ..errors import (
    ArgumentError,
    DataError,
    EvidenceError,
    FormatError,
    ImpossibleEvidence,
    JtgpuError,
    OrderError,
    OutputExists,
    ParseError,
    TableTooLarge,
)
from ..options.tables import CsvDialect, ReadOptions
from ..util.text_table import printable as shown
from . import INTERRUPTED, raise_on_interrupt, terminable
from .commands import spelt

OK, ERROR, USAGE, TOO_LARGE, IMPOSSIBLE, UNREADABLE, EXISTS = range(7)
# Python's advice in messages, and that of the command line
_ADVICE = (
    (r"\bnet\.with_codes\('index'\)", "--codes index"),
    (r"\bread=ReadOptions\((.*?)\)", r"\1"),
    (r"\bhidden=\{'([^']*)': (\d+)\}", r"--hidden \1=\2"),
    (r"make the graph with hidden=\['(.*)'\]", r"use --hidden \1"),
    (r'\buse at="last"', "use -o FILE, --at last"),
    (r"\bfewer targets=", "fewer targets (-t)"),
    (r"\bwith columns=\[\.\.\.\]", "by --columns"),
    (r"^k is ([\d,]+), but", r"--samples is \1, but"),
    (r"\bpass k=([\d,]+)", r"use --samples \1"),
    (r"\bmax_order\b", "--max-order"),
    (r", or use on_error='flag'", ""),
    (r"\bfor a missing cell, use None\b", "for a missing cell, list it in --na-values"),
    (r"declare the states: states=\{.*\}", "declare the states by a network file with --states"),
    (r"declare its states as states=\{.*\}", "declare its states by a network file with --states"),
    (r"discretise it( \(jtgpu\.learn\.discretise\))?", "make intervals with --bins N"),
    (r"\bcontinuous=\['(.*?)'\]", r"--continuous \1"),
    (r"(?m)leave it out(?= of one|$)", "leave it out with --exclude"),
    (r"\bcontinuous=True, or a list of columns", "--continuous all, or some columns"),
)
# a path on the command line that cannot be used: the caller's mistake, other errors of the system are not
_PATH_ERRORS = (
    errno.EACCES, errno.EPERM, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
_WRITE_ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT)
CLOSED_PIPE = 141  # 128 + SIGPIPE, the exit code of `cat` when its reader goes away

_fields: ContextVar[Mapping[str, Any]] = ContextVar("_fields", default={})  # noqa: B039 (of the command; read only)
_read: ContextVar[tuple[str, CsvDialect] | None] = ContextVar("_read", default=None)


def reading(path: str, dialect: CsvDialect) -> CsvDialect:
    """The dialect of a file of cases, whose lines errors name from now on in place of rows."""
    _read.set((path, dialect))
    return dialect


def read_cases(path: str, read: ReadOptions, states: Mapping[str, Sequence[str]] | None = None) -> Any:
    """The Arrow table in a file of cases, or a folder of files, whose lines errors name."""
    from ..columns.files import files_of, read_file

    return read_file(*files_of(path), dialect=reading(path, read), na_values=read.na_values, states=states)


def _with_lines(message: str) -> str:
    """A message with lines of the file of cases in place of numbers of rows."""
    rows = {int(row) for row in re.findall(r"\brow (\d+)\b", message)}
    file = _read.get()
    if not rows or file is None:
        return message
    from ..columns.files import lines_of

    lines = lines_of(*file, rows)
    return re.sub(r"\brow (\d+)\b", lambda m: lines.get(int(m[1]), m[0]), message)


def exit_code(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, (TableTooLarge, MemoryError)):
        return TOO_LARGE
    if isinstance(error, ImpossibleEvidence):
        return IMPOSSIBLE
    if isinstance(error, (ParseError, FormatError)) and not isinstance(error, ArgumentError):
        return UNREADABLE
    if isinstance(error, OutputExists):
        return EXISTS
    if isinstance(error, (ArgumentError, DataError, EvidenceError, OrderError)):
        return USAGE
    known = (*_PATH_ERRORS, None) if isinstance(error, JtgpuError) else _PATH_ERRORS
    return USAGE if isinstance(error, OSError) and error.errno in known else ERROR


def run(function: Callable[..., None], records: Sequence[Any], ctx: click.Context) -> None:
    """Run a command: errors end in one line on stderr and an exit code."""
    # names of variables may contain characters that the terminal's encoding cannot represent
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    gc.enable()
    _read.set(None)
    _fields.set(getattr(ctx.command, "fields", {}))
    try:
        raise_on_interrupt()
        with terminable(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: warn(_with_options(str(message)))
            function(*records)
        sys.stdout.flush()
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise
    except (JtgpuError, MemoryError) as error:
        print_error(error)
        raise Exit(exit_code(error)) from None
    except KeyboardInterrupt:
        print_stderr("interrupted")
        raise Exit(INTERRUPTED) from None
    except SystemError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        print_stderr("interrupted")  # inside Python code that Numba calls from C
        raise Exit(INTERRUPTED) from None
    except OSError as error:
        _exit_after(error)


def _exit_after(error: OSError) -> NoReturn:
    """End the command after an error of the operating system, silently after a closed pipe."""
    if error.errno != errno.EPIPE:
        print_error(error)
        code = exit_code(error)
    else:
        code = CLOSED_PIPE
    # the interpreter flushes stdout again at exit and would report the error a second time
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise Exit(code) from None


def print_error(error: BaseException) -> None:
    """Print an error as one line on stderr; arguments that its message advises are written as options."""
    text = _with_options(str(error))
    if isinstance(error, (DataError, EvidenceError)):
        text = _with_lines(text)
    if isinstance(error, OSError) and not isinstance(error, JtgpuError) and error.strerror:
        file = error.filename or ("stdout" if error.errno in _WRITE_ERRORS else "")
        text = f"{file}: {error.strerror}" if file else error.strerror
        text += " (ulimit -f)" if error.errno == errno.EFBIG else ""
    if isinstance(error, MemoryError):
        has_limit = "memory_limit" in _fields.get()
        advice = "try --memory-limit with less than the free memory" if has_limit else "try fewer rows or columns"
        text = f"out of memory{f' ({text})' if text else ''}; {advice}"
    print_stderr(f"error: {text or type(error).__name__}")


def _with_options(text: str) -> str:
    for python, option in _ADVICE:
        text = re.sub(python, option, text)
    text = re.sub(r"\b(\w+)=(?:(['\"])([\w-]+)\2|True\b|(?=,| (?:is not|gives|takes|names)))", _option, text)
    return re.sub(r"net\.with_codes\(\{'(.*?)': \{(.*?)(?:, \.\.\.)?\}\}\)", _codes, text)


def _option(match: re.Match[str]) -> str:
    """An argument as the command line writes it, if the command has it."""
    field = _fields.get().get(match[1])
    return match[0] if field is None else f"{spelt(match[1], field)[0][-1]} {match[3] or ''}".rstrip()


def _codes(match: re.Match[str]) -> str:
    """Codes as ``--codes`` takes them."""
    pairs = ",".join(f"{code}={state}" for code, state in re.findall(r"(\d+): '(.*?)'(?:,|$)", match[2]))
    return f"--codes {shlex.quote(f'{match[1]}:{pairs}')}"


def warn(text: str) -> None:
    """Print a warning as one line on stderr."""
    print_stderr(f"warning: {text}")


def print_stderr(text: str) -> None:
    """Print a message on stderr, with the name of the program."""
    with suppress(OSError, ValueError):  # closed or full
        print("jtgpu: " + "\n".join(shown(line) for line in text.splitlines()), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print JSON on stdout, in ASCII and without NaN."""
    print(json.dumps(value, indent=2, allow_nan=False))


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def format_seconds(seconds: float) -> str:
    """Three digits and a unit: ``"1.23 ms"``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} us"


def _three_digits(x: float) -> str:
    return f"{x:.2f}" if x < 9.995 else f"{x:.1f}" if x < 99.95 else f"{x:.0f}"
