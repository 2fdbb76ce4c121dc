"""Expected counts of sequences added up on a GPU: those of the CPU, the same bits for any groups and devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.slices import contractions, engine
from jtgpu.device.context import Device, device_numbers
from jtgpu.dynamic import counts
from jtgpu.dynamic.sequences import read_sequences
from jtgpu.dynamic.side_by_side import extended_table
from jtgpu.dynamic.step import Step
from tests.backends.gpu.test_slices import holes, lagged, ring, static_class
from tests.dynamic.random_templates import random_codes, random_template
from tests.support.emulated.install import needs_compiler
from tests.support.examples import slow

pytestmark = needs_compiler


def only_kernels(patch: pytest.MonkeyPatch) -> None:
    """Refuse tables of cases."""

    def refuse(*_: object) -> None:
        raise AssertionError("not by the kernels of slices")

    patch.setattr(counts._Counting, "_add", refuse)
    patch.setattr(counts, "Propagation", refuse)


def assert_same(made: counts.SliceCounts, expected: counts.SliceCounts, close: Any) -> None:
    close(made.log_evidence, expected.log_evidence)
    np.testing.assert_array_equal(made.failed, expected.failed)
    mine, theirs = (sum(c.start, c.cpts) for c in (made, expected))
    for x, y in zip(mine, theirs, strict=True):
        close(x, y)


def close(x: Any, y: Any) -> None:
    np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("seed", [0, 2, 3, *slow(1, *range(4, 40))])
def test_counts_are_those_of_the_cpu(seed: int, gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([8, seed])
    dyn = random_template(rng)
    n, length = int(rng.integers(1, 70)), int(rng.integers(1, 7))
    codes = random_codes(rng, dyn, n, length)
    if seed % 3 == 0:
        codes[:, :, int(rng.integers(len(dyn)))] = 0  # observed in every row
    weights, options = rng.random(n) + 0.1, dict[str, Any]()
    v = dyn.variables[int(rng.integers(len(dyn)))]
    if seed % 2:
        options["likelihood"] = {v: rng.random((n, length, len(dyn.states(v)))) + 0.01}
    if seed % 4 == 1:
        options["do"] = {v: dyn.states(v)[0] if v in dyn.static else {0: dyn.states(v)[0]}}
    if seed % 5 == 2:
        monkeypatch.setattr(engine, "MOST_KEPT", 0)  # messages of some slices are kept
    read = read_sequences(dyn, codes, **options)
    expected = counts.expected_counts(Step(dyn, "cpu", {}), read, weights)
    if (expected.failed < 0).all():
        only_kernels(monkeypatch)
    step = Step.of_families(dyn, "gpu", {})
    assert_same(counts.expected_counts(step, read, weights), expected, close)
    step.close()


def test_counts_of_a_ring_are_those_of_the_cpu(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    dyn, weights = ring(5, least=3), np.ones(20)
    codes = np.random.default_rng(1).integers(0, 2, (20, 3, 10))
    codes[:, :, :5] = -1
    step, read = Step.of_families(dyn, "gpu", {}), read_sequences(dyn, codes)
    made = counts.expected_counts(step, read, weights)
    step.close()
    monkeypatch.undo()
    assert_same(made, counts.expected_counts(Step(dyn, "cpu", {}), read, weights), close)


def test_bits_of_counts_depend_neither_on_groups_nor_on_devices(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    rng = np.random.default_rng(3)
    dyn = random_template(rng)
    codes = random_codes(rng, dyn, 90, 5)
    found = []
    for group, devices in ((1 << 16, None), (32, None), (64, "two")):
        monkeypatch.setattr(engine, "MOST_GROUP", group)
        monkeypatch.setattr(engine, "LEAST_GROUP", group)
        options = {"devices": device_numbers("all")[:2]} if devices else {}
        step = Step.of_families(dyn, "gpu", options)
        found.append(counts.expected_counts(step, read_sequences(dyn, codes), np.ones(90)))
        step.close()
    for other in found[1:]:
        assert_same(other, found[0], np.testing.assert_array_equal)


def test_improbable_and_impossible_sequences_alone_are_counted_again(
    gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    dyn, codes = lagged(), holes(40, 6)
    soft = np.random.default_rng(1).random((40, 6, 3)) + 0.1
    soft[7, 4] = [1e-290, 0.0, 1e-300]
    codes[7, 4, 2] = -1
    soft[9, 1] = 0.0
    monkeypatch.setattr(contractions, "LOWEST", -110.0)  # of the powers of two of a probability that is sure
    read, weights = read_sequences(dyn, codes, likelihood={"x": soft}), np.linspace(1, 2, 40)
    expected, again = counts.expected_counts(Step(dyn, "cpu", {}), read, weights), list[int]()

    def noted(step: Step, sequences: Any) -> Any:
        again.append(sequences.n)
        return extended_table(step, sequences)

    monkeypatch.setattr(counts, "extended_table", noted)
    step = Step.of_families(dyn, "gpu", {})
    assert_same(counts.expected_counts(step, read, weights), expected, close)
    assert len(again) == 1
    assert 1 < again[0] < 40
    step.close()


def test_counts_of_a_state_that_comes_back(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    dyn, again = static_class(0.1), list[int]()
    codes = np.array([[[-1, int(t >= k)] for t in range(1023)] for k in (341, 682, 1023, 520)])
    read, weights = read_sequences(dyn, codes), np.array([1.0, 2.0, 0.5, 1.0])
    expected = counts.expected_counts(Step(dyn, "reference", {}), read, weights)

    def noted(step: Step, sequences: Any) -> Any:
        again.append(sequences.n)
        return extended_table(step, sequences)

    monkeypatch.setattr(counts, "extended_table", noted)
    step = Step.of_families(dyn, "gpu", {})
    assert_same(counts.expected_counts(step, read, weights), expected, close)
    assert again == [3]
    step.close()


def test_em_of_sequences_stays_on_the_gpu(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    rng = np.random.default_rng(5)
    dyn = random_template(rng)
    codes = random_codes(rng, dyn, 20, 6)
    options: Any = {"em": jtgpu.learn.EM(start="given", iterations=3, tolerance=0)}
    made = jtgpu.learn.fit(dyn, codes, compute="gpu", **options)
    monkeypatch.undo()
    expected = jtgpu.learn.fit(dyn, codes, compute="cpu", **options)
    for v in dyn:
        np.testing.assert_allclose(made.network.cpt(v), expected.network.cpt(v), atol=1e-9)


def test_em_with_numbers_has_the_result_of_the_cpu(gpu: Device) -> None:
    net = jtgpu.MixedDynamicNetwork(
        {"state": ["calm", "busy"], "load": float}, {"state": [("state", 1)], "load": ["state"]},
        {"state": [[0.9, 0.1], [0.2, 0.8]], "load": jtgpu.Gaussian([1.0, 4.0], sd=1.0)}, start={"state": [0.5, 0.5]},
    )  # fmt: skip
    loads = {"load": np.asarray(net.compile("reference").sample(6, length=8, seed=1)["load"])}
    options: Any = {"em": jtgpu.learn.EM(iterations=3, tolerance=0), "hidden": "state"}
    fits: list[Any] = [jtgpu.learn.fit(net, loads, compute=b, **options) for b in ("gpu", "cpu")]
    made, expected = (fit.network for fit in fits)
    np.testing.assert_allclose(made.discrete.cpt("state"), expected.discrete.cpt("state"), atol=1e-9)
    np.testing.assert_allclose(made.gaussian("load").mean, expected.gaussian("load").mean, atol=1e-9)
