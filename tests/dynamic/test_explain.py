"""Most probable sequences equal those of the unrolled network; samples have its distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.dynamic import explain
from tests.dynamic.random_templates import label, random_codes, random_question, random_template, unrolled_cases
from tests.dynamic.test_posteriors import umbrella
from tests.support.examples import some

DAYS = {"umbrella": [["yes", "yes", "no", "yes", "yes"]]}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_umbrella_world(backend: Any) -> None:
    best = umbrella().compile(backend).mpe(DAYS)
    assert best["rain"].tolist() == [["yes", "yes", "no", "yes", "yes"]]  # Russell and Norvig, section 14.2
    expected = 0.5 * 0.9**4 * 0.8 * 0.7**2 * 0.3**2
    assert best.log_joint[0] == pytest.approx(math.log(expected), rel=1e-14)
    assert best.to_frame()["umbrella"].tolist() == DAYS["umbrella"][0]


@pytest.mark.parametrize("seed", some(60, 5))
def test_best_sequences_are_those_of_the_unrolled_network(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    dyn = random_template(rng)
    length, n = int(rng.integers(1, 6)), 3
    codes = random_codes(rng, dyn, n, length)
    net, likelihood, do, unrolled_do = dyn.unroll(length), {}, {}, {}
    if rng.random() < 0.5:
        v = dyn.variables[int(rng.integers(len(dyn)))]
        likelihood[v] = rng.random((n, length, len(dyn.states(v)))) + 0.01
    if rng.random() < 0.5:
        v, t = dyn.variables[int(rng.integers(len(dyn)))], int(rng.integers(length))
        codes[:, :, dyn.index(v)] = -1
        do[v] = dyn.states(v)[-1] if v in dyn.static else {t: dyn.states(v)[-1]}
        unrolled_do[label(dyn, v, t)] = dyn.states(v)[-1]
    tree = dyn.compile("cpu" if seed % 2 else "reference")
    best = tree.mpe(codes, likelihood=likelihood, do=do, on_error="flag")
    whole, cases = net.compile("reference"), unrolled_cases(dyn, net, codes)
    for i in range(n):
        seen = {net.variables[v]: net.states(v)[s] for v, s in enumerate(cases[i].tolist()) if s >= 0}
        given = {label(dyn, v, t): w[i, t] for v, w in likelihood.items() for t in range(length)
                 if v not in dyn.static or t == 0}  # fmt: skip
        if best.impossible[i]:
            with pytest.raises(jtgpu.ImpossibleEvidence):
                whole.mpe(seen, likelihood=given, do=unrolled_do)
            assert (best.states[i] == -1).all()
            continue
        expected = whole.mpe(seen, likelihood=given, do=unrolled_do)
        assert best.log_joint[i] == pytest.approx(expected.log_joint, rel=1e-10)
        chosen = {label(dyn, v, t): str(best[v][i, t]) for v in dyn.variables for t in range(length)}
        assert seen.items() <= chosen.items()
        if len(whole.mpe(seen, likelihood=given, do=unrolled_do, k=2).ranked) < 2:
            assert chosen == dict(expected)


def test_of_equal_sequences_the_first_is_chosen() -> None:
    dyn = umbrella().replace(cpt={"rain": [[0.5, 0.5], [0.5, 0.5]], "umbrella": [[0.5, 0.5], [0.5, 0.5]]})
    assert set(dyn.compile("cpu").mpe(DAYS)["rain"][0]) == {"no"}


@pytest.mark.parametrize("seed", some(24, 3))
def test_best_sequences_of_several_lengths_are_those_of_the_reference(seed: int) -> None:
    rng = np.random.default_rng(300 + seed)
    dyn = random_template(rng)
    frame, options = random_question(rng, dyn, seed, 20)
    best, expected = (dyn.compile(name).mpe(frame, **options) for name in ("cpu", "reference"))
    assert np.array_equal(best.impossible, expected.impossible)
    np.testing.assert_allclose(best.log_joint, expected.log_joint, rtol=1e-12)
    assert np.array_equal(best.states, expected.states)  # random numbers: nothing else is as probable


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_of_equally_probable_ones_the_first_configuration_is_chosen_from_the_last_slice_on(backend: Any) -> None:
    half, names = [[0.5, 0.5], [0.5, 0.5]], ["0", "1"]
    # b is a, one slice later: all paths are equally probable, and the states of a slice follow from those of the next
    dyn = jtgpu.DynamicNetwork(
        {"a": names, "b": names, "o": names}, {"a": [("b", 1)], "b": [("a", 1)], "o": ["a"]},
        {"a": half, "b": [[1.0, 0.0], [0.0, 1.0]], "o": half}, start={"a": [0.5, 0.5], "b": [0.5, 0.5]},
    )  # fmt: skip
    codes = [{"o": ["0"] * n, "b": [None] * (n - 1) + ["1"]} for n in (1, 2, 5, 3)]
    best = dyn.compile(backend).mpe(codes)
    for i, n in enumerate((1, 2, 5, 3)):
        assert best["b"][i, :n].tolist() == ["0"] * (n - 1) + ["1"]
        assert best["a"][i, :n].tolist() == (["0"] * (n - 2) + ["1", "0"] if n > 1 else ["0"])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_evidence_apart_from_the_chain_may_be_impossible(backend: Any) -> None:
    names = ["no", "yes"]
    dyn = jtgpu.DynamicNetwork(
        {"rain": names, "umbrella": names, "alarm": names}, {"rain": [("rain", 1)], "umbrella": ["rain"], "alarm": []},
        {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]], "alarm": [1.0, 0.0]},
        start={"rain": [0.5, 0.5]},
    )  # fmt: skip
    days: Any = {"umbrella": [["yes", "no", "no"]] * 3, "alarm": [["no"] * 3, ["no", "no", "yes"], [None] * 3]}
    best = dyn.compile(backend).mpe(days, on_error="flag")
    assert best.impossible.tolist() == [False, True, False]
    assert best["alarm"].tolist() == [["no"] * 3, [None] * 3, ["no"] * 3]
    assert best.log_joint[0] == best.log_joint[2] > best.log_joint[1] == -math.inf
    with pytest.raises(jtgpu.ImpossibleEvidence, match="sequence 1, slice 2"):
        dyn.compile(backend).mpe(days)


def test_best_sequences_of_very_improbable_evidence() -> None:
    tiny = umbrella().replace(cpt={"umbrella": [[1.0, 1e-250], [1.0, 3e-250]]})
    for backend in ("cpu", "reference"):
        best = tiny.compile(backend).mpe({"umbrella": [["yes"] * 40, ["no", "yes"] * 20]})
        assert best["rain"][0].tolist() == ["yes"] * 40
        expected = math.log(0.5) + 39 * math.log(0.7) + 40 * math.log(3e-250)
        assert best.log_joint[0] == pytest.approx(expected, rel=1e-12)


def test_ragged_and_impossible_sequences() -> None:
    dyn = umbrella().replace(cpt={"umbrella": [[1.0, 0.0], [1.0, 0.0]]})
    frame = {"id": ["a", "a", "b"], "umbrella": ["no", "no", "yes"]}
    best = dyn.compile("cpu").mpe(frame, keys=jtgpu.learn.Keys(id="id"), on_error="flag")
    assert best.impossible.tolist() == [False, True]
    assert best["rain"].tolist() == [["no", "no"], [None, None]]
    assert best.to_frame()["id"].tolist() == ["a", "a", "b"]
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"sequence 1 \('b'\), slice 0"):
        dyn.compile("cpu").mpe(frame, keys=jtgpu.learn.Keys(id="id"))


def test_samples_of_sequences_have_the_probabilities_of_the_unrolled_network() -> None:
    rng = np.random.default_rng(5)
    for _ in range(4):
        dyn = random_template(rng)
        drawn = dyn.compile("cpu").sample(20_000, length=4, seed=int(rng.integers(1000)))
        whole = dyn.unroll(4).compile("reference").posteriors()
        for v in dyn.variables:
            for t in range(4):
                share = np.bincount(drawn.states[:, t, dyn.index(v)], minlength=len(dyn.states(v))) / 20_000
                np.testing.assert_allclose(share, list(whole[label(dyn, v, t)].values()), atol=0.02)


@pytest.mark.parametrize("seed", some(6, 1))
def test_posterior_samples_have_the_smoothed_probabilities(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dyn = random_template(rng)
    codes = dyn.compile("reference").sample(2, length=4, seed=seed).states
    codes[rng.random(codes.shape) < 0.6] = -1
    tree = dyn.compile("cpu" if seed % 2 else "reference")
    v = dyn.variables[-1]
    likelihood = {v: rng.random((2, 4, len(dyn.states(v)))) + 0.1} if seed > 3 else None
    n = 4000 if seed % 2 and not likelihood else 200  # the definition takes each sample as a row of its own
    drawn, smoothed = tree.sample(n, codes, seed=seed, likelihood=likelihood), tree.smooth(codes, likelihood=likelihood)
    assert drawn.states.shape == (n, 2, 4, len(dyn))
    assert ((drawn.states == codes) | (codes < 0)).all()
    for v in dyn.variables:
        share = (drawn.states[..., dyn.index(v), None] == np.arange(len(dyn.states(v)))).mean(axis=0)
        np.testing.assert_allclose(share, smoothed[v], atol=4 / np.sqrt(n) / 2)


def test_samples_repeat_with_their_seed() -> None:
    tree = umbrella().compile("cpu")
    assert np.array_equal(tree.sample(5, length=7, seed=3).states[:2], tree.sample(2, length=7, seed=3).states)
    first, again = (tree.sample(3, DAYS, seed=4) for _ in range(2))
    assert np.array_equal(first.states, again.states)
    assert list(first.to_frame()["sample"]) == [0] * 5 + [1] * 5 + [2] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "length="),
        ({"length": 3, "sequences": DAYS}, "without sequences"),
        ({"length": 3, "do": {"rain": "yes"}}, "do="),
    ],
)
def test_sample_says_what_it_needs(options: dict[str, Any], message: str) -> None:
    with pytest.raises(jtgpu.ArgumentError, match=message):
        umbrella().compile("cpu").sample(2, **options)
    with pytest.raises(jtgpu.ArgumentError, match="seed"):
        umbrella().compile("cpu").sample(2, length=2, seed="x")


@pytest.mark.slow
def test_functions_of_other_variables_take_no_pass_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    dyn = jtgpu.DynamicNetwork(
        {"a": ["0", "1"], "b": ["0", "1"], "both": ["00", "01", "10", "11"]},
        {"a": [("a", 1)], "b": [("b", 1), "a"], "both": ["a", "b"]},
        {"a": rng.dirichlet([1, 1], 2), "b": rng.dirichlet([1, 1], (2, 2)), "both": np.eye(4).reshape(2, 2, 4)},
        start={"a": [0.5, 0.5], "b": rng.dirichlet([1, 1], 2)},
    )
    weights = rng.random((2, 5, 4)) + 0.1
    tree, whole = dyn.compile("reference"), dyn.unroll(5).compile("reference")
    monkeypatch.setattr(explain, "_distinct", None)  # nothing is left to choose
    best = tree.mpe(np.full((2, 5, 3), -1), likelihood={"both": weights})
    drawn = tree.sample(400, np.full((1, 5, 3), -1), likelihood={"both": weights[:1]}, seed=1)
    assert (drawn.states[..., 2] == 2 * drawn.states[..., 0] + drawn.states[..., 1]).all()
    smooth = tree.smooth(np.full((1, 5, 3), -1), likelihood={"both": weights[:1]})
    assert np.allclose((drawn.states[:, 0, :, 0] == 1).mean(axis=0), smooth["a"][0, :, 1], atol=0.1)
    for i in range(2):
        expected = whole.mpe({}, likelihood={f"both[{t}]": weights[i, t] for t in range(5)})
        assert {f"{v}[{t}]": best[v][i, t] for v in dyn for t in range(5)} == dict(expected)
        assert best.log_joint[i] == pytest.approx(expected.log_joint, rel=1e-12)
