"""Exact posteriors on emulated GPUs against those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jtgpu.device.context import open_device
from jtgpu.errors import NetworkError, TableTooLarge
from jtgpu.learn.dags import gpu_exact as partitions
from jtgpu.learn.dags import gpu_exact_orders as orders
from jtgpu.learn.dags.best_graph import exact_best
from jtgpu.learn.dags.exact import draw_by_orders, draw_by_partitions, exact_by_orders, exact_by_partitions
from jtgpu.learn.dags.gpu_exact import GpuExact, partitions_on_gpu
from jtgpu.learn.dags.gpu_exact_orders import best_order, orders_on_gpu
from jtgpu.learn.dags.posterior.posterior import posterior
from jtgpu.learn.dags.scores.ranks import n_parent_sets, parent_masks
from tests.learn.dags.data import random_table
from tests.learn.dags.test_partitions import tables_of
from tests.learn.dags.test_reference_partitions import random_weights as random_dict
from tests.support.emulated.install import installed, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(autouse=True, scope="module")
def emulated() -> Iterator[None]:
    with installed():
        yield


def random_weights(n: int, k: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of which a tenth are 0, and the parent sets."""
    rng = np.random.default_rng(n)
    weights = rng.normal(0.0, spread, (n, n_parent_sets(n, k)))
    weights[:, 1:][rng.random((n, weights.shape[1] - 1)) < 0.1] = -np.inf
    return weights, parent_masks(n, k)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "spread"), [(2, 1, 1.0), (4, 3, 500.0), (5, 2, 3.0), (7, 3, 50.0), (9, 2, 5.0)])
def test_orders_are_those_of_the_cpu(n: int, k: int, spread: float) -> None:
    weights, masks = random_weights(n, k, spread)
    u = np.random.default_rng(1).random((n, 40))
    expected = exact_by_orders(weights, masks)
    found, draws = orders_on_gpu(open_device(), weights, masks, u)
    np.testing.assert_allclose(found.families, expected.families, rtol=0, atol=1e-11)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    assert (draws.before >= 0).all()
    assert (np.sort([[int(x).bit_count() for x in row] for row in draws.before.T]) == np.arange(n)).all()
    assert (best_order(open_device(), weights, masks) == exact_best(weights, masks).order).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "k", "spread"), [(1, 0, 1.0), (2, 1, 1.0), (3, 2, 1.0), (4, 3, 500.0), (5, 2, 3.0), (6, 5, 30.0), (8, 2, 5.0)]
)
def test_partitions_are_those_of_the_cpu(n: int, k: int, spread: float) -> None:
    weights, masks = random_weights(n, k, spread)
    expected = exact_by_partitions(weights, masks)
    found, _ = partitions_on_gpu(open_device(), weights, masks, np.random.default_rng(1).random((n + 1, 40)))
    np.testing.assert_allclose(found.families, expected.families, rtol=0, atol=1e-11)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)


@pytest.mark.slow
def test_derivatives_are_gathered_level_by_level(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, masks = random_weights(7, 3, 20.0)
    expected, _ = partitions_on_gpu(open_device(), weights, masks, np.empty((8, 0)))
    monkeypatch.setattr(partitions, "PART", 1 << 40)
    found, _ = partitions_on_gpu(open_device(), weights, masks, np.empty((8, 0)))
    np.testing.assert_allclose(found.families, expected.families, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_what_is_impossible_on_gpus() -> None:
    masks = parent_masks(3, 2)
    cyclic = np.full((3, len(masks)), -np.inf)
    cyclic[:, 1] = cyclic[:, 2] = 0.0  # every variable has exactly one parent
    for exact, rows in ((orders_on_gpu, 3), (partitions_on_gpu, 4)):
        with pytest.raises(NetworkError, match="no graph satisfies"):
            exact(open_device(), cyclic, masks, np.empty((rows, 0)))


def test_too_many_variables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, masks = random_weights(5, 2, 1.0)
    monkeypatch.setattr(orders, "SHARE", 1e-7)
    for exact, rows in ((orders_on_gpu, 5), (partitions_on_gpu, 6)):
        with pytest.raises(TableTooLarge, match="variables fit"):
            exact(open_device(), weights, masks, np.empty((rows, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("by_orders", [True, False])
def test_draws_are_those_of_the_cpu(by_orders: bool) -> None:
    tables = tables_of(random_dict(6, 1), 4)
    exact = exact_by_orders(tables.log_weights, tables.masks)
    expected = draw_by_orders(tables, exact, 500, 3) if by_orders else draw_by_partitions(tables, 500, 3)
    _, found = GpuExact(None, by_orders, 3).posterior(tables, 500)
    assert (found == expected).all(axis=1).mean() > 0.99


@pytest.mark.slow
def test_transforms_take_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "TILE", 4)
    monkeypatch.setattr(orders, "LINE", 2)
    weights, masks = random_weights(8, 2, 10.0)
    found, _ = orders_on_gpu(open_device(), weights, masks, np.empty((8, 0)))
    np.testing.assert_allclose(found.families, exact_by_orders(weights, masks).families, rtol=0, atol=1e-11)
    again, _ = orders_on_gpu(open_device(), weights, masks, np.empty((8, 0)))
    np.testing.assert_array_equal(found.families, again.families)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["order", "uniform"])
def test_posterior_is_exact_on_gpus(prior: Any) -> None:
    table = random_table(2, n=6, n_rows=60, most=3)
    expected = posterior(table, graph_prior=prior, max_parents=3)
    found = posterior(table, graph_prior=prior, max_parents=3, compute="gpu")
    assert found.method == "exact"
    np.testing.assert_allclose(found.edge_probabilities.values, expected.edge_probabilities.values, atol=1e-10)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    assert sorted(found.map.edges) == sorted(expected.map.edges)
    np.testing.assert_allclose(found.paths.values, expected.paths.values, atol=0.01)
    assert len(found.sample_dags(3000)) == 3000


def test_memory_of_many_variables() -> None:
    assert orders.bytes_for(28, n_parent_sets(28, 4)) < 40 << 30
    assert partitions.bytes_for(19, n_parent_sets(19, 4)) < 40 << 30
    assert partitions.bytes_for(17, n_parent_sets(17, 4)) < 6 << 30
