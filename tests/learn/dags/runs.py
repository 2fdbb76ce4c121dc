"""Short runs of chains that are compared bit by bit, and the probabilities of arcs that chains estimate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu.learn.dags.chains.run import ONE
from jtgpu.learn.dags.posterior.result import StructurePosterior
from tests.learn.dags.data import in_records, random_table


def short_posterior(steps: int, **options: Any) -> StructurePosterior:
    table = random_table(8, n=6, n_rows=90)
    with pytest.warns(UserWarning, match="not converged"):
        return jtgpu.learn.posterior(
            table, method="mcmc", seed=4, **in_records({"tolerance": 1e-9, "steps": steps, **options})
        )


def same(first: StructurePosterior, second: StructurePosterior) -> bool:
    return (
        first.edge_probabilities.values.tobytes() == second.edge_probabilities.values.tobytes()
        and first.trace.tobytes() == second.trace.tobytes()
        and first.describe() == second.describe()
        and [*map(sorted, (g.edges for g in first.sample_dags(20)))]
        == [*map(sorted, (g.edges for g in second.sample_dags(20)))]
    )


def arc_probabilities(state: Any) -> NDArray[np.float64]:
    """Probability of each arc [parent, child], averaged over the samples of each chain, (C, n, n)."""
    return np.asarray(state.arcs.astype(np.float64) / (ONE * max(state.n_samples, 1)))
