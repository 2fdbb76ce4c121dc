"""Sums over the states of a few variables: the oracle's answers, in less memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors, timing
from jtgpu.slicing import SlicedPlan
from tests import oracle, random_nets


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@given(data=st.data())
def test_slices_sum_to_what_the_oracle_says(data: st.DataObject, backend: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()).filter(len))
    fixed = data.draw(st.sets(st.integers(0, len(model) - 1), min_size=1, max_size=2))
    plan = model.plan("min-fill", cache=False, slices=sorted(fixed))
    assert isinstance(plan, SlicedPlan)
    assert plan.n_slices == math.prod(int(model.cardinality[v]) for v in fixed)
    hard, soft = data.draw(random_nets.evidence_weights(model))
    targets = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(model) - 1), max_size=2)))
    weights = random_nets.all_weights(model, hard, soft)
    expected = oracle.log_evidence(model, weights)
    with plan.compile(backend) as tree:
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                tree.posteriors(hard, likelihood=soft, targets=targets)
            return
        found = tree.posteriors(hard, likelihood=soft, targets=targets)
        assert found.log_evidence == pytest.approx(expected, abs=1e-11)
        exact = oracle.posteriors(model, weights)
        for v in range(len(model)) if targets is None else targets:
            np.testing.assert_allclose(found[v], exact[v], atol=1e-12)
        batch = tree.posteriors_batch({v: [s, s] for v, s in hard.items()} or np.full((2, len(model)), -1))
        assert batch.log_evidence[0] == batch.log_evidence[1]


def test_what_does_not_fit_is_cut_until_it_does() -> None:
    net = jtgpu.read(timing.benchmark_files(["water"])[0])
    whole = net.plan()
    limit = whole.cost().bytes // 8
    with pytest.raises(errors.TableTooLarge, match="slices"):
        net.plan(memory_limit=limit)
    plan = net.plan(memory_limit=limit, slices="auto")
    assert isinstance(plan, SlicedPlan)
    assert plan.cost().bytes <= limit
    assert f"cut into {plan.n_slices} slices by" in plan.describe()
    assert not set(plan.slices) & set(plan.elimination_order)
    case = {"CBODD_12_15": 1}
    expected = whole.compile("cpu").posteriors(case)
    tree = plan.compile("cpu")
    found = tree.posteriors(case)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
    for v in net.variables:
        np.testing.assert_allclose(found[v], expected[v], atol=1e-12)
    with pytest.raises(errors.JtgpuError, match="whole tree"):
        tree.mpe(case)
    with pytest.raises(errors.PlanError, match="cannot be saved"):
        plan.save("water.plan")


def test_what_fits_is_not_cut() -> None:
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    assert not isinstance(net.plan(slices="auto"), SlicedPlan)


def test_what_no_cut_makes_fit_says_so() -> None:
    net = jtgpu.read(timing.benchmark_files(["asia"])[0])
    with pytest.raises(errors.TableTooLarge, match="it does not fit either"):
        net.plan(slices="auto", memory_limit=100)
    with pytest.raises(errors.TableTooLarge):
        net.plan(slices=["lung"], memory_limit=100)
    with pytest.raises(errors.UnknownVariable):
        net.plan(slices=["lungs"])
