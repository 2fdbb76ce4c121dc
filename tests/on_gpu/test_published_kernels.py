"""Every kernel variant against NumPy over a table of shapes: 1 to 2^20 either side, padding, zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jtgpu.device.context import Device, Launch
from jtgpu.device.structs import JOB
from jtgpu.published.junction_trees import host
from jtgpu.published.junction_trees.indextables import Shape
from jtgpu.published.junction_trees.rules import Rules
from jtgpu.published.junction_trees.tuning import Workbench

KEPT_LAST, KEPT_FIRST, KEPT_BOTH = (False, True), (True, False), (True, False, True)
# (extents, kept): n is the product of the kept extents, m of the others
SHAPES = [
    Shape((m, n), KEPT_LAST)
    for n, m in [
        (1, 1), (1, 2), (1, 3), (1, 31), (1, 1000), (1, 1 << 20), (1, (1 << 20) - 1), (2, 1), (2, 5), (2, 1 << 19),
        (3, 4), (3, 33), (3, 349_525), (5, 7), (8, 8), (16, 1), (16, 17), (17, 16), (31, 31), (32, 32), (33, 33),
        (64, 3), (100, 100), (100, 10_007), (128, 1), (255, 257), (256, 256), (257, 255), (500, 5), (511, 2),
        (512, 1), (512, 2), (512, 2049), (513, 3), (600, 777), (1000, 1000), (1023, 1), (1024, 1024), (1025, 3),
        (4097, 9), (5280, 16), (65_536, 16), (100_003, 7), (1 << 20, 1), ((1 << 20) - 1, 1), (1 << 20, 2),
        (700_001, 3),
    ]
] + [
    Shape((2, 1 << 19), KEPT_FIRST), Shape((300, 3000), KEPT_FIRST), Shape((5000, 11), KEPT_FIRST),
    Shape((40_000, 3), KEPT_FIRST), Shape((7, 5, 11), KEPT_BOTH), Shape((60, 25, 70), KEPT_BOTH),
    Shape((3, 1000, 5), KEPT_BOTH), Shape((2, 3, 4, 5, 6, 7, 8), (True, False) * 3 + (True,)),
    Shape((), ()), Shape((9,), (True,)), Shape((9,), (False,)),
]  # fmt: skip
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def name_of(shape: Shape) -> str:
    return f"n{shape.n}-m{shape.m}-{''.join('k' if k else 's' for k in shape.kept)}"


def table(shape: Shape, seed: int) -> np.ndarray:
    """Numbers of very different sizes, a quarter of them zero."""
    rng = np.random.default_rng(seed)
    psi = rng.random(shape.entries) * 10.0 ** rng.integers(-6, 3, shape.entries)
    psi[rng.random(shape.entries) < 0.25] = 0.0
    return psi


def sums(shape: Shape, psi: np.ndarray) -> np.ndarray:
    """The definition, without index tables: sum over the axes that are not kept."""
    axes = tuple(a for a, kept in enumerate(shape.kept) if not kept)
    summed: np.ndarray = psi.astype(np.float64).reshape(shape.extents).sum(axis=axes)
    return summed.reshape(-1)


def spread(shape: Shape, ratio: np.ndarray) -> np.ndarray:
    """The ratio of every entry of the clique."""
    kept = [e if k else 1 for e, k in zip(shape.extents, shape.kept, strict=True)]
    return np.broadcast_to(ratio.reshape(kept), shape.extents).reshape(-1)


MARGINALISATIONS: list[dict[str, Any]] = [
    {"split_n": 1025, "marginalise_m": kind, "marginalise_threads": t}
    for kind in ("syncwarp", "shuffle")
    for t in (32, 64, 128, 256, 512, 1024)
] + [
    {"split_n": split, "ways": w, "marginalise_m": kind, "marginalise_threads": t}
    for split, kind, w, t in (
        (1025, "syncwarp", 4, 512), (1025, "syncwarp", 8, 128), (1025, "syncwarp", 16, 512), (1025, "shuffle", 8, 256),
        (1, "syncwarp", 2, 512), (1, "syncwarp", 2, 64), (1, "syncwarp", 4, 256), (1, "syncwarp", 8, 512),
        (1, "syncwarp", 16, 1024),
    )
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
@pytest.mark.parametrize(("real", "index"), [("float64", "uint32"), ("float64", "uint64"), ("float32", "uint32")])
def test_marginalisation_agrees_with_numpy(active: Device, shape: Shape, real: str, index: str) -> None:
    psi = table(shape, 1).astype(real)
    expected = sums(shape, psi)
    bench = Workbench(active, shape, Rules(dtype=real), index)
    try:
        bench.load(psi)
        halves = []
        for options in MARGINALISATIONS:
            if options["split_n"] > 1 and shape.n > 1024:
                continue  # the m-parallel kernel is not for them
            bench.use(Rules(dtype=real, **options))
            found, _ = bench.marginalise()
            np.testing.assert_allclose(found, expected, rtol=TOLERANCE[real], atol=0, err_msg=str(options))
            if options["split_n"] == 1:
                halves.append(found)
        for other in halves[1:]:  # the same halvings, whether in one launch or in four
            np.testing.assert_array_equal(other, halves[0])
    finally:
        bench.close()


SCATTERINGS: list[dict[str, Any]] = [
    {"scatter": kind, "scatter_threads": t, "scatter_ways": w}
    for kind in ("two_phase", "fused")
    for t, w in ((32, 1), (256, 1), (1024, 1), (256, 2), (256, 4), (128, 8))
]


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
@pytest.mark.parametrize(("real", "index"), [("float64", "uint32"), ("float64", "uint64"), ("float32", "uint32")])
def test_scattering_agrees_with_numpy(active: Device, shape: Shape, real: str, index: str) -> None:
    psi = table(shape, 2).astype(real)
    rng = np.random.default_rng(3)
    old = rng.random(shape.n).astype(real)
    new = rng.random(shape.n).astype(real)
    old[rng.random(shape.n) < 0.3] = 0.0
    new[old == 0] = 0.0  # 0/0 = 0
    ratio = np.divide(new.astype(np.float64), old, out=np.zeros(shape.n), where=old != 0)
    expected = psi.astype(np.float64) * spread(shape, ratio)
    bench = Workbench(active, shape, Rules(dtype=real), index)
    try:
        for options in SCATTERINGS:
            bench.use(Rules(dtype=real, **options))
            bench.load(psi)
            found, _ = bench.scatter(new, old)
            np.testing.assert_allclose(found, expected, rtol=TOLERANCE[real], atol=0, err_msg=str(options))
            assert np.isfinite(found).all()
    finally:
        bench.close()


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
@pytest.mark.parametrize("real", ["float64", "float32"])
def test_normalisation_agrees_with_numpy(active: Device, shape: Shape, real: str) -> None:
    psi = table(shape, 4).astype(real)
    psi[0] = 3.0
    bench = Workbench(active, shape, Rules(dtype=real))
    try:
        bench.load(psi)
        found, total, _ = bench.normalise()
        exact = psi.astype(np.float64).sum()
        assert total == pytest.approx(exact, rel=1e-12)
        np.testing.assert_allclose(found, psi.astype(np.float64) / exact, rtol=TOLERANCE[real], atol=0)
        again = bench.normalise()[0]
        np.testing.assert_allclose(again, found, rtol=TOLERANCE[real])
        bench.load(np.zeros(shape.entries))
        found, total, _ = bench.normalise()  # impossible evidence: no NaN, the host finds the 0
        assert total == 0.0
        assert not found.any()
    finally:
        bench.close()


@pytest.mark.parametrize("shape", SHAPES[::3], ids=name_of)
def test_cublas_normalises_the_same(active: Device, shape: Shape) -> None:
    from jtgpu.errors import BackendUnavailable

    stream = active.stream()
    try:
        blas = active.blas(stream, np.float64)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    psi = table(shape, 5)
    psi[0] = 3.0
    memory = active.alloc(psi.nbytes)
    try:
        active.upload(int(memory), psi, stream)
        total = blas.normalise(int(memory), shape.entries)
        found = np.empty_like(psi)
        active.download(found, int(memory), stream)
        stream.synchronize()
    finally:
        memory.free()
        blas.close()
    assert total == pytest.approx(psi.sum(), rel=1e-12)
    np.testing.assert_allclose(found, psi / psi.sum(), rtol=1e-12)


CONSTANT = [s for s in SHAPES if s.padded_entries * 4 <= 65_536]


@pytest.mark.parametrize("shape", CONSTANT, ids=name_of)
def test_index_tables_in_constant_memory(active: Device, shape: Shape) -> None:
    """The trial that keeps a small index table in constant memory: the same launches but for where indices are."""
    file = "published/trials/constant_index"
    psi = table(shape, 6)
    bench = Workbench(active, shape, Rules())
    address, room = active.symbol(file, "constant_index")
    assert room == 65_536
    try:
        bench.load(psi)
        active.upload(address, bench.table.index, bench.stream)
        bench._index_at = 0  # reading it from global memory fails
        for split in (1025, 1):
            if split > 1 and (shape.n > 512 or shape.padded_entries < 1024):
                continue  # the trial has one instance, of 512 threads
            bench.use(Rules(split_n=split))
            found, _ = bench.marginalise_by(file)
            np.testing.assert_allclose(found, sums(shape, psi), rtol=1e-12, err_msg=str(split))
        new, old = np.full(shape.n, 3.0), np.full(shape.n, 2.0)
        found, _ = bench.scatter_by(file, new, old)
        np.testing.assert_allclose(found, psi * 1.5, rtol=1e-12)
    finally:
        bench.close()


def test_many_jobs_of_different_shapes_share_a_launch(active: Device) -> None:
    """A level's messages: one job list, one map, blocks of very different numbers."""
    from jtgpu.published.junction_trees.launches import LaunchBook, Task, scratch_cells

    rules = Rules(transfers="resident")
    shapes = [s for s in SHAPES if s.entries <= 1 << 17]
    benches = [Workbench(active, s, rules) for s in shapes]
    scratch = active.alloc(8 * sum(scratch_cells(s.n, s.m, rules) + 32 for s in shapes))
    book = LaunchBook(active, rules, "uint32")
    tasks, at = [], int(scratch)
    for s, b in zip(shapes, benches, strict=True):
        b.load(table(s, 7))
        tasks.append(Task(b._psi, b._index_at, b._new, b._old, s.n, s.m, at))
        at += 8 * (scratch_cells(s.n, s.m, rules) + 31) // 256 * 256
    try:
        steps = book.marginalise(tasks)
        book.send(benches[0].stream)
        for launch in book.ready(steps):
            active.launch(launch, benches[0].stream)
        benches[0].stream.synchronize()
        for s, b in zip(shapes, benches, strict=True):
            np.testing.assert_allclose(b._get(b._new, s.n), sums(s, table(s, 7)), rtol=1e-12, err_msg=name_of(s))
    finally:
        book.close()
        scratch.free()
        for b in benches:
            b.close()


@pytest.mark.parametrize(("card", "stride", "outer"), [(2, 1, 5), (3, 7, 11), (21, 1000, 13), (2, 1 << 19, 1)])
def test_evidence_multiplies_a_weight_a_state(active: Device, card: int, stride: int, outer: int) -> None:
    rng = np.random.default_rng(8)
    psi, weight = rng.random((outer, card, stride)), rng.random(card)
    stream = active.stream()
    memory = active.alloc(psi.nbytes + weight.nbytes + JOB.itemsize)
    base = int(memory)
    job = np.zeros(1, JOB)
    job["to"], job["other"], job["total"] = base, base + psi.nbytes, psi.size
    job["n"], job["ways"] = card, stride
    try:
        active.upload(base, psi, stream)
        active.upload(base + psi.nbytes, weight, stream)
        active.upload(base + psi.nbytes + weight.nbytes, job, stream)
        kernel = active.function("published/evidence", "evidence")
        launch = Launch(kernel, (-(-psi.size // 256), 1, 1), (256, 1, 1), base + psi.nbytes + weight.nbytes, 0)
        active.launch(launch, stream)
        found = np.empty_like(psi)
        active.download(found, base, stream)
        stream.synchronize()
    finally:
        memory.free()
    np.testing.assert_array_equal(found, psi * weight[None, :, None])


def test_the_host_operations_are_the_definition() -> None:
    """What the CPU fallback does, held to the same definition as the kernels."""
    from jtgpu.published.junction_trees.indextables import build

    for shape in SHAPES[::4]:
        psi, out, index = table(shape, 9), np.empty(shape.n), build(shape).inner
        host.marginalise(psi, index, out)
        np.testing.assert_allclose(out, sums(shape, psi), rtol=1e-12)
