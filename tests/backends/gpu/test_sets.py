"""Likelihoods and joint posteriors of several variables on the emulated GPU: an extended plan, or the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jtgpu.device.context import Device
from jtgpu.errors import BackendUnavailable, EvidenceError
from tests.inference.test_sets import PAIR, WEIGHTS, Case
from tests.support.bundled import bundled
from tests.support.emulated.install import needs_compiler
from tests.support.examples import slow

pytestmark = needs_compiler


@pytest.mark.parametrize("seed", [1, *slow(2, 8)])
def test_as_the_reference(gpu: Device, seed: int) -> None:
    case = Case(seed, 40)
    plan = case.net.plan("min-fill", together=case.sets)
    likelihood: dict[Any, Any] = {**case.likelihood, **case.single}
    with plan.compile("gpu") as tree, plan.compile("reference") as exact:
        found, same = (
            t.posteriors_batch(case.rows, likelihood=likelihood, joints=case.sets, on_error="flag")
            for t in (tree, exact)
        )
        np.testing.assert_array_equal(found.impossible, same.impossible)
        np.testing.assert_allclose(found.flat, same.flat, atol=1e-12)
        for members in case.sets:
            np.testing.assert_allclose(found.joint[members], same.joint[members], atol=1e-12)
        possible = ~same.impossible
        np.testing.assert_allclose(found.log_evidence[possible], same.log_evidence[possible], rtol=1e-12, atol=1e-11)
        counts, others = (t.expected_counts(case.rows, likelihood=likelihood, on_error="flag") for t in (tree, exact))
        for v in case.net:
            np.testing.assert_allclose(counts[v], others[v], atol=1e-11)
        i = int(np.argmax(possible))
        one = tree.posteriors(case.evidence(i), likelihood=case.row(i), joints=case.sets)
        np.testing.assert_allclose(np.asarray(one.joint[case.sets[0]]), same.joint[case.sets[0]][i], atol=1e-12)
        plain, expected = (t.posteriors_batch(case.rows, on_error="flag").flat for t in (tree, exact))
        np.testing.assert_allclose(plain, expected, atol=1e-12)


def test_answers_on_the_device(gpu: Device) -> None:
    net = bundled("asia")
    rng = np.random.default_rng(0)
    states = np.where(rng.random((50, 8)) < 0.2, rng.integers(0, 2, (50, 8)), -1).astype(np.int32)
    weights = rng.random((50, 2, 2)) + 0.1
    with net.compile("gpu", together=[PAIR, ("lung", "bronc", "xray")]) as tree:
        found = tree.posteriors_on_device(states, likelihood={PAIR: weights}, targets=["dysp"], joints=[PAIR])
        same = net.compile("cpu", together=[PAIR]).posteriors_batch(
            states, likelihood={PAIR: weights}, joints=[PAIR], on_error="flag"
        )
        assert found.joint[PAIR].shape == (50, 2, 2)
        np.testing.assert_allclose(np.asarray(found.joint[PAIR]), same.joint[PAIR], atol=1e-12)
        np.testing.assert_allclose(np.asarray(found.joint["bronc", "lung"]), same.joint["bronc", "lung"], atol=1e-12)
        np.testing.assert_allclose(np.asarray(found["dysp"]), same["dysp"], atol=1e-12)
        np.testing.assert_allclose(found.to_host().joint[PAIR], same.joint[PAIR], atol=1e-12)
        with pytest.raises(EvidenceError, match="whole sets"):
            tree.posteriors_on_device(states, joints=[("lung", "xray")])
        tree.reload(net)
        again = tree.posteriors_batch(states, likelihood={PAIR: weights}, joints=[PAIR], on_error="flag")
        np.testing.assert_allclose(again.joint[PAIR], same.joint[PAIR], atol=1e-12)


def test_frames_and_several_gpus(gpu: Device) -> None:
    net = bundled("asia")
    frame = {"dysp": ["yes", "no", "yes", None] * 5, "xray": ["no", None, "yes", None] * 5}
    weights = np.random.default_rng(2).random((20, 2, 2))
    exact = net.compile("reference", together=[PAIR])
    expected = exact.posteriors_batch(frame, likelihood={PAIR: weights}, joints=[PAIR])
    for devices in (None, [0, 0]):
        with net.compile("gpu", together=[PAIR], devices=devices) as tree:
            found = tree.posteriors_batch(frame, likelihood={PAIR: weights}, joints=[PAIR])
            np.testing.assert_allclose(found.joint[PAIR], expected.joint[PAIR], atol=1e-12)
            np.testing.assert_allclose(found["smoke"], expected["smoke"], atol=1e-12)
            columns, same = (t.predict_proba(frame, targets=["smoke"], joints=[PAIR]) for t in (tree, exact))
            assert [*columns] == [*same]
            for name in columns:
                np.testing.assert_allclose(columns[name], same[name], atol=1e-12)
            session = tree.session({"dysp": "yes"})
            assert session.posterior("lung")["yes"] > 0


def test_large_sets_run_on_the_cpu(gpu: Device) -> None:
    net = bundled("asia")
    members = ("lung", "bronc", "xray", "dysp", "smoke", "asia", "tub")
    with net.compile("gpu", together=[members]) as tree:
        found = tree.posteriors_batch([{}, {}], likelihood={PAIR: WEIGHTS}, joints=[PAIR])
        same = net.compile("cpu", together=[PAIR]).posteriors_batch([{}], likelihood={PAIR: WEIGHTS}, joints=[PAIR])
        np.testing.assert_allclose(found.joint[PAIR][1], same.joint[PAIR][0], atol=1e-13)
        with pytest.raises(BackendUnavailable, match="64 configurations"):
            tree.posteriors_on_device([{}], likelihood={PAIR: WEIGHTS})
