"""`JunctionTree.expected_counts` and `with_numbers`."""

from __future__ import annotations

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import EvidenceError, ImpossibleEvidence, NetworkError, PlanError, UnknownVariable
from jtgpu.util.options import BackendName
from tests.support import oracle
from tests.support.bundled import bundled

BACKENDS: list[BackendName] = ["reference", "cpu"]


def random_states(net: jtgpu.DiscreteModel, n: int, missing: float, seed: int = 0) -> np.ndarray:
    """(n, V) states drawn from the network, cells missing at random."""
    states = net.compile("reference").sample(n, seed=seed).states.astype(np.int32)
    states[np.random.default_rng(seed).random(states.shape) < missing] = -1
    return states


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["cancer", "earthquake", "survey", "asia"])
def test_counts_agree_with_enumeration(name: str, backend: BackendName) -> None:
    net = bundled(name)
    states = random_states(net, 8, 0.4)
    weights = np.linspace(-1.0, 2.0, 8)
    expected, impossible = oracle.expected_counts(net, states, weights)
    found = net.compile(backend).expected_counts(states, weights=weights, on_error="flag")
    assert not impossible.any()
    assert not found.impossible.any()
    for v, exact in zip(net, expected, strict=True):
        np.testing.assert_allclose(found[v], exact, atol=1e-12)
        assert found[v].shape == net.cpt(v).shape
    assert found.log_likelihood == pytest.approx(float(weights @ found.log_evidence))
    assert found.rows == 8
    assert list(found) == list(net)


@pytest.mark.parametrize("backend", BACKENDS)
def test_negative_weights_subtract_a_case(backend: BackendName) -> None:
    tree = bundled("asia").compile(backend)
    states = random_states(tree.model, 20, 0.3)
    both = tree.expected_counts(np.vstack([states, states[:7]]), weights=np.r_[np.ones(20), -np.ones(7)])
    rest = tree.expected_counts(states[7:])
    for v in tree.model:
        np.testing.assert_allclose(both[v], rest[v], atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [1, 3, 40])
def test_likelihoods_of_cells(backend: BackendName, n: int) -> None:
    """A likelihood is a virtual child: the counts are those of the posterior."""
    net = bundled("asia")
    states = random_states(net, n, 0.5)
    weights = np.random.default_rng(1).random((n, 2))
    weights[0] = [1e-200, 3e-200]
    tree = net.compile(backend)
    found = tree.expected_counts(states, likelihood={"lung": weights})
    exact = tree.posteriors_batch(states, likelihood={"lung": weights})
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=1e-9)
    np.testing.assert_allclose(found["lung"].sum(axis=0), exact["lung"].sum(axis=0), atol=1e-10)


def test_equal_cases_are_computed_once() -> None:
    tree = bundled("asia").compile("cpu")
    states = np.repeat(random_states(tree.model, 5, 0.4), 30, axis=0)
    weights = np.random.default_rng(0).random(len(states))
    found, one = tree.expected_counts(states, weights=weights), tree.expected_counts(states[::30])
    np.testing.assert_array_equal(found.log_evidence, np.repeat(one.log_evidence, 30))
    summed = tree.expected_counts(states[::30], weights=weights.reshape(5, 30).sum(axis=1))
    for v in tree.model:
        np.testing.assert_allclose(found[v], summed[v], rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_impossible_cases(backend: BackendName) -> None:
    tree = bundled("asia").compile(backend)
    cases = [{"smoke": "yes"}, {"tub": "yes", "either": "no"}, {}]
    with pytest.raises(ImpossibleEvidence, match=r"row 1: .*either = 'no'"):
        tree.expected_counts(cases)
    found = tree.expected_counts(cases, on_error="flag")
    assert found.impossible.tolist() == [False, True, False]
    assert found.log_evidence[1] == -np.inf
    assert np.isfinite(found.log_likelihood)
    assert found["smoke"].sum() == pytest.approx(2.0)


def test_variables_select_families() -> None:
    tree = bundled("asia").compile("cpu")
    found = tree.expected_counts([{"xray": "yes"}], variables=["lung", "smoke"])
    assert list(found) == ["lung", "smoke"]
    assert len(found) == 2
    with pytest.raises(KeyError, match=r"'xray' is not among the variables of this query; add it to variables="):
        found["xray"]
    with pytest.raises(UnknownVariable, match="did you mean 'lung'"):
        tree.expected_counts([{}], variables="lunge")
    assert list(tree.expected_counts([{"xray": "yes"}], variables=())) == []


def test_bad_weights_and_models() -> None:
    tree = bundled("asia").compile("cpu")
    cases = {"xray": ["yes", "no"]}
    with pytest.raises(EvidenceError, match=r"weights has shape \(3,\), expected \(2,\)"):
        tree.expected_counts(cases, weights=[1, 2, 3])
    with pytest.raises(EvidenceError, match="row 1: the weight nan is not a finite number"):
        tree.expected_counts(cases, weights=[1, float("nan")])
    with pytest.raises(EvidenceError, match="weights must be 2 numbers"):
        tree.expected_counts(cases, weights=["a", "b"])
    markov = jtgpu.MarkovNetwork({"a": ["0", "1"]}, [(["a"], [1.0, 2.0])])
    with pytest.raises(NetworkError, match="require a Bayesian network"):
        markov.compile("cpu").expected_counts([{}])


def test_counts_follow_new_numbers() -> None:
    net = bundled("asia")
    tree = net.compile("cpu")
    before = tree.expected_counts([{"xray": "yes"}])["smoke"]
    other = net.replace(cpt={"smoke": [0.1, 0.9]})
    fresh = other.compile("cpu").expected_counts([{"xray": "yes"}])["smoke"]
    np.testing.assert_allclose(tree.with_numbers(other).expected_counts([{"xray": "yes"}])["smoke"], fresh, rtol=1e-14)
    np.testing.assert_array_equal(tree.expected_counts([{"xray": "yes"}])["smoke"], before)
    tree.reload(other)
    np.testing.assert_allclose(tree.expected_counts([{"xray": "yes"}])["smoke"], fresh, rtol=1e-14)


def test_with_numbers_shares_the_plan_and_the_options() -> None:
    net = bundled("asia")
    tree = net.compile("cpu", threads=1, order="min-fill")
    other = tree.with_numbers(net.replace(cpt={"smoke": [0.25, 0.75]}))
    assert other.plan.plan is tree.plan.plan
    assert other.threads == 1
    assert other.backend == "cpu"
    assert other.posterior("smoke")["yes"] == pytest.approx(0.25)
    assert tree.posterior("smoke")["yes"] == pytest.approx(0.5)
    with pytest.raises(PlanError, match="not only in numbers"):
        tree.with_numbers(bundled("cancer"))
    tree.close()
    with pytest.raises(jtgpu.JtgpuError, match="closed"):
        tree.with_numbers(net)
