"""Exact posteriors against sums over all graphs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu.errors import NetworkError, TableTooLarge
from jtgpu.learn.dags.candidate_tables import family_weights
from jtgpu.learn.dags.constraints import make_constraints, make_prior
from jtgpu.learn.dags.exact import ExactPosterior, exact_by_orders, exact_by_partitions
from jtgpu.learn.dags.scores.ranks import family_of, n_parent_sets, parent_masks
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import score_families
from tests.learn.dags import oracle
from tests.learn.dags.data import random_table


def by_family(log_weights: NDArray[np.float64], n: int, k: int) -> dict[tuple[int, tuple[int, ...]], float]:
    return {family_of(i, n, k): float(x) for i, x in enumerate(log_weights.reshape(-1))}


def check(log_weights: NDArray[np.float64], n: int, k: int) -> None:
    masks = parent_masks(n, k)
    for found, by_orders in ((exact_by_orders, True), (exact_by_partitions, False)):
        posterior: ExactPosterior = found(log_weights, masks)
        log_z, families = oracle.posterior(by_family(log_weights, n, k), n, by_orders)
        assert posterior.log_evidence == pytest.approx(log_z, abs=1e-9)
        for family, p in by_family(posterior.families, n, k).items():
            assert p == pytest.approx(families.get(family, 0.0), abs=1e-11)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("spread", [1.0, 1000.0])
def test_random_weights(n: int, spread: float) -> None:
    rng = np.random.default_rng(n)
    for k in range(n):
        check(rng.normal(0.0, spread, (n, n_parent_sets(n, k))), n, k)


@pytest.mark.slow
def test_five_variables() -> None:
    check(np.random.default_rng(5).normal(0.0, 3.0, (5, n_parent_sets(5, 4))), 5, 4)


def test_data_with_priors_and_constraints() -> None:
    table = score_families(random_table(11, n=4, n_rows=40), ScoreRule("bdeu", 10.0), 3)
    for prior in ("uniform", "fair", ("edge", 0.1)):
        options: dict[str, Any]
        for options in ({}, {"forbidden": [("a", "b")], "required": [("c", "d")]}, {"tiers": [["d"], ["a", "b"]]}):
            constraints = make_constraints("abcd", 2, **options)
            check(family_weights(table, make_prior(prior, 4), constraints), 4, 3)


@pytest.mark.parametrize("n", [4, 5])
def test_flat_weights_are_counts_of_graphs(n: int) -> None:
    masks = parent_masks(n, n - 1)
    found = exact_by_partitions(np.zeros((n, len(masks))), masks)
    graphs = oracle.all_graphs(n)
    assert round(math.exp(found.log_evidence)) == len(graphs) == {4: 543, 5: 29281}[n]
    for i, p in enumerate(found.families.reshape(-1)):
        v, parents = family_of(i, n, n - 1)
        exact = Fraction(sum(graph[v] == parents for graph in graphs), len(graphs))
        assert p == pytest.approx(float(exact), abs=1e-13)


def test_one_order_makes_the_two_priors_equal() -> None:
    rng = np.random.default_rng(2)
    log_weights = rng.normal(0.0, 5.0, (6, n_parent_sets(6, 3)))
    for i in range(log_weights.size):
        v, parents = family_of(i, 6, 3)
        if (parents and parents[-1] > v) or (v and v - 1 not in parents):  # only the order 0, 1, ..., 5 is possible
            log_weights.reshape(-1)[i] = -np.inf
    masks = parent_masks(6, 3)
    orders, partitions = exact_by_orders(log_weights, masks), exact_by_partitions(log_weights, masks)
    assert orders.log_evidence == pytest.approx(partitions.log_evidence, abs=1e-10)
    assert orders.families == pytest.approx(partitions.families, abs=1e-12)


def test_permuted_variables_permute_the_posterior() -> None:
    n, k = 6, 2
    rng = np.random.default_rng(3)
    weights = by_family(rng.normal(0.0, 20.0, (n, n_parent_sets(n, k))), n, k)
    moved = rng.permutation(n)
    permuted = np.empty((n, n_parent_sets(n, k)))
    for i in range(permuted.size):
        v, parents = family_of(i, n, k)
        permuted.reshape(-1)[i] = weights[int(moved[v]), tuple(sorted(int(moved[u]) for u in parents))]
    plain = np.array([weights[family_of(i, n, k)] for i in range(permuted.size)]).reshape(permuted.shape)
    masks = parent_masks(n, k)
    for exact in (exact_by_orders, exact_by_partitions):
        first, second = by_family(exact(plain, masks).families, n, k), exact(permuted, masks).families
        for (v, parents), p in by_family(second, n, k).items():
            assert p == pytest.approx(first[int(moved[v]), tuple(sorted(int(moved[u]) for u in parents))], abs=1e-12)


def test_threads_give_the_same_bits() -> None:
    log_weights, masks = np.random.default_rng(4).normal(0.0, 9.0, (9, n_parent_sets(9, 3))), parent_masks(9, 3)
    first, *others = (exact_by_orders(log_weights, masks, threads=t).families for t in (1, 2, 3))
    assert all((first == other).all() for other in others)


def test_what_is_impossible() -> None:
    masks = parent_masks(3, 2)
    for exact in (exact_by_orders, exact_by_partitions):
        with pytest.raises(NetworkError, match="without a possible set of parents"):
            exact(np.full((3, len(masks)), -np.inf), masks)
        cyclic = np.full((3, len(masks)), -np.inf)
        cyclic[:, 1] = cyclic[:, 2] = 0.0  # every variable has exactly one parent
        with pytest.raises(NetworkError, match="no graph satisfies"):
            exact(cyclic, masks)
        with pytest.raises(TableTooLarge, match="at most"):
            exact(np.zeros((30, 1)), np.zeros(1, np.int64))
        with pytest.raises(TableTooLarge, match="limit is 10 B"):
            exact(np.zeros((3, len(masks))), masks, memory_limit=10)
