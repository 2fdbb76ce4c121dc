"""A limited time holds for everything, from the reading of the data on."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, TableTooLarge
from jtgpu.learn.dags.best_graph import TimeLimit
from tests.support.patience import patience


def _table(n_columns: int, n_rows: int, n_states: int = 3) -> dict[str, list[str]]:
    rng = np.random.default_rng(7)
    hidden = rng.normal(size=(n_rows, 4))
    columns = {}
    for j in range(n_columns):
        x = hidden @ rng.normal(size=4) + rng.normal(size=n_rows)
        columns[f"c{j}"] = np.searchsorted(np.quantile(x, np.arange(1, n_states) / n_states), x).astype(str).tolist()
    return columns


def test_steps_follow_the_pace() -> None:
    assert TimeLimit().steps(10_000, lambda _: pytest.fail("without a limit nothing is tried"), 0.5) == 10_000
    fast = TimeLimit.of(1000.0).steps(6400, lambda _: None, 0.5)
    assert fast == 6400
    slow = TimeLimit.of(0.2).steps(6400, lambda steps: time.sleep(0.001 * steps), 0.5)
    assert 100 <= slow < 6400


def test_the_posterior_of_many_columns_keeps_its_time() -> None:
    """R14: 250 columns took 20 s with time=5, all but a few of them before the chains."""
    data = _table(200, 100)
    begin = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = jtgpu.learn.posterior(data, seconds=0.5)
    assert time.monotonic() - begin < patience(5.0)
    assert found.n_steps > 0
    assert found.edge_probabilities.values.max() > 0.1


def test_slow_families_have_fewer_parents() -> None:
    data = _table(20, 3000, 10)
    gaps = {v: [None if i % 7 == j % 7 else x for i, x in enumerate(data[v])] for j, v in enumerate(data)}
    begin = time.monotonic()
    with pytest.warns(UserWarning, match="because of the time limit"):
        found = jtgpu.learn.structure(gaps, missing="available", score="bic", max_parents=8, seconds=0.3)
    assert time.monotonic() - begin < patience(3.0)
    assert found.arcs


def test_ample_time_changes_nothing() -> None:
    data = _table(8, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limited = jtgpu.learn.structure(data, seconds=600.0)
    assert limited.arcs == jtgpu.learn.structure(data).arcs


@pytest.mark.parametrize("as_file", [True, False])
def test_too_many_columns_are_refused_before_they_are_read(tmp_path: Path, as_file: bool) -> None:
    """R14: 100,000 columns of 5 rows ran for more than a minute, with time=5 too."""
    names = [f"v{i}" for i in range(30_000)]
    data: Any = {v: ["a", "b"] for v in names}
    if as_file:
        data = tmp_path / "wide.csv"
        data.write_text("".join(",".join(row) + "\n" for row in (names, ["a"] * len(names), ["b"] * len(names))))
    begin = time.monotonic()
    with pytest.raises(TableTooLarge, match="30,000 columns"):
        jtgpu.learn.structure(data, compute=jtgpu.Compute(memory_limit="1GiB"))
    with pytest.raises(ArgumentError, match=r"pairs of 30,000 columns alone need about 450 s"):
        jtgpu.learn.posterior(data, seconds=5, compute=jtgpu.Compute(memory_limit="64GiB"))
    assert time.monotonic() - begin < patience(2.0)
