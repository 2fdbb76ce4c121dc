"""CUDA sources and their compilation: headers, types, the cache of cubins, nvcc."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jtgpu import errors
from jtgpu.device import nvcc
from jtgpu.util.arguments import reporting
from tests.support.examples import slow

PUBLISHED = [name for name in nvcc.sources() if name.startswith("published/")]


def test_there_is_no_python_package_in_the_source_folder() -> None:
    """One there would hide NVIDIA's cuda.bindings when run from the repository's root."""
    assert not list(nvcc.source_folder().rglob("*.py"))


def test_sources_are_joined_with_their_headers_once() -> None:
    assert set(nvcc.TRIALS) <= set(PUBLISHED)
    for name in PUBLISHED:
        text = nvcc.read_source(name, real="float32", index="uint64", ways=4)
        assert "#include" not in text, name
        assert text.count("struct Job {") == 1, name
        assert "#define JT_REAL float\n#define JT_INDEX unsigned long long\n#define JT_WAYS 4\n" in text


def test_no_warp_counts_on_lock_step() -> None:
    """No volatile, and no shuffle or barrier of a warp without its mask."""
    for name in PUBLISHED:
        code = re.sub(r"//[^\n]*", "", nvcc.read_source(name))
        assert not re.search(r"(?<!asm )\bvolatile\b", code), name
        assert not re.search(r"\b__(shfl|shfl_down|shfl_xor|ballot|any|all)\s*\(", code), name


@pytest.mark.parametrize("name", [PUBLISHED[0], *slow(*PUBLISHED[1:])])
def test_every_kernel_compiles(name: str, tmp_path: Path) -> None:
    """For one architecture; ``make check-kernels`` takes the others."""
    if nvcc.find_nvcc() is None:
        pytest.skip("no nvcc on this machine")
    image = nvcc.cubin(name, "sm_90", ways=2, cache=tmp_path)
    assert image[:4] == b"\x7fELF"
    kept = list(tmp_path.iterdir())
    assert [p.read_bytes() for p in kept] == [image]


@pytest.mark.slow
@pytest.mark.parametrize(("real", "index", "ways"), [("float32", "uint32", 2), ("float64", "uint64", 1)])
def test_other_types_compile(real: str, index: str, ways: int, tmp_path: Path) -> None:
    if nvcc.find_nvcc() is None:
        pytest.skip("no nvcc on this machine")
    for name in ("published/marginalise_n", "published/scatter", "published/normalise"):
        assert nvcc.cubin(name, "sm_90", real=real, index=index, ways=ways, cache=tmp_path)


def test_a_cached_kernel_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "_compile", lambda name, text, arch: b"image of " + name.encode())
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    assert nvcc.cubin("published/evidence", "sm_90") == b"image of published/evidence"
    monkeypatch.undo()
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: None)
    assert nvcc.cubin("published/evidence", "sm_90") == b"image of published/evidence"
    with pytest.raises(errors.BackendUnavailable, match="nvcc"):
        nvcc.cubin("published/evidence", "sm_91")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(nvcc, "_compile", lambda name, text, arch: b"image")
    assert nvcc.cubin("published/evidence", "sm_90", cache=tmp_path / "file" / "cubin") == b"image"


def test_errors_of_nvcc_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if nvcc.find_nvcc() is None:
        pytest.skip("no nvcc on this machine")
    monkeypatch.setattr(nvcc, "read_source", lambda *_, **__: "this is no CUDA")
    with pytest.raises(errors.BackendUnavailable, match="cannot compile"):
        nvcc.cubin("published/evidence", "sm_90", cache=tmp_path)


@pytest.mark.skipif(nvcc.find_nvcc() is None, reason="there is no nvcc")
def test_compilation_is_reported_once(tmp_path: Path) -> None:
    messages: list[str] = []
    with reporting(messages.append):
        for _ in range(2):
            nvcc.cubin("common/hold", "sm_90", cache=tmp_path)
    assert messages == ["compiling common/hold for sm_90 (one time; cached)"]
