"""Chains as data of ArviZ: the graphs of `sample_dags`, with names, and the trace."""

from __future__ import annotations

import numpy as np
import pytest

import jtgpu
from tests.learn.dags.data import random_table


@pytest.mark.filterwarnings("ignore:the chains have not converged")
def test_chains() -> None:
    pytest.importorskip("arviz", reason="arviz is not installed")
    data = random_table(8, n=4, n_rows=120)
    post = jtgpu.learn.posterior(
        data,
        method="mcmc",
        chains=jtgpu.learn.Chains(steps=20_000),
        seed=1,
        constraints=jtgpu.learn.Constraints(required=[("a", "b")]),
    )
    made = post.to_arviz()
    arcs = made.posterior["arc"]
    assert arcs.dims == ("chain", "draw", "parent", "child")
    assert arcs.shape[0] == post.n_chains
    assert arcs.shape[1] * arcs.shape[0] == post._source.graphs().size // 4
    assert (arcs.sel(parent="a", child="b") == 1).all()
    assert (arcs.sel(parent="b", child="a") == 0).all()
    np.testing.assert_allclose(arcs.mean(("chain", "draw")), post.edge_probabilities.values, rtol=0, atol=0.2)
    np.testing.assert_array_equal(made.sample_stats["log_weight"], post.trace)


def test_exact_posteriors_have_no_chains() -> None:
    post = jtgpu.learn.posterior(random_table(8, n=3), method="exact")
    with pytest.raises(jtgpu.ArgumentError, match="no chains; to_arviz requires method='mcmc'"):
        post.to_arviz()
