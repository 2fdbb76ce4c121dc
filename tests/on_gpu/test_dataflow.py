"""The dataflow engine on a GPU: every answer against the definition, bit-identical in every run, other kernels on the
device, and cases that it leaves to the fallback."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.gpu.dataflow.schedule import MAX_CELLS, MAX_VARIABLES
from jtgpu.device.context import Device
from jtgpu.errors import ImpossibleEvidence, JtgpuError
from tests.on_gpu.conftest import ROOT
from tests.on_gpu.test_single import TOLERANCE, cases, hold_to_definition, tables
from tests.plans.test_plan import chain

NAMES = ["asia.net", "alarm.net", "hailfinder.net", "andes.net", "win95pts.net"]


@pytest.mark.parametrize("name", NAMES)
def test_small_networks(gpu: Device, name: str) -> None:
    model = jtgpu.read(ROOT / "nets" / name)
    plan = model.plan(order="min-fill", max_table=None).plan
    backend = gpu_backend.prepare(plan, tables(model), engine="dataflow")
    assert backend.kind == "dataflow"
    hold_to_definition(plan, tables(model), backend, 4)
    backend.close()


@pytest.mark.parametrize("long_batches", [False, True])
@pytest.mark.parametrize("name", ["Mildew", "Barley"])
def test_benchmark_networks(
    gpu: Device, nets: Path, monkeypatch: pytest.MonkeyPatch, name: str, long_batches: bool
) -> None:
    """Tiles of every kind, and sums in parts; test_single.py has the other networks."""
    monkeypatch.setattr("jtgpu.backends.gpu.dataflow.schedule.LONG_BATCHES_GAIN", math.inf if long_batches else 0.0)
    model = jtgpu.read(nets / f"{name}.net")
    plan = model.plan(order=nets / f"{name}.num", max_table=None).plan
    backend = gpu_backend.prepare(plan, tables(model), engine="dataflow")
    hold_to_definition(plan, tables(model), backend, 2)
    assert len({backend.run_case(Evidence.none(plan.n_variables)).posterior.tobytes() for _ in range(20)}) == 1
    backend.close()


def test_improbable_cases_are_computed_by_the_fallback(gpu: Device) -> None:
    n = 900
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    backend = gpu_backend.prepare(plan, tables(net), engine="dataflow")
    state = np.full(n, -1, np.int32)
    assert backend.run_case(Evidence(state)).log_evidence == pytest.approx(0.0, abs=1e-12)
    got = backend.run_case(Evidence(np.arange(n, dtype=np.int32) % 3))
    assert got.log_evidence == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    assert backend.run_case(Evidence(state)).log_evidence == pytest.approx(0.0, abs=1e-12)
    assert backend.run_case(Evidence(np.arange(n, dtype=np.int32) % 3)).log_evidence == got.log_evidence
    backend.close()
    with pytest.raises(JtgpuError, match="closed"):
        backend.run_case(Evidence(state))


def test_unsupported_networks_are_refused(gpu: Device) -> None:
    n = 2000
    assert n > MAX_VARIABLES
    net = chain(n, 2)
    plan = net.plan(order=list(range(n))).plan
    with pytest.raises(JtgpuError, match="supports neither"):
        gpu_backend.prepare(plan, tables(net), engine="dataflow")
    with pytest.raises(ValueError, match="engine must be"):
        gpu_backend.prepare(plan, tables(net), engine="quickest")
    backend = gpu_backend.prepare(plan, tables(net))
    assert backend.kind == "levels"
    state = np.where(np.arange(n) % 7 == 0, np.arange(n) % 2, -1).astype(np.int32)
    got, expected = backend.run_case(Evidence(state)), reference.prepare(plan, tables(net)).run_case(Evidence(state))
    np.testing.assert_allclose(got.posterior, expected.posterior, rtol=0, atol=TOLERANCE)
    assert got.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12)
    backend.close()


@pytest.mark.slow
def test_a_plan_of_too_many_cells_is_answered_level_by_level(gpu: Device) -> None:
    n = math.isqrt(MAX_CELLS) + 1
    rng = np.random.default_rng(1)
    rows, first = rng.random((n, n)) + 0.01, rng.random(n) + 0.01
    rows /= rows.sum(axis=1, keepdims=True)
    first /= first.sum()
    states = [str(i) for i in range(n)]
    net = jtgpu.BayesianNetwork({"a": states, "b": states}, {"b": ["a"]}, {"a": first, "b": rows})
    backend = gpu_backend.prepare(net.plan(max_table=None).plan, tables(net))
    assert backend.kind == "levels"
    none = backend.run_case(Evidence.none(2))
    np.testing.assert_allclose(none.posterior[n:], first @ rows, rtol=1e-10)
    got, joint = backend.run_case(Evidence(np.array([-1, 5], np.int32))), first * rows[:, 5]
    np.testing.assert_allclose(got.posterior[:n], joint / joint.sum(), rtol=1e-10)
    assert got.log_evidence == pytest.approx(math.log(joint.sum()), rel=1e-10)
    backend.close()


def test_engines_share_the_gpu(gpu: Device) -> None:
    """Several such kernels want the whole card each, with others of ours between them."""
    model = jtgpu.read(ROOT / "nets" / "andes.net")
    plan = model.plan(order="min-fill").plan
    definition = reference.prepare(plan, tables(model))
    given = list(cases(plan, 4, 3))
    expected = {}
    for i, case in enumerate(given):
        try:
            expected[i] = definition.run_case(case).posterior
        except ImpossibleEvidence:
            continue
    wrong: list[int] = []

    def work(engine: str) -> None:
        backend = gpu_backend.prepare(plan, tables(model), engine=engine)
        for _ in range(50):
            for i, p in expected.items():
                if not np.allclose(backend.run_case(given[i]).posterior, p, rtol=0, atol=TOLERANCE):
                    wrong.append(i)
        backend.close()

    engines = ("dataflow", "levels", "dataflow", "dataflow", "levels")
    threads = [threading.Thread(target=work, args=(e,)) for e in engines]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
