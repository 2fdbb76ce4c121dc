"""`learn.posterior` on emulated GPUs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jtgpu.learn.dags.chains import gpu_chains as base
from jtgpu.learn.dags.chains import gpu_movers as movers
from jtgpu.learn.dags.posterior.posterior import posterior
from jtgpu.learn.dags.posterior.result import StructurePosterior
from jtgpu.options.compute import Compute
from jtgpu.options.learning import Chains, Search
from tests.learn.dags.data import random_table
from tests.support.emulated.install import installed, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(autouse=True, scope="module")
def emulated() -> Iterator[None]:
    with installed():
        yield


def run(
    monkeypatch: pytest.MonkeyPatch, steps: int, devices: Any = None, graph_prior: Any = "uniform"
) -> StructurePosterior:
    monkeypatch.setattr(base, "REPLICAS", 3)
    for engine in (movers.GpuPartitionMover, movers.GpuOrderMover):
        monkeypatch.setattr(engine, "block_steps", min(steps // 8, 250))
    table = random_table(2, n=6, n_rows=60, most=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return posterior(
            table,
            method="mcmc",
            search=Search(candidates=3),
            max_parents=2,
            chains=Chains(n_chains=4, steps=steps),
            compute=Compute(backend="gpu", devices=devices),
            graph_prior=graph_prior,
        )


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["uniform", "order"])
def test_posterior_on_gpus_is_the_exact_one(monkeypatch: pytest.MonkeyPatch, prior: Any) -> None:
    exact = posterior(random_table(2, n=6, n_rows=60, most=3), method="exact", max_parents=2, graph_prior=prior)
    found = run(monkeypatch, 4000, graph_prior=prior)
    assert found.method.endswith("on GPUs")
    gap = np.abs(found.edge_probabilities.values - exact.edge_probabilities.values).max()
    assert gap < 0.05
    assert found.map_score == pytest.approx(exact.map_score)


@pytest.mark.slow
def test_posterior_does_not_depend_on_the_number_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = run(monkeypatch, 96), run(monkeypatch, 96, devices=[0, 1])
    np.testing.assert_array_equal(one.edge_probabilities.values, two.edge_probabilities.values)
    np.testing.assert_array_equal(one.mcse.values, two.mcse.values)


@pytest.mark.slow
def test_chains_on_gpus_can_be_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = run(monkeypatch, 96)
        more = found.more(steps=1)
    assert more.edge_probabilities.values.shape == (6, 6)


def test_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="compute must be"):
        posterior(random_table(2, n=4), compute="tpu")  # type: ignore[arg-type]
