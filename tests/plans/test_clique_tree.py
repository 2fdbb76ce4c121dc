"""Cliques and junction trees, against networkx and against the published trees."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu import errors
from jtgpu.formats import load, networks, read
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans import clique_tree
from jtgpu.plans.compiler import build_plan, order_graph
from jtgpu.plans.ordering import find_order, read_num
from tests.support.bundled import slow_when_large

# cliques, largest, smallest and total clique table, largest and smallest separator of the 2014 report; Munin2 and
# Munin3 from their orders
PUBLISHED = {
    "Mildew": (29, 1_249_280, 336, 3_400_464, 62_464, 72),
    "Diabetes": (337, 84_480, 495, 9_825_960, 5_280, 16),
    "Barley": (36, 7_257_600, 216, 17_140_796, 907_200, 7),
    "Munin4": (877, 448_000, 4, 8_860_074, 56_000, 2),
    "Water": (21, 589_824, 9, 3_028_305, 147_456, 3),
    "Munin1": (162, 38_400_000, 4, 83_735_758, 2_400_000, 2),
    "Link": (586, 2_097_152, 4, 23_983_962, 262_144, 3),
    "Munin2": (854, 151_200, None, 2_049_942, None, None),
    "Munin3": (904, 156_800, None, 3_077_688, None, None),
}


@st.composite
def graphs_with_orders(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int], list[int]]:
    """Neighbours, an elimination order and cardinalities of a random graph, connected or not."""
    n = draw(st.integers(1, 9))
    pairs = [(a, b) for a in range(n) for b in range(a)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    order = draw(st.permutations(range(n)))
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    return clique_tree.interaction_graph(n, edges), list(order), cardinalities


@given(graphs_with_orders())
def test_cliques_are_those_of_the_triangulation(case: tuple[list[tuple[int, ...]], list[int], list[int]]) -> None:
    neighbours, order, _ = case
    filled: networkx.Graph[int] = networkx.Graph()
    filled.add_nodes_from(range(len(order)))
    filled.add_edges_from((a, b) for a in range(len(order)) for b in neighbours[a])
    left = filled.copy()
    for v in order:  # the definition: join the remaining neighbours of each vertex, then take it away
        around = list(left[v])
        new = [(a, b) for a in around for b in around if a < b]
        left.add_edges_from(new)
        filled.add_edges_from(new)
        left.remove_node(v)
    assert networkx.is_chordal(filled) or len(order) < 4
    cliques, links = clique_tree.elimination_cliques(neighbours, order)
    assert sorted(cliques) == sorted(tuple(sorted(c)) for c in networkx.find_cliques(filled))
    assert len(links) == len(cliques) - networkx.number_connected_components(filled)


@given(graphs_with_orders())
def test_clique_trees_have_running_intersection(case: tuple[list[tuple[int, ...]], list[int], list[int]]) -> None:
    neighbours, order, cards = case
    cliques, links = clique_tree.elimination_cliques(neighbours, order)
    tree = clique_tree.clique_tree(cliques, links, cards)
    tree.top_cliques(len(order))  # raises when it fails
    for v in range(len(order)):
        holders = {c for c, members in enumerate(cliques) if v in members}
        arcs = [c for c in holders if tree.parent[c] in holders and v in tree.separator(c)]
        assert len(arcs) == len(holders) - 1
    eccentric = [d for d in tree.depth if d >= 0]
    assert len(eccentric) == len(cliques)


@given(st.lists(st.lists(st.integers(0, 7), unique=True, max_size=4)))
def test_the_interaction_graph_joins_each_scope(scopes: list[list[int]]) -> None:
    joined: networkx.Graph[int] = networkx.Graph()
    joined.add_nodes_from(range(8))
    for scope in scopes:
        joined.add_edges_from(combinations(scope, 2))
    assert clique_tree.interaction_graph(8, scopes) == [tuple(sorted(joined[v])) for v in range(8)]


@given(graphs_with_orders())
def test_the_tree_is_the_maximum_spanning_tree_of_networkx(
    case: tuple[list[tuple[int, ...]], list[int], list[int]],
) -> None:
    neighbours, order, cards = case
    cliques, links = clique_tree.elimination_cliques(neighbours, order)
    tree = clique_tree.clique_tree(cliques, links, cards)
    joined: networkx.Graph[int] = networkx.Graph()
    joined.add_nodes_from(range(len(cliques)))
    for a, b in combinations(range(len(cliques)), 2):
        if shared := set(cliques[a]) & set(cliques[b]):
            joined.add_edge(a, b, weight=len(shared))
    expected = networkx.maximum_spanning_tree(joined, algorithm="kruskal")
    found = {frozenset((c, p)) for c, p in enumerate(tree.parent) if p >= 0}
    assert found == {frozenset(edge) for edge in expected.edges}


@pytest.mark.parametrize("name", slow_when_large(networks()))
def test_cliques_and_tree_of_every_bundled_network_are_those_of_networkx(name: str) -> None:
    net = load(name)
    cards = net.cardinality.tolist()
    plan = build_plan(net.cardinality, [f.scope for f in net.factors], order_graph(net), order := min_fill(net))
    with_networkx = build_plan(
        net.cardinality, [f.scope for f in net.factors], order_graph(net), order, by_networkx=True
    )
    assert plan == with_networkx
    cliques, links = clique_tree.elimination_cliques(order_graph(net), order)
    filled: networkx.Graph[int] = networkx.Graph()
    filled.add_nodes_from(range(len(cards)))
    for clique in cliques:
        filled.add_edges_from(combinations(clique, 2))
    assert networkx.is_chordal(filled)
    found = {frozenset(c) for c in networkx.chordal_graph_cliques(filled)}
    assert found == {frozenset(c) for c in cliques}
    joined: networkx.Graph[int] = networkx.Graph()
    joined.add_nodes_from(range(len(cliques)))
    members = [set(c) for c in cliques]
    joined.add_weighted_edges_from((a, b, len(members[a] & members[b])) for a, b in near(cliques))
    heaviest = networkx.maximum_spanning_tree(joined, algorithm="kruskal")
    tree = clique_tree.clique_tree(cliques, links, cards)
    weight = sum(len(tree.separator(c)) for c in range(len(cliques)))
    assert weight == heaviest.size(weight="weight")


def near(cliques: list[tuple[int, ...]]) -> set[tuple[int, int]]:
    """Pairs of cliques that share a variable."""
    holders: dict[int, list[int]] = {}
    for c, clique in enumerate(cliques):
        for v in clique:
            holders.setdefault(v, []).append(c)
    return {pair for h in holders.values() for pair in combinations(h, 2)}


def min_fill(net: DiscreteModel) -> list[int]:
    return [int(v) for v in find_order(net.cardinality, order_graph(net), "min-fill").order]


@given(graphs_with_orders())
def test_the_root_is_a_centre(case: tuple[list[tuple[int, ...]], list[int], list[int]]) -> None:
    neighbours, order, cards = case
    cliques, links = clique_tree.elimination_cliques(neighbours, order)
    tree = clique_tree.clique_tree(cliques, links, cards)
    undirected: networkx.Graph[int] = networkx.Graph([(c, p) for c, p in enumerate(tree.parent) if p >= 0])
    undirected.add_nodes_from(range(len(cliques)))
    for members in networkx.connected_components(undirected):
        part = undirected.subgraph(members)
        root = next(c for c in members if tree.parent[c] < 0)
        assert max(tree.depth[c] for c in members) == networkx.radius(part)
        assert root in networkx.center(part)


def test_kruskal_takes_the_heaviest_tree_when_candidates_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    star = [tuple(range(1, 30))] + [(0,)] * 29
    cliques, links = clique_tree.elimination_cliques(star, [*range(1, 30), 0])
    whole = clique_tree.clique_tree(cliques, links, [2] * 30)
    monkeypatch.setattr(clique_tree, "MAX_CLIQUE_EDGES", 10)
    thin = clique_tree.clique_tree(cliques, links, [2] * 30)
    for tree in (whole, thin):
        tree.top_cliques(30)
        assert tree.parent.count(-1) == 1


def test_orders_other_than_permutations_are_rejected() -> None:
    for order in ([0, 0, 1], [0, 1], [0, 1, 3], [0, 1, 2, 2]):
        with pytest.raises(errors.OrderError, match="each of the 3 variables once"):
            clique_tree.elimination_cliques([(1,), (0, 2), (1,)], order)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_orders_give_the_published_trees(shared_nets: Path, name: str) -> None:
    folder = shared_nets / "RetiEsempio"
    net = read(folder / f"{name}.net")
    order = [int(v) for v in read_num(folder / f"{name}.num", net)]
    cards = net.cardinality.tolist()
    cliques, links = clique_tree.elimination_cliques(order_graph(net), order)
    tree = clique_tree.clique_tree(cliques, links, cards)
    sizes = [math.prod(cards[v] for v in c) for c in cliques]
    separators = [math.prod(cards[v] for v in tree.separator(c)) for c in range(len(cliques)) if tree.parent[c] >= 0]
    n, largest, smallest, total, largest_separator, smallest_separator = PUBLISHED[name]
    assert (len(cliques), max(sizes), sum(sizes)) == (n, largest, total)
    if smallest is not None:
        assert (min(sizes), max(separators), min(separators)) == (smallest, largest_separator, smallest_separator)
    tree.top_cliques(len(net))
    assert max(tree.depth) + 1 <= 29
