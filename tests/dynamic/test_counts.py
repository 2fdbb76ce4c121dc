"""Expected counts of slices equal those of the unrolled network, summed over slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.dynamic import counts, propagation
from jtgpu.dynamic.sequences import read_sequences
from tests.dynamic.random_templates import label, random_codes, random_template, unrolled_cases
from tests.support.examples import some


def of_unrolled(
    dyn: jtgpu.DynamicNetwork, codes: np.ndarray, weights: np.ndarray, likelihood: Any
) -> tuple[list[np.ndarray], list[list[np.ndarray]], np.ndarray]:
    """Counts of the CPTs and of those of the first slices, and ln P, by the unrolled network."""
    length = codes.shape[1]
    net = dyn.unroll(length)
    given = {
        label(dyn, v, t): w[:, t] for v, w in likelihood.items() for t in range(1 if v in dyn.static else length)
    }
    whole = net.compile("reference").expected_counts(
        unrolled_cases(dyn, net, codes), likelihood=given or None, weights=weights, on_error="flag"
    )
    cpts, start = [], []
    for v in dyn.variables:
        m = len(dyn.start(v))
        total = np.zeros(np.shape(dyn.cpt(v)))
        for t in range(m, 1 if v in dyn.static else length):
            total += whole[label(dyn, v, t)]
        cpts.append(total)
        start.append([
            np.asarray(whole[label(dyn, v, t)]) if t < length else np.zeros(np.shape(dyn.cpt(v, t))) for t in range(m)
        ])
    return cpts, start, whole.log_evidence


@pytest.mark.parametrize("seed", some(300, 10))
def test_counts_equal_those_of_the_unrolled_network(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([7, seed])
    dyn = random_template(rng)
    length, n = int(rng.integers(1, 7)), 4
    codes = random_codes(rng, dyn, n, length)
    weights = rng.random(n) + 0.1
    likelihood = {}
    if rng.random() < 0.5:
        v = dyn.variables[int(rng.integers(len(dyn)))]
        likelihood[v] = rng.random((n, length, len(dyn.states(v)))) + 0.01
    if seed % 3 == 0:
        monkeypatch.setattr(propagation, "KEPT", 0)
        monkeypatch.setattr(counts, "BLOCK_CELLS", 10)
    step = dyn.compile("cpu" if seed % 2 else "reference").step
    made = counts.expected_counts(step, read_sequences(dyn, codes, likelihood=likelihood), weights)
    cpts, start, log_evidence = of_unrolled(dyn, codes, weights, likelihood)
    np.testing.assert_allclose(made.log_evidence, log_evidence, rtol=1e-10, atol=1e-12)
    assert np.array_equal(made.failed >= 0, np.isneginf(log_evidence))
    for k in range(len(dyn)):
        np.testing.assert_allclose(made.cpts[k], cpts[k], rtol=0, atol=1e-10)
        for mine, theirs in zip(made.start[k], start[k], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)


def test_bits_depend_neither_on_threads_nor_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    dyn = random_template(np.random.default_rng(3))
    read = read_sequences(dyn, random_codes(rng, dyn, 150, 40))
    weights = rng.random(150)
    expected = counts.expected_counts(dyn.compile("cpu", threads=1).step, read, weights)
    for kept in (propagation.KEPT, 0, 1 << 16):
        monkeypatch.setattr(propagation, "KEPT", kept)
        made = counts.expected_counts(dyn.compile("cpu", threads=2).step, read, weights)
        assert all(np.array_equal(a, b) for a, b in zip(made.cpts, expected.cpts, strict=True))
        for mine, theirs in zip(made.start, expected.start, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_complete_sequences_are_counted(seed: int) -> None:
    rng = np.random.default_rng([8, seed])
    dyn = random_template(rng)
    net = dyn.unroll(6)
    codes = np.zeros((5, 6, len(dyn)), np.int32)
    states = net.compile("cpu").sample(5, seed=seed).states
    for t in range(6):
        for v in dyn.variables:
            codes[:, t, dyn.index(v)] = states[:, net.index(label(dyn, v, t))]
    weights = np.arange(1.0, 6.0)
    sequences = read_sequences(dyn, codes)
    step = dyn.compile("cpu").step
    counted = counts.complete_counts(step, sequences, weights)
    expected = counts.expected_counts(step, sequences, weights)
    for k in range(len(dyn)):
        np.testing.assert_allclose(counted.cpts[k], expected.cpts[k], rtol=0, atol=1e-9)
        for mine, theirs in zip(counted.start[k], expected.start[k], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)


def test_a_variable_that_is_set_says_nothing_about_its_cpt() -> None:
    dyn = jtgpu.DynamicNetwork(
        {"drug": ["no", "yes"], "ill": ["no", "yes"]},
        {"drug": [], "ill": [("ill", 1), "drug"]},
        {"drug": [0.5, 0.5], "ill": np.full((2, 2, 2), 0.5)},
        start={"ill": np.full((2, 2), 0.5)},
    )
    sequences = read_sequences(dyn, {"ill": [["no", "yes", "no"]]}, do={"drug": {1: "yes"}})
    made = counts.expected_counts(dyn.compile("cpu").step, sequences, np.ones(1))
    assert made.cpts[0].sum() == pytest.approx(2.0)
    assert made.cpts[1].sum() == pytest.approx(2.0)
    assert made.cpts[1][0, 1, 1] == pytest.approx(1.0)
