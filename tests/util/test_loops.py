"""Compiled loops: where they come from, and what they depend on."""

from __future__ import annotations

import ast
import importlib
import shutil
import subprocess
import sys
import sysconfig
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


def test_every_source_of_loops_is_found(copied_sources: Path) -> None:
    first = loop_sources.source_digest()
    before = loop_sources.loop_modules()
    for folder in ("room/corner/loops", "__pycache__/loops", "empty/loops"):
        (copied_sources / folder).mkdir(parents=True)
    (copied_sources / "__pycache__/loops/code.py").write_text("# not a source\n")
    assert loop_sources.loop_modules() == before
    loop_sources.source_digest.cache_clear()
    assert loop_sources.source_digest() == first
    for name in ("__init__", "sums"):
        (copied_sources / f"room/corner/loops/{name}.py").write_text("# sums\n")
    (copied_sources / "room/sum_loops.py").write_text("# sums\n")
    (copied_sources / "__pycache__/sum_loops.py").write_text("# not a source\n")
    added = sorted({*loop_sources.loop_modules()} - {*before})
    assert added == ["jtgpu.room.corner.loops.sums", "jtgpu.room.sum_loops"]
    loop_sources.source_digest.cache_clear()
    assert loop_sources.source_digest() != first


def test_modules_of_loops_are_those_of_the_package() -> None:
    found = loop_sources.loop_modules()
    assert {"jtgpu.backends.cpu.loops.sweep", "jtgpu.plans.loops.specialise"} < {*found}
    assert {"jtgpu.columns.loops.csv", "jtgpu.published.durbin_loops"} < {*found}
    assert all(name.split(".")[-2] == "loops" or name.endswith("_loops") for name in found)
    assert all((path.parent / "__init__.py").is_file() for path in loop_sources.sources())  # else no wheel has them


def test_what_loops_import_is_a_source() -> None:
    """Constants are compiled into the loops: a change of them must change the digest."""
    known = {path.resolve() for path in loop_sources.sources()}
    missing = set()
    for path in known:
        if path.parent.name != "loops" and not path.name.endswith("_loops.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                names = [base, *(base / each.name for each in node.names)]
                missing |= {file for name in names if (file := name.with_suffix(".py")).is_file()} - known
    assert not missing


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


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files")
@pytest.mark.parametrize("damage", ["half", "last bytes", "zeros", "empty", "one byte"])
def test_an_extension_that_was_cut_off_is_not_loaded(damage: str, tmp_path: Path) -> None:
    """The dynamic loader ends the process by SIGBUS: in a process of its own."""
    (built_file,) = Path(importlib.import_module("_ctypes").__file__ or "").parent.glob("_ctypes.*.so")
    data = built_file.read_bytes()
    half = len(data) // 2
    cuts = {"half": data[:half], "last bytes": data[:-1], "zeros": data[:half] + bytes(half), "empty": b""}
    file = tmp_path / f"_loops_cut{sysconfig.get_config_var('EXT_SUFFIX')}"
    file.write_bytes(cuts.get(damage, data))
    if damage == "one byte":
        loops.add_checksum(file)
        changed = bytearray(file.read_bytes())
        changed[half] ^= 1
        file.write_bytes(changed)
    code = (
        "import sys, jtgpu; from jtgpu.util import loops; loops.LEVELS = {'v3': '_loops_cut'}; "
        "jtgpu.__path__.append(sys.argv[1]); print(*loops.extension())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert done.stdout.startswith("None _loops_cut")
    assert "is incomplete or damaged" in done.stdout


def test_declared_functions_have_one_signature() -> None:
    """The extension module has one C function for each of them."""
    from jtgpu.util import jit, machine_code

    assert {name for name in machine_code.entries() if len(jit.declared[name][1]) > 1} == set()
