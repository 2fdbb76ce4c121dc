"""The source files of compiled loops, and a digest of their content: what machine code on disk belongs to."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from .version import __version__

ROOT = Path(__file__).parents[1]
FOLDER, SUFFIX = "loops", "_loops.py"  # a folder of compiled loops; the end of a module's name next to its caller
# other files, whose constants and types are compiled into the loops
DATA = (
    "plans/arrays.py", "plans/program.py", "plans/search_records.py", "plans/specialise.py", "plans/ordering/anneal.py",
    "columns/csv_records.py", "backends/cpu/records.py", "backends/cpu/slice_records.py", "backends/cpu/backward.py",
    "backends/cpu/parallel.py", "learn/dags/chain_records.py", "graphs/records.py", "screen/arrays.py",
    "util/array_types.py", "util/elementary/__init__.py", "util/jit.py",
)  # fmt: skip


def _loop_files() -> list[Path]:
    """Every file in a folder ``loops`` and every ``*_loops.py``, in a fixed order."""
    files: list[Path] = []
    for folder, children, names in os.walk(ROOT):
        children[:] = [child for child in children if child != "__pycache__"]  # may contain machine code in "loops"
        if FOLDER in children:
            files += (Path(folder) / FOLDER).glob("*.py")
        if Path(folder).name != FOLDER:
            files += [Path(folder) / name for name in names if name.endswith(SUFFIX)]
    return sorted(files)


def loop_modules() -> list[str]:
    """Modules with compiled loops, by full name."""
    files = [path.relative_to(ROOT) for path in _loop_files() if path.stem != "__init__"]
    return [".".join(("jtgpu", *path.with_suffix("").parts)) for path in files]


def sources() -> list[Path]:
    """Every file that compiled loops depend on, in a fixed order."""
    return [*_loop_files(), *(ROOT / name for name in DATA)]


@functools.cache
def source_digest() -> str:
    """Digest of the version and of the names and content of `sources`; empty if a source file is missing."""
    digest = hashlib.sha256(__version__.encode())
    try:
        for path in sources():
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    except OSError:
        return ""
    return digest.hexdigest()
