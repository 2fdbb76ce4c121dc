"""Pictures of posteriors over structures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError
from jtgpu.learn import StructurePosterior
from tests.learn.dags.data import random_table

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def posterior() -> StructurePosterior:
    return jtgpu.learn.posterior(
        random_table(3, n=5, n_rows=200), graph_prior="order", method="mcmc", chains=jtgpu.learn.Chains(tolerance=0.05)
    )


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_heat_map(posterior: StructurePosterior) -> None:
    drawn = jtgpu.draw.heat_map(posterior)
    assert drawn.title == "Probabilities of the arcs between 5 variables"
    names = [t for t in texts(drawn.svg) if t in posterior.names]
    assert names[::2] == posterior.structure.order  # rows; columns are the same
    assert names[1::2] == posterior.structure.order
    tips = {e.text for e in ElementTree.fromstring(drawn.svg).iter(f"{SVG}title")}
    p = posterior.edge_probabilities.values
    assert len(tips) == (p >= 0.005).sum()
    u, v = np.unravel_index(p.argmax(), p.shape)
    assert f"{posterior.names[u]} -> {posterior.names[v]}: {p[u, v]:.3f}" in tips
    bordered = re.findall(r'stroke="currentColor"><title>(\w) -&gt; (\w)', drawn.svg)
    assert {*bordered} == {*posterior.structure.arcs}
    assert drawn.svg == jtgpu.draw.heat_map(posterior).svg


def test_arcs(posterior: StructurePosterior) -> None:
    drawn = jtgpu.draw.arcs(posterior, 0.3)
    assert drawn.title == "Probable arcs between 5 variables"
    assert {*texts(drawn.svg)} >= {*posterior.names}
    graph = posterior.consensus(0.3)
    for u, v in graph.edges:
        assert f"{u} -&gt; {v}: {posterior.edge(u, v):.3f}; reversed: {posterior.edge(v, u):.3f}" in drawn.svg
    assert drawn.svg.count("; reversed: ") == len(graph.edges)
    with pytest.raises(ArgumentError, match="threshold"):
        jtgpu.draw.arcs(posterior, 1.0)


def test_trace(posterior: StructurePosterior) -> None:
    drawn = jtgpu.draw.trace(posterior)
    assert drawn.title == f"ln weight of 8 chains, R-hat {posterior.rhat:.3f}"
    assert drawn.svg.count('stroke-opacity=".7"') == 8
    exact = jtgpu.learn.posterior(random_table(3, n=3, n_rows=50))
    with pytest.raises(ArgumentError, match="no traces"):
        jtgpu.draw.trace(exact)


def test_labels_of_arcs_do_not_overlap() -> None:
    """A dense graph: no label covers a box or another label."""
    found = jtgpu.learn.posterior(random_table(5, n=8, n_rows=100))
    drawn = jtgpu.draw.arcs(found, 0.004)
    root = ElementTree.fromstring(drawn.svg)
    places = [
        (float(e.attrib["x"]), float(e.attrib["y"]), len(e.text or ""))
        for e in root.iter(f"{SVG}text")
        if re.fullmatch(r"(\.\d\d)( \u2191\.\d\d)?", e.text or "")
    ]
    p = found.edge_probabilities
    edges = found.consensus(0.004).edges
    assert len(places) == sum(p[u, v] < 0.995 or p[v, u] >= 0.05 for u, v in edges) > 8
    assert "number: P(arc), none from 0.995" in drawn.svg
    for i, (x, y, n) in enumerate(places):
        for a, b, _ in places[:i]:
            assert abs(y - b) >= 11 or not x - 12 < a < x + 5 * n
    assert max(x + 5 * n for x, _, n in places) <= drawn.width
    assert "P(reversed arc)" in drawn.svg
    again = jtgpu.draw.arcs(found, 0.004)
    assert again.svg == drawn.svg


def test_posteriors_draw_themselves(posterior: StructurePosterior) -> None:
    assert posterior.draw().svg == jtgpu.draw.heat_map(posterior).svg
    assert posterior.draw_network(0.3).svg == jtgpu.draw.arcs(posterior, 0.3).svg
    assert posterior.plot_trace().svg == jtgpu.draw.trace(posterior).svg
    with pytest.raises(ArgumentError, match="threshold"):
        posterior.draw_network(1.5)


def test_notebooks_show_a_table_and_two_pictures(posterior: StructurePosterior) -> None:
    page = posterior._repr_html_()
    assert "<table" in page
    assert "width of a line" in page
    assert "arc of the best graph" in page
    assert "<svg" not in posterior.paths._repr_html_()


def test_weak_arcs_are_dashed_and_do_not_place_variables() -> None:
    found = jtgpu.learn.posterior(random_table(3, n=5, n_rows=60))
    strong, weak = (jtgpu.draw.arcs(found, threshold).svg for threshold in (0.5, 0.02))
    assert "stroke-dasharray" not in strong
    assert weak.count('stroke-dasharray="5 4"') > 0
    boxes = [re.findall(r'class="w" ([^/]*)/', svg) for svg in (strong, weak)]
    assert boxes[0] == boxes[1]
    assert "of them weak (dashed)" in weak
    assert 'class="s p"' in weak  # labels have a halo
