"""Layouts: boxes do not overlap, arcs point down and pass no box, and the same input gives the same integers."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.draw.arrange import Arrangement, arrange, arrange_dense
from jtgpu.draw.layers import assign_layers, count_crossings, insert_dummies, reduce_crossings
from jtgpu.draw.network import arrange_stacked

Box = tuple[int, int, int, int]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    n = draw(st.integers(0, 24))
    seed = draw(st.integers(0, 10_000))
    rng = random.Random(seed)
    density = draw(st.sampled_from([0.05, 0.1, 0.3]))
    order = rng.sample(range(n), n)
    arcs = [(order[i], order[j]) for i, j in itertools.combinations(range(n), 2) if rng.random() < density]
    rng.shuffle(arcs)
    return [(rng.randrange(1, 200), rng.randrange(1, 120)) for _ in range(n)], arcs


def overlap(a: Box, b: Box) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def check(made: Arrangement, arcs: list[tuple[int, int]]) -> None:
    for a, b in itertools.combinations(made.boxes, 2):
        assert not overlap(a, b)
    for x, y, w, h in made.boxes:
        assert x >= 0
        assert y >= 0
        assert x + w <= made.width
        assert y + h <= made.height
    for (parent, child), line in zip(arcs, made.lines, strict=True):
        above, below = made.boxes[parent], made.boxes[child]
        assert line[0] == (above[0] + above[2] // 2, above[1] + above[3])
        assert line[-1] == (below[0] + below[2] // 2, below[1])
        assert all(p[1] < q[1] for p, q in itertools.pairwise(line))
        for p, q in itertools.pairwise(line):
            if p[0] == q[0]:  # a vertical line passes layers; curves are between layers
                passed = (p[0], p[1], 1, q[1] - p[1])
                assert not any(overlap(passed, box) for v, box in enumerate(made.boxes) if v not in (parent, child))


@given(graphs(), st.sampled_from([None, 150, 600]))
def test_boxes_do_not_overlap_and_arcs_point_down(
    graph: tuple[list[tuple[int, int]], list[tuple[int, int]]], max_width: int | None
) -> None:
    sizes, arcs = graph
    made = arrange(sizes, arcs, max_width)
    check(made, arcs)
    assert made == arrange(sizes, arcs, max_width)
    assert all(type(x) is int for box in made.boxes for x in box)


@given(graphs(), st.sampled_from([100, 400, 1500]))
def test_dense_rows_do_not_overlap_and_arcs_point_down(
    graph: tuple[list[tuple[int, int]], list[tuple[int, int]]], width: int
) -> None:
    sizes, arcs = graph
    made = arrange_dense(sizes, arcs, width)
    for a, b in itertools.combinations(made.boxes, 2):
        assert not overlap(a, b)
    for (_, y0), (_, y1) in made.lines:
        assert y0 < y1
    assert made.width <= max([width, *(w + 1 for w, _ in sizes)])
    assert made == arrange_dense(sizes, arcs, width)
    assert all(type(x) is int for box in made.boxes for x in box)


def test_many_leaves_become_columns() -> None:
    arcs = [(0, v) for v in range(1, 21)] + [(20, 21), (22, 19)]
    found = arrange_stacked([(100, 20)] * 23, arcs, 2000, frozenset({5}))
    for a, b in itertools.combinations(found.made.boxes, 2):
        assert not overlap(a, b)
    # three columns; node 5 is set, node 19 has two parents, node 20 a child
    assert [child for _, child in found.arcs if child >= 0] == [5, 19, 20, 21, 19]
    assert len(found.spines) == 3
    assert len(found.heads) == 17
    assert all(found.made.boxes[v][1] > found.made.boxes[0][1] for v in range(1, 21))
    assert found.made.width < 1000


@given(graphs())
def test_columns_do_not_overlap(graph: tuple[list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    sizes, arcs = graph
    n = len(sizes)
    if n:  # a hub with leaves besides
        arcs = arcs + [(n - 1, n + i) for i in range(9)]
    found = arrange_stacked(sizes + [(50, 20)] * 9 * bool(n), arcs, 600)
    for a, b in itertools.combinations(found.made.boxes, 2):
        assert not overlap(a, b)


@pytest.mark.parametrize(("name", "most"), [("asia", 0), ("alarm", 12), ("hepar2", 400)])
def test_few_crossings(name: str, most: int) -> None:
    net = jtgpu.load(name)
    arcs = [(net.index(a), net.index(b)) for a, b in net.arcs]
    graph = insert_dummies(len(net), arcs, assign_layers(len(net), arcs))
    assert count_crossings(graph, reduce_crossings(graph)) <= most


def test_sources_are_near_their_children() -> None:
    assert assign_layers(4, [(0, 1), (1, 2), (3, 2)]) == [0, 1, 2, 1]


def test_a_large_network() -> None:
    net = jtgpu.load("munin")
    made = jtgpu.draw.layout(net)
    assert len(made.nodes) == len(net)
    ordered = sorted(made.boxes, key=lambda box: (box[1], box[0]))
    for a, b in itertools.pairwise(ordered):  # neighbours in a row
        assert not overlap(a, b)


def test_layout_of_some_nodes() -> None:
    net = jtgpu.load("asia")
    made = jtgpu.draw.layout(net, ["xray", "either", "lung"], size=(50, 20))
    assert made.nodes == ("lung", "either", "xray")
    assert [box[2:] for box in made.boxes] == [(50, 20)] * 3
    assert made.arcs == ((0, 1), (1, 2))
    assert made.boxes[0][1] < made.boxes[1][1] < made.boxes[2][1]
    sized = jtgpu.draw.layout(net, ["xray", "lung"], size={"xray": (300, 40)})
    assert sized.boxes[1][2:] == (300, 40)
    with pytest.raises(jtgpu.UnknownVariable):
        jtgpu.draw.layout(net, ["xray", "lungs"])
    with pytest.raises(ValueError, match="size must be a pair"):
        jtgpu.draw.layout(net, size="large")  # type: ignore[arg-type]


def test_a_markov_network_has_a_layout() -> None:
    net = jtgpu.MarkovNetwork({"a": "01", "b": "01", "c": "01"}, [(("a", "b"), [[1, 2], [3, 4]]), (("c",), [1, 1])])
    assert jtgpu.draw.layout(net).arcs == ((0, 1),)
    assert "<svg" in jtgpu.draw.show(net).svg
