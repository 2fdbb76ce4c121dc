"""float32 on a GPU: the tests of the emulated one, and how far answers are from float64's on large networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.levels.engine import LevelEngine
from jtgpu.backends.gpu.levels.schedule import make_schedule
from jtgpu.device.context import Device
from tests.backends.gpu.engines import tables
from tests.backends.gpu.test_precision import *  # noqa: F403 (tests of both GPUs)
from tests.backends.gpu.test_precision import DEFAULT_BOUND, observed

pytestmark = pytest.mark.gpu
SHARED = [f"{name}.net" for name in ("Barley", "Diabetes", "Link", "Mildew", "Munin1", "Munin4", "Water", "powerplant")]
# Of a posterior, absolute, and a tenth of what P(e) may be off, relative: five times what was measured at least
BOUNDS = dict.fromkeys(("Diabetes.net", "Link.net", "Munin1.net"), 2e-6)


@pytest.mark.parametrize("name", SHARED)
def test_published_networks(gpu: Device, nets: Path, name: str) -> None:
    net = jtgpu.read(nets / name)
    plan = net.plan(order=nets / name.replace(".net", ".num"), max_table=None).plan
    reals = ("float64", "float32")
    exact, half = (LevelEngine(plan, tables(net), make_schedule(plan, real), gpu) for real in reals)
    small = exact.n_bytes < 1 << 20  # then most of it is records, which are as long
    assert half.n_bytes < (1.0 if small else 0.8) * exact.n_bytes
    bound = BOUNDS.get(name, DEFAULT_BOUND)
    cases = [observed(net, share, i) for i, share in enumerate((0.0, 0.05, 0.1, 0.2))]
    for case in cases:
        expected, got = exact.run(case), half.run(case)
        assert expected is not None
        assert got is not None
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=bound)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=0, abs=10 * bound)
    again = [half.run(cases[-1]) for _ in range(5)]
    assert len({x.posterior.tobytes() for x in again if x is not None}) == 1
    half.close()
    exact.close()


def test_what_users_get(gpu: Device, nets: Path) -> None:
    net = jtgpu.read(nets / "Mildew.net")
    plan = net.plan(order=nets / "Mildew.num")
    case = observed(net, 0.1, 4)
    given = {net.variables[v]: net.states(v)[case.state[v]] for v in np.flatnonzero(case.state >= 0).tolist()}
    with plan.compile("gpu") as exact, plan.compile("gpu", dtype="float32") as half:
        expected, got = exact.posteriors(given), half.posteriors(given)
        assert half.dtype == "float32"
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=10 * DEFAULT_BOUND)
        for v in net.variables:
            np.testing.assert_allclose(got[v], expected[v], rtol=0, atol=DEFAULT_BOUND)
