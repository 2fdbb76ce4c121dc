"""Short runs of chains that are compared bit by bit."""

from __future__ import annotations

from typing import Any

import pytest

import jtgpu
from jtgpu.learn.dags.posterior.result import StructurePosterior
from tests.learn.dags.data import random_table


def short_posterior(steps: int, **options: Any) -> StructurePosterior:
    table = random_table(8, n=6, n_rows=90)
    with pytest.warns(UserWarning, match="not converged"):
        return jtgpu.learn.posterior(table, method="mcmc", tolerance=1e-9, steps=steps, seed=4, **options)


def same(first: StructurePosterior, second: StructurePosterior) -> bool:
    return (
        first.edge_probabilities.values.tobytes() == second.edge_probabilities.values.tobytes()
        and first.trace.tobytes() == second.trace.tobytes()
        and first.describe() == second.describe()
        and [*map(sorted, (g.edges for g in first.sample_dags(20)))]
        == [*map(sorted, (g.edges for g in second.sample_dags(20)))]
    )
