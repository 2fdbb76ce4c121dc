"""float32 on a GPU: how far its answers are from float64's, and that it never gives one that is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu import timing
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.gpu.levels.engine import LevelEngine
from jtgpu.backends.gpu.levels.schedule import make_schedule
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans import compiler
from tests.on_gpu.conftest import ROOT
from tests.plans.test_plan import chain

pytestmark = pytest.mark.gpu
SHARED = [f"{name}.net" for name in ("Barley", "Diabetes", "Link", "Mildew", "Munin1", "Munin4", "Water", "powerplant")]
# Of a posterior, absolute, and a tenth of what P(e) may be off, relative: five times what was measured at least
BOUND = dict.fromkeys(("Diabetes.net", "Link.net", "Munin1.net"), 2e-6)
USUAL = 1e-6


def tables(model: DiscreteModel) -> list[np.ndarray]:
    return [f.table for f in compiler.model_factors(model)]


def observed(net: DiscreteModel, share: float, seed: int) -> Evidence:
    assert isinstance(net, BayesianNetwork)
    state = np.full(len(net), -1, np.int32)
    for v, k in timing.sample_cases(net, 1, share, seed)[0].items():
        state[net.index(v)] = k
    return Evidence(state)


@pytest.mark.parametrize("name", SHARED)
def test_published_networks(gpu: Device, nets: Path, name: str) -> None:
    net = jtgpu.read(nets / name)
    plan = net.plan(order=nets / name.replace(".net", ".num"), max_table=None).plan
    reals = ("float64", "float32")
    exact, half = (LevelEngine(plan, tables(net), make_schedule(plan, real), gpu) for real in reals)
    small = exact.n_bytes < 1 << 20  # then most of it is records, which are as long
    assert half.n_bytes < (1.0 if small else 0.8) * exact.n_bytes
    bound = BOUND.get(name, USUAL)
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
    given = {net.variables[v]: int(case.state[v]) for v in np.flatnonzero(case.state >= 0).tolist()}
    with plan.compile("gpu") as exact, plan.compile("gpu", dtype="float32") as half:
        expected, got = exact.posteriors(given), half.posteriors(given)
        assert half.dtype == "float32"
        assert got.log_evidence == pytest.approx(expected.log_evidence, abs=10 * USUAL)
        for v in net.variables:
            np.testing.assert_allclose(got[v], expected[v], rtol=0, atol=USUAL)


@pytest.mark.parametrize("name", ["asia", "child", "alarm", "insurance", "hailfinder", "win95pts"])
def test_small_networks(gpu: Device, name: str) -> None:
    net = jtgpu.read(ROOT / "nets" / f"{name}.net")
    plan = net.plan(order="min-fill").plan
    definition = reference.prepare(plan, tables(net))
    backend = gpu_backend.prepare(plan, tables(net), dtype="float32")
    for i, share in enumerate((0.0, 0.2, 1.0)):
        case = observed(net, share, i)
        expected, got = definition.run(case), backend.run(case)
        np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=USUAL)
        assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-7, abs=USUAL)
    backend.close()


def test_a_chain_far_below_the_smallest_float(gpu: Device) -> None:
    n = 700
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    backend = gpu_backend.prepare(plan, tables(net), dtype="float32")
    got = backend.engine.run(Evidence(np.arange(n, dtype=np.int32) % 3))
    expected = math.log(1 / 3) + (n - 1) * math.log(0.1)
    assert expected < math.log(1e-300)
    assert got is not None  # reliable
    assert got.log_evidence == pytest.approx(expected, rel=1e-6)
    backend.close()


def test_what_float32_loses_float64_answers(gpu: Device) -> None:
    """Many children say one thing of their parent, which is then observed in the other state."""
    n, rare = 60, 1e-5
    names = [f"c{i}" for i in range(n)]
    step = np.array([[1 - rare, rare], [rare, 1 - rare]])
    two = ["0", "1"]
    net = jtgpu.BayesianNetwork(
        {"root": two, **dict.fromkeys(names, two)}, {c: ["root"] for c in names},
        {"root": [0.5, 0.5], **dict.fromkeys(names, step)},
    )  # fmt: skip
    plan = net.plan("min-fill").plan
    backend = gpu_backend.prepare(plan, tables(net), dtype="float32")
    exact = gpu_backend.prepare(plan, tables(net))
    not_reliable = 0
    for root in (-1, 0, 1):
        for ones in (0, n // 2, n):
            state = np.array([root] + [1] * ones + [0] * (n - ones), np.int32)
            got, expected = backend.run(Evidence(state)), exact.run(Evidence(state))
            not_reliable += backend.engine.run(Evidence(state)) is None
            np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=1e-5)
            rounded = n * 2.0**-24  # every child's table is, and P(e) has a number of each
            assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-6, abs=rounded)
    assert not_reliable
    backend.close()
    exact.close()


def test_impossible_evidence_and_weights(gpu: Device) -> None:
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    plan = net.plan("min-fill").plan
    with net.compile("gpu", dtype="float32") as tree:
        with pytest.raises(ImpossibleEvidence):
            tree.posteriors({"lung": "yes", "either": "no"})
        assert tree.log_evidence({"xray": "yes"}, likelihood={"dysp": [1e-300, 2e-300]}) < -600
    backend = gpu_backend.prepare(plan, tables(net), dtype="float32")
    definition = reference.prepare(plan, tables(net))
    soft = {v: np.array([1e-200, 3e-200]) for v in range(0, len(net), 2)}
    case = Evidence(np.full(len(net), -1, np.int32), soft)
    got, expected = backend.run(case), definition.run(case)
    np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=USUAL)
    assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-8)
    backend.close()
