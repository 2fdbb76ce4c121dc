"""`DecisionNetwork`: what it is made of, and what it rejects."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from jtgpu import ArgumentError, BayesianNetwork, DecisionNetwork, JtgpuError, NetworkError, UnknownVariable

STATES = {"ill": ["yes", "no"], "test": ["positive", "negative"], "treat": ["yes", "no"]}
PARENTS = {"test": ["ill"], "treat": ["test"], "health": ["ill", "treat"]}
CPTS: dict[str, Any] = {"ill": [0.1, 0.9], "test": [[0.9, 0.1], [0.2, 0.8]]}
HEALTH = [[80, 20], [90, 100]]


def network(**changes: Any) -> DecisionNetwork:
    given: dict[str, Any] = {"states": STATES, "parents": PARENTS, "cpts": CPTS, "decisions": ["treat"],
                             "utilities": {"health": HEALTH, "fee": -3}}  # fmt: skip
    return DecisionNetwork(**(given | changes))


def test_parts() -> None:
    net = network(name="a doctor")
    assert (net.name, net.variables, net.decisions, net.utilities) == (
        "a doctor", ("ill", "test", "treat"), ("treat",), ("health", "fee"))  # fmt: skip
    assert (net.parents("treat"), net.parents("health"), net.parents("fee")) == (("test",), ("ill", "treat"), ())
    assert net.arcs == (("ill", "test"), ("test", "treat"))
    assert net.utility("health").tolist() == HEALTH
    assert net.utility("fee").shape == ()
    assert net.cpt("test").tolist() == CPTS["test"]
    assert not net.utility("health").flags.writeable
    assert net.combine == "sum"
    assert repr(net) == "DecisionNetwork('a doctor', 3 variables, 1 decision, 2 utilities)"
    assert str(net).splitlines()[0] == "Decision network 'a doctor': 2 chance variables, 1 decision"
    assert "utility health: ill, treat" in str(net)
    assert "treat (decision)" in str(net)


def test_equality() -> None:
    net = network()
    assert net == network(name="other")
    assert hash(net) == hash(network())
    assert pickle.loads(pickle.dumps(net)) == net
    assert net != network(combine="product")
    assert net != network(utilities={"health": HEALTH, "fee": -4})
    assert net != network(utilities={"fee": -3, "health": HEALTH})
    assert net != network(cpts=CPTS | {"treat": [[0.5, 0.5]] * 2}, decisions=[])
    assert net != BayesianNetwork({"a": "xy"}, {}, {"a": [0.5, 0.5]})
    both = {"states": STATES | {"pay": ["a", "b"]}, "parents": PARENTS}
    assert network(**both, decisions=["pay", "treat"]).decisions == ("treat", "pay")  # in the order of the variables


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpts": CPTS | {"treat": [[0.5, 0.5]] * 2}}, "the decision 'treat' has a CPT"),
        ({"decisions": []}, "variable 'treat' has no CPT, and is not among the decisions"),
        ({"decisions": ["treta"]}, "the decision 'treta' is not declared; did you mean 'treat'"),
        ({"decisions": "treat"}, "decisions must be a sequence of names"),
        ({"cpts": CPTS | {"x": [1.0]}}, "a CPT given for 'x', which is not declared"),
        ({"utilities": {"ill": [1, 2]}}, "the utility 'ill' has the name of a variable"),
        ({"utilities": {"health": [1, 2]}}, r"utility 'health': its table has shape \(2,\), expected \(2, 2\)"),
        ({"utilities": {"health": [[1, 2], [3, np.nan]]}}, "utility 'health' has the number nan"),
        ({"utilities": {"health": [[1, 2], [3, -np.inf]]}}, "utility 'health' has the number -inf"),
        ({"utilities": {"health": [[1, 2], ["a", 3]]}}, "utility 'health': its table must be an array of numbers"),
        ({"parents": PARENTS | {"test": ["health"]}}, "'test' has the parent 'health', which is a utility"),
        ({"parents": PARENTS | {"health": ["health"]}}, "'health' has the parent 'health', which is a utility"),
        ({"parents": PARENTS | {"health": ["ill", "ill"]}}, "'health' has the parent 'ill' twice"),
        ({"parents": PARENTS | {"health": ["il"]}}, "'health' has the parent 'il', which is not declared"),
        ({"parents": PARENTS | {"ill": ["treat"]}}, "the arcs form a cycle: 'ill' -> 'test' -> 'treat' -> 'ill'"),
    ],
)
def test_wrong_networks(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        network(**changes)


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="combine must be 'sum' or 'product'"):
        network(combine="mean")
    with pytest.raises(UnknownVariable, match="there is no utility 'healt'; did you mean 'health'"):
        network().utility("healt")
    with pytest.raises(UnknownVariable, match="'treat' is a decision, which has no CPT"):
        network().cpt("treat")
    with pytest.raises(JtgpuError, match="'treat'"):
        network().plan()
