"""The command line: parse, call one function, print. ``jtgpu --help`` lists the commands.

Results go to stdout, and nothing else does; progress goes to stderr, on a terminal only; warnings and errors go to
stderr. Exit codes: 0 done, 1 another error, 2 wrong usage (an unknown file, variable, state or option), 3 does not
fit, 4 impossible evidence, 5 a file that cannot be understood, 130 interrupted.
"""

from __future__ import annotations

from .app import app, main

__all__ = ["app", "main"]
