"""Decisions and utilities in files, nodes that cannot be read, and what is left of a file without both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import BayesianNetwork, DecisionNetwork, ParseError
from jtgpu.cli.commands import app
from jtgpu.formats import FORMATS
from jtgpu.formats.conversion import carry
from tests.support.random_nets import bayesian_networks

DATA = Path(__file__).parent / "data" / "fuzz"
BY_NAME = {f.name: f for f in FORMATS}


def decision_network(net: Any) -> DecisionNetwork:
    assert isinstance(net, DecisionNetwork)
    return net


def parsed(name: str, text: str, **options: Any) -> Any:
    return BY_NAME[name].parse(text, "f", **options)


def test_hugin() -> None:
    net = decision_network(jtgpu.read(DATA / "hugin" / "decisions.net"))
    assert (net.name, net.decisions, net.utilities) == ("wildcatter", ("Test", "Drill"), ("Testpay", "Drillpay"))
    assert net.parents("Drill") == ("Test", "Seismic")
    assert net.parents("Drillpay") == ("Oil", "Drill")
    assert net.utility("Drillpay").tolist() == [[-70, 0], [50, 0], [200, 0]]
    assert net.utility("Testpay").tolist() == [-10, 0]
    assert net.cpt("Seismic")[0].tolist() == [[0.1, 0.3, 0.6], [1 / 3] * 3]
    assert net.attributes["node"]["Testpay"] == {"label": "Test payoff", "position": (250, 30)}
    assert net.row_report is not None
    assert net.row_report.n_off == 3


def test_xdsl_multiplies_utilities_by_their_weights() -> None:
    net = decision_network(jtgpu.read(DATA / "xdsl" / "decisions.xdsl"))
    assert (net.decisions, net.utilities) == (("Treat",), ("Health", "Cost"))
    assert net.utility("Health").tolist() == [[80, 20], [90, 100]]
    assert net.utility("Cost").tolist() == [-2.5, 0]
    assert net.attributes["node"]["Cost"] == {"label": "Costs", "position": (48, 98), "comment": "in days"}
    assert net.attributes["node"]["Treat"]["property"] == ("by = a doctor",)
    assert "weight 2.5" in net.attributes["read"]["notes"][0]


U = '<utility id="{}"><parents>d</parents><utilities>{}</utilities></utility>\n'
D = '<decision id="d"><state id="x"/><state id="y"/></decision>\n'


def xdsl(*nodes: str) -> str:
    return '<?xml version="1.0"?>\n<smile version="1.0" id="n"><nodes>\n' + "".join(nodes) + "</nodes></smile>"


def mau(name: str, parents: str, weights: str) -> str:
    return f'<mau id="{name}"><parents>{parents}</parents><weights>{weights}</weights></mau>\n'


def test_weighted_sums_of_weighted_sums() -> None:
    inner, outer = mau("m", "u v", "2 3"), mau("t", "m w", "0.5 -1")
    nodes = [D, U.format("u", "1 2"), U.format("v", "10 20"), U.format("w", "4 8"), U.format("z", "5 5")]
    net = parsed("XDSL", xdsl(*nodes, outer, inner))
    tables = {u: net.utility(u).tolist() for u in net.utilities}
    assert tables == {"u": [1, 2], "v": [15, 30], "w": [-4, -8], "z": [5, 5]}
    for wrong, message in (
        (mau("m", "u v", "2"), "found 1 weights of 'm', expected 2"),
        (mau("m", "u d", "2 1"), "the weighted sum 'm' has the parent 'd', which is not a utility"),
        (mau("m", "u x", "2 1"), "the weighted sum 'm' has the parent 'x', which is not declared"),
        (mau("m", "u t", "1 1") + mau("t", "m", "1"), "is part of itself"),
        (mau("m", "u", "1e999"), "found the weight inf in 'm'"),
        ('<mau id="m"><parents>u v</parents><expression>u * v</expression></mau>', "by the expression 'u * v', not by"),
    ):
        with pytest.raises(ParseError) as caught:
            parsed("XDSL", xdsl(*nodes, wrong))
        assert message in str(caught.value)
        assert caught.value.line is not None


def test_dsl() -> None:
    net = decision_network(jtgpu.read(DATA / "dsl" / "decisions.dsl"))
    assert (net.decisions, net.utilities) == (("Invest",), ("Gain", "Fee"))
    assert net.states("Invest") == ("Invest", "DoNotInvest")
    assert net.parents("Invest") == ("Forecast",)
    assert net.utility("Gain").tolist() == [[10000, -5000], [500, 500]]
    assert net.utility("Fee").tolist() == [-100, 0]
    assert net.attributes["node"]["Invest"] == {"label": "Invest?"}
    assert net.attributes["node"]["Gain"] == {
        "label": "Financial gain", "comment": "in dollars", "position": (50, 200)}  # fmt: skip
    assert "weight 100" in net.attributes["read"]["notes"][0]
    best = {row["Forecast"]: option for row, option in net.compile().policy().rows("Invest")}
    assert best == {"Good": "Invest", "Moderate": "DoNotInvest", "Poor": "DoNotInvest"}


def test_netica() -> None:
    net = decision_network(jtgpu.read(DATA / "dne" / "umbrella.dne"))
    assert (net.name, net.variables) == ("Umbrella", ("Weather", "Forecast", "Umbrella", "Wet"))
    assert (net.decisions, net.utilities) == (("Umbrella",), ("Satisfaction",))
    assert net.cpt("Forecast").tolist() == [[0.7, 0.2, 0.1], [0.15, 0.25, 0.6]]
    assert net.cpt("Wet")[..., 1].tolist() == [[0, 0], [0, 1]]
    assert net.utility("Satisfaction").tolist() == [[20, 100], [70, 0]]
    assert net.attributes["node"] == {"Weather": {"position": (174, 72)}, "Umbrella": {"label": "Take it?"}}
    other = jtgpu.read(DATA / "dne" / "levels.dne")
    assert isinstance(other, BayesianNetwork)
    assert other.states("Amount") == ("[-inf, 0)", "[0, 2.5)", "[2.5, inf)")
    assert other.states("Year") == ("2020", "2030")
    assert other.cpt("Amount").tolist() == [0.5, 0, 0.5]
    assert other.cpt("Known").tolist() == [[0, 0, 1], [1, 0, 0]]
    assert other.cpt("Year").tolist() == [[0.5, 0.5]] * 3  # no table
    assert other.attributes["node"]["Amount"] == {"comment": 'as "measured" \tdaily'}


DNE = "// ~->[DNET-1]->~\nbnet n {{ node a {{ {} }};\nnode b {{ states = (x, y); parents = (a); {} }}; }};"
A = "states = (x, y); probs = (0.25, 0.75);"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ('discrete = FALSE; equation = "a = 1";', "", "2:15: found the equation node without a table, which"),
        ("discrete = FALSE;", "", "found the continuous node without levels 'a'"),
        (A, "delays = ((1));", "3:6: found the node with delays, of a dynamic network 'b'"),
        ("kind = CONSTANT;", "", "found the constant node 'a'"),
        ("kind = ASSUMED;", "", "found the node of kind 'ASSUMED' 'a'"),
        ("discrete = TRUE;", "", "the node 'a' has no states"),
        (A, "probs = ((0.5, 0.5), 0.5, 0.5;", "found 2 '(' and 1 ')' in a table"),
        (A, "probs = (0.5, 0.5);", "found 2 numbers for 'b', expected 4"),
        (A, "probs = (0.5, half, 0.5, 0.5);", "found 'half', expected a number"),
        (A, "probs = (0.5, 0.5, -1, 2);", "3:61: the table of 'b' holds -1"),
        (A, "functable = (x, z);", "found 'z', expected a state of 'b'"),
        (A, "functable = (#0, #2);", "found '#2', expected #0 to #1"),
        (A, "functable = (x);", "found 1 resulting states of 'b', expected 2"),
        (A, "kind = DECISION; probs = (0.5, 0.5, 1, 0);", "the decision 'b' has probabilities"),
        (A, "visual V1 { center = (1,", "found '}', expected ')'"),
    ],
)
def test_mistakes_in_netica_files(a: str, b: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parsed("Netica dne", DNE.format(a, b))
    assert message in str(caught.value)


@pytest.mark.parametrize("by_file", [True, False])
def test_pyagrum(by_file: bool, tmp_path: Path) -> None:
    """Influence diagrams of pyAgrum, by its file and in memory: the same numbers for the same configurations."""
    gum = pytest.importorskip("pyagrum")
    gum.initRandom(4)
    theirs = gum.fastID("a[3]->test[2]->*treat[4]->$cost;a->$cost;treat->*second;second->$more;b[3]->$more;b->test")
    if by_file:
        theirs.saveBIFXML(str(tmp_path / "a.bifxml"))
        theirs = gum.loadID(str(tmp_path / "a.bifxml"))  # the file has six digits
        net = decision_network(jtgpu.read(tmp_path / "a.bifxml"))
    else:
        net = decision_network(jtgpu.from_pyagrum(theirs))
    assert set(net.decisions) == {"treat", "second"}
    assert set(net.utilities) == {"cost", "more"}
    assert net.parents("treat") == ("test",)
    for name in (*net.variables, *net.utilities):
        if name in net.decisions:
            continue
        is_utility = name in net.utilities
        ours = np.asarray(net.utility(name) if is_utility else net.cpt(name))
        axes = [*net.parents(name), *([] if is_utility else [name])]
        tensor = theirs.utility(name) if is_utility else theirs.cpt(name)
        at = gum.Instantiation(tensor)
        while not at.end():
            index = tuple(at.val(theirs.variableFromName(v)) for v in axes)
            assert abs(ours[index] - tensor.get(at)) < 1e-5
            at.inc()


# Written and read back ----------------------------------------------------------------------------------------


@st.composite
def decision_networks(draw: st.DrawFn) -> DecisionNetwork:
    """Some variables of a random network are decided, and some utilities depend on any of them."""
    net = draw(bayesian_networks())
    decisions = draw(st.lists(st.sampled_from(net.variables), max_size=3, unique=True))
    utilities, parents = {}, {v: net.parents(v) for v in net.variables}
    for i in range(draw(st.integers(0 if decisions else 1, 3))):
        above = draw(st.lists(st.sampled_from(net.variables), max_size=3, unique=True))
        shape = [len(net.states(v)) for v in above]
        seed = draw(st.integers(0, 99))
        utilities[f"u {i}"], parents[f"u {i}"] = np.random.default_rng(seed).normal(0, 1e3, shape), tuple(above)
    cpts = {v: net.cpt(v) for v in net.variables if v not in decisions}
    attributes = {"node": {f"u {i}": {"position": (3, -4), "label": "a label"} for i in range(len(utilities))}}
    return DecisionNetwork(
        {v: net.states(v) for v in net.variables}, parents, cpts, decisions=decisions, utilities=utilities,
        name="a name", attributes=attributes,
    )  # fmt: skip


@given(decision_networks())
def test_every_bit_comes_back(net: DecisionNetwork) -> None:
    for name in ("XDSL", "DSL"):
        text = BY_NAME[name].dumps(net)  # type: ignore[misc]
        again = parsed(name, text)
        assert again == net
        assert (again.name, again.attributes["node"]) == (net.name, net.attributes["node"])
    made = carry(net, BY_NAME["Hugin net"])  # which has no names with blanks
    back = parsed("Hugin net", made.text)
    assert [back.utility(u).tolist() for u in back.utilities] == [net.utility(u).tolist() for u in net.utilities]
    assert carry(back, BY_NAME["XDSL"]).losses == ()
    assert parsed("XDSL", carry(back, BY_NAME["XDSL"]).text) == back


@pytest.mark.parametrize("suffix", ["xdsl", "dsl"])
def test_noisy_tables_keep_their_strengths_next_to_decisions(suffix: str, tmp_path: Path) -> None:
    noisy = jtgpu.NoisyOr([0.8, 0.6], 0.05, present=0)
    net = DecisionNetwork(
        {v: ["y", "n"] for v in "ade"}, {"e": ["a", "d"], "u": ["e", "d"]}, {"a": [0.3, 0.7], "e": noisy},
        decisions=["d"], utilities={"u": [[1, 2], [3, 4]]}, attributes={"potential": {"e": noisy.attributes}},
    )  # fmt: skip
    jtgpu.write(net, tmp_path / f"a.{suffix}")
    again = decision_network(jtgpu.read(tmp_path / f"a.{suffix}"))
    assert "noisy" in (tmp_path / f"a.{suffix}").read_text().lower()
    assert again == net
    assert again.attributes["potential"] == net.attributes["potential"]


def test_where_decisions_cannot_go(tmp_path: Path) -> None:
    net = jtgpu.read(DATA / "hugin" / "decisions.net")
    for suffix in ("bif", "xml", "dsc", "uai", "erg", "fg"):
        with pytest.raises(jtgpu.FormatError, match="DecisionNetwork"):
            jtgpu.write(net, tmp_path / f"a.{suffix}")
        with pytest.raises(jtgpu.FormatError, match="DecisionNetwork"):
            jtgpu.write(net, tmp_path / f"a.{suffix}", rename=True)
    product = DecisionNetwork({"d": "xy"}, {}, {}, decisions=["d"], utilities={"u": 1.0}, combine="product")
    for suffix in ("net", "xdsl", "dsl"):
        with pytest.raises(jtgpu.FormatError, match="combine='product'"):
            jtgpu.write(product, tmp_path / f"a.{suffix}")


# Chance variables only ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "hugin/decisions.net", "xdsl/decisions.xdsl", "xmlbif/pyagrum_decisions.xml", "dne/umbrella.dne",
        "dsl/decisions.dsl",
    ],
)  # fmt: skip
def test_decisions_as_uniform_chance_variables(name: str) -> None:
    net = decision_network(jtgpu.read(DATA / name))
    chance = jtgpu.read(DATA / name, decisions="chance")
    assert isinstance(chance, BayesianNetwork)
    assert chance.variables == net.variables
    assert all(chance.parents(v) == net.parents(v) for v in net.variables)
    for v in net.variables:
        assert (chance.cpt(v) == (1 / len(net.states(v)) if v in net.decisions else net.cpt(v))).all()
    assert not set(net.utilities) & set(chance.attributes["node"])
    chance.compile("reference").posteriors()


def test_what_can_be_read_of_a_file_with_other_nodes() -> None:
    path = DATA / "hugin" / "mixed.net"
    with pytest.raises(ParseError, match=r"net:3:1: found the continuous node 'C'.*4 nodes cannot be read") as caught:
        jtgpu.read(path)
    places = [node.replace(str(path), "") for node in caught.value.nodes]
    assert places == [
        ":3:1: 'C', continuous node", ":4:1: 'F', function node",
        ":10:12: 'B', node given by a model without data (save the file with its tables)",
        ":11:12: 'D', child of 'B'",
    ]  # fmt: skip
    net = jtgpu.read(path, decisions="chance")
    assert net.variables == ("A",)
    assert net.attributes["read"]["skipped"] == caught.value.nodes
    assert jtgpu.load(path, decisions="chance") == net


def test_objects_that_are_not_in_the_file() -> None:
    text = """class K { node A { states = (x y); }
    instance I : Other (in = A; out = O) { label = "{;"; }
    node B { states = (x y); } node C { states = (x y); }
    potential (A) { data = (1 1); } potential (B | O) { data = ((1 0) (0 1)); } potential (C | B) { } }"""
    with pytest.raises(ParseError, match=r"f:2:5: found the class instance \(of 'Other', which is not in") as caught:
        parsed("Hugin net", text)
    assert [n.partition(": ")[2] for n in caught.value.nodes] == [
        "'I', class instance (of 'Other', which is not in the file)", "'B', child of 'O', which an object has",
        "'C', child of 'B'",
    ]  # fmt: skip
    assert parsed("Hugin net", text, decisions="chance").variables == ("A",)


def test_commands(tmp_path: Path) -> None:
    run = CliRunner()
    mixed, output = str(DATA / "hugin" / "mixed.net"), str(tmp_path / "a.bif")
    listed = run.invoke(app, ["info", mixed])
    assert listed.exit_code == 5
    assert [line.partition(".net:")[2] for line in listed.stdout.splitlines()][-1] == "11:12: 'D', child of 'B'"
    assert len(json.loads(run.invoke(app, ["info", mixed, "--json"]).stdout)["unreadable"]) == 4
    rest = json.loads(run.invoke(app, ["info", mixed, "--chance-only", "--json"]).stdout)
    assert (rest["variables"], len(rest["left_out"])) == (1, 4)
    assert run.invoke(app, ["convert", mixed, output]).exit_code == 5
    assert run.invoke(app, ["convert", mixed, output, "--chance-only"]).exit_code == 0
    assert jtgpu.read(output).variables == ("A",)
    about = json.loads(run.invoke(app, ["info", str(DATA / "hugin" / "decisions.net"), "--json"]).stdout)
    assert (about["kind"], about["decisions"]) == ("decision network", ["Test", "Drill"])
    assert about["utilities"] == ["Testpay", "Drillpay"]


# Mistakes -----------------------------------------------------------------------------------------------------

HEAD = "node a { states = (x y); } potential (a) { data = (1 1); }\ndecision d { states = (x y z); }\nutility u { }\n"
U_IS_1 = "potential (u) { data = (1); }\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "3:9: the utility 'u' has no numbers"),
        (HEAD + "potential (u | d) { data = (1 2); }", "found 2 numbers for the utility 'u', expected 3 = 3 ('d')"),
        (HEAD + "potential (u | d) { data = (1 2 1e999); }", "4:33: the utility 'u' holds inf"),
        (HEAD + "potential (u | b) { data = (1 2); }", "4:16: 'u' has the parent 'b', which is not declared"),
        (HEAD + "potential (u | d d) { data = (1 2); }", "'u' has the parent 'd' twice"),
        (HEAD + U_IS_1 + "potential (d | u) { }", "5:16: 'd' has the parent 'u', which is a utility"),
        (HEAD + U_IS_1 + "potential (d) { data = (1 1 2); }", "5:24: the decision 'd' has probabilities"),
        (HEAD + "utility u { }", "4:9: the node 'u' is declared a second time"),
        (HEAD + "node d { states = (x); }", "4:6: the node 'd' is declared a second time"),
        (HEAD.replace("(x y z)", "()"), "found an empty list of states"),
        (HEAD.replace("states = (x y z);", ""), "2:10: the decision 'd' has no states"),
        (HEAD + U_IS_1 + "decision e { states = (x y); } potential (d | e) { } potential (e | d) { }",
         "5:43: the arcs form a cycle"),
    ],
)  # fmt: skip
def test_mistakes_have_a_place(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parsed("Hugin net", text)
    assert message in str(caught.value)
