"""Evidence patterns on an emulated GPU: an engine of the unobserved variables gives the answers of the whole network,
and is used only if its calls are quicker."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu
from jtgpu.backends.gpu import patterns
from jtgpu.backends.gpu.batch import table
from jtgpu.backends.gpu.dataflow.graph import RestrictedFactors
from jtgpu.backends.gpu.patterns import GpuPatternCache, RestrictedBackend, call_microseconds
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.errors import BackendUnavailable, ImpossibleEvidence, TableTooLarge
from jtgpu.plans.conditioning import Restriction
from tests.backends.gpu.engines import ON_GPU, as_evidence, tables
from tests.plans.test_plan import chain
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.examples import examples


def cache_of(model: Any, **options: Any) -> GpuPatternCache:
    """A network on the GPU, with patterns."""
    plan = model.plan("min-fill", cache=False).plan
    return GpuPatternCache(plan, tables(model), gpu.prepare(plan, tables(model), **(options or {"engine": "dataflow"})))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pattern gets an engine of its own with its second case, however slow."""
    for name in ("PLANNING", "BUILDING", "STARTING", "MIN_CASE"):
        monkeypatch.setattr(patterns, name, 0)
    for name in ("PREDICTED_SHARE", "CALL_SHARE"):
        monkeypatch.setattr(patterns, name, 1e9)
    monkeypatch.setattr(patterns, "CALLS", 3)


@examples(40, **ON_GPU)
@given(data=st.data())
def test_the_unobserved_variables_answer_as_the_whole(emulated_gpu: Device, data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    seen = np.array(data.draw(st.lists(st.booleans(), min_size=len(model), max_size=len(model))))
    assume(seen.any() and not seen.all())
    cache = cache_of(model)
    definition = reference.prepare(cache.gpu.maker.plan, tables(model))
    try:
        found = cache.make(seen)
    except BackendUnavailable:  # a plan without contractions
        cache.close()
        assume(False)
        raise
    with closing(cache), closing(found):  # also if hypothesis ends the example early
        for _ in range(3):
            hard = {v: data.draw(st.integers(0, int(model.cardinality[v]) - 1)) for v in np.flatnonzero(seen).tolist()}
            _, soft = data.draw(random_nets.evidence_weights(model))
            case = as_evidence(len(model), hard, {model.index(v): np.asarray(w, float) for v, w in soft.items()})
            try:
                expected = definition.run_case(case)
            except ImpossibleEvidence:
                with pytest.raises(ImpossibleEvidence):
                    found.run_case(case)
                continue
            got = found.run_case(case)
            np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
            assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)


@pytest.mark.usefixtures("always")
def test_a_pattern_gets_an_engine_of_its_own_and_frees_it(emulated_gpu: Device) -> None:
    net = bundled("insurance")
    cache = cache_of(net)
    rng = np.random.default_rng(4)
    chosen = rng.choice(len(net), 6, replace=False)
    definition = reference.prepare(cache.gpu.maker.plan, tables(net))
    session = cache.session()
    answered = 0
    for i in range(8):
        state = np.full(len(net), -1, np.int32)
        state[chosen] = [int(rng.integers(net.cardinality[v])) for v in chosen]
        weighed = (int(chosen[0]), int(chosen[0] + 1) % len(net))
        case = Evidence(state, {v: np.arange(1.0, net.cardinality[v] + 1) for v in weighed})
        query = session.run if i % 2 else cache.run_case
        try:
            expected = definition.run_case(case)
        except ImpossibleEvidence:
            with pytest.raises(ImpossibleEvidence):
                query(case)
            continue
        got = query(case, [0])
        answered += 1
        np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
    assert answered > 1
    pattern = next(iter(cache._patterns.values()))
    assert isinstance(pattern.new, RestrictedBackend)
    assert pattern.users == 0
    assert "us a call" in repr(cache)
    cache.close()  # the emulated GPU fails the test if memory is left


@pytest.mark.slow
def test_a_case_that_is_not_reliable_is_computed_by_the_usual_engine(
    emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 900
    net = chain(n, 3)
    plan = net.plan(order=list(range(n)), cache=False).plan
    cache = GpuPatternCache(plan, tables(net), gpu.prepare(plan, tables(net)))
    seen = np.arange(n) % 3 != 2
    own = cache.make(seen)
    weights = {0: np.array([0.5, 0.25, 0.25]), 2: np.array([0.5, 0.25, 0.25])}
    usual, improbable = (np.where(seen, x, -1).astype(np.int32) for x in (np.zeros(n), np.arange(n) % 300 % 3))
    for i, state in enumerate((usual, improbable, usual)):
        if i == 2:
            monkeypatch.setattr(own.engine, "run", lambda case: None)
        case = Evidence(state, weights)
        got, expected = own.run_case(case), cache.gpu.run_case(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=1e-10)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12, abs=1e-9)
    assert own.try_run(Evidence(usual, weights)) is None
    own.close()
    cache.close()


def decided(net: Any, monkeypatch: pytest.MonkeyPatch, usual: float, own: float) -> tuple[Any, str, GpuPatternCache]:
    """What becomes of a pattern whose calls take so many microseconds."""
    monkeypatch.setattr(patterns, "call_microseconds", lambda case, *calls: [usual, own])
    cache = cache_of(net)
    new, reason = cache.improve(np.arange(len(net)) == 2, None, 10**9)
    return new, reason, cache


def test_the_time_of_the_call_decides(
    emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Munin2: 40 us on the device for 56, and 93 us a call for 87."""
    caplog.set_level("INFO", logger="jtgpu")
    net = bundled("asia")
    for own, is_used in ((93.0, False), (83.0, False), (82.0, True)):
        new, reason, cache = decided(net, monkeypatch, 87.0, own)
        assert (new is not None) == is_used
        assert reason == f"{own} us a call, 87.0 us by the usual engine"
        if new is not None:
            new.close()
        cache.close()
    assert "an evidence pattern has the usual engine: 93.0 us a call" in caplog.text
    assert "an evidence pattern has an engine of its own: 82.0 us a call" in caplog.text


def test_an_engine_that_is_predicted_to_gain_little_is_not_made(emulated_gpu: Device) -> None:
    net = bundled("asia")
    cache = cache_of(net)
    new, reason = cache.improve(np.arange(len(net)) == 2, None, cache.gpu.engine.nanoseconds // 2)
    assert new is None
    assert "us predicted" in reason
    cache.close()


def test_other_engines_and_full_gpus_leave_the_usual_engine(
    emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = bundled("asia")
    cache = cache_of(net, engine="levels")
    assert cache.improve(np.arange(len(net)) == 2, None, 10**9)[0] is None
    cache.close()
    cache = cache_of(net)

    def full(made: Any) -> Any:
        raise TableTooLarge("no memory", 1, 1, 0)

    monkeypatch.setattr(cache.gpu.maker, "restricted", full)
    assert cache.improve(np.arange(len(net)) == 2, None, 10**9) == (None, "no memory")
    assert cache.improve(np.ones(len(net), np.bool_), None, 10**9)[0] is None  # nothing is left
    cache.close()


def test_an_error_while_measuring_frees_the_engine(emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(patterns, "call_microseconds", broken)
    net = bundled("asia")
    cache = cache_of(net)
    with pytest.raises(RuntimeError, match="mistake"):
        cache.improve(np.arange(len(net)) == 3, None, 10**9)
    cache.close()


def test_calls_alternate_and_their_medians_are_compared() -> None:
    order: list[str] = []

    def first(case: Evidence) -> None:
        order.append("first")

    def second(case: Evidence) -> None:
        order.append("second")
        raise ImpossibleEvidence("P(e) = 0 takes as long")

    times = call_microseconds(Evidence.none(1), first, second)
    assert order == ["first", "second"] * (patterns.CALLS + 3)
    assert all(t > 0 for t in times)


def test_small_cases_are_not_counted(emulated_gpu: Device) -> None:
    net = bundled("asia")
    cache = cache_of(net)
    cache.run_case(as_evidence(len(net), {2: 0}, {}))
    assert not cache._patterns
    cache.close()


def test_scopes_and_tables_of_the_unobserved_variables() -> None:
    cards = np.array([2, 3, 4])
    seen = np.array([False, True, False])
    rest = Restriction(cards, [[1, 0], [2], [1], [2, 1, 0]], seen)
    assert rest.free.tolist() == [0, 2]
    assert rest.scopes == [[0], [1], [], [1, 0]]
    plan = rest.plans([1, 2, 0])[0]
    assert plan.cardinality.tolist() == [2, 4]
    assert math.isclose(plan.cost().largest_table, 8)
    factors = [np.arange(6.0).reshape(3, 2), np.ones(4), np.array([0.0, 1.0, 2.0]), np.arange(24.0).reshape(4, 3, 2)]
    restricted = RestrictedFactors(plan, factors, [[1, 0], [2], [1], [2, 1, 0]], seen)
    selected = [f for f in range(len(restricted.tables)) if restricted.axes(f)]
    assert selected == [0, 2, 3]
    assert [t.shape[0] for f, t in enumerate(restricted.tables) if f in selected] == [3, 3, 3]
    np.testing.assert_array_equal(restricted.largest[0], [4.0, 5.0])
    assert restricted.largest[2] == 2.0


@pytest.mark.usefixtures("always")
def test_tables_go_to_the_gpu_and_not_a_row_a_launch(emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    net = bundled("survey")
    cache = cache_of(net)
    states = np.full((6, len(net)), -1, np.int32)
    states[:, 0] = np.arange(6) % 2
    for row in states[:2]:
        cache.run_case(Evidence(row))
    expected = cache.gpu.run(Table.of(states))

    def refuse(*_: Any) -> Any:
        raise AssertionError("a row is answered by a launch of its own")

    def by_columns(feed: Any) -> Any:
        read.append(len(feed.variables))
        return original(feed)

    read: list[int] = []
    original = table.read_columns
    with monkeypatch.context() as patched:
        patched.setattr(RestrictedBackend, "run_case", refuse)
        patched.setattr(table, "read_columns", by_columns)
        for found in (cache.run(Table.of(states)), cache.run(Table.of(states, recurs=False))):
            np.testing.assert_array_equal(found.posterior, expected.posterior)
        assert not read
        columns = cache.run(Table.by_columns([0], states[:, :1].T.astype(np.int8), len(net)))
        assert read  # by the kernels of columns
    np.testing.assert_array_equal(columns.posterior.T, expected.posterior)
    np.testing.assert_array_equal(columns.log_evidence, expected.log_evidence)
    assert next(iter(cache._patterns.values())).new is not None
    cache.close()
