"""The source files of compiled loops, and a digest of their content: what machine code on disk belongs to."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from .version import __version__

__all__ = ["FOLDERS", "ROOT", "source_digest", "sources"]

ROOT = Path(__file__).parents[1]
# files whose constants and types are compiled into the loops of the folders
DATA = (
    "plans/arrays.py", "plans/program.py", "plans/specialise.py", "plans/ordering/anneal.py",
    "cases/reading/cell_data.py", "backends/cpu/records.py", "backends/cpu/lanes.py", "backends/cpu/lower.py",
    "backends/cpu/backward.py", "backends/cpu/parallel.py", "learn/dags/count_modes.py", "util/jit.py",
)  # fmt: skip
FOLDERS = (
    "plans/loops", "plans/ordering/loops", "cases/reading/loops", "backends/cpu/loops", "learn/dags/loops",
    "series/loops", "series/published/loops",
)  # fmt: skip


def sources() -> Iterator[Path]:
    """Every file that compiled loops depend on, in a fixed order."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).glob("*.py"))
    for name in DATA:
        yield ROOT / name


@functools.cache
def source_digest() -> str:
    """Digest of the version and of the content of `sources`; empty if a source file is missing."""
    found = hashlib.sha256(__version__.encode())
    try:
        for path in sources():
            found.update(path.name.encode() + b"\0")
            found.update(path.read_bytes())
    except OSError:
        return ""
    return found.hexdigest()
