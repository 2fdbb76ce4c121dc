"""Every lowering of every model, run by the definition, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.errors import ImpossibleEvidence
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans import compiler
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.plans.plan import Plan
from tests.support import oracle, random_nets


def planned(model: DiscreteModel, order: list[int], lowering: str) -> Plan:
    factors = compiler.model_factors(model)
    return compiler.build_plan(
        model.cardinality, [f.scope for f in factors], compiler.order_graph(model), order, lowering=lowering
    )


@pytest.mark.parametrize("lowering", LOWERINGS)
@given(data=st.data())
def test_the_definition_agrees_with_brute_force(data: st.DataObject, lowering: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    hard, soft = data.draw(random_nets.evidence_weights(model))
    order = data.draw(st.permutations(range(len(model))))
    plan = planned(model, list(order), lowering)
    plan.check()
    state = np.full(len(model), -1, np.int32)
    for v, k in hard.items():
        state[v] = k
    backend = reference.prepare(plan, [f.table for f in compiler.model_factors(model)])
    weights = random_nets.all_weights(model, hard, soft)
    expected = oracle.log_evidence(model, weights)
    if expected == -np.inf:
        with pytest.raises(ImpossibleEvidence):
            backend.run_case(Evidence(state, soft))
        return
    result = backend.run_case(Evidence(state, soft))
    assert result.log_evidence == pytest.approx(expected, abs=1e-11)
    np.testing.assert_allclose(result.posterior, np.concatenate(oracle.posteriors(model, weights)), atol=1e-12)
