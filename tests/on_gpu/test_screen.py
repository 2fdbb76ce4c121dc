"""Screening on a GPU: the bits of the CPU, for every metric, length of lists and shape of data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import screen
from jtgpu.device.context import Device, device_numbers
from jtgpu.published import outliers as published

RNG = np.random.default_rng


def same(cases: Any, k: int, metric: Any = "auto", n: int = 10, devices: Any = None, **more: Any) -> None:
    """Check weights, outliers and the threshold against the CPU, bit for bit, and that runs agree."""
    wanted = screen.top_outliers(cases, n, k, metric, compute="cpu", method="all", **more)
    found = screen.top_outliers(cases, n, k, metric, compute=jtgpu.Compute(backend="gpu", devices=devices), **more)
    again = screen.top_outliers(
        cases, n, k, metric, compute=jtgpu.Compute(backend="gpu", devices=devices), method="all", **more
    )
    assert wanted.all_weights is not None
    assert again.all_weights is not None
    assert found.index.tolist() == wanted.index.tolist()
    assert found.weight.tolist() == wanted.weight.tolist() == again.weight.tolist()
    np.testing.assert_array_equal(again.all_weights, wanted.all_weights)


@pytest.mark.parametrize("k", [1, 2, 31, 32, 33, 65, 129, 300, 513, 1024])
def test_lists_of_every_length(gpu: Device, k: int) -> None:
    same(RNG(k).standard_normal((3000, 3)), k)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "gower"])
@pytest.mark.parametrize("a", [1, 2, 3, 10, 33])
def test_numbers(gpu: Device, metric: Any, a: int) -> None:
    n = 20_000 if a < 10 else 4000
    same(RNG(a).standard_normal((n, a)), 21, metric)
    same(RNG(a).standard_normal((n // 4, a)).round(), 21, metric)


@pytest.mark.parametrize("kind", ["cauchy", "equal", "offset", "line", "large", "small"])
def test_shapes_of_data(gpu: Device, kind: str) -> None:
    x = RNG(1).standard_cauchy((50_000, 2))
    made = {
        "cauchy": x, "equal": np.ones((5000, 2)), "offset": x + 1e9, "line": np.column_stack([x[:, 0], x[:, 0]]),
        "large": x * 1e140, "small": x * 1e-160,
    }  # fmt: skip
    same(made[kind], 51)


def test_a_million_rows(gpu: Device) -> None:
    x = RNG(0).standard_normal((1_000_000, 2))
    wanted = screen.top_outliers(x, 10, 51, compute="cpu")
    found = screen.top_outliers(x, 10, 51, compute="gpu")
    assert found.index.tolist() == wanted.index.tolist()
    assert found.weight.tolist() == wanted.weight.tolist()
    assert found.stats["pairs"] < 0.0005 * len(x) ** 2
    chosen = found.solving_set
    assert set(found.index.tolist()) <= set(chosen.tolist())
    others = np.setdiff1d(RNG(1).choice(len(x), 20_000, replace=False), chosen)
    assert (found.weights(x[others], "solving_set") < found.threshold).all()


@pytest.mark.parametrize("missing", ["none", "ignore", "state"])
@pytest.mark.parametrize("a", [5, 37, 130])
def test_states(gpu: Device, a: int, missing: str) -> None:
    rng = RNG(a)
    cases = rng.integers(0, 5, (5000, a)) * rng.integers(0, 2, (5000, a))
    table: Any = np.char.add("s", cases.astype(str)).astype(object)
    if missing != "none":
        table[rng.random(cases.shape) < 0.1] = None
    same(table, 21, missing="error" if missing == "none" else missing)


def test_cases_of_a_network(gpu: Device) -> None:
    with jtgpu.load("alarm").compile("cpu") as tree:
        same(tree.sample(50_000, seed=1).states.copy(), 21, "hamming")


@pytest.mark.parametrize("holes", [0.0, 0.1])
def test_mixed_tables(gpu: Device, holes: float) -> None:
    rng, n = RNG(2), 5000
    numbers = rng.standard_normal((2, n))
    numbers[rng.random((2, n)) < holes] = np.nan
    same({"u": rng.choice(["a", "b", "c"], n), "x": numbers[0], "v": rng.choice(["d", "e"], n), "y": numbers[1]}, 21)


def test_several_devices(gpu: Device) -> None:
    devices = device_numbers("all")
    same(RNG(0).standard_normal((100_000, 3)), 21, devices=[*devices, *devices][:2] if len(devices) == 1 else devices)


@pytest.mark.parametrize("name", published.SELECTIONS)
def test_published_selections(gpu: Device, name: str) -> None:
    for m, d, k in [(3, 100_000, 50), (40, 777, 128), (1, 5, 5)]:
        numbers = RNG(d).random((m, d)).astype(np.float32).astype(float)
        np.testing.assert_array_equal(
            published.select(name, numbers, k, backend="gpu"), np.sort(numbers, axis=1)[:, :k]
        )


@pytest.mark.parametrize("mode", published.MODES)
def test_published_solving_set(gpu: Device, mode: str) -> None:
    x = RNG(1).standard_normal((200_000, 3)).astype(np.float32).astype(float)
    found, wanted = published.gpu_solving_set(x, 10, 50, mode=mode), screen.top_outliers(x, 10, 50, compute="cpu")
    assert sorted(found.index.tolist()) == sorted(wanted.index.tolist())
    np.testing.assert_allclose(np.sort(found.weight), np.sort(wanted.weight), rtol=1e-5)
