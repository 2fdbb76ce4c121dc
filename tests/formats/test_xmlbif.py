"""XMLBIF: what real files hold, what is refused and where, and that writing loses nothing. XML that means harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.errors import FormatError, ParseError
from jtgpu.formats import read, write, xml_text
from jtgpu.formats.files import declared_text
from jtgpu.formats.xml_text import root_name
from jtgpu.formats.xmlbif import dumps, parse, sniff
from jtgpu.model.network import BayesianNetwork
from tests.support.random_nets import bayesian_networks

DATA = Path(__file__).parent / "data"
DOG = DATA / "xmlbif_dog.xml"


def file(variables: str = "", definitions: str = "", before: str = "") -> str:
    return f"{before}<BIF VERSION='0.3'><NETWORK><NAME>n</NAME>{variables}{definitions}</NETWORK></BIF>"


A = "<VARIABLE TYPE='nature'><NAME>a</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>"
B = A.replace("<NAME>a<", "<NAME>b<")
P_A = "<DEFINITION><FOR>a</FOR><TABLE>0.25 0.75</TABLE></DEFINITION>"
SMALL = BayesianNetwork({"a": ["x", "y"]}, {}, {"a": [0.25, 0.75]}, name="n")


def place_of(text: str, mark: str) -> tuple[int, int]:
    line = text[: text.index(mark)].count("\n") + 1
    return line, text.index(mark) - text.rfind("\n", 0, text.index(mark))


# Reading ------------------------------------------------------------------------------------------------------


def test_a_file_as_javabayes_writes_it() -> None:
    net = read(DOG)
    assert isinstance(net, BayesianNetwork)
    assert (net.name, net.variables) == ("Dog_Problem", ("light-on", "bowel-problem?", "dog-out"))
    assert net.states("light-on") == ("true", "false")
    assert net.states("dog-out") == ("true", "false", "")
    assert net.parents("dog-out") == ("bowel-problem?", "light-on")
    # the first GIVEN slowest, the child fastest; comments, sections and references between the numbers
    assert net.cpt("dog-out").tolist() == [
        [[0.99, 0.005, 0.005], [0.97, 0.02, 0.01]],
        [[0.9, 0.05, 0.05], [0.3, 0.6, 0.1]],
    ]
    assert net.cpt("bowel-problem?").tolist() == [0.01, 0.99]
    assert net.row_report is not None
    assert (net.row_report.n_off, net.row_report.worst_sum) == (1, 100.0)
    assert net.attributes["net"] == {"property": ("credal-set constant-density-bounded 1.1",)}
    assert net.attributes["node"] == {"light-on": {"property": ("position = (218, 195)",)}}
    assert net.attributes["potential"] == {"light-on": {"property": ("said by somebody",)}}
    assert net.attributes["read"]["format"] == "XMLBIF"


def test_dialects() -> None:
    for before in (
        "",
        "    <?xml version='1.0'?>",
        "<?xml version='1.0'?><!-- x --><!DOCTYPE BIF SYSTEM 'http://no.where/x.dtd'>",
    ):
        text = file(A, P_A, before)
        assert sniff(text)
        assert parse(text) == SMALL
    assert parse(file(A, P_A).replace("BIF", "bif").replace("NAME", "Name")) == SMALL
    assert parse(file(A, P_A.replace("0.25", "&#x30;.25").replace("0.75", "\n\t.75e0"))) == SMALL
    assert parse(file(A.replace(">x<", " xml:space='preserve'> x\n<"), P_A)).states("a") == (" x\n", "y")
    assert parse(file()).variables == ()


def test_encodings(tmp_path: Path) -> None:
    text = file(A.replace(">x<", ">Tørstof<"), P_A)
    for declared, codec in (
        ("UTF-8", "utf-8"),
        ("ISO-8859-1", "latin-1"),
        ("windows-1252", "cp1252"),
        ("UTF-16", "utf-16"),
        ("US-ASCII", "latin-1"),
        ("UTF-8", "latin-1"),
    ):
        (tmp_path / "a.xml").write_bytes(f"<?xml version='1.0' encoding='{declared}'?>{text}".encode(codec))
        assert read(tmp_path / "a.xml").states("a") == ("Tørstof", "y")
    euro = file(A.replace(">x<", ">€<"), P_A)
    (tmp_path / "a.xml").write_bytes(f"<?xml version='1.0' encoding='windows-1252'?>{euro}".encode("cp1252"))
    assert read(tmp_path / "a.xml").states("a") == ("€", "y")
    for name in ("punycode", "zip", "nonsense", "utf-7"):
        (tmp_path / "a.xml").write_bytes(f"<?xml version='1.0' encoding='{name}'?>{file(A, P_A)}".encode())
        with pytest.raises(FormatError, match=r"a\.xml: the XML declaration names the unknown encoding"):
            read(tmp_path / "a.xml")
    (tmp_path / "a.xml").write_bytes(b"\xff\xfe<\x00B")
    with pytest.raises(FormatError, match="not valid in its declared encoding 'utf-16'"):
        read(tmp_path / "a.xml")
    assert declared_text(b"net { }") is None


def test_what_the_root_is() -> None:
    assert root_name("<!-- <a> --><b x='1'/>") == "b"
    assert root_name("<!DOCTYPE b [ <!-- ]> --> <!ELEMENT b ANY> <!ATTLIST b c CDATA ']>'> ]> <b>") == "b"
    for text in (
        "",
        "net { }",
        "<",
        "<!--",
        "<!DOCTYPE x [",
        "<!-- a" * 5000,
        "<? " * 9000,
        "<!DOCTYPE a [" + "'" * 9999,
    ):
        assert root_name(text) == ""
    assert not sniff("<smile/>")


# Refused, with the place ----------------------------------------------------------------------------------------

WRONG = [
    ("<BIF></BIF>", "found 0 <NETWORK> elements, expected one", "<BIF>"),
    ("<a>\n</a>", "found the root <a>, expected <BIF>", "<a>"),
    ("<BIF><NETWORK><NAME>n</NETWORK></BIF>", "found XML that is not well-formed: mismatched tag", "NETWORK></BIF>"),
    ("<BIF>", "found XML that is not well-formed: no element found", ""),
    (file(A + A, P_A), "the variable 'a' is declared a second time", None),
    (file("<VARIABLE/>", ""), "found no <NAME> in <VARIABLE>, expected one", "<VARIABLE/>"),
    (file(A.replace("nature", "continuous"), P_A), "found the continuous variable 'a'", "<VARIABLE"),
    (file("<VARIABLE><NAME>a</NAME></VARIABLE>", P_A), "has no <OUTCOME>", "<NAME>a"),
    (file(A, ""), "the variable 'a' has no <DEFINITION>", "<NAME>a"),
    (file(A, P_A + P_A), "a second <DEFINITION> of 'a'", None),
    (file(A, "<DEFINITION><FOR>a</FOR></DEFINITION>"), "found no <TABLE> for 'a'", "<FOR>"),
    (file(A, "<DEFINITION><FOR>a</FOR><TABEL>1</TABEL></DEFINITION>"), "<TABEL> is not known; did you mean", "<FOR>"),
    (file(A + B, P_A.replace("<TABLE>", "<FOR>b</FOR><TABLE>")), "several variables are not supported", "<FOR>b"),
    (file(A, P_A.replace("0.75", "0.75 0")), "found 3 numbers for 'a', expected 2", "0.25"),
    (file(A, P_A.replace("0.75", "O.75")), "found 'O.75', expected a number or </TABLE>", "O.75"),
    (file(A, P_A.replace("0.75", "&#79;.75")), "found 'O.75', expected a number", "&#79;"),
    (file(A, P_A.replace("0.75", "<b/>")), "found <b> in <TABLE>, expected numbers only", "<b/>"),
    (file(A, P_A.replace("0.75", "nan")), "found 'nan'", "nan"),
    (file(A, P_A.replace("0.75", "<!-- 1 2 3 -->-0.75")), "holds -0.75, which is not a probability", "-0.75"),
    (file(A, P_A.replace("0.75", "1e999")), "holds inf", "1e999"),
    (file(A, P_A.replace("0.25 0.75", "0 0")), "all zeros", "0 0"),
    (file(A, P_A.replace("<TABLE>", "<GIVEN>c</GIVEN><TABLE>")), "the parent 'c', which is not declared", "<GIVEN>"),
    (file(A, P_A.replace("<TABLE>", "<GIVEN>a</GIVEN><TABLE>")), "'a' is its own parent", "<GIVEN>"),
    (file(A, P_A + P_A.replace(">a<", ">aa<")), "a table for 'aa', which is not declared", "<FOR>aa"),
    (f"<BIF>{A}<NETWORK><NAME>n</NAME></NETWORK></BIF>", "<VARIABLE> in <BIF>, expected it in <NETWORK>", "<VARIABLE"),
    (file(f"<PROPERTY>{A}</PROPERTY>", P_A), "expected it in <NETWORK>", "<VARIABLE"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "mark"), WRONG, ids=[m for _, m, _ in WRONG])
def test_mistakes_have_a_place(text: str, message: str, mark: str | None) -> None:
    with pytest.raises(ParseError) as caught:
        parse(f"\n\n {text}", "f")
    assert message in str(caught.value)
    line, column = place_of(f"\n\n {text}", mark) if mark else (caught.value.line, caught.value.column)
    assert str(caught.value).startswith(f"f:{line}:{column}: ")


def test_places_count_characters_not_bytes() -> None:
    with pytest.raises(ParseError) as caught:
        parse(file(A.replace(">x<", ">€ü𝄞<"), P_A.replace("0.75", "x")))
    text = file(A.replace(">x<", ">€ü𝄞<"), P_A.replace("0.75", "x"))
    assert (caught.value.line, caught.value.column) == (1, text.index(" x<") + 2)


# XML that means harm ------------------------------------------------------------------------------------------

HARM = {
    "a billion laughs": "<!DOCTYPE BIF [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;'>]>"
    + file(A.replace(">x<", ">&b;<"), P_A),
    "an outside entity": "<!DOCTYPE BIF [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"
    + file(A.replace(">x<", ">&a;<"), P_A),
    "a parameter entity": "<!DOCTYPE BIF [<!ENTITY % a SYSTEM 'http://no.where/a'> %a;]>" + file(A, P_A),
    "an unused entity": "<!DOCTYPE BIF [<!ENTITY a 'b'>]>" + file(A, P_A),
    "an entity of an outside type": "<!DOCTYPE BIF SYSTEM 'file:///etc/passwd'>" + file(A.replace(">x<", ">&a;<"), P_A),
    "an entity in a table": file(A, P_A.replace("0.75", "&a;")),
    "an unparsed entity": "<!DOCTYPE BIF [<!NOTATION n SYSTEM 'n'><!ENTITY a SYSTEM 'b' NDATA n>]>" + file(A, P_A),
}


@pytest.mark.parametrize("name", HARM)
def test_entities_are_refused(name: str) -> None:
    with pytest.raises(ParseError, match=r"entit(y|ies)"):
        parse(HARM[name], "f")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ParseError, match="nested deeper than"):
        parse(file("<x>" * 200_000))
    assert parse(file("<x>" * 50 + "</x>" * 50 + A, P_A)) == SMALL


def test_attribute_defaults_do_not_count() -> None:
    big = "z" * 100_000
    text = f"<!DOCTYPE BIF [<!ATTLIST OUTCOME c CDATA '{big}'><!ATTLIST VARIABLE TYPE CDATA 'decision'>]>"
    assert parse(text + file(A + "<x/>" * 1000, P_A)) == SMALL


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_text, "MAX_ELEMENTS", 10)
    with pytest.raises(ParseError, match="more than 10 elements are not supported"):
        parse(file("<x/>" * 20))
    monkeypatch.undo()
    monkeypatch.setattr(xml_text, "LONG_TEXT", 1000)
    for text, message in (
        (file(A, P_A, f"<!--{'>' * 1_100_000}-->"), "a comment of more than"),
        (file(A, f"<x a='{'>' * 1_100_000}'/>"), "a tag of more than"),
        (file(A, f"<x {'a' * 1_100_000}/>"), "a tag of more than"),
    ):
        with pytest.raises(ParseError, match=message):
            parse(text)
    numbers = " ".join(["0.25"] * 300_000)
    with pytest.raises(ParseError, match="found 300000 numbers"):
        parse(file(A, P_A.replace("0.25 0.75", numbers)))


# Writing ------------------------------------------------------------------------------------------------------


def test_what_is_read_is_written_again() -> None:
    net = read(DOG)
    text = dumps(net)
    again = parse(text)
    assert again == net
    assert again.name == net.name
    assert isinstance(net, BayesianNetwork)
    assert {k: again.attributes[k] for k in ("net", "node", "potential")} == {
        k: net.attributes[k] for k in ("net", "node", "potential")
    }
    assert dumps(again) == text


@given(
    bayesian_networks(),
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6), min_size=8, unique=True),
)
def test_any_network_any_name(net: BayesianNetwork, names: list[str]) -> None:
    """Names of any characters, blanks at their ends among them; state names may be equal or empty."""
    new = dict(zip(net.variables, names, strict=False))
    states = {new[v]: [names[i % 3] for i in range(len(net.states(v)))] for v in net.variables}
    other = BayesianNetwork(
        states,
        {new[v]: [new[p] for p in net.parents(v)] for v in net.variables},
        {new[v]: net.cpt(v) for v in net.variables},
        attributes={"net": {"property": tuple(names[:2])}},
    )
    again = parse(dumps(other))
    assert again == other
    assert again.attributes["net"] == other.attributes["net"]


def test_newlines_and_tabs_in_names() -> None:
    net = BayesianNetwork({"a\tb\r\nc]]>&<'\"": [" ", "\n"]}, {}, {"a\tb\r\nc]]>&<'\"": [0.25, 0.75]})
    assert parse(dumps(net)) == net


def test_what_xml_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be written to XML"):
        dumps(BayesianNetwork({"a\0": ["x"]}, {}, {"a\0": [1.0]}))
    with pytest.raises(FormatError, match="cannot be written"):
        write(BayesianNetwork({"a": ["\ud800"]}, {}, {"a": [1.0]}), tmp_path / "a.xmlbif")
    assert list(tmp_path.iterdir()) == []


def test_other_programs_read_it(tmp_path: Path) -> None:
    pyagrum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    net = read(Path(__file__).parents[2] / "nets" / "alarm.net")
    assert isinstance(net, BayesianNetwork)
    write(net, tmp_path / "alarm.bifxml")
    theirs = pyagrum.loadBN(str(tmp_path / "alarm.bifxml"))
    for v in net.variables:
        table = theirs.cpt(v)
        axes = list(reversed(table.names))
        array = table.toarray().transpose([axes.index(p) for p in (*net.parents(v), v)])
        assert np.abs(array - net.cpt(v)).max() < 1e-6  # pyAgrum keeps float32 from files
    theirs.saveBIFXML(str(tmp_path / "back.bifxml"))
    back = read(tmp_path / "back.bifxml")
    assert isinstance(back, BayesianNetwork)
    for v in net.variables:
        axes = list(back.parents(v))
        array = back.cpt(v).transpose([axes.index(p) for p in net.parents(v)] + [len(axes)])
        assert np.abs(array - net.cpt(v)).max() < 1e-5
