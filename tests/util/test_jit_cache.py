"""The cache of compiled loops on disk: damage, folders that cannot be written, a full disk."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jtgpu.util import jit
from jtgpu.util.jit import compiled
from tests.conftest import ROOT
from tests.util import small_loops


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of loops."""
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    jit.loops_folder.cache_clear()
    yield tmp_path / "loops"
    jit.loops_folder.cache_clear()


def twice(x: int) -> int:
    return 2 * x


def thrice(x: int) -> int:
    return 3 * x


def answer(function: Callable[[int], int] = twice) -> tuple[int, int]:
    """The function's value at 21, and how often it was found in the cache."""
    dispatcher: Any = compiled("i8")(function)
    return dispatcher(21), sum(dispatcher._cache_hits.values())


def test_a_function_is_compiled_once(folder: Path) -> None:
    assert answer() == (42, 0)
    (file,) = folder.iterdir()
    assert file.name.endswith(".bin")
    assert answer() == (42, 1)


def flip(data: bytes) -> bytes:
    return data[:-500] + bytes([data[-500] ^ 1]) + data[-499:]


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:20], lambda data: data[: len(data) // 2], flip, lambda data: b"text\n" * 99],
    ids=["empty", "header", "half", "flipped bit", "foreign"],
)
def test_a_damaged_file_is_written_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    answer()
    (file,) = folder.iterdir()
    good = file.read_bytes()
    file.write_bytes(damage(good))
    dispatcher: Any = compiled("i8")(twice)
    assert not jit.is_compiled(dispatcher)  # else the message that kernels are compiled would be missing
    assert answer() == (42, 0)
    assert len(file.read_bytes()) > 1000
    assert answer() == (42, 1)


def test_the_file_of_another_function_is_not_run(folder: Path) -> None:
    answer(thrice)
    (other,) = folder.iterdir()
    answer(twice)
    (file,) = set(folder.iterdir()) - {other}
    shutil.copy(other, file)
    assert answer(twice) == (42, 0)


def test_a_folder_in_place_of_a_file_is_ignored(folder: Path) -> None:
    answer()
    (file,) = folder.iterdir()
    file.unlink()
    file.mkdir()
    assert answer() == (42, 0)


def test_a_full_disk_costs_only_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *rest: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(jit, "write_bytes", full)
    assert answer() == (42, 0)
    assert answer() == (42, 0)


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_costs_only_the_cache(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    code = "from tests.util.test_jit_cache import answer; print(answer())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"JTGPU_CACHE_DIR": str(tmp_path)}, check=False,
        capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )  # fmt: skip
    assert done.stdout == "(42, 0)\n", done.stderr
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


@pytest.fixture
def no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither the package's folder nor the user's can be written (root may write anywhere: they are below files)."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.delenv("JTGPU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setattr(jit, "ROOT", file)
    jit.loops_folder.cache_clear()
    yield
    jit.loops_folder.cache_clear()


@pytest.mark.usefixtures("no_folder")
def test_without_a_folder_there_is_a_private_one_and_one_warning() -> None:
    with pytest.warns(RuntimeWarning, match="JTGPU_CACHE_DIR"):
        assert answer() == (42, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answer() == (42, 1)
    private = jit.loops_folder()
    assert private.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(private)


def test_a_named_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path / "file"))
    jit.loops_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match="file"):
        assert answer() == (42, 0)
    shutil.rmtree(jit.loops_folder())
    jit.loops_folder.cache_clear()


def test_constant_arrays_are_compiled_for_once(folder: Path) -> None:
    numbers = np.arange(3.0)
    frozen = numbers.copy()
    frozen.flags.writeable = False
    called = jit.entry(small_loops.half_sum)
    assert called(numbers) == called(frozen) == 1.5
    assert numbers.flags.writeable
    assert len(small_loops.half_sum.signatures) == 1
