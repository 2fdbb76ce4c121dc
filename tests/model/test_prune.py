"""Pruned networks give the same posteriors, and hold nothing that does not affect them."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.model.network import BayesianNetwork
from tests.support import oracle, random_nets

NET = jtgpu.network("smoke->lung->xray; smoke->bronc->dysp<-lung; asia->tub", "{yes|no}")


def test_barren_and_separated_variables_are_removed() -> None:
    assert NET.prune("smoke").variables == ("smoke",)
    assert NET.prune(["tub", "lung"]).arcs == (("smoke", "lung"), ("asia", "tub"))
    assert NET.prune("smoke", {"dysp": "no"}).variables == ("smoke", "lung", "bronc", "dysp")
    assert NET.prune("smoke", {"tub": "no"}).variables == ("smoke",)
    assert NET.prune("xray", {"lung": "yes"}).variables == ("xray",)
    assert NET.prune("lung", {"lung": "yes"}).variables == ("smoke", "lung")
    assert NET.prune("lung", {"xray": np.datetime64("NaT"), "dysp": None}).variables == ("smoke", "lung")


def test_arcs_from_observed_variables_are_cut() -> None:
    pruned = NET.prune("xray", {"lung": "no"})
    assert pruned.parents("xray") == ()
    np.testing.assert_array_equal(pruned.cpt("xray"), NET.cpt("xray")[1])
    assert pruned.name == NET.name


def test_uncertain_evidence_cuts_nothing() -> None:
    pruned = NET.prune("xray", {"lung": ["yes", "no"], "smoke": ["yes"]})
    assert pruned.arcs == (("lung", "xray"),)
    assert pruned.cpt("lung").shape == (2,)
    assert NET.prune("smoke", {"xray": NET.states("xray")}).variables == ("smoke", "lung", "xray")


@st.composite
def questions(draw: st.DrawFn) -> tuple[BayesianNetwork, list[str], dict[str, Any]]:
    """A network, targets, and evidence: a state, or a set of states."""
    net = draw(random_nets.bayesian_networks(7))
    targets = draw(st.lists(st.sampled_from(net.variables), min_size=1, max_size=2, unique=True))
    evidence: dict[str, Any] = {}
    for v in net:
        kind = draw(st.sampled_from(["none", "none", "state", "states"]))
        if kind == "state":
            evidence[v] = draw(st.sampled_from(net.states(v)))
        elif kind == "states":
            evidence[v] = draw(st.sets(st.sampled_from(net.states(v)), min_size=1))
    return net, targets, evidence


def weights(net: BayesianNetwork, evidence: dict[str, Any]) -> dict[int, Any]:
    return {
        net.index(v): np.array([float(s == known if isinstance(known, str) else s in known) for s in net.states(v)])
        for v, known in evidence.items()
        if v in net
    }


@given(questions())
def test_the_joint_posterior_of_the_targets_is_unchanged(question: tuple[BayesianNetwork, list[str], Any]) -> None:
    net, targets, evidence = question
    pruned = net.prune(targets, evidence)
    whole, part = (oracle.joint(m, weights(m, evidence)) for m in (net, pruned))
    assume(whole.sum() > 0)
    tables = []
    for m, table in ((net, whole), (pruned, part)):
        axes = [m.index(v) for v in targets]
        rest = tuple(a for a in range(table.ndim) if a not in axes)
        summed = table.sum(axis=rest) / table.sum()
        order = np.argsort(np.argsort(axes))  # axes of the sum are in the order of the variables
        tables.append(summed.transpose(order))
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-12)


@given(questions())
def test_what_remains_is_relevant(question: tuple[BayesianNetwork, list[str], Any]) -> None:
    net, targets, evidence = question
    pruned = net.prune(targets, evidence)
    graph: networkx.DiGraph[str] = networkx.DiGraph(net.arcs)
    graph.add_nodes_from(net.variables)
    observed = set[str]()
    for v, known in evidence.items():
        if isinstance(known, str) or len(known) == 1:
            observed.add(v)
        else:  # an observed child of its own
            graph.add_edge(v, f"finding on {v}")
            observed.add(f"finding on {v}")
    above = set[str]().union(*({v} | networkx.ancestors(graph, v) for v in (*observed, *targets)))
    for v in net:
        if v in targets:
            assert v in pruned
        elif v not in observed:
            free = set(targets) - observed
            connected = any(not networkx.is_d_separator(graph, {v}, {t}, observed - {v}) for t in free)
            if not observed & set(targets):
                assert (v in pruned) == (v in above and connected), v
            else:
                assert v in pruned or not (v in above and connected), v
    assert list(pruned) == [v for v in net if v in pruned]
    assert not any(p in evidence and isinstance(evidence[p], str) for p, _ in pruned.arcs)


def test_pruned_benchmark_networks_give_the_same_posteriors() -> None:
    net = jtgpu.read("nets/alarm.net")
    assert isinstance(net, BayesianNetwork)
    evidence = {"HRBP": "HIGH", "CVP": "LOW", "PRESS": "NORMAL", "HISTORY": "TRUE"}
    with net.compile("reference") as tree:
        expected = tree.posteriors(evidence)
        for target in ("HYPOVOLEMIA", "LVFAILURE", "VENTLUNG", "PAP"):
            pruned = net.prune(target, evidence)
            assert len(pruned) < len(net)
            left = {v: s for v, s in evidence.items() if v in pruned}
            with pruned.compile("reference") as small:
                np.testing.assert_allclose(
                    small.posterior(target, left).probabilities, expected[target].probabilities, atol=1e-12
                )


@pytest.mark.parametrize(
    ("targets", "evidence", "error", "says"),
    [
        ("smok", None, errors.UnknownVariable, "did you mean 'smoke'"),
        ("smoke", {"lun": "yes"}, errors.UnknownVariable, "did you mean 'lung'"),
        ("smoke", {"lung": "yess"}, errors.UnknownState, "did you mean 'yes'"),
        ("smoke", {"lung": []}, errors.EvidenceError, "'lung' has no state"),
        ("smoke", {"lung": "yes", 1: "no"}, errors.EvidenceError, "'lung' is given twice"),
        ("smoke", ["lung"], errors.EvidenceError, "must be a mapping"),
        ([], None, errors.EvidenceError, "at least one target"),
    ],
)
def test_invalid_questions(targets: Any, evidence: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        NET.prune(targets, evidence)
