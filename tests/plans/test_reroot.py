"""A plan with another root: valid, and with the same answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jtgpu.plans.compiler import rerooted
from tests.support.bundled import bundled


@pytest.mark.parametrize("pair", [("lung", "bronc"), ("asia", "xray")])
def test_a_rerooted_plan_is_valid_and_gives_the_same_posteriors(pair: tuple[str, str]) -> None:
    plan = bundled("asia").plan(together=[pair])
    factor = int(plan.plan.evidence_factor[-1])
    other = replace(plan, plan=rerooted(plan.plan, factor))
    other.check()
    root = int(other.plan.factor_clique[factor])
    assert other.plan.clique_parent[root] == -1
    assert set(other.plan.cliques[root]) == {plan.model.index(v) for v in pair}
    evidence = {"dysp": "yes"}
    expected = plan.compile("reference").posteriors(evidence, joints=[pair])
    for backend in ("reference", "cpu"):
        made = other.compile(backend).posteriors(evidence, joints=[pair])
        assert made.log_evidence == pytest.approx(expected.log_evidence, rel=1e-13)
        for v in plan.model.variables:
            np.testing.assert_allclose(list(made[v].values()), list(expected[v].values()), rtol=0, atol=1e-14)
        np.testing.assert_allclose(np.asarray(made.joint[pair]), np.asarray(expected.joint[pair]), rtol=0, atol=1e-14)
