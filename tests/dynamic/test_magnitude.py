"""Sequences in which a state falls below 1e-308 of another one: compared with sums of logarithms."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.cpu.slices import CpuSliceGroup
from jtgpu.dynamic import counts, explain, posteriors, propagation, sequences
from jtgpu.dynamic.counts import expected_counts
from jtgpu.util.elementary import exps, logs
from tests.dynamic.random_templates import random_question, random_template
from tests.support.examples import slow, some

BACKENDS: list[Any] = ["cpu", "reference"]


def summed(x: Any, axis: int | None = None) -> Any:
    """ln of the sum of exponentials."""
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    return logs(exps(x - top).sum(axis=axis)) + (top.item() if axis is None else top.squeeze(axis))


class Logs:
    """Forward, backward and best passes of a hidden chain in logarithms."""

    def __init__(self, start: Any, moves: Any, density: Any):
        # start: (K,); moves: (K, K); density: (T, K) ln P(observation | state)
        start, moves = logs(np.asarray(start, float)), logs(np.asarray(moves, float))
        n = len(density)
        alpha, beta, best = (np.zeros(density.shape) for _ in range(3))
        for t in range(n):
            alpha[t] = density[t] + (start if t == 0 else summed(alpha[t - 1][:, None] + moves, 0))
            best[t] = density[t] + (start if t == 0 else (best[t - 1][:, None] + moves).max(axis=0))
        for t in range(n - 2, -1, -1):
            beta[t] = summed(moves + density[t + 1] + beta[t + 1], 1)
        self.log_evidence, self.log_best = float(summed(alpha[-1])), float(best[-1].max())
        self.filtered = exps(alpha - summed(alpha, 1)[:, None])
        both = alpha + beta
        self.smoothed = exps(both - summed(both, 1)[:, None])
        self.next = exps(summed((alpha[-1] - self.log_evidence)[:, None] + moves, 0))


def with_static_class(e: float) -> jtgpu.DynamicNetwork:
    return jtgpu.DynamicNetwork(
        {"s": ["n", "y"], "x": ["A", "B"]}, {"x": ["s"]}, {"s": [0.5, 0.5], "x": [[1 - e, e], [e, 1 - e]]}, static=["s"]
    )


def with_identity(e: float) -> jtgpu.DynamicNetwork:
    return jtgpu.DynamicNetwork(
        {"s": ["n", "y"], "x": ["A", "B"]}, {"s": [("s", 1)], "x": ["s"]},
        {"s": np.eye(2), "x": [[1 - e, e], [e, 1 - e]]}, start={"s": [0.5, 0.5]},
    )  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [with_static_class, with_identity])
@pytest.mark.parametrize(("e", "a", "b"), [(1e-6, 60, 100), *slow((0.1, 341, 682), (1e-4, 100, 100))])
def test_contradicting_readings(backend: Any, make: Any, e: float, a: int, b: int) -> None:
    if backend == "reference" and a > 300:
        a, b = a // 4, b // 4
    seen = np.repeat([0, 1], [a, b])
    expected = Logs([0.5, 0.5], np.eye(2), logs(np.where(seen[:, None] == [0, 1], 1 - e, e)))
    given, tree = {"x": [["AB"[i] for i in seen]]}, make(e).compile(backend)
    found = tree.filter(given)
    np.testing.assert_allclose(found["s"][0], expected.filtered, rtol=0, atol=1e-11)
    assert found.log_evidence[0] == pytest.approx(expected.log_evidence, rel=1e-12)
    assert tree.log_likelihood(given)[0] == found.log_evidence[0]
    smoothed = tree.smooth(given)
    np.testing.assert_allclose(smoothed["s"][0], expected.smoothed, rtol=0, atol=1e-11)
    np.testing.assert_allclose(smoothed["s"].sum(axis=-1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(tree.predict(given, ahead=2)["s"][0, 1], expected.smoothed[-1], rtol=0, atol=1e-11)
    best = tree.mpe(given)
    assert best.log_joint[0] == pytest.approx(expected.log_best, rel=1e-12)
    live = tree.stream()
    for i in seen[:-1]:
        live.step({"x": "AB"[i]})
    other = tree.stream()
    other.restore(live.state)
    last = other.step({"x": "B"})
    assert last["s"]["y"] == pytest.approx(expected.filtered[-1, 1], abs=1e-11)
    assert other.log_evidence == pytest.approx(expected.log_evidence, rel=1e-11)
    if a != b:
        assert set(best["s"].ravel()) == {"y"} == set(tree.sample(2, given, seed=1)["s"].ravel())


@pytest.mark.parametrize("make", [with_static_class, with_identity])
def test_a_fit_counts_such_a_sequence_and_goes_on(make: Any) -> None:
    net = make(0.1)
    step = net.compile("cpu").step
    rows = [{"x": ["A"] * 341 + ["B"] * 682}, {"x": ["A"] * 1000}, {"x": ["A", "B"] * 500}]
    read = sequences.read_sequences(net, rows)
    weights = np.array([1.0, 2.0, 0.5])
    together = expected_counts(step, read, weights)
    assert np.isfinite(together.log_evidence).all()
    assert (together.failed < 0).all()
    x = together.cpts[net.index("x")]
    np.testing.assert_allclose(x, [[2000.0 + 125, 0.0 + 125], [341.0 + 125, 682.0 + 125]], rtol=1e-12)
    fitted = jtgpu.learn.fit(net, rows, hidden="s", pseudo_counts=1, em=jtgpu.learn.EM(iterations=3, start="given"))
    assert np.isfinite(fitted.log_likelihood)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sd", [10.0, 38.0, 60.0, 300.0])
def test_one_reading_far_out(backend: Any, sd: float) -> None:
    net = jtgpu.MixedDynamicNetwork(
        {"s": ["ok", "failed"], "x": float}, {"s": [("s", 1)], "x": ["s"]},
        {"s": np.array([[0.9, 0.1], [0, 1]]), "x": jtgpu.Gaussian([0.0, sd])}, start={"s": [1.0, 0]},
    )  # fmt: skip
    tree, x = net.compile(backend), np.array([0.0, 0.1, sd, 0.0, -0.1, 0.2])
    density = -0.5 * (x[:, None] - [0.0, sd]) ** 2 - 0.5 * math.log(2 * math.pi)
    compare(tree, x, Logs([1, 0], [[0.9, 0.1], [0, 1]], density))


def compare(tree: Any, x: Any, expected: Logs) -> None:
    """Every answer about one sequence of numbers."""
    given = {"x": x[None]}
    found = tree.filter(given)
    np.testing.assert_allclose(found["s"][0], expected.filtered, rtol=0, atol=1e-9)
    assert found.log_evidence[0] == pytest.approx(expected.log_evidence, rel=1e-12)
    assert np.isfinite(found.mean["x"]).all()
    smoothed = tree.smooth(given)["s"]
    np.testing.assert_allclose(smoothed[0], expected.smoothed, rtol=0, atol=1e-9)
    np.testing.assert_allclose(smoothed.sum(axis=-1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(tree.predict(given)["s"][0, 0], expected.next, rtol=0, atol=1e-9)
    assert tree.mpe(given).log_joint[0] == pytest.approx(expected.log_best, rel=1e-12)
    drawn = tree.sample(3, given, seed=1)
    assert (drawn.states >= 0).all()
    live = tree.stream()
    filtered = [live.step({"x": float(y)})["s"].probabilities for y in x]
    np.testing.assert_allclose(filtered, expected.filtered, rtol=0, atol=1e-9)
    assert live.log_evidence == pytest.approx(expected.log_evidence, rel=1e-11)


@pytest.mark.parametrize("seed", some(200, 4))
def test_left_to_right_models(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, n, apart = int(rng.integers(2, 5)), int(rng.integers(2, 40)), float(rng.uniform(10, 60))
    names = [f"s{i}" for i in range(k)]
    moves = np.triu(rng.random((k, k))) * (np.subtract.outer(np.arange(k), np.arange(k)) >= -1)
    moves[-1, -1] = 1.0
    moves /= moves.sum(axis=1, keepdims=True)
    start = np.eye(k)[0] if seed % 2 else np.full(k, 1 / k)
    means = np.arange(k) * apart
    net = jtgpu.MixedDynamicNetwork(
        {"s": names, "x": float}, {"s": [("s", 1)], "x": ["s"]}, {"s": moves, "x": jtgpu.Gaussian(means)},
        start={"s": start},
    )  # fmt: skip
    x = means[np.sort(rng.integers(0, k, n))] + rng.standard_normal(n)
    some_ = rng.random(n) < 0.1
    x[some_] = rng.choice(means, int(some_.sum())) + rng.standard_normal(int(some_.sum()))
    density = -0.5 * (x[:, None] - means) ** 2 - 0.5 * math.log(2 * math.pi)
    compare(net.compile(BACKENDS[seed % 3 == 0]), x, Logs(start, moves, density))


@pytest.mark.parametrize("seed", some(60, 4))
def test_extended_passes_have_the_answers_of_ordinary_ones(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    dyn = random_template(rng)
    frame, options = random_question(rng, dyn, seed, int(rng.integers(1, 12)))
    tree = dyn.compile("cpu")
    more: Any = {"joints": [(f"{dyn.variables[0]}[t]", f"{dyn.variables[1]}[t]")], "at": [None, "last", [0]][seed % 3]}
    plain = {k: x for k, x in options.items() if k != "on_error"}

    def answers() -> list[Any]:
        made: list[Any] = [tree.filter(frame, **options, **more), tree.smooth(frame, **options, **more)]
        made += [tree.predict(frame, ahead=2, **options), tree.mpe(frame, **options)]
        return made if made[-1].impossible.any() else [*made, tree.sample(3, frame, seed=1, **plain)]

    expected = answers()
    read = sequences.read_sequences(dyn, frame, **plain)
    expected_sums = expected_counts(tree.step, read, np.arange(1.0, read.n + 1))
    monkeypatch.setattr(CpuSliceGroup, "finish", lambda group: np.ones(group.n, np.bool_))
    monkeypatch.setattr(sequences.Sequences, "extended", property(lambda read: np.ones(read.n, np.bool_)))
    monkeypatch.setattr(propagation, "KEPT", 0 if seed % 5 == 0 else 1 << 20)  # 0: blocks of slices
    for a, b in zip(answers(), expected, strict=True):
        if hasattr(a, "log_joint"):
            np.testing.assert_allclose(a.log_joint, b.log_joint, rtol=1e-12)
        elif hasattr(a, "states"):
            assert np.array_equal(a.states, b.states)
        else:
            np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=1e-12, atol=1e-12)
            for u in dyn:
                np.testing.assert_allclose(a[u], b[u], rtol=0, atol=1e-12)
            for key, table in a.joint.items():
                np.testing.assert_allclose(table, b.joint[key], rtol=0, atol=1e-12)
    sums = expected_counts(tree.step, read, np.arange(1.0, read.n + 1))
    for one, other in zip(sums.cpts, expected_sums.cpts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
    assert np.array_equal(sums.failed, expected_sums.failed)


def test_ordinary_long_sequences_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state far behind underflows in all of these, and stays behind: nothing is computed again."""
    tree = with_identity(0.1).compile("cpu")
    given = {"x": tree.sample(20, length=1000, seed=3)["x"]}

    def refused(*_: Any) -> Any:
        raise AssertionError

    for module in (posteriors, explain, counts):
        monkeypatch.setattr(module, "extended_table", refused)
    found = tree.filter(given, at="last")
    assert (found["s"].max(axis=1) == 1.0).all()
    np.testing.assert_array_equal(tree.smooth(given, at=[3])["s"][:, 0].argmax(axis=1), found["s"].argmax(axis=1))


def test_impossible_stays_impossible() -> None:
    net = with_identity(0.0)
    given = {"x": [["A"] * 5 + ["B"] * 5, ["B"] * 10]}
    tree = net.compile("cpu")
    with pytest.raises(jtgpu.ImpossibleEvidence, match="sequence 0, slice 5"):
        tree.smooth(given)
    tiny = jtgpu.DynamicNetwork(
        {"s": ["n", "y"], "x": ["A", "B", "C"]}, {"s": [("s", 1)], "x": ["s"]},
        {"s": np.eye(2), "x": [[1 - 1e-9, 1e-9, 0.0], [1e-9, 1 - 1e-9, 0.0]]}, start={"s": [0.5, 0.5]},
    ).compile("cpu")  # fmt: skip
    given = {"x": [["A"] * 60 + ["B"] * 70 + ["C"], ["A"] * 131]}
    with pytest.raises(jtgpu.ImpossibleEvidence, match="sequence 0, slice 130"):
        tiny.filter(given)
    found = tiny.smooth(given, on_error="flag")
    assert found.impossible.tolist() == [True, False]
    assert found["s"][0].max() == 0.0


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_likelihood_of_an_impossible_sequence_is_minus_infinity(backend: Any) -> None:
    start: Any = {"s": [0.5, 0.5]}
    table: Any = {"s": [[1, 0], [0.5, 0.5]], "o": [[1, 0], [0, 1]]}
    states: Any = {"s": ["a", "b"], "o": ["a", "b"]}
    parents: Any = {"s": [("s", 1)], "o": ["s"]}
    data = {"o": [["a", "b"], ["b", "a"]]}
    with jtgpu.DynamicNetwork(states, parents, table, start=start).compile(backend) as tree:
        assert tree.log_likelihood(data) == pytest.approx([-np.inf, np.log(0.25)])
    mixed = jtgpu.MixedDynamicNetwork(
        {**states, "x": float}, {**parents, "x": ["s"]}, {**table, "x": jtgpu.Gaussian([0.0, 5.0])}, start=start
    )
    far = mixed.compile(backend).log_likelihood({"o": [*data["o"], ["a", "a"]], "x": [[0, 1], [5, 0], [0, 1e200]]})
    assert far == pytest.approx([-np.inf, np.log(0.25) - np.log(2 * np.pi), -np.inf])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_of_1_and_a_small_number_is_no_function(backend: Any) -> None:
    dyn = jtgpu.DynamicNetwork(
        {"h": ["a", "b"], "x": ["p", "q"]}, {"h": [("h", 1)], "x": ["h"]},
        {"h": [[0.9, 0.1], [0.2, 0.8]], "x": [[1.0, 0.0], [1.0, 1e-17]]}, start={"h": [0.5, 0.5]},
    )  # fmt: skip
    tree, weights = dyn.compile(backend), {"x": np.array([[[0.0, 1.0]]])}
    best = tree.mpe({"x": [[None]]}, likelihood=weights)
    assert (best["h"].item(), best["x"].item()) == ("b", "q")
    assert best.log_joint.item() == pytest.approx(math.log(0.5e-17))
    drawn = tree.sample(5, {"x": [[None]]}, likelihood=weights, seed=1)
    assert set(np.ravel(drawn["x"])) == {"q"}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("far", [6e4, 1e9])
def test_readings_beyond_exponents_of_32_bits(backend: Any, far: float) -> None:
    net = jtgpu.MixedDynamicNetwork(
        {"s": ["a", "b"], "x": float}, {"s": [("s", 1)], "x": ["s"]},
        {"s": [[0.9, 0.1], [0.1, 0.9]], "x": jtgpu.Gaussian([0.0, far])}, start={"s": [0.5, 0.5]},
    )  # fmt: skip
    tree, seen = net.compile(backend), {"x": [[far, 0.2, far]]}
    expected = math.log(0.5 * 0.1 * 0.1) - 1.5 * math.log(2 * math.pi) - 0.02
    assert tree.log_likelihood(seen).item() == pytest.approx(expected)
    assert list(tree.mpe(seen)["s"][0]) == list(np.ravel(tree.sample(1, seen, seed=1)["s"])) == ["b", "a", "b"]
    np.testing.assert_allclose(tree.smooth(seen)["s"][0, :, 0], [0, 1, 0])
    live = tree.stream()
    steps: list[Any] = [live.step({"x": x}) for x in (far, 0.2, far)]
    assert [round(step["s"]["a"]) for step in steps] == [0, 1, 0]
    assert live.log_evidence == pytest.approx(expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_readings_that_contradict_each_other(backend: Any) -> None:
    def tree(far: float) -> Any:
        net = jtgpu.MixedDynamicNetwork(
            {"s": ["a", "b"], "x": float}, {"s": [("s", 1)], "x": ["s"]},
            {"s": np.eye(2), "x": jtgpu.Gaussian([0.0, far])}, start={"s": [0.5, 0.5]},
        )  # fmt: skip
        return net.compile(backend)

    seen = {"x": [[0.0, 9e4]]}  # a: 9e4 standard deviations; b: 1e5
    assert tree(1e5).smooth(seen)["s"][0, :, 0].tolist() == [1, 1]
    assert tree(1e5).log_likelihood(seen).item() == pytest.approx(math.log(0.5 / (2 * math.pi)) - 0.5 * 9e4**2)
    live, wide = tree(1e9).stream(), {"x": [[0.0, 9e8]]}
    live.step({"x": 0.0})
    far = tree(1e9)
    calls = [partial(ask, wide) for ask in (far.smooth, far.mpe, far.log_likelihood)]
    for one in (*calls, partial(far.sample, 1, wide, seed=1), partial(live.step, {"x": 9e8})):
        with pytest.raises(jtgpu.EvidenceError, match="float64 cannot tell which states"):
            one()
