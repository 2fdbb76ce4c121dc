"""Machine code of compiled loops on disk, for packages that were built without the extension module.

Each function and signature is a file: a digest, then the pickled code. A file that is damaged, empty, cut off or
foreign is ignored and written again; a folder that is full or cannot be written only costs the next process the
compilation. Numba's own cache ends the process in these cases.

The folder is ``loops`` in ``JTGPU_CACHE_DIR`` if that is set, else ``__pycache__`` in the package's folder, else in the
user's cache folder; if none of them can be written, a private temporary one, which ends with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numba
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from .atomic_file import write_bytes
from .loop_sources import ROOT, source_digest
from .system import cache_folder

_rebuild: Any = CompileResult._rebuild  # not public: what Numba's own cache uses
_dumps: Any = dumps
MAGIC = b"jtgpu loop 1\n"
logger = logging.getLogger("jtgpu")


def _candidates() -> list[Path]:
    if os.environ.get("JTGPU_CACHE_DIR"):
        return [cache_folder() / "loops"]
    folders = [ROOT / "__pycache__" / "loops"]
    with contextlib.suppress(RuntimeError):  # no home folder
        folders.append(cache_folder() / "loops")
    return folders


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@functools.cache
def loops_folder() -> Path:
    """Where compiled loops are cached. Warns once if that is a temporary folder."""
    candidates = _candidates()
    for folder in candidates:
        if _is_writable(folder):
            return folder
    private = tempfile.mkdtemp(prefix="jtgpu-loops-")  # only this user may read and write it
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    warnings.warn(
        f"compiled loops cannot be cached in {' or '.join(map(str, candidates))}: every process compiles them again; "
        "set JTGPU_CACHE_DIR to a folder that can be written",
        RuntimeWarning,
        stacklevel=2,
    )
    return Path(private)


class LoopCache:
    """The cache of one function, as Numba's dispatchers use it."""
    # function: The Python function

    def __init__(self, function: Any):
        self._name = f"{function.__module__}.{function.__qualname__}"

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(loops_folder())

    def _key(self, signature: Any, codegen: Any) -> bytes:
        """Digest of all that the machine code depends on."""
        key = (self._name, str(signature), codegen.magic_tuple(), numba.__version__, sys.version, source_digest())
        return hashlib.sha256(repr(key).encode()).digest()

    def path(self, signature: Any, codegen: Any) -> Path:
        """The file of a signature."""
        short = self._name.removeprefix("jtgpu.").replace(".loops.", ".")
        return loops_folder() / f"{short}-{self._key(signature, codegen).hex()[:24]}.bin"

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled function for a signature; None if there is none that can be used."""
        target_context.refresh()
        codegen = target_context.codegen()
        body = self._body(signature, codegen)
        if not body:
            return None
        try:
            return _rebuild(target_context, *pickle.loads(body))
        except Exception:
            path = self.path(signature, codegen)
            logger.debug("%s cannot be loaded; the function is compiled again", path, exc_info=True)
            return None

    def _body(self, signature: Any, codegen: Any) -> bytes:
        """The pickled code of a signature; empty if there is no file of it, or a damaged one."""
        path = self.path(signature, codegen)
        try:
            data = path.read_bytes()
        except OSError:
            return b""
        start = len(MAGIC) + hashlib.sha256().digest_size
        if data[:start] != MAGIC + hashlib.sha256(self._key(signature, codegen) + data[start:]).digest():
            logger.debug("%s is damaged; the function is compiled again", path)
            return b""
        return data[start:]

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compiled function; without an error if that is impossible."""
        if result.library.has_dynamic_globals:  # addresses of this process
            return
        try:
            body: bytes = _dumps(result._reduce())
            digest = hashlib.sha256(self._key(signature, result.codegen) + body).digest()
            write_bytes(self.path(signature, result.codegen), MAGIC + digest + body, durable=False)
        except OSError as error:
            logger.debug("%s is not cached: %s", self._name, error)

    def contains(self, signature: Any, codegen: Any) -> bool:
        """Whether there is an undamaged file of a signature."""
        return bool(self._body(signature, codegen))

    def enable(self) -> None:
        """Part of Numba's interface."""

    def disable(self) -> None:
        """Part of Numba's interface."""

    def flush(self) -> None:
        """Part of Numba's interface."""
