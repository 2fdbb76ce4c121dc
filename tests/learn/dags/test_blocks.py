"""Chains that draw the parents of a block together, against exact posteriors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import errors
from jtgpu.learn.dags.chains import partitions
from jtgpu.learn.dags.chains.blocks import BlockMover, acyclic_graphs
from jtgpu.learn.dags.graphs import has_cycle
from jtgpu.learn.dags.posterior.averaging import arcs_of
from jtgpu.learn.dags.posterior.posterior import posterior
from jtgpu.learn.dags.set_tables import set_tables


def example(rows: int = 60) -> dict[str, list[str]]:
    """Six variables of a chain, some of which copy others."""
    rng = np.random.default_rng(4)
    columns = [rng.integers(2, size=rows)]
    for _ in range(5):
        columns.append(np.where(rng.random(rows) < 0.75, columns[-1], rng.integers(3, size=rows)))
    return {f"v{i}": [*map(str, x)] for i, x in enumerate(columns)}


def test_all_acyclic_graphs_are_listed() -> None:
    for k, n in ((1, 1), (2, 3), (3, 25), (4, 543)):
        assert len(acyclic_graphs(k)) == n


@pytest.mark.parametrize("graph_prior", ["uniform", "fair"])
def test_blocks_alone_have_the_exact_posterior(graph_prior: Any) -> None:
    """From draws of the posterior, or from anywhere: without a step of the chains over partitions."""
    data = example()
    constraints = jtgpu.learn.Constraints(forbidden=[("v5", "v0")], required=[("v2", "v3")])
    exact = posterior(data, graph_prior=graph_prior, max_parents=3, constraints=constraints)
    tables: Any = exact._source._summary.tables  # type: ignore[attr-defined]
    mover = BlockMover(set_tables(tables), tables, 1, 1)
    start = exact._source.graphs()[0, :4]
    state = partitions.start_chains(start, tables.candidates)
    sums, n = np.zeros((6, 6)), 0
    from jtgpu.learn.dags.chains.blocks import _BitGraph

    for c, own in enumerate(state.parents):
        rng, graph = np.random.default_rng([7, c]), _BitGraph(own, tables.candidates)
        for i in range(600):
            mover._draw(graph, rng)
            if i >= 50:
                arcs = arcs_of(graph.bits, tables.candidates)
                assert not has_cycle(arcs)
                sums, n = sums + arcs, n + 1
    np.testing.assert_allclose(sums / n, exact.edge_probabilities.values, atol=0.1)


def test_posteriors_with_blocks() -> None:
    data = example()
    chains = jtgpu.learn.Chains(blocks=5, n_chains=4, tolerance=0.01)
    found = jtgpu.learn.posterior(data, method="mcmc", chains=chains, seed=2)
    exact = jtgpu.learn.posterior(data)
    np.testing.assert_allclose(found.edge_probabilities.values, exact.edge_probabilities.values, atol=0.05)
    assert found.method == "partition MCMC with blocks"
    again = jtgpu.learn.posterior(data, method="mcmc", chains=chains, seed=2, compute=jtgpu.Compute(threads=1))
    np.testing.assert_array_equal(again.edge_probabilities.values, found.edge_probabilities.values)


@pytest.mark.parametrize("options", [
    {"chains": jtgpu.learn.Chains(blocks=5, tempering=4)}, {"chains": jtgpu.learn.Chains(blocks=5), "compute": "gpu"},
    {"chains": jtgpu.learn.Chains(blocks=5), "graph_prior": "order"},
])  # fmt: skip
def test_what_blocks_do_not_go_with(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ArgumentError, match="without tempering"):
        jtgpu.learn.posterior(example(), **options)


def test_dependence_by_paths() -> None:
    """Variables that depend on members of a block through others, by enumeration of paths."""
    from jtgpu.learn.dags.chains.blocks import _BitGraph

    candidates = np.array([[u for u in range(5) if u != v] for v in range(5)])
    arcs = {(0, 1), (1, 2), (2, 3), (0, 4)}
    bits = np.array([sum(1 << j for j, u in enumerate(row) if (int(u), v) in arcs) for v, row in enumerate(candidates)])
    reached = _BitGraph(bits, candidates).reached([0, 3])
    for w in (1, 2, 4):
        by_paths = any(
            all(arc in arcs for arc in itertools.pairwise((0, *path, w)))
            for k in range(3) for path in itertools.permutations({1, 2, 4} - {w}, k)
        )  # fmt: skip
        assert reached[w] == int(by_paths)
    assert (reached[0], reached[3]) == (1, 2)
