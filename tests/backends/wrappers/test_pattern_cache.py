"""Plans for evidence patterns that recur: the oracle's answers with less work."""

from __future__ import annotations

import math
import re
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors, timing
from jtgpu.backends.base import Evidence
from jtgpu.backends.wrappers import pattern_cache
from jtgpu.backends.wrappers.questions import CheaperQuestions
from jtgpu.formats import bundled
from jtgpu.model.network import BayesianNetwork
from tests.support import oracle, random_nets


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pattern gets its own plan, however small the network."""
    monkeypatch.setattr(pattern_cache, "MIN_COST", 0)
    monkeypatch.setattr(pattern_cache, "PLANNING", 0)
    monkeypatch.setattr(pattern_cache, "REQUIRED_GAIN", math.inf)


def compiled(model: Any) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = model.plan("min-fill", cache=False).compile("cpu")
    return made


@pytest.mark.usefixtures("at_once")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_answers_are_those_of_the_oracle(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    junction_tree = compiled(model)
    session = junction_tree.session()
    for _ in range(3):
        hard, soft = data.draw(random_nets.evidence_weights(model))
        targets = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(model) - 1), max_size=2)))
        targets = targets if len(model) else None
        weights = random_nets.all_weights(model, hard, soft)
        expected = oracle.log_evidence(model, weights)
        session.set(hard, likelihood=soft)
        for ask in (
            lambda hard=hard, soft=soft, targets=targets: junction_tree.posteriors(
                hard, likelihood=soft, targets=targets
            ),
            lambda targets=targets: session.posteriors(targets=targets),
        ):
            if expected == -math.inf:
                with pytest.raises(errors.ImpossibleEvidence):
                    ask()
                continue
            found = ask()
            assert found.log_evidence == pytest.approx(expected, abs=1e-11)
            exact = oracle.posteriors(model, weights)
            for v in range(len(model)) if targets is None else targets:
                np.testing.assert_allclose(found[v], exact[v], atol=1e-12)
    session.close()
    junction_tree.close()


@pytest.mark.usefixtures("at_once")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tables_of_cases_are_those_of_the_usual_plan(data: st.DataObject) -> None:
    model = data.draw(random_nets.bayesian_networks().filter(len))
    n = data.draw(st.integers(0, 12))
    drawn = [data.draw(random_nets.evidence_weights(model))[0] for _ in range(2)]
    states = np.full((n, len(model)), -1, np.int32)
    for i in range(n):
        for v, s in drawn[i % 2].items():
            states[i, v] = s
    targets = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(model) - 1), max_size=3)))
    likelihood = {0: np.tile(np.linspace(0.5, 1.0, int(model.cardinality[0])), (n, 1))}
    plan = model.plan("min-fill", cache=False)
    answers = [
        plan.compile("cpu", replan=replan).posteriors_batch(
            states, likelihood=likelihood, targets=targets, on_error="flag"
        )
        for replan in (False, True)
    ]
    np.testing.assert_array_equal(answers[1].impossible, answers[0].impossible)
    np.testing.assert_allclose(answers[1].log_evidence, answers[0].log_evidence, atol=1e-11)
    for v in range(len(model)) if targets is None else targets:
        np.testing.assert_allclose(answers[1][v], answers[0][v], atol=1e-12)


def test_a_pattern_that_recurs_gets_a_better_plan() -> None:
    net = jtgpu.read(bundled.benchmark_files(["barley"])[0])
    assert isinstance(net, BayesianNetwork)
    plan = net.plan()
    case = timing.sample_cases(net, 1, 0.2, 1)[0]
    usual = plan.compile("cpu", replan=False).posteriors(case)
    junction_tree = plan.compile("cpu")
    assert isinstance(junction_tree._backend, CheaperQuestions)
    backend = junction_tree._backend.backend
    assert isinstance(backend, pattern_cache.PatternCache)
    seen = np.zeros(len(net), np.bool_)
    seen[[net.index(v) for v in case]] = True
    work = backend.work(seen)
    first = junction_tree.posteriors(case)
    for _ in range(pattern_cache.PLANNING * len(net) // work):
        junction_tree.posteriors(case)
    found = backend.acquire(seen, None)
    assert found is not None
    assert found.new is not None
    assert found.new.pattern_work() < 0.2 * work
    backend.release(found)
    assert found.users == 0
    last = junction_tree.posteriors(case)
    for answer in (first, last):
        assert answer.log_evidence == pytest.approx(usual.log_evidence, abs=1e-10)
        for v in net.variables:
            np.testing.assert_allclose(answer[v], usual[v], atol=1e-12)


@pytest.mark.usefixtures("at_once")
def test_the_number_of_plans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_cache, "MAX_PLANS", 2)
    monkeypatch.setattr(pattern_cache, "MAX_PATTERNS", 3)
    net = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    with net.compile("cpu") as junction_tree:
        backend = junction_tree._backend
        assert isinstance(backend, pattern_cache.PatternCache)
        for v in net.variables:
            junction_tree.posteriors({v: net.states(v)[0]})
            assert len(backend._patterns) <= 3
            assert sum(p.new is not None for p in backend._patterns.values()) <= 2
    with pytest.raises(errors.JtgpuError, match="closed"):
        backend.run_case(Evidence.none(len(net)))


@pytest.mark.usefixtures("at_once")
def test_the_memory_of_plans_is_bounded() -> None:
    net = jtgpu.read(bundled.benchmark_files(["alarm"])[0])
    junction_tree = net.compile("cpu")
    backend = junction_tree._backend
    assert isinstance(backend, pattern_cache.PatternCache)
    for v in net.variables[:12]:
        junction_tree.posteriors({v: net.states(v)[0]})
        taken = [p.bytes for p in backend._patterns.values() if p.new is not None]
        assert len(taken) == 1 or sum(taken) <= pattern_cache.MEMORY_SHARE * junction_tree.plan.cost().bytes


def test_a_plan_without_gain_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_cache, "MIN_COST", 0)
    monkeypatch.setattr(pattern_cache, "PLANNING", 0)
    monkeypatch.setattr(pattern_cache, "REQUIRED_GAIN", 0.0)
    net = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    junction_tree = net.compile("cpu")
    backend = junction_tree._backend
    assert isinstance(backend, pattern_cache.PatternCache)
    for _ in range(2):
        junction_tree.posteriors({"xray": "yes"})
    assert [p.settled for p in backend._patterns.values()] == [True]
    assert [p.new for p in backend._patterns.values()] == [None]
    assert re.fullmatch(
        r"PatternCache\(1 patterns seen: Pattern\(usual plan: \d+ of \d+ multiplications\)\)", repr(backend)
    )


class Slow:
    """A `PatternBackend` that counts how often it is closed."""

    closed = 0

    def pattern_work(self, targets: Any = None) -> int:
        return 0

    def pattern_memory(self, targets: Any = None) -> int:
        return 1 << 40

    def run_case(self, evidence: Evidence, targets: Any = None, states: Any = None) -> str:
        assert not self.closed
        return "new"

    def close(self) -> None:
        self.closed += 1


class Usual:
    def work(self, seen: Any, targets: Any = None) -> int:
        return 1 << 40

    def run_case(self, evidence: Evidence, targets: Any = None, states: Any = None) -> str:
        return "usual"

    def close(self) -> None:
        pass


def waiting(background: bool) -> tuple[Any, threading.Event, threading.Event, list[Slow]]:
    """A `PatternCache` of three variables that makes plans when the second event is set."""
    plan = BayesianNetwork({v: ["0", "1"] for v in "abc"}, {}, {v: [0.5, 0.5] for v in "abc"}).plan().plan
    begun, go, made = threading.Event(), threading.Event(), []

    class Waiting(pattern_cache.PatternCache):
        def make(self, seen: Any) -> Any:
            begun.set()
            assert go.wait(20)
            made.append(Slow())
            return made[-1]

    Waiting.background = background
    return Waiting(plan, [], Usual(), None), begun, go, made  # type: ignore[arg-type]


def observing(*variables: int) -> Evidence:
    state = np.full(3, -1, np.int32)
    state[list(variables)] = 0
    return Evidence(state)


def test_queries_do_not_wait_while_another_thread_plans() -> None:
    backend, begun, go, made = waiting(background=False)
    answers: list[str] = []
    planning = threading.Thread(target=lambda: answers.append(backend.run_case(observing(0))))
    planning.start()
    assert begun.wait(20)
    assert backend.run_case(observing(0)) == "usual"  # the same pattern
    assert backend.run_case(observing()) == "usual"
    go.set()
    planning.join()
    assert answers == ["new"]
    assert backend.run_case(observing(0)) == "new"
    assert len(made) == 1
    backend.close()
    assert made[0].closed == 1


def test_a_plan_of_the_background_thread_answers_from_a_fixed_query_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_cache, "PLANNING", 1 << 40)  # three queries of this network's three variables
    backend, begun, go, _ = waiting(background=True)
    answers = [backend.run_case(observing(0)) for _ in range(3)]
    assert begun.wait(20)
    answers += [backend.run_case(observing(0)) for _ in range(2)]
    go.set()
    answers += [backend.run_case(observing(0)) for _ in range(2)]  # the sixth waits for the plan, if it has to
    assert answers == ["usual"] * 5 + ["new"] * 2
    backend.close()


def test_the_last_user_closes_a_dropped_plan() -> None:
    backend, _, go, made = waiting(background=False)
    go.set()
    held = backend.acquire(observing(0).state >= 0, None)
    assert held.new is made[0]
    assert backend.run_case(observing(1)) == "new"  # takes all the memory: the first one is dropped
    assert held.dropped
    assert made[0].closed == 0
    backend.release(held)
    assert made[0].closed == 1
    assert [s.closed for s in made] == [1, 0]
    backend.close()
    backend.close()
    assert [s.closed for s in made] == [1, 1]
    assert backend.run_case(observing(1)) == "usual"  # which says that it is closed


def test_closing_waits_for_a_plan_that_is_being_made() -> None:
    backend, begun, go, made = waiting(background=True)
    backend.run_case(observing(0))
    assert begun.wait(20)
    closing = threading.Thread(target=backend.close)
    closing.start()
    go.set()
    closing.join()
    assert [s.closed for s in made] == [1]


def test_an_error_in_the_background_thread_is_logged_and_answers_stay(caplog: pytest.LogCaptureFixture) -> None:
    backend, _, go, _ = waiting(background=True)

    def fail(seen: Any) -> Any:
        raise RuntimeError("broken")

    backend.make = fail
    go.set()
    assert [backend.run_case(observing(0)) for _ in range(3)] == ["usual"] * 3
    assert "planning for an evidence pattern failed" in caplog.text
    backend.close()
