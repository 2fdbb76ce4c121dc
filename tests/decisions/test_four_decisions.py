"""Networks with four decisions that forget, against exhaustive search; the optimum that is often missed is proven."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jtgpu import DecisionNetwork
from tests.decisions.test_policies import random_network
from tests.decisions.test_tables import over_all, utility_of_all


def best_by_search(net: DecisionNetwork) -> float:
    """The largest expected utility of all deterministic policies: sums over what decisions know and choose."""
    names, worth = net.variables, utility_of_all(net)
    axis = {v: i for i, v in enumerate(names)}
    known = {v for d in net.decisions for v in (*net.parents(d), d)}
    worth = worth.sum(axis=tuple(axis[v] for v in names if v not in known), keepdims=True)
    tables = []
    for d in net.decisions:
        *rows, n = (len(net.states(v)) for v in (*net.parents(d), d))
        size = int(np.prod(rows, dtype=int))
        choices = itertools.product(range(n), repeat=size)
        tables.append([over_all(net, np.eye(n)[list(c)].reshape(*rows, n), (*net.parents(d), d)) for c in choices])
    *first, last = tables
    best = -np.inf
    for some in itertools.product(*first):
        left = worth
        for table in some:
            left = left * table
        best = max(best, *(float((left * table).sum()) for table in last))
    return best


def check(seeds: range) -> tuple[int, int]:
    """Networks whose optimum was reached, and those whose method was exact."""
    reached = exact = 0
    for seed in seeds:
        net = random_network(np.random.default_rng([seed, 9]), decisions=4)
        top, best = best_by_search(net), net.compile().policy(restarts=50)
        assert best.expected_utility <= top + 1e-9
        good = abs(best.expected_utility - top) <= 1e-9
        assert good or best.method != "exact"
        reached, exact = reached + good, exact + (best.method == "exact")
    return reached, exact


def test_four_decisions() -> None:
    reached, exact = check(range(40))
    assert reached >= 38
    assert 0 < exact < 40


@pytest.mark.slow
def test_five_hundred_networks_of_four_decisions() -> None:
    assert check(range(500))[0] >= 475


@pytest.mark.parametrize("seed", range(6))
def test_branch_and_bound_proves_the_optimum_of_four_decisions(seed: int) -> None:
    net = random_network(np.random.default_rng([seed, 10]), decisions=4)
    best = net.compile().policy(method="branch")
    assert best.method == "exact"
    assert best.expected_utility == pytest.approx(best_by_search(net), abs=1e-9)
