"""`Backend.reload`: a backend with new numbers gives the bits of a new backend, whatever it answered before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu.backends import make, reference
from jtgpu.backends.base import Backend, Evidence
from jtgpu.backends.cpu import prepare as prepare_cpu
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers import pattern_cache
from jtgpu.backends.wrappers.devices import DevicePool
from jtgpu.backends.wrappers.pattern import PatternBackend
from jtgpu.formats.bundled import benchmark_files
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.compiler import model_factors, plan_model
from jtgpu.plans.conditioning import plan_with_cutset, split_model

Factors = Sequence[NDArray[np.float64]]


@pytest.fixture(scope="module")
def net() -> BayesianNetwork:
    found = jtgpu.read(benchmark_files(["asia"])[0])
    assert isinstance(found, BayesianNetwork)
    return found


def reference_backend(net: BayesianNetwork, factors: Factors) -> Backend:
    return reference.prepare(net.plan("min-fill").plan, factors)


def cpu(net: BayesianNetwork, factors: Factors) -> Backend:
    return make.make("cpu", net.plan("min-fill").plan, factors, replan=False)


def cpu_with_patterns(net: BayesianNetwork, factors: Factors) -> Backend:
    backend = make.make("cpu", net.plan("min-fill").plan, factors)
    assert isinstance(backend, pattern_cache.PatternCache)
    return backend


def published_on_the_host(net: BayesianNetwork, factors: Factors) -> Backend:
    return make.make("indexed", net.plan("min-fill").plan, factors, engine="host")


def several_devices(net: BayesianNetwork, factors: Factors) -> Backend:
    pool = DevicePool(prepare_cpu, [(f"GPU {i}", {"threads": 1}) for i in range(3)])
    return pool(net.plan("min-fill").plan, factors)


def conditioned(net: BayesianNetwork, factors: Factors) -> Backend:
    cut = plan_with_cutset(net, ["lung"], order="min-fill")
    return make.make_conditioned("cpu", split_model(net, cut.cutset), cut.plan, factors, threads=1)


MAKERS = (reference_backend, cpu, cpu_with_patterns, published_on_the_host, several_devices, conditioned)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns get plans at once, and small tables use all workers."""
    monkeypatch.setattr(pattern_cache, "MIN_COST", 0)
    monkeypatch.setattr(pattern_cache, "PLANNING", 0)
    monkeypatch.setattr(pattern_cache, "REQUIRED_GAIN", np.inf)
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 8)


def numbers(net: BayesianNetwork, seed: int) -> list[NDArray[np.float64]]:
    """Other CPTs of the same shapes, with some zeros; seed 0: those of the network."""
    if not seed:
        return [f.table for f in model_factors(net)]
    rng = np.random.default_rng(seed)
    made = []
    for f in model_factors(net):
        table = rng.random(f.table.shape) * (rng.random(f.table.shape) < 0.9) + 1e-3 * (seed % 2)
        table[..., 0] += 0.25
        made.append(table / table.sum(axis=-1, keepdims=True))
    return made


def answers(backend: Backend, net: BayesianNetwork) -> list[NDArray[Any]]:
    """Single cases with recurring patterns, a session and tables, as arrays."""
    rng = np.random.default_rng(7)
    found: list[NDArray[Any]] = []
    session = backend.session()
    for _ in range(3):
        for v in (2, 5):
            state = np.full(len(net), -1, np.int32)
            state[v] = 0
            weights = {1: np.array([0.25, 0.75])}
            for result in (backend.run_case(Evidence(state, weights)), session.run(Evidence(state))):
                found += [result.posterior, np.array(result.log_evidence)]
    states = np.where(rng.random((70, len(net))) < 0.2, 0, -1).astype(np.int32)
    rows = backend.run(Table.of(states))
    columns = backend.run(Table.by_columns([2, 3], np.ascontiguousarray(states[:, [2, 3]].T), len(net)))
    session.close()
    return [*found, rows.posterior, rows.log_evidence, columns.posterior, columns.log_evidence]


@pytest.mark.parametrize("maker", MAKERS, ids=lambda m: m.__name__)
def test_answers_after_a_reload_have_the_bits_of_a_new_backend(
    net: BayesianNetwork, maker: Callable[[BayesianNetwork, Factors], Backend]
) -> None:
    backend = maker(net, numbers(net, 0))
    first = found = answers(backend, net)
    for seed in (1, 2, 0):
        backend.reload(numbers(net, seed))
        fresh = maker(net, numbers(net, seed))
        found, expected = answers(backend, net), answers(fresh, net)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        fresh.close()
    for a, b in zip(found, first, strict=True):
        np.testing.assert_array_equal(a, b)
    backend.close()


@pytest.mark.parametrize("maker", [cpu, cpu_with_patterns], ids=lambda m: m.__name__)
def test_a_query_during_a_reload_has_the_old_or_the_new_numbers(
    net: BayesianNetwork, maker: Callable[[BayesianNetwork, Factors], Backend]
) -> None:
    case = Evidence(np.array([-1, -1, 0, -1, -1, -1, -1, -1], np.int32))
    possible = {maker(net, numbers(net, seed)).run_case(case).log_evidence for seed in (0, 1)}
    possible |= {cpu(net, numbers(net, seed)).run_case(case).log_evidence for seed in (0, 1)}
    backend, stop = maker(net, numbers(net, 0)), threading.Event()
    found: set[float] = set()

    def query() -> None:
        while not stop.is_set():
            found.add(backend.run_case(case).log_evidence)

    threads = [threading.Thread(target=query) for _ in range(2)]
    for t in threads:
        t.start()
    for i in range(50):
        backend.reload(numbers(net, i % 2))
    stop.set()
    for t in threads:
        t.join()
    assert found <= possible


def test_a_plan_made_during_a_reload_is_not_used(net: BayesianNetwork) -> None:
    plan, _ = plan_model(net, "min-fill")
    begun, go = threading.Event(), threading.Event()

    class Slow(pattern_cache.PatternCache):
        def make(self, seen: NDArray[np.bool_]) -> PatternBackend:
            made = super().make(seen)
            begun.set()
            assert go.wait(20)
            return made

    def new(factors: Factors) -> Any:
        return prepare_cpu(plan, factors)

    backend = Slow(plan, numbers(net, 0), new(numbers(net, 0)), prepare_cpu)
    state = np.full(len(net), -1, np.int32)
    state[2] = 0
    planning = threading.Thread(target=backend.run_case, args=(Evidence(state),))
    planning.start()
    assert begun.wait(20)
    backend.reload(numbers(net, 1))
    go.set()
    planning.join()
    expected = new(numbers(net, 1)).run_case(Evidence(state)).log_evidence
    assert backend.run_case(Evidence(state)).log_evidence == pytest.approx(expected, abs=1e-12)
    backend.close()
