"""Models to and from other libraries; each is imported where it is used and nowhere else.

Their names and labels may be any objects, ours are strings: ``str`` of them. What their tables hold is copied;
nothing of the other library is kept or changed.
"""

from __future__ import annotations

from .networkx import from_networkx
from .pgmpy import from_pgmpy, to_pgmpy
from .pyagrum import from_pyagrum, to_pyagrum

__all__ = ["from_networkx", "from_pgmpy", "from_pyagrum", "to_pgmpy", "to_pyagrum"]
