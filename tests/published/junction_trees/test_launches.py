"""The launches that follow from the published rules, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jtgpu.device.context import Device
from jtgpu.published.junction_trees.indextables import Shape
from jtgpu.published.junction_trees.launches import LaunchBook, Task, block_size, scratch_cells
from jtgpu.published.junction_trees.rules import Rules
from jtgpu.published.junction_trees.tuning import Workbench
from tests.support.examples import examples


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


@pytest.mark.slow
@given(shape=shapes, options=rules)
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_launches_compute_what_they_should(emulated_gpu: Device, shape: Shape, options: dict[str, object]) -> None:
    device = emulated_gpu
    chosen = Rules(**options)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    psi = rng.random(shape.entries)
    axes = tuple(a for a, kept in enumerate(shape.kept) if not kept)
    sums = psi.reshape(shape.extents).sum(axis=axes).reshape(-1)
    tolerance = 1e-12 if chosen.dtype == "float64" else 1e-5
    with device.active():
        bench = Workbench(device, shape, chosen)
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


@given(
    n=st.integers(1, 1 << 20),
    m=st.integers(1, 1 << 20),
    options=rules,
    others=st.lists(st.tuples(st.integers(1, 1024), st.integers(1, 4096)), max_size=3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scratch_memory_is_enough(
    emulated_gpu: Device, n: int, m: int, options: dict[str, object], others: list[tuple[int, int]]
) -> None:
    """No launch of any shape, alone or with others, writes partial sums beyond what was set aside."""
    chosen = Rules(**options)  # type: ignore[arg-type]
    book = LaunchBook(emulated_gpu, chosen, "uint32")
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
