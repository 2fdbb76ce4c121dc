"""DSL: what old GeNIe writes, what is refused and where, and that writing loses nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jtgpu.errors import ParseError
from jtgpu.formats import hugin, read, write
from jtgpu.formats.dsl import dumps, parse, sniff
from jtgpu.model.network import BayesianNetwork

DATA = Path(__file__).parent / "data"
NETS = Path(__file__).parents[2] / "nets"
OLD = DATA / "dsl_old.dsl"

A = "node a { TYPE = CPT; PARENTS = (); DEFINITION = { NAMESTATES = (x, y); PROBABILITIES = (0.25, 0.75); }; };\n"
B = "node b { PARENTS = (a); DEFINITION = { NAMESTATES = (x, y); PROBABILITIES = (0.5, 0.5, 1, 0); }; };\n"
T = "node t { TYPE = TRUTHTABLE; PARENTS = (a); DEFINITION = { NAMESTATES = (x, y); RESULTINGSTATES = (y, x); }; };\n"
N = (
    "node m { TYPE = NOISY_MAX; PARENTS = (a); DEFINITION = { NAMESTATES = (x, y); STRENGTHS = (0, 1);"
    " PROBABILITIES = (0.5, 0.5, 0, 1, 0.1, 0.9); }; };\n"
)


def file(*nodes: str) -> str:
    return f"net n\n{{\n{''.join(nodes)}}};\n"


def test_a_file_as_genie_wrote_it() -> None:
    net = read(OLD)
    assert isinstance(net, BayesianNetwork)
    assert (net.name, net.variables) == ("Old", ("P1", "C1", "P2", "T"))
    assert net.cpt("P1").tolist() == [0.66, 0.34]
    assert net.cpt("P2").tolist() == [[0.1, 0.9], [0.2, 0.8]]
    absent = np.array([[0.25, 0.25 * 0.5], [1.0, 0.5]]) * 0.75  # P2's states in the order (1, 0): "yes" has no effect
    assert np.allclose(net.cpt("C1")[..., 1], absent, rtol=1e-15, atol=0)
    assert net.cpt("T").argmax(axis=-1).tolist() == [[0, 1], [2, 2]]
    assert net.attributes["net"] == {"label": "An old network", "comment": "licence: none"}
    assert net.attributes["node"]["P1"] == {
        "label": 'The first "parent"',
        "position": (388, -431),
        "size": (68, 42),
        "property": ("source = a book",),
    }
    assert any("were normalised" in note for note in net.attributes["read"]["notes"])
    again = parse(dumps(net))
    assert again == net
    assert {k: again.attributes[k] for k in ("net", "node")} == {k: net.attributes[k] for k in ("net", "node")}


def test_it_is_distinguished_from_hugin_nets() -> None:
    hugin_text = (NETS / "asia.net").read_text()
    assert not sniff(hugin_text)
    for text in (dumps(read(OLD)), file(A), "// x\n/* y */ net a.b\\c\n{ node x { TYPE"):
        assert sniff(text)
        assert not hugin.sniff(text)
    assert parse(file(A).replace("net n", 'net "data\\insurance.bif"')).variables == ("a",)


def test_order_comments_and_what_may_be_left_out() -> None:
    net = parse(file(A, B))
    assert net.cpt("b").tolist() == [[0.5, 0.5], [1, 0]]
    assert parse(file(B, A)).cpt("b").tolist() == net.cpt("b").tolist()
    assert parse(file(A, B).replace(";", "; /# a /* nested */ comment #/ ")) == net
    assert parse(file(A, B).replace("};", "}")) == net
    assert parse(file(A, B).replace(", ", " // x\n , ")) == net
    assert parse(file(A, T)).cpt("t").tolist() == [[0, 1], [1, 0]]
    assert parse(file(A, N)).cpt("m")[..., 1].tolist() == pytest.approx([0.45, 0.9])
    assert parse("net n { }").variables == ()


COSTS = """
OBSERVATION_COST =
 {
  node a
   {
    PARENTS = ();
    COSTS = (0.00000000);
   };
  node b
   {
    PARENTS = (a);
    COSTS = (1.5, 2.5);
   };
 };
"""
ODD = """
OBSERVATION_COST = { node a { PARENTS = (); COSTS = (0.0); }; node z { }; };
DIAGNOSIS = { TESTS = ((a, x), (a, y)); ranking 1 { node a { "}" = { a b, /* } */ c } } NODE a { } } } // no semicolon
GROUPS = ((a, b), (), {a});
TYPE = CPT;
"""


@pytest.mark.parametrize("where", ["network", "submodel", "node", "definition"])
@pytest.mark.parametrize("blocks", [COSTS, ODD], ids=["costs", "odd"])
def test_other_blocks_are_skipped_wherever_they_are(where: str, blocks: str) -> None:
    """GeNIe's observation costs have blocks named ``node`` that declare no nodes."""
    if where == "network":
        texts = [file(A, B, blocks), file(blocks, A, B)]
    elif where == "submodel":
        inner = f"submodel s {{ {blocks} {B} }};"
        texts = [file(A, inner), file(A, f"submodel r {{ {inner} }}")]
    elif where == "node":
        texts = [file(A, B.replace("{ PARENTS", "{ " + blocks + " PARENTS"))]
    else:
        texts = [file(A, B.replace("{ NAMESTATES", "{ " + blocks + " NAMESTATES"))]
    for text in texts:
        net = parse(text)
        assert net == parse(file(A, B))
        assert net.attributes == parse(file(A, B)).attributes


def test_a_skipped_block_with_a_name_is_reported() -> None:
    """It might hold nodes in some dialect, so the reader says what it left out."""
    net = parse(file(A, "cluster x { node y { COSTS = (1); }; };", B), "f")
    assert net.variables == ("a", "b")
    assert net.attributes["read"]["notes"] == ("f:4:1: skipped the block 'cluster x'",)


def test_a_network_with_diagnostic_information() -> None:
    """A file with all the blocks that GeNIe 2 writes for diagnosis and observation costs."""
    net = read(DATA / "dsl_diagnosis.dsl")
    assert isinstance(net, BayesianNetwork)
    assert net.variables == ("Battery", "Starter", "Engine", "Lights")
    assert net.cpt("Engine").tolist() == [[[0.98, 0.02], [0.05, 0.95]], [[0.1, 0.9], [0.01, 0.99]]]
    assert net.parents("Lights") == ("Battery",)


def test_pyagrum_writes_the_same_order(tmp_path: Path) -> None:
    pyagrum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    pyagrum.initRandom(3)
    theirs = pyagrum.fastBN("A[4]->B<-C[3];D[5]->B")
    theirs.saveDSL(str(tmp_path / "a.dsl"))
    net = read(tmp_path / "a.dsl")
    assert isinstance(net, BayesianNetwork)
    table = theirs.cpt("B")
    axes = list(reversed(table.names))
    array = table.toarray().transpose([axes.index(p) for p in (*net.parents("B"), "B")])
    assert np.abs(net.cpt("B") - array).max() < 1e-5  # six digits are written
    write(net, tmp_path / "b.dsl")
    reread = pyagrum.loadBN(str(tmp_path / "b.dsl"))  # kept: its tables die with it
    again = reread.cpt("B")
    axes = list(reversed(again.names))
    array = again.toarray().transpose([axes.index(p) for p in (*net.parents("B"), "B")])
    assert np.abs(array - net.cpt("B")).max() < 1e-6


WRONG = [
    ("net", "1:4: found the end of the file, expected the network's name"),
    ("net n", "found the end of the file, expected '{'"),
    ("net n {", "found the end of the file, expected a statement, or '}'"),
    ("net n { } x", "found 'x', expected the end of the file"),
    ("net n { A = ; }", "found ';', expected the value of 'A'"),
    ("net n { A 7 ; }", "found ';', expected '{'"),
    ("net n { A ; }", "found ';', expected '=' after 'A' of line 1"),
    ("net n { A = 7 B = 8; }", "1:15: found 'B', expected ';' after 'A'"),
    ("net n { A = (1, }", "found '}', expected ')'"),
    ("net n { A = { B = (1, };", "found '}', expected ')'"),
    ("net n { A = { B = 1);", "found ')', expected '}'"),
    ("net n { A = { B", "found the end of the file, expected '}'"),
    ("net n { A = { /* ", "found a comment whose closing */ is missing, expected '}'"),
    ("net n { A x y", "found 'y', expected '{'"),
    ("net n { node x { PARENTS = (1, }", "found '}', expected a name, or ')'"),
    ('net n { A = "x', 'a string whose closing " is missing'),
    ("net n { /* ", "a comment whose closing */ is missing"),
    (f"net n {{ A = {'{ B = ' * 200}", "nested deeper than 100"),
    (file(A, A), "4:6: the node 'a' is declared a second time"),
    (file("node a { TYPE = LIST; };"), "3:6: the node 'a' has no NAMECHOICES"),
    (file("node a { TYPE = TABLE; };"), "the node 'a' has no UTILITIES"),
    (file("node a { TYPE = MAU; DEFINITION = { EXPRESSIONS = (a); }; };"), "sum of utilities with EXPRESSIONS"),
    (file("node a { TYPE = NOISY_OR; };"), "found the noisy-OR node of an old kind 'a'"),
    (file("node a { TYPE = X; };"), "found the node of type 'X' 'a'"),
    (file("node a { TYPE = CPT; };"), "the node 'a' has no NAMESTATES"),
    (file("node a { DEFINITION = { NAMESTATES = (x); }; };"), "the node 'a' has no PROBABILITIES"),
    (file(B), "3:21: 'b' has the parent 'a', which is not declared"),
    (file(A, B.replace("(a)", "(a, a)")), "4:24: 'b' has the parent 'a' twice"),
    (file(A.replace("0.75", "0.75, 1")), "found 3 numbers for 'a', expected 2"),
    (file(A.replace("0.75", "x")), "3:95: found 'x', expected a number, or ')'"),
    (file(A.replace("0.75", "/* 1 */ -1")), "3:103: the table of 'a' holds -1"),
    (file(A, T.replace("(y, x)", "(y)")), "found 1 resulting states of 't', expected 2"),
    (file(A, T.replace("(y, x)", "(y, z)")), "4:102: found 'z', expected a state of 't'"),
    (file(A, N.replace("(0, 1)", "(0, 2)")), "the strengths of the parent 'a' are not an order"),
    (file(A, N.replace("0.1, ", "")), "found 5 parameters of the noisy node 'm', expected 6"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[m for _, m in WRONG])
def test_mistakes_have_a_place(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, "f")
    assert message in str(caught.value)
    assert caught.value.line is not None
