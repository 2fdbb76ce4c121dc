"""Ranks of variables over many graphs."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu import DataError, graphs
from jtgpu.errors import ArgumentError


def sample(n_graphs: int, n: int, seed: int = 1) -> NDArray[np.bool_]:
    """Random directed acyclic graphs."""
    random = np.random.default_rng(seed)
    order = random.permuted(np.tile(np.arange(n), (n_graphs, 1)), axis=1)
    upper = np.triu(random.random((n_graphs, n, n)) < 0.2, 1)
    dags = np.zeros_like(upper)
    for s in range(n_graphs):
        dags[s][np.ix_(order[s], order[s])] = upper[s]
    return dags


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("directed", [False, True])
def test_values_are_those_of_each_graph(directed: bool, backend: Any) -> None:
    dags = sample(40, 9)
    found = graphs.betweenness_posterior(dags, directed=directed, compute=backend)
    for dag, values in zip(dags, found.values, strict=True):
        graph = nx.from_numpy_array(dag, create_using=nx.DiGraph)
        wanted = nx.betweenness_centrality(graph if directed else graph.to_undirected())
        assert values == pytest.approx([*wanted.values()], rel=1e-12, abs=1e-15)
    assert found.mean == pytest.approx(found.values.mean(axis=0))
    assert found.quantiles == pytest.approx(np.quantile(found.values, [0.05, 0.5, 0.95], axis=0).T)


def test_ranks() -> None:
    found = graphs.betweenness_posterior(sample(200, 8))
    ranks = found.rank_probabilities
    assert ranks.sum(axis=0) == pytest.approx(np.ones(8))
    assert ranks.sum(axis=1) == pytest.approx(np.ones(8))
    values = found.values.round(12)
    larger = (values[:, None, :] > values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    assert found.mean_rank == pytest.approx((larger + (equal + 1) / 2).mean(axis=0))
    assert ranks[:, 0] == pytest.approx(((larger == 0) / equal).mean(axis=0))
    low, high = found.rank_interval(0.8).T
    for i in range(8):
        assert ranks[i, low[i] - 1 : high[i]].sum() >= 0.8 - 1e-9
        assert ranks[i, : low[i] - 1].sum() <= 0.1 + 1e-9


def test_every_kind_of_input_gives_the_same_values() -> None:
    dags = sample(30, 7)
    wanted = graphs.betweenness_posterior(dags)
    bits = np.uint64(1) << np.arange(7, dtype=np.uint64)
    masks = (dags * bits[:, None]).sum(axis=1, dtype=np.uint64)  # parents of each variable
    listed = [nx.from_numpy_array(dag, create_using=nx.DiGraph) for dag in dags]
    for given in (masks, listed, dags.astype(np.int64), dags.tolist()):
        found = graphs.betweenness_posterior(given)
        assert found.values.tobytes() == wanted.values.tobytes()


def test_networks_have_names() -> None:
    net = jtgpu.load("asia")
    found = graphs.betweenness_posterior([net, net])
    assert found.variables == net.variables
    assert dict(zip(found.variables, found.mean.tolist(), strict=True)) == pytest.approx(
        graphs.betweenness(net, directed=False), rel=1e-12
    )
    assert found.columns()["variable"][0] == "either"
    assert "8 variables in 2 graphs" in str(found)


def test_frame() -> None:
    pytest.importorskip("pandas")
    frame = graphs.betweenness_posterior(sample(20, 4), list("abcd"), quantiles=(0.1, 0.9)).to_frame()
    assert list(frame.columns) == ["variable", "mean", "q10", "q90", "p_first", "mean_rank", "rank_low", "rank_high"]
    assert frame["mean_rank"].is_monotonic_increasing


def test_bits_do_not_depend_on_threads() -> None:
    dags = sample(800, 20)
    one, two = (graphs.betweenness_posterior(dags, compute=jtgpu.Compute(threads=threads)) for threads in (1, 2))
    assert one.values.tobytes() == two.values.tobytes()


def test_errors() -> None:
    with pytest.raises(DataError, match="no graph"):
        graphs.betweenness_posterior(np.zeros((0, 3, 3), bool))
    with pytest.raises(DataError, match="no variables"):
        graphs.betweenness_posterior(np.zeros((3, 0, 0), bool))
    with pytest.raises(DataError, match="graph 1 has other variables"):
        graphs.betweenness_posterior([jtgpu.load("asia"), jtgpu.load("cancer")])
    with pytest.raises(DataError, match="has the variable 5, but there are 3"):
        graphs.betweenness_posterior(np.full((2, 3), 32, np.uint64))
    with pytest.raises(ArgumentError, match="several graphs"):
        graphs.betweenness_posterior(jtgpu.load("asia"))
    with pytest.raises(ArgumentError, match="shape"):
        graphs.betweenness_posterior(np.zeros((2, 3, 4), bool))
    with pytest.raises(ArgumentError, match="3 different names"):
        graphs.betweenness_posterior(np.zeros((2, 3, 3), bool), ["a", "a", "b"])
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        graphs.betweenness_posterior(np.zeros((2, 3, 3), bool), quantiles=(2.0,))
