"""CUDA sources: found, joined with our headers as text, compiled to cubins by nvcc, and kept on disk.

Knows no device: what it hands out is bytes, which `jtgpu.device.context` loads. Headers are joined as text, since
PyCUDA's own compiler would preprocess every source with an ``#include`` again on each load.

Environment
-----------
JTGPU_CACHE_DIR : folder of the cubin cache; default: the user's cache folder.
CUDA_HOME : where ``bin/nvcc`` is looked for when there is none on the path.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..errors import BackendUnavailable
from ..util import atomic_file
from ..util.system import cache_folder

__all__ = [
    "JOB", "MAP", "TRIALS", "compiled", "cubin", "find_nvcc", "read_source", "source_folder",
    "sources", "tell", "telling", "with_headers",
]  # fmt: skip

# The layout of `struct Job` in cuda/published/job.cuh, field for field.
JOB = np.dtype(
    [
        ("from", np.uint64),
        ("index", np.uint64),
        ("other", np.uint64),
        ("to", np.uint64),
        ("total", np.uint64),
        ("n", np.uint32),
        ("n_out", np.uint32),
        ("first_block", np.uint32),
        ("ways", np.uint32),
        ("sum", np.uint64),
    ]
)
MAP = np.dtype(np.uint32)  # block_job: the job of each block

TRIALS = ("published/trials/constant_index", "published/trials/marginalise_m_shuffle", "published/trials/scatter_fused")

_INCLUDE = re.compile(r'^[ \t]*#include[ \t]+"([^"]+)"[^\n]*$', re.MULTILINE)
_FLAGS = ("-O3", "-std=c++17")
_C_TYPE = {"float64": "double", "float32": "float", "uint32": "unsigned int", "uint64": "unsigned long long"}


_locks: dict[str, threading.Lock] = {}  # a kernel's, by the name of its file in the cache
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("jtgpu_progress", default=None)


@contextmanager
def telling(progress: Callable[[str], None] | None) -> Iterator[None]:
    """Inside the block `tell` calls this function, in this thread: how far the making of an engine has come."""
    before = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(text: str) -> None:
    """Say what is done now, to whom `telling` named."""
    progress = _listener.get()
    if progress is not None:
        progress(text)


def source_folder() -> Path:
    """The folder of the .cu files: inside the installed package, or beside it in a checkout.

    Raises
    ------
    BackendUnavailable
        When neither is there, which means a broken installation.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "cuda", package.parent / "cuda"):
        if (folder / "published/job.cuh").is_file():
            return folder
    raise BackendUnavailable(f"the CUDA sources are missing: no cuda/published/job.cuh in {package} or beside it")


def sources() -> list[str]:
    """Names of all kernel files, trials included, without suffix."""
    folder = source_folder()
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.cu"))


def read_source(name: str, *, real: str = "float64", index: str = "uint32", ways: int = 16) -> str:
    """One kernel file with our headers joined into it and its types chosen.

    Parameters
    ----------
    name : str
        ``"marginalise_m"``, ``"published/trials/scatter_fused"`` ...
    real : {"float64", "float32"}
    index : {"uint32", "uint64"}
    ways : int
        Most cells that one thread takes; fewer need fewer registers.
    """
    head = f"#define JT_REAL {_C_TYPE[real]}\n#define JT_INDEX {_C_TYPE[index]}\n#define JT_WAYS {ways}\n"
    return head + with_headers((source_folder() / f"{name}.cu").read_text(encoding="utf-8"))


def with_headers(text: str) -> str:
    """A source with our headers joined into it, each once."""
    folder = source_folder()
    joined: set[str] = set()

    def join(text: str) -> str:
        def header(found: re.Match[str]) -> str:
            if found[1] in joined:
                return ""
            joined.add(found[1])
            return join((folder / found[1]).read_text(encoding="utf-8"))

        return _INCLUDE.sub(header, text)

    return join(text)


@lru_cache(maxsize=1)
def find_nvcc() -> str | None:
    """Path of CUDA's compiler, or None."""
    found = shutil.which("nvcc")
    if found is None and os.environ.get("CUDA_HOME"):
        found = shutil.which("nvcc", path=str(Path(os.environ["CUDA_HOME"]) / "bin"))
    return found


def cubin(
    name: str,
    arch: str,
    *,
    real: str = "float64",
    index: str = "uint32",
    ways: int = 16,
    cache: Path | None = None,
) -> bytes:
    """One kernel file compiled for one architecture; from the cache where it is there.

    Parameters
    ----------
    name : str
        See `read_source`.
    arch : str
        ``"sm_90"`` ...
    cache : Path, optional
        Folder to keep cubins in; None: `cache_folder` / "cubin".

    Raises
    ------
    BackendUnavailable
        When it is not in the cache and nvcc is missing or refuses it.
    """
    return compiled(name, read_source(name, real=real, index=index, ways=ways), arch, cache=cache)


def compiled(name: str, text: str, arch: str, *, cache: Path | None = None) -> bytes:
    """A whole source compiled for one architecture; from the cache where it is there. See `cubin`."""
    kept = _kept(name, text, arch, cache)
    with _lock_of(kept.name):  # several devices ask for the same kernel at the same time
        try:
            return kept.read_bytes()
        except OSError:
            pass
        tell(f"compiling {name} for {arch} (once a machine)")
        made = _compile(name, text, arch)
        with suppress(OSError):  # a read-only cache costs time, nothing else
            atomic_file.write_bytes(kept, made, make_folders=True)  # durable: a cubin is not checked when it is read
        return made


def _lock_of(name: str) -> threading.Lock:
    """The lock of a kernel; one object for each name."""
    return _locks.setdefault(name, threading.Lock())


def _kept(name: str, text: str, arch: str, cache: Path | None) -> Path:
    # The toolkit's version is no part of the key: a cubin stays right when the toolkit changes.
    key = hashlib.sha256("\n".join((text, arch, *_FLAGS)).encode()).hexdigest()[:32]
    folder = cache if cache is not None else cache_folder() / "cubin"
    return folder / f"{name.replace('/', '-')}-{arch}-{key}.cubin"


def _compile(name: str, text: str, arch: str) -> bytes:
    nvcc = find_nvcc()
    if nvcc is None:
        raise BackendUnavailable(
            f"the kernel {name!r} is not compiled for {arch} yet and nvcc was not found: install the CUDA toolkit, "
            "or put nvcc on the path or below CUDA_HOME"
        )
    with tempfile.TemporaryDirectory(prefix="jtgpu-") as folder:
        source, out = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        command = [nvcc, "-cubin", f"-arch={arch}", *_FLAGS, "-o", str(out), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not out.is_file():
            raise BackendUnavailable(f"nvcc refused the kernel {name!r} for {arch}:\n{done.stderr.strip()}")
        return out.read_bytes()
