"""Builds the extension modules of compiled loops: one process a core compiles, then the C compiler links."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from ..loop_sources import source_digest
from ..loops import LEVELS, add_checksum, extension
from ..system import cores

if TYPE_CHECKING:
    from .objects import Entry

PAUSE = 10.0  # seconds between two lines about the progress


def _report(line: str) -> None:
    print(line, flush=True)  # make and CI read a pipe


class BuildError(Exception):
    """What is missing, in one sentence."""


def build(folder: Path, level: str = "x86-64-v3", report: Callable[[str], None] = _report) -> Path:
    """Build the extension module for a level of processors; returns its path."""
    # folder: Where to write it; the package's folder, in a build
    # level: A key of `jtgpu.util.loops.LEVELS`
    # report: Gets lines about the progress
    # raises BuildError: If Numba or the C compiler is missing or fails.
    started = time.perf_counter()
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BuildError(f"there is no way to build them for {platform.machine()} on {sys.platform} yet")
    module = LEVELS[level]
    target = folder / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # Numba reads these when it is imported, in the processes of the pool
    os.environ.update(NUMBA_CPU_NAME=level, NUMBA_CPU_FEATURES="", NUMBA_OPT="3")
    try:
        from .glue import source  # imports Numba
        from .objects import compile_entry, entries
    except ImportError as error:
        raise BuildError(f"{error.name or error} is not installed") from error
    with tempfile.TemporaryDirectory(prefix="jtgpu-loops-") as scratch:
        names = entries()
        report(f"compiling {len(names)} loops for {level} on {cores()} cores")
        with ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
            found, shown = [], started
            for entry in pool.map(compile_entry, names, [level] * len(names), [scratch] * len(names)):
                found.append(entry)
                if time.perf_counter() - shown > PAUSE:
                    shown = time.perf_counter()
                    report(f"  {len(found)} of {len(names)} loops, {shown - started:.0f} s")
        _check(found)
        text = Path(scratch, "loops.c")
        text.write_text(source(found, module, level, source_digest()), encoding="utf-8")
        _link(text, [entry.object_file for entry in found], target)
    seconds, size = time.perf_counter() - started, target.stat().st_size / 2**20
    report(f"built {target.name}: {len(names)} loops, {size:.1f} MiB, in {seconds:.0f} s")
    return target


def current() -> Path | None:
    """The package's extension module, if it was built from these sources."""
    module, _ = extension()
    return None if module is None else Path(module.__file__)


def _check(entries: list[Entry]) -> None:
    """Make sure that the runtime has what the loops call of Numba's."""
    from .glue import RUNTIME

    text = RUNTIME.read_text(encoding="utf-8")
    for entry in entries:
        missing = [name for name in entry.needs if name.startswith(("NRT_", "numba_")) and f"{name}(" not in text]
        if missing:
            raise BuildError(f"{entry.name} calls {', '.join(missing)}, which runtime.c lacks")


def _link(text: Path, objects: list[str], target: Path) -> None:
    import numpy

    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [
        *compiler, "-O2", "-fPIC", "-shared", "-s", "-fvisibility=hidden", f"-I{sysconfig.get_path('include')}",
        f"-I{numpy.get_include()}", str(text), *objects, "-lm", "-o", str(target),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"the C compiler {compiler[0]} cannot be run ({error.strerror})") from error
    if done.returncode:
        raise BuildError(f"the C compiler failed: {done.stderr.strip()[-2000:]}")
    add_checksum(target)


def main(arguments: list[str]) -> int:
    """Build into a folder, the package's by default; returns the exit code.

    Where the package has an extension module of these sources already, it is copied.
    """
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[2]
    try:
        if found := current():
            print(f"{found.name} is up to date")
            if found.parent.resolve() != folder.resolve():
                shutil.copy2(found, folder)
        else:
            build(folder)
    except Exception as error:  # whatever Numba or the linker reports: the package works without
        text = error if isinstance(error, BuildError) else f"{type(error).__name__}: {error}"
        print(f"jtgpu: no compiled loops ({text}); they are compiled on first use", file=sys.stderr)
        return 1
    return 0
