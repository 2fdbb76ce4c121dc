"""Tables of cases by a warp a case on a GPU: the tests of the emulated one, and wide networks against records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jtgpu.backends.gpu.batch import warps
from jtgpu.backends.table import Table
from jtgpu.device.context import Device
from tests.backends.gpu.test_warp_tables import *  # noqa: F403 (tests of both GPUs)
from tests.on_gpu.test_counts import rows
from tests.support.bundled import bundled

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["barley", "mildew", "pigs"])
@pytest.mark.parametrize("missing", [0.5, 0.1])
def test_tables_of_wide_networks_are_those_of_records(
    name: str, missing: float, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the cells at most: some cases are too large; by rows and columns, all posteriors and some."""
    net = bundled(name)
    states = rows(name, 3000, missing)
    states[::7, 1::3] = -1
    columns = np.ascontiguousarray(states.T)
    found = []
    for gain in (0.0, np.inf):
        monkeypatch.setattr(warps, "GAIN", gain)
        monkeypatch.setattr(warps, "LEAST_SECONDS", 0.0)
        with net.compile("gpu", replan=False) as tree:
            backend: Any = tree._backend
            table = backend.tables.share(Table.of(states.astype(np.int32)))
            assert table.by_warps == (gain == 0.0)
            asked = [backend.run(Table.of(states.astype(np.int32), None, targets)) for targets in (None, [5, 1])]
            asked.append(backend.run(Table.by_columns(range(len(net)), columns, len(net))))
            again = backend.run(Table.of(states.astype(np.int32)))
            np.testing.assert_array_equal(asked[0].posterior, again.posterior)
            np.testing.assert_array_equal(asked[0].posterior, asked[2].posterior.T)
            found.append(asked)
    for mine, usual in zip(*found, strict=True):
        np.testing.assert_allclose(mine.posterior, usual.posterior, rtol=0, atol=1e-12)
        np.testing.assert_allclose(mine.log_evidence, usual.log_evidence, rtol=1e-12, atol=1e-11)
        np.testing.assert_array_equal(mine.impossible, usual.impossible)
