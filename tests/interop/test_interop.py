"""Models to and from pgmpy, pyAgrum and networkx: nothing is lost, nothing is guessed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import HealthCheck, given

import jtgpu
from jtgpu.errors import FormatError, NetworkError
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.support.examples import examples
from tests.support.random_nets import bayesian_networks

NETS = Path(__file__).parents[2] / "nets"
EQUAL_STATES = BayesianNetwork({"a": ["x", "x"]}, {}, {"a": [0.25, 0.75]})
MARKOV = MarkovNetwork({"a": ["x", "y"]}, [(["a"], [1, 2])])


@pytest.fixture(scope="module")
def gum() -> Any:
    return pytest.importorskip("pyagrum", reason="pyAgrum is not installed")


@pytest.fixture(scope="module")
def pgmpy() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pgmpy.models", reason="pgmpy is not installed")
        import pgmpy.factors.discrete
        import pgmpy.models
    return pgmpy


def bayesian(name: str) -> BayesianNetwork:
    net = jtgpu.read(NETS / name)
    assert isinstance(net, BayesianNetwork)
    return net


# pyAgrum --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["asia.net", "alarm.net", "barley.net.xz", "munin1.net"])
def test_pyagrum_round_trip(name: str, gum: Any) -> None:
    net = bayesian(name)
    theirs = jtgpu.to_pyagrum(net)
    assert isinstance(theirs, gum.BayesNet)
    assert jtgpu.from_pyagrum(theirs) == net
    assert jtgpu.from_pyagrum(theirs).name == net.name


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bayesian_networks(6))
def test_any_network_through_pyagrum(gum: Any, net: BayesianNetwork) -> None:
    back = jtgpu.from_pyagrum(jtgpu.to_pyagrum(net))
    assert back.variables == net.variables
    for v in net.variables:
        assert back.states(v) == net.states(v)
        assert back.parents(v) == net.parents(v)
        assert np.abs(back.cpt(v) - net.cpt(v)).max() < 1e-15  # rows within the tolerance are divided by their sums


def test_networks_made_by_pyagrum(gum: Any) -> None:
    gum.initRandom(5)
    theirs = gum.fastBN("A{yes|no}->B[3]<-C{1|2.5|7};D->B")
    theirs.erase("D")
    net = jtgpu.from_pyagrum(theirs)
    assert net.states("A") == ("yes", "no")
    for a in range(2):
        for c in range(3):
            row = net.cpt("B")[tuple({"A": a, "C": c}[p] for p in net.parents("B"))]
            assert np.abs(row - np.array(theirs.cpt("B")[{"A": a, "C": c}])).max() < 1e-15
    theirs.cpt("A").fillWith([3, 1])
    again = jtgpu.from_pyagrum(theirs)
    assert again.cpt("A").tolist() == [0.75, 0.25]
    assert again.row_report is not None
    assert again.row_report.worst_sum == 4
    del theirs  # what we have is ours
    assert again.cpt("A").tolist() == [0.75, 0.25]


def test_models_that_pyagrum_cannot_represent(gum: Any) -> None:
    with pytest.raises(FormatError, match="pyAgrum needs distinct state names: 'a'"):
        jtgpu.to_pyagrum(EQUAL_STATES)
    with pytest.raises(FormatError, match="cannot represent a MarkovNetwork"):
        jtgpu.to_pyagrum(MARKOV)
    for other in (None, "asia.net", EQUAL_STATES):
        with pytest.raises(NetworkError, match="expected a BayesNet, InfluenceDiagram or KTBN of pyAgrum"):
            jtgpu.from_pyagrum(other)


# pgmpy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["asia.net", "alarm.net", "munin1.net"])
def test_pgmpy_round_trip(name: str, pgmpy: Any) -> None:
    net = bayesian(name)
    theirs = jtgpu.to_pgmpy(net)
    assert theirs.check_model()
    back = jtgpu.from_pgmpy(theirs)
    assert isinstance(back, BayesianNetwork)
    assert back == net
    assert back.name == net.name


def sprinkler(pgmpy: Any) -> Any:
    table = pgmpy.factors.discrete.TabularCPD
    model = pgmpy.models.DiscreteBayesianNetwork([("rain", "wet"), (7, "wet")])
    model.add_cpds(
        table("rain", 2, [[0.8], [0.2]], state_names={"rain": ["no", "yes"]}),
        table(7, 3, [[0.2], [0.3], [0.5]]),
        table(
            "wet",
            2,
            [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]],
            ["rain", 7],
            [2, 3],
            state_names={"wet": [False, True], "rain": ["yes", "no"], 7: [0, 1, 2]},
        ),
    )
    return model


def test_networks_made_by_pgmpy(pgmpy: Any) -> None:
    """Names and states of any type, a table that lists its parent's states in another order than the parent."""
    net = jtgpu.from_pgmpy(sprinkler(pgmpy))
    assert isinstance(net, BayesianNetwork)
    assert set(net.variables) == {"rain", "7", "wet"}
    assert net.states("wet") == ("False", "True")
    assert net.parents("wet") == ("rain", "7")
    assert net.cpt("wet")[..., 0].tolist() == [[0.4, 0.5, 0.6], [0.1, 0.2, 0.3]]
    assert net.cpt("7").tolist() == [0.2, 0.3, 0.5]


def test_markov_networks_of_pgmpy(pgmpy: Any) -> None:
    model = pgmpy.models.DiscreteMarkovNetwork([("a", "b")])
    factor = pgmpy.factors.discrete.DiscreteFactor
    model.add_factors(factor(["a", "b"], [2, 3], [1, 2, 3, 4, 5, 6]), factor(["b"], [3], [1, 0, 2]))
    net = jtgpu.from_pgmpy(model)
    assert isinstance(net, MarkovNetwork)
    assert net.factors[0].table.tolist() == [[1, 2, 3], [4, 5, 6]]
    log_z = net.compile(backend="reference").log_evidence()
    assert log_z == pytest.approx(np.log(model.get_partition_function()), rel=1e-12)


def test_invalid_pgmpy_models(pgmpy: Any) -> None:
    model = sprinkler(pgmpy)
    model.remove_cpds("rain")
    with pytest.raises(NetworkError, match="the node 'rain' has no CPD"):
        jtgpu.from_pgmpy(model)
    model = sprinkler(pgmpy)
    model.remove_edge("rain", "wet")
    with pytest.raises(NetworkError, match=r"no CPD|which does not match the arcs"):
        jtgpu.from_pgmpy(model)
    wrong: list[Any] = [None, {}, MARKOV]
    for other in wrong:
        with pytest.raises(NetworkError, match="expected a Bayesian or Markov network of pgmpy"):
            jtgpu.from_pgmpy(other)
    with pytest.raises(FormatError, match="pgmpy needs distinct state names"):
        jtgpu.to_pgmpy(EQUAL_STATES)
    with pytest.raises(FormatError, match="cannot represent a MarkovNetwork"):
        jtgpu.to_pgmpy(MARKOV)


# networkx -------------------------------------------------------------------------------------------------------


def test_networkx_round_trip() -> None:
    net = bayesian("alarm.net")
    assert jtgpu.from_networkx(net.to_networkx()) == net
    graph: networkx.DiGraph[str] = networkx.DiGraph([("a", "b")])
    graph.add_node("a", states=["x", "y"], cpt=[0.25, 0.75])
    graph.add_node("b", states=["x", "y"], cpt=[[0.5, 0.5], [1, 0]])
    assert jtgpu.from_networkx(graph).cpt("b").tolist() == [[0.5, 0.5], [1, 0]]
    wrong: list[Any] = [None, networkx.Graph(), [("a", "b")]]
    for other in wrong:
        with pytest.raises(NetworkError, match=r"expected a networkx\.DiGraph"):
            jtgpu.from_networkx(other)
    del graph.nodes["b"]["cpt"]
    with pytest.raises(NetworkError, match="no attribute 'cpt'"):
        jtgpu.from_networkx(graph)
