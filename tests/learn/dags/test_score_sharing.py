"""Score tables on a cluster have the bits of those of one process."""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError
from jtgpu.learn.dags.scores import set_values as sharing
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.util import late_imports
from tests.learn.dags.data import random_table


class HereCluster:
    """Runs the tasks of three workers in this process, with read-only arrays as those of an object store."""

    n_tasks = 0

    def run_tasks(self, cluster: Any, work: Any, shared: Any, divide: Any, backend: Any) -> Iterator[Any]:
        shared = copy.deepcopy(shared)
        for array in (shared.table.codes, shared.functions.shapes, shared.functions.values, shared.functions.products):
            array.flags.writeable = False
        for task in divide(3):
            self.n_tasks += 1
            yield work(shared, task, 1)


def with_gaps(table: CodedTable) -> CodedTable:
    codes = table.codes.copy()
    codes[np.random.default_rng(1).random(codes.shape) < 0.1] = 255
    return replace(table, codes=codes)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("score", ["bdeu", "bds", "k2", "bic", "available"])
def test_parts_have_the_scores_of_one_process(score: Any, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    here = HereCluster()
    monkeypatch.setattr(late_imports, "cluster", lambda: here)
    monkeypatch.setattr(sharing, "MIN_SETS", 5)
    table = random_table(3, n=8, n_rows=60, weighted=k == 2)
    if score == "available":
        table, score = with_gaps(table), "bic"
    alone = jtgpu.learn.score_table(replace(table, codes=table.codes.copy()), score=score, max_parents=k)
    found = jtgpu.learn.score_table(table, score=score, max_parents=k, compute=jtgpu.Compute(cluster="local"))
    assert np.array_equal(found.scores, alone.scores)
    assert found.digest == alone.digest
    assert here.n_tasks > 3 * (k > 0) - 1


def test_a_cluster_counts_on_cpus() -> None:
    with pytest.raises(ArgumentError, match="a cluster counts on CPUs"):
        jtgpu.learn.score_table(random_table(3), compute=jtgpu.Compute(cluster="local", backend="gpu"))


@pytest.mark.slow
def test_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    table = random_table(4, n=12, n_rows=200)
    alone = jtgpu.learn.score_table(table, max_parents=4)
    try:
        found = jtgpu.learn.score_table(table, max_parents=4, compute=jtgpu.Compute(cluster="local"))
    finally:
        importlib.import_module("ray").shutdown()
    assert np.array_equal(found.scores, alone.scores)
