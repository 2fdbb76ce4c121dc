"""Mean, sd and quantiles of variables whose states are intervals, against numbers drawn inside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.inference.results.marginals import Posterior

STATES = ("[4, 10)", "[0, 2.5)", "[2.5, 4)")  # not ascending


def test_against_draws() -> None:
    p = Posterior("age", STATES, np.array([0.5, 0.2, 0.3]))
    rng = np.random.default_rng(1)
    ends = np.array([(4, 10), (0, 2.5), (2.5, 4)])[rng.choice(3, 400_000, p=p.probabilities)]
    drawn = rng.uniform(ends[:, 0], ends[:, 1])
    assert p.mean == pytest.approx(drawn.mean(), abs=0.02)
    assert p.mean == pytest.approx(0.5 * 7 + 0.2 * 1.25 + 0.3 * 3.25)
    assert p.sd == pytest.approx(drawn.std(), abs=0.02)
    levels = [0.05, 0.2, 0.4, 0.5, 0.95]
    assert p.quantiles(levels) == pytest.approx(np.quantile(drawn, levels), abs=0.03)
    assert p.quantiles([0.2, 0.5, 0.75]) == pytest.approx([2.5, 4, 7])


def test_intervals_without_a_bound() -> None:
    states = ("(-inf, 2.5)", "[2.5, 4)", "[4, inf)")
    p = Posterior("age", states, np.array([0.2, 0.6, 0.2]))
    with pytest.raises(jtgpu.ArgumentError, match="'age' has no bound"):
        _ = p.mean
    assert p.quantiles([0.5]) == pytest.approx([3.25])  # inside an interval with two ends
    with pytest.raises(jtgpu.ArgumentError, match="from 4 to inf"):
        p.quantiles([0.9])
    certain = Posterior("age", states, np.array([0.0, 1.0, 0.0]))
    assert (certain.mean, certain.sd) == pytest.approx((3.25, 1.5 / np.sqrt(12)))


def test_other_states_and_levels() -> None:
    with pytest.raises(jtgpu.ArgumentError, match="are not intervals"):
        _ = Posterior("rain", ("yes", "no"), np.array([0.5, 0.5])).sd
    with pytest.raises(jtgpu.ArgumentError, match="above 0 and below 1"):
        Posterior("age", STATES, np.array([0.5, 0.2, 0.3])).quantiles([1.0])


def test_draws_inside_the_intervals() -> None:
    cpts: dict[str, Any] = {"age": [0.5, 0.2, 0.3], "sick": [[0.4, 0.6], [0.9, 0.1], [0.7, 0.3]]}
    net = jtgpu.BayesianNetwork({"age": STATES, "sick": ["no", "yes"]}, {"sick": ["age"]}, cpts)
    tree = net.compile("cpu")
    names, drawn = tree.sample(20_000, seed=4), tree.sample(20_000, seed=4, numbers=True)
    assert drawn["sick"].tolist() == names["sick"].tolist()
    low = np.array([4, 0, 2.5])[names.states[:, 0]]
    high = np.array([10, 2.5, 4])[names.states[:, 0]]
    assert ((drawn["age"] >= low) & (drawn["age"] < high)).all()
    p = tree.posterior("age")
    assert drawn["age"].mean() == pytest.approx(p.mean, abs=0.1)
    assert drawn["age"].std() == pytest.approx(p.sd, abs=0.1)
    assert np.quantile(drawn["age"], [0.2, 0.7]) == pytest.approx(p.quantiles([0.2, 0.7]), abs=0.15)
    assert tree.sample(5, seed=4, numbers=True)["age"].tolist() == drawn["age"][:5].tolist()
    assert str(drawn["age"][0])[:6] in str(tree.sample(1, seed=4, numbers=True))
    full = tree.impute({"age": [3.25, None, "[0, 2.5)"], "sick": ["yes", "no", "no"]}, seed=1, numbers=True)
    ages = full.to_frame()["age"]
    assert 0 <= ages[2] < 2.5
    kept = tree.impute({"age": [3.25, None, 9.0], "sick": ["yes", "no", "no"]}, seed=1, numbers=True).to_frame()
    assert kept["age"].dtype == np.float64
    assert (kept["age"][0], kept["age"][2]) == (3.25, 9.0)


def test_draws_that_are_not_determined() -> None:
    open_ends = jtgpu.BayesianNetwork({"age": ["(-inf, 2.5)", "[2.5, 4)"]}, {}, {"age": [0.5, 0.5]}).compile("cpu")
    with pytest.raises(jtgpu.ArgumentError, match="'age' has no bound"):
        open_ends.sample(10, seed=1, numbers=True)
    inside = open_ends.sample(10, {"age": "[2.5, 4)"}, seed=1, numbers=True)["age"]
    assert inside.min() >= 2.5
    with pytest.raises(jtgpu.ArgumentError, match="states that are intervals"):
        jtgpu.load("asia").compile("cpu").sample(2, numbers=True)
