"""Balanced lowerings: levels saved and products added. For their answers see tests/plans/test_program.py."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.errors import ImpossibleEvidence
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans import compiler
from jtgpu.plans.balance import shorten
from jtgpu.plans.lowering import GPU_US_PER_CRITICAL_US, SLIM, relowered, slim
from jtgpu.plans.plan import Plan
from tests.plans.test_program import planned
from tests.support import random_nets

NETS = Path(__file__).parents[2] / "nets"


def plan_of(name: str) -> Plan:
    return jtgpu.read(NETS / name).plan(NETS / (name.partition(".")[0] + ".num"), cache=False).plan


@pytest.mark.parametrize(
    ("name", "levels", "growth"),
    [("alarm.net", 0.5, 7.0), ("hailfinder.net", 0.7, 3.0), ("andes.net", 0.75, 1.1), ("pigs.net", 0.65, 1.25),
     ("link.net", 0.75, 1.15), ("munin1.net", 0.95, 1.01)],
)  # fmt: skip
def test_published_networks_lose_levels_for_a_few_products(name: str, levels: float, growth: float) -> None:
    plan = plan_of(name)
    other = relowered(plan)
    before, after = plan.cost(), other.cost()
    assert after.program_levels <= levels * before.program_levels
    assert after.flops <= growth * before.flops
    assert relowered(plan).to_bytes() == other.to_bytes()


@pytest.mark.parametrize("name", ["alarm.net", "pigs.net"])
def test_junction_tree_factors_and_posteriors_are_unchanged(name: str) -> None:
    plan = plan_of(name)
    other = relowered(plan)
    same = ("cardinality", "factor_ptr", "factor_var", "elimination_order", "clique_parent", "axis_rank")
    for field in (*same, "evidence_factor", "posterior_ptr"):
        assert np.array_equal(getattr(plan, field), getattr(other, field)), field
    assert other.table_scopes[: plan.n_factors] == plan.table_scopes[: plan.n_factors]
    used = {t for ins in other.op_inputs for t in ins} | set(other.posterior_table.tolist())
    used |= set(other.root_table.tolist())
    assert set(other.op_out.tolist()) <= used  # nothing is made that nobody reads


@pytest.mark.parametrize(
    ("name", "traffic", "flops"), [("link.net", 0.5, 1.2), ("andes.net", 0.9, 1.5), ("pigs.net", 0.9, 2.2)]
)
def test_slim_trees_move_fewer_numbers(name: str, traffic: float, flops: float) -> None:
    plan = plan_of(name)
    other = relowered(plan, lowering=SLIM)
    before, after = plan.cost(), other.cost()
    assert after.traffic <= traffic * before.traffic
    assert after.flops <= flops * before.flops
    assert relowered(plan, lowering=SLIM).to_bytes() == other.to_bytes()


def test_a_small_table_meets_another_before_a_large_one() -> None:
    """Two small factors at the ends of a large table: multiplied with each other first, the large one is read once."""
    scopes = [frozenset(range(8)), frozenset([0, 8]), frozenset([0, 1, 8]), frozenset(range(1, 8))]
    given_tree = {4: (0, 1), 5: (4, 2), 6: (5, 3)}  # large times small, times small
    found = slim(scopes, given_tree, 6, [4] * 9)
    assert found is not None
    assert (1, 2) in [tuple(sorted(pair)) for pair in found.values()]
    assert slim(scopes, found, 6, [4] * 9) is None


def test_a_chain_becomes_a_balanced_tree() -> None:
    n = 1000
    rng = np.random.default_rng(1)
    names = [str(i) for i in range(n)]
    parents = {name: names[max(i - 1, 0) : i] for i, name in enumerate(names)}
    cpts = {name: rng.dirichlet(np.ones(3), size=3 if parents[name] else None) for name in names}
    chain = BayesianNetwork({name: ["a", "b", "c"] for name in names}, parents, cpts)
    plan = chain.plan("min-fill", cache=False).plan
    assert plan.cost().program_levels > n // 2
    assert relowered(plan).cost().program_levels <= 3 * math.log2(n)


def test_expensive_exchanges_are_not_made() -> None:
    assert relowered(plan_of("alarm.net"), 1e9).cost().flops <= plan_of("alarm.net").cost().flops


def test_a_tree_of_one_edge_stays() -> None:
    both = frozenset([0])
    assert shorten([both, both], {2: (0, 1)}, 2, [2], GPU_US_PER_CRITICAL_US) is None


@given(st.data())
def test_any_price_gives_the_same_answers(data: st.DataObject) -> None:
    model: DiscreteModel = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), "pairwise")
    factors = [f.table for f in compiler.model_factors(model)]
    nothing = Evidence.none(len(model))
    try:
        expected = reference.prepare(plan, factors).run_case(nothing)
    except ImpossibleEvidence:  # a Markov network of nothing but zeros
        return
    for price in (0.0, 1e-3, 1.0, GPU_US_PER_CRITICAL_US):
        other = relowered(plan, price) if price else relowered(plan, lowering=SLIM)
        found = reference.prepare(other, factors).run_case(nothing)
        assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
        np.testing.assert_allclose(found.posterior, expected.posterior, atol=1e-12)
