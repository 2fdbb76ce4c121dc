"""Evidence patterns on a GPU: plans of their own give the same answers and their memory back. Order of streams."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import timing
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as resident
from jtgpu.backends.gpu import patterns as remainder
from jtgpu.backends.gpu.patterns import GpuPatternCache, RestrictedBackend
from jtgpu.backends.gpu.single.levels.engine import Engine
from jtgpu.backends.gpu.single.levels.schedule import make_schedule
from jtgpu.backends.wrappers import pattern_cache as replanned
from jtgpu.device.context import Device
from jtgpu.device.driver import After
from jtgpu.errors import BackendUnavailable, ImpossibleEvidence, JtgpuError
from jtgpu.model.network import BayesianNetwork, DiscreteModel
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


@pytest.fixture(params=["cut", "cut flow"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The second query of a pattern waits for its plan, whatever it gains; the engine is of this kind."""
    every, kind = resident.Gpu.cut_ways, str(request.param)
    monkeypatch.setattr(
        resident.Gpu, "cut_ways", lambda gpu, plans, seen: (w for w in every(gpu, plans, seen) if w.kind == kind)
    )
    for name in ("PLANNING", "BUILDING", "STARTING", "WORTH"):
        monkeypatch.setattr(remainder, name, 0)
    for name in ("PROMISED", "UNMEASURED", "KEPT"):
        monkeypatch.setattr(remainder, name, 1e9)
    return kind


@pytest.mark.parametrize(
    ("name", "dtype"), [("Barley", "float64"), ("Barley", "float32"), ("Mildew", "float64"), ("Link", "float64")]
)
def test_published_networks(gpu: Device, nets: Path, name: str, dtype: str) -> None:
    net = jtgpu.read(nets / f"{name}.net")
    plan = net.plan(order=nets / f"{name}.num", max_table=None).plan
    exact = Engine(plan, tables(net), make_schedule(plan), gpu)
    usual = resident.prepare(plan, tables(net), dtype=dtype, single=False)
    patterns = GpuPatternCache(plan, tables(net), usual)
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    for seed, share in enumerate((0.1, 0.2)):
        given = cases(net, share, 4, seed)
        for left, way in patterns.ways(given[0].state >= 0):
            new = RestrictedBackend(left, way.make())
            assert new.engine.kind == way.kind
            for case in given:
                got, expected = new.run(case), exact.run(case)
                np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=tolerance)
                assert got.log_evidence == pytest.approx(expected.log_evidence, abs=max(1e-9, 10 * tolerance))
            assert len({new.run(given[0]).posterior.tobytes() for _ in range(5)}) == 1
            new.close()
    patterns.close()
    exact.close()


@pytest.mark.alone
def test_a_tree_changes_to_the_plan_of_a_pattern_and_gives_all_back(gpu: Device, at_once: str) -> None:
    net = jtgpu.read(ROOT / "nets" / "hailfinder.net")
    plan = net.plan(order="min-fill")
    given = cases(net, 0.2, 6, 3)
    plan.compile("gpu", lists=False).close()
    with gpu.active():
        before = gpu.free_memory()
    with plan.compile("gpu", lists=False, replan=False) as exact, plan.compile("gpu", lists=False) as tree:
        backend: Any = tree._backend
        if not isinstance(backend, GpuPatternCache):  # too little work to be counted
            backend = GpuPatternCache(plan.plan, tables(net), backend)
            tree._backend = backend
        session = tree.session()
        for case in given * 2:
            told = {net.variables[v]: int(case.state[v]) for v in np.flatnonzero(case.state >= 0).tolist()}
            weights = {net.variables[v]: w for v, w in case.likelihood.items()}
            expected = exact.posteriors(told, likelihood=weights)
            session.set(told, likelihood=weights)
            for got in (tree.posteriors(told, likelihood=weights), session.posteriors()):
                assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
                for v in net.variables:
                    np.testing.assert_allclose(got[v], expected[v], rtol=0, atol=1e-10)
        (pattern,) = backend._patterns.values()
        assert isinstance(pattern.new, RestrictedBackend)
        assert pattern.new.engine.kind == at_once
        assert f"own plan: {at_once}: " in repr(backend)
        assert tree.device == gpu.name
        session.close()
    with gpu.active():
        assert before - gpu.free_memory() < 16 << 20
    with pytest.raises(JtgpuError, match="closed"):
        backend.run(given[0])


def test_what_is_too_small_without_scaling_is_asked_of_the_levels(gpu: Device) -> None:
    n = 900
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    exact = Engine(plan, tables(net), make_schedule(plan), gpu)
    patterns = GpuPatternCache(plan, tables(net), resident.prepare(plan, tables(net), single=False))
    seen = np.arange(n) % 3 != 2
    kinds = {way.kind: RestrictedBackend(left, way.make()) for left, way in patterns.ways(seen)}
    new = kinds["cut flow"]
    usual, small = (np.where(seen, states, -1).astype(np.int32) for states in (np.zeros(n), np.arange(n) % 300 % 3))
    for state in (usual, small, small, usual, usual):
        got, expected = new.run(Evidence(state)), exact.run(Evidence(state))
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=1e-10)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12, abs=1e-9)
    assert exact.run(Evidence(small)).log_evidence < -800  # 2^-1154
    for own in kinds.values():
        own.close()
    patterns.close()
    exact.close()


def test_an_engine_that_is_not_quicker_is_not_kept(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured while others ask, whose answers keep their bits."""
    monkeypatch.setattr(remainder, "WORTH", 0)
    for name in ("PROMISED", "UNMEASURED"):
        monkeypatch.setattr(remainder, name, 1e9)
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = net.plan(order="min-fill").plan
    backend = GpuPatternCache(plan, tables(net), resident.prepare(plan, tables(net), lists=False))
    case = cases(net, 0.2, 1, 2)[0]
    seen, bits = case.state >= 0, backend.gpu.run(case).posterior.tobytes()
    monkeypatch.setattr(remainder, "KEPT", 1e9)
    kept, told = backend.improve(seen, None, backend.work(seen))
    assert kept is not None
    assert " us for " in told
    monkeypatch.setattr(remainder, "KEPT", 0.0)
    wrong: list[bytes] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            wrong.extend(x for x in (backend.gpu.run(case).posterior.tobytes(),) if x != bits)

    asking = threading.Thread(target=ask)
    asking.start()
    found = backend.improve(seen, None, backend.work(seen))
    done.set()
    asking.join()
    assert found[0] is None
    assert not wrong
    assert backend.gpu.timed(seen) > 0
    kept.close()
    backend.close()
    assert backend._timed(seen) is None


@pytest.mark.alone
@pytest.mark.usefixtures("at_once")
def test_patterns_and_threads(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """More patterns than are kept, asked by several threads: plans come and go under them."""
    monkeypatch.setattr(replanned, "MAX_PLANS", 2)
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = net.plan(order="min-fill").plan
    exact = resident.prepare(plan, tables(net))
    given = [case for seed in range(5) for case in cases(net, 0.2, 2, seed)]
    expected = [exact.run(case) for case in given]
    backend = GpuPatternCache(plan, tables(net), resident.prepare(plan, tables(net), lists=False))
    wrong: list[int] = []

    def ask(first: int) -> None:
        for i in range(40):
            at = (first + i // 2) % len(given)
            got = backend.run(given[at])
            if not np.allclose(got.posterior, expected[at].posterior, rtol=0, atol=1e-10):
                wrong.append(at)

    threads = [threading.Thread(target=ask, args=(3 * i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    with pytest.raises(ImpossibleEvidence):
        backend.run(Evidence(given[0].state, {int(v): np.zeros(int(plan.cardinality[v])) for v in [0]}))
    backend.close()
    exact.close()


@pytest.mark.alone
def test_questions_wait_for_the_users_stream(gpu: Device) -> None:
    net = chain(50, 3)
    plan = net.plan(order=list(range(50)))
    case = Evidence.none(50)
    with gpu.active():
        stream, done = gpu.stream(), gpu.event()
        a, b = gpu.alloc(256 << 20), gpu.alloc(256 << 20)
    backend = resident.prepare(plan.plan, tables(net), stream=stream)
    expected = backend.run(case)
    pattern = next(backend.cut_ways([plan.plan], np.zeros(50, np.bool_))).make()
    for ask in (
        lambda: backend.run(case).posterior,
        lambda: backend.run_batch(case.state[None]).posterior[0],
        lambda: pattern.run(case).posterior,
    ):
        with gpu.active():
            for _ in range(200):  # tens of milliseconds of copies
                gpu.copy(int(a), int(b), 256 << 20, stream)
            done.record(stream)
        np.testing.assert_allclose(ask(), expected.posterior, rtol=0, atol=1e-12)
        with gpu.active():
            assert done.query()  # what was queued before has run
    pattern.close()
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
