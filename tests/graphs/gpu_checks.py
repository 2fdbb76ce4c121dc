"""Tests of the GPU backend, on an emulated GPU (tests/graphs/test_gpu.py) and on a real one (tests/on_gpu)."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from jtgpu import graphs
from jtgpu.errors import ArgumentError, BackendUnavailable, DataError, TableTooLarge
from jtgpu.graphs import engine, gpu
from jtgpu.options.compute import Compute
from jtgpu.published import betweenness as published
from tests.graphs.exact import diamond_sums, diamonds, edge_sums, node_sums
from tests.graphs.test_betweenness import GRAPHS, agree, arrays_of, halves
from tests.graphs.test_posterior import sample

__all__ = [
    "many_paths",
    "test_a_card_that_is_not_there",
    "test_any_number_of_cards_has_the_same_bits",
    "test_auto_takes_the_gpu_where_it_pays_and_the_cpu_where_it_fails",
    "test_dags_have_the_values_of_the_cpu",
    "test_graphs_without_room_are_refused",
    "test_large_graphs_have_the_values_of_the_cpu",
    "test_more_paths_than_float64_counts_on_the_gpu",
    "test_nodes_and_edges_agree_with_rational_arithmetic_on_the_gpu",
    "test_options_have_the_values_of_the_cpu",
    "test_published_kernels",
    "test_published_numbers_of_paths_wrap_around",
    "test_published_table",
    "test_weights_run_on_the_cpu",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_and_edges_agree_with_rational_arithmetic_on_the_gpu(name: str) -> None:
    graph = GRAPHS[name]
    agree(graphs.betweenness(graph, normalized=False, compute="gpu"), halves(node_sums(graph), graph))
    agree(graphs.betweenness(graph, normalized=False, edges=True, compute="gpu"), halves(edge_sums(graph), graph))


def large() -> dict[str, Any]:
    """Graphs of several batches: hubs, long and narrow levels, directed ones, many components."""
    random = np.random.default_rng(2)
    return {
        "hubs": arrays_of(nx.barabasi_albert_graph(100, 3, seed=2)),
        "grid": arrays_of(nx.convert_node_labels_to_integers(nx.grid_2d_graph(8, 9))),
        "star on a cycle": arrays_of(nx.compose(nx.star_graph(40), nx.cycle_graph(41))),
        "cycle": arrays_of(nx.cycle_graph(67)),
        "components": (200, random.integers(0, 4, (300, 2)) + 4 * random.integers(0, 50, (300, 1))),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", large())
def test_large_graphs_have_the_values_of_the_cpu(name: str) -> None:
    graph = large()[name]
    for directed in (False, True):
        for edges in (False, True):
            found, wanted = (
                graphs.betweenness(graph, directed=directed, edges=edges, compute=b) for b in ("gpu", "cpu")
            )
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-17)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"endpoints": True}, {"k": 40, "seed": 3}, {"normalized": False}], ids=str)
def test_options_have_the_values_of_the_cpu(options: dict[str, Any]) -> None:
    for name in ("hubs", "components"):
        for directed in (False, True):
            found, wanted = (
                graphs.betweenness(large()[name], directed=directed, compute=b, **options) for b in ("gpu", "cpu")
            )
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-17)


def many_paths(n: int, k: int | None) -> None:
    """A chain of n diamonds."""
    graph = arrays_of(diamonds(n))
    for edges in (False, True):
        found, wanted = (graphs.betweenness(graph, k=k, seed=1, edges=edges, compute=b) for b in ("gpu", "cpu"))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.slow
def test_more_paths_than_float64_counts_on_the_gpu() -> None:
    graph = diamonds(40)
    agree(graphs.betweenness(graph, normalized=False, compute="gpu"), halves(diamond_sums(40), graph))
    many_paths(1030, 2)


@pytest.mark.slow
def test_any_number_of_cards_has_the_same_bits() -> None:
    for name in ("hubs", "components"):
        for edges in (False, True):
            one = graphs.betweenness(large()[name], edges=edges, compute="gpu")
            for devices in ([0, 0, 0], "all"):
                found = graphs.betweenness(large()[name], edges=edges, compute=Compute(devices=devices))
                assert found.tobytes() == one.tobytes()


@pytest.mark.slow
def test_dags_have_the_values_of_the_cpu() -> None:
    dags = sample(30, 12)
    for directed in (False, True):
        found, wanted = (graphs.betweenness_posterior(dags, directed=directed, compute=b) for b in ("gpu", "cpu"))
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-12, atol=1e-17)
        assert found.rank_probabilities.tolist() == wanted.rank_probabilities.tolist()


def test_weights_run_on_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    graph = GRAPHS["grid"].copy()
    for i, (u, v) in enumerate(graph.edges):
        graph[u][v]["w"] = 1 + i % 3
    wanted = graphs.betweenness(graph, weight="w", compute="cpu")
    with caplog.at_level("WARNING", "jtgpu"):
        assert graphs.betweenness(graph, weight="w", compute="gpu") == wanted
    assert "on the CPU: its kernels do not know lengths" in caplog.text


def test_graphs_without_room_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SHARE", 1e-9)
    with pytest.raises(TableTooLarge, match="100 vertices need"):
        graphs.betweenness(large()["hubs"], compute="gpu")


def test_a_card_that_is_not_there() -> None:
    with pytest.raises(BackendUnavailable, match="no CUDA device 99"):
        graphs.betweenness(GRAPHS["grid"], compute=Compute(devices=[99]))
    with pytest.raises(ArgumentError, match="devices are GPUs"):
        graphs.betweenness(GRAPHS["grid"], compute=Compute(devices=[0], backend="cpu"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"streams": 7}, {"streams": 7, "graph_capture": True}, {"neighbours": 1, "block": 64}, {"sigma": "uint32"}],
    ids=str,
)
def test_published_kernels(options: dict[str, Any]) -> None:
    for name in ("trees on a cycle", "disconnected", "loops", "1 vertices", "0 vertices"):
        found = published.betweenness(GRAPHS[name], **options)
        wanted = graphs.betweenness(GRAPHS[name], normalized=False, compute="cpu")
        assert found == pytest.approx({v: 2 * x for v, x in wanted.items()}, rel=1e-12, abs=1e-12)


@pytest.mark.slow
def test_published_numbers_of_paths_wrap_around() -> None:
    graph = diamonds(40)
    exact = {v: float(x) for v, x in diamond_sums(40).items()}
    assert published.betweenness(graph) == pytest.approx(exact, rel=1e-10)
    found = published.betweenness(graph, sigma="uint32")
    assert sum(abs(found[v] - x) > 0.01 * x for v, x in exact.items()) > 100


@pytest.mark.slow
def test_published_table() -> None:
    settings = [published.Setting(2), published.Setting(3, graph_capture=True)]
    rows = [*published.measure(GRAPHS["grid"], settings)]
    assert [row.setting for row in rows] == [None, *settings]
    assert all(row.seconds > 0 and row.sources == 30 for row in rows)
    with pytest.raises(DataError, match="power of two"):
        published.betweenness(GRAPHS["grid"], neighbours=3)


@pytest.mark.slow
def test_auto_takes_the_gpu_where_it_pays_and_the_cpu_where_it_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = arrays_of(nx.cycle_graph(40))
    used: list[int] = []
    run = gpu.group_sums

    def counted(*args: Any, **options: Any) -> Any:
        used.append(1)
        return run(*args, **options)

    monkeypatch.setattr(gpu, "group_sums", counted)
    wanted = graphs.betweenness(graph)
    assert not used
    monkeypatch.setattr(engine, "GPU_START", -1.0)
    assert graphs.betweenness(graph) == pytest.approx(wanted, rel=1e-12)
    assert used
    monkeypatch.setattr(gpu, "SHARE", 1e-9)
    with caplog.at_level("WARNING", "jtgpu"):
        assert graphs.betweenness(graph).tolist() == wanted.tolist()
    assert "uses the CPU, since the GPU failed: GPU 0: shortest paths among 40 vertices" in caplog.text
