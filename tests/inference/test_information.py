"""Entropies, mutual information, value of information, conflict and importance, by their definitions and by pyAgrum."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.inference.queries.findings import hellinger
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.options import BackendName
from tests.conftest import ROOT
from tests.support import judge, oracle, random_nets
from tests.support.trees import compiled

HERE = ("reference", "cpu")


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_information_by_definition(data: st.DataObject, backend: BackendName) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(most=6), random_nets.markov_networks(most=5)))
    tree = compiled(model, backend)
    hard, weighed = data.draw(random_nets.evidence_weights(model))
    target = data.draw(st.integers(0, len(model) - 1))
    weights = random_nets.all_weights(model, hard, weighed)
    known: dict[str, Any] = {"evidence": hard, "likelihood": weighed}
    if oracle.log_evidence(model, weights) == -math.inf:
        for ask in (tree.mutual_information, tree.value_of_information, tree.entropy):
            with pytest.raises(errors.ImpossibleEvidence):
                ask(target, **known)
        return
    table = oracle.joint(model, weights)
    h = oracle.entropy(table, [target])
    assert tree.entropy(target, **known) == pytest.approx(h, abs=1e-11)
    some = data.draw(st.lists(st.integers(0, len(model) - 1), min_size=1, max_size=3, unique=True))
    assert tree.entropy(some, **known) == pytest.approx(oracle.entropy(table, some), abs=1e-10)
    found = tree.mutual_information(target, **known)
    assert sorted(found) == sorted(v for i, v in enumerate(model.variables) if i != target)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    for name, value in found.items():
        expected = oracle.mutual_information(table, target, model.index(name))
        assert value == pytest.approx(expected, abs=1e-11)
        assert value >= 0
    best = tree.value_of_information(target, **known)
    assert {o.variable for o in best} == {v for i, v in enumerate(model.variables) if i != target and i not in hard}
    for o in best:
        expected_entropy, accuracy = oracle.after_observing(table, target, model.index(o.variable))
        assert o.expected_entropy == pytest.approx(expected_entropy, abs=1e-10)
        assert o.gain == pytest.approx(h - expected_entropy, abs=1e-10)
        assert o.expected_accuracy == pytest.approx(accuracy, abs=1e-11)


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_findings_by_definition(data: st.DataObject, backend: BackendName) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(most=6), random_nets.markov_networks(most=5)))
    tree = compiled(model, backend)
    hard, weighed = data.draw(random_nets.evidence_weights(model))
    weights = random_nets.all_weights(model, hard, weighed)
    assume(weights)
    target = data.draw(st.integers(0, len(model) - 1))
    if oracle.log_evidence(model, weights) == -math.inf:
        with pytest.raises(errors.ImpossibleEvidence):
            tree.conflict(hard, likelihood=weighed)
        with pytest.raises(errors.ImpossibleEvidence):
            tree.evidence_importance(target, hard, likelihood=weighed)
        return
    assert tree.conflict(hard, likelihood=weighed) == pytest.approx(oracle.conflict(model, weights), abs=1e-10)
    after, prior = oracle.posteriors(model, weights)[target], oracle.posteriors(model)[target]
    found = tree.evidence_importance(target, hard, likelihood=weighed)
    assert {i.variable for i in found} == {model.variables[v] for v in weights}
    for i in found:
        v = model.index(i.variable)
        assert i.states == tuple(np.array(model.states(v))[weights[v] > 0])
        without = oracle.posteriors(model, {u: w for u, w in weights.items() if u != v})[target]
        alone = oracle.posteriors(model, {v: weights[v]})[target]
        np.testing.assert_allclose(i.without, without, atol=1e-12)
        np.testing.assert_allclose(i.alone, alone, atol=1e-12)
        assert i.kl_without == pytest.approx(oracle.relative_entropy(after, without), abs=1e-10)
        assert i.kl_alone == pytest.approx(oracle.relative_entropy(alone, prior), abs=1e-10)
        assert i.shift_without == pytest.approx(np.abs(after - without).max(), abs=1e-12)
        assert i.shift_alone == pytest.approx(np.abs(alone - prior).max(), abs=1e-12)
        # 1 - the overlap is the square of the distance
        assert i.hellinger_without**2 == pytest.approx(1 - np.sqrt(after * without).sum(), abs=1e-10)
        assert i.hellinger_alone**2 == pytest.approx(1 - np.sqrt(alone * prior).sum(), abs=1e-10)


def test_pyagrum_agrees() -> None:
    gum = pytest.importorskip("pyagrum")
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    assert isinstance(net, BayesianNetwork)
    tree = compiled(net, "cpu")
    evidence = judge.sampled_evidence(net, 0.2, 5)
    bn = judge.to_pyagrum(net)  # held: its tables point into it
    theirs = gum.LazyPropagation(bn)
    theirs.setEvidence(evidence)
    free = [v for v in net.variables if v not in evidence]
    for v in free[:12]:  # theirs in bits
        assert tree.entropy(v, evidence) / math.log(2) == pytest.approx(theirs.H(v), abs=1e-9)
    found = tree.mutual_information(free[0], free[1:12], evidence)
    for v in free[1:12]:
        shared = gum.InformationTheory(theirs, [free[0]], [v]).mutualInformationXY()
        assert found[v] / math.log(2) == pytest.approx(shared, abs=1e-8)


def test_information_with_soft_evidence_and_interventions(asia: jtgpu.JunctionTree) -> None:
    known: dict[str, Any] = {"soft": {"bronc": [0.2, 0.8]}, "do": {"smoke": "yes"}}
    table = asia.joint(["lung", "dysp"], {"xray": "yes"}, **known)
    found = asia.mutual_information("lung", ["dysp"], {"xray": "yes"}, **known)
    assert found["dysp"] == pytest.approx(oracle.mutual_information(np.asarray(table), 0, 1), abs=1e-12)
    both = asia.entropy(["lung", "dysp"], {"xray": "yes"}, **known)
    one, other = (asia.entropy(v, {"xray": "yes"}, **known) for v in ("lung", "dysp"))
    assert found["dysp"] == pytest.approx(one + other - both, abs=1e-12)
    assert asia.mutual_information("lung", ["smoke"], **known)["smoke"] == pytest.approx(0.0, abs=1e-15)


def test_interventions_are_not_findings(asia: jtgpu.JunctionTree) -> None:
    alone = asia.conflict({"xray": "yes", "dysp": "no"}, do={"smoke": "yes"})
    both = {"xray": "yes", "dysp": "no"}
    log_p = [asia.log_evidence(e, do={"smoke": "yes"}) for e in ({"xray": "yes"}, {"dysp": "no"}, both)]
    assert alone == pytest.approx(log_p[0] + log_p[1] - log_p[2], abs=1e-12)
    found = asia.evidence_importance("lung", {"xray": "yes"}, do={"smoke": "yes"})
    assert [i.variable for i in found] == ["xray"]
    np.testing.assert_allclose(found[0].without, asia.posterior("lung", do={"smoke": "yes"}), atol=1e-15)


def test_invalid_queries(asia: jtgpu.JunctionTree) -> None:
    with pytest.raises(errors.EvidenceError, match="requires at least one finding"):
        asia.conflict({})
    with pytest.raises(errors.EvidenceError, match="requires at least one finding"):
        asia.evidence_importance("lung", {}, do={"smoke": "yes"})
    with pytest.raises(errors.EvidenceError, match="the target 'lung' must not be among the other variables"):
        asia.mutual_information("lung", ["lung"])
    with pytest.raises(errors.ImpossibleEvidence, match="lung = 'yes'"):
        asia.mutual_information("dysp", evidence={"lung": "yes", "either": "no"})


def test_an_observed_target_has_no_uncertainty(asia: jtgpu.JunctionTree) -> None:
    assert set(asia.mutual_information("lung", evidence={"lung": "yes"}).values()) == {0.0}
    best = asia.value_of_information("lung", ["smoke"], {"lung": "yes"})[0]
    assert (best.gain, best.expected_entropy, best.expected_accuracy) == (0.0, 0.0, 1.0)
    alone = MarkovNetwork({"a": ["0", "1"]}, [(["a"], [1.0, 3.0])])
    assert compiled(alone, "reference").mutual_information("a") == {}


def test_hellinger_is_between_zero_and_one() -> None:
    assert hellinger(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == 0.0
    assert hellinger(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1.0


def test_bits() -> None:
    """Bits are nats divided by ln 2, and every result names its unit."""
    with jtgpu.load("asia").compile("reference") as tree:
        nats, bits = tree.value_of_information("lung"), tree.value_of_information("lung", unit="bits")
        for a, b in zip(nats, bits, strict=True):
            assert (a.variable, a.expected_accuracy) == (b.variable, b.expected_accuracy)
            assert b.gain == pytest.approx(a.gain / math.log(2))
            assert b.expected_entropy == pytest.approx(a.expected_entropy / math.log(2))
        assert "in nats" in str(nats)
        assert "in bits" in str(bits)
        scores = tree.mutual_information("lung", unit="bits")
        assert scores["either"] == pytest.approx(bits[0].gain)
        assert scores.unit == "bits"
        assert "in bits" in str(scores)
        assert tree.entropy("smoke", unit="bits") == 1.0
        assert pickle.loads(pickle.dumps(scores)).unit == "bits"
        with pytest.raises(jtgpu.ArgumentError, match=r"unit.*'bit'.*'bits'"):
            tree.entropy("smoke", unit="bit")  # type: ignore[arg-type]
