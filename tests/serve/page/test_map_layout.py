"""Positions of the boxes of the page."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path

import pytest

import jtgpu
from jtgpu.serve.map_layout import COMPACT, FULL, MAX_NODES, box_size, map_layout, overview


@pytest.mark.parametrize("name", ["asia", "alarm", "hepar2"])
def test_all_boxes_and_arcs(name: str) -> None:
    net = jtgpu.load(name)
    assert isinstance(net, jtgpu.BayesianNetwork)
    found = map_layout(net)
    assert found["nodes"] == [*range(len(net))]
    style = FULL if found["style"]["rows"] == 1.0 else COMPACT
    for v, (lines, (_, _, width, height)) in enumerate(zip(found["titles"], found["boxes"], strict=True)):
        assert (width, height) == box_size(style, lines, net.states(v))
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(found["boxes"], 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
    arcs = {(a, b) for a, b, _, _ in found["arcs"]}
    wanted = {(net.index(p), net.index(v)) for p, v in net.arcs}
    assert arcs <= wanted
    assert len(arcs) == len(wanted) or found["spines"]
    assert found["hidden"] == [[0, 0]] * len(net)
    assert json.dumps(found) == json.dumps(map_layout(net))


def test_a_part_counts_what_it_hides() -> None:
    net = jtgpu.load("asia")
    lung = net.index("lung")
    found = map_layout(net, [lung, lung])
    assert found["nodes"] == [lung]
    assert found["hidden"] == [[1, 1]]
    assert found["arcs"] == []
    assert map_layout(net, [])["nodes"] == []


@pytest.mark.parametrize("nodes", [[-1], [8], [0, 99]])
def test_unknown_variables(nodes: list[int]) -> None:
    with pytest.raises(jtgpu.ArgumentError, match="numbers of variables, 0 to 7"):
        map_layout(jtgpu.load("asia"), nodes)


def test_limits() -> None:
    net = jtgpu.BayesianNetwork(
        {f"v{i}": ["a", "b"] for i in range(MAX_NODES + 1)}, {}, {f"v{i}": [0.5, 0.5] for i in range(MAX_NODES + 1)}
    )
    with pytest.raises(jtgpu.ArgumentError, match="at most 400"):
        map_layout(net)


def test_overview_has_a_dot_for_each_variable() -> None:
    found = overview(jtgpu.load("alarm"))
    assert len(found["x"]) == len(found["y"]) == 37
    assert all(0 <= at <= 1000 for at in found["x"] + found["y"])


def test_markov_networks_have_no_arrow_heads() -> None:
    net = jtgpu.MarkovNetwork({"a": ["0", "1"], "b": ["0", "1"]}, [(("a", "b"), [[1.0, 2.0], [3.0, 4.0]])])
    (arc,) = map_layout(net)["arcs"]
    assert arc[:2] == [0, 1]
    assert arc[3] == ""


def placed(folder: Path, *places: tuple[int, int] | None) -> jtgpu.BayesianNetwork:
    """A chain with positions in its file."""
    names = [f"v{i}" for i in range(len(places))]
    lines = []
    for name, place in zip(names, places, strict=True):
        position = f"position = ({place[0]} {place[1]}); " if place else ""
        lines.append(f'node {name} {{ states = ("a" "b"); {position}}}')
    for first, second in pairwise([None, *names]):
        given = f" | {first}" if first else ""
        lines.append(f"potential ({second}{given}) {{ data = {'((0.5 0.5) (0.5 0.5))' if first else '(0.5 0.5)'}; }}")
    path = folder / "placed.net"
    path.write_text("net {}\n" + "\n".join(lines), encoding="utf-8")
    net = jtgpu.read(path)
    assert isinstance(net, jtgpu.BayesianNetwork)
    return net


def test_positions_of_the_file(tmp_path: Path) -> None:
    """The smallest scale at which boxes do not overlap; y grows upwards in Hugin's files."""
    found = map_layout(placed(tmp_path, (100, 300), (200, 200), (100, 100)))
    (ax, ay, _, _), (bx, by, _, _), (cx, cy, _, _) = found["boxes"]
    assert ax == cx < bx
    assert ay < by < cy
    for (x, y, w, h), (u, v, s, t) in combinations(found["boxes"], 2):
        assert x + w <= u or u + s <= x or y + h <= v or v + t <= y
    assert {(a, b) for a, b, _, _ in found["arcs"]} == {(0, 1), (1, 2)}
    assert min(y for _, y, _, _ in found["boxes"]) == min(x for x, _, _, _ in found["boxes"]) == 0
    assert found["height"] == max(y + h for _, y, _, h in found["boxes"])


@pytest.mark.parametrize(
    "places", [[(0, 0), None], [(5, 5), (5, 5)], [(0, 0), (1, 1), (5000, 5000)]], ids=["missing", "equal", "far"]
)
def test_positions_that_are_of_no_use(tmp_path: Path, places: list[tuple[int, int] | None]) -> None:
    names_only = placed(tmp_path, *[None] * len(places))
    assert map_layout(placed(tmp_path, *places)) == map_layout(names_only)


@pytest.mark.parametrize("canvas", [(752, 775), (284, 500), (1600, 500)])
@pytest.mark.parametrize("name", ["alarm", "insurance", "hepar2", "win95pts"])
def test_a_whole_network_fills_its_canvas(name: str, canvas: tuple[int, int]) -> None:
    """Names of 12 pixels stay readable on a desktop; a telephone begins with a neighbourhood."""
    found = map_layout(jtgpu.load(name), None, canvas)
    scale = min(canvas[0] / found["width"], canvas[1] / found["height"])
    assert scale >= {752: 0.65, 284: 0.4, 1600: 0.45}[canvas[0]]
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(found["boxes"], 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
