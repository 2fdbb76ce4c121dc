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
from jtgpu.backends.gpu.dataflow.schedule import MAX_VARIABLES
from jtgpu.backends.gpu.dataflow.tiling import DataflowConfig
from jtgpu.backends.gpu.select import LAYOUTS, Config
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


def test_a_benchmark_network(gpu: Device, nets: Path) -> None:
    """Tiles of every kind, and sums in parts; test_single.py has the other networks."""
    model = jtgpu.read(nets / "Mildew.net")
    plan = model.plan(order=nets / "Mildew.num", max_table=None).plan
    backend = gpu_backend.prepare(plan, tables(model), engine="dataflow")
    hold_to_definition(plan, tables(model), backend, 2)
    assert len({backend.run(Evidence.none(plan.n_variables)).posterior.tobytes() for _ in range(20)}) == 1
    backend.close()


CONFIGS = [
    *(Config("dataflow", 16.0 * (i % 2), layout) for i, layout in enumerate(LAYOUTS[1:])),
    Config("dataflow", 4.0, DataflowConfig(8, True, 0, 0.5, 0.5, tensor_blocks=True)),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("name", ["Mildew", "Barley"])
def test_other_configurations(gpu: Device, nets: Path, name: str, config: Config) -> None:
    model = jtgpu.read(nets / f"{name}.net")
    plan = model.plan(order=nets / f"{name}.num", max_table=None).plan
    backend = gpu_backend.prepare(plan, tables(model), single=False)
    backend._engine = backend.maker.made(config)
    hold_to_definition(plan, tables(model), backend, 2)
    nothing = Evidence.none(plan.n_variables)
    assert len({backend.run(nothing).posterior.tobytes() for _ in range(20)}) == 1
    backend.close()


@pytest.mark.alone
def test_the_quickest_configuration_is_measured_and_saved(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jtgpu.backends.gpu.select.cache_folder", lambda: tmp_path)
    model = jtgpu.read(ROOT / "nets" / "alarm.net")
    made = model.plan(order="min-fill")
    with gpu.active():
        before = gpu.free_memory()
    name, tried = made.tune()
    with gpu.active():
        assert before - gpu.free_memory() < 16 << 20
    assert name == gpu.name
    assert {t.config.engine for t in tried} == {"dataflow", "levels"}
    assert all(0 < t.microseconds < math.inf for t in tried)
    backend = gpu_backend.prepare(made.plan, tables(model))
    assert backend.kind == tried[0].config.engine
    hold_to_definition(made.plan, tables(model), backend, 4)
    backend.close()


def test_improbable_cases_are_computed_by_the_fallback(gpu: Device) -> None:
    n = 900
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    backend = gpu_backend.prepare(plan, tables(net), engine="dataflow")
    state = np.full(n, -1, np.int32)
    assert backend.run(Evidence(state)).log_evidence == pytest.approx(0.0, abs=1e-12)
    got = backend.run(Evidence(np.arange(n, dtype=np.int32) % 3))
    assert got.log_evidence == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    assert backend.run(Evidence(state)).log_evidence == pytest.approx(0.0, abs=1e-12)
    assert backend.run(Evidence(np.arange(n, dtype=np.int32) % 3)).log_evidence == got.log_evidence
    backend.close()
    with pytest.raises(JtgpuError, match="closed"):
        backend.run(Evidence(state))


def test_unsupported_networks_are_refused(gpu: Device) -> None:
    n = MAX_VARIABLES + 1
    net = chain(n, 2)
    plan = net.plan(order=list(range(n))).plan
    with pytest.raises(JtgpuError, match="supports neither"):
        gpu_backend.prepare(plan, tables(net), engine="dataflow")
    with pytest.raises(ValueError, match="engine must be"):
        gpu_backend.prepare(plan, tables(net), engine="quickest")
    backend = gpu_backend.prepare(plan, tables(net))
    assert backend.kind != "dataflow"
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
            expected[i] = definition.run(case).posterior
        except ImpossibleEvidence:
            continue
    wrong: list[int] = []

    def work(engine: str) -> None:
        backend = gpu_backend.prepare(plan, tables(model), engine=engine)
        for _ in range(50):
            for i, p in expected.items():
                if not np.allclose(backend.run(given[i]).posterior, p, rtol=0, atol=TOLERANCE):
                    wrong.append(i)
        backend.close()

    engines = ("dataflow", "levels", "dataflow", "dataflow", "levels")
    threads = [threading.Thread(target=work, args=(e,)) for e in engines]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
