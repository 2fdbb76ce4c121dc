"""``jtgpu info --system``: versions, processors, caches, and what is missing for which feature."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

from ..device.nvcc import find_nvcc
from ..errors import format_bytes
from ..util.loops import extension
from ..util.system import cache_folder, cores, cpu_name, free_memory
from ..util.version import __version__

# what needs packages that are not always installed: the extra's name, and its packages
FEATURES = {
    "data frames": ("frames", ("narwhals", "pyarrow")),
    "server": ("serve", ("starlette", "uvicorn", "msgspec", "prometheus-client")),
    "plots": ("plot", ("matplotlib",)),
    "notebook page": ("notebook", ("anywidget", "msgspec")),
    "clusters": ("ray", ("ray", "fsspec", "narwhals", "pyarrow")),
    "GPU": ("cuda", ("pycuda", "cuda-bindings")),
}
REQUIRED = ("numpy", "numba", "networkx", "typer", "rich", "platformdirs")


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version_of(package)
    return None


def _output(*command: str) -> str:
    """What a program prints; empty if it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _gpus() -> list[dict[str, str]]:
    """Name, memory and driver of each NVIDIA GPU, from nvidia-smi."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    found = _output(smi, "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader")
    names = ("name", "memory", "driver", "capability")
    rows = (line.split(", ") for line in found.splitlines())
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def _release_of(nvcc: str) -> str:
    """The line in which nvcc names its version."""
    return next((line for line in _output(nvcc, "--version").splitlines() if "release" in line), "")


def _loops() -> str:
    """Where the loops of the CPU backend come from."""
    module, reason = extension()
    return "compiled ahead of time" if module is not None else f"compiled on first use ({reason})"


def _loop_cache() -> str:
    """The folder of loops that Numba compiles."""
    try:
        from ..util.jit_cache import loops_folder  # imports Numba
    except ImportError as error:
        return str(error)
    return str(loops_folder())


def system_facts() -> dict[str, Any]:
    """Properties of the installation and the machine, as strings, numbers, lists and dicts."""
    features = {}
    for feature, (extra, packages) in FEATURES.items():
        versions = {package: _version(package) for package in packages}
        features[feature] = {"extra": extra, "packages": versions, "missing": [p for p, v in versions.items() if not v]}
    nvcc = find_nvcc()
    return {
        "jtgpu": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "processor": cpu_name(),
        "cores": cores(),
        "free_memory": free_memory(),
        "packages": {package: _version(package) for package in REQUIRED},
        "loops": _loops(),
        "cache": str(cache_folder()),
        "loop_cache": _loop_cache(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("JTGPU_") or k == "CUDA_HOME"},
        "gpus": _gpus(),
        "nvcc": _release_of(nvcc) if nvcc else "",
        "features": features,
    }


def system_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of the report: a name and a value each."""
    yield from [(name, str(facts[name])) for name in ("jtgpu", "python", "platform")]
    yield "processor", f"{facts['processor']}, {format_bytes(facts['free_memory'])} of memory free"
    yield "packages", ", ".join(f"{name} {v or 'missing'}" for name, v in facts["packages"].items())
    yield from [("loops", facts["loops"]), ("caches", facts["cache"]), ("loop cache", facts["loop_cache"])]
    yield from [("environment", f"{name}={value}") for name, value in facts["environment"].items()]
    for gpu in facts["gpus"]:
        yield "GPU", f"{gpu['name']}, {gpu['memory']}, compute capability {gpu['capability']}, driver {gpu['driver']}"
    if not facts["gpus"]:
        yield "GPU", "none (nvidia-smi lists none)"
    yield "nvcc", facts["nvcc"] or "not found (CUDA_HOME and PATH)"
    for feature, found in facts["features"].items():
        missing = ", ".join(found["missing"])
        yield feature, f"missing: {missing}; pip install 'jtgpu[{found['extra']}]'" if missing else "installed"
