"""The published algorithms against today's, with tests of the defects that were fixed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jtgpu import DataError, screen
from jtgpu.published import outliers as published
from jtgpu.published.outliers import SELECTIONS, select

SEARCHES = [
    published.nested_loop,
    published.chunked_nested_loop,
    published.solving_set,
    published.distributed_solving_set,
    published.lazy_distributed_solving_set,
]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(("n_rows", "n", "k"), [(4, 1, 3), (60, 3, 5), (60, 60, 60), (70, 7, 1), (69, 10, 21)])
def test_searches_find_the_same_rows(search: Callable[..., published.Published], n_rows: int, n: int, k: int) -> None:
    x = np.random.default_rng(n_rows).integers(-4, 5, (n_rows, 2)).astype(float)
    found = search(x, n, k)
    wanted = screen.top_outliers(x, n, k, compute="reference")
    assert found.index.tolist() == wanted.index.tolist()
    np.testing.assert_allclose(found.weight, wanted.weight, rtol=1e-14)
    assert set(found.index.tolist()) <= set(found.solving_set.tolist())


def test_a_list_of_fewer_than_k_distances_is_no_bound() -> None:
    """Printed, the sum of such a list counts as a bound, and rows of a micro-cluster are lost."""
    rng = np.random.default_rng(1)
    for seed in range(20):
        x = np.concatenate([rng.standard_normal((80, 2)), 30 + 1e-3 * rng.standard_normal((4, 2))])
        found = published.solving_set(x, 4, 6, m=3, seed=seed)
        assert sorted(found.index.tolist()) == [80, 81, 82, 83]


def test_a_chunk_on_the_diagonal_counts_once() -> None:
    x = np.arange(10.0).reshape(-1, 1)
    for chunk in (1, 3, 4, 10, 99):
        found = published.chunked_nested_loop(x, 10, 3, chunk)
        assert sorted(found.weight.tolist()) == [2.0] * 8 + [3.0, 3.0]


def test_lazy_nodes_send_less() -> None:
    x = np.random.default_rng(2).standard_normal((400, 3))
    eager = published.distributed_solving_set(x, 5, 40, m=20, nodes=10)
    lazy = published.lazy_distributed_solving_set(x, 5, 40, m=20, nodes=10)
    assert lazy.messages < eager.messages
    assert lazy.index.tolist() == eager.index.tolist()
    assert len(eager.solving_set) < len(x)


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize(("d", "k"), [(500, 50), (501, 5), (70, 70), (63, 10), (1, 1), (200, 1)])
@pytest.mark.parametrize("n_threads", [1, 64])
def test_selections_read_every_number_once(name: str, d: int, k: int, n_threads: int) -> None:
    """Printed, some kernels skip the last columns, read heaps twice, or fill buffers beyond their end."""
    rng = np.random.default_rng(d)
    for table in (rng.random((2, d)), np.sort(rng.random((1, d)))[:, ::-1], rng.integers(0, 5, (2, d))):
        np.testing.assert_array_equal(select(name, table, k, n_threads), np.sort(table, axis=1)[:, :k])


def test_errors() -> None:
    with pytest.raises(DataError, match="d of at least k=3"):
        select("kato", np.zeros((1, 2)), 3)
    with pytest.raises(DataError, match="power of two"):
        select("kato", np.zeros((1, 2)), 1, 48)
    with pytest.raises(ValueError, match="did you mean 'kato'"):
        select("kat", np.zeros((1, 2)), 1)
    with pytest.raises(DataError, match="at least n=5"):
        published.nested_loop(np.zeros((3, 1)), 5, 2)
