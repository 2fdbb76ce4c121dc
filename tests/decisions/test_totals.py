"""The distribution of the total utility: the joint distribution, the running total, and sums over configurations."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import DecisionNetwork
from jtgpu.decisions import utility
from tests.decisions.test_policies import pigs, random_network


def by_configurations(net: DecisionNetwork, policy: Any) -> dict[float, float]:
    """Total to its probability, by a sum over all configurations."""
    totals: defaultdict[float, float] = defaultdict(float)
    for row in itertools.product(*(range(len(net.states(v))) for v in net.variables)):
        at = dict(zip(net.variables, row, strict=True))
        p = 1.0
        for v in net.variables:
            table = policy[v] if v in net.decisions else net.cpt(v)
            p *= float(np.asarray(table)[tuple(at[u] for u in (*net.parents(v), v))])
        parts = [float(net.utility(u)[tuple(at[x] for x in net.parents(u))]) for u in net.utilities]
        totals[round(float(np.prod(parts) if net.combine == "product" else sum(parts)), 9)] += p
    return {total: p for total, p in sorted(totals.items()) if p > 0}


@pytest.mark.parametrize("combine", ["sum", "product"])
@pytest.mark.parametrize("seed", range(12))
def test_the_total_is_exact_with_and_without_a_joint(seed: int, combine: str, monkeypatch: Any) -> None:
    net = random_network(np.random.default_rng([seed, 8]))
    parents = {v: net.parents(v) for v in (*net.variables, *net.utilities)}
    cpts = {v: net.cpt(v) for v in net.variables if v not in net.decisions}
    utilities = {u: np.abs(np.round(net.utility(u), 1)) for u in net.utilities}
    net = DecisionNetwork(
        {v: net.states(v) for v in net.variables}, parents, cpts, decisions=net.decisions, utilities=utilities,
        combine=combine,
    )  # fmt: skip
    tree = net.compile()
    expected = by_configurations(net, tree.policy())
    for most in (utility.MOST_TOTALS, 0):
        monkeypatch.setattr(utility, "MOST_TOTALS", most)
        made = tree.utility().distribution()
        assert made.values == pytest.approx([*expected], abs=1e-8)
        assert made.probabilities == pytest.approx([*expected.values()], abs=1e-12)
        assert made.error == 0.0
        assert made.mean == pytest.approx(tree.policy().expected_utility, abs=1e-9)


def test_many_utilities_need_no_step() -> None:
    tree = pigs(30).compile()
    total = tree.utility().distribution()
    assert total.mean == pytest.approx(tree.policy().expected_utility)
    assert total.values.tolist() == [100.0, 200.0, 800.0, 900.0]  # one treatment, or two
    assert total.probabilities.sum() == pytest.approx(1.0)


def test_totals_of_too_many_values() -> None:
    names = [f"c{i}" for i in range(20)]
    utilities = {f"u{i}": [0.0, 2.0**i] for i in range(20)}
    net = DecisionNetwork(
        dict.fromkeys(names, "xy"), {f"u{i}": [f"c{i}"] for i in range(20)}, {v: [0.5, 0.5] for v in names},
        utilities=utilities,
    )  # fmt: skip
    with pytest.raises(jtgpu.TableTooLarge, match=r"no steps: give step="):
        net.compile().utility().distribution()
    with pytest.raises(jtgpu.TableTooLarge, match=r"give a larger step"):
        net.compile().utility().distribution(step=1.0)
    rounded = net.compile().utility().distribution(step=2048.0)
    assert rounded.error > 0
    assert rounded.mean == pytest.approx((2**20 - 1) / 2, abs=rounded.error)


def test_numbers_that_overflow_are_errors() -> None:
    states, parents = {"a": ["x", "y"], "d": ["1", "2"]}, {"u": ["a"], "v": ["d"]}

    def made(u: float, **options: Any) -> DecisionNetwork:
        utilities = {"u": [u, 1], "v": [u, 2]}
        return DecisionNetwork(states, parents, {"a": [0.5, 0.5]}, decisions=["d"], utilities=utilities, **options)

    with pytest.raises(jtgpu.NetworkError, match=r"'u' has the number 1e\+308, expected one within 1e\+150"):
        made(1e308)
    with pytest.raises(jtgpu.NetworkError, match="product of the utilities"):
        made(1e150, combine="product").compile()
    with pytest.raises(jtgpu.ArgumentError, match="policy must be a Policy or a mapping"):
        made(1).with_policy(5)  # type: ignore[arg-type]
    total = made(4).compile().utility()
    assert repr(total) == "Utility: mean 6.5 (u 2.5, v 4)"
    for p in (-0.1, 1.5, np.nan):
        with pytest.raises(jtgpu.ArgumentError, match="p must be"):
            total.distribution().quantile(p)


@pytest.mark.parametrize("size", [1e-300, 1e-280, 1e-150, 1e-5, 1.0, 1e100])
@pytest.mark.parametrize("constant", [0.0, 1.0, 1e10])
def test_a_small_utility_and_a_constant(size: float, constant: float) -> None:
    """The digits that rounding makes are removed, and nothing else: 10 ** 293 times 1e10 is no number."""
    net = jtgpu.DecisionNetwork(
        {"x": ["no", "yes"], "d": ["a", "b"]}, {"u": ["x", "d"], "c": ["d"]}, {"x": [0.75, 0.25]}, decisions=["d"],
        utilities={"u": size * np.array([[0.0, 1.0], [4.0, 2.0]]), "c": [constant] * 2},
    )  # fmt: skip
    with net.compile("reference") as tree:
        best = tree.policy()
    assert best.expected_utility == pytest.approx(constant + 1.25 * size, rel=1e-12, abs=0)
