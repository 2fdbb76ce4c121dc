"""Betweenness on a cluster: the bits of one machine."""

from __future__ import annotations

import importlib
import os
import pickle
from importlib.util import find_spec
from typing import Any

import networkx as nx
import numpy as np
import pytest

from jtgpu import graphs
from jtgpu.cluster import Cluster, tasks
from jtgpu.errors import ArgumentError, DataError, JtgpuError
from jtgpu.options.compute import Compute
from tests.graphs.test_betweenness import arrays_of


class FakeRay:
    """Ray in this process: results come in another order than their tasks, arrays are read-only."""

    class exceptions:
        class RayError(Exception):
            pass

    running = 0

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0, "GPU": 2.0}

    def put(self, value: Any) -> Any:
        return pickle.loads(pickle.dumps(value))

    def get(self, reference: Any) -> Any:
        FakeRay.running -= 1
        return reference()

    def wait(self, running: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return running[-1:], running[:-1]

    def cancel(self, reference: Any) -> None:
        FakeRay.running -= 1

    def remote(self, **options: Any) -> Any:
        def decorate(work: Any) -> Any:
            class Function:
                @staticmethod
                def remote(*given: Any) -> Any:
                    FakeRay.running += 1
                    assert FakeRay.running <= 3
                    return lambda: work(*given)

            return Function

        return decorate


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in this process."""
    from jtgpu.cluster import connect

    monkeypatch.setattr(connect, "import_ray", FakeRay)
    monkeypatch.setattr(connect, "connect", lambda cluster: FakeRay())


GRAPH = arrays_of(nx.barabasi_albert_graph(300, 3, seed=2))


@pytest.mark.usefixtures("ray")
def test_a_cluster_has_the_bits_of_one_machine() -> None:
    cases: list[dict[str, Any]] = [{}, {"edges": True}, {"directed": True, "endpoints": True}]
    for options in cases:
        found = graphs.betweenness(GRAPH, compute=Compute(cluster="auto"), **options)
        assert found.tobytes() == graphs.betweenness(GRAPH, compute="cpu", **options).tobytes()
    assert FakeRay.running == 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray", "emulated_gpu")
def test_gpus_of_a_cluster_have_the_bits_of_one() -> None:
    found = graphs.betweenness(GRAPH, compute=Compute(cluster="auto", backend="gpu"), k=70, seed=1)
    assert found.tobytes() == graphs.betweenness(GRAPH, compute="gpu", k=70, seed=1).tobytes()


def fail(shared: Any, task: int, threads: int) -> int:
    """Fails for one task."""
    if task == 4:
        raise DataError("no")
    return int(shared) + task


@pytest.mark.usefixtures("ray")
def test_errors_and_abandoned_results_leave_nothing_running() -> None:
    found = tasks.run_tasks("auto", fail, 10, lambda n: [*range(2 * n)], "cpu")
    with pytest.raises(DataError, match="no"):
        list(found)
    assert FakeRay.running == 0
    found = tasks.run_tasks("auto", fail, 10, lambda n: [*range(n)], "cpu")
    assert next(found) == 10
    found.close()
    assert FakeRay.running == 0
    with pytest.raises(ArgumentError, match="a cluster's workers have one each"):
        graphs.betweenness(GRAPH, compute=Compute(cluster="auto", devices=[0]))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_real_cluster() -> None:
    ray: Any = importlib.import_module("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        found = graphs.betweenness(GRAPH, compute=Compute(cluster="local"), edges=True)
        np.testing.assert_array_equal(found, graphs.betweenness(GRAPH, compute="cpu", edges=True))
        with pytest.raises(JtgpuError, match="cores"):
            graphs.betweenness(GRAPH, compute=Compute(cluster=Cluster("local", cpus=10_000)))
    finally:
        if ray.is_initialized():
            ray.shutdown()
