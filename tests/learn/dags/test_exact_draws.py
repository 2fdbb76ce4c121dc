"""Independent draws of graphs: their frequencies are the exact probabilities."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from jtgpu.learn.dags.exact import draw_by_orders, draw_by_partitions, exact_by_orders
from tests.learn.dags import oracle
from tests.learn.dags.test_partitions import tables_of
from tests.learn.dags.test_reference_partitions import random_weights

DRAWS = 40_000


@pytest.mark.parametrize("kind", ["orders", "partitions"])
@pytest.mark.parametrize("forbidden", [0, 1])
def test_graphs_have_their_probabilities(kind: str, forbidden: int) -> None:
    weights = random_weights(6, forbidden)
    tables = tables_of(weights, 4)
    exact = exact_by_orders(tables.log_weights, tables.masks)

    def draw(seed: int, threads: int) -> np.ndarray:
        if kind == "orders":
            return draw_by_orders(tables, exact, DRAWS, seed, threads)
        return draw_by_partitions(tables, DRAWS, seed, threads)

    found = draw(1, 1)
    assert (found == draw(1, 3)).all()
    assert (found != draw(2, 1)).any()
    seen = Counter(map(tuple, found.tolist()))
    graphs = oracle.all_graphs(4)
    logs = [
        sum(weights[v, g[v]] for v in range(4)) + (math.log(oracle.n_orders(g)) if kind == "orders" else 0.0)
        for g in graphs
    ]
    total = oracle.log_sum(logs)
    for graph, x in zip(graphs, logs, strict=True):
        p = math.exp(x - total)
        count = seen.pop(tuple(sum(1 << u - (u > v) for u in graph[v]) for v in range(4)), 0)
        assert abs(count / DRAWS - p) < 5 * math.sqrt(p * (1 - p) / DRAWS) + 1e-4
    assert not seen
