"""Policies given evidence: the expected utility is that of the policy given the evidence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jtgpu import DecisionNetwork, ImpossibleEvidence
from tests.decisions.test_policies import policy_tables, random_network
from tests.support.examples import some


def given(net: DecisionNetwork, policy: dict[str, np.ndarray], evidence: dict[str, str]) -> float:
    """Expected utility of a policy given evidence, by the sum over all configurations."""
    total = mass = 0.0
    for row in itertools.product(*(net.states(v) for v in net.variables)):
        at = dict(zip(net.variables, row, strict=True))
        if any(at[v] != s for v, s in evidence.items()):
            continue
        number = {v: net.states(v).index(s) for v, s in at.items()}
        p = 1.0
        for v in net.variables:
            if v in net.decisions and v in evidence:
                continue  # fixed
            table = policy[v] if v in net.decisions else net.cpt(v)
            p *= float(np.asarray(table)[tuple(number[u] for u in (*net.parents(v), v))])
        mass += p
        total += p * sum(float(net.utility(u)[tuple(number[x] for x in net.parents(u))]) for u in net.utilities)
    return total / mass if mass else float("nan")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("seed", some(12, 3))
def test_expected_utility_given_evidence(seed: int, backend: str) -> None:
    rng = np.random.default_rng([seed, 6])
    net = random_network(rng)
    tree = net.compile(backend)  # type: ignore[arg-type]
    below = {v for d in net.decisions for v in net.descendants(d)}
    for _ in range(6):
        seen = [v for v in net.variables if rng.random() < 0.3]
        evidence = {v: net.states(v)[rng.integers(2)] for v in seen}
        try:
            best = tree.policy(evidence)
        except ImpossibleEvidence:  # of decisions
            continue
        value = given(net, {d: np.asarray(best[d]) for d in best}, evidence)
        assert best.expected_utility == pytest.approx(value, abs=1e-9)
        if best.method == "exact" and not below & set(seen):
            fixed = {d: np.asarray(best[d]) for d in net.decisions if d in evidence}
            values = [given(net, {**policy, **fixed}, evidence) for policy in policy_tables(net)]
            assert best.expected_utility == pytest.approx(np.nanmax(values), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_information_is_worth_what_a_network_with_it_gains(seed: int) -> None:
    rng = np.random.default_rng([seed, 7])
    net = random_network(rng)
    tree = net.compile()
    base = tree.policy().expected_utility
    for d in net.decisions:
        worth = tree.value_of_information(d)
        for v, gain in worth.items():
            informed = net.with_information({d: (*net.parents(d), v)}).compile().policy()
            assert gain >= -1e-9
            if informed.method == "exact":
                assert gain == pytest.approx(max(informed.expected_utility - base, 0.0), abs=1e-9)
            else:
                assert gain >= informed.expected_utility - base - 1e-9
