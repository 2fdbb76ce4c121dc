"""Several test processes, one compilation of each Numba function.

Processes that start with an empty cache would all compile the same functions. Under `share_compilation` a process that
needs a function waits until another has compiled it, and then loads it from the cache.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["share_compilation"]


def share_compilation() -> None:
    """Compile each function in one process at a time, from now on; without file locks nothing changes."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    folder = Path(tempfile.gettempdir(), f"jtgpu-test-locks-{os.getuid()}")
    folder.mkdir(exist_ok=True)

    @contextmanager
    def locked(name: str) -> Iterator[None]:
        with open(folder / hashlib.sha256(name.encode()).hexdigest()[:24], "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also by the process's end
            yield

    patched: Any = Dispatcher
    original = patched.compile

    def compile_once(self: Any, signature: Any) -> Any:
        code = self.py_func.__code__
        # Numba's lock first: another thread of this process may hold it and wait for the file
        with global_compiler_lock, locked(f"{code.co_filename}:{code.co_firstlineno}"):
            return original(self, signature)

    patched.compile = compile_once
