"""Filtered, smoothed and predicted posteriors equal those of the unrolled network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from tests.dynamic.random_templates import label, random_codes, random_template, unrolled_cases
from tests.support.examples import some

CLOSE: Any = {"rtol": 0, "atol": 1e-10}


def umbrella() -> jtgpu.DynamicNetwork:
    """Russell and Norvig's umbrella world."""
    return jtgpu.DynamicNetwork(
        {"rain": ["no", "yes"], "umbrella": ["no", "yes"]},
        {"rain": [("rain", 1)], "umbrella": ["rain"]},
        {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]},
        start={"rain": [0.5, 0.5]},
    )


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_umbrella_world(backend: Any) -> None:
    tree = umbrella().compile(backend)
    days = {"umbrella": [["yes", "yes"]]}
    assert np.allclose(tree.filter(days)["rain"][0, :, 1], [0.818, 0.883], atol=5e-4)
    assert np.allclose(tree.smooth(days)["rain"][0, 0, 1], 0.883, atol=5e-4)
    live = tree.stream()
    assert live.step({"umbrella": "yes"})["rain"]["yes"] == pytest.approx(0.818, abs=5e-4)
    state = live.state
    assert live.step({"umbrella": "yes"})["rain"]["yes"] == pytest.approx(0.883, abs=5e-4)
    again = tree.stream()
    again.restore(state)
    assert again.step({"umbrella": "yes"})["rain"]["yes"] == pytest.approx(0.883, abs=5e-4)
    assert again.log_evidence == pytest.approx(tree.log_likelihood(days)[0], rel=1e-14)


@pytest.mark.parametrize("seed", some(300, 15))
def test_random_templates_equal_the_unrolled_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dyn = random_template(rng)
    length, n = int(rng.integers(1, 6)), 3
    codes = random_codes(rng, dyn, n, length)
    likelihood, given, do, unrolled_do = {}, {}, {}, {}
    net = dyn.unroll(length)
    if rng.random() < 0.5:
        v = dyn.variables[int(rng.integers(len(dyn)))]
        w = rng.random((n, length, len(dyn.states(v)))) + 0.01
        likelihood[v] = w
        for t in range(1 if v in dyn.static else length):
            given[label(dyn, v, t)] = w[:, t]
    if rng.random() < 0.5:
        v = dyn.variables[int(rng.integers(len(dyn)))]
        codes[:, :, dyn.index(v)] = -1
        state, t = dyn.states(v)[-1], int(rng.integers(length))
        do[v] = state if v in dyn.static else {t: state}
        unrolled_do[label(dyn, v, t)] = state
    tree = dyn.compile("cpu" if seed % 2 else "reference")
    options: Any = {"likelihood": likelihood or None, "do": do or None}
    answer = tree.smooth(codes, on_error="flag", **options)
    whole = net.compile("reference").posteriors_batch(
        unrolled_cases(dyn, net, codes), likelihood=given or None, do=unrolled_do or None, on_error="flag"
    )
    assert np.allclose(answer.log_evidence, whole.log_evidence, rtol=1e-10)
    for t in range(length):
        for v in dyn.variables:
            assert np.allclose(answer[v][:, t], whole[label(dyn, v, t)], **CLOSE)
    t = int(rng.integers(length))
    filtered = tree.filter(codes, at=[t], on_error="flag", **options)
    cut = codes.copy()
    cut[:, t + 1 :] = -1
    for v, w in likelihood.items():
        if v not in dyn.static:
            for late in range(t + 1, length):
                given[label(dyn, v, late)] = np.ones_like(w[:, late])
    upto = net.compile("reference").posteriors_batch(
        unrolled_cases(dyn, net, cut), likelihood=given or None, do=unrolled_do or None, on_error="flag"
    )
    for v in dyn.variables:
        assert np.allclose(filtered[v][:, 0], upto[label(dyn, v, t)], **CLOSE)
