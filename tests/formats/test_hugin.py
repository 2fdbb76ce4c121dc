"""Hugin .net: what the format says, what real files do to it, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.errors import FormatError, ParseError
from jtgpu.formats import hugin, read, write
from jtgpu.formats.hugin import parse
from jtgpu.formats.hugin_values import Verbatim, dumps
from jtgpu.model.decisions import DecisionNetwork
from jtgpu.model.dynamic import DynamicNetwork
from jtgpu.model.mixed import MixedNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT

DATA = Path(__file__).parent / "data"
AB = 'node a { states = ("0" "1"); } node b { states = ("x" "y" "z"); }\n'


def error_of(text: str, **options: Any) -> str:
    """The message of the `ParseError` that a text must give; every one of them has a place."""
    with pytest.raises(ParseError) as caught:
        parse(text, "f.net", **options)
    assert caught.value.line is not None
    assert caught.value.column is not None
    return str(caught.value)


def notes(net: BayesianNetwork) -> tuple[str, ...]:
    found = net.attributes["read"]["notes"]
    assert isinstance(found, tuple)
    return found


# What is read -------------------------------------------------------------------------------------------------


def test_one_file_with_every_oddity() -> None:
    net = parse((DATA / "odd.net").read_text("utf-8"), "odd.net")
    assert net.variables == ("cold.", "808", "sick", "node_of_one", "unsaid", "potential")
    assert net.states("808") == ("(2.42-4.66]", "", "")
    assert net.states("sick") == ("0", "1.5")
    assert net.states("potential") == ("Sim     ", "Não")
    assert net.parents("sick") == ("cold.", "808")
    assert net.cpt("cold.").tolist() == [0.8, 0.2]
    assert net.cpt("sick").tolist() == [[[0.9, 0.1], [0.5, 0.5], [0.25, 0.75]], [[0.5, 0.5], [1, 0], [0.25, 0.75]]]
    assert net.cpt("808").tolist() == [1 / 3] * 3
    assert net.cpt("node_of_one").tolist() == [1]
    assert net.cpt("unsaid").tolist() == [0.25] * 4
    assert net.cpt("potential").tolist() == [[1, 0], [0, 1], [0.5, 0.5], [0.25, 0.75]]


def test_attributes_are_kept() -> None:
    net = parse((DATA / "odd.net").read_text("utf-8"), "odd.net")
    assert net.attributes["net"] == {"node_size": (130.0, 55.0), "label": '100 % {of}; "(it)"', "HR_Color": 47}
    nodes = net.attributes["node"]
    assert nodes["cold."] == {"position": (-3, 120), "label": "Cold?\ntwo lines"}
    assert nodes["808"]["label"] == "a \\ b, a \\q, joined line, octal \xa2"
    assert nodes["808"]["subtype"] == "interval"
    assert isinstance(nodes["808"]["subtype"], Verbatim)
    assert nodes["808"]["state_values"] == "(-infinity 0 1 infinity)"
    assert nodes["sick"]["DSLxSTATE"] == 'P(sick == "yes") + 1'
    assert nodes["potential"]["position"] == (1.5, 20.0)
    assert net.attributes["potential"]["sick"] == {"experience": (10, 20, 30, 40, 50, 60)}
    assert net.attributes["potential"]["potential"]["model_data"] == '(if (unsaid == "a", 1, 0), 2)'


def test_what_was_put_up_with_is_noted() -> None:
    found = notes(parse((DATA / "odd.net").read_text("utf-8"), "odd.net"))
    assert len(found) == 4
    assert any("'808' has no numbers: uniform" in n and n.startswith("odd.net:") for n in found)
    assert any("4 pairs of parentheses where its 1 parents make 5" in n for n in found)
    many = "".join(f"node n{i} {{ states = (a b); }}\n" for i in range(30))
    assert notes(parse(many, "m.net"))[-1] == "m.net: 10 more like these"


def test_order_of_numbers_first_parent_slowest_child_fastest() -> None:
    text = "node c { states = (u v); }" + AB + "potential (c | a b) { data = (1 9 2 8 3 7 4 6 5 5 6 4); }"
    assert np.array_equal(parse(text).cpt("c")[..., 0], np.array([[1, 2, 3], [4, 5, 6]]) / 10)


@pytest.mark.parametrize("header", ["(a)", "(a |)", "( a | )"])
def test_a_potential_without_parents(header: str) -> None:
    assert parse(AB + f"potential {header} {{ data = (1 3); }}").cpt("a").tolist() == [0.25, 0.75]


@pytest.mark.parametrize("data", ["1 3", "(1 3)", "((1 3))", "(((1)(3)))", "(1)(3)", "\n=\n".replace("=", "(1 3)")])
def test_parentheses_are_flattened(data: str) -> None:
    net = parse('node a { states = ("0" "1"); }' + f"potential (a) {{ data = {data}; }}")
    assert net.cpt("a").tolist() == [0.25, 0.75]
    assert len(notes(net)) == (data.count("(") != 1)


def test_rows_are_normalised_and_reported() -> None:
    text = AB + "potential (a) { data = (30 70); }\npotential (b | a) { data = ((0.25 0.25 0.5) (2 1 1)); }"
    net = parse(text)
    assert net.cpt("a").tolist() == [0.3, 0.7]
    report = net.row_report
    assert report is not None
    assert (report.n_rows, report.n_off, report.worst_variable, report.worst_sum) == (3, 2, "a", 100.0)


def test_zero_rows_are_an_error_or_uniform_on_request() -> None:
    text = AB + "potential (a) { data = (1 1); }\npotential (b | a) { data = ((1 1 2)\n (0 0.0 0e5)); }"
    message = error_of(text)
    assert message.startswith("f.net:4:3: a row of the table of 'b' is all zeros")
    assert parse(text, zero_rows="uniform").cpt("b")[1].tolist() == [1 / 3] * 3


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_kind_of_newline(newline: str) -> None:
    text = (DATA / "odd.net").read_text("utf-8")
    assert parse(text.replace("\n", newline)) == parse(text)
    assert ":4:2:" in error_of(newline.join(["net {", "", "}", "\t!"]))


def test_a_class_without_instances_is_a_network() -> None:
    net = read(DATA / "student.oobn")
    assert isinstance(net, BayesianNetwork)
    assert net.name == "student"
    assert net.cpt("grade").tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert net.attributes["net"]["outputs"] == ("grade",)
    assert net.attributes["net"]["function"].startswith("an attribute")


def test_an_empty_network_is_one() -> None:
    assert len(parse("net { }")) == 0


def test_repeated_unknown_attributes_are_noted() -> None:
    net = parse('node a { label = "x"; label = "y"; states = (a b); } potential (a) { data = (1 1); }')
    assert net.attributes["node"]["a"] == {"label": "y"}
    assert "a second time" in notes(net)[0]


# What is refused, by name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start", "names"),
    [
        ("continuous node C { }", "1:1", ("continuous node", "'C'")),
        ("function F { }", "1:1", ("function node", "'F'")),
        ("discrete function F { states = (a b); }", "1:10", ("function node", "'F'")),
        ("class K { instance I : J (a = b; c = d) { } }", "1:11", ("class instance", "'I'")),
        ("class K { instance I : J ( ; ) ; }", "1:11", ("class instance", "'I'")),
        ("class K { continuous node X { }\n temporal T_X : X { } }", "1:11", ("continuous node", "'X'")),
        ("net {} class L { }", "1:8", ("object-oriented",)),
        (AB + "potential (a) { model_data = (Normal(0, 1)); }", "2:12", ("model", "'a'")),
        (AB + "potential (a b) { }", "2:12", ("several children", "'a'", "'b'")),
        (AB + "potential (a b |) { }", "2:12", ("several children", "'a'", "'b'")),
        ("potential (X) { data = normal (0, 1); }", "1:24", ("normal distribution", "'X'", "continuous")),
        ("potential (X | F) { data = (\nnormal(0,1) % F=a\n); }", "2:1", ("normal", "'X'")),
    ],
)
def test_what_is_no_discrete_chance_node_is_refused_by_name(text: str, start: str, names: tuple[str, ...]) -> None:
    message = error_of(text)
    assert message.startswith(f"f.net:{start}: ")
    for name in (*names, "supported") if "class" not in names[0] else names:
        assert name in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: found the end of the file, expected a Hugin network"),
        ("% only a comment\n", "2:1: found the end of the file"),
        ("nod a { }", "1:1: found 'nod', expected 'net', 'node' or 'potential'"),
        ("net { } net { }", "1:9: found 'net', expected no second 'net' block"),
        ("net {", "1:6: found the end of the file, expected '}' at the end of the net block"),
        ("net { x 5; }", "1:9: found '5', expected '=' after 'x'"),
        ("net { x = 5 }", "1:13: found '}', expected ';' at the end of the value"),
        ("net { x = ; }", "1:11: found ';', expected a value"),
        ("net { 5 = 5; }", "1:7: found '5', expected the name of an attribute, or '}'"),
        ('net { x = "abc; }', "1:11: found a string whose closing \" is missing, expected ';'"),
        ("node { }", "1:6: found '{', expected the node's name"),
        ("node -5 { }", "1:6: found '-5', expected the node's name"),
        ("node a { }", "1:6: the node 'a' has no states"),
        ("node a { states = (); }", "1:19: found an empty list of states"),
        ('node a { states = "x"; }', "1:19: found '\"x\"', expected '(' before the states"),
        ('node a { states = ("x", "y"); }', "1:23: found ',', expected a state in double quotes, or ')'"),
        ("node a { states = (x); states = (y); }", "1:24: the attribute 'states' occurs a second time"),
        (AB + AB, "2:6: the node 'a' is declared a second time"),
        ("discrete nodes a { }", "1:10: found 'nodes', expected 'node' after 'discrete'"),
        (AB + "potential a { }", "2:11: found 'a', expected '(' after 'potential'"),
        (AB + "potential (a | b { }", "2:18: found '{', expected ')' or the name of a parent"),
        (AB + "potential (c) { data = (1 1); }", "2:12: found a table for 'c', which is not declared"),
        (AB + "potential (a | bb) { data = (1 1); }", "2:16: 'a' has the parent 'bb', which is not declared; did you"),
        (AB + "potential (a | b b) { }", "2:18: 'a' has the parent 'b' twice"),
        (AB + "potential (a | b a) { }", "2:18: 'a' is its own parent"),
        (AB + "potential (a) { }\npotential (a) { }", "3:12: found a second potential of 'a'"),
        (AB + "potential (a) { data = (1 1); data = (1 1); }", "2:31: the attribute 'data' occurs a second time"),
        (AB + "potential (a) { data = (1 1 1); }", "2:24: found 3 numbers for 'a', expected 2 = 2 ('a')"),
        (
            AB + "potential (a | b) {\n data = (1 1 1); }",
            "3:9: found 3 numbers for 'a', expected 6 = 3 ('b') x 2 ('a')",
        ),
        (AB + "potential (a) { data = (); }", "2:24: found 0 numbers"),
        (AB + "potential (a) { data = (1 %x\n 1,2); }", "3:2: found '1,2', expected a number"),
        (AB + "potential (a) { data = (1 1_0); }", "2:27: found '1_0', expected a number"),
        (AB + "potential (a) { data = (1 nan); }", "2:27: found 'nan', expected a number"),
        (AB + "potential (a) { data = (1 infinity); }", "2:27: found 'infinity', expected a number"),
        (AB + "potential (a) { data = (1 ٣); }", "2:27: found '٣', expected a number"),
        (AB + "potential (a) { data = (1 1e999); }", "2:27: the table of 'a' holds inf"),
        (AB + "potential (a) { data = (1 % -3\n -2); }", "3:2: the table of 'a' holds -2"),
        (AB + "potential (a) { data = (1 1)) ; }", "2:29: found ')', expected ';'"),
        (AB + "potential (a) { data = ((1 1) ; }", "2:31: found the end of the data, expected 1 more ')'"),
        (AB + "potential (a) { data = (1 1) }", "2:30: found '}', expected ';' at the end of the data"),
        (AB + 'potential (a) { data = (1 "1"); }', "2:27: found '\"1\"', expected ';'"),
        ("class { }", "1:7: found '{', expected the class's name"),
        ("class K { net { }", "1:18: found the end of the file, expected '}' at the end of the class"),
        ("class K { } net { }", "1:13: found 'net', expected the end of the file after the class"),
    ],
)
def test_errors_have_a_place_and_say_what_was_expected(text: str, expected: str) -> None:
    message = error_of(text)
    assert message.startswith(f"f.net:{expected}")


def test_a_cycle_is_named_and_placed() -> None:
    text = AB + "potential (a | b) { data = (1 1 1 1 1 1); }\npotential (b | a) { data = (1 1 1 1 1 1); }"
    message = error_of(text)
    assert message.startswith("f.net:2:12: ")
    assert "cycle" in message
    assert "'a'" in message
    assert "'b'" in message


def test_a_short_file_cannot_ask_for_all_memory() -> None:
    states = " ".join("abcdefghij")
    nodes = "".join(f"node n{i} {{ states = ({states}); }}\n" for i in range(40))
    head = " ".join(f"n{i}" for i in range(1, 40))
    assert "uniform table" in error_of(nodes + f"potential (n0 | {head}) {{ }}")
    assert "expected 1" in error_of(nodes + f"potential (n0 | {head}) {{ data = (1 2); }}")


def test_more_parents_than_axes() -> None:
    nodes = "".join(f"node n{i} {{ states = (only); }}\n" for i in range(100))
    head = " ".join(f"n{i}" for i in range(1, 100))
    assert "more than an array has axes" in error_of(nodes + f"potential (n0 | {head}) {{ data = (1); }}")


@pytest.mark.parametrize(
    "text",
    [
        "net { x = " + "(" * 200_000 + ")" * 200_000 + "; }",
        "net { x = " + "(" * 200_000,
        AB + "potential (a) { data = " + "(" * 200_000 + "1 1" + ")" * 200_000 + "; }",
        AB + "potential (a) { data = " + "(" * 200_000,
        'net { x = "' + "\\" * 400_001,
        'net { x = "' + "a" * 400_000,
        "%" * 400_000,
        "%\n" * 200_000,
        " \n" * 200_000 + "!",
        "node " + "a" * 400_000 + " {",
        AB + "potential (a) { data = (" + "1e5" * 100_000 + "); }",
        AB + "potential (a) { data = (" + "9" * 400_000 + " 1); }",
        "node a { states = (" + '"s" ' * 100_000,
        "potential (" + "a " * 200_000,
        "net { x = " + "9" * 400_000 + "; }",
    ],
    ids=range(15),
)
def test_long_and_deep_input_ends_soon(text: str) -> None:
    """Nothing here recurses or goes over the text again for every character; it would hang if it did."""
    failure = None
    try:
        parse(dumps(parse(text)))
    except ParseError as error:
        failure = error
    assert failure is None or len(str(failure)) < 1000


# Writing ------------------------------------------------------------------------------------------------------


def same_attributes(a: BayesianNetwork, b: BayesianNetwork) -> bool:
    return all(a.attributes.get(k, {}) == b.attributes.get(k, {}) for k in ("net", "node", "potential"))


def test_a_written_file_reads_back_equal_with_its_attributes() -> None:
    net = parse((DATA / "odd.net").read_text("utf-8"))
    text = dumps(net)
    again = parse(text)
    assert again == net
    assert same_attributes(net, again)
    assert isinstance(again.attributes["node"]["808"]["subtype"], Verbatim)
    assert dumps(again) == text
    assert notes(again) == ()


def test_the_layout_for_people() -> None:
    text = "node c { states = (u v); }" + AB
    text += "potential (c | a b) { data = (1 3 1 1 1 0 0 1 1 1 1 1); }potential (a) { data = (1 1); }"
    lines = dumps(parse(text)).splitlines()
    at = lines.index("potential (c | a b)")
    assert lines[at + 1 : at + 9] == [
        "{",
        "    data = (((0.25 0.75)  %  a=0  b=x",
        "             (0.5 0.5)  %  a=0  b=y",
        "             (1 0))  %  a=0  b=z",
        "            ((0 1)  %  a=1  b=x",
        "             (0.5 0.5)  %  a=1  b=y",
        "             (0.5 0.5)));  %  a=1  b=z",
        "}",
    ]


@pytest.mark.parametrize("name", ["", "a b", "a-b", "ä ", "x\n", "1 ", "%", "a{", '"a"', "+5", "a;"])
def test_names_that_the_grammar_cannot_carry_are_named(name: str) -> None:
    net = BayesianNetwork({name: ["x"]}, {}, {name: [1.0]})
    with pytest.raises(FormatError) as caught:
        dumps(net)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["808", "U71.00", "1e5", "1.5E-3", "node", "potential", "_", "größe", "5."])
def test_names_that_it_can_carry(name: str) -> None:
    net = BayesianNetwork(
        {name: ["x", "y"], "c": ["x", "y"]}, {"c": [name]}, {name: [0.5, 0.5], "c": np.full((2, 2), 0.5)}
    )
    assert parse(dumps(net)) == net


@pytest.mark.parametrize(
    "value", [None, {"a": 1}, float("nan"), float("inf"), ((1, 2), 3), Verbatim("a; b"), Verbatim("")]
)
def test_attributes_that_it_cannot_carry_are_named(value: object) -> None:
    net = BayesianNetwork({"v": ["x"]}, {}, {"v": [1.0]}, attributes={"node": {"v": {"odd_one": value}}})
    with pytest.raises(FormatError, match="odd_one"):
        dumps(net)


names = st.from_regex(r"[A-Za-z0-9_.]{1,6}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.one_of(
    texts,
    st.integers(-(10**15), 10**15),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.one_of(texts, st.integers(-99, 99), st.floats(-1e9, 1e9)), max_size=4).map(tuple),
)


@st.composite
def networks(draw: st.DrawFn) -> BayesianNetwork:
    """Any network that .net can carry: odd names, equal and empty states, rows a little off, tiny numbers."""
    variables = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    states = {v: draw(st.lists(texts, min_size=1, max_size=4)) for v in variables}
    parents, cpts = {}, {}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    for i, v in enumerate(variables):
        parents[v] = draw(st.lists(st.sampled_from(variables[:i]), unique=True, max_size=3)) if i else []
        shape = (*(len(states[p]) for p in parents[v]), len(states[v]))
        table = rng.random(shape) ** draw(st.sampled_from([1, 5, 100])) + 1e-300
        table /= table.sum(axis=-1, keepdims=True)
        cpts[v] = table * (1 + draw(st.sampled_from([0.0, 1e-16, 1e-15, 1e-13, 9e-7, -9e-7])))
    keys = names.filter(lambda n: n != "name" and re.fullmatch("[A-Za-z_].*", n) is not None)
    attributes: dict[str, dict[str, object]] = {
        "net": draw(st.dictionaries(keys, values, max_size=2)),
        "node": {v: {"label": draw(texts), "position": (draw(st.integers(-9, 9)), 5)} for v in variables},
        "potential": {variables[0]: {"experience": draw(values)}},
    }
    return BayesianNetwork(states, parents, cpts, name=draw(texts), attributes=attributes)


@given(networks())
def test_any_network_reads_back_bit_for_bit(net: BayesianNetwork) -> None:
    text = dumps(net)
    again = parse(text.encode("utf-8").decode("utf-8"))
    assert again == net
    assert again.name == net.name
    for key in ("node", "potential"):
        assert again.attributes[key] == net.attributes[key]
    assert {k: v for k, v in again.attributes["net"].items() if k != "name"} == net.attributes["net"]
    assert dumps(again) == text


# The shared files ---------------------------------------------------------------------------------------------

# nodes, arcs, numbers, rows, rows off by more than 1e-3 (formats.md, section 1.4)
RETI = {
    "Mildew": (35, 46, 547158, 7008, 1),
    "Diabetes": (413, 602, 461069, 31660, 76),
    "Barley": (48, 84, 130180, 16175, 503),
    "Munin1": (189, 282, 19466, 3844, 1865),
    "Munin2": (1003, 1244, 83920, 14489, 4259),
    "Munin3": (1044, 1315, 85855, 14796, 3812),
    "Munin4": (1041, 1397, 98183, 17831, 6931),
    "Water": (32, 66, 13484, 3401, 23),
    "Link": (724, 1125, 20502, 6291, 236),
    "powerplant": (46, 42, 448, 150, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RETI)
def test_retiesempio_reads_as_counted_and_round_trips(name: str, shared_nets: Path, tmp_path: Path) -> None:
    path = shared_nets / "RetiEsempio" / f"{name}.net"
    raw = hugin.parse_draft(path.read_bytes().decode("latin-1"), name)
    off = sum(int((np.abs(t.sum(axis=-1) - 1) > 1e-3).sum()) for t in raw.tables.values())
    net = read(path)
    assert isinstance(net, BayesianNetwork)
    numbers = sum(net.cpt(v).size for v in net.variables)
    rows = sum(net.cpt(v)[..., 0].size for v in net.variables)
    assert (len(net), net.n_arcs, numbers, rows, off) == RETI[name]
    assert net.row_report is not None
    assert net.row_report.n_rows == rows
    write(net, tmp_path / "again.net.gz")
    again = read(tmp_path / "again.net.gz")
    assert again == net
    assert isinstance(again, BayesianNetwork)
    assert same_attributes(net, again)
    n_positions = sum("position" in a for a in again.attributes["node"].values())
    assert n_positions == path.read_bytes().count(b"position = (")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in RETI if n != "powerplant"])
def test_nets_agree_with_retiesempio(name: str, shared_nets: Path) -> None:
    """bnlearn's copies have seven digits and other state names, in the same order; Munin's dummies are gone."""
    theirs = read(shared_nets / "RetiEsempio" / f"{name}.net")
    ours = read(next(iter(sorted((ROOT / "nets").glob(f"{name.lower()}.net*")))))
    assert isinstance(theirs, BayesianNetwork)
    assert isinstance(ours, BayesianNetwork)
    common = [v for v in ours.variables if v in theirs.variables]
    assert len(common) == len(ours)
    compared = 0
    for v in common:
        if set(theirs.parents(v)) != set(ours.parents(v)):
            assert any(p.startswith("DIFFN_DUMMY") for p in theirs.parents(v)), v
            continue
        axes = [theirs.parents(v).index(p) for p in ours.parents(v)]
        table = theirs.cpt(v).transpose([*axes, len(axes)])
        assert np.abs(table - ours.cpt(v)).max() < 1e-5, v
        compared += 1
    assert compared >= len(ours) - 3
    assert {v for v in theirs.variables if v not in ours.variables} <= {f"DIFFN_DUMMY_{i}" for i in (1, 2, 3)}


# Refused files of nets/variety: the line, what is found there, its name. All others read.
REFUSED = {
    "index_SpearGrazeCattle.oobn": (11, "class instance", "BACG"),
    "rhugin_test_oobn.oobn": (65, "continuous node", "fan_power"),
    "unbbayes_Chest_Clinic_Learned_Dirichlet.net": (76, "all zeros", "Tuberculose"),
    "wmc_heart_disease_regression.net": (50, "function node", "Risk"),
    "wmc_sdlc93.net": (52, "continuous node", "C22"),
}
READ = (  # noqa: SIM905 - a list of names reads better as words
    "agrum_alarm.net agrum_bn_with_xp.net agrum_test1.net agrum_test3.net amidst_CajamarDBNExpanded.net "
    "amidst_asia.net bnlearn_asia.net bnlearn_sachs.net bnlearn_survey.net cs578_student.oobn cs578_synthetic_v2.oobn "
    "cs578_synthetic_v3.oobn grain_chest_clinic.net grain_chest_clinic_short.net grain_golf.net runbbayes_asia.net "
    "unbbayes_ChestClinicNetica.net unbbayes_Football.net unbbayes_NoisyOr.net unbbayes_alarm.net "
    "unbbayes_bn191_treewidth_20.net unbbayes_singleMultiplexor.net wmc_3nt.net wmc_asia.net wmc_boerlage92.net "
    "wmc_family_out.net wmc_hailfinder.net wmc_mainuk.net wmc_pathfinder.net wmc_r_choice.net wmc_socks.net "
    "wmc_year2000.net"
).split()
WITH_NUMBERS = (  # noqa: SIM905
    "amidst_Example.net amidst_IS.net amidst_exampleDBN.net amidst_huginNetworkFromAMIDST.net amidst_tut_exampleBN.net "
    "wmc_WasteIncinerator.net"
).split()
WITH_SLICES = ("amidst_CajamarDBN.oobn", "amidst_huginDBNFromAMIDST.oobn")
WITH_DECISIONS = (  # noqa: SIM905
    "unbbayes_RegularID.net unbbayes_car_buyer.net unbbayes_fisherID.net unbbayes_mildew3.net wmc_OilWildcatter.net "
    "wmc_mildew4.net wmc_poker_subnet.net"
).split()


def test_the_lists_of_variety_are_complete(shared_nets: Path) -> None:
    there = {p.name for p in (shared_nets / "variety").iterdir()}
    lists = (READ, REFUSED, WITH_DECISIONS, WITH_NUMBERS, WITH_SLICES)
    assert there == {name for names in lists for name in names}
    assert len(there) == sum(map(len, lists))


@pytest.mark.parametrize("name", WITH_SLICES)
def test_variety_with_slices_round_trips(name: str, shared_nets: Path, tmp_path: Path) -> None:
    net: Any = read(shared_nets / "variety" / name)
    assert isinstance(net, DynamicNetwork)
    for file in (tmp_path / "again.xdsl", tmp_path / "again.dynamic.json"):
        write(net, file)
        assert read(file) == net


@pytest.mark.parametrize("name", READ)
def test_variety_reads_and_round_trips(name: str, shared_nets: Path, tmp_path: Path) -> None:
    net = read(shared_nets / "variety" / name)
    assert isinstance(net, BayesianNetwork)
    assert len(net) > 3
    write(net, tmp_path / "again.net")
    again = read(tmp_path / "again.net")
    assert again == net
    assert isinstance(again, BayesianNetwork)
    assert again.attributes["node"] == net.attributes["node"]
    assert again.attributes["potential"] == net.attributes["potential"]


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_variety_with_numbers_round_trips(name: str, shared_nets: Path, tmp_path: Path) -> None:
    net: Any = read(shared_nets / "variety" / name)
    assert isinstance(net, MixedNetwork)
    for file in (tmp_path / "again.net", tmp_path / "again.mixed.json"):
        write(net, file)
        assert read(file) == net
    states = read(shared_nets / "variety" / name, decisions="chance")
    assert states.variables == net.discrete.variables


@pytest.mark.parametrize("name", WITH_DECISIONS)
def test_variety_of_decisions_round_trips(name: str, shared_nets: Path, tmp_path: Path) -> None:
    net: Any = read(shared_nets / "variety" / name, zero_rows="uniform")
    assert isinstance(net, DecisionNetwork)
    for suffix in ("net", "xdsl"):
        write(net, tmp_path / f"again.{suffix}", rename=True)
        again: Any = read(tmp_path / f"again.{suffix}")
        assert again == net
    assert read(shared_nets / "variety" / name, zero_rows="uniform", decisions="chance").variables == net.variables


@pytest.mark.parametrize("name", REFUSED)
def test_variety_is_refused_with_place_reason_and_name(name: str, shared_nets: Path) -> None:
    line, what, who = REFUSED[name]
    with pytest.raises(ParseError) as caught:
        read(shared_nets / "variety" / name)
    assert caught.value.line == line
    assert caught.value.column is not None
    assert f"{name}:{line}:" in str(caught.value)
    assert what in str(caught.value)
    assert repr(who) in str(caught.value)


def test_octal_escapes_and_latin1_of_real_files(shared_nets: Path) -> None:
    net = read(shared_nets / "variety" / "wmc_mainuk.net")
    assert any(any("\x80" <= c <= "\xff" for c in s) for v in net.variables for s in net.states(v))
    latin = read(shared_nets / "RetiEsempio" / "Mildew.net")
    assert isinstance(latin, BayesianNetwork)
    chest = read(shared_nets / "variety" / "unbbayes_ChestClinicNetica.net")
    assert isinstance(chest, BayesianNetwork)
    assert chest.attributes["node"]["TbOrCa"]["label"].replace("\r", "") == "Tuberculosis\nor Cancer"


def test_learned_counts_read_with_uniform_zero_rows(shared_nets: Path) -> None:
    net = read(shared_nets / "variety" / "unbbayes_Chest_Clinic_Learned_Dirichlet.net", zero_rows="uniform")
    assert isinstance(net, BayesianNetwork)
    assert net.cpt("Tuberculose")[1, 1].tolist() == [0.5, 0.5]
    assert net.row_report is not None
    assert net.row_report.zero_rows == (("Tuberculose", 1),)
