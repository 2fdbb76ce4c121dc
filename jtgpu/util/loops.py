"""Compiled loops: from the extension module that was built with the package, else compiled when they are first called.

Functions that Numba compiles are in modules ``*_loops.py`` and folders called ``loops``. Nothing else imports them:
callers write

    _sweep = loops("jtgpu.backends.cpu.loops.sweep")
    ...
    _sweep.run(arena, ...)

and get the function from the extension module (`jtgpu.util.ahead` builds it), which takes milliseconds and does not
need Numba. Where there is no extension for this Python and processor, or the sources are not those that it was built
from, the module is imported, and Numba compiles the function. Both have the same source and signatures.

The environment variable ``JTGPU_LOOPS`` is ``auto`` (default), ``jit`` (ignore the extension), or ``ahead`` (an error
if the extension cannot be used or lacks a function or a signature).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import JtgpuError
from .loop_sources import loop_modules, source_digest
from .system import cores

undeclared: list[str] = []  # calls that the extension left to Numba, for tests
SHT_STRTAB = 3  # the type of a section of names in ELF files
CHECKSUM = struct.Struct("<8sI")  # after the ELF file's last byte: a word, CRC-32 of all before it
WORD = b"jtgpuCRC"
LEVELS = {"x86-64-v3": "_loops_v3"}  # processors that extension modules are built for: the module's name


def mode() -> str:
    """Mode of the loops: value of ``JTGPU_LOOPS``."""
    said = os.environ.get("JTGPU_LOOPS", "").strip().lower() or "auto"
    if said not in ("auto", "jit", "ahead"):
        raise JtgpuError(f"JTGPU_LOOPS is {said!r}; it must be auto, jit or ahead")
    return said


@functools.cache
def extension() -> tuple[Any, str]:
    """The extension module that can be used, or None; and why there is none."""
    reason = "the package was installed without compiled loops for this Python and processor"
    for name in LEVELS.values():
        try:
            if f"jtgpu.{name}" not in sys.modules:
                _check_complete(f"jtgpu.{name}")
            module = importlib.import_module(f"jtgpu.{name}")
        except ImportError as error:
            if not isinstance(error, ModuleNotFoundError):
                reason = str(error)
            continue
        if source_digest() in ("", module.digest):
            module.set_fallback(_compile_for)
            return module, ""
        reason = f"the sources have changed since {Path(str(module.__file__)).name} was built"
    return None, reason


def _check_complete(name: str) -> None:
    """Raise `ImportError` for an ELF file that was cut off, not written to its end, or changed.

    The dynamic loader maps such a file and the process ends by SIGBUS. The linker writes the section headers last:
    their table must end before the file does and contain the table of section names. A checksum follows, unless a tool
    for packages has rewritten the file.
    """
    spec = importlib.util.find_spec(name)
    if sys.platform != "linux" or spec is None or not spec.origin:
        return
    try:
        with open(spec.origin, "rb") as file:
            # of the ELF header: offset of the section headers, size of one, their number, which describes their names
            start, entry, n, names = struct.unpack_from("<40xQ10xHHH", file.read(64))
            file.seek(start)
            kind, offset, size = struct.unpack_from("<4xI16xQQ", file.read(entry * n), entry * names)
            end = max(offset + size, start + entry * n)
            complete = kind == SHT_STRTAB and end <= os.fstat(file.fileno()).st_size
            file.seek(0)
            data = memoryview(file.read())
        if complete and len(data) - end >= CHECKSUM.size:
            word, checksum = CHECKSUM.unpack(data[-CHECKSUM.size :])
            complete = word != WORD or checksum == zlib.crc32(data[: -CHECKSUM.size])
    except (OSError, OverflowError, MemoryError, struct.error):
        complete = False
    if not complete:
        raise ImportError(f"{Path(spec.origin).name} is incomplete or damaged; reinstall jtgpu")


def add_checksum(path: Path) -> None:
    """Append the checksum that `extension` compares."""
    with path.open("r+b") as file:
        sum_ = zlib.crc32(file.read())
        file.write(CHECKSUM.pack(WORD, sum_))


def _compile_for(name: str, arguments: tuple[Any, ...]) -> Any:
    """Compile a function for arguments that none of its signatures fits; the extension calls this."""
    undeclared.append(f"{name}{[_described(a) for a in arguments]}")
    if mode() == "ahead":
        raise JtgpuError(f"{name} was not built for these arguments: {[_described(a) for a in arguments]}")
    module, _, function = name.rpartition(".")
    return _compiled(module, function)(*arguments)


def _compiled(module: str, name: str) -> Any:
    """A function that Numba compiles."""
    from .jit import entry  # imports Numba

    return entry(getattr(importlib.import_module(module), name))


def _described(argument: Any) -> str:
    if isinstance(argument, tuple):
        return f"{type(argument).__name__}({', '.join(map(_described, argument))})"
    if hasattr(argument, "dtype"):
        flags = getattr(argument, "flags", None)
        order = "" if flags is None or flags.c_contiguous else ", not contiguous"
        frozen = "" if flags is None or flags.writeable else ", read-only"
        return f"{argument.dtype} of shape {argument.shape}{order}{frozen}"
    return type(argument).__name__


class Loops:
    """The compiled functions of a module, as attributes; each is found on first use."""

    def __init__(self, module: str):
        self._module = module
        self._addresses: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = self._ahead(name) or _compiled(self._module, name)
        setattr(self, name, function)
        return function

    def _ahead(self, name: str) -> Any:
        chosen = mode()
        if chosen == "jit":
            return None
        module, reason = extension()
        function = None if module is None else module.functions.get(f"{self._module}.{name}")
        if function is None and chosen == "ahead":
            raise JtgpuError(f"JTGPU_LOOPS=ahead, but {reason or f'{self._module}.{name} was not built'}")
        return function

    def address(self, name: str) -> int:
        """Address of a function for callers by the C convention; see `jtgpu.util.jit.address_of`.

        LLVM looks it up once: it holds a mutex meanwhile, which the child of a fork could never acquire.
        """
        if name not in self._addresses:
            if self._ahead(name) is not None:
                value = int(extension()[0].addresses[f"{self._module}.{name}"])
            else:
                from .jit import address_of  # imports Numba

                value = address_of(getattr(importlib.import_module(self._module), name))
            self._addresses[name] = value
        return self._addresses[name]

    def waits_for_compiler(self, name: str) -> str:
        """The folder where a function will be cached if the first call has to compile it, else an empty string."""
        if self._ahead(name) is not None:
            return ""
        from .jit import (
            is_compiled,  # imports Numba
            loops_folder,
        )

        function = getattr(importlib.import_module(self._module), name)
        return "" if is_compiled(function) else str(loops_folder())


@functools.cache
def loops(module: str) -> Loops:
    """The compiled functions of a module, by its full name."""
    return Loops(module)


# Compiling all loops before they are needed, for images and machines whose package has no extension module.

class CompileOutcome(NamedTuple):
    """The outcome of `compile_loops`."""

    place: str  # the extension module, or the folder of the cache
    reason: str  # why the extension module is not used; empty if it is
    compiled: int  # functions
    seconds: float


def compile_loops(progress: Callable[[str], None] = lambda line: None) -> CompileOutcome:
    """Compile every loop that is not compiled yet, on all cores."""
    # progress: Gets a line for every loop
    started = time.perf_counter()
    module, reason = extension()
    if mode() == "jit":
        module, reason = None, "JTGPU_LOOPS is jit"
    if module is not None:
        return CompileOutcome(str(Path(module.__file__)), "", 0, time.perf_counter() - started)
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from .jit import declared, is_compiled, loops_folder  # import Numba

    for name in loop_modules():
        importlib.import_module(name)
    names = [name for name, (function, _) in sorted(declared.items()) if not is_compiled(function)]
    folder = loops_folder()
    with ProcessPoolExecutor(min(cores(), max(len(names), 1)), get_context("spawn")) as pool:
        running = {pool.submit(compile_loop, name): name for name in names}
        for n, done in enumerate(as_completed(running), 1):
            done.result()
            progress(f"{n} of {len(names)}: {running[done]}")
    return CompileOutcome(str(folder), reason, len(names), time.perf_counter() - started)


def compile_loop(name: str) -> None:
    """Compile one function, by full name, for its signatures."""
    from .jit import declared
    from .signatures import numba_types

    importlib.import_module(name.rpartition(".")[0])
    function, signatures = declared[name]
    for signature in signatures:
        function.compile(numba_types(signature, function.py_func.__globals__))
