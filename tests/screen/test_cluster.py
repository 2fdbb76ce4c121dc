"""Screening on a cluster: the results of one machine."""

from __future__ import annotations

import importlib
import os
import pickle
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pytest

from jtgpu import screen
from jtgpu.errors import ArgumentError
from jtgpu.options.compute import Compute
from tests.graphs.test_cluster import FakeRay
from tests.screen.test_outliers import RNG, column, mixed, states
from tests.support.emulated.install import emulated_gpu, needs_compiler

__all__ = ["emulated_gpu"]


class ReadOnlyRay(FakeRay):
    """Arrays of the object store are read-only."""

    def put(self, value: Any) -> Any:
        buffers: list[Any] = []
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return pickle.loads(data, buffers=[bytes(b) for b in buffers])


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in this process."""
    from jtgpu.cluster import connect

    monkeypatch.setattr(connect, "import_ray", ReadOnlyRay)
    monkeypatch.setattr(connect, "connect", lambda cluster: ReadOnlyRay())


def same(cases: Any, n: int, k: int, backend: Literal["auto", "gpu"] = "auto") -> None:
    wanted = screen.top_outliers(cases, n, k, compute="cpu")
    reports: list[tuple[int, int, str]] = []
    found = screen.top_outliers(
        cases, n, k, compute=Compute(backend=backend, cluster="auto", progress=lambda *r: reports.append(r))
    )
    assert found.reason == "on a cluster"
    assert found.index.tolist() == wanted.index.tolist()
    assert found.weight.tolist() == wanted.weight.tolist()
    assert reports[-1][:2] == (len(found._screened.rows),) * 2
    every = screen.weights(cases, k, compute=Compute(backend=backend, cluster="auto"))
    np.testing.assert_array_equal(column(cases, every), column(cases, screen.weights(cases, k, compute="cpu")))
    assert set(found.index.tolist()) <= set(found.solving_set.tolist())


@pytest.mark.usefixtures("ray")
def test_a_cluster_has_the_results_of_one_machine() -> None:
    same(RNG(1).standard_normal((700, 3)), 10, 21)
    same(np.round(RNG(1).standard_normal((300, 2))), 10, 5)
    same(states(300, 8, 3), 5, 9)
    same(mixed(200), 5, 9)
    same(np.arange(3.0).reshape(3, 1), 2, 2)


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("ray", "emulated_gpu")
def test_gpus_of_a_cluster() -> None:
    same(RNG(1).standard_normal((90, 2)), 4, 5, backend="gpu")


@pytest.mark.usefixtures("ray")
def test_errors() -> None:
    x = RNG(1).standard_normal((30, 2))
    with pytest.raises(ArgumentError, match="a cluster's workers have one each"):
        screen.weights(x, 5, compute=Compute(cluster="auto", devices=[0]))
    with pytest.raises(ArgumentError, match="not 'reference'"):
        screen.weights(x, 5, compute=Compute(cluster="auto", backend="reference"))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_real_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    try:
        same_as_local = screen.top_outliers(RNG(1).standard_normal((700, 3)), 10, 21, compute="cpu")
        found = screen.top_outliers(RNG(1).standard_normal((700, 3)), 10, 21, compute=Compute(cluster="local"))
        assert found.weight.tolist() == same_as_local.weight.tolist()
    finally:
        importlib.import_module("ray").shutdown()
