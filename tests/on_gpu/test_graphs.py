"""Betweenness on a GPU: the tests of the emulated one, larger graphs, bit-identical in every run."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from jtgpu import graphs
from jtgpu.graphs import gpu
from tests.graphs.gpu_checks import *  # noqa: F403 (tests of both GPUs)
from tests.graphs.gpu_checks import many_paths
from tests.graphs.test_betweenness import arrays_of
from tests.graphs.test_posterior import sample

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


def test_more_than_a_thousand_diamonds() -> None:
    many_paths(1100, None)


@pytest.mark.parametrize("shape", [None, gpu.Shape(512, 1), gpu.Shape(64, 16)], ids=str)
def test_runs_and_shapes_have_the_same_bits(shape: gpu.Shape | None, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = arrays_of(nx.barabasi_albert_graph(4000, 4, seed=1))
    wanted = graphs.betweenness(graph, compute="cpu", k=500, seed=1)
    first = graphs.betweenness(graph, compute="gpu", k=500, seed=1)
    np.testing.assert_allclose(first, wanted, rtol=1e-12, atol=1e-17)
    monkeypatch.setattr(gpu, "SHAPE", shape)
    for _ in range(2):
        assert graphs.betweenness(graph, compute="gpu", k=500, seed=1).tobytes() == first.tobytes()


def test_a_large_grid() -> None:
    graph = arrays_of(nx.convert_node_labels_to_integers(nx.grid_2d_graph(70, 71)))
    found, wanted = (graphs.betweenness(graph, edges=True, compute=b) for b in ("gpu", "cpu"))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_thousands_of_dags() -> None:
    dags = sample(5000, 30)
    found, wanted = (graphs.betweenness_posterior(dags, compute=b) for b in ("gpu", "cpu"))
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-12, atol=1e-17)
