"""Structure learning on the real device: score tables and the published kernels, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.device.context import Device, device_numbers, open_device
from jtgpu.learn.dags.best_graph import exact_best
from jtgpu.learn.dags.candidate_tables import all_parents, candidate_tables, choose_candidates, family_weights
from jtgpu.learn.dags.chains import partitions
from jtgpu.learn.dags.chains.gpu_chains import GpuOrderChains, GpuPartitionChains
from jtgpu.learn.dags.chains.orders import (
    OrderSampler,
    run_chains,
    run_corrected_chains,
    start_chains,
    steps_between_samples,
)
from jtgpu.learn.dags.constraints import make_constraints, make_prior
from jtgpu.learn.dags.exact import exact_by_orders, exact_by_partitions
from jtgpu.learn.dags.gpu_exact import GpuExact, partitions_on_gpu
from jtgpu.learn.dags.gpu_exact_orders import best_order, orders_on_gpu
from jtgpu.learn.dags.scores.ranks import parent_masks
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import score_families
from jtgpu.learn.dags.set_tables import outer_sets, set_tables
from jtgpu.published.ordering import CpuSums, flip, start
from jtgpu.published.ordering_gpu import OrderKernels
from tests.learn.dags.data import random_table, table_of
from tests.support.ulp import ulp_distance

pytestmark = pytest.mark.usefixtures("gpu")
published = jtgpu.published.ordering


@pytest.mark.parametrize("score", ["bdeu", "k2", "bic"])
@pytest.mark.parametrize(
    ("n", "n_rows", "k", "weighted"), [(30, 1000, 3, False), (14, 3000, 4, True), (9, 65, 5, False)]
)
def test_scores_are_those_of_the_cpu(score: Any, n: int, n_rows: int, k: int, weighted: bool) -> None:
    table = random_table(n, n=n, n_rows=n_rows, most=4, weighted=weighted)
    expected = score_families(table, ScoreRule(score), k).scores
    found = score_families(table, ScoreRule(score), k, backend="gpu").scores
    again = score_families(table, ScoreRule(score), k, backend="gpu").scores
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()
    np.testing.assert_array_equal(found, again)


def test_rows_of_large_tables_are_scanned() -> None:
    rng = np.random.default_rng(0)
    cards = [2, 30, 3, 12, 9, 40, 200, 4]
    table = table_of(np.array([rng.integers(0, r, 5000) for r in cards]), cards)
    expected = score_families(table, ScoreRule(), 3).scores
    found = score_families(table, ScoreRule(), 3, backend="gpu").scores
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_scores_do_not_depend_on_the_number_of_gpus() -> None:
    devices = device_numbers("all")
    table = random_table(3, n=25, n_rows=400)
    one = score_families(table, ScoreRule(), 3, backend="gpu", devices=[devices[0]]).scores
    several = score_families(table, ScoreRule(), 3, backend="gpu", devices=devices if devices[1:] else [0, 0]).scores
    np.testing.assert_array_equal(one, several)


@pytest.mark.parametrize(("n", "k"), [(12, 8), (70, 9)])
def test_chains_over_orders_are_those_of_the_cpu(n: int, k: int) -> None:
    table = random_table(n, n=n, n_rows=200, most=3)
    constraints, prior = make_constraints(table.names, 2), make_prior("order", n)
    rows = family_weights(score_families(table, ScoreRule(), 2), prior, constraints)
    chosen = choose_candidates(rows, 2, k, constraints)
    tables = candidate_tables(table, ScoreRule(), prior, constraints, chosen, 2)
    sums, hits = tables.sums(), tables.hits()
    engine = GpuOrderChains(set_tables(tables), 7, replicas=1)
    state = engine.start(start_chains(constraints, 6, 7).order)
    expected, info = run_chains(OrderSampler(tables, sums, hits, 7), state, 1000, 50)
    found, trace = engine.run(state, 1000, 50)
    engine.close()
    np.testing.assert_array_equal(found.order, expected.order)
    np.testing.assert_allclose(trace, info.trace[:, -1], rtol=1e-12)
    np.testing.assert_allclose(found.arcs / 2.0**32, expected.arcs / 2.0**32, atol=1e-6)


def test_chains_over_orders_with_outer_sets_are_those_of_the_cpu() -> None:
    n, k = 40, 5
    table = random_table(n, n=n, n_rows=200, most=3)
    constraints, prior = make_constraints(table.names, 2), make_prior("order", n)
    rows = family_weights(score_families(table, ScoreRule(), 2), prior, constraints)
    dense = candidate_tables(table, ScoreRule(), prior, constraints, choose_candidates(rows, 2, k, constraints), 2)
    tables = set_tables(dense, outer_sets(rows, 2, dense.candidates))
    engine, thin = GpuOrderChains(tables, 7, replicas=1), steps_between_samples(tables)
    state = engine.start(start_chains(constraints, 6, 7).order)
    sampler = OrderSampler(dense, tables.sums, tables.hits, 7)
    expected, of_all = run_corrected_chains(sampler, tables, state, 10 * thin, thin)
    found, trace = engine.run(state, 10 * thin, thin)
    engine.close()
    np.testing.assert_array_equal(found.order, expected.order)
    np.testing.assert_allclose(trace, of_all[:, -1], rtol=1e-12)
    np.testing.assert_allclose(found.arcs / 2.0**32, expected.arcs / 2.0**32, atol=1e-6)


@pytest.mark.parametrize(("n", "k"), [(12, 8), (70, 9)])
def test_chains_over_partitions_are_those_of_the_cpu(n: int, k: int) -> None:
    table = random_table(n, n=n, n_rows=200, most=3)
    constraints, prior = make_constraints(table.names, 2), make_prior("uniform", n)
    rows = family_weights(score_families(table, ScoreRule(), 2), prior, constraints)
    chosen = choose_candidates(rows, 2, k, constraints)
    tables = set_tables(candidate_tables(table, ScoreRule(), prior, constraints, chosen, 2))
    engine = GpuPartitionChains(tables, 7, replicas=1)
    state = engine.start(partitions.start_chains(np.zeros((6, n), np.int64), tables.candidates))
    expected, info = partitions.run_chains(partitions.PartitionSampler(tables, 7), state, 1000, 50)
    found, trace, best, _ = engine.run(state, 1000, 50)
    engine.close()
    np.testing.assert_array_equal(found.part, expected.part)
    np.testing.assert_array_equal(found.moves, expected.moves)
    np.testing.assert_allclose(trace, info.trace[:, -1], rtol=1e-12)
    np.testing.assert_array_equal(best, info.best)
    np.testing.assert_allclose(found.arcs / 2.0**32, expected.arcs / 2.0**32, atol=1e-6)


@pytest.mark.parametrize(("n", "by_orders"), [(6, True), (14, True), (17, True), (6, False), (11, False)])
def test_exact_posteriors_are_those_of_the_cpu(gpu: Device, n: int, by_orders: bool) -> None:
    table = random_table(n, n=n, n_rows=300, most=3)
    weights = family_weights(
        score_families(table, ScoreRule(), 3), make_prior("uniform", n), make_constraints(table.names, 3)
    )
    masks, device = parent_masks(n, 3), open_device(gpu.ordinal)
    u = np.random.default_rng(0).random((n + (not by_orders), 100))
    exact: Any = orders_on_gpu if by_orders else partitions_on_gpu
    expected = exact_by_orders(weights, masks) if by_orders else exact_by_partitions(weights, masks)
    (found, draws), (again, more) = exact(device, weights, masks, u), exact(device, weights, masks, u)
    np.testing.assert_allclose(found.families, expected.families, rtol=0, atol=1e-11)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    np.testing.assert_array_equal(found.families, again.families)
    np.testing.assert_array_equal(draws.before, more.before)
    assert (best_order(device, weights, masks) == exact_best(weights, masks).order).all()


@pytest.mark.parametrize(("n", "prior"), [(17, "order"), (14, "uniform")])
def test_exact_posteriors_of_many_variables_add_up(n: int, prior: Any) -> None:
    table = random_table(n, n=n, n_rows=300, most=3)
    found = jtgpu.learn.posterior(table, graph_prior=prior, compute="gpu")
    assert found.method == "exact"
    weights = family_weights(
        score_families(table, ScoreRule(), 4), make_prior(prior, n), make_constraints(table.names, 4)
    )
    exact, graphs = GpuExact(None, prior == "order", 0).posterior(all_parents(weights, parent_masks(n, 4)), 2000)
    np.testing.assert_allclose(exact.families.sum(axis=1), 1.0, atol=1e-10)
    drawn = np.array(
        [[(graphs[:, v] >> u - (u > v) & 1).mean() if u != v else 0.0 for v in range(n)] for u in range(n)]
    )
    assert np.abs(drawn - found.edge_probabilities.values).max() < 0.06


@pytest.mark.parametrize("score", ["bdeu", "k2", "bic"])
def test_published_kernels_agree_with_their_twin_to_one_ulp(score: Any) -> None:
    table = random_table(5, n=14, n_rows=500, most=4)
    expected = published.score_cache(table, 3, score=score)
    found = published.score_cache(table, 3, score=score, backend="gpu")
    assert ulp_distance(found.scores, expected.scores).max() <= 1


@pytest.mark.parametrize("stored", [3, 2])
def test_published_orders_are_summed_as_on_the_cpu(gpu: Device, stored: int) -> None:
    cache = published.score_cache(random_table(6, n=12, n_rows=200), 3, stored_parents=stored)
    order = np.random.default_rng(0).permutation(12)
    kernels = OrderKernels(cache, open_device(gpu.ordinal))
    try:
        found, expected = start(kernels, order, 3), start(CpuSums(cache), order, 3)
        np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-12)
        moved = flip(kernels, found, 2, 9, 3)
        np.testing.assert_allclose(moved.sums, flip(CpuSums(cache), expected, 2, 9, 3).sums, rtol=1e-12)
    finally:
        kernels.close()


def test_published_chains_of_both_backends_take_the_same_steps() -> None:
    cache = published.score_cache(random_table(7, n=10, n_rows=150), 3)
    on_cpu = published.sample_orders(cache, 60, seed=1)
    on_gpu = published.sample_orders(cache, 60, seed=1, backend="gpu")
    np.testing.assert_array_equal(on_gpu.orders, on_cpu.orders)
    np.testing.assert_allclose(on_gpu.edges, on_cpu.edges, atol=1e-9)


@pytest.mark.parametrize(("n", "k"), [(40, 3), (20, 5), (9, 0)])
def test_scores_of_numbers_are_those_of_the_cpu(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(1000, n)) @ rng.normal(size=(n, n))
    expected = jtgpu.learn.score_table(x, score="bge", max_parents=k).scores
    found, again = (jtgpu.learn.score_table(x, score="bge", max_parents=k, compute="gpu").scores for _ in range(2))
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()
    np.testing.assert_array_equal(found, again)
