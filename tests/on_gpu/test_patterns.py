"""Evidence patterns on a GPU: their engines give the same answers and free their memory. Order of streams."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import timing
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.gpu import patterns
from jtgpu.backends.gpu.patterns import GpuPatternCache, RestrictedBackend
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers import pattern_cache
from jtgpu.device.context import Device
from jtgpu.device.driver import After
from jtgpu.errors import BackendUnavailable, ImpossibleEvidence, JtgpuError
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans import compiler
from tests.on_gpu.conftest import ROOT
from tests.plans.test_plan import chain

pytestmark = pytest.mark.gpu


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def cases(net: DiscreteModel, share: float, n: int, seed: int) -> list[Evidence]:
    """Cases that observe the same variables, with weights on some that are observed and some that are not."""
    assert isinstance(net, BayesianNetwork)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(net), max(1, round(share * len(net))), replace=False)
    made: list[Evidence] = []
    for sample in timing.sample_cases(net, n, 1.0, seed):
        state = np.full(len(net), -1, np.int32)
        state[chosen] = [sample[net.variables[v]] for v in chosen]
        soft = {int(v): rng.random(int(net.cardinality[v])) + 0.1 for v in rng.choice(len(net), 2, replace=False)}
        made.append(Evidence(state, soft if len(made) % 2 else {}))
    return made


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second query of a pattern waits for its engine, however slow that is."""
    for name in ("PLANNING", "BUILDING", "STARTING", "MIN_CASE"):
        monkeypatch.setattr(patterns, name, 0)
    for name in ("PREDICTED_SHARE", "CALL_SHARE"):
        monkeypatch.setattr(patterns, name, 1e9)
    monkeypatch.setattr(patterns, "CALLS", 3)


@pytest.mark.parametrize("name", ["Barley", "Mildew", "Link"])
def test_published_networks(gpu: Device, nets: Path, name: str) -> None:
    net = jtgpu.read(nets / f"{name}.net")
    plan = net.plan(order=nets / f"{name}.num", max_table=None).plan
    exact = gpu_backend.prepare(plan, tables(net), engine="levels")
    cache = GpuPatternCache(plan, tables(net), gpu_backend.prepare(plan, tables(net), single=False))
    for seed, share in enumerate((0.1, 0.2)):
        given = cases(net, share, 4, seed)
        new = cache.make(given[0].state >= 0)
        for case in given:
            got, expected = new.run_case(case), exact.run_case(case)
            np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=1e-10)
            assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
        assert len({new.run_case(given[0]).posterior.tobytes() for _ in range(5)}) == 1
        new.close()
    cache.close()
    exact.close()


@pytest.mark.alone
@pytest.mark.usefixtures("always")
def test_a_tree_changes_to_the_plan_of_a_pattern_and_gives_all_back(gpu: Device) -> None:
    net = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    plan = net.plan(order="min-fill")
    given = cases(net, 0.2, 6, 3)
    plan.compile("gpu").close()
    with gpu.active():
        before = gpu.free_memory()
    with plan.compile("gpu", replan=False) as exact, plan.compile("gpu") as tree:
        backend: Any = tree._backend
        if not isinstance(backend, GpuPatternCache):  # too little work to be counted
            backend = GpuPatternCache(plan.plan, tables(net), backend)
            tree._backend = backend
        session = tree.session()
        for case in given * 2:
            evidence = {
                net.variables[v]: net.states(v)[case.state[v]]  # type: ignore[arg-type]
                for v in np.flatnonzero(case.state >= 0)
            }
            weights = {net.variables[v]: w for v, w in case.likelihood.items()}
            expected = exact.posteriors(evidence, likelihood=weights)
            session.set(evidence, likelihood=weights)
            for got in (tree.posteriors(evidence, likelihood=weights), session.posteriors()):
                assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
                for v in net.variables:
                    np.testing.assert_allclose(got[v], expected[v], rtol=0, atol=1e-10)
        (pattern,) = backend._patterns.values()
        assert isinstance(pattern.new, RestrictedBackend)
        assert pattern.new.engine.kind == "dataflow"
        assert "us a call" in repr(backend)
        assert tree.device == gpu.name
        session.close()
    with gpu.active():
        assert before - gpu.free_memory() < 16 << 20
    with pytest.raises(JtgpuError, match="closed"):
        backend.run_case(given[0])


def test_an_engine_whose_calls_are_not_quicker_is_not_used(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured while others query, whose answers keep their bits."""
    monkeypatch.setattr(patterns, "PREDICTED_SHARE", 1e9)
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = net.plan(order="min-fill").plan
    backend = GpuPatternCache(plan, tables(net), gpu_backend.prepare(plan, tables(net)))
    case = cases(net, 0.2, 1, 2)[0]
    seen, bits = case.state >= 0, backend.gpu.run_case(case).posterior.tobytes()
    monkeypatch.setattr(patterns, "CALL_SHARE", 1e9)
    used, reason = backend.improve(seen, None, backend.work(seen))
    assert used is not None
    assert " us a call, " in reason
    monkeypatch.setattr(patterns, "CALL_SHARE", 0.0)
    wrong: list[bytes] = []
    done = threading.Event()

    def query() -> None:
        while not done.is_set():
            wrong.extend(x for x in (backend.gpu.run_case(case).posterior.tobytes(),) if x != bits)

    querying = threading.Thread(target=query)
    querying.start()
    found = backend.improve(seen, None, backend.work(seen))
    done.set()
    querying.join()
    assert found[0] is None
    assert not wrong
    used.close()
    backend.close()


@pytest.mark.alone
@pytest.mark.usefixtures("always")
def test_patterns_and_threads(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """More patterns than get plans, queried by several threads: plans come and go under them."""
    monkeypatch.setattr(pattern_cache, "MAX_PLANS", 2)
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = net.plan(order="min-fill").plan
    exact = gpu_backend.prepare(plan, tables(net))
    given = [case for seed in range(5) for case in cases(net, 0.2, 2, seed)]
    expected = [exact.run_case(case) for case in given]
    backend = GpuPatternCache(plan, tables(net), gpu_backend.prepare(plan, tables(net)))
    wrong: list[int] = []

    def query(first: int) -> None:
        for i in range(40):
            at = (first + i // 2) % len(given)
            got = backend.run_case(given[at])
            if not np.allclose(got.posterior, expected[at].posterior, rtol=0, atol=1e-10):
                wrong.append(at)

    threads = [threading.Thread(target=query, args=(3 * i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    with pytest.raises(ImpossibleEvidence):
        backend.run_case(Evidence(given[0].state, {int(v): np.zeros(int(plan.cardinality[v])) for v in [0]}))
    backend.close()
    exact.close()


@pytest.mark.alone
def test_queries_wait_for_the_users_stream(gpu: Device) -> None:
    net = chain(50, 3)
    plan = net.plan(order=list(range(50)))
    case = Evidence.none(50)
    with gpu.active():
        stream, done = gpu.stream(), gpu.event()
        a, b = gpu.alloc(256 << 20), gpu.alloc(256 << 20)
    backend = gpu_backend.prepare(plan.plan, tables(net), stream=stream)
    backend.run_case(case)
    restricted = GpuPatternCache(plan.plan, tables(net), backend).make(np.arange(50) < 1)
    first = Evidence(np.where(np.arange(50) < 1, 0, -1).astype(np.int32))
    for query in (
        lambda: backend.run_case(case).posterior,
        lambda: backend.run(Table.of(case.state[None])).posterior[0],
        lambda: restricted.run_case(first).posterior,
    ):
        with gpu.active():
            for _ in range(200):  # tens of milliseconds of copies
                gpu.copy(int(a), int(b), 256 << 20, stream)
            done.record(stream)
        assert query().sum() == pytest.approx(50.0)
        with gpu.active():
            assert done.query()  # what was queued before has run
    restricted.close()
    backend.close()
    with gpu.active():
        a.free()
        b.free()
        stream = done = None
    with plan.compile("gpu", stream=0) as tree:  # the legacy default stream
        assert tree.log_evidence() == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(BackendUnavailable, match="stream"):
        plan.compile("gpu", stream="mine")


def test_streams_of_others(gpu: Device) -> None:
    class Torch:
        cuda_stream = 0

    class Standard:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0

    with gpu.active():
        own = gpu.stream()
        for given in (Torch(), Standard(), own, 0):
            after = After(given)
            after.order(own)
            after.wait()
            after.close()
            after.close()
        del given, own
