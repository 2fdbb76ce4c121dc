"""Expected counts by a warp a case on a GPU: the tests of the emulated one, and wide networks against records."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.gpu.counts import engine, warps
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from jtgpu.inference.queries.counts import counting_backend
from jtgpu.plans.compiler import model_factors
from tests.backends.gpu.test_warp_counts import *  # noqa: F403 (tests of both GPUs)
from tests.backends.test_counts import assert_same
from tests.on_gpu.test_counts import rows
from tests.support.bundled import bundled

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["barley", "mildew", "water"])
def test_counts_of_wide_networks_are_those_of_records(
    name: str, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also chunk by chunk, and in less room, where more cases come last or are left to records."""
    net = bundled(name)
    plan, tables = net.plan().whole, [f.table for f in model_factors(net)]
    states, weights = rows(name, 6000, 0.1), np.random.default_rng(5).random(6000)
    found = []
    much = 8 << 30
    for gain, scratch, cells in ((1.5, much, 1 << 17), (1.5, 1 << 29, 1 << 14), (1.5, much, 1 << 12), (1e9, much, 0)):
        monkeypatch.setattr(warps, "GAIN", gain)
        monkeypatch.setattr(warps, "CELLS", cells)
        monkeypatch.setattr(warps, "MOST_CELLS", 1 << 20 if cells > 1 << 12 else 1 << 15)
        monkeypatch.setattr(engine, "SCRATCH_BYTES", scratch)
        with closing(counting_backend("gpu", plan, tables)) as backend:
            assert isinstance(backend, Gpu)
            found.append(backend.run(Table.counts(states, weights)))
            assert backend.counting.kind == ("warps" if cells else "tables")
            assert_same(found[-1], backend.run(Table.counts(states, weights)))
    assert_same(found[0], found[1])
    for other in found[1:]:
        for a, b in zip(found[0].families, other.families, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
        np.testing.assert_array_equal(found[0].impossible, other.impossible)
        np.testing.assert_allclose(found[0].log_evidence, other.log_evidence, atol=1e-10)
