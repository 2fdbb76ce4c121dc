"""Conversion of models to and from other libraries, which are imported on use.

Other libraries allow any objects as names and states; jtgpu converts them to strings by ``str``. Tables are copied, and
the other library's objects are not changed.
"""

from __future__ import annotations

from .networkx import from_networkx
from .pgmpy import from_pgmpy, to_pgmpy
from .pyagrum import from_pyagrum, to_pyagrum

__all__ = ["from_networkx", "from_pgmpy", "from_pyagrum", "to_pgmpy", "to_pyagrum"]
