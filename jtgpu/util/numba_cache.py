"""`compiled`: Numba's njit with a cache that knows more than one source file.

Numba keeps compiled functions from run to run, and compiles one again when its own file changes. A function that was
compiled into another file's function does not count: after an update of one file, old machine code would go on to run,
with new data. Here every cached function depends on every file with compiled functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["compiled", "is_compiled"]

HOLDERS = (  # files with compiled functions
    "util/numba_cache.py", "plans/specialise.py", "plans/ordering/rotations.py", "plans/ordering/regions.py",
    "backends/cpu/*.py",
)  # fmt: skip


def _stamp() -> str:
    """Digest of path, time and size of the source files that hold compiled functions."""
    root = Path(__file__).parents[1]
    found = [(p.name, p.stat()) for pattern in HOLDERS for p in root.glob(pattern)]
    listed = sorted((name, s.st_mtime_ns, s.st_size) for name, s in found)
    return hashlib.sha256(repr(listed).encode()).hexdigest()


_STAMP = _stamp()


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: ``numba.njit`` without the interpreter's lock, dividing as NumPy does, cached.

    Parameters
    ----------
    **options
        Of ``numba.njit``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        file = _cache_file(dispatcher)
        if file is not None:
            file._source_stamp = (file._source_stamp, _STAMP)
        return dispatcher

    return decorate


def is_compiled(function: Any) -> bool:
    """Whether a `compiled` function is at hand, in this process or from an earlier one; True where nobody can tell."""
    if function.signatures:
        return True
    file = _cache_file(function)
    try:
        return file is None or bool(file._load_index())
    except (OSError, AttributeError):
        return True


def _cache_file(dispatcher: Any) -> Any:
    # no public way leads there; where Numba changes, its own rules hold
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return file if hasattr(file, "_source_stamp") else None
