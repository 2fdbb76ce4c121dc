"""Where the caller of this package is."""

from __future__ import annotations

import sys

PACKAGE = __name__.partition(".")[0]


def outside() -> int:
    """The ``stacklevel`` of a warning that names the line of the caller of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
