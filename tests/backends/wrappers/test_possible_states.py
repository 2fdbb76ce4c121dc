"""Models without impossible states answer as whole models do, by every method of a backend."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu.backends import make, reference
from jtgpu.backends.base import Backend, Evidence
from jtgpu.backends.cpu import runner
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers import pattern_cache, possible_states
from jtgpu.backends.wrappers.possible_states import PossibleStates
from jtgpu.errors import ImpossibleEvidence
from jtgpu.model.markov import MarkovNetwork
from jtgpu.plans.plan import Plan
from jtgpu.plans.reduction import possible_states as find

CARDS = (3, 4, 2, 3, 5, 3, 2)
SCOPES = ((0,), (1, 0), (2, 1), (3, 1, 2), (4, 3), (5, 4), (6, 5), (2, 6), ())


def some_factors(seed: int = 0) -> list[NDArray[np.float64]]:
    """State 1 of variable 0 is impossible, so are states 1 and 3 of variable 1 therefore; 4 has one state left."""
    rng = np.random.default_rng(seed)
    factors = [rng.uniform(0.1, 1.0, [CARDS[v] for v in scope]) for scope in SCOPES]
    factors[0][1] = 0.0
    factors[1][[1, 3]] *= [0.0, 1.0, 0.0]
    factors[4][[0, 1, 3, 4]] = 0.0
    factors[7][1, 0] = 0.0  # impossible together
    return factors


@pytest.fixture(autouse=True)
def of_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(possible_states, "LEAST_WORK", 0)


def a_plan(sets: Sequence[Sequence[int]] = ()) -> Plan:
    states = {f"v{i}": [f"s{j}" for j in range(n)] for i, n in enumerate(CARDS)}
    net = MarkovNetwork(states, list(zip(SCOPES, some_factors(), strict=True)))
    return net.plan("min-fill", together=list(sets), cache=False).plan


def backends(plan: Plan, seed: int = 0) -> tuple[Backend, Backend]:
    factors = [*some_factors(seed), *(np.ones([CARDS[v] for v in scope]) for scope in plan.sets)]
    backend = make.make("cpu", plan, factors, threads=1)
    assert isinstance(backend, PossibleStates)
    return backend, reference.prepare(plan, factors)


def cases(n: int = 60) -> NDArray[np.int32]:
    rng = np.random.default_rng(3)
    states = np.stack([rng.integers(0, card, n) for card in CARDS], axis=1)
    return np.where(rng.random(states.shape) < 0.25, states, -1).astype(np.int32)


def test_which_states_are_possible() -> None:
    found = find(np.array(CARDS), SCOPES, some_factors())
    assert found is not None
    assert [np.flatnonzero(~states).tolist() for states in found] == [[1], [1, 3], [], [], [0, 1, 3, 4], [], []]
    assert find(np.array([2, 2]), [(0, 1)], [np.eye(2)]) is None
    assert find(np.array([2, 2]), [(0, 1), (0,), (1,)], [np.eye(2), np.array([1.0, 0]), np.array([0, 1.0])]) is None


def test_cases_and_sessions() -> None:
    backend, expected = backends(a_plan())
    session, impossible = backend.session(), 0
    for i, state in enumerate(cases()):
        weights = {1: np.array([0.0, 3.0, 0.5, 1.0]), 4: np.ones(5)} if i % 2 else {}
        case, targets = Evidence(state, weights), [1, 4, 6] if i % 3 else None
        try:
            answer = expected.run_case(case, targets)
        except ImpossibleEvidence:
            impossible += 1
            for run in (backend.run_case, session.run):
                with pytest.raises(ImpossibleEvidence):
                    run(case, targets)
            continue
        for found in (backend.run_case(case, targets), session.run(case, targets)):
            assert found.log_evidence == pytest.approx(answer.log_evidence, abs=1e-12)
            for v in targets or range(len(CARDS)):
                cells = slice(*backend.posterior_ptr[v : v + 2])
                np.testing.assert_allclose(found.posterior[cells], answer.posterior[cells], atol=1e-14)
    assert 10 < impossible < 50
    session.close()


@pytest.mark.parametrize("targets", [None, [4, 1], []])
def test_tables(targets: list[int] | None) -> None:
    backend, expected = backends(a_plan())
    states = cases()
    likelihood = {1: np.random.default_rng(4).uniform(0.0, 1.0, (len(states), 4))}
    for weights in (None, likelihood):
        table = Table.of(states, weights, targets)
        found, answer = backend.run(table), expected.run(table)
        np.testing.assert_array_equal(found.impossible, answer.impossible)
        np.testing.assert_allclose(found.posterior, answer.posterior, atol=1e-14)
        np.testing.assert_allclose(found.log_evidence, answer.log_evidence, atol=1e-12)
    variables = [0, 1, 4, 5]
    some = np.where(np.isin(np.arange(len(CARDS)), variables), states, -1)
    codes = np.ascontiguousarray(some[:, variables].T.astype(np.int8))
    columns = backend.run(Table.by_columns(variables, codes, len(CARDS), targets))
    answer = expected.run(Table.of(some, None, targets))
    np.testing.assert_array_equal(columns.impossible, answer.impossible)
    np.testing.assert_allclose(columns.posterior, answer.posterior.T, atol=1e-14)
    np.testing.assert_allclose(columns.log_evidence, answer.log_evidence, atol=1e-12)
    mixed, answer = backend.run(Table.of(states[:3], recurs=False)), expected.run(Table.of(states[:3]))
    np.testing.assert_allclose(mixed.posterior, answer.posterior, atol=1e-14)


def test_counts() -> None:
    backend, expected = backends(a_plan())
    states = cases()
    for weights in (None, np.random.default_rng(5).normal(size=len(states))):
        found, answer = backend.run(Table.counts(states, weights)), expected.run(Table.counts(states, weights))
        np.testing.assert_array_equal(found.impossible, answer.impossible)
        np.testing.assert_allclose(found.log_evidence, answer.log_evidence, atol=1e-12)
        for family, of in zip(found.families, answer.families, strict=True):
            np.testing.assert_allclose(family, of, atol=1e-12)


def test_sets_of_variables() -> None:
    backend, expected = backends(a_plan([(1, 3)]))
    n = len(CARDS)
    likelihood = np.random.default_rng(6).uniform(0.0, 1.0, CARDS[1] * CARDS[3])
    for case in (Evidence.none(n), Evidence(np.array([0, -1, -1, 2, -1, -1, -1], np.int32), {n: likelihood})):
        found, answer = backend.run_case(case, [n, 1]), expected.run_case(case, [n, 1])
        assert found.log_evidence == pytest.approx(answer.log_evidence, abs=1e-12)
        for v in (n, 1):
            cells = slice(*backend.cell_ptr[v : v + 2])
            np.testing.assert_allclose(found.posterior[cells], answer.posterior[cells], atol=1e-14)


def test_a_case_with_changing_weights() -> None:
    backend, expected = backends(a_plan())
    ones = {1: np.ones(4)}
    held, plain = (b.hold_case(Evidence(np.full(len(CARDS), -1, np.int32), ones), [1, 3]) for b in (backend, expected))
    for weights in ([1.0, 2.0, 0.5, 3.0], [0.0, 1.0, 0.0, 2.0], [0.0, 1.0, 1.0, 2.0]):
        held.set(1, np.array(weights))
        plain.set(1, np.array(weights))
        assert held.run() == pytest.approx(plain.run(), abs=1e-12)
        if math.isfinite(plain.run()):
            for v in (1, 3):
                np.testing.assert_allclose(held.cells(v), plain.cells(v), atol=1e-14)
    held.close()
    observed = Evidence(np.array([1, -1, -1, -1, -1, -1, -1], np.int32), ones)
    assert backend.hold_case(observed, [1]).run() == -math.inf


def test_new_numbers_with_the_same_zeros_fewer_and_more() -> None:
    plan = a_plan()
    backend, _ = backends(plan)
    fewer, more = some_factors(7), some_factors(8)
    fewer[0][1] = 0.5
    more[6][:, 2] = 0.0
    for factors in (some_factors(9), more, fewer, some_factors(10)):
        backend.reload(factors)
        expected = reference.prepare(plan, factors)
        found, answer = backend.run(Table.of(cases())), expected.run(Table.of(cases()))
        np.testing.assert_array_equal(found.impossible, answer.impossible)
        np.testing.assert_allclose(found.posterior, answer.posterior, atol=1e-14)
    backend.close()


def test_interventions_make_states_possible() -> None:
    given = np.full((3, 3), 1 / 3)
    cpts = {"a": [0.5, 0.0, 0.5], "b": [[0.2, 0.8, 0.0]] * 3, "c": given}
    net = jtgpu.BayesianNetwork(
        {v: list("xyz") for v in "abc"}, {"a": [], "b": ["a"], "c": ["b"]}, {k: np.array(t) for k, t in cpts.items()}
    )
    with net.compile("cpu") as tree, net.compile("reference") as expected:
        assert isinstance(tree._backend, PossibleStates)
        found, answer = (t.posterior("c", {"a": "x"}) for t in (tree, expected))
        np.testing.assert_allclose(np.array(found), np.array(answer), atol=1e-14)
        assert np.array(tree.posterior("b", do={"a": "y"})) == pytest.approx([0.2, 0.8, 0.0])
        with pytest.raises(ImpossibleEvidence, match="a = 'y'"):
            tree.posterior("c", {"a": "y"})


def test_slices_of_a_dynamic_network_have_all_states() -> None:
    rng = np.random.default_rng(1)
    move, see = rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(4), 3)
    move[:, 2], see[:, 1] = 0.0, 0.0
    cpts = {"x": move / move.sum(axis=1, keepdims=True), "y": see / see.sum(axis=1, keepdims=True)}
    net = jtgpu.DynamicNetwork(
        {"x": list("abc"), "y": list("defg")}, {"x": [("x", 1)], "y": ["x"]}, cpts, start={"x": [0.5, 0.5, 0.0]}
    )
    codes = {"y": [list("dfgdfg"), list("gggddd")]}
    found, expected = (net.compile(backend).smooth(codes) for backend in ("cpu", "reference"))
    np.testing.assert_allclose(found["x"], expected["x"], atol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("own_plans", [False, True])
def test_maps_in_the_compiled_loops_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, own_plans: bool, threads: int
) -> None:
    monkeypatch.setattr(runner, "PARALLEL", 0)
    monkeypatch.setattr(pattern_cache, "MIN_COST", 0)
    monkeypatch.setattr(pattern_cache, "PLANNING", 0 if own_plans else 1 << 40)
    monkeypatch.setattr(pattern_cache, "REQUIRED_GAIN", 100.0)
    backend = make.make("cpu", a_plan(), some_factors(), threads=threads)
    assert isinstance(backend, PossibleStates)
    ptr, answered = backend.posterior_ptr, 0
    for i, state in enumerate(cases()):
        case, targets = Evidence(state), [None, [1, 4, 6], [0], []][i % 4]
        try:
            expected = backend.backend.answer(backend.backend.backend.session().run, case, targets)
        except ImpossibleEvidence:
            with pytest.raises(ImpossibleEvidence):
                backend.run_case(case, targets)
            continue
        found, answered = backend.run_case(case, targets), answered + 1
        assert found.log_evidence == expected.log_evidence
        for v in range(len(CARDS)) if targets is None else targets:
            np.testing.assert_array_equal(found.posterior[ptr[v] : ptr[v + 1]], expected.posterior[ptr[v] : ptr[v + 1]])
    assert answered > 20
    assert ("own plan" in repr(backend.backend.backend)) is own_plans
    backend.close()
