"""The command line: parse options, call one function, print. ``jtgpu --help`` lists the commands.

Results go to stdout, and nothing else does. Progress goes to stderr, only on a terminal; warnings and errors go to
stderr. Exit codes: 0 success, 1 other error, 2 usage error (an unknown file, variable, state or option), 3 does not fit
in memory, 4 impossible evidence, 5 unreadable file, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .commands import app

__all__ = ["app", "main"]


def main() -> None:
    """The console script."""
    try:
        import_module(".commands", __name__).app(prog_name="jtgpu")
    except KeyboardInterrupt:  # while modules are imported, or the interpreter exits
        sys.exit(130)


def __getattr__(name: str) -> Any:
    if name == "app":
        return import_module(".commands", __name__).app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
