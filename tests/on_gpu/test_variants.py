"""Kernels for cases that observe certain variables on a GPU: the tests of the emulated one, and a network's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.batch import variants
from jtgpu.device.context import Device
from tests.backends.gpu.test_variants import *  # noqa: F403 (tests of both GPUs)
from tests.on_gpu.conftest import ROOT

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["water.net", "pigs.net"])
def test_tables_of_networks_agree_with_the_default_kernels(
    gpu: Device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("STEP", "RECORD", "LEVEL", "PADDING"):
        monkeypatch.setattr(variants, constant, 0.0)
    monkeypatch.setattr(variants, "COPIED", np.inf)
    net = jtgpu.read(ROOT / "nets" / name)
    rng = np.random.default_rng(3)
    drawn = net.compile("cpu").sample(5000, seed=3).states
    states = np.where(rng.random(drawn.shape) < 0.1, drawn, -1).astype(np.int32)
    with net.compile("gpu") as tree, net.compile("gpu", replan=False) as plain:
        assert tree.is_adaptive
        backends: list[Any] = [tree._backend, plain._backend]
        engine, default = (x.tables for x in backends)
        found, expected = engine.run_batch(states), default.run_batch(states)
        assert len(engine.fixed) > 2
        np.testing.assert_allclose(found.posterior, expected.posterior, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found.impossible, expected.impossible)
        possible = ~found.impossible
        assert possible.any()
        np.testing.assert_allclose(found.log_evidence[possible], expected.log_evidence[possible], rtol=1e-12)
        np.testing.assert_array_equal(engine.run_batch(states).posterior, found.posterior)
