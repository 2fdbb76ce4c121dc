"""DSC: what MSBN and bnlearn write, keys that cannot be, what is refused and where, and writing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.errors import FormatError, ParseError
from jtgpu.formats import block_reader, read
from jtgpu.formats.dsc import dumps, parse, sniff
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.support.random_nets import bayesian_networks

DATA = Path(__file__).parent / "data"
MSBN = DATA / "dsc_msbn.dsc"

HEAD = 'belief network "n"\n'
A = 'node a {\n  type : discrete [ 2 ] = { "x", "y" };\n}\n'
B = A.replace("node a", "node b")
C = 'node c {\n  type : discrete [ 3 ] = { "0", "1", "2" };\n}\n'
P_A = "probability ( a ) {\n   0.25, 0.75;\n}\n"
P_B = "probability ( b | a ) {\n  (0) : 0.5, 0.5;\n  (1) : 1.0, 0.0;\n}\n"
P_C = "probability ( c ) { 0.25, 0.25, 0.5; }\n"


def test_a_file_as_msbn_writes_it() -> None:
    net = read(MSBN)
    assert isinstance(net, BayesianNetwork)
    assert (net.name, net.variables) == ("Sub0", ("N2", "N3", "N6"))
    assert net.states("N3") == ("female", "male", "")
    assert net.attributes["node"] == {"N2": {"label": 'Age "now"', "position": (207, -95)}}
    # any order, numbers or names, the default; the row (1, 1) is to be normalised
    assert net.cpt("N6").tolist() == [[[0.125, 0.875], [0.5, 0.5], [0.125, 0.875]], [[0.5, 0.5]] + [[0.125, 0.875]] * 2]
    # both keys are (1): the rows are taken as they come
    assert net.cpt("N3").tolist() == [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]
    assert any("the key (1) occurs a second time for 'N3'" in note for note in net.attributes["read"]["notes"])
    assert parse(dumps(net)) == net
    assert parse(dumps(net)).attributes["node"] == net.attributes["node"]


def test_dialects() -> None:
    net = parse(HEAD + A + B + P_A + P_B)
    assert net.cpt("b").tolist() == [[0.5, 0.5], [1, 0]]
    for old, new in (
        ('belief network "n"', "/* x */ belief network n;"),
        ('belief network "n"', 'belief network "n" { version is 1; }'),
        ("(0) : 0.5, 0.5;\n  (1) : 1.0, 0.0;", "(1) : 1.0, 0.0;\n(0) : 0.5 0.5;"),
        ("(0) : 0.5, 0.5;\n  (1) : 1.0, 0.0;", '("y") = 1.0, 0.0; (x) is 0.5, 0.5'),
        ("(0) : 0.5, 0.5;\n  (1) : 1.0, 0.0;", "0.5, 0.5; 1, 0;"),
        ("(0) : 0.5, 0.5;\n  (1) : 1.0, 0.0;", "0.5, 0.5, 1, 0;"),
        ("(0) : 0.5, 0.5;\n  (1) : 1.0, 0.0;", "(0,0) : 0.5, 0.5; (0,0) : 1, 0;"),
        ("(0) : 0.5, 0.5;\n  (1) : 1.0, 0.0;", "default 1, 0; (0) : 2, // two\n 2;"),
        ("probability ( b | a )", 'probability ( "b" | "a" )'),
        ("discrete [ 2 ] =", "discrete"),
    ):
        assert old in HEAD + A + B + P_A + P_B
        assert parse((HEAD + A + B + P_A + P_B).replace(old, new)) == net
    assert parse(HEAD + A + "probability ( a );") == parse(HEAD + A + "probability ( a ) { 1, 1; }")
    assert parse("belief network").variables == ()
    assert sniff("// x\nbelief network")
    assert not sniff("network n {")


WRONG = [
    ("belief nets", "1:8: found 'nets', expected 'network' after 'belief'"),
    (HEAD + "domain x { }", "2:1: found 'domain', expected 'node', 'probability' or 'properties'"),
    (HEAD + "node a {", "found the end of the file"),
    (HEAD + "node a { }", "2:6: the node 'a' has no type"),
    (HEAD + A + A + P_A, "5:6: the node 'a' is declared a second time"),
    (HEAD + A.replace("2 ]", "3 ]"), "found 2 states of 'a', expected 3"),
    (HEAD + A.replace("2 ]", "x ]"), "found 'x', expected the number of states"),
    (HEAD + A.replace("[ 2 ]", "").replace('"x", "y"', ""), "the node 'a' has no states"),
    (HEAD + A.replace("discrete", "continuous"), "found 'continuous', expected 'discrete'"),
    (HEAD + A, "2:6: the node 'a' has no probability block"),
    (HEAD + A + P_A + P_A, "a second probability block of 'a'"),
    (HEAD + A + P_A + P_B, "a table for 'b', which is not declared"),
    (HEAD + B + P_B, "5:19: 'b' has the parent 'a', which is not declared"),
    (HEAD + A + "probability ( a ) 7", "found '7', expected '{' after the table's variables"),
    (HEAD + A + "probability ( a ) { 1, 1", "found the end of the file, expected the '}' of the block"),
    (HEAD + A + P_A.replace("0.75", "x"), "6:10: found 'x', expected a number"),
    (HEAD + A + P_A.replace("0.75", "0.75, 1"), "6:4: found 3 numbers for 'a', expected 2"),
    (HEAD + A + P_A.replace("0.75", "-1"), "holds -1, which is not a probability"),
    (HEAD + A + P_A.replace("0.25", "function : max"), "'a' is given by a function, which is not supported"),
    (HEAD + A + B + P_A + P_B.replace("(1) : 1.0, 0.0;", ""), "1 of 2 rows of 'b' are missing"),
    (HEAD + A + B + P_A + P_B.replace("(1)", "(z)"), "found 'z', expected the number or the name of a state"),
    (HEAD + A + B + P_A + P_B.replace("(1)", "(2)").replace("(0)", "default"), "13:3: the key (2) is not"),
    (HEAD + A + B + P_A + P_B.replace("(1) : 1.0", "(1) 1.0"), "found '1.0', expected ':'"),
    (HEAD + A + B + P_A + P_B.replace("1.0, 0.0", "1.0, 0.0, 1"), "found 3 numbers for 'b', expected 2"),
    (HEAD + A + B + P_A + "probability ( b | a ) { (0) : 1, 1, 1, 1; default : 1, 1; }", "found 4 numbers for 'b'"),
    (HEAD + A + B + P_A + P_B.replace("1.0, 0.0", "0, 0"), "13:3: a row of the table of 'b' is all zeros"),
    (HEAD + A + B + P_A + P_B.replace("(1)", "default : 1, 1; default"), "a second 'default' of 'b'"),
    (HEAD + A + B + C + P_A + P_C + "probability ( b | c, a ) { default : 1, 1; (3, 0) : 1, 1; }", "the key (3, 0) is"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[m for _, m in WRONG])
def test_mistakes_have_a_place(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, "f")
    assert message in str(caught.value)
    assert caught.value.line is not None


def test_defaults_fill_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_reader, "MAX_FILL", 3)
    with pytest.raises(ParseError, match="would fill 4 numbers"):
        parse(HEAD + A + B + P_A + "probability ( b | a ) { default : 1, 1; }")


@given(bayesian_networks(), st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=5))
def test_any_network_any_state(net: BayesianNetwork, names: list[str]) -> None:
    other = BayesianNetwork(
        {v: [names[i % 5] for i in range(len(net.states(v)))] for v in net.variables},
        {v: net.parents(v) for v in net.variables},
        {v: net.cpt(v) for v in net.variables},
        name=names[0],
        attributes={"node": {v: {"label": f"the {names[1]}", "position": (1, -2)} for v in net.variables}},
    )
    again = parse(dumps(other))
    assert again == other
    assert again.name == other.name
    assert again.attributes["node"] == other.attributes["node"]


def test_rows_in_any_order_in_one_go_and_the_place_of_a_mistake() -> None:
    rows = [
        "(0, 0) : .1, .9",
        "(1, 0) : .2, .8",
        "(0, 1) : .3, .7",
        "(1, 1) : .4, .6",
        "(0, 2) : .5, .5",
        "(1, 2) : .6, .4",
    ]
    text = HEAD + A + B + C + P_A + P_C + "probability ( b | a, c ) {\n" + "".join(f"  {r};\n" for r in rows) + "}\n"
    net = parse(text)
    assert net.cpt("b")[..., 0].tolist() == [[0.1, 0.3, 0.5], [0.2, 0.4, 0.6]]
    with pytest.raises(ParseError) as caught:
        parse(text.replace(".4, .6", "0, 0"))
    assert caught.value.line == text[: text.index("(1, 1)")].count("\n") + 1
    assert parse(dumps(net)) == net


def test_what_the_format_cannot_hold() -> None:
    net = BayesianNetwork({"a": ["x", "y"]}, {}, {"a": [0.3000001, 0.7]})
    assert "// jtgpu_rows = exact" in dumps(net)
    assert parse(dumps(net)) == net
    with pytest.raises(FormatError, match="the variable 'x-ray' cannot stand in a DSC file"):
        dumps(BayesianNetwork({"x-ray": ["x"]}, {}, {"x-ray": [1.0]}))
    with pytest.raises(FormatError, match="MarkovNetwork"):
        dumps(MarkovNetwork({"a": ["x"]}, []))
