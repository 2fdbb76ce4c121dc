"""Patterns on a GPU, its kernels run on the host: what is left of a network gives the answers of the whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import jtgpu
from jtgpu import compiler, remainder, timing
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu.cut_engine import Whole
from jtgpu.errors import ImpossibleEvidence, TableTooLarge
from jtgpu.remainder import GpuReplanning, OnGpu, Remainder
from tests import host_cuda, random_nets
from tests.test_gpu_lowering import as_evidence

pytestmark = pytest.mark.skipif(host_cuda.compiler() is None, reason="there is no g++ to build the kernels with")


def tables(model: Any) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


class HostGpu:
    """`jtgpu.backends.gpu.Gpu`, as far as patterns are concerned: the definition, and engines on the host."""

    def __init__(self, plan: Any, factors: list[np.ndarray], lists: bool = False, real: str = "float64"):
        self.plan, self.factors, self.lists, self.real = plan, factors, lists, real
        self.usual = reference.prepare(plan, factors)
        self.made: list[host_cuda.HostCut] = []

    def work(self, seen: Any, targets: Any = None) -> int:
        return 1 << 60

    def without(self, plan: Any, seen: np.ndarray) -> Any:
        whole = Whole(plan, self.factors, self.plan.factor_scopes, seen)
        self.made.append(host_cuda.HostCut(plan, whole, self.lists, self.real))
        return self.made[-1]

    def run(self, evidence: Evidence, targets: Any = None) -> Any:
        return self.usual.run(evidence)

    def close(self) -> None:
        self.usual.close()


@settings(max_examples=60)
@given(data=st.data())
def test_what_is_left_answers_as_the_whole(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = model.plan("min-fill", cache=False).plan
    seen = np.array(data.draw(st.lists(st.booleans(), min_size=len(model), max_size=len(model))))
    assume(seen.any() and not seen.all())
    definition = reference.prepare(plan, tables(model))
    real = data.draw(st.sampled_from(["float64", "float32"]))
    gpu = HostGpu(plan, tables(model), data.draw(st.booleans()), real)
    found = GpuReplanning(plan, tables(model), gpu).make(seen)  # type: ignore[arg-type]
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
    backend = GpuReplanning(plan, tables(net), gpu)  # type: ignore[arg-type]
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
    assert isinstance(pattern.new, OnGpu)
    assert pattern.users == 0
    backend.close()
    assert gpu.made[0].closed


def test_a_card_that_is_full_leaves_the_usual_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    plan = net.plan("min-fill", cache=False).plan
    gpu = HostGpu(plan, tables(net))

    def full(plan: Any, seen: Any) -> Any:
        raise TableTooLarge("no memory", 1, 1, 0)

    monkeypatch.setattr(gpu, "without", full)
    backend = GpuReplanning(plan, tables(net), gpu)  # type: ignore[arg-type]
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


def test_small_cases_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    plan = net.plan("min-fill", cache=False).plan
    gpu = HostGpu(plan, tables(net))
    monkeypatch.setattr(gpu, "work", lambda seen, targets=None: remainder.WORTH - 1)
    backend = GpuReplanning(plan, tables(net), gpu)  # type: ignore[arg-type]
    state = np.full(len(net), -1, np.int32)
    state[2] = 0
    backend.run(Evidence(state))
    assert not backend._patterns
    backend.close()


def test_what_is_left_of_scopes_and_tables() -> None:
    cards = np.array([2, 3, 4])
    seen = np.array([False, True, False])
    rest = Remainder(cards, [[1, 0], [2], [1], [2, 1, 0]], seen)
    assert rest.kept.tolist() == [0, 2]
    assert rest.scopes == [[0], [1], [], [1, 0]]
    plan = rest.plan([1, 2, 0])
    assert plan.cardinality.tolist() == [2, 4]
    assert math.isclose(plan.cost().largest_table, 8)
    tables = [np.arange(6.0).reshape(3, 2), np.ones(4), np.array([0.0, 1.0, 2.0]), np.arange(24.0).reshape(4, 3, 2)]
    whole = Whole(plan, tables, [[1, 0], [2], [1], [2, 1, 0]], seen)
    assert whole.cut == [0, 2, 3]
    assert [t.shape[0] for f, t in enumerate(whole.tables) if f in whole.cut] == [3, 3, 3]
    np.testing.assert_array_equal(whole.largest[0], [4.0, 5.0])
    assert whole.largest[2] == 2.0
