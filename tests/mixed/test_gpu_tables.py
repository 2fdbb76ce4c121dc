"""Tables of cases of networks with numbers on emulated GPUs, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import Gaussian
from jtgpu.device.context import Device
from tests.mixed.test_against_enumeration import random_network
from tests.mixed.test_lauritzen import incinerator
from tests.support.emulated.install import needs_compiler
from tests.support.examples import some

pytestmark = needs_compiler


@pytest.fixture
def gpu(emulated_gpu: Device) -> Device:
    """The first emulated GPU; tests/on_gpu has a real one."""
    return emulated_gpu


def with_holes(net: jtgpu.MixedNetwork, n: int, seed: int, share: float = 0.3) -> dict[str, list[Any]]:
    """A table of samples, some cells of which are missing."""
    table = net.compile("cpu").sample(n, seed=seed).to_frame()
    rng = np.random.default_rng(seed)
    return {v: [None if rng.random() < share else x for x in table[v].tolist()] for v in table}


def check(net: jtgpu.MixedNetwork, cases: Any, lost: int = 0, **options: Any) -> None:
    """Hold the GPU's answers to the CPU's; `lost`: at least so many cases go to the host."""
    expected = net.compile("cpu").posteriors_batch(cases, on_error="flag", **options)
    with net.compile("gpu") as tree:
        kernels, on_host = tree.answerer.gpu, list[int]()
        assert kernels is not None
        plain = tree.answerer.answer_on_host

        def counted(some: Any, *more: Any) -> Any:
            on_host.append(len(some.states))
            return plain(some, *more)

        setattr(tree.answerer, "answer_on_host", counted)  # noqa: B010 (of one object)
        found, again = (tree.posteriors_batch(cases, on_error="flag", **options) for _ in range(2))
        assert kernels.microseconds > 0
        assert (sum(on_host) >= 2 * lost) if lost else not on_host
        np.testing.assert_array_equal(found.impossible, expected.impossible)
        np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-12, atol=1e-10)
        for v in expected:
            if net.is_number(v):
                for kind in ("mean", "sd"):
                    one, other = getattr(found[v], kind), getattr(expected[v], kind)
                    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
                    np.testing.assert_array_equal(one, getattr(again[v], kind))
                one, other = (x[v].quantiles([0.03, 0.8]) for x in (found, expected))
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
            else:
                np.testing.assert_allclose(found[v], expected[v], atol=1e-10)
                np.testing.assert_array_equal(found[v], again[v])


@pytest.mark.slow
def test_the_incinerator(gpu: Device) -> None:
    net = incinerator()
    cases = with_holes(net, 300, 1)
    check(net, cases)
    check(net, cases, targets=["Mout", "B"])
    check(net, cases, targets=["E"])
    check(net, cases, targets=["F"])
    check(net, cases, targets=[])
    check(net, {v: x for v, x in cases.items() if v != "D"}, do={"D": 3.0})


@pytest.mark.parametrize("seed", some(12, 2))
def test_random_networks(gpu: Device, seed: int) -> None:
    net = random_network(np.random.default_rng(seed))
    check(net, with_holes(net, 40, seed, share=0.5))


def test_numbers_alone(gpu: Device) -> None:
    cpts = {"x": Gaussian(1e3), "y": Gaussian(0, {"x": 0.6}, 0.8), "z": Gaussian(-1, {"x": 1e9, "y": 2}, 1e9)}
    net = jtgpu.MixedNetwork(dict.fromkeys("xyz", float), {"y": ["x"], "z": ["x", "y"]}, cpts)
    check(net, with_holes(net, 100, 3))
    check(net, with_holes(net, 100, 3), targets=["y"])


def test_states_that_numbers_contradict(gpu: Device) -> None:
    net = incinerator()
    rows = with_holes(net, 60, 5)
    rows["F"] = ["defect" if x == "intact" else x for x in rows["F"]]  # E is 700 sd away
    check(net, rows)
    states: dict[str, Any] = {"a": ["yes", "no"], "b": ["yes", "no"], "x": float}
    x = Gaussian([[0.0, 100.0], [100.0, -50.0]], sd=1e-3)
    tables: dict[str, Any] = {"a": [1.0, 0.0], "b": [[0.5, 0.5], [1.0, 0.0]], "x": x}
    far = jtgpu.MixedNetwork(states, {"b": ["a"], "x": ["a", "b"]}, tables)
    check(far, {"x": [-50.0, 0.0, 100.0, 50.0, 1e200, None], "b": ["no", None, "yes", None, None, "no"]}, lost=1)


def test_predictions_and_reloaded_numbers(gpu: Device) -> None:
    net = incinerator()
    rows = with_holes(net, 50, 7)
    with net.compile("gpu") as tree, net.compile("cpu") as exact:
        assert tree.predict(rows, "B").tolist() == exact.predict(rows, "B").tolist()
        np.testing.assert_allclose(tree.predict(rows, "E"), exact.predict(rows, "E"), rtol=1e-12)
        np.testing.assert_allclose(tree.log_likelihood(rows), exact.log_likelihood(rows), rtol=1e-12)
        other = net.replace({"C": Gaussian([-3, 1], sd=[0.5, 0.1])})
        for t in (tree, exact):
            t.reload(other)
        np.testing.assert_allclose(tree.predict(rows, "C"), exact.predict(rows, "C"), rtol=1e-12)
        likelihood = {"F": np.array([0.2, 0.7])}  # the host computes densities
        found, same = (t.posteriors_batch(rows, likelihood=likelihood)["F"] for t in (tree, exact))
        np.testing.assert_allclose(found, same, atol=1e-12)
