"""The command line: parse options, call one function, print. ``jtgpu --help`` lists the commands.

Results go to stdout, and nothing else does. Progress goes to stderr, only on a terminal; warnings and errors go to
stderr. Exit codes: 0 success, 1 other error, 2 usage error (an unknown file, variable, state or option), 3 does not fit
in memory, 4 impossible evidence, 5 unreadable file, 130 interrupted.
"""

from __future__ import annotations

from .app import app, main

__all__ = ["app", "main"]
