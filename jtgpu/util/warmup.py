"""Compiling all loops before they are needed, for images and machines whose package has no extension module."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from .loop_sources import loop_modules
from .loops import extension, mode
from .system import cores


class Warmup(NamedTuple):
    """The outcome of `compile_loops`."""

    place: str  # the extension module, or the folder of the cache
    reason: str  # why the extension module is not used; empty if it is
    compiled: int  # functions
    seconds: float


def compile_loops(progress: Callable[[str], None] = lambda line: None) -> Warmup:
    """Compile every loop that is not compiled yet, on all cores."""
    # progress: Gets a line for every loop
    started = time.perf_counter()
    module, reason = extension()
    if mode() == "jit":
        module, reason = None, "JTGPU_LOOPS is jit"
    if module is not None:
        return Warmup(str(Path(module.__file__)), "", 0, time.perf_counter() - started)
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
    return Warmup(str(folder), reason, len(names), time.perf_counter() - started)


def compile_loop(name: str) -> None:
    """Compile one function, by full name, for its signatures."""
    from .jit import declared
    from .signatures import numba_types

    importlib.import_module(name.rpartition(".")[0])
    function, signatures = declared[name]
    for signature in signatures:
        function.compile(numba_types(signature, function.py_func.__globals__))
