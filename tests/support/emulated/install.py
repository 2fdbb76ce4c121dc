"""Emulated GPUs for this process: `installed` replaces PyCUDA, cuda-bindings, cuBLAS and nvcc while its block runs."""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jtgpu.device import context, driver, nvcc
from tests.support.emulated import drivers
from tests.support.emulated.built import library, names_of
from tests.support.emulated.cards import cards, pins, violations

__all__ = ["compiler", "emulated_gpu", "installed", "needs_compiler", "raise_violations"]


def compiler() -> str | None:
    """The C++ compiler, or None."""
    return shutil.which("g++")


needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no g++ to build the kernels with")


def _modules() -> dict[str, types.ModuleType]:
    """The packages of CUDA by name."""
    made = {name: types.ModuleType(name) for name in ("pycuda", "cuda", "cuda.bindings", "skcuda")}
    for module in made.values():
        module.__path__ = []
    made["pycuda.driver"] = drivers.pycuda_driver()
    made["cuda.bindings.driver"] = drivers.bindings_driver()
    made["skcuda.cublas"] = drivers.cublas()
    for name, module in made.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(made[parent], child, module)
    return made


def _compiled(name: str, text: str, arch: str, *, cache: Path | None = None) -> bytes:
    """In place of nvcc: the source itself, which a module builds when it is loaded.

    Sources that are generated for one plan are built at once, since several threads compile them in parallel.
    """
    if name == "batch/lane":
        library(text, names_of(text))
    return b"emulated\n" + text.encode()


def install(patch: pytest.MonkeyPatch) -> None:
    """Replace the drivers and the compiler until `patch` is undone."""
    for name, module in _modules().items():
        patch.setitem(sys.modules, name, module)
    patch.setattr(context, "_opened", {})
    patch.setattr(nvcc, "compiled", _compiled)
    patch.setattr(nvcc, "find_nvcc", compiler)
    patch.setattr(driver, "_launch_call", lambda: drivers.launch_kernel_ex)
    original = driver.Arguments.__init__

    def remembered(self: driver.Arguments, *values: Any) -> None:
        original(self, *values)
        drivers.remember(self)

    patch.setattr(driver.Arguments, "__init__", remembered)


def raise_violations() -> None:
    """Fail if CUDA would have let a mistake pass since the last call."""
    for card in cards():
        for block in card.memory.values():
            block.look()
    found, n = sorted(set(violations)), len(violations)
    violations.clear()
    if found:
        pytest.fail(f"{n} mistakes:\n" + "\n".join(found))


@contextmanager
def installed() -> Iterator[None]:
    """Inside the block this process has emulated GPUs; every backend on them has to be closed there.

    Fails at the end if CUDA would have let a mistake pass, or if memory of a device or page-locked memory is leaked.
    """
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        violations.clear()
        try:
            yield
            raise_violations()
            leaked = [b.n_bytes for card in cards() for b in card.memory.values()], [b.n_bytes for b in pins.values()]
            assert leaked == ([], []), f"bytes of leaked device and page-locked memory: {leaked}"
        finally:
            context._close_all()
            for card in cards():
                card.memory.clear()
                card.taken = 0
            pins.clear()
            violations.clear()


@pytest.fixture
def emulated_gpu() -> Iterator[context.Device]:
    """The first emulated GPU, for one test; see `installed`."""
    if compiler() is None:
        pytest.skip("there is no g++ to build the kernels with")
    with installed():
        yield context.open_device(0)
