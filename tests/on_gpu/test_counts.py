"""Expected counts and EM on a GPU: the tests of the emulated one, and large tables against the CPU."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.gpu.counts import engine, generated, held, warps
from jtgpu.backends.table import Table
from jtgpu.device.context import Device, device_numbers
from jtgpu.inference.queries.counts import counting_backend
from jtgpu.learn import fit
from jtgpu.options.compute import Compute
from jtgpu.options.learning import EM
from jtgpu.plans.compiler import model_factors
from tests.backends.gpu.test_counts import *  # noqa: F403 (tests of both GPUs)
from tests.backends.test_counts import assert_same, other_numbers
from tests.support.bundled import bundled

pytestmark = pytest.mark.gpu


def rows(name: str, n: int, missing: float) -> np.ndarray:
    """Rows of a network, cells missing at random."""
    states = bundled(name).compile("cpu").sample(n, seed=3).states.astype(np.int8)
    states[np.random.default_rng(4).random(states.shape) < missing] = -1
    return states


@pytest.mark.parametrize("kind", ["lanes", "tables"])
@pytest.mark.parametrize(("name", "n"), [("alarm", 70_000), ("insurance", 1_000), ("water", 200)])
def test_counts_agree_with_the_cpu(name: str, n: int, kind: str, gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "tables":
        monkeypatch.setattr(generated, "GENERATED_FLOPS", -1)
        monkeypatch.setattr(warps, "GAIN", np.inf)
    elif name != "alarm":
        pytest.skip("takes long to compile")
    net = bundled(name)
    plan, tables = net.plan().whole, [f.table for f in model_factors(net)]
    states, weights = rows(name, n, 0.3), np.random.default_rng(5).random(n)
    made = (closing(counting_backend(where, plan, tables)) for where in ("gpu", "cpu"))
    with next(made) as mine, next(made) as theirs:
        assert isinstance(mine, Gpu)
        found = mine.run(Table.counts(states.astype(np.int32), weights))
        assert mine.counting.kind == kind
        assert_same(found, mine.run(Table.counts(states.astype(np.int32), weights)))
        expected = theirs.run(Table.counts(states.astype(np.int32), weights))
        for a, b in zip(found.families, expected.families, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12 * n)
        np.testing.assert_allclose(found.log_evidence, expected.log_evidence, atol=1e-10)
        cases: Any = mine.hold(Table.counts(states, weights)).feed
        changed = other_numbers(net, 1, zeros_too=False)  # the same zeros: no kernel is made again
        before = dict(mine.counting.choice.made)
        for backend in (mine, theirs):
            backend.reload([f.table for f in model_factors(changed)])
        sums, expected = cases.sums(), theirs.run(Table.counts(states.astype(np.int32), weights))
        assert before == mine.counting.choice.made
        assert sums.n_impossible == expected.impossible.sum()
        for a, b in zip(sums.families, expected.families, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12 * n)
        cases.close()


def test_large_tables_have_the_same_bits_for_any_chunks(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    net = bundled("alarm")
    plan, tables = net.plan().whole, [f.table for f in model_factors(net)]
    states = rows("alarm", 200_000, 0.1)
    found = []
    much = 8 << 30
    for scratch, share, devices in ((much, 0.8, None), (1 << 27, 0.8, None), (much, -1.0, None), (much, 0.8, "all")):
        monkeypatch.setattr(engine, "SCRATCH_BYTES", scratch)
        monkeypatch.setattr(held, "HELD_SHARE", share)  # below 0: no rows stay on the device
        with closing(counting_backend("gpu", plan, tables, devices=devices)) as backend:
            found.append(backend.run(Table.counts(states)))
    for other in found[1:]:
        assert_same(found[0], other)


def test_fit_is_that_of_the_cpu(gpu: Device) -> None:
    states = rows("alarm", 5_000, 0.1)
    net = bundled("alarm")
    devices = device_numbers("all")
    found = [
        fit(net, states, em=EM(iterations=5, tolerance=0), compute="gpu"),
        fit(net, states, em=EM(iterations=5, tolerance=0), compute=Compute(backend="gpu", devices=devices)),
        fit(net, states, em=EM(iterations=5, tolerance=0), compute="cpu"),
    ]
    for v in net:
        np.testing.assert_array_equal(found[0].network.cpt(v), found[1].network.cpt(v))
        np.testing.assert_allclose(found[0].network.cpt(v), found[2].network.cpt(v), atol=1e-9)
    assert found[0].log_likelihood == pytest.approx(found[2].log_likelihood)
