"""Pictures: valid XML with any names, the same bytes twice, evidence marked, large networks in part."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jtgpu
from jtgpu.draw.svg import percent, shortened, text_width

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<img src=x onerror=alert(1)>", '"quotes" and \'quotes\'', "]]>&amp;</style><script>", "\u05e9\u05dc\u05d5\u05dd",
    "\u202eabc", "x" * 200, "\u5929\u6c17" * 40, "\x00\x1b[31m\ud800\ufffe", "a\nb\tc", " ",
]  # fmt: skip
names = st.one_of(st.text(min_size=1, max_size=30), st.sampled_from(HOSTILE))


def parsed(svg: str) -> ElementTree.Element:
    """The elements of a picture, which must be valid XML and refer to nothing."""
    svg.encode("utf-8")
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in {"svg", "style", "g", "rect", "path", "text", "title"}
        assert not any(name.startswith("on") or "href" in name for name in element.attrib)
    return root


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in parsed(svg).iter(f"{SVG}text")]


@given(st.lists(names, min_size=1, max_size=5, unique=True), st.lists(names, min_size=2, max_size=3, unique=True))
@settings(deadline=None)
def test_any_names(variables: list[str], states: list[str]) -> None:
    k = len(states)
    parents = {v: [u] for u, v in itertools.pairwise(variables)}
    cpts = {v: np.full((k, k) if v in parents else (k,), 1 / k) for v in variables}
    net = jtgpu.BayesianNetwork(dict.fromkeys(variables, states), parents, cpts, name=variables[0])
    with net.compile("reference") as tree:
        for drawing in (
            jtgpu.draw.show(tree, {variables[0]: states[0]}, targets=variables[-1]), jtgpu.draw.show(net),
            jtgpu.draw.show(net, tree=True),
        ):  # fmt: skip
            parsed(drawing.svg)
            ElementTree.fromstring(drawing.text(".svg"))
            assert "<script" not in drawing.text(".html")
            assert "<img" not in drawing.text(".html")


@pytest.fixture(scope="module")
def asia() -> jtgpu.JunctionTree:
    return jtgpu.load("asia").compile("reference")


def test_the_same_bytes_twice(asia: jtgpu.JunctionTree) -> None:
    first = jtgpu.draw.show(asia, {"xray": "yes"}, targets="lung")
    again = jtgpu.draw.show(jtgpu.load("asia").compile("reference"), {"xray": "yes"}, targets=["lung"])
    assert first.svg == again.svg
    assert first.svg != jtgpu.draw.show(asia, {"xray": "no"}).svg


def test_posteriors_in_percent(asia: jtgpu.JunctionTree) -> None:
    shown = texts(jtgpu.draw.show(asia, {"xray": "yes"}).svg)
    expected = 100 * asia.posterior("lung", {"xray": "yes"})["yes"]
    at = shown.index("lung")
    assert shown[at + 1 : at + 3] == ["yes", f"{expected:.1f}"]


def test_each_kind_of_evidence_has_its_mark(asia: jtgpu.JunctionTree) -> None:
    drawing = jtgpu.draw.show(
        asia, {"xray": "yes", "asia": ["yes", "no"]}, likelihood={"dysp": [0.9, 0.2]}, soft={"bronc": [0.5, 0.5]},
        do={"tub": "no"},
    )  # fmt: skip
    legend = texts(drawing.svg)[-6:]
    assert legend == [
        "observed", "one of several states", "likelihood", "soft evidence", "intervention", "prior",
    ]  # fmt: skip
    titles = [e.text for e in parsed(drawing.svg).iter(f"{SVG}title")]
    assert titles == ["asia; one of: yes, no", "tub; do: no", "bronc; soft", "xray; observed: yes", "dysp; likelihood"]
    classes = [e.get("class") for e in parsed(drawing.svg).iter(f"{SVG}path")]
    assert "x" in classes  # the arc into tub has no effect


def test_priors_only_with_evidence(asia: jtgpu.JunctionTree) -> None:
    assert "prior" not in texts(jtgpu.draw.show(asia).svg)
    assert "yes" in texts(jtgpu.draw.show(asia).svg)
    assert "yes" not in texts(jtgpu.draw.show(asia.model).svg)


def test_evidence_on_a_network_compiles_it() -> None:
    net = jtgpu.network("a->b", "{yes|no}", seed=2)
    assert "100" in texts(jtgpu.draw.show(net, {"b": "yes"}).svg)


def test_posteriors_computed_before(asia: jtgpu.JunctionTree) -> None:
    some = asia.posteriors(targets=["lung"])
    assert texts(jtgpu.draw.show(asia.model, posteriors=some).svg).count("yes") == 1


def test_around(asia: jtgpu.JunctionTree) -> None:
    drawing = jtgpu.draw.show(asia, around="xray", hops=1)
    assert [t for t in texts(drawing.svg) if t in asia.model.variables] == ["either", "xray"]
    assert "2 of 8 variables" in texts(drawing.svg)[-1]
    assert "+2" in texts(drawing.svg)  # parents of either
    assert drawing.title == "Bayesian network asia, 2 of 8 variables with posteriors"


def test_large_networks_are_drawn_in_part() -> None:
    net = jtgpu.load("munin")
    drawing = jtgpu.draw.show(net)
    assert re.search(r"\d+ of 1,041 variables", drawing.title)
    assert len(drawing.svg) < 200_000
    tree = jtgpu.draw.show(net.plan("min-fill"), around=net.variables[0], hops=1)
    assert "cliques" in tree.title
    assert len(tree.svg) < 200_000


def test_junction_tree(asia: jtgpu.JunctionTree) -> None:
    plan = asia.plan
    drawing = jtgpu.draw.show(asia, tree=True)
    shown = texts(drawing.svg)
    for clique in plan.cliques:
        assert ", ".join(clique) in shown
    for separator in plan.separators:
        assert not separator or ", ".join(separator) in shown
    assert drawing.svg == jtgpu.draw.show(plan).svg
    with pytest.raises(ValueError, match="without evidence"):
        jtgpu.draw.show(plan, {"xray": "yes"})


def test_many_states() -> None:
    states = [f"s{i}" for i in range(1000)]
    net = jtgpu.BayesianNetwork({"v": states}, {}, {"v": [1 / 1000] * 1000})
    with net.compile("reference") as tree:
        shown = texts(jtgpu.draw.show(tree, {"v": "s777"}).svg)
    assert "s777" in shown
    assert "993 more states" in shown


def test_empty_and_equal_labels() -> None:
    net = jtgpu.BayesianNetwork({"v": ["", "", "x"]}, {}, {"v": [0.25, 0.25, 0.5]})
    assert texts(jtgpu.draw.show(net.compile("reference")).svg) == ["v", "25.0", "25.0", "x", "50.0"]


def test_files(asia: jtgpu.JunctionTree, tmp_path: Path) -> None:
    drawing = jtgpu.draw.show(asia)
    drawing.save(tmp_path / "a.svg")
    drawing.save(str(tmp_path / "a.html"))
    parsed((tmp_path / "a.svg").read_text("utf-8"))
    assert "prefers-color-scheme" in (tmp_path / "a.svg").read_text("utf-8")
    assert (tmp_path / "a.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(ValueError, match=r"\.svg or \.html"):
        drawing.save(tmp_path / "a.png")


def test_colours_come_from_the_page(asia: jtgpu.JunctionTree) -> None:
    svg = jtgpu.draw.show(asia, {"xray": "yes"}).svg
    assert "#000" not in svg
    assert "#fff" not in svg
    name = parsed(svg).get("id")
    style = parsed(svg).find(f"{SVG}style")
    assert style is not None
    assert all(rule.startswith(f"#{name}") for rule in str(style.text).split("}") if rule)


def test_wrong_arguments(asia: jtgpu.JunctionTree) -> None:
    with pytest.raises(ValueError, match="a network, a compiled model or a plan"):
        jtgpu.draw.show("asia")  # type: ignore[arg-type]
    with pytest.raises(jtgpu.UnknownVariable, match="did you mean"):
        jtgpu.draw.show(asia, around="lungs")
    with pytest.raises(ValueError, match="hops"):
        jtgpu.draw.show(asia, around="lung", hops=-1)


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0, "0"), (1.0, "100"), (1e-9, "<0.1"), (0.9999, ">99.9"), (0.12345, "12.3"), (0.9994, "99.9"), (5e-4, "0.1")],
)
def test_percent(p: float, text: str) -> None:
    assert percent(p) == text


@given(st.text(max_size=300), st.integers(20, 200))
def test_shortened_text_fits(text: str, width: int) -> None:
    assert text_width(shortened(text, width)) <= width


def test_a_misspelt_keyword_is_named() -> None:
    with pytest.raises(jtgpu.ArgumentError, match=r"show\(\) has no argument 'lik'; its arguments are .*likelihood"):
        jtgpu.draw.show(jtgpu.load("asia"), lik={"xray": [1, 2]})  # type: ignore[call-arg]
