"""Screening on emulated GPUs: the bits of the CPU for every metric, any number of GPUs, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jtgpu import screen
from jtgpu.device.context import Device
from jtgpu.errors import ArgumentError, TableTooLarge
from jtgpu.options.compute import Compute
from jtgpu.published import outliers as published
from jtgpu.published import outliers_gpu
from jtgpu.screen import engine, reference
from jtgpu.screen.gpu_tree import Cells, DeviceTree, Launcher
from tests.screen.test_outliers import RNG, column, mixed, states
from tests.support.emulated.install import emulated_gpu, installed, needs_compiler

__all__ = ["emulated_gpu"]


@pytest.fixture(scope="module")
def gpus() -> Iterator[None]:
    with installed():
        yield


pytestmark = needs_compiler


def same_as_cpu(cases: Any, n: int, k: int, devices: Any = None, **more: Any) -> screen.Outliers:
    """Check all results against those of the CPU, bit for bit; the certificate by its definition."""
    wanted = screen.top_outliers(cases, n, k, compute="cpu", **more)
    found = screen.top_outliers(cases, n, k, compute=Compute(backend="gpu", devices=devices), **more)
    assert found.backend == "gpu"
    assert found.index.tolist() == wanted.index.tolist()
    assert found.weight.tolist() == wanted.weight.tolist()
    every = screen.weights(cases, k, compute=Compute(backend="gpu", devices=devices), **more)
    np.testing.assert_array_equal(column(cases, every), column(cases, screen.weights(cases, k, compute="cpu", **more)))
    chosen, rows = found.solving_set, found._screened.rows
    assert set(found.index.tolist()) <= set(chosen.tolist())
    others = np.setdiff1d(np.arange(len(rows)), chosen)
    measure = found._screened.columns.measure
    assert (reference.weights(measure, rows.take(others), rows.take(chosen), k) < found.threshold).all()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "a", "k", "metric"),
    [
        (150, 2, 5, "euclidean"),
        (90, 3, 32, "manhattan"),
        (300, 11, 40, "euclidean"),
        (70, 2, 70, "euclidean"),
        (300, 3, 5, "gower"),
        (140, 1, 120, "manhattan"),
        (33, 2, 1, "euclidean"),
    ],
)
def test_numbers_have_the_bits_of_the_cpu(gpus: None, n: int, a: int, k: int, metric: str) -> None:
    x = RNG(n + a).standard_normal((n, a))
    same_as_cpu(x, 5, k, metric=metric)
    same_as_cpu(np.round(x), 5, k, metric=metric)  # equal rows and equal weights


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-200, 1e6, 1e300])
def test_bounds_hold_for_numbers_beyond_float32(gpus: None, scale: float) -> None:
    x = RNG(5).standard_cauchy((80, 2))
    same_as_cpu(x / np.abs(x).max() * scale, 3, 9, metric="manhattan")
    same_as_cpu(x * 1e-3 + scale / 1e20, 3, 9, metric="manhattan")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "n_states", "missing"),
    [
        (12, 4, "error"),
        (9, 3, "ignore"),
        (70, 3, "error"),
        (70, 3, "ignore"),
        (5, 40, "state"),
        (6, 2, "state"),
    ],
)
def test_states_have_the_bits_of_the_cpu(gpus: None, a: int, n_states: int, missing: str) -> None:
    cases = states(200, a, n_states, holes=0.0 if missing == "error" else 0.15)
    same_as_cpu(cases, 5, 21, missing=missing)


@pytest.mark.slow
@pytest.mark.parametrize("holes", [0.0, 0.1])
def test_mixed_tables_have_the_bits_of_the_cpu(gpus: None, holes: float) -> None:
    same_as_cpu(mixed(300, holes=holes), 5, 15)


@pytest.mark.slow
def test_several_gpus_have_the_bits_of_one(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.screen.gpu_engine.FEWEST", 16)
    same_as_cpu(RNG(3).standard_normal((200, 2)), 5, 9, devices="all")
    same_as_cpu(RNG(3).standard_normal((200, 2)), 5, 9, devices=[0, 1, 1])


@pytest.mark.slow
def test_new_rows(gpus: None) -> None:
    x, new = RNG(1).standard_normal((100, 3)), RNG(2).standard_normal((40, 3)) * 2
    found, wanted = (screen.top_outliers(x, 4, 6, compute=b) for b in ("gpu", "cpu"))
    assert found.weights(new).tolist() == wanted.weights(new).tolist()
    assert (found.weights(new, "solving_set") >= found.weights(new)).all()
    assert found.predict(new).tolist() == wanted.predict(new).tolist()
    cases = states(60, 8, 3)
    unseen = np.array([["7"] + ["s0"] * 7, ["0"] + ["other"] * 7], object)
    found, wanted = (screen.top_outliers(cases, 4, 6, compute=b) for b in ("gpu", "cpu"))
    assert found.weights(unseen).tolist() == wanted.weights(unseen).tolist()


@pytest.mark.slow
def test_many_outliers_in_small_batches(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.screen.gpu_engine.FIRST_BATCH", 4)
    x = RNG(9).standard_cauchy((300, 2))
    wanted = screen.top_outliers(x, 3, 5, compute="cpu")
    found = screen.top_outliers(x, 3, 5, compute="gpu")
    assert found.weight.tolist() == wanted.weight.tolist()
    assert found.stats["searched"] < 300


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 31, 33, 5000])
def test_rows_are_sorted_by_their_places(emulated_gpu: Device, n: int) -> None:
    places = RNG(n).integers(0, 1 << 40, n) // 7 * 7
    places[n // 2 :] = 42  # ties stay in order
    cells = Cells(np.zeros((n, 1)), np.empty((n, 0), np.uint64), np.zeros(1, np.uint32))
    with emulated_gpu.active():
        launcher = Launcher(emulated_gpu)
        tree = DeviceTree(launcher, cells, np.ones(n, np.int64), places, has_boxes=True)
        order = launcher.get(tree.rows, n, np.uint32)
        launcher.close()
    assert order.tolist() == np.argsort(places, kind="stable").tolist()


@pytest.mark.slow
def test_a_tree_of_three_levels(gpus: None) -> None:
    x = RNG(0).standard_cauchy((32 * 32 * 33, 2))
    wanted = screen.top_outliers(x, 20, 21, compute="cpu")
    found = screen.top_outliers(x, 20, 21, compute="gpu")
    assert found.index.tolist() == wanted.index.tolist()
    assert found.weight.tolist() == wanted.weight.tolist()
    new = RNG(1).standard_normal((50, 2))
    assert found.weights(new).tolist() == wanted.weights(new).tolist()
    assert found.stats["pairs"] < 0.05 * len(x) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("name", published.SELECTIONS)
def test_published_selections_read_every_number_once(gpus: None, name: str) -> None:
    rng = RNG(5)
    for m, d, k in [(2, 500, 5), (3, 70, 7), (33, 9, 3), (1, 1, 1), (2, 5, 5)]:
        for numbers in (rng.random((m, d)), rng.integers(0, 4, (m, d)), np.sort(rng.random((m, d)))[:, ::-1]):
            single = numbers.astype(np.float32).astype(np.float64)
            np.testing.assert_array_equal(
                published.select(name, single, k, backend="gpu"), np.sort(single, axis=1)[:, :k]
            )


@pytest.mark.slow
@pytest.mark.parametrize("mode", published.MODES)
@pytest.mark.parametrize(("d", "n", "k", "m"), [(70, 3, 5, 10), (4, 1, 3, 3), (65, 65, 2, 200), (300, 4, 8, 16)])
def test_published_solving_set(gpus: None, mode: str, d: int, n: int, k: int, m: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(outliers_gpu, "WIDTH", 150)
    monkeypatch.setattr(outliers_gpu, "BLOCKS", 3)
    x = RNG(d).standard_normal((d, 2)).astype(np.float32).astype(float)
    found, wanted = published.gpu_solving_set(x, n, k, m, mode), published.nested_loop(x, n, k)
    assert found.index.tolist() == wanted.index.tolist()
    np.testing.assert_allclose(found.weight, wanted.weight, rtol=1e-5)
    assert set(found.index.tolist()) <= set(found.solving_set.tolist())
    assert len(found.solving_set) >= min(max(n, k), d)


@pytest.mark.slow
@pytest.mark.parametrize("mode", published.MODES)
def test_published_solving_set_of_a_micro_cluster(gpus: None, mode: str) -> None:
    """Printed, the sum of a list of fewer than k distances counts as a bound."""
    rng = RNG(1)
    x = np.concatenate([rng.standard_normal((80, 2)), 30 + 1e-3 * rng.standard_normal((4, 2))])
    found = published.gpu_solving_set(x, 4, 6, 3, mode)
    assert sorted(found.index.tolist()) == [80, 81, 82, 83]


def test_errors(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG(1).standard_normal((50, 2))
    with pytest.raises(ArgumentError, match="k must be at most 1024 on a GPU, not 2000; use backend='cpu'"):
        screen.weights(x, 2000, compute="gpu")
    with pytest.raises(ArgumentError, match="backend='cpu' does not use"):
        screen.weights(x, 5, compute=Compute(backend="cpu", devices=[0]))
    monkeypatch.setattr(Device, "free_memory", lambda self: 100)
    with pytest.raises(TableTooLarge, match=r"screening 50 rows of 2 cells takes 1\.0 MiB of GPU memory"):
        screen.weights(x, 5, compute="gpu")
    monkeypatch.setattr(engine, "FEWEST_TOP", 10)
    found = screen.top_outliers(x, 3, 5)
    assert found.backend == "cpu"
    assert "of GPU memory" in found.reason


@pytest.mark.slow
def test_auto(gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG(1).standard_normal((50, 2))
    assert screen.top_outliers(x, 3, 5).reason == "auto: fewer than 400,000 rows"
    monkeypatch.setattr(engine, "FEWEST_TOP", 10)
    found = screen.top_outliers(x, 3, 5)
    assert (found.backend, found.reason) == ("gpu", "auto: 50 rows")
    monkeypatch.setattr(engine, "find_nvcc", lambda: None)
    assert screen.top_outliers(x, 3, 5).reason.startswith("auto: nvcc")
    assert "_engine" not in found._screened.__dict__  # the engine of a GPU exists during a call only
