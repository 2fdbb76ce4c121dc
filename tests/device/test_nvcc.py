"""Kernels as far as they can be tested without a GPU: sources, cache, compilation, and the launches of every shape."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu import errors
from jtgpu.backends.published.indextables import Shape
from jtgpu.backends.published.launches import LaunchBook, Rules, Task, block_size, scratch_cells
from jtgpu.backends.published.tuning import Workbench
from jtgpu.device import nvcc as kernels
from tests.support.fake_device import FakeDevice

ENGINE = [name for name in kernels.sources() if name in kernels.TRIALS or "/" not in name]  # this engine's files


def test_there_is_no_python_package_in_the_source_folder() -> None:
    """One there would hide NVIDIA's cuda.bindings when run from the repository's root."""
    assert not list(kernels.source_folder().rglob("*.py"))


def test_sources_are_joined_with_their_headers_once() -> None:
    assert set(kernels.TRIALS) <= set(ENGINE)
    for name in ENGINE:
        text = kernels.read_source(name, real="float32", index="uint64", ways=4)
        assert "#include" not in text, name
        assert text.count("struct Job {") == 1, name
        assert "#define JT_REAL float\n#define JT_INDEX unsigned long long\n#define JT_WAYS 4\n" in text


def test_the_job_has_the_layout_of_the_kernels() -> None:
    """Field for field: names, order and sizes of `struct Job`."""
    header = (kernels.source_folder() / "job.cuh").read_text(encoding="utf-8")
    found = re.search(r"struct Job \{.*?\n(.*?)\};", header, re.DOTALL)
    assert found is not None
    fields = re.findall(r"^\s+(?:const )?(\w+)(\*?) (\w+);", found[1], re.MULTILINE)
    assert [name for _, _, name in fields] == list(kernels.JOB.names or ())
    sizes = {"u64": 8, "unsigned": 4}
    assert [8 if star else sizes[kind] for kind, star, _ in fields] == [
        kernels.JOB[name].itemsize for name in kernels.JOB.names or ()
    ]
    assert kernels.JOB.itemsize == 64


def test_no_warp_counts_on_lock_step() -> None:
    """No volatile, and no shuffle or barrier of a warp without its mask."""
    for name in ENGINE:
        code = re.sub(r"//[^\n]*", "", kernels.read_source(name))
        assert not re.search(r"(?<!asm )\bvolatile\b", code), name
        assert not re.search(r"\b__(shfl|shfl_down|shfl_xor|ballot|any|all)\s*\(", code), name


@pytest.mark.parametrize("name", ENGINE)
def test_every_kernel_compiles(name: str, tmp_path: Path) -> None:
    """For one architecture; ``make check-kernels`` takes the others."""
    if kernels.find_nvcc() is None:
        pytest.skip("no nvcc on this machine")
    image = kernels.cubin(name, "sm_90", ways=2, cache=tmp_path)
    assert image[:4] == b"\x7fELF"
    kept = list(tmp_path.iterdir())
    assert [p.read_bytes() for p in kept] == [image]


@pytest.mark.parametrize(("real", "index", "ways"), [("float32", "uint32", 2), ("float64", "uint64", 1)])
def test_other_types_compile(real: str, index: str, ways: int, tmp_path: Path) -> None:
    if kernels.find_nvcc() is None:
        pytest.skip("no nvcc on this machine")
    for name in ("marginalise_n", "scatter", "normalise"):
        assert kernels.cubin(name, "sm_90", real=real, index=index, ways=ways, cache=tmp_path)


def test_a_cached_kernel_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_compile", lambda name, text, arch: b"image of " + name.encode())
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    assert kernels.cubin("evidence", "sm_90") == b"image of evidence"
    monkeypatch.undo()
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "find_nvcc", lambda: None)
    assert kernels.cubin("evidence", "sm_90") == b"image of evidence"
    with pytest.raises(errors.BackendUnavailable, match="nvcc"):
        kernels.cubin("evidence", "sm_91")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(kernels, "_compile", lambda name, text, arch: b"image")
    assert kernels.cubin("evidence", "sm_90", cache=tmp_path / "file" / "cubin") == b"image"


def test_nvcc_says_what_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels.find_nvcc() is None:
        pytest.skip("no nvcc on this machine")
    monkeypatch.setattr(kernels, "read_source", lambda *_, **__: "this is no CUDA")
    with pytest.raises(errors.BackendUnavailable, match="refused"):
        kernels.cubin("evidence", "sm_90", cache=tmp_path)


# Launches, on a device that NumPy plays ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "most", "threads"), [(1024, 512, 512), (1023, 512, 512), (512, 512, 256), (1, 512, 1)]
)
def test_the_published_block_size(cells: int, most: int, threads: int) -> None:
    assert block_size(cells, most) == threads


rules = st.fixed_dictionaries(
    {
        "split_n": st.sampled_from([1, 4, 64, 512, 1025]),
        "marginalise_threads": st.sampled_from([32, 64, 512, 1024]),
        "scatter_threads": st.sampled_from([32, 256]),
        "ways": st.sampled_from([2, 4, 8, 16]),
        "scatter_ways": st.sampled_from([1, 4]),
        "scatter": st.sampled_from(["two_phase", "fused"]),
        "dtype": st.sampled_from(["float64", "float32"]),
    }
)
shapes = st.builds(
    lambda a, b, c, first: Shape((a, b, c), (first, not first, first)),
    st.integers(2, 40),
    st.integers(2, 40),
    st.integers(2, 9),
    st.booleans(),
)


@given(shape=shapes, options=rules)
def test_launches_compute_what_they_should(shape: Shape, options: dict[str, object]) -> None:
    device = FakeDevice()
    chosen = Rules(**options)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    psi = rng.random(shape.entries)
    axes = tuple(a for a, kept in enumerate(shape.kept) if not kept)
    sums = psi.reshape(shape.extents).sum(axis=axes).reshape(-1)
    tolerance = 1e-12 if chosen.dtype == "float64" else 1e-5
    with device.active():
        bench = Workbench(device, shape, chosen)  # type: ignore[arg-type]
        bench.load(psi)
        np.testing.assert_allclose(bench.marginalise()[0], sums, rtol=tolerance)
        old = rng.random(shape.n)
        old[::3] = 0.0
        new = np.where(old == 0, 0.0, 0.5)
        found, _ = bench.scatter(new, old)
        kept = [e if k else 1 for e, k in zip(shape.extents, shape.kept, strict=True)]
        ratio = np.divide(new, old, out=np.zeros(shape.n), where=old != 0).reshape(kept)
        expected = (psi.reshape(shape.extents) * ratio).reshape(-1)
        np.testing.assert_allclose(found, expected, rtol=tolerance)
        scaled, total, _ = bench.normalise()
        assert total == pytest.approx(expected.sum(), rel=tolerance)
        np.testing.assert_allclose(scaled, expected / expected.sum(), rtol=10 * tolerance)
        bench.close()
    assert not device.live


@given(
    n=st.integers(1, 1 << 20),
    m=st.integers(1, 1 << 20),
    options=rules,
    others=st.lists(st.tuples(st.integers(1, 1024), st.integers(1, 4096)), max_size=3),
)
def test_scratch_memory_is_enough(n: int, m: int, options: dict[str, object], others: list[tuple[int, int]]) -> None:
    """No launch of any shape, alone or with others, writes partial sums beyond what was set aside."""
    chosen = Rules(**options)  # type: ignore[arg-type]
    book = LaunchBook(FakeDevice(), chosen, "uint32")  # type: ignore[arg-type]
    size = np.dtype(chosen.dtype).itemsize
    tasks, room, at = [], {}, 1 << 50
    for a, b in [(n, min(m, (1 << 22) // n + 1)), *others]:
        cells = scratch_cells(a, b, chosen)
        tasks.append(Task(1, 2, 3, 4, a, b, at))
        room[at] = at + cells * size
        at += cells * size + (1 << 30)
    for step, jobs in zip(book.marginalise(tasks), book._jobs, strict=True):
        for job in jobs:
            if int(job["to"]) == 3:  # the separator's own table
                continue
            written = int(job["total"]) // int(job["ways"])
            if step.name.startswith("marginalise_m"):
                written = -(-written // step.threads) * int(job["n"])
            start = max(s for s in room if s <= int(job["to"]))
            assert int(job["to"]) + written * size <= room[start]


@pytest.mark.parametrize(
    "wrong",
    [
        {"transfers": "sometimes"},
        {"marginalise_threads": 100},
        {"scatter_threads": 2048},
        {"split_n": 0},
        {"ways": 3},
        {"streams": 0},
        {"dtype": "float16"},
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rules(**wrong)  # type: ignore[arg-type]
