"""Several devices as one backend, with CPU backends as workers: bit-identical for any number, failures, files."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu import backends
from jtgpu.backends import reference
from jtgpu.backends.base import Backend, Evidence, Table, TableAnswer
from jtgpu.backends.cpu import prepare as prepare_cpu
from jtgpu.backends.wrappers.devices import DevicePool, MultiDevice
from jtgpu.errors import BackendUnavailable, EvidenceError, ImpossibleEvidence, JtgpuError, TableTooLarge
from jtgpu.formats import bundled
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans import compiler
from jtgpu.plans.plan import Plan


@pytest.fixture(scope="module")
def net() -> BayesianNetwork:
    found = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    assert isinstance(found, BayesianNetwork)
    return found


def tables(net: BayesianNetwork) -> list[NDArray[np.float64]]:
    return [f.table for f in compiler.model_factors(net)]


def cases(net: BayesianNetwork, n: int, seed: int = 1) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    states = rng.integers(0, net.cardinality, (n, len(net)))
    return np.where(rng.random(states.shape) < 0.3, states, -1).astype(np.int32)


class Worker(Backend):
    """The reference backend; records the rows that it answered, and raises given errors."""

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], number: int = 0, fails: Mapping[int, Exception] = {}
    ):  # fmt: skip
        self.number, self._fails = number, fails
        self._backend: Any = reference.prepare(plan, factors)
        self.rows: list[int] = []
        self.closed = False

    def run_case(self, evidence: Evidence, targets: Sequence[int] | None = None, states: Any = None) -> Any:
        if self.number in self._fails:
            raise self._fails[self.number]
        self.rows.append(1)
        return self._backend.run_case(evidence, targets)

    def run(self, table: Table[Any]) -> Any:
        if self.number in self._fails:
            raise self._fails[self.number]
        self.rows.append(table.n)
        return self._backend.run(table)

    def session(self) -> Any:
        return self._backend.session()

    def close(self) -> None:
        self.closed = True


def several(net: BayesianNetwork, n: int, made: list[Worker] | None = None, **options: Any) -> MultiDevice:
    def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **more: Any) -> Backend:
        worker = Worker(plan, factors, **more)
        if made is not None:
            made.append(worker)
        return worker

    on = DevicePool(prepare, [(f"card {i}", {"number": i}) for i in range(n)])
    return on(net.plan().plan, tables(net), **options)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few rows use all workers."""
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 16)


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_tables_have_the_same_bits_for_any_number_of_workers(net: BayesianNetwork) -> None:
    states = cases(net, 333)
    soft = {2: np.random.default_rng(3).random((333, int(net.cardinality[2])))}
    expected = [reference.prepare(net.plan().plan, tables(net)).run(Table.of(states, soft, t)) for t in (None, [3, 1])]
    for n in (1, 2, 3, 8):
        made: list[Worker] = []
        backend = several(net, n, made)
        for targets, right in zip((None, [3, 1]), expected, strict=True):
            found = backend.run(Table.of(states, soft, targets))
            for field in ("posterior", "log_evidence", "impossible"):
                np.testing.assert_array_equal(getattr(found, field), getattr(right, field))
        assert sum(sum(w.rows) for w in made) == 2 * 333
        assert len(made) <= n
        assert backend.capabilities.concurrent_tables == n + 1
        assert backend.run(Table.of(states[:0])).posterior.shape == (0, int(net.cardinality.sum()))
        backend.close()
        assert all(w.closed for w in made)
        with pytest.raises(JtgpuError, match="closed"):
            backend.run_case(Evidence(states[0]))


def test_small_tables_and_single_cases_stay_on_the_first(net: BayesianNetwork) -> None:
    made: list[Worker] = []
    backend = several(net, 4, made)
    backend.run(Table.of(cases(net, 100)))
    backend.run_case(Evidence.none(len(net)))
    backend.session().run(Evidence.none(len(net)))
    assert [w.number for w in made] == [0]
    assert backend.names == ("card 0", "card 1", "card 2", "card 3")
    assert backend.device is None


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_other_workers_take_the_rows_of_one_that_fails(
    net: BayesianNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    states = cases(net, 200)
    expected = several(net, 1).run(Table.of(states))
    for error in (TableTooLarge("no memory"), BackendUnavailable("lost"), RuntimeError("unspecified launch failure")):
        backend = several(net, 3, fails={1: error})
        found = backend.run(Table.of(states))
        np.testing.assert_array_equal(found.posterior, expected.posterior)
        np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)
    assert "card 1 failed" in caplog.text


@pytest.mark.usefixtures("many")
def test_when_all_fail_the_error_names_them(net: BayesianNetwork) -> None:
    lost = {i: BackendUnavailable("lost") for i in range(2)}
    with pytest.raises(BackendUnavailable, match="card 0: lost"):
        several(net, 2, fails=lost).run(Table.of(cases(net, 100)))
    with pytest.raises(BackendUnavailable, match="lost"):
        several(net, 2, fails=lost).run_case(Evidence.none(len(net)))
    full = {i: TableTooLarge("no memory") for i in range(2)}
    with pytest.raises(TableTooLarge, match=r"card \d: no memory; card \d: no memory"):
        several(net, 2, fails=full).run(Table.of(cases(net, 100)))
    # the first is lost: single cases go to the second
    assert several(net, 2, fails={0: BackendUnavailable("lost")}).run_case(Evidence.none(len(net))).log_evidence < 1e-9


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_tables_from_several_threads(net: BayesianNetwork) -> None:
    backend = several(net, 3)
    tables_given = [cases(net, 150, seed) for seed in range(6)]
    expected = [several(net, 1).run(Table.of(s)) for s in tables_given]
    found: list[TableAnswer | None] = [None] * len(tables_given)

    def query(i: int) -> None:
        found[i] = backend.run(Table.of(tables_given[i]))

    threads = [threading.Thread(target=query, args=(i,)) for i in range(len(tables_given))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for right, got in zip(expected, found, strict=True):
        assert got is not None
        np.testing.assert_array_equal(got.posterior, right.posterior)


# Trees ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose GPUs are CPU backends."""

    def device_pool(name: str, devices: Any) -> DevicePool:
        numbers = range(3) if devices == "all" else devices
        return DevicePool(prepare_cpu, [(f"GPU {i}", {"threads": 1}) for i in numbers])

    monkeypatch.setattr("jtgpu.backends.make.device_pool", device_pool)
    monkeypatch.setattr("jtgpu.backends.make.get", lambda name: prepare_cpu)
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 16)


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("devices", ["all", [0], [0, 0]])
def test_a_tree_on_several_devices(net: BayesianNetwork, devices: Any) -> None:
    plan = net.plan()
    states = cases(net, 400)
    expected = plan.compile("cpu", replan=False, threads=1).posteriors_batch(states, on_error="flag")
    with plan.compile(devices=devices) as tree:  # devices are GPUs, so "auto" is "gpu"
        assert tree.backend == "gpu"
        assert tree.max_concurrent_tables == (3 if devices == "all" else len(devices)) + 1
        found = tree.posteriors_batch(states, on_error="flag")
        np.testing.assert_allclose(found.flat, expected.flat, rtol=0, atol=1e-14)
        np.testing.assert_array_equal(found.impossible, expected.impossible)
        assert tree.posterior("lung", {"xray": "yes"})["yes"] == pytest.approx(0.489, abs=1e-3)
        with tree.session({"xray": "yes"}) as session:
            assert session.posterior("lung")["yes"] == pytest.approx(0.489, abs=1e-3)
        assert tree.posterior("lung", do={"smoke": "no"})["yes"] == pytest.approx(0.01)
        with pytest.raises(ImpossibleEvidence, match="lung"):
            tree.posteriors({"lung": "yes", "either": "no"})
        with pytest.raises(EvidenceError):
            tree.posteriors_batch({"lung": ["perhaps"] * 100})


@pytest.mark.usefixtures("cards")
def test_frames_and_files_on_several_devices(net: BayesianNetwork, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from jtgpu.cases import answer_file

    states = cases(net, 3000)[:, 2:]
    columns = {}
    for j, v in enumerate(net.variables[2:]):
        labels = pa.array(net.states(v))
        cells = pa.array(states[:, j], mask=states[:, j] < 0)
        columns[v] = pa.DictionaryArray.from_arrays(cells, labels).cast("string")
    table = pa.table(columns)
    import pyarrow.parquet as parquet

    parquet.write_table(table, tmp_path / "cases.parquet")
    one = net.plan().compile("cpu", threads=1)
    targets = list(net.variables[:2])
    expected = one.predict_proba(table, targets, on_error="flag")
    with net.plan().compile("gpu", devices="all") as tree:
        found = tree.predict_proba(table, targets, on_error="flag")
        report = answer_file(
            tree, tmp_path / "cases.parquet", tmp_path / "out.parquet", targets=targets, on_error="flag", chunk=250
        )
    assert report.cases == 3000
    for got in (found, parquet.read_table(tmp_path / "out.parquet")):
        assert got.column_names == expected.column_names
        for name in expected.column_names[:-1]:
            np.testing.assert_allclose(got[name].to_numpy(), expected[name].to_numpy(), rtol=0, atol=1e-14)


@pytest.mark.usefixtures("cards")
def test_the_command_line_on_several_devices(
    net: BayesianNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    from click.testing import CliRunner

    from jtgpu.cli import app

    monkeypatch.setattr(backends, "free_on_devices", lambda name, devices: 1 << 30)
    asia, cases_file, out = str(bundled.benchmark_files(["asia"])[0]), tmp_path / "cases.csv", tmp_path / "out.csv"
    cases_file.write_text("xray,smoke\n" + "yes,no\nno,\n" * 500)

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, [*words])

    done = run("batch", asia, str(cases_file), "-o", str(out), "-t", "lung", "--devices", "0,1", "--json")
    assert done.exit_code == 0, done.output
    rows = out.read_text().splitlines()
    assert len(rows) == 1001
    assert rows[1] == rows[-2] != rows[2] == rows[-1]
    done = run("query", asia, "-e", "xray=yes", "-t", "lung", "--devices", "all", "--json")
    assert done.exit_code == 0, done.output
    assert '0.48871' in done.output
    for words, why in ((("--devices", "0;1"), "is neither 'all'"), (("--devices", ""), "neither 'all'")):
        done = run("query", asia, *words)
        assert done.exit_code == 2
        assert why in " ".join(done.output.split())
    done = run("batch", asia, str(cases_file), "-o", str(out), "--devices", "all", "--cluster", "local")
    assert done.exit_code == 2


def test_devices_need_a_backend_on_gpus(net: BayesianNetwork) -> None:
    with pytest.raises(BackendUnavailable, match="the backend 'cpu' runs on none"):
        net.plan().compile("cpu", devices="all")
