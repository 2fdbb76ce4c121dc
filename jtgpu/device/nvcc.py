"""CUDA sources: joined with our headers, compiled to cubins by nvcc, and cached on disk.

This module knows no device; `jtgpu.device.context` and `jtgpu.device.driver` load the cubins. Headers are inserted as
text, since PyCUDA's compiler would preprocess a source with an ``#include`` on each load.

Environment
-----------
JTGPU_CACHE_DIR : folder of the cubin cache; default: the user's cache folder.
CUDA_HOME : folder with ``bin/nvcc``, if nvcc is not on the path.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import BackendUnavailable
from ..util import atomic_file
from ..util.arguments import report
from ..util.system import cache_folder

TRIALS = ("published/trials/constant_index", "published/trials/marginalise_m_shuffle", "published/trials/scatter_fused")

_INCLUDE = re.compile(r'^[ \t]*#include[ \t]+"([^"]+)"[^\n]*$', re.MULTILINE)
_FLAGS = ("-O3", "-std=c++17")
_C_TYPE = {"float64": "double", "float32": "float", "uint32": "unsigned int", "uint64": "unsigned long long"}


_locks: dict[str, threading.Lock] = {}  # by the name of a kernel's file in the cache


def source_folder() -> Path:
    """The folder of the .cu files: inside the installed package, or next to it in a checkout."""
    # raises BackendUnavailable: If neither exists, because the installation is incomplete.
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "cuda", package.parent / "cuda"):
        if (folder / "published/job.cuh").is_file():
            return folder
    raise BackendUnavailable(f"the CUDA sources are missing: no cuda/published/job.cuh in {package} or next to it")


def sources() -> list[str]:
    """Names of all kernel files, trials included, without suffix."""
    folder = source_folder()
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.cu"))


def read_source(name: str, *, real: str = "float64", index: str = "uint32", ways: int = 16) -> str:
    """A kernel file with our headers and its types."""
    # name: ``"published/marginalise_m"``, ``"batch/batch"``
    # real: {"float64", "float32"}
    # index: {"uint32", "uint64"}
    # ways: Most cells per thread of the published kernels; fewer need fewer registers
    head = f"#define JT_REAL {_C_TYPE[real]}\n#define JT_INDEX {_C_TYPE[index]}\n#define JT_WAYS {ways}\n"
    return head + with_headers((source_folder() / f"{name}.cu").read_text(encoding="utf-8"))


def with_headers(text: str) -> str:
    """A source with our headers inserted, each once."""
    folder = source_folder()
    joined: set[str] = set()

    def join(text: str) -> str:
        def header(match: re.Match[str]) -> str:
            if match[1] in joined:
                return ""
            joined.add(match[1])
            return join((folder / match[1]).read_text(encoding="utf-8"))

        return _INCLUDE.sub(header, text)

    return join(text)


@lru_cache(maxsize=1)
def find_nvcc() -> str | None:
    """Path of CUDA's compiler, or None."""
    path = shutil.which("nvcc")
    if path is None and os.environ.get("CUDA_HOME"):
        path = shutil.which("nvcc", path=str(Path(os.environ["CUDA_HOME"]) / "bin"))
    return path


def cubin(
    name: str,
    arch: str,
    *,
    real: str = "float64",
    index: str = "uint32",
    ways: int = 16,
    cache: Path | None = None,
) -> bytes:
    """A kernel file compiled for an architecture, or its cached cubin."""
    # name: See `read_source`
    # arch: ``"sm_90"``
    # cache: Folder of the cache; None: `cache_folder` / "cubin"
    # raises BackendUnavailable: If it is not cached, and nvcc is missing or reports an error.
    return compiled(name, read_source(name, real=real, index=index, ways=ways), arch, cache=cache)


def compiled(name: str, text: str, arch: str, *, cache: Path | None = None) -> bytes:
    """A complete source compiled for an architecture, or its cached cubin; see `cubin`."""
    kept = _kept(name, text, arch, cache)
    with _lock_of(kept.name):  # several devices may need the same kernel at the same time
        try:
            return kept.read_bytes()
        except OSError:
            pass
        report(f"compiling {name} for {arch} (one time; cached)")
        made = _compile(name, text, arch)
        with suppress(OSError):  # a read-only cache costs time, nothing else
            atomic_file.write_bytes(kept, made, make_folders=True)  # durable: a cubin is not checked when it is read
        return made


def _lock_of(name: str) -> threading.Lock:
    """The lock of a kernel, one for each name."""
    return _locks.setdefault(name, threading.Lock())


def _kept(name: str, text: str, arch: str, cache: Path | None) -> Path:
    # The toolkit's version is not part of the key: cubins stay valid when the toolkit changes.
    key = hashlib.sha256("\n".join((text, arch, *_FLAGS)).encode()).hexdigest()[:32]
    folder = cache if cache is not None else cache_folder() / "cubin"
    return folder / f"{name.replace('/', '-')}-{arch}-{key}.cubin"


def _compile(name: str, text: str, arch: str) -> bytes:
    nvcc = find_nvcc()
    if nvcc is None:
        raise BackendUnavailable(
            f"the kernel {name!r} is not compiled for {arch}, and nvcc was not found: install the CUDA toolkit, and "
            "put nvcc on the path or set CUDA_HOME"
        )
    with tempfile.TemporaryDirectory(prefix="jtgpu-") as folder:
        source, out = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        command = [nvcc, "-cubin", f"-arch={arch}", *_FLAGS, "-o", str(out), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not out.is_file():
            raise BackendUnavailable(f"nvcc cannot compile the kernel {name!r} for {arch}:\n{done.stderr.strip()}")
        return out.read_bytes()


# cuBLAS by ``skcuda.cublas``, the one module of scikit-cuda 0.5.3 that can still be imported.

_INSTALL = "install it with: pip install '.[cuda]' in a checkout (needs the CUDA toolkit)"


class Blas:
    """The functions asum and scal of cuBLAS. Used inside ``device.active()``."""
    # dtype: {"float64", "float32"}
    # raises BackendUnavailable: If scikit-cuda or the cuBLAS library is missing.

    def __init__(self, stream: Any, dtype: DTypeLike):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-cuda imports pkg_resources, which is deprecated
            try:
                from skcuda import cublas
            except (ImportError, OSError, AttributeError) as error:
                raise BackendUnavailable(
                    f"normalise='cublas' needs skcuda.cublas, which cannot be imported ({error}); {_INSTALL}, or use "
                    "normalise='kernel'"
                ) from None
        double = np.dtype(dtype) == np.float64
        self._asum = cublas.cublasDasum if double else cublas.cublasSasum
        self._scal = cublas.cublasDscal if double else cublas.cublasSscal
        self._destroy = cublas.cublasDestroy
        self._handle: Any = cublas.cublasCreate()
        cublas.cublasSetStream(self._handle, stream.handle)

    def normalise(self, address: int, cells: int) -> float:
        """Scale a table of non-negative numbers so that it sums to 1; return its previous sum. Waits for the stream."""
        total = float(self._asum(self._handle, cells, address, 1))
        if total > 0.0 and total != 1.0:
            self._scal(self._handle, cells, 1.0 / total, address, 1)
        return total

    def close(self) -> None:
        """Destroy the handle."""
        if self._handle is not None:
            self._destroy(self._handle)
        self._handle = None
