"""The extension module of compiled loops: arguments, results, errors, and arguments of undeclared types."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import platform
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jtgpu.util import jit
from tests.util import small_loops
from tests.util.small_loops import Pair

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not shutil.which("cc"),
    reason="extension modules are built on Linux, x86-64, with a C compiler",
)
MODULE = "tests.util.small_loops"
NAMES = [n for n, f in vars(small_loops).items() if hasattr(f, "py_func") and not n.startswith("_")]


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The extension module of `small_loops`."""
    from jtgpu.util import ahead, machine_code

    folder = tmp_path_factory.mktemp("ahead")
    entries = [machine_code.compile_entry(f"{MODULE}.{name}", "x86-64-v3", str(folder)) for name in NAMES]
    jit.use_cache(True)  # `compile_entry` is made for processes that only build
    ahead._check(entries)
    text = folder / "loops.c"
    text.write_text(ahead.source(entries, "_small", "x86-64-v3", "digest of the sources"))
    ahead._link(text, [e.object_file for e in entries], folder / "_small.so")
    spec = importlib.util.spec_from_file_location("jtgpu._small", folder / "_small.so")
    assert spec is not None
    return importlib.util.module_from_spec(spec)


@pytest.fixture
def call(extension: Any) -> Any:
    """Call a function of the extension; an argument that does not fit is an error here."""
    def called(name: str, *arguments: object) -> Any:
        return extension.functions[f"{MODULE}.{name}"](*arguments)

    def misfit(name: str, arguments: tuple[object, ...]) -> Any:
        raise LookupError(name)

    extension.set_fallback(misfit)
    return called


def pair() -> Pair:
    return Pair(np.arange(3.0), np.arange(6).reshape(2, 3), 2.0, 10, True)


@pytest.mark.slow
def test_it_says_what_it_was_built_from(extension: Any) -> None:
    assert (extension.digest, extension.level) == ("digest of the sources", "x86-64-v3")
    assert sorted(extension.functions) == sorted(f"{MODULE}.{name}" for name in NAMES)


@pytest.mark.slow
def test_arrays_numbers_and_flags(call: Any) -> None:
    found = call("scaled", np.arange(4.0), 3, True)
    assert found.tolist() == [0.0, -3.0, -6.0, -9.0]
    assert found.flags.writeable
    assert found.flags.c_contiguous
    assert call("scaled", np.zeros(0), np.int64(3), np.False_).tolist() == []
    assert call("plain", 3, 0.5) == 1.5
    numbers = np.zeros(3, np.int32)
    assert call("fill", numbers, 7) is None
    assert call("unsigned", 2**64 - 1, 63) == call("unsigned", np.uint64(2**63), 63) == 1
    for arguments in ((-1, 1), (2**64, 1), (1, 2**31), (1.0, 1)):
        with pytest.raises(LookupError):
            call("unsigned", *arguments)
    assert numbers.tolist() == [7, 7, 7]


@pytest.mark.slow
def test_tuples_of_arrays_and_numbers(call: Any) -> None:
    total, table, ints, flag, small = call("several", pair(), (np.arange(2), 5))
    assert (total, flag, small) == (6.0, True, 5)
    assert table.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert ints.tolist() == [10, 11]
    found = call("swapped", pair())
    assert type(found) is Pair
    assert (found.numbers.tolist(), found.scale, found.n, found.flag) == ([1.0, 2.0, 3.0], -2.0, 11, False)
    assert call("in_order", np.array([3.0, 1.0, 2.0, 1.0])).tolist() == [1, 3, 2, 0]


@pytest.mark.slow
def test_results_outlive_the_call(call: Any) -> None:
    kept = [call("scaled", np.full(1000, float(i)), 1, False) for i in range(200)]
    views = [array[::2] for array in kept]
    del kept
    gc.collect()
    assert [view[-1] for view in views] == list(range(200))


@pytest.mark.slow
def test_results_are_those_of_numba(call: Any) -> None:
    numbers = np.random.default_rng(1).random(1000)
    assert call("half_sum", numbers) == jit.entry(small_loops.half_sum)(numbers)


@pytest.mark.slow
def test_constant_arrays_may_be_read_only(call: Any) -> None:
    numbers = np.ones(4)
    numbers.flags.writeable = False
    assert call("half_sum", numbers) == 2.0
    with pytest.raises(LookupError):
        call("scaled", numbers, 1, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (np.arange(4), 3, True), (np.arange(4.0, dtype=np.float32), 3, True), (np.arange(8.0)[::2], 3, True),
        (np.zeros((2, 2)), 3, True), (np.arange(4.0).astype(">f8"), 3, True), ([1.0], 3, True),
        (np.arange(4.0), 3.5, True),
        (np.arange(4.0), 2**63, True), (np.arange(4.0), 3, 1), (np.arange(4.0), 3), (np.arange(4.0), 3, True, 4), (),
    ],
    ids=["ints", "float32", "strided", "matrix", "byte order", "list", "float", "large", "int", "few", "many", "none"],
)  # fmt: skip
def test_other_types_go_to_the_fallback(call: Any, arguments: tuple[object, ...]) -> None:
    with pytest.raises(LookupError, match=f"{MODULE}.scaled"):
        call("scaled", *arguments)


@pytest.mark.slow
def test_the_fallback_answers(extension: Any) -> None:
    extension.set_fallback(lambda name, arguments: (name, len(arguments)))
    assert extension.functions[f"{MODULE}.several"](pair(), (np.arange(2.0), 5)) == (f"{MODULE}.several", 2)
    assert extension.functions[f"{MODULE}.swapped"](tuple(pair())[:4]) == (f"{MODULE}.swapped", 1)


@pytest.mark.slow
def test_errors_of_loops_are_raised(call: Any) -> None:
    assert call("checked", 3) == 3
    with pytest.raises(ValueError, match="n is negative"):
        call("checked", -1)
    with pytest.raises((ValueError, SystemError)):
        call("assigned", np.zeros(3, np.int64), np.zeros(2, np.int64))


@pytest.mark.slow
def test_compiled_code_calls_by_address(extension: Any) -> None:
    address = extension.addresses[f"{MODULE}.plain"]
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(address)(3, 0.5) == 1.5
    assert f"{MODULE}.scaled" not in extension.addresses


def test_what_numba_lacks_at_run_time_is_found_while_building(tmp_path: Path) -> None:
    from jtgpu.util import ahead, machine_code, signatures

    entry = machine_code.Entry("name", "symbol", (), signatures.NumberType(""), "", ("NRT_unknown", "PyErr_Clear"))
    with pytest.raises(ahead.BuildError, match="NRT_unknown"):
        ahead._check([entry])


def test_a_module_of_the_same_sources_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jtgpu.util import ahead

    found, other = tmp_path / "package" / "_loops_v3.so", tmp_path / "wheel"
    found.parent.mkdir()
    other.mkdir()
    found.write_text("machine code")
    monkeypatch.setattr(ahead, "extension", lambda: (SimpleNamespace(__file__=str(found)), ""))
    assert ahead.main([str(other)]) == ahead.main([str(found.parent)]) == 0
    assert (other / found.name).read_text() == "machine code"
    assert capsys.readouterr().out == "_loops_v3.so is up to date\n" * 2
    built: list[Path] = []
    monkeypatch.setattr(ahead, "extension", lambda: (None, "the sources have changed"))
    monkeypatch.setattr(ahead, "build", built.append)
    assert ahead.main([str(other)]) == 0
    assert built == [other]
