"""The published ordering-MCMC system: its index, its scores, its incremental sums, on the CPU and an emulated GPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

import jtgpu
from jtgpu.device.context import open_device
from jtgpu.errors import ArgumentError, TableTooLarge
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.learn.dags.scores.ranks import family_of, n_parent_sets
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.published.ordering import CpuSums, OrderSums, aligned_rows, flip, start
from jtgpu.published.ordering_gpu import OrderKernels
from jtgpu.published.ordering_scores import members_of_ranks, ranges_of_node
from tests.learn.dags.data import random_table, table_of
from tests.support import structures_reference as reference
from tests.support.emulated.install import installed, needs_compiler
from tests.support.ulp import ulp_distance

published = jtgpu.published.ordering


@pytest.fixture(scope="module")
def gpu() -> Iterator[None]:
    with installed():
        yield


def chain_table(n: int = 6, n_rows: int = 80) -> CodedTable:
    return random_table(11, n=n, n_rows=n_rows, most=3)


def test_published_sizes_and_times_follow_from_the_number_of_scores() -> None:
    printed = {(20, 3): 371.52e-3, (100, 3): 258.88, (300, 3): 5.94 * 3600, (10, 4): 59.11e-3, (200, 4): 3.44 * 86400}
    for (n, k), seconds in printed.items():
        assert published.published_seconds(n, k) == pytest.approx(seconds, rel=0.25 if k == 4 and n == 10 else 0.02)
    assert published.table_bytes(10, 3) == 5200
    assert published.table_bytes(140, 4) // 4 == 2_147_508_440  # beyond 31 bits
    with pytest.raises(ArgumentError, match="3 and 4"):
        published.published_seconds(10, 2)


@pytest.mark.parametrize("n_rows", [1, 15, 16, 17])
def test_rows_are_aligned_and_padded(n_rows: int) -> None:
    codes = np.random.default_rng(n_rows).integers(0, 9, (3, n_rows)).astype(np.uint8)
    rows = aligned_rows(codes)
    assert all(row.ctypes.data % 32 == 0 for row in rows)
    assert rows.shape[1] % 16 == 0
    np.testing.assert_array_equal(rows[:, :n_rows], codes)
    assert not rows[:, n_rows:].any()


def test_ranks_give_every_set_once() -> None:
    for size in range(5):
        found = members_of_ranks(0, math.comb(8, size), size, 8)
        assert sorted(map(tuple, found.tolist())) == sorted(itertools.combinations(range(8), size))


def test_ranges_with_a_new_predecessor() -> None:
    for first_new in range(1, 6):
        found = {
            tuple(s) for r in ranges_of_node(9, first_new, 6, 3)
            for s in members_of_ranks(r.begin, r.end, r.size, r.n_predecessors).tolist()
        }  # fmt: skip
        sets = [s for size in range(4) for s in itertools.combinations(range(6), size)]
        expected = {s for s in sets if max(s, default=-1) >= first_new}
        assert found == expected


@pytest.mark.parametrize("score", ["bdeu", "k2", "bic"])
def test_scores_are_those_of_the_definition(score: str) -> None:
    table = chain_table()
    cache = published.score_cache(table, 3, score=score)
    for index, found in enumerate(cache.scores.tolist()):
        v, parents = family_of(index, 6, 3)
        counts = reference.family_counts(table, v, parents)
        expected = reference.family_score(counts, ScoreRule(score), table.n_cases)
        assert ulp_distance(np.float32(found), np.float32(expected)) <= 1


@needs_compiler
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("score", ["bdeu", "k2", "bic"])
def test_kernels_agree_with_their_twin_to_one_ulp(score: str) -> None:
    table = chain_table(7, 150)
    on_cpu = published.score_cache(table, 4, score=score)
    on_gpu = published.score_cache(table, 4, score=score, backend="gpu")
    two = published.score_cache(table, 4, score=score, backend="gpu", devices=[0, 1])
    assert ulp_distance(on_gpu.scores, on_cpu.scores).max() <= 1
    np.testing.assert_array_equal(on_gpu.scores, two.scores)


def test_only_sets_of_moved_variables_are_summed() -> None:
    cache = published.score_cache(chain_table(8), 3)
    sums = CpuSums(cache)
    state = start(sums, np.arange(8), 3)
    assert state.n_summed == 162
    moved = flip(sums, state, 2, 5, 3)
    assert moved.n_summed == 53 - 4  # the published 53, less those that the variable at 5 had before
    np.testing.assert_allclose(moved.sums, start(sums, moved.order, 3).sums, rtol=1e-13)


def backends(cache: published.ScoreCache) -> Iterator[OrderSums]:
    yield CpuSums(cache)
    kernels = OrderKernels(cache, open_device())
    yield kernels
    kernels.close()


@needs_compiler
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("stored", [3, 1])
def test_sums_of_an_order_are_those_of_the_definition(stored: int) -> None:
    table = chain_table()
    cache = published.score_cache(table, 3, stored_parents=stored)
    weights = {f: float(np.float32(x)) for f, x in reference.score_all(table, ScoreRule(), 3).items()}
    order = np.array([3, 0, 5, 1, 4, 2])
    for sums in backends(cache):
        state = start(sums, order, 3)
        assert state.log_score == pytest.approx(reference.order_score(weights, order.tolist()), rel=1e-6)
        for i, j in itertools.combinations(range(6), 2):
            moved = flip(sums, state, i, j, 3)
            np.testing.assert_allclose(moved.sums, start(sums, moved.order, 3).sums, rtol=1e-12)
        ranges = [r for p in range(6) for r in ranges_of_node(int(order[p]), 0, p, 3)]
        edges = sums.edges(order, ranges, state.sums)
        for v in range(6):
            before = set(order[: order.tolist().index(v)].tolist())
            for u in before:
                expected = reference.hit(weights, v, u, before) - reference.tau(weights, v, before)
                assert edges[u, v] == pytest.approx(math.exp(expected), abs=1e-5)


@needs_compiler
@pytest.mark.usefixtures("gpu")
def test_chains_of_both_backends_take_the_same_steps() -> None:
    cache = published.score_cache(chain_table(), 2)
    on_cpu = published.sample_orders(cache, 40, seed=3)
    on_gpu = published.sample_orders(cache, 40, seed=3, backend="gpu")
    np.testing.assert_array_equal(on_gpu.orders, on_cpu.orders)
    np.testing.assert_allclose(on_gpu.edges, on_cpu.edges, atol=1e-9)
    np.testing.assert_allclose(on_gpu.log_scores, on_cpu.log_scores, rtol=1e-12)
    assert on_gpu.n_summed == on_cpu.n_summed


def test_chain_samples_the_posterior_over_orders() -> None:
    table = random_table(4, n=4, n_rows=30, most=2)
    cache = published.score_cache(table, 3)
    weights = {f: float(np.float32(x)) for f, x in reference.score_all(table, ScoreRule(), 3).items()}
    exact, total = np.zeros((4, 4)), 0.0
    orders = list(itertools.permutations(range(4)))
    scores = np.array([reference.order_score(weights, o) for o in orders])
    for order, share in zip(orders, np.exp(scores - scores.max()), strict=True):
        total += share
        for p, v in enumerate(order):
            before = set(order[:p])
            for u in before:
                arc = reference.hit(weights, v, u, before) - reference.tau(weights, v, before)
                exact[u, v] += share * math.exp(arc)
    found = published.sample_orders(cache, 1200, thin=4, seed=0)
    np.testing.assert_allclose(found.edges, exact / total, atol=0.05)


def test_published_system_refuses_what_it_cannot_do() -> None:
    table = chain_table()
    with pytest.raises(ArgumentError, match="'bds'"):
        published.score_cache(table, 2, score="bds")
    with pytest.raises(ArgumentError, match="weights"):
        published.score_cache(table_of([[0, 1], [1, 0]], [2, 2], [1, 2]), 1)
    with pytest.raises(TableTooLarge, match="lower max_parents"):
        published.score_cache(table, 3, memory_limit=100)
    assert n_parent_sets(6, 3) * 6 == len(published.score_cache(table, 3).scores)
