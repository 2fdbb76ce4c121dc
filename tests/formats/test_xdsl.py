"""XDSL: what GeNIe writes, canonical nodes against their definition, what is refused and where, writing."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from jtgpu.errors import FormatError, ParseError
from jtgpu.formats import canonical_nodes, read, write
from jtgpu.formats.canonical_nodes import MAX_EXPANDED, deterministic
from jtgpu.formats.number_cursor import identifiers, whole_numbers
from jtgpu.formats.xdsl import dumps, parse, sniff
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.noisy import noisy_max

DATA = Path(__file__).parent / "data"
NETS = Path(__file__).parents[2] / "nets"
CANONICAL = DATA / "xdsl_canonical.xdsl"


def file(nodes: str, extensions: str = "") -> str:
    return f'<?xml version="1.0"?>\n<smile version="1.0" id="n">\n<nodes>\n{nodes}</nodes>{extensions}</smile>'


A = '<cpt id="a"><state id="x"/><state id="y"/><probabilities>0.25 0.75</probabilities></cpt>\n'
B = '<cpt id="b"><state id="x"/><state id="y"/><parents>a</parents><probabilities>0.5 0.5 1 0</probabilities></cpt>\n'
D = (
    '<deterministic id="d"><state id="t"/><state id="f"/><parents>a b</parents>'
    "<resultingstates>t f f t</resultingstates></deterministic>\n"
)
N = (
    '<noisymax id="m"><state id="t"/><state id="f"/><parents>a</parents><strengths>0 1</strengths>'
    "<parameters>0.5 0.5 0 1 0.1 0.9</parameters></noisymax>\n"
)


# Canonical nodes, by their definition ---------------------------------------------------------------------------


def by_definition(
    cards: list[int], n: int, strengths: list[list[int]], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Every combination of what the causes and the leak produce, and the strongest of it."""
    table = np.zeros((*cards, n))
    for at in itertools.product(*map(range, cards)):
        chosen = [columns[-1]]
        begin = 0
        for card, order, state in zip(cards, strengths, at, strict=True):
            chosen.append(columns[begin + order.index(state)])
            begin += card
        for effects in itertools.product(range(n), repeat=len(chosen)):
            table[(*at, min(effects))] += np.prod([c[e] for c, e in zip(chosen, effects, strict=True)])
    return table


@given(st.data())
def test_noisy_max_is_the_strongest_of_independent_effects(data: st.DataObject) -> None:
    cards = data.draw(st.lists(st.integers(1, 4), max_size=3))
    n = data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    columns = rng.dirichlet(np.ones(n), size=sum(cards) + 1)
    strengths = [rng.permutation(c).tolist() for c in cards]
    made = noisy_max(cards, n, strengths, columns)
    assert made.shape == (*cards, n)
    assert np.abs(made - by_definition(cards, n, strengths, columns)).max() < 1e-14
    assert np.array_equal(noisy_max(cards, n, strengths, columns * 4), made)  # columns are normalised


def test_noisy_or_is_what_everybody_writes() -> None:
    made = noisy_max([2, 2], 2, [[0, 1], [0, 1]], np.array([[0.8, 0.2], [0, 1], [0.5, 0.5], [0, 1], [0.125, 0.875]]))
    absent = np.array([[0.2 * 0.5, 0.2], [0.5, 1.0]]) * 0.875
    assert np.allclose(made[..., 1], absent, rtol=1e-15, atol=0)
    assert np.allclose(made.sum(axis=-1), 1, rtol=1e-15, atol=0)


def test_a_state_for_each_configuration() -> None:
    assert deterministic([2], 3, np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert deterministic([], 2, np.array([1])).tolist() == [0, 1]


def test_a_file_as_genie_writes_it() -> None:
    net = read(CANONICAL)
    assert isinstance(net, BayesianNetwork)
    assert (net.name, net.variables) == ("Canonical", ("Fever", "Flu", "Drug", "Alarm"))  # children before parents
    assert net.states("Fever") == ("high", "mild", "none")
    columns = np.array([[0.5, 0.3, 0.2], [0, 0, 1], [0.2, 0.4, 0.4], [0.1, 0.1, 0.8], [0, 0, 1], [0.01, 0.04, 0.95]])
    wanted = by_definition([2, 3], 3, [[0, 1], [1, 2, 0]], columns)
    assert np.abs(net.cpt("Fever") - wanted).max() < 1e-15
    assert net.cpt("Alarm")[:, :, 0].tolist() == [[1, 1], [1, 0], [0, 0]]
    assert net.attributes["net"] == {"label": "Canonical models"}
    assert net.attributes["node"]["Flu"] == {
        "property": ("literature = a book, page 3",),
        "label": "Influenza",
        "position": (96, 36),
        "size": (85, 51),
        "genie_outline": ("color=0000bb",),
        "genie_font": ("color=000000", "name=Times New Roman", "size=8"),
        "comment": "as seen in winter",
    }
    assert net.attributes["node"]["Fever"] == {"position": (48, 38)}  # within a submodel, of the usual size
    again = parse(dumps(net))
    assert again == net
    assert again.attributes["node"] == net.attributes["node"]
    assert again.attributes["net"] == net.attributes["net"]
    assert "<position>54 11 139 62</position>" in dumps(net)


def test_orders() -> None:
    """The first parent slowest, the child fastest; resulting states by name, or by number."""
    of_two = B.replace("<parents>a<", "<parents> a \n c <")
    of_two = of_two.replace("0.5 0.5 1 0", "1 0 0 1 .5 .5 .25 .75 0.125 0.875 0.5 0.5")
    c = '<cpt id="c"><state id="0"/><state id="1"/><state id="2"/><probabilities>1 1 2</probabilities></cpt>'
    net = parse(file(A + of_two + c))
    assert net.parents("b") == ("a", "c")
    assert net.cpt("b").tolist() == [[[1, 0], [0, 1], [0.5, 0.5]], [[0.25, 0.75], [0.125, 0.875], [0.5, 0.5]]]
    assert parse(file(A + B + D)).cpt("d")[..., 0].tolist() == [[1, 0], [0, 1]]
    assert parse(file(A + B + D.replace("t f f t", "0 1 1 0"))) == parse(file(A + B + D))
    assert parse(file(D + B + A)).cpt("d").tolist() == parse(file(A + B + D)).cpt("d").tolist()
    assert parse(file('<deterministic id="d"><state id="t"/><resultingstates>t</resultingstates></deterministic>')).cpt(
        "d"
    ).tolist() == [1]


def test_pyagrum_lists_parents_the_other_way_round(tmp_path: Path) -> None:
    pyagrum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    pyagrum.initRandom(3)
    theirs = pyagrum.fastBN("A[4]->B<-C[3];D[5]->B")
    theirs.saveXDSL(str(tmp_path / "a.xdsl"))
    net = read(tmp_path / "a.xdsl")
    assert isinstance(net, BayesianNetwork)
    table = theirs.cpt("B")
    axes = list(reversed(table.names))
    array = table.toarray().transpose([axes.index(p) for p in (*net.parents("B"), "B")])
    assert np.abs(net.cpt("B") - array).max() < 1e-5  # six digits are written


# Refused, with the place ----------------------------------------------------------------------------------------

WRONG = [
    ('<?xml version="1.0"?><smile/>', "found no <nodes> in <smile>"),
    (
        file('<equation id="e"><definition>e=1</definition></equation>'),
        "found the equation node with '1', which is no linear density, 'e'",
    ),
    (file('<noisyadder id="e"/>'), "found the noisy-adder node 'e'"),
    (file('<whatever id="e"/>'), "found <whatever> in <nodes>, expected a node"),
    (file(A.replace('id="a"', 'id="a" dynamic="plate"')), "4:1: no variable has a parent in an earlier slice"),
    (file("<cpt/>"), "4:1: the <cpt> has no id"),
    (file(A + A), "5:1: the node 'a' is declared a second time"),
    (file('<cpt id="a"/>'), "the node 'a' has no <state>"),
    (file('<cpt id="a"><state id="x"/></cpt>'), "found no <probabilities> of 'a'"),
    (file(B), "4:43: 'b' has the parent 'a', which is not declared"),
    (file(A + B.replace(">a<", ">a a<")), "'b' has the parent 'a' twice"),
    (file(A.replace("0.75", "0.75 1")), "found 3 numbers for 'a', expected 2"),
    (file(A.replace("0.75", "x")), "4:63: found 'x', expected a number"),
    (file(A.replace("0.75", "-1")), "4:63: the table of 'a' holds -1"),
    (file(A + B.replace("a<", "b<")), "'b' is its own parent"),
    (file(A + B + D.replace("t f f t", "t f f")), "found 3 resulting states of 'd', expected 4"),
    (file(A + B + D.replace("t f f t", "t f f tt")), "found 'tt', expected a state of 'd'"),
    (file(A + N.replace("0 1<", "0 0<")), "the strengths of the parent 'a' are not an order of its states 0 to 1"),
    (file(A + N.replace("0 1<", "0<")), "found 1 strengths of the noisy node 'm', expected 2"),
    (file(A + N.replace("0.1 0.9<", "0.1<")), "found 5 parameters of the noisy node 'm', expected 6"),
    (file(A + N.replace("0.1 0.9<", "0 0<")), "one above 0 for each column"),
    (file(A + N.replace("0.1 0.9<", "2 -1<")), "the parameters of 'm' need numbers >= 0"),
    (file(A + N.replace("<parameters>0.5 0.5 0 1 0.1 0.9</parameters>", "")), "found no parameters of the noisy node"),
    (file(A + N.replace(">a<", ">z<")), "'m' has the parent 'z', which is not declared"),
    (file(A + B.replace("0.5 0.5 1 0", "0.5 0.5 0 0")), "all zeros"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[m for _, m in WRONG])
def test_mistakes_have_a_place(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, "f")
    assert message in str(caught.value)
    assert caught.value.line is not None


def test_large_tables_are_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    states = "".join(f'<state id="s{i}"/>' for i in range(40))
    roots = "".join(f'<cpt id="r{i}">{states}<probabilities>{"1 " * 40}</probabilities></cpt>' for i in range(6))
    parents = " ".join(f"r{i}" for i in range(6))
    node = f'<noisymax id="m">{states}<parents>{parents}</parents><parameters>1</parameters></noisymax>'
    with pytest.raises(ParseError, match="found 1 parameters of the noisy node 'm', expected 9640"):
        parse(file(roots + node))
    node = node.replace("<parameters>1", f"<parameters>{'1 ' * 9640}")
    assert parse(file(roots + node)).noisy["m"].size == 163840000000
    decision = f'<decision id="choice">{states}</decision>'
    with pytest.raises(ParseError, match="would have 163840000000 numbers"):
        parse(file(roots + node + decision))
    monkeypatch.setattr(canonical_nodes, "MAX_EXPANDED", 4)
    with pytest.raises(ParseError, match="'d' would have 8 numbers"):
        parse(file(A + B + D))
    assert MAX_EXPANDED == 1 << 24


def test_columns_that_do_not_sum_to_one_are_noted() -> None:
    net = parse(file(A + N.replace("0.5 0.5 0 1", "5 5 0 1")))
    assert net == parse(file(A + N))
    assert any("were normalised" in note for note in net.attributes["read"]["notes"])


# Writing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "made"),
    [
        (["a", "b"], ["a", "b"]),
        (["x-ray", "x ray", "x_ray"], ["x_ray_2", "x_ray_3", "x_ray"]),
        (["", "", "s"], ["s_2", "s_3", "s"]),
        (["a", "a", "a_2"], ["a", "a_3", "a_2"]),
        (["20_MG/L", "<9", "é", "中"], ["s20_MG_L", "s9", "e", "s"]),
        (["_a", "a1", "A1"], ["s_a", "a1", "A1"]),
    ],
)
def test_identifiers(names: list[str], made: list[str]) -> None:
    assert identifiers(names, "s") == made


@given(st.lists(st.text(max_size=3), max_size=12))
def test_identifiers_are_different_and_plain(names: list[str]) -> None:
    made = identifiers(names, "s")
    assert len(set(made)) == len(names)
    assert all(m.isidentifier() and m.isascii() and not m.startswith("_") for m in made)
    assert identifiers(made, "s") == made


def test_positions_that_are_none() -> None:
    for value in (None, "3 4", (1,), (1, 2, 3), ("a", 2), (float("nan"), 1), (1e300, 1)):
        assert whole_numbers(value, 2) == ()
    assert whole_numbers([1.6, -2], 2) == (2, -2)


def test_names_that_changed_in_between_stay_changed() -> None:
    net = BayesianNetwork(
        {"x-ray": ["<9", "b"], "y": ["b"]}, {"y": ["x-ray"]}, {"x-ray": [0.5, 0.5], "y": [[1.0], [1.0]]}
    )
    text = dumps(net)
    assert parse(text) == net
    head, mine = text.split("<jtgpu ")
    changed = parse(head.replace('"x_ray"', '"heart"').replace(">x_ray<", ">heart<") + "<jtgpu " + mine)
    assert changed.variables == ("heart", "y")
    assert parse(text.replace('<state id="State_9" />', '<state id="low" />')).states("x-ray") == ("low", "b")


def test_pgmpy_reads_it_the_same_way(tmp_path: Path) -> None:
    readwrite = pytest.importorskip("pgmpy.readwrite", reason="pgmpy is not installed")
    net = read(NETS / "alarm.net")
    assert isinstance(net, BayesianNetwork)
    write(net, tmp_path / "a.xdsl")
    theirs = readwrite.XDSLReader(str(tmp_path / "a.xdsl")).get_model()
    for v in net.variables:
        table = theirs.get_cpds(v)
        array = table.values.transpose([table.variables.index(p) for p in (*net.parents(v), v)])
        assert np.abs(array - net.cpt(v)).max() < 1e-9  # it divides by the sums


def test_what_the_format_cannot_hold() -> None:
    with pytest.raises(FormatError, match="cannot be written to XML"):
        dumps(BayesianNetwork({"a\0": ["x"]}, {}, {"a\0": [1.0]}))
    assert sniff("<!-- x --><smile>")
    assert not sniff("<BIF>")
