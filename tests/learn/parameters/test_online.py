"""`jtgpu.learn.Online`: counts that follow a stream of cases."""

from __future__ import annotations

import numpy as np
import pytest

import jtgpu
from jtgpu.learn import Online, fit
from tests.support.bundled import bundled


def test_complete_cases_add_to_the_experience() -> None:
    net = bundled("asia")
    states = net.compile("reference").sample(100, seed=0).states.astype(np.int32)
    learner = Online(net, experience=5)
    for part in np.split(states, 10):
        learner.update(part)
    prior = {v: 5 * np.asarray(net.cpt(v)) for v in net}
    whole = fit(net, states, pseudo_counts=prior).network
    for v in net:
        np.testing.assert_allclose(learner.network.cpt(v), whole.cpt(v), rtol=1e-12)
    assert learner.n_cases == 100
    assert learner.experience("smoke") == pytest.approx(105)


def test_fading_weighs_the_rows_of_a_table_as_single_cases() -> None:
    net = jtgpu.network("a->b", "{x|y}", seed=1)
    cases = [{"a": "x", "b": "y"}, {"a": "y", "b": "y"}, {"a": "x", "b": "x"}]
    one, many = Online(net, fading=0.9), Online(net, fading=0.9)
    one.update(cases)
    for case in cases:
        many.update(case)
    for v in net:
        np.testing.assert_allclose(one.network.cpt(v), many.network.cpt(v), rtol=1e-12)
    assert one.experience("a") == pytest.approx(0.9**3 + 0.9**2 + 0.9 + 1)


def test_the_tree_follows_and_a_case_can_be_taken_back() -> None:
    net = bundled("asia")
    tree = net.compile("cpu")
    learner = Online(tree, experience=10, fixed=["asia"])
    before = {v: np.asarray(net.cpt(v)) for v in net}
    case = {v: net.states(v)[1] for v in net}
    learner.update([case])
    assert learner.tree is tree
    assert tree.posterior("smoke")["no"] == pytest.approx((0.5 * 10 + 1) / 11)
    np.testing.assert_array_equal(learner.network.cpt("asia"), before["asia"])
    learner.update([case], weights=[-1])
    for v in net:
        np.testing.assert_allclose(learner.network.cpt(v), before[v], atol=1e-12)


def test_bad_input() -> None:
    net = bundled("asia")
    with pytest.raises(jtgpu.NetworkError, match="needs a Bayesian network"):
        Online({"a": ["b"]})  # type: ignore[arg-type]
    with pytest.raises(jtgpu.JtgpuError, match="fading must be above 0"):
        Online(net, fading=0)
    with pytest.raises(jtgpu.JtgpuError, match="experience: there is no variable 'smok'; did you mean 'smoke'"):
        Online(net, experience={"smok": 1})
    with pytest.raises(jtgpu.JtgpuError, match=r"the experience of 'lung' must be .* shape \(2,\)"):
        Online(net, experience={"lung": [1, 2, 3]})
    learner = Online(net)
    with pytest.raises(jtgpu.DataError, match="negative"):
        learner.update([{"smoke": "yes"}], weights=[-10])
    assert learner.network == net
    with pytest.raises(jtgpu.ImpossibleEvidence, match="row 0"):
        learner.update([{"tub": "yes", "either": "no"}])
