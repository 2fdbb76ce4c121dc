"""Sequences of dynamic networks on a GPU: the tests of the emulated one, and many sequences against the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from jtgpu.device.context import Device
from tests.backends.gpu.test_slice_counts import *  # noqa: F403 (tests of both GPUs)
from tests.backends.gpu.test_slices import *  # noqa: F403
from tests.backends.gpu.test_slices import assert_close, holes, lagged, only_kernels

pytestmark = pytest.mark.gpu


def test_many_sequences_agree_with_the_cpu(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    dyn = lagged()
    codes = np.tile(holes(500, 100), (10, 1, 1))
    with dyn.compile("gpu") as tree, dyn.compile("cpu") as cpu:
        found, expected = tree.smooth(codes), cpu.smooth(codes[:500])
    assert np.array_equal(found["a"][:500], found["a"][4500:])
    for v in dyn:
        np.testing.assert_allclose(found[v][:500], expected[v], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.log_evidence[:500], expected.log_evidence, rtol=1e-12)


def test_a_sequence_of_many_slices(gpu: Device) -> None:
    dyn, codes = lagged(), holes(3, 20_000)
    with dyn.compile("gpu") as tree, dyn.compile("cpu") as cpu:
        assert_close(tree.smooth(codes), cpu.smooth(codes), dyn)
