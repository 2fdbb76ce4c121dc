"""Compiled passes over all slices: the answers of slices one after the other, the same bits, and long sequences."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.cpu import slices
from jtgpu.backends.cpu.runner import on_all_cores
from jtgpu.backends.table import Table
from jtgpu.dynamic import explain, posteriors, propagation
from tests.dynamic.random_templates import random_codes, random_question, random_template
from tests.dynamic.test_posteriors import umbrella
from tests.support.examples import some


def slice_by_slice(patch: pytest.MonkeyPatch) -> None:
    """Turn the compiled passes off."""
    patch.setattr(posteriors, "side_by_side", lambda *_: None)
    patch.setattr(explain, "choosing", lambda *_: None)


@pytest.mark.parametrize("seed", some(24, 6))
def test_answers_are_those_of_slices_one_after_the_other(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    dyn = random_template(rng)
    frame, options = random_question(rng, dyn, seed, int(rng.integers(1, 12)))
    monkeypatch.setattr(propagation, "KEPT", 0 if seed % 5 == 0 else 1 << 20)  # 0: blocks of slices
    tree = dyn.compile("cpu")
    more: Any = {"joints": [(f"{dyn.variables[0]}[t]", f"{dyn.variables[1]}[t]")], "at": [None, "last", [0]][seed % 3]}
    monkeypatch.setattr(posteriors, "NEAR", int(rng.integers(1, 9)))
    made = [tree.filter(frame, **options, **more), tree.smooth(frame, **options, **more)]
    made.append(tree.predict(frame, ahead=2, **options))
    best, drawn = tree.mpe(frame, **options), None
    if not best.impossible.any():
        drawn = tree.sample(3, frame, seed=1, **{k: x for k, x in options.items() if k != "on_error"})
    slice_by_slice(monkeypatch)
    expected = [tree.filter(frame, **options, **more), tree.smooth(frame, **options, **more)]
    expected.append(tree.predict(frame, ahead=2, **options))
    for a, b in zip(made, expected, strict=True):
        np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=1e-12, atol=1e-12)
        for u in dyn:
            np.testing.assert_allclose(a[u], b[u], rtol=0, atol=1e-12)
        for key, table in a.joint.items():
            np.testing.assert_allclose(table, b.joint[key], rtol=0, atol=1e-12)
    np.testing.assert_allclose(best.log_joint, tree.mpe(frame, **options).log_joint, rtol=1e-12)
    if drawn is not None:
        again = tree.sample(3, frame, seed=1, **{k: x for k, x in options.items() if k != "on_error"})
        assert np.array_equal(drawn.states, again.states)


def test_all_cores_work_on_short_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    most = list[int]()
    run = on_all_cores

    def noted(tasks: Any, runner: Any, at_a_time: int) -> None:
        most.append(at_a_time)
        run(tasks, runner, at_a_time)

    monkeypatch.setattr("jtgpu.backends.cpu.slices.on_all_cores", noted)
    tree, days = umbrella().compile("cpu"), {"umbrella": np.full((300, 100), "no")}
    tree.smooth(days)
    tree.mpe(days)
    assert min(most) >= 64


def test_bits_depend_neither_on_threads_nor_on_blocks_nor_on_other_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    dyn = random_template(np.random.default_rng(3))
    codes = random_codes(rng, dyn, 150, 40)
    codes[:, :, 0] = -1
    seen: Any = {"targets": dyn.variables[0], "on_error": "flag"}
    alone, two = dyn.compile("cpu", threads=1), dyn.compile("cpu", threads=2)
    expected = alone.smooth(codes, **seen)

    def check(answer: Any, part: slice = slice(None)) -> None:
        assert np.array_equal(answer[dyn.variables[0]], expected[dyn.variables[0]][part])
        assert np.array_equal(answer.log_evidence, expected.log_evidence[part])

    check(two.smooth(codes, **seen))
    check(alone.smooth(codes[20:90], **seen), slice(20, 90))
    monkeypatch.setattr(slices, "LANES", (16, 8))
    check(two.smooth(codes, **seen))
    monkeypatch.setattr(propagation, "KEPT", 0)
    check(two.smooth(codes, **seen))


def test_a_hundred_thousand_slices_in_bounded_memory() -> None:
    length = 100_000
    seen = np.random.default_rng(6).integers(0, 2, length)
    states, shift, shifts = [5, 5], 0, 0  # times 10, then times 100 for each slice: integers, so nothing is lost
    for t, s in enumerate(seen.tolist()):
        a, b = states if t == 0 else (7 * states[0] + 3 * states[1], 3 * states[0] + 7 * states[1])
        states = [a * (8, 2)[s], b * (1, 9)[s]]
        shift = max(states[0].bit_length() - 1024, 0)
        states, shifts = [x >> shift for x in states], shifts + shift
    log_p = math.fsum([math.log(sum(states)), shifts * math.log(2.0), -2 * length * math.log(10.0)])
    codes = np.stack([np.full(length, -1), seen], axis=-1)[None].astype(np.int32)
    tree = umbrella().compile("cpu")
    tree.smooth(codes[:, :3], at=[1])
    tracemalloc.start()
    answer = tree.smooth(codes, targets="rain", at=[0, length - 1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.log_evidence[0] == pytest.approx(log_p, rel=1e-13)
    assert peak < 40 << 20
    ends = tree.filter(codes, targets="rain", at="last")
    np.testing.assert_allclose(answer["rain"][:, 1], ends["rain"], rtol=0, atol=1e-13)


@pytest.mark.parametrize("seed", some(60, 6))
def test_a_stream_has_the_answers_of_filter(seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    dyn = random_template(rng)
    codes = dyn.compile("cpu").sample(1, length=6, seed=2).states
    codes[rng.random(codes.shape) < 0.5] = -1
    v = next(v for v in reversed(dyn.variables) if v not in dyn.static)
    weights = rng.random((1, 6, len(dyn.states(v)))) + 0.1
    tree = dyn.compile("cpu" if seed % 2 else "reference")
    filtered, live = tree.filter(codes, likelihood={v: weights}), tree.stream()
    for t in range(6):
        case = {v: dyn.states(v)[s] for v, s in zip(dyn, codes[0, t].tolist(), strict=True) if s >= 0}
        found = live.step(case, likelihood={v: weights[0, t]})
        for v in dyn:
            np.testing.assert_allclose(list(found[v].values()), filtered[v][0, t], rtol=0, atol=1e-12)
    assert live.log_evidence == pytest.approx(filtered.log_evidence[0], rel=1e-12)


def test_a_joint_of_the_interface_itself_where_a_member_is_observed() -> None:
    dyn = jtgpu.DynamicNetwork(
        {"a": ["0", "1"], "b": ["0", "1"]},
        {"a": [("a", 1)], "b": [("b", 1), "a"]},
        {"a": [[0.9, 0.1], [0.3, 0.7]], "b": [[[0.6, 0.4], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]]},
        start={"a": [0.5, 0.5], "b": [[0.5, 0.5], [0.4, 0.6]]},
    )
    codes = np.array([[[1, -1], [-1, -1], [0, 1]]])
    expected = dyn.compile("reference").filter(codes, joints=[("a[t]", "b[t]")])
    tree = dyn.compile("cpu")
    backend, step = tree.step.backend(1), tree.step
    number = step.after_number
    rows = np.full((1, step.n_variables), -1, np.int32)
    rows[0, 0] = 1
    twice = backend.run(Table.of(rows, {step.before_number: np.full((1, 4), 0.25)}, [number, number])).posterior
    assert np.array_equal(twice[:, :4], twice[:, 4:])
    assert twice.sum() == pytest.approx(2.0)
    made = tree.filter(codes, joints=[("a[t]", "b[t]")])
    np.testing.assert_allclose(made.joint["a[t]", "b[t]"], expected.joint["a[t]", "b[t]"], rtol=0, atol=1e-13)


def test_improbable_and_impossible_sequences_do_not_change_the_others() -> None:
    """Numbers near the bounds of a float64 in one lane: tables are scaled, and no bit of the other lanes changes."""
    near = [[1 - 1e-300, 1e-300], [1e-300, 1 - 1e-300]]
    dyn = jtgpu.DynamicNetwork(
        {"h": ["a", "b"], "o": ["x", "y", "z"]}, {"h": [("h", 1)], "o": ["h"]},
        {"h": near, "o": [[1 - 1e-200, 1e-200, 0.0], [1e-200, 1 - 1e-200, 0.0]]}, start={"h": [0.5, 0.5]},
    )  # fmt: skip
    tree = dyn.compile("cpu")
    usual, improbable, impossible = ["x"] * 90, ["x", "y"] * 45, ["x"] * 3 + ["z"] + ["y"] * 86
    both = tree.smooth({"o": [usual, improbable, impossible]}, on_error="flag")
    assert both.impossible.tolist() == [False, False, True]
    assert not np.asarray(both["h"][2]).any()
    for i, one in enumerate((usual, improbable)):
        alone = tree.smooth({"o": [one]})
        assert np.array_equal(both["h"][i], alone["h"][0])
        assert both.log_evidence[i] == alone.log_evidence[0]
    whole = dyn.unroll(90).compile("reference").posteriors({f"o[{t}]": s for t, s in enumerate(improbable)})
    assert both.log_evidence[1] == pytest.approx(whole.log_evidence, rel=1e-12)
    best = tree.mpe({"o": [usual, improbable, impossible]}, on_error="flag")
    assert np.isneginf(best.log_joint[2])
    assert best.log_joint[1] == tree.mpe({"o": [improbable]}).log_joint[0]
