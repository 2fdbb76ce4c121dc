"""The models: what they hold, and what they refuse."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given

import jtgpu
from jtgpu import errors
from jtgpu.errors import NetworkError
from jtgpu.model import discrete
from jtgpu.model.cpts import normalize_rows
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateNumber
from tests.support import random_nets

STATES: dict[str, Any] = {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["dry", "damp", "wet"]}
PARENTS: dict[str, Any] = {"wet": ["rain", "sprinkler"]}
WET = np.array([[[0.9, 0.1, 0.0], [0.1, 0.3, 0.6]], [[0.1, 0.4, 0.5], [0.0, 0.1, 0.9]]])
CPTS: dict[str, Any] = {"rain": [0.8, 0.2], "sprinkler": [0.7, 0.3], "wet": WET}


def lawn() -> BayesianNetwork:
    return BayesianNetwork(STATES, PARENTS, CPTS, name="lawn")


def test_attributes_of_a_network() -> None:
    net = lawn()
    assert net.variables == ("rain", "sprinkler", "wet")
    assert net.states("wet") == ("dry", "damp", "wet")
    assert net.parents("wet") == ("rain", "sprinkler")
    assert net.cpt("wet").shape == (2, 2, 3)
    assert net.cpt("wet").dtype == np.float64
    assert net.n_arcs == 2
    assert len(net) == 3
    assert [f.scope for f in net.factors] == [(0,), (1,), (0, 1, 2)]
    assert net.topological_order() == ("rain", "sprinkler", "wet")
    assert "3 variables" in repr(net)


def test_networks_are_immutable() -> None:
    table = WET.copy()
    net = BayesianNetwork(STATES, PARENTS, {**CPTS, "wet": table})
    table[:] = 7
    assert net.cpt("wet")[0, 0, 0] == 0.9
    with pytest.raises(ValueError, match="read-only"):
        net.cpt("wet")[0, 0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        net.cardinality[0] = 3


@pytest.mark.parametrize(
    ("states", "parents", "cpts", "says"),
    [
        (STATES, {"wet": ["rain", "fog"]}, CPTS, "'wet' has the parent 'fog', which is not declared"),
        (STATES, {"wet": ["rain", "Rain"]}, CPTS, "did you mean 'rain'"),
        (STATES, {"wet": ["rain", "rain"]}, CPTS, "'wet' has the parent 'rain' twice"),
        (STATES, {"wet": ["wet"]}, CPTS, "'wet' is its own parent"),
        (STATES, {"wet": "rain"}, CPTS, "not the string 'rain'"),
        (STATES, {"fog": ["wet"]}, CPTS, "parents given for 'fog'"),
        (STATES, PARENTS, {**CPTS, "fog": [1]}, "a CPT given for 'fog'"),
        (STATES, PARENTS, {"rain": [0.8, 0.2], "wet": WET}, "'sprinkler' has no CPT"),
        (STATES, PARENTS, {**CPTS, "rain": [0.2, 0.3, 0.5]}, r"'rain': its CPT has shape \(3,\)"),
        (STATES, PARENTS, {**CPTS, "wet": WET.T}, r"expected \(2, 2, 3\) for the axes \(rain, sprinkler, wet\)"),
        (STATES, PARENTS, {**CPTS, "rain": [0.8, 0.3]}, r"'rain': its CPT sums to 1.1, expected 1 \(jtgpu"),
        (STATES, PARENTS, {**CPTS, "wet": WET * [1, 1, 0]}, "row of its CPT for rain=yes, sprinkler=on sums to 0.1"),
        (STATES, PARENTS, {**CPTS, "wet": WET * [1, 1, 0]}, "; 3 of its 4 rows do not sum to 1"),
        (STATES, PARENTS, {**CPTS, "wet": np.moveaxis(WET, -1, 0)}, r"\(3, 2, 2\), expected .*use numpy.moveaxis"),
        (STATES, PARENTS, {**CPTS, "rain": [1.2, -0.2]}, "'rain': its table holds the negative number -0.2"),
        (STATES, PARENTS, {**CPTS, "rain": [np.nan, 0.2]}, "'rain': its table holds nan"),
        (STATES, PARENTS, {**CPTS, "rain": [np.inf, 0.2]}, "'rain': its table holds inf"),
        (STATES, PARENTS, {**CPTS, "rain": ["a", "b"]}, "'rain': its CPT must be an array of numbers"),
        ({**STATES, "rain": []}, PARENTS, CPTS, "'rain' has no states"),
        ({**STATES, "rain": 2}, PARENTS, CPTS, "'rain': its states must be a sequence of names, not 2"),
        ({5: ["a"]}, {}, {}, "a variable name must be a string, got 5"),
    ],
)
def test_invalid_networks(states: Any, parents: Any, cpts: Any, says: str) -> None:
    with pytest.raises(errors.NetworkError, match=says):
        BayesianNetwork(states, parents, cpts)


def test_a_cycle_is_named() -> None:
    two = ["a", "b"]
    table = np.full((2, 2), 0.5)
    with pytest.raises(errors.NetworkError, match="cycle") as error:
        BayesianNetwork(
            {"top": two, "x": two, "y": two, "z": two},
            {"x": ["z"], "y": ["x"], "z": ["y"]},
            {"top": [0.5, 0.5], "x": table, "y": table, "z": table},
        )
    assert "'x' -> 'y' -> 'z' -> 'x'" in str(error.value) or "'y' -> 'z' -> 'x' -> 'y'" in str(error.value)
    assert "top" not in str(error.value)


def test_variables_and_states_are_found_by_name_or_number() -> None:
    net = lawn()
    assert net.index("wet") == net.index(2) == net.index(np.int64(2)) == 2  # type: ignore[arg-type]
    assert net.state_index("wet", "damp") == net.state_index(2, StateNumber(1)) == 1
    with pytest.raises(errors.UnknownVariable, match="did you mean 'sprinkler'"):
        net.index("sprinklr")
    with pytest.raises(errors.UnknownVariable, match="0 to 2"):
        net.index(3)
    with pytest.raises(errors.UnknownVariable, match=r"by name \(a string\) or number"):
        net.index(1.5)  # type: ignore[arg-type]
    with pytest.raises(errors.UnknownState, match="'wet' has no state 'Damp'; did you mean 'damp'"):
        net.state_index("wet", "Damp")
    with pytest.raises(errors.UnknownState, match="no state -1"):
        net.state_index("wet", -1)
    with pytest.raises(errors.UnknownState, match=r"has no state 1\.5 \(its states"):
        net.state_index("wet", 1.5)
    with pytest.raises(KeyError):
        net.index("nothing like it")


def test_truth_values_are_states_only_if_states_are_truth_values() -> None:
    net = BayesianNetwork({"a": ["True", "False"], "b": ["no", "yes"]}, {}, {"a": [0.5, 0.5], "b": [0.5, 0.5]})
    assert net.state_index("a", True) == 0
    assert net.state_index("a", np.False_) == 1  # type: ignore[arg-type]
    with pytest.raises(errors.UnknownState, match="no state True"):
        net.state_index("b", True)


def test_equal_state_names_are_distinguished_by_number() -> None:
    net = BayesianNetwork({"a": ["", "", "x"]}, {}, {"a": [0.2, 0.3, 0.5]})
    assert net.state_index("a", "x") == 2
    assert net.state_index("a", StateNumber(1)) == 1
    with pytest.raises(errors.UnknownState, match="2 states named ''"):
        net.state_index("a", "")


def test_rows_are_normalised_with_a_report() -> None:
    tables, report = normalize_rows(
        {"a": np.array([60.0, 40.0]), "b": np.array([[0.5, 0.5], [0.1, 0.1]]), "c": np.array([0.25, 0.75])}
    )
    np.testing.assert_allclose(tables["a"], [0.6, 0.4])
    np.testing.assert_allclose(tables["b"], 0.5)
    assert tables["c"].tolist() == [0.25, 0.75]
    assert (report.n_rows, report.n_off, report.variables) == (4, 2, ("a", "b"))
    assert (report.worst_variable, report.worst_sum) == ("a", 100.0)
    assert "2 of 4 CPT rows" in str(report)


def test_zero_rows_are_an_error_unless_uniform() -> None:
    zero = {"a": np.array([[1.0, 1.0], [0.0, 0.0]])}
    with pytest.raises(errors.NetworkError, match=r"'a': 1 rows .*\(1,\).*zero_rows"):
        normalize_rows(zero)
    tables, report = normalize_rows(zero, zero_rows="uniform")
    assert tables["a"].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert report.zero_rows == (("a", 1),)
    with pytest.raises(ValueError, match="uniform"):
        normalize_rows(zero, zero_rows="guess")  # type: ignore[arg-type]


def test_rows_of_huge_and_tiny_numbers() -> None:
    tables, _ = normalize_rows({"a": np.array([[1.5e308, 1.5e308], [5e-320, 5e-320]])})
    np.testing.assert_allclose(tables["a"], 0.5)


@given(random_nets.bayesian_networks())
def test_normalising_twice_changes_nothing(net: BayesianNetwork) -> None:
    tables = {v: net.cpt(v) for v in net.variables}
    once, _ = normalize_rows(tables)
    twice, report = normalize_rows(once)
    assert report.n_off == 0
    for v in tables:
        np.testing.assert_array_equal(once[v], twice[v])


@given(random_nets.bayesian_networks())
def test_networkx_round_trip(net: BayesianNetwork) -> None:
    graph = net.to_networkx()
    assert networkx.is_directed_acyclic_graph(graph)
    assert BayesianNetwork.from_networkx(graph) == net


def test_invalid_networkx_graphs() -> None:
    graph = lawn().to_networkx()
    del graph.nodes["wet"]["parents"]
    with pytest.raises(errors.NetworkError, match="several parents"):
        BayesianNetwork.from_networkx(graph)
    graph.nodes["wet"]["parents"] = ("rain",)
    with pytest.raises(errors.NetworkError, match="arcs come from"):
        BayesianNetwork.from_networkx(graph)
    del graph.nodes["rain"]["cpt"]
    with pytest.raises(errors.NetworkError, match="no attribute 'cpt'"):
        BayesianNetwork.from_networkx(graph)


def test_a_network_is_a_collection_of_names() -> None:
    net = lawn()
    assert list(net) == ["rain", "sprinkler", "wet"]
    assert "wet" in net
    assert "fog" not in net
    assert 0 not in net
    assert bool(net)


def test_print_shows_the_variables() -> None:
    assert str(lawn()) == (
        "Bayesian network 'lawn': 3 variables, 2 arcs, 10 parameters\n"
        "variable   states          parents\n"
        "rain       no, yes\n"
        "sprinkler  off, on\n"
        "wet        dry, damp, wet  rain, sprinkler"
    )
    assert repr(lawn()) == "BayesianNetwork('lawn', 3 variables, 2 arcs)"
    markov = MarkovNetwork({"a": ["0", "1"]}, [(["a"], [1.0, 2.0])])
    assert str(markov) == "Markov network: 1 variable, 1 factor\nvariable  states\na         0, 1"


def test_a_long_network_is_printed_without_its_middle() -> None:
    n = 1000
    net = BayesianNetwork(
        {f"v{i}": [f"state {k}" for k in range(30)] for i in range(n)}, {}, {f"v{i}": [1 / 30] * 30 for i in range(n)}
    )
    lines = str(net).splitlines()
    assert len(lines) < 20
    assert lines[-1].startswith("[1,000 rows")
    assert lines[-2].startswith("v999")
    assert lines[2].endswith("... (30)")
    assert max(map(len, lines)) < 100


@given(random_nets.bayesian_networks())
def test_copies_and_pickles_are_equal_and_immutable(net: BayesianNetwork) -> None:
    for again in (copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert again == net
        assert hash(again) == hash(net)
        assert again.arcs == net.arcs
        assert [again.children(v) for v in net] == [net.children(v) for v in net]
        with pytest.raises(ValueError, match="read-only"):
            again.cpt(0)[...] = 1


@given(random_nets.markov_networks())
def test_markov_networks_compare_copy_and_pickle(net: MarkovNetwork) -> None:
    for again in (copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert again == net
        assert hash(again) == hash(net)
    assert net != MarkovNetwork({"other": ["a"]}, [])
    assert net != 1


def test_names_of_all_languages_and_numbers_as_states() -> None:
    names: dict[str, Any] = {"Wetter 天気": ["☀ sonnig", "regnerisch 雨"], "größe": [1.5, 2, True]}
    cpts: dict[str, Any] = {"Wetter 天気": [0.25, 0.75], "größe": [[0.5, 0.25, 0.25], [0, 0, 1]]}
    net = BayesianNetwork(names, {"größe": ["Wetter 天気"]}, cpts)
    assert net.states("größe") == ("1.5", "2", "True")
    assert net.state_index("größe", "2") == 1
    assert net.state_index("größe", True) == 2
    assert BayesianNetwork.from_networkx(net.to_networkx()) == net
    assert pickle.loads(pickle.dumps(net)) == net
    with net.compile("reference") as tree:
        assert tree.posterior("Wetter 天気", {"größe": "1.5"})["☀ sonnig"] == 1.0
    assert "☀ sonnig, regnerisch 雨" in str(net)
    assert "☀ sonnig" in str(net.cpt("größe"))


def test_networks_compare_and_pickle() -> None:
    assert lawn() == lawn()
    assert hash(lawn()) == hash(lawn())
    assert lawn() != BayesianNetwork(STATES, PARENTS, {**CPTS, "rain": [0.5, 0.5]})
    assert lawn() != 1


def test_markov_networks_take_any_factors() -> None:
    net = MarkovNetwork({"a": ["0", "1"], "b": ["0", "1", "2"]}, [(["b", "a"], np.ones((3, 2))), ([], 2.5)])
    assert [f.scope for f in net.factors] == [(1, 0), ()]
    with pytest.raises(errors.NetworkError, match=r"factor 0: .*shape \(2, 3\)"):
        MarkovNetwork({"a": ["0", "1"], "b": ["0", "1", "2"]}, [(["b", "a"], np.ones((2, 3)))])
    with pytest.raises(errors.NetworkError, match="repeated in its scope"):
        MarkovNetwork({"a": ["0", "1"]}, [(["a", "a"], np.ones((2, 2)))])
    with pytest.raises(errors.NetworkError, match="negative"):
        MarkovNetwork({"a": ["0", "1"]}, [(["a"], [1, -1])])


def test_errors_can_be_pickled() -> None:
    for error in (
        errors.ParseError("found x, expected y", "a.net", 3, 4),
        errors.TableTooLarge("too large", 5, 6, 7),
        errors.UnknownState("no such state"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert type(again) is type(error)
    assert str(errors.ParseError("found x", "a.net", 3, 4)) == "a.net:3:4: found x"


def test_sizes_that_files_cannot_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"v{i}" for i in range(66)]
    states = {v: ["a"] for v in names}
    with pytest.raises(NetworkError, match=r"variable 'v0' has 65 parents; a CPT can have (63|31)"):
        BayesianNetwork(states, {"v0": names[1:]}, {})
    with pytest.raises(NetworkError, match=r"factor 0 has 66 variables; a table can have (64|32)"):
        MarkovNetwork(states, [(names, [1.0])])
    monkeypatch.setattr(discrete, "MAX_STATES", 65)
    with pytest.raises(NetworkError, match="66 states in total; a model can have 65"):
        MarkovNetwork(states, [])


def test_names_of_numpy_are_texts() -> None:
    a, b, c = np.array(["a", "b", "c"])
    states: Any = {a: np.array(["y", "n"]), b: ["u", "v"]}
    cpts: Any = {a: [0.5, 0.5], b: [[0.1, 0.9], [0.2, 0.8]]}
    mixed: Any = {**states, c: float}
    number: Any = {**cpts, c: jtgpu.Gaussian([0.0, 1.0])}
    over_time = {**number, a: [[0.9, 0.1], [0.2, 0.8]]}
    nets: list[Any] = [
        BayesianNetwork(states, {b: [a]}, cpts), MarkovNetwork(states, [((a, b), [[1, 2], [3, 4]])]),
        jtgpu.DecisionNetwork(states, {b: [a], c: [b]}, {b: cpts[b]}, decisions=[a], utilities={c: [1.0, 2.0]}),
        jtgpu.DynamicNetwork(states, {b: [a]}, cpts, static=[a]), jtgpu.MixedNetwork(mixed, {b: [a], c: [b]}, number),
        jtgpu.MixedDynamicNetwork(mixed, {a: [(a, 1)], b: [a], c: [b]}, over_time, start={a: [1.0, 0.0]}),
    ]  # fmt: skip
    for net in nets:
        kinds = ("variables", "static", "numbers", "decisions", "utilities")
        given = [name for kind in kinds for name in getattr(net, kind, ())]
        given += getattr(net, "discrete", net).states("a")
        assert {*map(type, given)} == {str}
        with pytest.raises(errors.JtgpuError) as refused:
            BayesianNetwork(states, {b: [a, c]}, cpts)
        assert "str_" not in str(refused.value)
    answer = nets[0].compile("cpu").posteriors({b: np.str_("u")})
    assert {*map(type, answer)} == {str}
    with pytest.raises(errors.UnknownState, match="column 'b': 'w'"):
        nets[0].compile("cpu").posteriors_batch({b: [np.str_("w")]})
