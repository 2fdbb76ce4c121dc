"""Tables of cases: feeds agree, parts keep what is wanted, and a table survives pickling."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from jtgpu.backends.base import Table
from jtgpu.backends.table import COLUMNS, COUNTS, ON_DEVICE, ROWS, CountSums, DeviceCases, TableAnswer, refuse
from jtgpu.errors import BackendUnavailable
from tests.backends.test_counts import backend_of, random_states
from tests.support.bundled import bundled


def test_rows_of_columns() -> None:
    codes = np.random.default_rng(1).integers(-1, 3, (2, 9000)).astype(np.int8)
    by_columns = Table.by_columns([3, 1], codes, 5)
    rows = by_columns.feed.rows()
    assert by_columns.n == len(rows) == 9000
    assert rows.dtype == np.int32
    np.testing.assert_array_equal(rows[:, [3, 1]].T, codes)
    assert (rows[:, [0, 2, 4]] == -1).all()
    np.testing.assert_array_equal(by_columns.some(slice(3, 7)).feed.rows(), rows[3:7])


def test_some_rows_have_their_weights() -> None:
    states, weights = np.arange(12).reshape(4, 3), np.arange(4.0)
    some = Table.counts(states, weights, {1: np.arange(8.0).reshape(4, 2)}).some(np.array([2, 0]))
    np.testing.assert_array_equal(some.feed.rows(), states[[2, 0]])
    assert some.weights_or_ones.tolist() == [2.0, 0.0]
    np.testing.assert_array_equal(some.likelihood[1], [[4.0, 5.0], [0.0, 1.0]])
    assert Table.counts(states).weights_or_ones.tolist() == [1.0] * 4


@pytest.mark.parametrize("deliver", [ROWS, COLUMNS, ON_DEVICE, COUNTS])
def test_a_pickled_table_wants_the_same(deliver: object) -> None:
    assert pickle.loads(pickle.dumps(deliver)) is deliver


def test_refusals_say_which_backend_to_use() -> None:
    with pytest.raises(BackendUnavailable, match="object does not leave answers on a device; use backend='gpu'"):
        refuse(object(), Table.on_device(np.zeros((1, 1), np.int32)), ON_DEVICE)
    with pytest.raises(BackendUnavailable, match="pass an array"):
        DeviceCases(None).rows()


def test_sums_leave_impossible_cases_out() -> None:
    sums = CountSums.of([], np.array([-1.0, -np.inf, -2.0]), np.array([1.0, 5.0, 0.5]))
    assert (sums.log_likelihood, sums.n_impossible) == (-2.0, 1)
    assert sums.impossible.tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_columns_are_rows_turned(name: str) -> None:
    net = bundled("child")
    backend, states = backend_of(net, name), random_states(net, 30, 0.4, 2)
    states[:, 5:] = -1
    for targets in (None, [3, 0]):
        rows = backend.run(Table.of(states, None, targets))
        columns: TableAnswer = backend.run(Table.by_columns(range(5), states[:, :5].T, len(net), targets))
        np.testing.assert_array_equal(columns.posterior, rows.posterior.T)
        np.testing.assert_array_equal(columns.log_evidence, rows.log_evidence)
    held = backend.hold(Table.counts(states))
    np.testing.assert_array_equal(backend.run(held).log_evidence, backend.run(Table.counts(states)).log_evidence)
    held.feed.close()
