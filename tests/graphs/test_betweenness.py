"""Betweenness against rational arithmetic: graphs and inputs of all kinds, many paths, weights, threads, errors."""

from __future__ import annotations

import itertools
import random
import warnings
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import jtgpu
from jtgpu import DataError, TableTooLarge, graphs
from jtgpu.errors import ArgumentError
from jtgpu.graphs import engine as cpu
from jtgpu.graphs import layout
from tests.graphs.exact import diamond_sums, diamonds, edge_sums, node_sums
from tests.support.examples import examples, slow

BACKENDS: tuple[Any, ...] = ("cpu", "reference")


def agree(found: dict[Any, float], exact: dict[Any, Fraction]) -> None:
    """Equal keys in the same order, values within 1e-12 of the exact ones, relatively."""
    assert list(found) == list(exact)
    for key, value in exact.items():
        assert abs(Fraction(found[key]) - value) <= abs(value) / 10**12, key


def halves(sums: dict[Any, Fraction], graph: Any) -> dict[Any, Fraction]:
    """Unordered pairs of undirected graphs."""
    return sums if graph.is_directed() else {key: value / 2 for key, value in sums.items()}


def asia() -> jtgpu.BayesianNetwork:
    """A network."""
    net = jtgpu.load("asia")
    assert isinstance(net, jtgpu.BayesianNetwork)
    return net


def sample_graphs() -> dict[str, Any]:
    """Small graphs of every kind."""
    found: dict[str, Any] = {
        f"{n} vertices{', directed' * directed}": nx.empty_graph(n, nx.DiGraph if directed else nx.Graph)
        for n, directed in itertools.product((0, 1, 2), (False, True))
    }
    found["one edge"] = nx.path_graph(2)
    found["tree"] = nx.random_labeled_tree(25, seed=1)
    found["trees on a cycle"] = nx.Graph([*nx.cycle_graph(5).edges, (0, 5), (5, 6), (5, 7), (7, 8), (1, 9), (1, 10)])
    found["star"] = nx.star_graph(18)
    found["grid"] = nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 6))
    found["complete"] = nx.complete_graph(19)
    found["disconnected"] = nx.disjoint_union_all(
        [nx.cycle_graph(7), nx.path_graph(4), nx.gnp_random_graph(12, 0.3, 2)]
    )
    found["loops"] = nx.Graph([*nx.gnp_random_graph(8, 0.4, 3).edges, (2, 2), (5, 5)])
    found["directed"] = nx.gnp_random_graph(24, 0.12, 4, directed=True)
    found["directed both ways"] = nx.gnp_random_graph(12, 0.5, 5, directed=True)
    found["diamonds"] = diamonds(6)
    found["asia"] = asia().to_networkx()
    return found


GRAPHS = sample_graphs()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_and_edges_agree_with_rational_arithmetic(name: str, backend: Any) -> None:
    graph = GRAPHS[name]
    found = graphs.betweenness(graph, normalized=False, compute=backend)
    agree(found, halves(node_sums(graph), graph))
    found = graphs.betweenness(graph, normalized=False, edges=True, compute=backend)
    agree(found, halves(edge_sums(graph), graph))


WEIGHTS: dict[str, list[float]] = {
    "small integers": [1, 2, 3, 7],
    "large integers": [1000, 1001, 2001, 5000],
    "eighths": [0.125, 0.25, 1.0, 3.0],
    "equal": [2.5],
    "far apart": [1, 2, 2**40],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_agree_with_rational_arithmetic(kind: str, directed: bool, backend: Any) -> None:
    rng = np.random.default_rng(3)
    graph = nx.gnp_random_graph(20, 0.15, 7, directed=directed)
    for u, v in graph.edges:
        graph[u][v]["cost"] = float(rng.choice(WEIGHTS[kind]))
    found = graphs.betweenness(graph, weight="cost", normalized=False, compute=backend)
    agree(found, halves(node_sums(graph, "cost"), graph))
    found = graphs.betweenness(graph, weight="cost", normalized=False, edges=True, compute=backend)
    agree(found, halves(edge_sums(graph, "cost"), graph))


@examples(40)
@given(
    n=st.integers(0, 12),
    pairs=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(1, 4)), max_size=30),
    directed=st.booleans(),
)
def test_any_small_graph_agrees_with_rational_arithmetic(
    n: int, pairs: list[tuple[int, int, int]], directed: bool
) -> None:
    graph: Any = nx.empty_graph(n, nx.DiGraph if directed else nx.Graph)
    graph.add_weighted_edges_from((u, v, w) for u, v, w in pairs if u < n and v < n)
    for weight in (None, "weight"):
        found = graphs.betweenness(graph, weight=weight, normalized=False)
        agree(found, halves(node_sums(graph, weight), graph))


@pytest.mark.parametrize("graph", [GRAPHS["disconnected"], GRAPHS["directed"], GRAPHS["trees on a cycle"]], ids=str)
@pytest.mark.parametrize(
    ("normalized", "endpoints", "k"), [*itertools.product((False, True), (False, True), (None, 5))]
)
def test_scales_are_those_of_networkx(graph: Any, normalized: bool, endpoints: bool, k: int | None) -> None:
    options: dict[str, Any] = {"normalized": normalized, "endpoints": endpoints, "k": k, "seed": 8}
    wanted = nx.betweenness_centrality(graph, **options)
    for backend in BACKENDS:
        assert graphs.betweenness(graph, compute=backend, **options) == pytest.approx(wanted, rel=1e-12, abs=1e-15)
    del options["endpoints"]
    wanted = nx.edge_betweenness_centrality(graph, **options)
    assert graphs.betweenness(graph, **options, edges=True) == pytest.approx(wanted, rel=1e-12, abs=1e-15)


def test_inexact_weights_compare_paths_as_networkx_does() -> None:
    graph = nx.gnp_random_graph(40, 0.06, 9)
    for i, (u, v) in enumerate(graph.edges):
        graph[u][v]["weight"] = (0.1, 0.2, 0.3)[i % 3]
    wanted = nx.betweenness_centrality(graph, weight="weight")
    assert graphs.betweenness(graph, weight="weight") == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("longest", [1e308, 5e-324])
def test_weights_near_the_limits_of_float64(longest: float) -> None:
    edges = {"source": ["a", "b", "c"], "target": ["b", "c", "d"], "weight": [1.0, longest, 1.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = graphs.betweenness(edges, weight="weight")
    assert found == pytest.approx({"a": 0, "b": 2 / 3, "c": 2 / 3, "d": 0})


@pytest.mark.parametrize(
    ("n", "weight"),
    [(40, None), (40, "length"), *slow((1100, None), (1100, "length"))],
)
def test_more_paths_than_float64_counts(n: int, weight: str | None) -> None:
    graph = diamonds(n)
    for i, (u, v) in enumerate(graph.edges):
        graph[u][v]["length"] = 1000.25 if i // 4 % 2 else 1.0  # too many levels for lanes
    agree(graphs.betweenness(graph, weight=weight, normalized=False), halves(diamond_sums(n), graph))
    total = sum(graphs.betweenness(graph, weight=weight, normalized=False, edges=True).values())
    lengths = dict(nx.all_pairs_shortest_path_length(diamonds(40))) if n == 40 else {}
    if lengths:
        assert total == pytest.approx(sum(d for row in lengths.values() for d in row.values()) / 2, rel=1e-12)


def test_paths_longer_than_a_lane_holds() -> None:
    n = 33_000
    ends = np.stack([np.arange(n), np.arange(n) + 1], axis=1) % n
    found = graphs.betweenness((n, ends), normalized=False, k=2, seed=1, directed=True)
    sources = sorted(random.Random(1).sample(range(n), 2))
    gap = sources[1] - sources[0]
    inside = (sources[0] + 1 + gap // 2) % n  # targets behind it, seen from both sources
    first = n - 1 - (inside - sources[0])
    second = n - 1 - (inside - sources[1]) % n
    assert found[inside] == (first + second) * (n - 1) / 2


def arrays_of(graph: Any) -> tuple[int, NDArray[np.int64]]:
    """A graph with vertices 0, 1 ... as arrays."""
    return len(graph), np.array(list(graph.edges)).reshape(-1, 2)


def test_every_kind_of_input_gives_the_same_values() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    graph = GRAPHS["directed"]
    n, ends = arrays_of(graph)
    wanted = [*graphs.betweenness(graph).values()]
    assert graphs.betweenness((n, ends), directed=True).tolist() == wanted
    matrix = sparse.coo_array((np.ones(len(ends)), tuple(ends.T)), shape=(n, n))
    assert graphs.betweenness(matrix).tolist() == wanted
    assert graphs.betweenness(matrix.tocsr()).tolist() == wanted
    table = {"from": [f"v{u}" for u in ends[:, 0]], "to": [f"v{v}" for v in ends[:, 1]]}
    named = graphs.betweenness(table, directed=True)
    assert {int(name[1:]): x for name, x in named.items()} == pytest.approx(
        {v: x for v, x in enumerate(wanted) if f"v{v}" in named}, rel=1e-12
    )
    weights = np.arange(1.0, len(ends) + 1)
    by_array = graphs.betweenness((n, ends), directed=True, weight=weights)
    matrix.data = weights
    assert graphs.betweenness(matrix, weight=True).tolist() == by_array.tolist()
    assert [*graphs.betweenness(table | {"cost": weights}, directed=True, weight="cost").values()] != [*named.values()]


def test_networks() -> None:
    net = asia()
    assert graphs.betweenness(net) == graphs.betweenness(net.to_networkx())
    assert list(graphs.betweenness(net, edges=True)) == list(net.arcs)
    markov = jtgpu.MarkovNetwork(dict.fromkeys("xyz", "ab"), [("xy", [[1, 2], [3, 4]]), ("yz", [[1, 2], [3, 4]])])
    assert graphs.betweenness(markov) == {"x": 0.0, "y": 1.0, "z": 0.0}
    undirected = graphs.betweenness(net, directed=False)
    assert undirected == pytest.approx(nx.betweenness_centrality(net.to_networkx().to_undirected()), rel=1e-12)


def test_parallel_edges_count_once_and_share_their_value() -> None:
    ends, weights = [[0, 1], [1, 0], [1, 2], [2, 3], [0, 3]], [5.0, 1.0, 1.0, 1.0, 3.0]
    found = graphs.betweenness((4, ends), weight=weights, edges=True, normalized=False)
    assert found[0] == found[1] > 0
    assert found[0] == graphs.betweenness((4, ends[1:]), weight=weights[1:], edges=True, normalized=False)[0]
    multi: Any = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    assert graphs.betweenness(multi) == nx.betweenness_centrality(multi)


def test_bits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "ENOUGH", 1)
    graph = arrays_of(nx.barabasi_albert_graph(400, 3, seed=2))
    weights = np.random.default_rng(1).integers(1, 5, len(graph[1])) / 3.0
    cases: list[dict[str, Any]] = [{}, {"edges": True}, {"weight": weights}, {"directed": True, "endpoints": True}]
    for options in cases:
        one = graphs.betweenness(graph, compute=jtgpu.Compute(threads=1), **options)
        for threads in (2, 5):
            assert (
                graphs.betweenness(graph, compute=jtgpu.Compute(threads=threads), **options).tobytes() == one.tobytes()
            )


@pytest.mark.parametrize("threads", [1, 2])
def test_interruption_does_not_wait_for_a_group(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "ENOUGH", 1)
    monkeypatch.setattr(cpu, "STEP", 1)
    monkeypatch.setattr(cpu, "GROUPS", 2)
    n, compiled = 0, cpu._sweep.sweep

    def sweep(*arguments: Any) -> None:
        nonlocal n
        n += 1
        if n == 3:
            raise KeyboardInterrupt  # in a thread of the pool it reaches the caller as from Ctrl-C
        compiled(*arguments)

    monkeypatch.setattr(cpu, "_sweep", SimpleNamespace(sweep=sweep))
    with pytest.raises(KeyboardInterrupt):
        graphs.betweenness(nx.gnp_random_graph(900, 0.01, 1), compute=jtgpu.Compute(threads=threads))
    assert n < 40  # of 57 batches


def test_progress_counts_sources() -> None:
    calls: list[tuple[int, int]] = []
    graphs.betweenness(
        nx.cycle_graph(50), compute=jtgpu.Compute(progress=lambda done, total, text: calls.append((done, total)))
    )
    assert calls[-1] == (50, 50)
    assert calls == sorted(calls)


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "free_memory", lambda: 10**6)
    n = 120_000
    ends = np.stack([np.arange(n), np.arange(n) + 1], axis=1) % n
    with pytest.raises(TableTooLarge, match="120,000 vertices need"):
        graphs.betweenness((n, ends), k=16, seed=1)


def test_groups_respect_the_memory_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_SUMS", 3 * 8 * 300)
    graph = arrays_of(nx.barabasi_albert_graph(300, 3, seed=2))
    assert graphs.betweenness(graph) == pytest.approx(graphs.betweenness(graph, compute="reference"), rel=1e-12)


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        ((3, [[0, 3]]), {}, r"edge 0 is \(0, 3\), but the vertices are 0 to 2"),
        ((3, [[0, 1]]), {"weight": [0.0]}, "edge 0, from 0 to 1 has the weight 0; weights are lengths"),
        ((3, [[0, 1]]), {"weight": [float("nan")]}, "has the weight nan"),
        ((3, [[0, 1]]), {"weight": [1.0, 2.0]}, "a number for each of 1 edges"),
        ({"from": ["a"], "to": ["b"], "w": ["x"]}, {"weight": "w"}, "edge from 'a' to 'b' has the weight 'x'"),
        ({"from": ["a"], "to": ["b"]}, {"weight": "w"}, "no column 'w' of weights"),
        ({"from": ["a"], "to": [None]}, {}, "'to': the cell of row 0 is missing"),
        ({"a": [1]}, {}, "'from' and 'to'"),
        (nx.Graph([(0, 1, {"w": -1})]), {"weight": "w"}, "edge from 0 to 1 has the weight -1"),
        (nx.Graph([(0, 1, {"w": "x"})]), {"weight": "w"}, "has the weight 'x', which is not a number"),
    ],
)
def test_errors_in_data_name_the_edge(graph: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        graphs.betweenness(graph, **options)


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        (7, {}, "graph must be a network"),
        ((3, [[0.5, 1.0]]), {}, "array of integers"),
        ((-1, []), {}, "number of vertices"),
        (nx.path_graph(4), {"k": 9}, "k is 9, but there are 4 vertices"),
        (nx.path_graph(4), {"k": 1}, "k must be an integer of at least 2"),
        (nx.path_graph(4), {"weight": 3}, "weight must be the name"),
        (nx.path_graph(4), {"compute": "gpu2"}, "compute must be"),
        (jtgpu.load("asia"), {"weight": "w"}, "have no weights"),
    ],
)
def test_wrong_arguments(graph: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        graphs.betweenness(graph, **options)


def test_graphs_that_would_take_days_are_refused() -> None:
    n = 3_000_000
    ends = np.stack([np.arange(n), (np.arange(n) * 7 + 1) % n], axis=1)
    with pytest.raises(DataError, match=r"days; pass k=\d"):
        graphs.betweenness((n, ends), compute=jtgpu.Compute(threads=1))
