"""Credible intervals of answers against quantiles of Beta distributions, and against draws by hand."""

from __future__ import annotations

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, UnknownVariable


def test_intervals_of_one_variable_are_those_of_a_beta_distribution() -> None:
    stats = pytest.importorskip("scipy.stats")
    fit = jtgpu.learn.fit({"rain": []}, {"rain": ["yes"] * 30 + ["no"] * 70}, pseudo_counts=2.0)
    result = fit.credible("rain", draws=4000, seed=3, level=0.9)
    beta = stats.beta(32, 72)
    assert result.states == ("no", "yes")
    assert result.probabilities[1] == pytest.approx(32 / 104, abs=1e-12)
    assert (result.lower[1], result.upper[1]) == pytest.approx((beta.ppf(0.05), beta.ppf(0.95)), abs=0.01)
    assert result.draws.mean(axis=0) == pytest.approx([72 / 104, 32 / 104], abs=0.005)
    assert stats.kstest(result.draws[:, 1], beta.cdf).pvalue > 1e-3


def test_draws_are_answers_of_networks() -> None:
    net = jtgpu.network("a -> b; a -> c", "{x|y}", seed=2)
    with net.compile("cpu") as tree:
        cases = tree.sample(50, seed=1).to_frame()
    fit = jtgpu.learn.fit(net, cases, tied=[("b", "c")], fixed=["a"])
    result = fit.credible("b", {"c": "x"}, draws=20, seed=7)
    counts = 1.0 + fit.counts["b"] + fit.counts["c"]
    for i in (0, 19):
        rng = np.random.Generator(np.random.Philox(key=[7, i]))
        drawn = rng.standard_gamma(counts)
        drawn /= drawn.sum(axis=-1, keepdims=True)
        p = np.einsum("a,ab,a->b", net.cpt("a"), drawn, drawn[:, 0])
        assert np.allclose(result.draws[i], p / p.sum(), rtol=0, atol=1e-12)
    assert (fit.credible("b", {"c": "x"}, draws=20, seed=7).draws == result.draws).all()
    assert fit.network.cpt("a").tolist() == net.cpt("a").tolist()


def test_more_cases_make_it_narrower() -> None:
    net = jtgpu.load("asia")
    widths, result = [], None
    for n in (100, 10_000):
        with net.compile("cpu") as tree:
            cases = tree.sample(n, seed=1).to_frame()
        result = jtgpu.learn.fit(net, cases).credible("lung", {"dysp": "yes"}, draws=60)
        widths.append(float((result.upper - result.lower).max()))
        assert (result.lower <= result.probabilities).all()
        assert (result.probabilities <= result.upper).all()
    assert widths[1] < widths[0] / 2
    assert result is not None
    assert [*result.to_frame().columns] == ["lung", "probability", "lower", "upper"]
    assert "intervals of 95 %, by 60 draws" in str(result)


def test_wrong_arguments() -> None:
    fit = jtgpu.learn.fit({"rain": []}, {"rain": ["yes", "no"]})
    with pytest.raises(ArgumentError, match="level must be a probability"):
        fit.credible("rain", level=1)
    with pytest.raises(ArgumentError, match="draws"):
        fit.credible("rain", draws=1)
    with pytest.raises(UnknownVariable):
        fit.credible("snow")
