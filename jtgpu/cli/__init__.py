"""The command line: parse options, call one function, print. ``jtgpu --help`` lists the commands.

Results go to stdout, and nothing else does. Progress goes to stderr, by default only on a terminal; warnings and errors
go to stderr. Exit codes: 0 success, 1 other error, 2 usage error (an unknown file, variable, state or option), 3 does
not fit in memory, 4 impossible evidence, 5 unreadable file, 6 the output exists, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .process import INTERRUPTED, exit_on_interrupt, open_closed_streams

if TYPE_CHECKING:
    from .commands import app

__all__ = ["app", "main"]


def main() -> None:
    """The console script."""
    exit_on_interrupt()
    open_closed_streams()
    if "_JTGPU_COMPLETE" in os.environ:
        request = import_module(".shell_request", __name__)
        request.join_findings()
        if request.answer():
            return
    try:
        import_module(".commands", __name__).app(prog_name="jtgpu")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # while help is printed; commands report their own errors
        sys.exit(f"jtgpu: error: {error.strerror or error}")
    finally:
        exit_on_interrupt()  # nothing is left to save


def __getattr__(name: str) -> Any:
    if name == "app":
        return import_module(".commands", __name__).app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
