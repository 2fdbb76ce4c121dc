"""Chains on a cluster: the bits of one machine, in blocks, after lost workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cluster import Cluster, TaskRunner, connect
from jtgpu.errors import ArgumentError
from tests.graphs.test_cluster import FakeRay
from tests.learn.dags.data import random_table
from tests.learn.dags.runs import same, short_posterior


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in this process, with three workers."""
    monkeypatch.setattr(connect, "import_ray", FakeRay)
    monkeypatch.setattr(connect, "connect", lambda cluster: FakeRay())


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize(
    "options",
    [
        {"candidates": 3, "n_chains": 5}, pytest.param({"graph_prior": "order"}, marks=pytest.mark.slow),
        pytest.param({"graph_prior": "order", "candidates": 3}, marks=pytest.mark.slow),
        pytest.param({"tempering": 3}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_chains_on_a_cluster_have_the_bits_of_one_machine(options: dict[str, Any], tmp_path: Path) -> None:
    """Three workers, whose results come in another order; a checkpoint of one machine continues on a cluster."""
    whole = short_posterior(10_000, **options)
    found = short_posterior(10_000, cluster="auto", **options)
    assert same(whole, found)
    assert FakeRay.running == 0
    path = tmp_path / "run.npz"
    short_posterior(5_000, checkpoint=path, **options)
    assert same(whole, short_posterior(10_000, checkpoint=path, cluster="auto", **options))


def test_bad_clusters_are_refused_before_anything_is_computed() -> None:
    table = random_table(8, n=6, n_rows=90)
    with pytest.raises(ArgumentError, match="cluster must be"):
        jtgpu.learn.posterior(table, method="mcmc", compute=jtgpu.Compute(cluster=7))
    with pytest.raises(ArgumentError, match="on CPUs"):
        jtgpu.learn.posterior(table, method="mcmc", compute=jtgpu.Compute(cluster="local", backend="gpu"))


def die_once(folder: Path, task: int, threads: int) -> int:
    """Ends its process when it is called first."""
    marker = folder / str(task)
    if not marker.exists():
        marker.touch()
        os._exit(1)
    return 10 * task


@pytest.mark.slow
def test_tasks_of_lost_workers_run_again(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    runner: TaskRunner[int, int] = TaskRunner(Cluster("local", workers=2), die_once, tmp_path)
    try:
        assert [*runner.run([1, 2])] == [10, 20]
        assert [*runner.run([1, 2, 3])] == [10, 20, 30]
    finally:
        runner.close()
        runner.close()


@pytest.mark.slow
def test_ray_has_the_bits_of_one_machine() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    assert same(short_posterior(10_000, candidates=3), short_posterior(10_000, candidates=3, cluster="local"))
