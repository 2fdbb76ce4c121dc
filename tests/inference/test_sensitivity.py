"""Derivatives by every parameter against finite differences, and what stands on them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

import jtgpu
from jtgpu.cli import app
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.util.options import BackendName
from tests.conftest import ROOT
from tests.support import judge, oracle
from tests.support.bundled import bundled
from tests.support.examples import examples
from tests.support.random_nets import all_weights, bayesian_networks, evidence_weights

BACKENDS: tuple[BackendName, ...] = ("reference", "cpu")


def target_probability(net: BayesianNetwork, target: tuple[int, int], weights: Any) -> float:
    """P(target | evidence) by the sum over everything; NaN for impossible evidence."""
    table = oracle.joint(net, weights)
    total = table.sum()
    return float(table.take(target[1], axis=target[0]).sum() / total) if total > 0 else math.nan


def some_entries(data: st.DataObject, net: BayesianNetwork, n: int) -> list[tuple[int, tuple[int, ...]]]:
    """Places of CPT entries, zeros and ones among them."""
    found = []
    for _ in range(n):
        v = data.draw(st.integers(0, len(net) - 1))
        shape = net.cpt(v).shape
        found.append((v, tuple(data.draw(st.integers(0, s - 1)) for s in shape)))
    return found


@given(st.data())
@examples(80)
def test_values_at_other_parameters(data: st.DataObject) -> None:
    """The posterior as a function of one parameter is known exactly, so no difference has to be small."""
    net = data.draw(bayesian_networks(most=6))
    hard, soft = data.draw(evidence_weights(net))
    free = [v for v in range(len(net)) if v not in hard]
    assume(free)
    v = data.draw(st.sampled_from(free))
    target = v, data.draw(st.integers(0, int(net.cardinality[v]) - 1))
    weights = all_weights(net, hard, soft)
    tree = net.compile(data.draw(st.sampled_from(BACKENDS)), order="min-fill")
    now = target_probability(net, target, weights)
    if math.isnan(now):
        with pytest.raises(jtgpu.ImpossibleEvidence):
            tree.sensitivity(target, hard, likelihood=soft)
        return
    found = tree.sensitivity(target, hard, likelihood=soft)
    assert found.probability == pytest.approx(now, abs=1e-12)
    assert found.log_evidence == pytest.approx(oracle.log_evidence(net, weights), abs=1e-11)
    for u, index in some_entries(data, net, 3):
        theta = float(net.cpt(u)[index])
        assert found.at(u, index, theta) == pytest.approx(now, abs=1e-12)
        if net.cpt(u).shape[-1] == 1:
            assert found[u][index] == 0
            continue
        for value in (0.0, 0.3, 1.0):
            expected = target_probability(oracle.with_entry(net, u, index, value), target, weights)
            if math.isnan(expected):
                with pytest.raises(jtgpu.ImpossibleEvidence, match="the evidence has probability 0 if P"):
                    found.at(u, index, value)
            else:
                assert found.at(u, index, value) == pytest.approx(expected, abs=1e-12)
        step = 1e-6 if theta < 0.5 else -1e-6
        ahead = target_probability(oracle.with_entry(net, u, index, theta + step), target, weights)
        slope = (ahead - now) / step
        assert found[u][index] == pytest.approx(slope, rel=1e-3, abs=1e-3 * max(1.0, abs(slope)))


@given(st.data())
@examples(40)
def test_partial_derivatives(data: st.DataObject) -> None:
    """One entry alone, so that its row sums to something else: P(t | e) as a quotient of factors' sums."""
    net = data.draw(bayesian_networks(most=5))
    hard, soft = data.draw(evidence_weights(net))
    v = data.draw(st.integers(0, len(net) - 1))
    assume(v not in hard)
    target = v, data.draw(st.integers(0, int(net.cardinality[v]) - 1))
    weights = all_weights(net, hard, soft)
    assume(math.isfinite(oracle.log_evidence(net, weights)))
    found = net.compile("cpu", order="min-fill").sensitivity(target, hard, likelihood=soft)
    for u, index in some_entries(data, net, 3):
        def moved(step: float, u: int = u, index: tuple[int, ...] = index) -> tuple[float, float]:
            factors = []
            for i, f in enumerate(net.factors):
                table = f.table.copy()
                table[index if i == u else ()] += step if i == u else 0.0
                factors.append((list(f.scope), table))
            table = oracle.joint(MarkovNetwork({n: net.states(n) for n in net.variables}, factors), weights)
            return float(table.take(target[1], axis=target[0]).sum()), float(table.sum())

        (a, b), (c, d) = moved(0.0), moved(1.0)  # both are linear
        expected = (c - a) / b - a / b * (d - b) / b
        assert found.partial(u)[index] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.data())
@examples(30)
def test_backends_agree(data: st.DataObject) -> None:
    net = data.draw(bayesian_networks())
    hard, soft = data.draw(evidence_weights(net))
    v = data.draw(st.integers(0, len(net) - 1))
    assume(v not in hard)
    lowering = data.draw(st.sampled_from(LOWERINGS))
    trees = [net.compile(b, order="min-fill", lowering=lowering) for b in BACKENDS]
    try:
        slow, fast = (t.sensitivity((v, 0), hard, likelihood=soft) for t in trees)
    except jtgpu.ImpossibleEvidence:
        return
    for u in net.variables:
        np.testing.assert_allclose(fast[u], slow[u], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fast.partial(u), slow.partial(u), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["alarm", "hailfinder", "insurance"])
def test_networks(name: str) -> None:
    net = bundled(name)
    tree = net.compile("cpu")
    evidence = judge.sampled_evidence(net, 0.2, seed=6)
    target = next(v for v in net.variables if v not in evidence and 0.05 < tree.posterior(v, evidence)[0] < 0.95)
    found = tree.sensitivity((target, 0), evidence)
    assert found.probability == pytest.approx(tree.posterior(target, evidence)[0], abs=1e-12)
    assert found.log_evidence == pytest.approx(tree.log_evidence(evidence), abs=1e-10)
    for parameter in found.top(4):
        v = net.index(parameter.variable)
        for value in (parameter.value * 0.9, min(parameter.value * 1.1, 1.0)):
            other = oracle.with_entry(net, v, parameter.entry, value)
            with other.compile("cpu") as changed:
                expected = changed.posterior(target, evidence)[0]
            assert found.at(v, parameter.entry, value) == pytest.approx(expected, rel=1e-9)
    # what is no ancestor of target or evidence has derivative 0, not noise
    matter = {target, *evidence}
    for name_ in reversed(net.topological_order()):
        if name_ in matter:
            matter |= set(net.parents(name_))
    assert not any(found[u].any() for u in net.variables if u not in matter)


def chain() -> BayesianNetwork:
    return BayesianNetwork(
        {"a": ["no", "yes"], "b": ["no", "yes"], "c": ["low", "mid", "high"], "far": ["x", "y"]},
        {"b": ["a"], "c": ["b"]},
        {"a": [0.9, 0.1], "b": [[1.0, 0.0], [0.3, 0.7]], "c": [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]], "far": [0.5, 0.5]},
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_by_hand(backend: BackendName) -> None:
    found = chain().compile(backend).sensitivity(("b", "yes"))
    # P(b = yes) = P(a) . P(b = yes | a)
    assert found.probability == pytest.approx(0.07)
    np.testing.assert_allclose(found["a"], [-0.7, 0.7], atol=1e-15)
    np.testing.assert_allclose(found["b"], [[-0.9, 0.9], [-0.1, 0.1]], atol=1e-15)
    np.testing.assert_allclose(found.partial("b"), [[-0.07 * 0.9, 0.9 - 0.07 * 0.9], [-0.007, 0.1 - 0.007]], atol=1e-15)
    np.testing.assert_allclose(found.log("a"), found["a"] / 0.07)
    assert not found["c"].any()  # exactly: c is barren
    assert not found["far"].any()
    best = found.top(3)
    assert [str(p) for p in best] == ["P(b = no | a = no)", "P(b = yes | a = no)", "P(a = no)"]
    assert [p.value for p in best] == [1.0, 0.0, 0.9]
    assert len(found.top(1000)) == 6
    assert found.top(0) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_and_targets_of_probability_zero(backend: BackendName) -> None:
    tree = chain().compile(backend)
    found = tree.sensitivity(("b", "yes"), {"a": "no"})
    assert found.probability == 0
    np.testing.assert_allclose(found["b"], [[-1.0, 1.0], [0.0, 0.0]])  # of a zero, too
    assert found.at("b", (0, 1), 0.25) == pytest.approx(0.25)
    with pytest.raises(jtgpu.ImpossibleEvidence, match="no logarithm"):
        found.log("b")
    with pytest.raises(jtgpu.ImpossibleEvidence, match="a = 'no'"):
        tree.sensitivity(("c", "low"), {"a": "no", "b": "yes"})


def test_tornado() -> None:
    tree = chain().compile("cpu")
    found = tree.sensitivity(("a", "yes"), {"c": "high"})
    bars = found.tornado(50, spread=0.2)
    assert [b.width for b in bars] == sorted((b.width for b in bars), reverse=True)
    for bar in bars:
        p = bar.parameter
        assert bar.low == pytest.approx(0.8 * p.value)
        assert bar.high == pytest.approx(min(1.2 * p.value, 1.0))
        v = chain().index(p.variable)
        for value, at in ((bar.low, bar.at_low), (bar.high, bar.at_high)):
            assert at == pytest.approx(found.at(v, p.entry, value))
            other = oracle.with_entry(chain(), v, p.entry, value)
            assert at == pytest.approx(other.compile("cpu").posterior("a", {"c": "high"})["yes"])
    assert len(found.tornado(2)) == 2
    listed = [(b.parameter.variable, b.parameter.given) for b in bars if len(chain().states(b.parameter.variable)) == 2]
    assert len(set(listed)) == len(listed)  # no complements
    assert all(b.parameter.value <= 0.5 for b in bars if len(chain().states(b.parameter.variable)) == 2)
    with pytest.raises(ValueError, match="spread"):
        found.tornado(spread=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_interventions(backend: BackendName) -> None:
    tree = chain().compile(backend)
    found = tree.sensitivity(("c", "high"), do={"b": "yes"})
    assert found.probability == pytest.approx(0.7)
    assert not found["a"].any()
    assert not found["b"].any()
    np.testing.assert_allclose(found["c"][1, 2], 1.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_on_the_target(backend: BackendName) -> None:
    tree = chain().compile(backend)
    weights = {"b": [0.02, 8.0], "a": [3.0, 0.5]}
    found = tree.sensitivity(("b", "yes"), likelihood=weights)
    assert found.probability == pytest.approx(tree.posterior("b", likelihood=weights)["yes"])
    joint = {0: np.array([3.0, 0.5]), 1: np.array([0.02, 8.0])}
    other = oracle.with_entry(chain(), 0, (1,), 0.4)
    assert found.at("a", (1,), 0.4) == pytest.approx(target_probability(other, (1, 1), joint))
    never = tree.sensitivity(("b", "yes"), likelihood={"b": [1.0, 0.0]})
    assert never.probability == 0
    assert not any(never[v].any() for v in never)


def test_invalid_targets_and_values() -> None:
    tree = chain().compile("cpu")
    with pytest.raises(jtgpu.EvidenceError, match="'b' is observed"):
        tree.sensitivity(("b", "yes"), {"b": "no"})
    with pytest.raises(jtgpu.UnknownState):
        tree.sensitivity(("b", "maybe"))
    with pytest.raises(jtgpu.EvidenceError, match="pair"):
        tree.sensitivity("b")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="probability"):
        tree.sensitivity(("b", "yes")).at("a", (0,), 1.5)
    model = MarkovNetwork({"x": ["a", "b"]}, [(["x"], [1.0, 2.0])])
    with pytest.raises(jtgpu.NetworkError, match="Bayesian network"):
        model.compile("cpu").sensitivity(("x", "a"))


def test_sensitivities_are_mappings() -> None:
    found = chain().compile("cpu").sensitivity(("b", "yes"))
    assert list(found) == ["a", "b", "c", "far"]
    assert found[1].shape == (2, 2)
    assert not found["b"].flags.writeable
    assert "P(b = yes) = 0.07" in repr(found)
    assert len(found) == 4


# Command line -------------------------------------------------------------------------------------------------------


def run(*words: str) -> Any:
    """One command within this process; a traceback is a failure."""
    result = CliRunner().invoke(app, [*words, "--backend", "reference"])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


ASIA = str(ROOT / "nets" / "asia.net")


def test_the_command() -> None:
    found = json.loads(run("sensitivity", ASIA, "lung=yes", "-e", "xray=yes", "-n", "3", "--json").stdout)
    expected = bundled("asia").compile("reference").sensitivity(("lung", "yes"), {"xray": "yes"})
    assert found["probability"] == pytest.approx(expected.probability)
    assert found["target"] == ["lung", "yes"]
    for p, bar in zip(found["parameters"], expected.tornado(3), strict=True):
        assert (p["variable"], p["state"], p["given"]) == (
            bar.parameter.variable,
            bar.parameter.state,
            dict(bar.parameter.given),
        )
        assert (p["derivative"], p["at_high"]) == (bar.parameter.derivative, bar.at_high)
    lines = run("sensitivity", ASIA, "lung=yes", "-e", "xray=yes", "-n", "3", "--spread", "0.5").stdout.splitlines()
    assert len(lines) == 6
    assert lines[5] == (
        "# P at low, P at high: the probability if the parameter is 50 % lower, 50 % higher (at most 1)"
    )
    assert lines[0].startswith("# P(lung = yes) now\t0.48871140131")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["lung=yes", "-e", "lung=no"], 2, "'lung' is observed"),
        (["lung=yes,no"], 2, "one state"),
        (["lung"], 2, "name=state"),
        (["lung=yes", "--spread", "0"], 2, "not in the range x>0"),
        (["lung=yes", "-e", "tub=yes", "-e", "either=no"], 4, "either = 'no'"),
    ],
)
def test_invalid_commands(words: list[str], code: int, says: str) -> None:
    done = run("sensitivity", ASIA, *words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in " ".join(done.stderr.split())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("e", [1e-6, 1e-13, 1e-40, 1e-150, 1e-300])
def test_values_that_make_the_evidence_improbable(e: float, backend: BackendName) -> None:
    """The new P(e) is e times the old one: its terms are added, not subtracted from one."""
    names = ["n", "y"]
    net = BayesianNetwork(
        {"a": names, "b": names, "c": names}, {"b": ["a"], "c": ["a"]},
        {"a": [0.5, 0.5], "b": [[1.0 - e, e], [1.0, 0.0]], "c": [[0.3, 0.7], [0.6, 0.4]]},
    )
    with net.compile(backend) as tree:
        found = tree.sensitivity(("a", "y"), {"b": "y", "c": "y"})
        assert found.at("b", (1, 1), 3 * e) == pytest.approx(3 * 0.4 / (0.7 + 3 * 0.4), rel=1e-12)
        found = net.replace(cpt={"b": [[1.0 - e, e], [0.5, 0.5]]}).compile(backend).sensitivity(("a", "y"), {"b": "y"})
        assert found.at("b", (1, 1), 2 * e) == pytest.approx(2 / 3, rel=1e-12)  # P(e) falls from .25 to 1.5 e
        assert found.at("a", (0,), 1.0) == 0.0
        assert found.at("b", (1, 1), 0.0) == 0.0
        assert all(0 <= x <= 1 for bar in found.tornado(20, spread=1.0) for x in (bar.at_low, bar.at_high))
    sure = net.replace(cpt={"b": [[1.0, 0.0], [1.0 - e, e]]}).compile(backend).sensitivity(("c", "y"), {"b": "y"})
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"probability 0 if P\(b = y \| a = y\) is 0"):
        sure.at("b", (1, 1), 0.0)
