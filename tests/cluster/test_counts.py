"""`jtgpu.learn.fit` on a cluster: the bits of a fit without one."""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cluster import tasks as counts
from jtgpu.errors import ArgumentError
from jtgpu.learn import fit
from jtgpu.learn.parameters import coded_cases
from tests.conftest import ROOT
from tests.support.bundled import bundled


def rows(n: int) -> tuple[jtgpu.BayesianNetwork, np.ndarray, dict[str, np.ndarray]]:
    """A network, states with holes, and likelihoods."""
    net = bundled("cancer")
    states = net.compile("reference").sample(n, seed=1).states.astype(np.int32)
    rng = np.random.default_rng(0)
    states[rng.random(states.shape) < 0.2] = -1
    likelihood = np.ones((n, 2))
    likelihood[::5] = rng.random((len(likelihood[::5]), 2))
    return net, states, {"Xray": likelihood}


def assert_same_bits(found: jtgpu.learn.Fit[Any], plain: jtgpu.learn.Fit[Any]) -> None:
    assert found.objective == plain.objective
    for v in plain.network:
        np.testing.assert_array_equal(found.network.cpt(v), plain.network.cpt(v))


class _Local:
    """Ray in this process: results come in another order than they were submitted in."""

    class exceptions:
        class RayError(Exception):
            pass

    def __init__(self) -> None:
        self.actors = 0

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def put(self, value: Any) -> list[Any]:
        return [value]

    def get(self, reference: Any) -> Any:
        return reference.value if isinstance(reference, _Task) else reference[0]

    def wait(self, running: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return running[-1:], running[:-1]

    def cancel(self, reference: Any) -> None:
        pass

    def kill(self, actor: Any) -> None:
        self.actors -= 1

    def remote(self, **options: Any) -> Any:
        def decorate(_: Any) -> Any:
            class Kind:
                @staticmethod
                def remote(job: Any) -> Any:
                    self.actors += 1
                    return _Actor(counts.CountWorker(job[0][0]))

            return Kind

        return decorate


class _Task:
    def __init__(self, value: Any):
        self.value = value


class _Actor:
    def __init__(self, worker: Any):
        class Count:
            @staticmethod
            def remote(number: int, tables: Any, part: Any) -> Any:
                return _Task(worker.count(number, tables[0], part[0]))

        self.count = Count


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> _Local:
    found = _Local()
    monkeypatch.setattr(counts, "import_ray", lambda: found)
    monkeypatch.setattr(counts, "connect", lambda cluster: found)
    return found


def test_a_fit_has_the_same_bits(local: _Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coded_cases, "BLOCK_CELLS", 1)  # parts of 1,024 rows
    monkeypatch.setattr(coded_cases, "MIN_EQUAL", 1.0)
    net, states, likelihood = rows(3500)
    options: Any = {"likelihood": likelihood, "em": jtgpu.learn.EM(iterations=3, restarts=2)}
    assert_same_bits(fit(net, states, compute=jtgpu.Compute(cluster="local"), **options), fit(net, states, **options))
    assert local.actors == 0  # closed


def test_rows_that_are_left_out(local: _Local) -> None:
    net = jtgpu.network("a->b", "{x|y}", cpts={"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.5, 0.5]]})
    table = {"a": ["x", "y", None, "y"], "b": ["x", "x", "y", "x"]}
    options: Any = {"em": jtgpu.learn.EM(start="given", on_error="flag")}
    found = fit(net, table, compute=jtgpu.Compute(backend="reference", cluster="local"), **options)
    assert found.n_impossible == 1
    assert_same_bits(found, fit(net, table, compute="reference", **options))
    with pytest.raises(ArgumentError, match="stepwise EM passes chunks one after the other"):
        fit(net, table, compute=jtgpu.Compute(cluster="local"), em=jtgpu.learn.EM(stepwise=0.7))


def test_expected_counts_on_a_cluster(local: _Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.inference.queries.counts.PART_CELLS", 600)
    net, states, likelihood = rows(500)
    weights = np.random.default_rng(1).random(500)
    with net.compile("cpu") as tree:
        for n in (500, 0):
            soft = {v: np.asarray(w)[:n] if np.ndim(w) == 2 else w for v, w in likelihood.items()}
            found, alone = (
                tree.expected_counts(states[:n], weights=weights[:n], likelihood=soft, cluster=cluster)
                for cluster in ("local", None)
            )
            for v in net:
                np.testing.assert_allclose(found[v], alone[v], rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(found.log_evidence, alone.log_evidence)
    assert local.actors == 0  # closed


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    ray: Any = importlib.import_module("ray")
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False,
        logging_level="ERROR", configure_logging=False,
    )  # fmt: skip
    try:
        monkeypatch.setattr(coded_cases, "BLOCK_CELLS", 1)
        monkeypatch.setattr(coded_cases, "MIN_EQUAL", 1.0)
        net, states, likelihood = rows(2500)
        options: Any = {"likelihood": likelihood, "em": jtgpu.learn.EM(iterations=2, start="given")}
        assert_same_bits(
            fit(net, states, compute=jtgpu.Compute(cluster="local"), **options), fit(net, states, **options)
        )
    finally:
        ray.shutdown()
