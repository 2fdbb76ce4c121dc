"""Conversion of models to and from other libraries, which are imported on use.

Their names and states may be any objects; ours are strings, made by ``str``. Tables are copied, and the other library's
objects are not changed.
"""

from __future__ import annotations

from .networkx import from_networkx
from .pgmpy import from_pgmpy, to_pgmpy
from .pyagrum import from_pyagrum, to_pyagrum

__all__ = ["from_networkx", "from_pgmpy", "from_pyagrum", "to_pgmpy", "to_pyagrum"]
