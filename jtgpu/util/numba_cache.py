"""`compiled`: Numba's njit with a cache that depends on more than one source file.

Numba caches compiled functions on disk, and compiles one again when its own file changes. A change of a function that
was inlined from another file goes unnoticed: after an update of one file, old machine code would run on new data. Here
every cached function depends on every file with compiled functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["address_of", "cache_folder", "compiled", "inlined", "is_compiled"]

HOLDERS = (  # files with compiled functions, and with constants that are compiled into them
    "util/numba_cache.py", "plans/arrays.py", "plans/program.py", "plans/specialise.py", "plans/ordering/rotations.py",
    "plans/ordering/regions.py", "backends/cpu/*.py",
)  # fmt: skip
MARK = b"numba"  # in every file of backends/cpu that has any


def _stamp() -> str:
    """Digest of path, time and size of the source files that hold compiled functions."""
    root = Path(__file__).parents[1]
    found = [
        (p.name, p.stat())
        for pattern in HOLDERS
        for p in root.glob(pattern)
        if "*" not in pattern or MARK in p.read_bytes()
    ]
    listed = sorted((name, s.st_mtime_ns, s.st_size) for name, s in found)
    return hashlib.sha256(repr(listed).encode()).hexdigest()


_STAMP = _stamp()


def compiled(*, allocates: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: ``numba.njit`` without the interpreter's lock, dividing as NumPy does, cached.

    Parameters
    ----------
    allocates : bool
        False for a function that makes no array, as some callees of compiled functions: then Numba counts no
        references, which takes longer than the work where arrays of NamedTuples are used in loops.
    **options
        Options of ``numba.njit``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        jit: Any = njit  # its types know no _nrt
        dispatcher = jit(cache=True, nogil=True, error_model="numpy", _nrt=allocates, **options)(function)
        file = _cache_file(dispatcher)
        if file is not None:
            file._source_stamp = (file._source_stamp, _STAMP)
        return dispatcher

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """A decorator for a part of a `compiled` function, which Numba inlines and never compiles alone.

    A call would pass a NamedTuple of arrays as dozens of arguments.
    """
    return njit(nogil=True, error_model="numpy", inline="always")(function)


def is_compiled(function: Any) -> bool:
    """Whether a `compiled` function is compiled, in this process or in the cache; True if that cannot be determined."""
    if function.signatures:
        return True
    file = _cache_file(function)
    try:
        return file is None or bool(file._load_index())
    except (OSError, AttributeError):
        return True


def address_of(function: Any, signature: Any) -> int:
    """Address of a `compiled` function for callers by the C convention; compiles it if necessary.

    Numba builds a callee into each of its callers. A large function that has many callers is called by its address
    instead, so that it is compiled once.

    Parameters
    ----------
    function : dispatcher
        Made by `compiled`; must not raise.
    signature : numba signature
    """
    function.compile(signature)
    found = function.overloads[signature.args]
    return int(found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name))


def cache_folder(function: Any) -> str:
    """Where a `compiled` function is cached; empty if that cannot be determined."""
    return str(getattr(getattr(function, "_cache", None), "cache_path", ""))


def _cache_file(dispatcher: Any) -> Any:
    # Numba has no public name for it; if it is missing, Numba's own rules apply
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return file if hasattr(file, "_source_stamp") else None
