"""Equal rows of tables: every kind found, by rows and by columns, with several threads and with colliding hashes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu.util import rows
from jtgpu.util.rows import EqualRows, find_equal_rows


def hold(found: EqualRows | None, *tables: NDArray[Any]) -> None:
    """Every row equals the first of its kind, and kinds differ."""
    assert found is not None
    whole = np.hstack([t.astype(np.float64) for t in tables])
    np.testing.assert_array_equal(whole[found.first[found.kind]], whole)
    assert len(np.unique(whole, axis=0)) == len(found.first)
    assert (np.diff(found.first) > 0).all()
    np.testing.assert_array_equal(found.kind[found.first], np.arange(len(found.first)))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("width", [1, 3, 8, 9, 37])
@pytest.mark.parametrize("by_columns", [False, True])
def test_rows_of_integers(dtype: Any, width: int, by_columns: bool) -> None:
    rng = np.random.default_rng(width)
    kinds = rng.integers(0, 5, (200, width)).astype(dtype)
    table = kinds[rng.integers(0, 200, 3000)]
    given = np.ascontiguousarray(table.T).T if by_columns else table
    hold(find_equal_rows(given), table)
    hold(find_equal_rows(given, min_saving=0.05), table)


def test_rows_of_integers_and_weights() -> None:
    rng = np.random.default_rng(1)
    states, weights = rng.integers(-1, 2, (3000, 2)).astype(np.int32), rng.integers(0, 3, (3000, 2)) / 4
    weights[::7] = -0.0  # equals 0.0
    hold(find_equal_rows(states, weights), states, weights)
    assert find_equal_rows(states, rng.random((3000, 2))) is None


@pytest.mark.parametrize("n", [0, 1, 2])
def test_small_tables(n: int) -> None:
    assert find_equal_rows(np.arange(3 * n).reshape(n, 3)) is None
    found = find_equal_rows(np.zeros((n, 0), np.int8))
    assert (found is None) == (n < 2)
    if found is not None:
        assert found.first.tolist() == [0]
        assert found.kind.tolist() == [0, 0]


def test_equal_hashes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_hashes", lambda tables, each: np.zeros(len(tables[0]), np.uint64))
    table = np.arange(900).reshape(-1, 3)
    table[200] = table[0]
    hold(find_equal_rows(table), table)
    hold(find_equal_rows(np.asfortranarray(table)), table)


def test_threads_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    table = rng.integers(-1, 4, (1234, 30)).astype(np.int8)
    table = table[rng.integers(0, 1234, 5000)]
    expected = find_equal_rows(table)
    monkeypatch.setattr(rows, "BLOCK", 100)
    with ThreadPoolExecutor(3) as pool:
        found = find_equal_rows(table, mapper=pool.map)
    assert expected is not None
    assert found is not None
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_search_that_cannot_pay_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    real = rows._hashes

    def counting(tables: Any, each: Any) -> Any:
        hashed.append(len(tables[0]))
        return real(tables, each)

    monkeypatch.setattr(rows, "_hashes", counting)
    rng = np.random.default_rng(3)
    different = rng.integers(0, 100, (100_000, 9)).astype(np.int8)
    assert find_equal_rows(different, min_saving=0.05) is None
    assert sum(hashed) < 5000
    assert find_equal_rows(different[rng.integers(0, 10, 100_000)], min_saving=1.0) is None  # never worth it
    few = different.copy()
    few[:10] = few[10:20]
    assert find_equal_rows(few, min_saving=0.05) is None
    hold(find_equal_rows(few), few)
