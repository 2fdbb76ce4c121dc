"""Tables looked through and copied by several threads: the same as by one."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from jtgpu.backends.gpu.batch import rows as batch_rows
from jtgpu.util import rows


@pytest.fixture(params=["small", "large"], autouse=True)
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are for threads, too, and are cut into many pieces."""
    if request.param == "large":
        for name, value in (("LARGE", 64), ("OWN", 32), ("PIECE", 96)):
            monkeypatch.setattr(rows, name, value)
        monkeypatch.setattr(batch_rows, "WIDE", 160)
        monkeypatch.setattr("os.cpu_count", lambda: 3)


@pytest.mark.parametrize("n", [0, 1, 2, 33, 1000])
def test_extremes(n: int) -> None:
    table = np.random.default_rng(n).integers(-50, 50, (n, 7)).astype(np.int32)
    low, high = rows.extremes(table)
    np.testing.assert_array_equal(low, np.minimum(table.min(axis=0, initial=0), 0))
    np.testing.assert_array_equal(high, np.maximum(table.max(axis=0, initial=0), 0))
    for at in range(0, n, 97):  # wherever it stands
        other = table.copy()
        other[at, 3] = 99
        assert rows.extremes(other)[1][3] == 99


@pytest.mark.parametrize("shape", [(0, 5), (300, 5), (300, 0), (300,)])
def test_rows_are_taken(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    table = rng.random(shape)
    some = rng.integers(0, max(len(table), 1), 1000 if len(table) else 0)
    np.testing.assert_array_equal(rows.taken(table, some), table[some])


def test_equal_rows_are_found() -> None:
    rng = np.random.default_rng(2)
    card = np.full(6, 9)
    different = np.unique(rng.integers(0, 9, (400, 6)).astype(np.int32), axis=0)
    assert batch_rows.read_rows(different, None, card, merge=True).place is None
    table = different[rng.integers(0, len(different), 3000)]
    found = batch_rows.read_rows(table, None, card, merge=True)
    assert found.place is not None
    assert len(found.states) == len(np.unique(table, axis=0))
    np.testing.assert_array_equal(found.states[found.place], table)
    assert (found.states[0] == table[0]).all()  # in the order in which they come


def test_equal_hashes_are_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(table: Any, each: Any) -> Any:
        return np.zeros(len(table), np.uint64)

    monkeypatch.setattr(batch_rows, "_hashes", same)
    table = np.arange(900, dtype=np.int32).reshape(-1, 3)
    found = batch_rows.read_rows(table, None, np.full(3, 900), merge=True)
    assert found.place is None
    np.testing.assert_array_equal(found.states, table)


def test_threads_are_gone_after_an_error() -> None:
    def fail(piece: int) -> None:
        raise ValueError("piece")

    with pytest.raises(ValueError, match="piece"), rows.threads_for(1 << 30) as each:
        list(each(fail, range(10)))
    assert not [t for t in threading.enumerate() if t.name.startswith("jtgpu-rows")]
