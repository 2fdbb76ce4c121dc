"""Ctrl-C while a GPU answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jtgpu.backends.gpu import backend as gpu
from jtgpu.backends.gpu.batch import buffers
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers.row_queue import RowQueue
from jtgpu.device.context import Device
from jtgpu.plans.compiler import model_factors
from tests.support.bundled import bundled
from tests.support.emulated import cards


def test_an_interrupted_table_leaves_nothing_queued(emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next table has the same scratch memory, on another stream."""
    monkeypatch.setattr(buffers, "LARGE", 64)
    net = bundled("asia")
    plan, factors = net.plan("min-fill", cache=False).plan, [f.table for f in model_factors(net)]
    backend = gpu.prepare(plan, factors, single=False)
    states = np.random.default_rng(1).integers(-1, 2, (1000, len(net)), np.int32)
    expected = backend.run(Table.of(states)).posterior
    take, calls = RowQueue.take, []

    def interrupted(self: RowQueue, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return take(self, *arguments)

    monkeypatch.setattr(RowQueue, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.run(Table.of(states))
    assert len(calls) == 3
    assert not any(s.waiting for s in cards.Stream.all), "chunks are still queued"
    np.testing.assert_array_equal(backend.run(Table.of(states)).posterior, expected)
    backend.close()
