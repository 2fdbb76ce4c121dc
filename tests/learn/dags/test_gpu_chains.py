"""Chains over orders and partitions on emulated GPUs against those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jtgpu.errors import TableTooLarge
from jtgpu.learn.dags.best_graph import graph_of_order
from jtgpu.learn.dags.candidate_tables import CandidateTables, candidate_tables, choose_candidates, family_weights
from jtgpu.learn.dags.chains import gpu_chains as base
from jtgpu.learn.dags.chains import partitions
from jtgpu.learn.dags.chains.gpu_chains import GpuOrderChains, GpuPartitionChains
from jtgpu.learn.dags.chains.gpu_movers import start_replicas, without_outer_sets
from jtgpu.learn.dags.chains.orders import (
    OrderSampler,
    run_chains,
    run_corrected_chains,
    start_chains,
    steps_between_samples,
)
from jtgpu.learn.dags.constraints import make_constraints, make_prior
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import score_families
from jtgpu.learn.dags.set_tables import outer_sets, set_tables
from tests.learn.dags.data import random_table
from tests.support.emulated.install import installed, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(autouse=True, scope="module")
def emulated() -> Iterator[None]:
    with installed():
        yield


def make_tables(n: int, k: int) -> tuple[CandidateTables, np.ndarray, np.ndarray]:
    """Tables, weights of all sets of at most two parents, and orders."""
    table = random_table(n, n=n, n_rows=120, most=3)
    constraints, prior = make_constraints(table.names, 2), make_prior("order", n)
    rows = family_weights(score_families(table, ScoreRule(), 2), prior, constraints)
    tables = candidate_tables(table, ScoreRule(), prior, constraints, choose_candidates(rows, 2, k, constraints), 2)
    return tables, rows, start_chains(constraints, 3, 7).order


def make_sampler(tables: CandidateTables) -> OrderSampler:
    return OrderSampler(tables, tables.sums(), tables.hits(), 7)


def best_graphs(tables: CandidateTables, orders: np.ndarray) -> np.ndarray:
    """Parents of the best graph of each order as bits."""
    found = [graph_of_order(tables, order).parents for order in orders]
    rows = [[sum(tables.bit_in[u, v] for u in own) for v, own in enumerate(graph)] for graph in found]
    return np.array(rows, np.int64)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(5, 4), (34, 5)])
def test_chains_on_gpus_are_those_of_the_cpu(n: int, k: int) -> None:
    tables, _, order = make_tables(n, k)
    sampler = make_sampler(tables)
    engine = GpuOrderChains(set_tables(tables), 7, replicas=1)
    state = engine.start(order)
    expected, info = run_chains(sampler, state, 300, 50)
    found, trace = engine.run(state, 300, 50)
    np.testing.assert_array_equal(found.order, expected.order)
    np.testing.assert_allclose(trace, info.trace[:, -1], rtol=1e-12)
    np.testing.assert_allclose(found.arcs / 2.0**32, expected.arcs / 2.0**32, atol=1e-8)
    assert (found.n_steps, found.n_samples) == (expected.n_steps, expected.n_samples)
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(8, 3), (40, 3)])
def test_chains_with_outer_sets_are_those_of_the_cpu(n: int, k: int) -> None:
    tables, rows, order = make_tables(n, k)
    set_sums = set_tables(tables, outer_sets(rows, 2, tables.candidates))
    assert set_sums.outer_units.shape[1]
    engine = GpuOrderChains(set_sums, 7, replicas=1)
    state, thin = engine.start(order), steps_between_samples(set_sums)
    expected, of_all = run_corrected_chains(make_sampler(tables), set_sums, state, 6 * thin, thin)
    found, trace = engine.run(state, 2 * thin, thin)
    found, trace = engine.run(found, 4 * thin, thin)
    np.testing.assert_array_equal(found.order, expected.order)
    np.testing.assert_allclose(trace, of_all[:, -1], rtol=1e-12)
    np.testing.assert_allclose(found.arcs / 2.0**32, expected.arcs / 2.0**32, atol=1e-8)
    engine.close()


@pytest.mark.slow
def test_chains_do_not_depend_on_gpus_and_calls() -> None:
    tables, _, order = make_tables(6, 5)
    given = set_tables(tables), 7
    one, two = GpuOrderChains(*given, replicas=3), GpuOrderChains(*given, replicas=3, devices=[0, 1])
    whole, trace = one.run(one.start(order), 60, 10)
    half, _ = two.run(two.start(order), 20, 10)
    parts, again = two.run(half, 40, 10)
    np.testing.assert_array_equal(whole.order, parts.order)
    np.testing.assert_array_equal(whole.arcs, parts.arcs)
    np.testing.assert_array_equal(trace, again)
    assert whole.n_samples == parts.n_samples == 18
    one.close()
    two.close()


@pytest.mark.slow
def test_replicas_start_from_graphs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REPLICAS", 20)
    tables, rows, order = make_tables(8, 3)
    set_sums = set_tables(tables, outer_sets(rows, 2, tables.candidates))
    inner, alone = without_outer_sets(set_sums), set_tables(tables)
    for name in ("sums", "hits", "outer_ends", "outer_ratios"):
        np.testing.assert_array_equal(getattr(inner, name), getattr(alone, name))
    n_sets = inner.masks.shape[1]
    np.testing.assert_array_equal(inner.masks, alone.masks[:, :n_sets])
    np.testing.assert_array_equal(inner.weights, alone.weights[:, :n_sets])
    first = start_chains(make_constraints("abcdefgh", 2), 3, 7)._replace(order=order)
    found = start_replicas(set_sums, first, 7)
    assert found.part.shape == (3 * base.REPLICAS, 8)
    assert len(np.unique(found.parents, axis=0)) > 10
    for part, parents in zip(found.part, found.parents, strict=True):
        np.testing.assert_array_equal(part, partitions.parts_of(parents, inner.candidates))


@pytest.mark.slow
def test_replicas_differ() -> None:
    tables, _, order = make_tables(6, 5)
    engine = GpuOrderChains(set_tables(tables), 7, replicas=4)
    found, _ = engine.run(engine.start(order[:1]), 30, 10)
    assert len(np.unique(found.order, axis=0)) > 1
    engine.close()


def test_tables_that_exceed_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, _, _ = make_tables(5, 4)
    monkeypatch.setattr(base, "SHARE", 1e-9)
    with pytest.raises(TableTooLarge, match="fewer candidates"):
        GpuOrderChains(set_tables(tables), 7)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "has_outer"), [(5, 4, False), (34, 5, False), (8, 3, True), (40, 3, True)])
def test_chains_over_partitions_on_gpus_are_those_of_the_cpu(n: int, k: int, has_outer: bool) -> None:
    tables, rows, order = make_tables(n, k)
    outer = outer_sets(rows, 2, tables.candidates) if has_outer else None
    set_sums = set_tables(tables, outer)
    assert bool(set_sums.outer_units.shape[1]) == has_outer
    first = partitions.start_chains(best_graphs(tables, order), set_sums.candidates)
    engine = GpuPartitionChains(set_sums, 7, replicas=1)
    state = engine.start(first)
    expected, info = partitions.run_chains(partitions.PartitionSampler(set_sums, 7), state, 400, 20)
    found, trace, best, best_weight = engine.run(state, 400, 20)
    engine.close()
    np.testing.assert_array_equal(found.part, expected.part)
    np.testing.assert_array_equal(found.parents, expected.parents)
    np.testing.assert_array_equal(found.moves, expected.moves)
    np.testing.assert_allclose(trace, info.trace[:, -1], rtol=1e-12)
    np.testing.assert_array_equal(best, info.best)
    np.testing.assert_allclose(best_weight, info.best_weight, rtol=1e-12)
    np.testing.assert_allclose(found.arcs / 2.0**32, expected.arcs / 2.0**32, atol=1e-8)


@pytest.mark.slow
def test_chains_over_partitions_do_not_depend_on_gpus_and_calls() -> None:
    tables, _, order = make_tables(6, 5)
    set_sums = set_tables(tables)
    first = partitions.start_chains(best_graphs(tables, order), tables.candidates)
    one, two = GpuPartitionChains(set_sums, 7, replicas=2), GpuPartitionChains(set_sums, 7, replicas=2, devices=[0, 1])
    whole, *_ = one.run(one.start(first), 60, 10)
    half, *_ = two.run(two.start(first), 20, 10)
    parts, *_ = two.run(half, 40, 10)
    one.close()
    two.close()
    np.testing.assert_array_equal(whole.arcs, parts.arcs)
    np.testing.assert_array_equal(whole.part, parts.part)
    np.testing.assert_array_equal(whole.moves, parts.moves)
