"""Marginal MAP against every configuration, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.inference.queries import map as queries_map
from jtgpu.inference.queries.map import ending_with
from jtgpu.inference.results.rankings import JointCost
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans.ordering import order_cost
from jtgpu.util.options import BackendName
from tests.support import judge, oracle
from tests.support.bundled import bundled
from tests.support.examples import examples
from tests.support.random_nets import all_weights, bayesian_networks, evidence_weights, markov_networks


def check(model: DiscreteModel, backend: BackendName, data: st.DataObject) -> None:
    hard, soft = data.draw(evidence_weights(model))
    variables = data.draw(st.lists(st.integers(0, len(model) - 1), min_size=1, unique=True))
    k = data.draw(st.sampled_from([1, 1, 3]))
    weights = all_weights(model, hard, soft)
    expected = oracle.ranked(model, weights, variables)
    tree = model.compile(backend, order="min-fill")
    if not expected:
        with pytest.raises(jtgpu.ImpossibleEvidence):
            tree.map(variables, hard, likelihood=soft, k=k)
        return
    best = tree.map(variables, hard, likelihood=soft, k=k)
    value = {x: v for v, x in expected}
    found = [tuple(int(e.states[v]) for v in variables) for e in best.ranked]
    assert len(set(found)) == len(found) == min(k, len(expected))
    np.testing.assert_allclose([value[x] for x in found], [v for v, _ in expected[:k]], atol=1e-11)
    np.testing.assert_allclose([e.log_joint for e in best.ranked], [value[x] for x in found], atol=1e-11)
    assert best.log_posterior == pytest.approx(expected[0][0] - oracle.log_evidence(model, weights), abs=1e-11)
    assert list(best) == [model.variables[v] for v in variables]
    rest = [v for v in range(len(model)) if v not in variables and v not in hard]
    assert all(best.states[v] == -1 for v in rest)


@given(st.data())
def test_bayesian_networks(data: st.DataObject) -> None:
    check(data.draw(bayesian_networks()), "cpu", data)


@given(st.data())
def test_markov_networks(data: st.DataObject) -> None:
    check(data.draw(markov_networks()), "cpu", data)


@given(st.data())
@examples(30)
def test_the_definition(data: st.DataObject) -> None:
    check(data.draw(bayesian_networks(most=6)), "reference", data)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_observed_variables_have_one_configuration(backend: BackendName) -> None:
    tree, xray = bundled("asia").compile(backend), {"xray": "no"}
    for evidence, do in ({"lung": "yes", **xray}, {}), (xray, {"lung": "yes"}):
        only = tree.map(["lung"], evidence, do=do, k=3).ranked
        assert [(dict(c), round(c.probability, 12)) for c in only] == [({"lung": "yes"}, 1.0)]
        both = tree.map(["lung", "bronc"], evidence, do=do, k=5).ranked
        assert sorted(tuple(c.values()) for c in both) == [("yes", "no"), ("yes", "yes")]
        assert sum(c.probability for c in both) == pytest.approx(1.0)


def test_map_is_not_the_restriction_of_the_mpe() -> None:
    # the most probable state of x alone differs from that of the most probable configuration
    net = jtgpu.BayesianNetwork(
        {"x": ["a", "b"], "y": ["a", "b", "c"]},
        {"y": ["x"]},
        {"x": [0.6, 0.4], "y": [[1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 1.0]]},
    )
    tree = net.compile("cpu")
    assert tree.map(["x"])["x"] == "a"
    assert tree.mpe()["x"] == "b"
    assert tree.map("x", {"y": "c"}).probability == pytest.approx(0.4 / 0.6)
    assert tree.map(["x"], do={"y": "c"})["x"] == "a"
    with pytest.raises(KeyError, match="'y' is not among"):
        _ = tree.map(["x"])["y"]


@pytest.mark.parametrize("name", ["asia", "child", "insurance", "alarm", "hailfinder"])
def test_joint_tables_have_the_same_mode(name: str) -> None:
    net = bundled(name)
    tree = net.compile("cpu")
    evidence = judge.sampled_evidence(net, 0.15, seed=5)
    rng = np.random.default_rng(1)
    for _ in range(3):
        free = [v for v in net.variables if v not in evidence]
        variables = [free[i] for i in rng.choice(len(free), 3, replace=False)]
        best = tree.map(variables, evidence)
        table = tree.joint(variables, evidence)
        assert best.probability == pytest.approx(np.asarray(table).max(), rel=1e-10)
        assert table[tuple(best.values())] == pytest.approx(best.probability, rel=1e-10)


@pytest.mark.parametrize("name", ["alarm", "win95pts"])
def test_all_variables_are_an_mpe(name: str) -> None:
    net = bundled(name)
    tree = net.compile("cpu")
    evidence = judge.sampled_evidence(net, 0.1, seed=2)
    everything = tree.map(net.variables, evidence)
    assert everything.log_joint == pytest.approx(tree.mpe(evidence).log_joint, abs=1e-10)
    few = tree.map(net.variables[:5], evidence, k=3)
    assert few.log_joint >= everything.log_joint
    assert few.log_joint <= tree.log_evidence(evidence) + 1e-12


def test_cost_is_known_before_allocation() -> None:
    net = bundled("alarm")
    tree = net.compile("cpu")
    cost = tree.map_cost(["HR", "CO", "BP"])
    assert (cost.variables, cost.summed + cost.barren) == (3, len(net) - 3)
    assert cost.bytes == 8 * cost.table_entries
    assert "3 variables maximised" in str(cost)
    with pytest.raises(jtgpu.TableTooLarge, match="max_table") as error:
        tree.map(["HR", "CO", "BP"], max_table=2)
    assert error.value.entries == cost.largest
    with pytest.raises(jtgpu.TableTooLarge, match="memory_limit"):
        tree.map(["HR", "CO", "BP"], memory_limit=100)
    # observed variables cost nothing, in whichever states
    assert tree.map_cost(["HR", "CO"], {"BP": 0}) == tree.map_cost(["HR", "CO"], {"BP": 1})
    refused: list[tuple[list[str | int], type[Exception]]] = [
        ([], jtgpu.EvidenceError),
        (["HR", 0, "HR"], jtgpu.EvidenceError),
        (["HRR"], jtgpu.UnknownVariable),
    ]
    for wrong, kind in refused:
        with pytest.raises(kind):
            tree.map(wrong)
    with pytest.raises(ValueError, match="k must be an integer of at least 1, not 0"):
        tree.map(["HR"], k=0)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_few_configurations_of_a_dense_model(monkeypatch: pytest.MonkeyPatch, backend: BackendName) -> None:
    net = bundled("insurance")
    tree = net.compile(backend)
    variables, evidence = ["Age", "Cushioning", "MedCost", "Airbag"], {"Accident": "Severe", "Airbag": "True"}
    by_order, cost = tree.map(variables, evidence, k=7), tree.map_cost(variables, evidence)
    # as if the order were expensive: the joint posterior of these has 3 x 4 x 4 configurations
    monkeypatch.setattr(queries_map, "CHEAP", -1)
    monkeypatch.setattr(queries_map, "joint_cost_of", lambda *_: JointCost("cases", 48, 12, 0, 48, 384))
    assert (cost.how, tree.map_cost(variables, evidence).how) == ("order", "joint")
    found = tree.map(variables, evidence, k=7)
    assert dict(found) == dict(by_order)
    asked = np.isin(np.arange(len(net)), [net.index(v) for v in variables])
    assert found.states.tolist() == np.where(asked, by_order.states, -1).tolist()
    assert len({tuple(e.values()) for e in found.ranked}) == 7
    np.testing.assert_allclose([e.log_joint for e in found.ranked], [e.log_joint for e in by_order.ranked], atol=1e-10)
    assert found.log_evidence == pytest.approx(by_order.log_evidence, abs=1e-10)
    assert "joint posterior" in str(tree.map_cost(variables, evidence))


def test_barren_variables_are_left_out() -> None:
    net = bundled("asia")
    tree = net.compile("cpu")
    assert tree.map_cost(["asia"]).summed == 0
    assert tree.map_cost(["asia"]).barren == 7
    weighed = tree.map(["asia"], likelihood={"dysp": [0.9, 0.1]})
    table = tree.posterior("asia", likelihood={"dysp": [0.9, 0.1]})
    assert weighed.probability == pytest.approx(max(table.values()))


@given(st.data())
def test_an_order_may_end_with_any_clique_of_its_triangulation(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 9))
    pairs = [(a, b) for a in range(n) for b in range(a)]
    edges = data.draw(st.sets(st.sampled_from(pairs)))
    last = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    edges |= {(a, b) for a in last for b in last if b < a}
    neighbours: list[set[int]] = [set() for _ in range(n)]
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    order: list[int] = data.draw(st.permutations(range(n)))
    found = ending_with(neighbours, order, last)
    assert sorted(found) == list(range(n))
    assert sorted(found[n - len(last) :]) == last
    cards = data.draw(st.lists(st.integers(2, 5), min_size=n, max_size=n))
    assert order_cost(cards, neighbours, found).entries <= order_cost(cards, neighbours, order).entries


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_weights_are_multiplied_into_a_remaining_factor(backend: BackendName) -> None:
    # the smallest table with x is that of its barren child, which is removed
    net = jtgpu.BayesianNetwork(
        {"u": list("abcde"), "x": ["a", "b"], "y": ["a", "b"]},
        {"x": ["u"], "y": ["x"]},
        {"u": [0.2] * 5, "x": [[0.5, 0.5]] * 4 + [[0.25, 0.75]], "y": [[0.5, 0.5], [0.125, 0.875]]},
    )
    best = net.compile(backend).map(["x"], k=9)
    assert [(e["x"], round(e.probability, 12)) for e in best.ranked] == [("b", 0.55), ("a", 0.45)]


def test_an_observed_variable_of_the_query_has_its_observed_state() -> None:
    net = bundled("asia")
    for backend in ("reference", "cpu"):
        best: Any = net.compile(backend).map(["xray", "lung"], {"xray": "yes"})
        assert dict(best) == {"xray": "yes", "lung": "no"}
        assert best.log_joint == pytest.approx(oracle.ranked(net, {net.index("xray"): np.eye(2)[0]}, [3])[0][0])
        assert dict(net.compile(backend).map(["xray"], {"xray": "yes"})) == {"xray": "yes"}


def test_an_observed_variable_of_several_factors() -> None:
    """The reference once restricted only one of the factors that contain an observed variable."""
    net = bundled("insurance")
    variables, evidence = ["Age", "Cushioning", "MedCost"], {"Accident": "Severe", "Airbag": "True"}
    reference, cpu = (net.compile(backend).map(variables, evidence, k=3) for backend in ("reference", "cpu"))
    assert [e.log_joint for e in reference.ranked] == pytest.approx([e.log_joint for e in cpu.ranked], abs=1e-12)
    assert dict(reference) == dict(cpu)
