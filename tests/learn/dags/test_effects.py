"""Effects over a posterior of graphs: an average over all graphs, and what one graph gives."""

from __future__ import annotations

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, JtgpuError, UnknownVariable


def test_effects_are_those_of_the_sampled_graphs() -> None:
    net = jtgpu.network("a->b; a->c; b->c", "{no|yes}", seed=4)
    cases = net.compile("cpu").sample(400, seed=2).to_frame("pandas")
    post = jtgpu.learn.posterior(cases)
    found = post.effect("c", of="b", n_dags=60)
    expected, none = [], 0
    average = post.average(n_dags=60, backend="cpu")
    for one, weight in zip(average.networks, average.weights, strict=True):
        tree = one.compile("cpu")
        gain = tree.posterior("c", do={"b": "yes"})["yes"] - tree.posterior("c", do={"b": "no"})["yes"]
        expected.append(weight * gain)
        none += weight * ("b" not in one.ancestors("c"))
    assert found.mean == pytest.approx(sum(expected), abs=1e-12)
    assert found.p_no_effect == pytest.approx(none)
    assert found.quantile(0.0) == found.draws.min()
    assert found.quantile(1.0) == found.draws.max()
    assert "an arc is no proof of a cause" in str(found)
    drawn = post.effect("c", of="b", n_dags=60, draws=30, seed=1)
    assert drawn.mean == pytest.approx(found.mean, abs=0.05)
    assert drawn.sd >= found.sd - 1e-3
    assert np.array_equal(drawn.draws, post.effect("c", of="b", n_dags=60, draws=30, seed=1).draws)
    with pytest.raises(UnknownVariable, match="there is no variable 'q'"):
        post.effect("q", of="b")
    with pytest.raises(ArgumentError, match="'b' is the cause and the outcome"):
        post.effect("b", of="b")


def test_bad_states_are_refused_where_no_graph_has_an_effect() -> None:
    cases = {"a": ["x", "x", "y", "y"] * 50, "b": ["p", "q", "p", "q"] * 50, "c": ["k", "l", "m", "k", "l"] * 40}
    post = jtgpu.learn.posterior(cases)
    assert post.effect("b", of="a").p_no_effect > 0.9
    for outcome, of, options, match in (
        ("c", "a", {}, "'c' has 3 states: say which"),
        ("c", "a", {"state": "z"}, "variable 'c' has no state 'z'"),
        ("a", "c", {"between": ("k", "z")}, "variable 'c' has no state 'z'"),
    ):
        with pytest.raises(JtgpuError, match=match):
            post.effect(outcome, of=of, **options)
