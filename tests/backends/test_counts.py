"""Expected counts of every family: against brute force, and bit-identical for any number of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends import cpu, reference
from jtgpu.backends.base import Backend, CountSums, Evidence, Result
from jtgpu.backends.cpu import batch, programs
from jtgpu.backends.table import Table
from jtgpu.errors import BackendUnavailable
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.compiler import build_plan, model_factors, order_graph
from tests.support import oracle, random_nets
from tests.support.bundled import bundled
from tests.support.examples import examples


def backend_of(model: DiscreteModel, name: str, threads: int = 1) -> Backend:
    """A backend on its own, without a tree."""
    factors = model_factors(model)
    order = list(range(len(model)))
    plan = build_plan(model.cardinality, [f.scope for f in factors], order_graph(model), order)
    tables = [f.table for f in factors]
    if name == "reference":
        return reference.prepare(plan, tables)
    return cpu.prepare(plan, tables, threads=threads)


def random_states(model: DiscreteModel, n: int, missing: float, seed: int) -> np.ndarray:
    """(n, V) int32: any states, cells missing at random."""
    rng = np.random.default_rng(seed)
    states = np.stack([rng.integers(0, c, n) for c in model.cardinality.tolist()], axis=1).astype(np.int32)
    states[rng.random(states.shape) < missing] = -1
    return states


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows count as many, so that every configuration of a table occurs."""
    monkeypatch.setattr(batch, "_enough", lambda *_: 3)
    monkeypatch.setattr(batch, "FEW", 2)
    monkeypatch.setattr(batch, "TASK", 0.0)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("name", ["reference", "cpu"])
@given(data=st.data())
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counts_agree_with_brute_force(data: st.DataObject, name: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(most=5), random_nets.markov_networks(most=4)))
    if not len(model):
        return
    seed, n = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.sampled_from([0, 1, 3, 12]))
    states = random_states(model, n, data.draw(st.sampled_from([0.0, 0.3, 1.0])), seed)
    if n and data.draw(st.booleans()):
        states[:] = np.where(states[0] < 0, -1, states)  # one pattern for many rows
    weights = np.random.default_rng(seed).random(n) * 3
    weights[: n // 3] = 0.0
    expected, impossible = oracle.expected_counts(model, states, weights)
    found = backend_of(model, name).run(Table.counts(states, weights))
    np.testing.assert_array_equal(found.impossible, impossible)
    # a variable without factors gets one of ones, behind the others
    for mine, exact in zip(found.families, expected, strict=False):
        np.testing.assert_allclose(mine, exact, atol=1e-12)
        assert mine.shape == exact.shape
    for b in range(n):
        case = {v: np.eye(int(model.cardinality[v]))[s] for v, s in enumerate(states[b].tolist()) if s >= 0}
        exact_log = oracle.log_evidence(model, case)
        assert found.log_evidence[b] == pytest.approx(exact_log, abs=1e-10)


def assert_same(a: CountSums, b: CountSums) -> None:
    for x, y in zip(a.families, b.families, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(a.log_evidence, b.log_evidence)
    np.testing.assert_array_equal(a.impossible, b.impossible)


@pytest.mark.parametrize("missing", [0.1, 0.9])
def test_counts_have_the_same_bits_for_any_number_of_threads(missing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "TASK", 200.0)
    net = bundled("alarm")
    states = random_states(net, 700, missing, 3)
    weights = np.random.default_rng(1).random(700)
    found = [backend_of(net, "cpu", threads).run(Table.counts(states, weights)) for threads in (1, 2, 3)]
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])
    possible = float(weights[~found[0].impossible].sum())
    for family in found[0].families:
        assert family.sum() == pytest.approx(possible)


@pytest.mark.slow
def test_counts_of_real_networks_agree_with_the_definition() -> None:
    for name in ("insurance", "water"):
        net = bundled(name)
        states = random_states(net, 6, 0.95, 7)
        exact = backend_of(net, "reference").run(Table.counts(states))
        found = backend_of(net, "cpu").run(Table.counts(states))
        np.testing.assert_array_equal(found.impossible, exact.impossible)
        for mine, theirs in zip(found.families, exact.families, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_an_impossible_row_adds_nothing() -> None:
    net = BayesianNetwork(
        {"a": ["no", "yes"], "b": ["no", "yes"]}, {"b": ["a"]}, {"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.1, 0.9]]}
    )
    states = np.array([[0, 1], [1, 1], [-1, 0], [1, -1]], np.int32)
    for name in ("reference", "cpu"):
        found = backend_of(net, name).run(Table.counts(states))
        assert found.impossible.tolist() == [False, True, False, True]
        assert found.log_evidence[[1, 3]].tolist() == [-np.inf] * 2
        assert found.families[0].tolist() == [2.0, 0.0]
        assert found.families[1].tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_a_variable_of_one_state() -> None:
    net = BayesianNetwork(
        {"a": ["only"], "b": ["no", "yes"]}, {"b": ["a"]}, {"a": [1.0], "b": [[0.25, 0.75]]}
    )  # fmt: skip
    for name in ("reference", "cpu"):
        found = backend_of(net, name).run(Table.counts(np.array([[-1, -1], [0, 1]], np.int32), np.array([2.0, 1.0])))
        assert found.families[0].tolist() == [3.0]
        assert found.families[1].tolist() == [[0.5, 2.5]]


def test_other_backends_refuse() -> None:
    class Other(Backend):
        def run_case(self, evidence: Evidence, targets: Sequence[int] | None = None, states: object = None) -> Result:
            raise AssertionError

    with pytest.raises(BackendUnavailable, match="backend='cpu'"):
        Other().run(Table.counts(np.zeros((0, 0), np.int32)))


# New numbers --------------------------------------------------------------------------------------------------------


def other_numbers(net: BayesianNetwork, seed: int, zeros_too: bool) -> BayesianNetwork:
    """The network with other CPTs; with the same zeros, or others."""
    rng = np.random.default_rng(seed)
    cpts = {}
    for v in net.variables:
        cpt = np.array(net.cpt(v)) * rng.random(net.cpt(v).shape)
        if zeros_too:
            cpt[rng.random(cpt.shape) < 0.2] = 0.0
            cpt[..., 0] += cpt.sum(axis=-1) == 0
        cpt[..., 0] += cpt.sum(axis=-1) == 0
        cpts[v] = cpt / cpt.sum(axis=-1, keepdims=True)
    return BayesianNetwork({v: net.states(v) for v in net.variables}, {v: net.parents(v) for v in net.variables}, cpts)


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("zeros_too", [False, True])
def test_reload_is_a_fresh_backend(name: str, zeros_too: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FEW", 0)
    monkeypatch.setattr(programs, "LOOK", 2)
    monkeypatch.setattr(programs, "FEWEST_TERMS", 0)
    monkeypatch.setattr(programs, "MOST_LEFT", 0.9)
    net = bundled("child")
    states = random_states(net, 12, 0.8, 1)
    cases = [Evidence(row) for row in states[:3]]
    backend = backend_of(net, name)
    for seed in range(3):
        for case in cases * 3:
            try:
                backend.run_case(case)
            except jtgpu.errors.ImpossibleEvidence:
                continue
        backend.run(Table.of(states))
        backend.run(Table.counts(states))
        changed = other_numbers(net, seed, zeros_too)
        backend.reload([f.table for f in model_factors(changed)])
        fresh = backend_of(changed, name)
        for case in cases:
            try:
                expected = fresh.run_case(case)
            except jtgpu.errors.ImpossibleEvidence:
                with pytest.raises(jtgpu.errors.ImpossibleEvidence):
                    backend.run_case(case)
                continue
            found = backend.run_case(case)
            np.testing.assert_array_equal(found.posterior, expected.posterior)
            assert found.log_evidence == expected.log_evidence
        mine, theirs = backend.run(Table.of(states)), fresh.run(Table.of(states))
        np.testing.assert_array_equal(mine.posterior, theirs.posterior)
        np.testing.assert_array_equal(mine.log_evidence, theirs.log_evidence)
        assert_same(backend.run(Table.counts(states)), fresh.run(Table.counts(states)))


def test_factors_that_are_no_densities_after_a_reload() -> None:
    net = bundled("asia")
    tables = [f.table for f in model_factors(net)]
    backend, fresh = backend_of(net, "cpu"), backend_of(net, "cpu")
    case = Evidence.none(len(net))
    backend.run_case(case, [0])
    fresh.reload([t * 3.0 for t in tables])
    backend.reload([t * 3.0 for t in tables])
    found = backend.run_case(case, [0])
    assert found.log_evidence == pytest.approx(len(tables) * np.log(3.0))
    np.testing.assert_array_equal(found.posterior, fresh.run_case(case, [0]).posterior)


def test_queries_during_a_reload_see_one_model_or_the_other() -> None:
    import threading

    net = bundled("alarm")
    other = other_numbers(net, 5, True)
    numbers = [[f.table for f in model_factors(m)] for m in (net, other)]
    case = Evidence.none(len(net))
    backend = backend_of(net, "cpu")
    expected = [backend_of(m, "cpu").run_case(case).posterior.tobytes() for m in (net, other)]
    wrong, stop = [], threading.Event()

    def query() -> None:
        while not stop.is_set():
            if backend.run_case(case).posterior.tobytes() not in expected:
                wrong.append(1)

    threads = [threading.Thread(target=query) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(40):
        backend.reload(numbers[i % 2])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert backend.run_case(case).posterior.tobytes() == expected[1]
