"""Pictures of networks with decisions: shapes, dashed information, expectations, parts, options that they lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.cli.commands import app
from tests.decisions.test_policies import oil, pigs
from tests.draw.test_pictures import HOSTILE, SVG, parsed, texts

DATA = Path(__file__).parents[1] / "formats" / "data" / "fuzz"


def shapes(svg: str) -> dict[str, int]:
    """Shapes of the nodes, the legend's left out, and the arcs that are drawn through and dashed."""
    root = parsed(svg)
    body = root.find(f"{SVG}g")
    assert body is not None
    elements = [*body.iter()]

    def count(tag: str, kind: str) -> int:
        return sum(e.tag == SVG + tag and e.get("class") == kind for e in elements)

    def lines(kind: str) -> int:
        return sum(e.get("d", "").count("M") for e in elements if e.get("class") == kind)

    return {
        "chance": count("rect", "n"), "decision": count("rect", "c"), "observed": count("rect", "e"),
        "utility": count("path", "u"), "arcs": lines("a"), "information": lines("a d"),
    }  # fmt: skip


def test_shapes_and_arcs() -> None:
    drawn = jtgpu.draw.show(oil())
    assert drawn.title == "Decision network, 4 variables, 2 decisions, 2 utilities"
    assert shapes(drawn.svg) == {
        "chance": 2, "decision": 2, "observed": 0, "utility": 2, "arcs": 5, "information": 2}  # fmt: skip
    assert {"decision", "utility", "known when deciding"} <= set(texts(drawn.svg))
    assert str(drawn) == str(jtgpu.draw.show(oil()))


def test_posteriors_and_expectations() -> None:
    tree = oil().compile()
    drawn = jtgpu.draw.show(tree, {"test": "yes", "seismic": "open"})
    assert drawn.title.endswith("with posteriors")
    assert shapes(drawn.svg)["observed"] == 2
    written = texts(drawn.svg)
    assert "observed" in written
    assert f"{tree.utility({'test': 'yes', 'seismic': 'open'}).by_node['gain']:.6g}" in written
    assert "-10" in written
    assert jtgpu.draw.show(oil(), {"test": "yes", "seismic": "open"}).svg == drawn.svg
    ringed = parsed(jtgpu.draw.show(tree, targets=["gain", "oil"]).svg)
    assert sum(e.get("class") == "q" for e in ringed.iter()) == 2


def test_parts_of_large_networks() -> None:
    net = pigs(80)
    drawn = jtgpu.draw.show(net)
    assert any("10 of 318 nodes" in text for text in texts(drawn.svg))
    near = jtgpu.draw.show(net, around="price", hops=1)
    assert shapes(near.svg)["utility"] == 1
    assert shapes(near.svg)["chance"] == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_any_names(name: str) -> None:
    net = jtgpu.DecisionNetwork(
        {f"c{name}": [name, "other"], f"d{name}": ["x", "y"]},
        {f"d{name}": [f"c{name}"], f"u{name}": [f"c{name}", f"d{name}"]}, {f"c{name}": [0.5, 0.5]},
        decisions=[f"d{name}"], utilities={f"u{name}": [[1, 2], [3, 4]]}, name=name,
    )  # fmt: skip
    for drawn in (jtgpu.draw.show(net), jtgpu.draw.show(net.compile())):
        parsed(drawn.svg)
        assert "<script" not in drawn.text(".html")


def test_notebooks() -> None:
    net, tree = oil(), oil().compile()
    assert "Decision network" in net._repr_html_()
    for thing in (net, tree, tree.posteriors({"test": "yes"})):
        text = thing._repr_html_()
        svg = text[text.index("<svg") : text.index("</svg>") + 6]
        assert ElementTree.fromstring(svg).tag == f"{SVG}svg"
        assert "M" in text
    assert repr(tree) == "DecisionTree('', backend='cpu')"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"tree": True}, "no junction tree"), ({"do": {"test": "yes"}}, "not with do="), ({"around": "x"}, "no variable")],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(jtgpu.JtgpuError, match=words):
        jtgpu.draw.show(oil(), **options)


def test_command() -> None:
    path = DATA / "hugin" / "decisions.net"
    first = jtgpu.read(path).states("Test")[0]
    for more in ([], ["--names"], ["-e", f"Test={first}"]):
        made = CliRunner().invoke(app, ["show", str(path), *more])
        assert made.exit_code == 0, made.output
        assert shapes(made.stdout)["utility"] == 2
