"""Compiled loops: where they come from, and what they depend on."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from jtgpu.errors import JtgpuError
from jtgpu.util import loop_sources, loops


@pytest.fixture
def copied_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources of all loops, whose digest is taken."""
    for path in loop_sources.sources():
        to = tmp_path / path.relative_to(loop_sources.ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    monkeypatch.setattr(loop_sources, "ROOT", tmp_path)
    loop_sources.source_digest.cache_clear()
    yield tmp_path
    loop_sources.source_digest.cache_clear()


@pytest.mark.parametrize("name", ["backends/cpu/loops/sweep.py", "backends/cpu/records.py", "plans/specialise.py"])
def test_the_digest_depends_on_every_source(copied_sources: Path, name: str) -> None:
    first = loop_sources.source_digest()
    path = copied_sources / name
    text = path.read_text()
    path.write_text(text + "# another line\n")
    loop_sources.source_digest.cache_clear()
    assert loop_sources.source_digest() != first
    path.write_text(text)  # another time, the same content
    (copied_sources / "backends/cpu/engine.py").write_text("# nothing that is compiled\n")
    loop_sources.source_digest.cache_clear()
    assert loop_sources.source_digest() == first


SWEEP = "jtgpu.backends.cpu.loops.sweep"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An extension module of these sources, with one function."""
    module: Any = ModuleType("jtgpu._loops_v3")
    module.__file__ = "/somewhere/_loops_v3.so"
    module.digest, module.functions = loop_sources.source_digest(), {f"{SWEEP}.hashes": lambda *arguments: arguments}
    module.addresses = {f"{SWEEP}.hashes": 123}
    module.set_fallback = lambda function: setattr(module, "fallback", function)
    monkeypatch.setitem(sys.modules, "jtgpu._loops_v3", module)
    monkeypatch.delenv("JTGPU_LOOPS", raising=False)
    loops.extension.cache_clear()
    yield module
    loops.extension.cache_clear()


def test_functions_come_from_the_extension(built: Any) -> None:
    found = loops.Loops(SWEEP)
    assert found.hashes(1, 2) == (1, 2)
    assert found.address("hashes") == 123
    assert found.waits_for_compiler("hashes") == ""
    assert built.fallback is not None


def test_an_address_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM holds a mutex meanwhile: a child that was forked at that moment would wait for it for ever."""
    monkeypatch.setenv("JTGPU_LOOPS", "jit")
    addresses = iter([7, 8])
    monkeypatch.setattr("jtgpu.util.jit.address_of", lambda function: next(addresses))
    found = loops.Loops(SWEEP)
    assert [found.address("hashes") for _ in range(3)] == [7, 7, 7]


def test_functions_that_the_extension_lacks_are_those_of_the_module(built: Any) -> None:
    assert loops.Loops(SWEEP).evidence_log.py_func.__name__ == "evidence_log"


def test_an_extension_of_other_sources_is_not_used(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    built.digest = "another"
    assert loops.extension() == (None, "the sources have changed since _loops_v3.so was built")
    assert loops.Loops(SWEEP).hashes.py_func.__name__ == "hashes"
    monkeypatch.setenv("JTGPU_LOOPS", "ahead")
    with pytest.raises(JtgpuError, match="sources have changed"):
        loops.Loops(SWEEP).hashes(1)


def test_the_environment_chooses(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JTGPU_LOOPS", "jit")
    assert loops.Loops(SWEEP).hashes.py_func.__name__ == "hashes"
    monkeypatch.setenv("JTGPU_LOOPS", "ahead")
    with pytest.raises(JtgpuError, match="evidence_log was not built"):
        loops.Loops(SWEEP).evidence_log(1)
    monkeypatch.setenv("JTGPU_LOOPS", "sometimes")
    with pytest.raises(JtgpuError, match="auto, jit or ahead"):
        loops.Loops(SWEEP).hashes(1)


def test_undeclared_arguments_go_to_numba(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loops.extension()
    numbers, ptr = np.arange(10, dtype=np.int32), np.array([0, 5, 10])
    monkeypatch.setattr(loops, "undeclared", [])
    module: Any = ModuleType("tests.util.no_loops")
    module.hashes = lambda *arguments: len(arguments)
    module.hashes.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert built.fallback("tests.util.no_loops.hashes", (numbers, ptr)) == 2
    (call,) = loops.undeclared
    assert call == "tests.util.no_loops.hashes['int32 of shape (10,)', 'int64 of shape (3,)']"
    monkeypatch.setenv("JTGPU_LOOPS", "ahead")
    with pytest.raises(JtgpuError, match="int32"):
        built.fallback("tests.util.no_loops.hashes", (numbers[::2], (ptr,)))
