"""The picture of betweenness: sizes, circles of uncertainty, ranks, large networks in part."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, UnknownVariable
from jtgpu.model.discrete import DiscreteModel

SVG = "{http://www.w3.org/2000/svg}"


def radii(svg: str) -> dict[str, list[float]]:
    """Radii of the circles of each variable, by the start of its tooltip."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None:
            name = str(title.text).partition(":")[0]
            found[name] = [float(c.attrib["r"]) for c in group.iter(f"{SVG}circle")]
    return found


def test_areas_are_proportional_to_betweenness() -> None:
    net = jtgpu.load("asia")
    values = jtgpu.graphs.betweenness(net, directed=False)
    drawing = jtgpu.draw.show_ranks(net, values)
    found = radii(drawing.svg)
    largest = max(values, key=values.__getitem__)
    assert found[largest] == [32.0]
    for name, value in values.items():
        assert found[name] == [pytest.approx(max(32 * (value / values[largest]) ** 0.5, 3), abs=0.06)]
    assert drawing.svg == jtgpu.draw.show_ranks(net, values).svg
    texts = [e.text for e in ElementTree.fromstring(drawing.svg).iter(f"{SVG}text")]
    assert texts[texts.index(largest) + 1] == "1"


def test_a_posterior_has_circles_and_intervals() -> None:
    net = jtgpu.load("asia")
    assert isinstance(net, jtgpu.BayesianNetwork)
    index = {v: i for i, v in enumerate(net.variables)}
    dags = np.zeros((8, 8, 8), bool)
    for s, left_out in enumerate(net.arcs):
        for u, v in net.arcs:
            dags[s, index[u], index[v]] = (u, v) != left_out
    posterior = jtgpu.graphs.betweenness_posterior(dags, net.variables)
    drawing = jtgpu.draw.show_ranks(net, posterior)
    for i, (name, circles) in enumerate(radii(drawing.svg).items()):
        low, _, high = posterior.quantiles[index[name]]
        assert len(circles) == 1 + (low > 0) + (high > 0), i
    low, high = posterior.rank_interval()[index["either"]]
    assert (f">{low}-{high}<" if low < high else f">{low}<") in drawing.svg
    assert "quantile" in drawing.svg


def test_large_networks_are_drawn_in_part() -> None:
    net = jtgpu.load("alarm")
    values = jtgpu.graphs.betweenness(net)
    drawing = jtgpu.draw.show_ranks(net, values, most=5)
    assert set(radii(drawing.svg)) == set(sorted(values, key=values.__getitem__, reverse=True)[:5])
    assert "5 of 37 variables" in drawing.title


@pytest.mark.parametrize(
    "net", [jtgpu.network("a"), jtgpu.MarkovNetwork({"a": "xy", "<b>": "xy"}, [(["a", "<b>"], [[1, 2], [3, 4]])])]
)
def test_networks_in_which_nothing_is_between(net: DiscreteModel) -> None:
    found = radii(jtgpu.draw.show_ranks(net, jtgpu.graphs.betweenness(net)).svg)
    assert list(found) == list(net.variables)
    assert all(circles == [3.0] for circles in found.values())


def test_errors() -> None:
    net = jtgpu.load("asia")
    with pytest.raises(UnknownVariable, match="no value"):
        jtgpu.draw.show_ranks(net, {"tub": 1.0})
    with pytest.raises(ArgumentError, match="mapping from name"):
        jtgpu.draw.show_ranks(net, [1.0])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="at least 0"):
        jtgpu.draw.show_ranks(net, dict.fromkeys(net.variables, -1.0))
    with pytest.raises(ArgumentError, match="draws a network"):
        jtgpu.draw.show_ranks("asia", {})  # type: ignore[arg-type]
