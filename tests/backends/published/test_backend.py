"""The published engine without a GPU: its algorithm on the CPU, schedule and transfers on a device that NumPy plays,
the table of times, the figures and the receipt."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.backends.base import Evidence
from jtgpu.backends.published import timetable, tuning
from jtgpu.backends.published.backend import Indexed, prepare
from jtgpu.backends.published.launches import Rules
from jtgpu.device import context as device_module
from jtgpu.model.network import DiscreteModel
from jtgpu.plans.compiler import model_factors
from tests.plans.test_plan import chain
from tests.support import oracle, random_nets
from tests.support.examples import examples
from tests.support.fake_device import FakeDevice

ROOT = Path(__file__).resolve().parent.parent
MODES: list[dict[str, Any]] = [
    {"engine": "host"},
    {"transfers": "resident"},
    {"transfers": "resident", "min_entries": 12, "scatter": "fused"},
    {"transfers": "each"},
    {"transfers": "each", "min_entries": 0, "streams": 1},
    {"transfers": "each", "min_entries": 12, "index_transfers": "each", "streams": 2, "ways": 4},
]


def backend_of(model: DiscreteModel, options: dict[str, Any], device: FakeDevice) -> Indexed:
    plan = model.plan(order="min-fill", cache=False).plan
    given_device = {} if options.get("engine") == "host" else {"_device": device}
    return prepare(plan, [f.table for f in model_factors(model)], **options, **given_device)


@pytest.mark.parametrize("options", MODES, ids=str)
@examples(25)
@given(data=st.data())
def test_every_mode_agrees_with_brute_force(data: st.DataObject, options: dict[str, Any]) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    device = FakeDevice(with_blas=data.draw(st.booleans()))
    backend = backend_of(model, options, device)
    ptr = np.concatenate([[0], np.cumsum(model.cardinality)])
    for _ in range(2):  # the second run on the same engine: nothing of the first is left
        hard, soft = data.draw(random_nets.evidence_weights(model))
        state = np.full(len(model.variables), -1, np.int32)
        for v, s in hard.items():
            state[v] = s
        evidence = Evidence(state, soft)
        weights = random_nets.all_weights(model, hard, soft)
        expected = oracle.log_evidence(model, weights)
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                backend.run(evidence)
            continue
        found = backend.run(evidence)
        assert found.log_evidence == pytest.approx(expected, abs=1e-11)
        for v, p in enumerate(oracle.posteriors(model, weights)):
            np.testing.assert_allclose(found.posterior[ptr[v] : ptr[v + 1]], p, atol=1e-12)
    backend.close()
    backend.close()
    assert not device.live, "memory is left on the device"


@pytest.mark.parametrize("options", MODES[:4], ids=str)
def test_a_long_chain_does_not_underflow(options: dict[str, Any]) -> None:
    n = 700
    backend = backend_of(chain(n, 3), options, FakeDevice())
    state = np.array([i % 3 for i in range(n)], np.int32)  # every step changes the state
    found = backend.run(Evidence(state))
    assert found.log_evidence == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    tiny = {v: np.array([1e-300, 2e-300, 1e-300]) for v in range(0, n, 7)}
    assert backend.run(Evidence(np.full(n, -1, np.int32), tiny)).log_evidence < -69_000


def test_only_targets_are_answered_on_request() -> None:
    backend = backend_of(chain(9, 3), {"engine": "host"}, FakeDevice())
    everything = backend.run(Evidence.none(9))
    one = backend.run(Evidence.none(9), targets=[4])
    np.testing.assert_array_equal(one.posterior[12:15], everything.posterior[12:15])
    assert one.log_evidence == everything.log_evidence


def test_small_tables_stay_on_the_cpu() -> None:
    """The published threshold: 5000 entries, decided for each marginalisation and each scattering."""
    device = FakeDevice()
    backend = backend_of(chain(6, 80), {"transfers": "each"}, device)  # cliques of 6400 entries
    backend.run(Evidence.none(6))
    assert any(name.startswith("marginalise") for name in device.launched)
    device.launched.clear()
    smaller = backend_of(chain(6, 70), {"transfers": "each"}, device)  # 4900
    smaller.run(Evidence.none(6))
    assert not device.launched
    backend.close()
    smaller.close()


def test_a_clique_over_the_limit_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(errors.TableTooLarge) as raised:
        backend_of(chain(4, 50), {"engine": "host", "max_entries": 2000}, FakeDevice())
    assert raised.value.entries == 2500


@pytest.mark.parametrize("transfers", ["each", "resident"])
def test_a_full_device_is_said_with_sizes_and_leaves_nothing(transfers: str) -> None:
    device = FakeDevice(free=100_000)
    with pytest.raises(errors.TableTooLarge) as raised:
        backend_of(chain(6, 80), {"transfers": transfers}, device)
    assert raised.value.needed > raised.value.limit >= 0
    assert not device.live


def test_a_closed_engine_answers_no_more() -> None:
    backend = backend_of(chain(4, 3), {"engine": "host"}, FakeDevice())
    backend.close()
    with pytest.raises(errors.JtgpuError):
        backend.run(Evidence.none(4))


def test_without_pycuda_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(errors.BackendUnavailable, match=r"jtgpu\[cuda\]"):
        chain(4, 3).compile(backend="indexed")


def test_cublas_on_request_and_its_absence() -> None:
    model = chain(6, 80)
    assert backend_of(model, {"normalise": "cublas"}, FakeDevice(with_blas=True)).uses_blas
    assert not backend_of(model, {"normalise": "kernel"}, FakeDevice(with_blas=True)).uses_blas
    assert not backend_of(model, {}, FakeDevice()).uses_blas
    with pytest.raises(errors.BackendUnavailable):
        backend_of(model, {"normalise": "cublas"}, FakeDevice())
    with pytest.raises(ValueError, match="cublas"):
        backend_of(model, {"normalise": "cublas", "transfers": "resident"}, FakeDevice())


@pytest.mark.parametrize("name", ["Water", "Munin4"])
def test_published_networks_on_the_cpu(shared_nets: Path, name: str) -> None:
    folder = shared_nets / "RetiEsempio"
    net = jtgpu.read(folder / f"{name}.net")
    plan = net.plan(order=folder / f"{name}.num").plan
    factors = [f.table for f in model_factors(net)]
    found = prepare(plan, factors, engine="host").run(Evidence.none(plan.n_variables))
    expected = jtgpu.backends.get("reference")(plan, factors).run(Evidence.none(plan.n_variables))
    np.testing.assert_allclose(found.posterior, expected.posterior, atol=1e-12)
    tree = timetable._tree(plan)
    for key in ("cliques", "largest", "smallest", "entries", "largest_separator", "smallest_separator"):
        assert tree[key] == timetable.PUBLISHED[name.lower()][key], key


# Tuning ----------------------------------------------------------------------------------------------------------


def test_tuned_rules_are_chosen_saved_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    device = FakeDevice()
    model = chain(6, 80)
    with pytest.raises(errors.BackendUnavailable, match="tune"):
        backend_of(model, {"thresholds": "tuned"}, device)
    monkeypatch.setattr(tuning, "open_device", lambda ordinal: device)
    found = tuning.tune(sizes=(6, 10), launches=2)
    assert {r.operation for r in found.rows} >= {"marginalise_m", "marginalise_n", "scatter", "cpu_scatter"}
    path = tuning.save(found)
    assert tuning.saved_rules(device, "each") == found.rules  # type: ignore[arg-type]
    backend = backend_of(model, {"thresholds": "tuned", "streams": 2}, device)
    assert backend.rules == Rules(**found.rules, streams=2)
    backend.close()
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(errors.BackendUnavailable, match="again"):
        tuning.saved_rules(device, "each")  # type: ignore[arg-type]


def test_the_winner_loses_least_over_all_tables() -> None:
    Row = tuning.Row
    rows = [
        *(Row("scatter", 1, m, t, s) for m, t, s in ((8, 64, 1.0), (8, 256, 1.1), (64, 64, 9.0), (64, 256, 2.0))),
        *(Row("marginalise_m", 1, 8, t, 1.0 + t / 1e4) for t in (128, 512)),
        *(Row("marginalise_m_ways", n, 8, 8, n * 1.0) for n in (1, 8, 64, 512)),
        *(Row("marginalise_n_ways", n, 8, 8, 40.0) for n in (1, 8, 64, 512)),
        *(Row("scatter_ways", 1, 8, w, s) for w, s in ((1, 3.0), (-2, 2.0))),
        *(
            Row(f"{d}_scatter", 1, m, 0, s)
            for d, m, s in (("cpu", 8, 1.0), ("gpu", 8, 2.0), ("cpu", 64, 9.0), ("gpu", 64, 2.0))
        ),
    ]
    assert tuning._choose(rows) == {
        "marginalise_threads": 128, "scatter_threads": 256, "ways": 8, "scatter": "fused", "scatter_ways": 2,
        "split_n": 64, "min_entries": 64,
    }  # fmt: skip


# The table of times ----------------------------------------------------------------------------------------------


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> timetable.TimeTable:
    """A measured table of a small network under a published name, on the played device."""
    device = FakeDevice()
    monkeypatch.setattr(timetable, "open_device", lambda ordinal=None: device)
    monkeypatch.setattr(device_module, "open_device", lambda ordinal=None: device)
    model = chain(6, 80)
    plan = model.plan(order="min-fill", cache=False).plan
    factors = [f.table for f in model_factors(model)]
    column = timetable.measure("Water", plan, factors, runs=2, tuned={"ways": 8})
    assert not device.live
    return timetable.TimeTable([column], {"device": "NumPy"})


def test_every_published_row_is_measured(table: timetable.TimeTable) -> None:
    values = table.columns[0].values
    assert set(timetable._PUBLISHED_ROWS) <= set(values)
    assert {r.key for r in timetable.ROWS} <= set(values)
    assert values["cliques"] == 5
    assert values["speedup"] == pytest.approx(values["cpu"] / values["gpu"])
    gain = table.columns[0].gain("resident_scatter")
    assert gain is not None
    assert gain == pytest.approx(5 / values["resident_scatter"])


def test_the_table_is_written_in_three_formats(table: timetable.TimeTable) -> None:
    assert timetable.TimeTable.from_json(table.to_json()) == table
    lines = table.to_csv().splitlines()
    assert lines[0].startswith("network,group,row")
    assert any(line.startswith("Water,total,gpu,ms,") and ",140," in line for line in lines)
    text = table.to_rst()
    assert ".. list-table::" in text
    assert "(140)" in text
    assert len({len(row) for row in table.rows()}) == 1


def test_published_speed_ups_are_those_of_their_times() -> None:
    """The published figures, held to themselves: a slip in copying would show. Two are rounded from finer times."""
    for name, column in timetable.PUBLISHED.items():
        for key, (over, under) in timetable._RATIOS.items():
            assert column[key] == pytest.approx(column[over] / column[under], rel=0.1), (name, key)
        assert column["average"] == column["entries"] // column["cliques"], name


def test_the_published_figures_are_drawn(table: timetable.TimeTable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from jtgpu.show.published import draw

    paths = draw(table, tmp_path / "figures")
    assert [p.name for p in paths] == [
        "index-tables.png", "clique-tables.png", "water-without-transfers.png", "water-with-transfers.png",
    ]  # fmt: skip
    assert all(p.read_bytes()[:4] == b"\x89PNG" for p in paths)


# The receipt -----------------------------------------------------------------------------------------------------


def receipt_module() -> Any:
    spec = importlib.util.spec_from_file_location("receipt", ROOT / "tests" / "gpu" / "receipt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_receipt_is_of_these_sources_or_says_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt = receipt_module()
    monkeypatch.setattr(receipt, "RECEIPT", tmp_path / "receipt.json")
    assert receipt.check() == 1
    assert "make gpu-test" in capsys.readouterr().err
    files = receipt.digests()
    assert {"cuda/published/job.cuh", "jtgpu/device/context.py", "tests/on_gpu/receipt.py"} <= set(files)
    kept = {
        "date": "2026-01-01",
        "device": "x",
        "passed": 3,
        "failed": 0,
        "digest": receipt.digest(files),
        "files": files,
    }
    receipt.RECEIPT.write_text(json.dumps(kept))
    assert receipt.check() == 0
    kept["files"] = {**files, "cuda/published/job.cuh": "another"}
    kept["digest"] = receipt.digest(kept["files"])
    receipt.RECEIPT.write_text(json.dumps(kept))
    assert receipt.check() == 1
    assert "cuda/published/job.cuh" in capsys.readouterr().err


def test_the_receipt_needs_no_packages() -> None:
    """It is run on machines where jtgpu is not installed."""
    command = [sys.executable, "-I", "-S", str(ROOT / "tests" / "gpu" / "receipt.py"), "--help"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
