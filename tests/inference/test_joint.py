"""Joint posteriors of any set of variables and conditional tables, by both methods, against brute force and pyAgrum."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.inference.queries import joint
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.options import BackendName, JointMethod
from tests.conftest import ROOT
from tests.plans.test_plan import chain
from tests.support import judge, oracle, random_nets
from tests.support.trees import compiled

HERE = ("reference", "cpu")


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_any_set_by_both_methods(data: st.DataObject, backend: BackendName) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(most=6), random_nets.markov_networks(most=5)))
    tree = compiled(model, backend)
    hard, weighed = data.draw(random_nets.evidence_weights(model))
    some = data.draw(st.lists(st.integers(0, len(model) - 1), min_size=1, max_size=4, unique=True))
    weights = random_nets.all_weights(model, hard, weighed)
    expected = oracle.log_evidence(model, weights)
    for how in ("cases", "together", "auto"):
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                tree.joint(some, hard, likelihood=weighed, how=how)
            continue
        found = tree.joint(some, hard, likelihood=weighed, how=how)
        np.testing.assert_allclose(found, oracle.marginal(oracle.joint(model, weights), some), atol=1e-12)
        assert found.log_evidence == pytest.approx(expected, abs=1e-11)
        assert found.variables == tuple(model.variables[v] for v in some)


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_conditional_tables(data: st.DataObject, backend: BackendName) -> None:
    net = data.draw(random_nets.bayesian_networks(most=6).filter(lambda n: len(n) > 1))
    tree = compiled(net, backend)
    hard, weighed = data.draw(random_nets.evidence_weights(net))
    some = data.draw(st.lists(st.integers(0, len(net) - 1), min_size=2, max_size=4, unique=True))
    n_given = data.draw(st.integers(1, len(some) - 1))
    conditions, targets = some[:n_given], some[n_given:]
    weights = random_nets.all_weights(net, hard, weighed)
    if oracle.log_evidence(net, weights) == -math.inf:
        with pytest.raises(errors.ImpossibleEvidence):
            tree.conditional(targets, conditions, hard, likelihood=weighed)
        return
    found = tree.conditional(targets, conditions, hard, likelihood=weighed)
    both = oracle.marginal(oracle.joint(net, weights), some)
    axes = tuple(range(n_given, len(some)))
    sums = both.sum(axis=axes)
    np.testing.assert_array_equal(found.possible, sums > 0)
    assert np.isfinite(found.probabilities).all()
    for at in np.ndindex(*sums.shape):
        if sums[at] > 0:
            np.testing.assert_allclose(found.probabilities[at], both[at] / sums[at], atol=1e-11)
            np.testing.assert_array_equal(found[at], found.probabilities[at])
        else:
            assert not found.probabilities[at].any()
            with pytest.raises(errors.ImpossibleEvidence, match="this configuration has probability 0"):
                found[at]


def test_rows_of_tiny_probability_are_normalised() -> None:
    """Far below the smallest double, a condition still has its distribution."""
    n = 400
    net = chain(n, 3)  # every change of state: 0.1
    tree = compiled(net, "cpu")
    evidence = {f"x{i}": i % 3 for i in range(1, n - 1)}
    table = tree.conditional("x0", [f"x{n - 1}"], evidence)
    assert table.possible.all()
    np.testing.assert_allclose(table.probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(table[0], table[1], atol=1e-12)  # what lies between separates them


@pytest.mark.parametrize("how", ["cases", "together"])
def test_joint_with_soft_evidence_and_interventions(asia: jtgpu.JunctionTree, how: JointMethod) -> None:
    known: dict[str, Any] = {"soft": {"bronc": [0.2, 0.8], "dysp": [0.6, 0.4]}, "do": {"smoke": "yes"}}
    table = asia.joint(["lung", "bronc", "smoke"], {"xray": "yes"}, how=how, **known)
    post = asia.posteriors({"xray": "yes"}, **known)
    for v in table.variables:
        np.testing.assert_allclose(table.marginal(v), post[v], atol=1e-12)
    assert table["yes", "yes", "no"] == 0.0
    assert table.log_evidence == pytest.approx(post.log_evidence, abs=1e-12)


@pytest.mark.parametrize(("name", "share"), [("asia", 0.0), ("alarm", 0.0), ("alarm", 0.3), ("hailfinder", 0.2)])
def test_pyagrum_agrees(name: str, share: float) -> None:
    gum = pytest.importorskip("pyagrum")
    net = jtgpu.read(ROOT / "nets" / f"{name}.net")
    assert isinstance(net, BayesianNetwork)
    evidence = judge.sampled_evidence(net, share, 3)
    free = [v for v in net.variables if v not in evidence]
    rng = np.random.default_rng(7)
    tree = compiled(net, "cpu")
    bn = judge.to_pyagrum(net)  # held: its tables point into it
    theirs = gum.LazyPropagation(bn)
    theirs.setEvidence(evidence)
    for size in (2, 3):
        some = rng.choice(free, size=size, replace=False).tolist()
        theirs.addJointTarget(set(some))
        expected = theirs.jointPosterior(set(some))
        axes = [list(reversed(expected.names)).index(v) for v in some]  # its first axis is the last of NumPy's
        for how in ("cases", "together"):
            np.testing.assert_allclose(
                tree.joint(some, evidence, how=how), expected.toarray().transpose(axes), atol=1e-9
            )
    # what evidence on some would do to another: the same question, by another name
    target, *others = rng.choice(free, size=3, replace=False).tolist()
    if not share:
        impact = gum.LazyPropagation(bn).evidenceImpact(target, others)
        table = tree.conditional(target, others)
        for at in itertools.product(*(range(len(net.states(v))) for v in others)):
            row = impact.extract({v: s for v, s in zip(others, at, strict=True) if v in impact.names}).toarray()
            np.testing.assert_allclose(table.probabilities[at], row, atol=1e-9)


# What it costs ------------------------------------------------------------------------------------------------------


def star(n: int, states: int) -> BayesianNetwork:
    """A hidden cause of n leaves: together they have many configurations, and each case is small."""
    rng = np.random.default_rng(1)
    names = ["c", *(f"f{i}" for i in range(n))]
    cpts = {f: rng.dirichlet(np.ones(states), 2) for f in names[1:]} | {"c": np.array([0.3, 0.7])}
    labels = {v: [str(s) for s in range(2 if v == "c" else states)] for v in names}
    return BayesianNetwork(labels, {f: ["c"] for f in names[1:]}, cpts)


def through_a_wide_one() -> BayesianNetwork:
    """a, b and c speak through a variable of 50 states: their table has 8 entries, those on the way have more."""
    rng = np.random.default_rng(2)
    child = rng.dirichlet(np.ones(2), 50)
    cpts = {"a": np.array([0.5, 0.5]), "x": rng.dirichlet(np.ones(50), 2), "b": child, "c": child}
    states = {v: [str(i) for i in range(50 if v == "x" else 2)] for v in "axbc"}
    return BayesianNetwork(states, {"x": ["a"], "b": ["x"], "c": ["x"]}, cpts)


def test_the_cheaper_method_is_chosen_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    net = star(7, 4)
    tree = compiled(net, "cpu")
    leaves = [f"f{i}" for i in range(7)]
    by_cases, together = (tree.joint_cost(leaves, how=how) for how in ("cases", "together"))
    assert by_cases.entries == together.entries == 4**7
    assert (by_cases.cases, together.cases) == (4**6, 0)
    assert together.operations < by_cases.operations
    assert tree.joint_cost(leaves).how == "cases"  # a table of small cases needs no other plan
    monkeypatch.setattr(joint, "CHEAP", 1000)
    assert tree.joint_cost(leaves).how == "together"
    assert tree.joint_cost(leaves, dict.fromkeys(leaves[3:], 0)).how == "cases"
    one, other = tree.joint(leaves), tree.joint(leaves, how="cases")
    np.testing.assert_allclose(one, other, atol=1e-14)
    assert "4 x 4" in repr(one)


def test_tables_that_do_not_fit_raise_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    net = chain(60, 3)
    tree = compiled(net, "cpu")
    with pytest.raises(errors.TableTooLarge, match="query fewer variables") as error:
        tree.joint(net.variables[:30])
    assert error.value.entries == 3**30
    with pytest.raises(errors.TableTooLarge, match="max_table"):
        tree.joint(net.variables[:6], max_table=700)
    with pytest.raises(errors.TableTooLarge, match="32 variables"):
        tree.joint(net.variables[:33], dict.fromkeys(net.variables, 0), max_table=2**62)
    with pytest.raises(errors.TableTooLarge, match="how='together'"):
        compiled(through_a_wide_one(), "cpu").joint(["a", "b", "c"], how="together", max_table=8)
    monkeypatch.setattr(joint, "free_memory", lambda: 1000)
    monkeypatch.setattr(joint, "ALWAYS_FREE", 0)
    with pytest.raises(errors.TableTooLarge, match="of the free memory"):
        tree.joint(["x0", "x20", "x40"])
    monkeypatch.undo()
    assert tree.joint_cost(net.variables[:30]).entries == 3**30
    with pytest.raises(ValueError, match="'cases' or 'together'"):
        tree.joint(["x0"], how="fast")  # type: ignore[arg-type]


def test_plans_that_keep_variables_together() -> None:
    net = chain(12, 2)
    plan = net.plan("min-fill", together=[["x0", "x11"], ["x3", 6, "x9"]], cache=False)
    plan.check()
    for wanted in ({0, 11}, {3, 6, 9}):
        assert any(wanted <= set(c) for c in plan.plan.cliques)
    assert not any({0, 11} <= set(c) for c in net.plan("min-fill", cache=False).plan.cliques)
    expected = net.compile("reference").posteriors({"x5": 1})
    for v, p in plan.compile("cpu").posteriors({"x5": 1}).items():
        np.testing.assert_allclose(p, expected[v], atol=1e-13)
    with pytest.raises(errors.UnknownVariable):
        net.plan(together=[["x0", "y"]])


# What is answered ---------------------------------------------------------------------------------------------------


def test_a_joint_table_is_labelled(asia: jtgpu.JunctionTree) -> None:
    table = asia.joint(["lung", "bronc"], {"xray": "yes"})
    array = np.asarray(table)
    assert table["yes", "no"] == array[0, 1] == table[0, 1] == table[{"bronc": "no", "lung": "yes"}]
    assert dict(table.items())["no", "yes"] == array[1, 0]
    assert table.mode == ("no", "no")
    np.testing.assert_allclose(table.marginal("bronc", "lung"), array.T)
    np.testing.assert_allclose(table.marginal("bronc"), asia.posterior("bronc", {"xray": "yes"}), atol=1e-15)
    assert np.asarray(table, np.float32).dtype == np.float32
    assert table.shape == (2, 2)
    with pytest.raises(ValueError, match="read-only"):
        table.probabilities[0, 0] = 1
    with pytest.raises(errors.EvidenceError, match="expected one state for each of 'lung', 'bronc'"):
        table["yes"]
    with pytest.raises(errors.EvidenceError, match="expected one state for each"):
        table[{"lung": "yes"}]
    with pytest.raises(errors.UnknownState, match="no state 'maybe'"):
        table["yes", "maybe"]
    with pytest.raises(errors.EvidenceError, match="repeated"):
        table.marginal("lung", "lung")
    assert "lung, bronc: 2 x 2" in repr(table)


def test_a_conditional_table_is_labelled(asia: jtgpu.JunctionTree) -> None:
    table = asia.conditional("either", ["lung", "tub"])
    assert table.given == ("lung", "tub")
    assert table.targets == ("either",)
    assert table["no", "no"]["no"] == 1.0
    assert table[{"tub": "yes", "lung": "no"}].mode == "yes"
    two = asia.conditional(["lung", "bronc"], "smoke")
    assert two["yes"]["yes", "no"] == pytest.approx(0.1 * 0.4)  # type: ignore[index]
    assert repr(two).startswith("P(lung, bronc | smoke): 2 x 2 x 2\n")
    certain = asia.conditional("lung", ["smoke"], {"smoke": "no"})
    assert certain.possible.tolist() == [False, True]


@pytest.mark.parametrize(
    ("variables", "says"),
    [([], "least one variable"), (["lung", "lung"], "'lung' twice"), (["lungs"], "did you mean 'lung'"), ([99], "99")],
)
def test_invalid_sets_of_variables(asia: jtgpu.JunctionTree, variables: Any, says: str) -> None:
    for ask in (asia.joint, asia.entropy, lambda v: asia.conditional(["xray"], v), asia.joint_cost):
        with pytest.raises(errors.EvidenceError, match=says):
            ask(variables)
