"""Patterns on a GPU, its kernels run on the host: what is left of a network gives the answers of the whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import jtgpu
from jtgpu import timing
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import patterns as remainder
from jtgpu.backends.gpu.patterns import GpuPatternCache, RestrictedBackend
from jtgpu.backends.gpu.single.levels.pattern import Whole
from jtgpu.backends.gpu.single.pattern_configs import CutWay
from jtgpu.errors import BackendUnavailable, ImpossibleEvidence, TableTooLarge
from jtgpu.plans import compiler
from jtgpu.plans.conditioning.restriction import Restriction
from tests.backends.gpu.test_dataflow import HostCutFlow
from tests.backends.gpu.test_levels import as_evidence
from tests.support import random_nets
from tests.support.emulated import host_cuda
from tests.support.examples import examples

pytestmark = pytest.mark.skipif(host_cuda.compiler() is None, reason="there is no g++ to build the kernels with")


def tables(model: Any) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


class HostGpu:
    """`jtgpu.backends.gpu.backend.Gpu`, as far as patterns are concerned: the definition, and engines on the host."""

    def __init__(self, plan: Any, factors: list[np.ndarray], lists: bool = False, real: str = "float64"):
        self.plan, self.factors, self.lists, self.real = plan, factors, lists, real
        self.usual = reference.prepare(plan, factors)
        self.made: list[Any] = []

    def work(self, seen: Any, targets: Any = None) -> int:
        return 1 << 60

    kind = "flow"

    def cut_ways(self, plans: Any, seen: np.ndarray) -> Any:
        def make() -> Any:
            whole = Whole(plans[0], self.factors, self.plan.factor_scopes, seen)
            self.made.append(host_cuda.HostCut(plans[0], whole, self.lists, self.real))
            return self.made[-1]

        def make_flow() -> Any:
            self.made.append(HostCutFlow(plans[-1], Whole(plans[-1], self.factors, self.plan.factor_scopes, seen)))
            return self.made[-1]

        flows = [CutWay("cut flow", "", 3000, make_flow)] if len(plans[-1].op_out) else []
        return iter([CutWay("cut", "", 1, make), *flows])

    def timed(self, seen: np.ndarray, engine: Any = None) -> float:
        return 9e6 if engine is None else 2e3

    def run(self, evidence: Evidence, targets: Any = None) -> Any:
        return self.usual.run(evidence)

    def close(self) -> None:
        self.usual.close()


@examples(60)
@given(data=st.data())
def test_what_is_left_answers_as_the_whole(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = model.plan("min-fill", cache=False).plan
    seen = np.array(data.draw(st.lists(st.booleans(), min_size=len(model), max_size=len(model))))
    assume(seen.any() and not seen.all())
    definition = reference.prepare(plan, tables(model))
    real = data.draw(st.sampled_from(["float64", "float32"]))
    gpu = HostGpu(plan, tables(model), data.draw(st.booleans()), real)
    patterns = GpuPatternCache(plan, tables(model), gpu)  # type: ignore[arg-type]
    ways = list(patterns.ways(seen))
    left, way = data.draw(st.sampled_from(ways))
    found = RestrictedBackend(left, way.make())
    tolerance = 1e-12 if real == "float64" else 1e-5
    for _ in range(3):
        hard = {v: data.draw(st.integers(0, int(model.cardinality[v]) - 1)) for v in np.flatnonzero(seen).tolist()}
        _, soft = data.draw(random_nets.evidence_weights(model))
        case = as_evidence(len(model), hard, {model.index(v): np.asarray(w, float) for v, w in soft.items()})
        try:
            expected = definition.run(case)
        except ImpossibleEvidence:
            with pytest.raises(ImpossibleEvidence):
                found.run(case)
            continue
        got = found.run(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, atol=tolerance)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=100 * tolerance)
    found.close()
    assert gpu.made[0].closed


def test_a_pattern_gets_an_engine_of_its_own_and_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    net = jtgpu.read(timing.benchmark_files(["insurance"])[0])
    plan = net.plan("min-fill", cache=False).plan
    gpu = HostGpu(plan, tables(net))
    backend = GpuPatternCache(plan, tables(net), gpu)  # type: ignore[arg-type]
    rng = np.random.default_rng(4)
    chosen = rng.choice(len(net), 6, replace=False)
    definition = reference.prepare(plan, tables(net))
    session = backend.session()
    answered = 0
    for i in range(8):
        state = np.full(len(net), -1, np.int32)
        state[chosen] = [int(rng.integers(net.cardinality[v])) for v in chosen]
        weighed = (int(chosen[0]), int(chosen[0] + 1) % len(net))
        case = Evidence(state, {v: np.arange(1.0, net.cardinality[v] + 1) for v in weighed})
        ask = session.run if i % 2 else backend.run
        try:
            expected = definition.run(case)
        except ImpossibleEvidence:
            with pytest.raises(ImpossibleEvidence):
                ask(case)
            continue
        got = ask(case, [0])
        answered += 1
        np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
    assert answered > 1
    assert len(gpu.made) == 1
    pattern = next(iter(backend._patterns.values()))
    assert isinstance(pattern.new, RestrictedBackend)
    assert pattern.users == 0
    backend.close()
    assert gpu.made[0].closed


def test_a_card_that_is_full_leaves_the_usual_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    plan = net.plan("min-fill", cache=False).plan
    gpu = HostGpu(plan, tables(net))

    def full(plans: Any, seen: Any) -> Any:
        raise TableTooLarge("no memory", 1, 1, 0)

    monkeypatch.setattr(gpu, "cut_ways", full)
    backend = GpuPatternCache(plan, tables(net), gpu)  # type: ignore[arg-type]
    state = np.full(len(net), -1, np.int32)
    state[2] = 0
    expected = gpu.run(Evidence(state))
    for _ in range(4):
        assert backend.run(Evidence(state)).log_evidence == expected.log_evidence
    assert [p.settled for p in backend._patterns.values()] == [True]
    everything = Evidence(np.zeros(len(net), np.int32))  # nothing is left to plan for
    for _ in range(4):
        assert backend.run(everything).log_evidence == gpu.run(everything).log_evidence
    backend.close()


class Fake:
    """An engine that takes so long, and says that it would take so long."""

    def __init__(self, kind: str, promised: float, taken: float | None, like: str = ""):
        self.kind, self.taken, self.nanoseconds, self.like = kind, taken, round(1e3 * promised), like
        self.n_bytes, self.made, self.closed = 1, 0, 0

    def way(self) -> CutWay:
        return CutWay(self.kind, self.like, self.nanoseconds, self.make)

    def make(self) -> Any:
        self.made += 1
        return self

    def close(self) -> None:
        self.closed += 1


def decided(usual: float | None, model: float, *fakes: Fake) -> tuple[Any, str, GpuPatternCache]:
    """What comes of a pattern: microseconds of the usual engine, measured and by its model, and what there could be."""
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    plan = net.plan("min-fill", cache=False).plan
    gpu: Any = HostGpu(plan, tables(net))
    gpu.cut_ways = lambda plans, seen: (f.way() for f in fakes)

    def timed(seen: Any, engine: Any = None) -> float:
        taken = usual if engine is None else engine.taken
        if taken is None:
            raise BackendUnavailable("there is no nvcc")
        return 1e3 * taken

    gpu.timed = timed
    backend = GpuPatternCache(plan, tables(net), gpu)
    new, told = backend.improve(np.arange(len(net)) == 2, None, round(1e3 * model))
    return new, told, backend


def test_what_was_measured_decides(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="jtgpu")
    promises, is_quick = Fake("cut flow", 60, 120), Fake("cut", 80, 79)
    new, told, _ = decided(100, 165, promises, is_quick)
    assert new.engine is is_quick
    assert told == "cut flow: 120.0 us for 100.0 us; cut: 79.0 us for 100.0 us"
    assert f"an engine of its own: {told}" in caplog.text
    assert promises.closed == 1
    assert is_quick.closed == 0


def test_the_quicker_of_two_engines_is_kept() -> None:
    first, second, third = Fake("cut flow", 50, 90), Fake("cut", 80, 60), Fake("cut", 58, 10)
    new, told, _ = decided(100, 165, first, second, third)
    assert new.engine is second
    assert told == (
        "cut flow: 90.0 us for 100.0 us; cut: 60.0 us for 90.0 us; cut: 58.0 us promised for 60.0 us"
    )
    assert [f.closed for f in (first, second, third)] == [1, 0, 0]
    assert third.made == 0


def test_a_mistake_with_the_second_engine_closes_both() -> None:
    first, second = Fake("cut flow", 50, 90), Fake("cut", 80, 60)
    _, _, backend = decided(100, 165)
    gpu: Any = backend.gpu
    gpu.cut_ways = lambda plans, seen: iter([first.way(), second.way()])

    def broken(seen: Any, engine: Any = None) -> float:
        if engine is second:
            raise RuntimeError("a mistake")
        return 100e3 if engine is None else 90e3

    gpu.timed = broken
    with pytest.raises(RuntimeError, match="mistake"):
        backend.improve(np.arange(8) == 3, None, 165_000)
    assert (first.closed, second.closed) == (1, 1)


def test_an_engine_that_is_no_quicker_is_closed() -> None:
    for taken, kept in ((94.0, True), (96.0, False)):
        fake = Fake("cut", 60, taken)
        new, told, _ = decided(100, 165, fake)
        assert (new is not None, fake.closed) == (kept, int(not kept))
        assert told == f"cut: {taken} us for 100.0 us"


def test_a_model_that_promises_too_little_makes_no_engine() -> None:
    """Diabetes with a fifth observed: 152.9 us promised for 165.6 us that were 128.0 us."""
    fake = Fake("cut", 152.9, 1)
    assert decided(128, 165.6, fake)[:2] == (None, "cut: 152.9 us promised for 128.0 us")
    assert fake.made == 0
    # the model of the same kind of engine was wrong by as much for the usual plan
    new, _, _ = decided(128, 165.6, Fake("cut flow", 140, 100, "flow"))
    assert new is not None


def test_what_cannot_be_measured_is_left_to_the_models() -> None:
    new, told, _ = decided(None, 100, Fake("cut", 69, None))
    assert new is not None
    assert told == "cut: 69.0 us by the time model, not measured"
    fake = Fake("cut", 71, None)
    assert decided(None, 100, fake)[0] is None
    assert fake.made == 0


def test_a_quick_engine_is_left_alone() -> None:
    """Whatever its model says."""
    fake = Fake("cut", 1, 1)
    assert decided(remainder.WORTH / 1e3 - 1, 60, fake)[:2] == (None, "44.0 us by the usual engine")
    assert fake.made == 0


def test_the_usual_engine_is_measured_for_the_sieve_once_and_beside_the_other_again() -> None:
    fake = Fake("cut", 60, 50)
    new, _, backend = decided(100, 165, fake)
    assert new is not None
    gpu: Any = backend.gpu
    gpu.timed = lambda seen, engine=None: 70e3 if engine is None else 80e3
    found = backend.improve(np.arange(8) == 3, None, 165_000)
    assert found == (None, "cut: 80.0 us for 70.0 us")
    assert fake.closed == 1
    gpu.timed = None
    gpu.cut_ways = lambda plans, seen: iter([Fake("cut", 64, 1).way()])
    assert backend.improve(np.arange(8) == 4, None, 165_000) == (None, "cut: 64.0 us promised for 70.0 us")


def test_a_mistake_while_measuring_closes_the_engine() -> None:
    fake = Fake("cut", 60, 50)
    _, _, backend = decided(100, 165)
    gpu: Any = backend.gpu
    gpu.cut_ways = lambda plans, seen: iter([fake.way()])

    def broken(seen: Any, engine: Any = None) -> float:
        raise RuntimeError("a mistake")

    gpu.timed = broken
    with pytest.raises(RuntimeError, match="mistake"):
        backend.improve(np.arange(8) == 3, None, 165_000)
    assert fake.closed == 1


def test_patterns_tell_what_was_decided() -> None:
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    plan = net.plan("min-fill", cache=False).plan
    backend = GpuPatternCache(plan, tables(net), HostGpu(plan, tables(net)))  # type: ignore[arg-type]
    assert repr(backend) == "GpuPatternCache(0 patterns seen)"
    state = np.full(len(net), -1, np.int32)
    state[2] = 0
    for _ in range(3):
        backend.run(Evidence(state))
    decision = "cut: 2.0 us for 9000.0 us; cut flow: 3.0 us promised for 2.0 us"
    told = f"GpuPatternCache(1 patterns seen: Pattern(own plan: {decision}))"
    assert repr(backend) == told
    backend.close()


def test_small_cases_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    plan = net.plan("min-fill", cache=False).plan
    gpu = HostGpu(plan, tables(net))
    monkeypatch.setattr(gpu, "work", lambda seen, targets=None: remainder.WORTH - 1)
    backend = GpuPatternCache(plan, tables(net), gpu)  # type: ignore[arg-type]
    state = np.full(len(net), -1, np.int32)
    state[2] = 0
    backend.run(Evidence(state))
    assert not backend._patterns
    backend.close()


def test_what_is_left_of_scopes_and_tables() -> None:
    cards = np.array([2, 3, 4])
    seen = np.array([False, True, False])
    rest = Restriction(cards, [[1, 0], [2], [1], [2, 1, 0]], seen)
    assert rest.free.tolist() == [0, 2]
    assert rest.scopes == [[0], [1], [], [1, 0]]
    plan = rest.plans([1, 2, 0])[0]
    assert plan.cardinality.tolist() == [2, 4]
    assert math.isclose(plan.cost().largest_table, 8)
    tables = [np.arange(6.0).reshape(3, 2), np.ones(4), np.array([0.0, 1.0, 2.0]), np.arange(24.0).reshape(4, 3, 2)]
    whole = Whole(plan, tables, [[1, 0], [2], [1], [2, 1, 0]], seen)
    assert whole.cut == [0, 2, 3]
    assert [t.shape[0] for f, t in enumerate(whole.tables) if f in whole.cut] == [3, 3, 3]
    np.testing.assert_array_equal(whole.largest[0], [4.0, 5.0])
    assert whole.largest[2] == 2.0
