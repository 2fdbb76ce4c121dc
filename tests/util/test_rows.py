"""Tables read and copied by several threads: the same results as by one."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from jtgpu.util import rows


@pytest.fixture(params=["small", "large"], autouse=True)
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are for threads, too, and are cut into many pieces."""
    if request.param == "large":
        for name, value in (("LARGE", 64), ("OWN", 32), ("PIECE", 96)):
            monkeypatch.setattr(rows, name, value)
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
def test_take_rows(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    table = rng.random(shape)
    some = rng.integers(0, max(len(table), 1), 1000 if len(table) else 0)
    np.testing.assert_array_equal(rows.take_rows(table, some), table[some])


@pytest.mark.parametrize("shape", [(0, 5), (7, 300), (3, 1)])
def test_take_columns(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(0, 99, shape).astype(np.int8)
    some = rng.integers(0, shape[1], 1000)
    np.testing.assert_array_equal(rows.take_columns(table, some), table[:, some])


def test_threads_are_gone_after_an_error() -> None:
    def fail(piece: int) -> None:
        raise ValueError("piece")

    with pytest.raises(ValueError, match="piece"), rows.thread_map(1 << 30) as each:
        list(each(fail, range(10)))
    assert not [t for t in threading.enumerate() if t.name.startswith("jtgpu-rows")]
