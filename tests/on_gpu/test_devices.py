"""Several GPUs as one backend, or several workers on one: the bits of one GPU, rows and slices shared, failures."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu import backends
from jtgpu.backends import make
from jtgpu.backends.base import Evidence
from jtgpu.backends.gpu import backend as gpu_backend
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers.devices import MultiDevice
from jtgpu.backends.wrappers.row_queue import RowQueue
from jtgpu.device.context import Device, device_numbers, open_device
from jtgpu.errors import BackendUnavailable, ImpossibleEvidence, JtgpuError, TableTooLarge
from jtgpu.inference.planning import SlicedPlan
from jtgpu.model.markov import MarkovNetwork
from jtgpu.plans import compiler
from tests.on_gpu.conftest import ROOT
from tests.on_gpu.test_batch import some_cases, tables

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu", "eager")]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables use all GPUs, too."""
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 32)


def choices() -> list[Any]:
    """Sets of devices: several workers on one, and all GPUs if there are several."""
    try:
        n = len(device_numbers("all"))
    except BackendUnavailable:
        n = 1
    return [[0], [0, 0], [0, 0, 0], *([] if n < 2 else ["all", [1, 0]])]


def several(name: str, devices: Any, **options: Any) -> tuple[Any, Any]:
    net = jtgpu.read(ROOT / "nets" / name)
    plan = net.plan("min-fill", cache=False)
    made = make.device_pool("gpu", devices)(plan.plan, tables(net), **options)
    return net, made


def evidence(net: Any, n: int, seed: int) -> tuple[NDArray[np.int32], dict[int, NDArray[np.float64]]]:
    states, soft = some_cases(net, n, seed)
    states[n // 2 :: 7] = states[1]  # some rows twice
    return states, soft


@pytest.mark.parametrize("devices", choices(), ids=str)
@pytest.mark.parametrize("name", ["asia.net", "alarm.net", "andes.net"])
def test_tables_have_the_bits_of_one_gpu(name: str, devices: Any) -> None:
    net, backend = several(name, devices)
    one = gpu_backend.prepare(net.plan("min-fill", cache=False).plan, tables(net))
    states, soft = evidence(net, 3000, 5)
    for weights in (None, soft):
        for targets in (None, [2, 0, 2]):
            table: Table[Any] = Table.of(states, weights, targets)
            expected, found = one.run(table), backend.run(table)
            for field in ("posterior", "log_evidence", "impossible"):
                np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    columns = list(range(0, len(net), 2))
    codes = np.ascontiguousarray(states[:, columns].T.astype(np.int8))
    table = Table.by_columns(columns, codes, len(net), [1, 3])
    by_column, given = one.run(table), backend.run(table)
    for field in ("posterior", "log_evidence", "impossible"):
        np.testing.assert_array_equal(getattr(given, field), getattr(by_column, field))
    one.close()
    backend.close()


def test_a_table_larger_than_the_chunks_of_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.backends.gpu.batch.buffers.LARGE", 512)
    monkeypatch.setattr("jtgpu.backends.gpu.batch.buffers.PINNED", 1 << 20)
    net, backend = several("alarm.net", [0, 0])
    one = gpu_backend.prepare(net.plan("min-fill", cache=False).plan, tables(net))
    states = evidence(net, 50_000, 6)[0]
    expected = one.run(Table.of(states))
    for _ in range(2):  # the second call reuses the first one's memory
        found = backend.run(Table.of(states))
        np.testing.assert_array_equal(found.posterior, expected.posterior)
        np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)
    one.close()
    backend.close()


def test_chunks_that_were_not_answered_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that fails during a table: the other one answers the rows that it had taken."""
    monkeypatch.setattr("jtgpu.backends.gpu.batch.buffers.LARGE", 512)
    monkeypatch.setattr("jtgpu.backends.gpu.batch.buffers.PINNED", 1 << 20)
    from jtgpu.backends.gpu.batch.table import TableJob

    net, backend = several("alarm.net", [0, 0])
    states = evidence(net, 50_000, 7)[0]
    expected = backend.run(Table.of(states))
    send, sent = TableJob.enter, [0]
    broken: list[Any] = []  # a stream of that GPU

    def failing(self: Any, slot: Any, *arguments: Any) -> None:
        if not broken:
            broken.append(slot.stream)
        if slot.stream is broken[0]:
            sent[0] += 1
            if sent[0] > 3:
                raise RuntimeError("unspecified launch failure")
        send(self, slot, *arguments)

    monkeypatch.setattr(TableJob, "enter", failing)
    found = backend.run(Table.of(states))
    np.testing.assert_array_equal(found.posterior, expected.posterior)
    np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)
    assert sent[0] == 4
    again = backend.run(Table.of(states[:200]))  # the other worker goes on alone
    np.testing.assert_array_equal(again.posterior, expected.posterior[:200])
    backend.close()


@pytest.mark.alone
def test_no_memory_left_on_a_card_names_it(gpu: Device) -> None:
    net, backend = several("water.net", [0, 0])
    states = evidence(net, 400, 8)[0]
    with gpu.active():
        held = []
        size = gpu.free_memory()
        while size > 1 << 20:
            try:
                held.append(gpu.alloc(size))
            except TableTooLarge:
                size //= 2
        try:
            with pytest.raises((TableTooLarge, BackendUnavailable)):
                backend.run(Table.of(states))
        finally:
            for block in held:
                block.free()
    assert not backend.run(Table.of(states)).impossible.all()  # memory is back, and so are the workers
    backend.close()


@pytest.mark.alone
def test_ctrl_c_stops_all_cards_and_leaves_them_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.backends.gpu.batch.buffers.LARGE", 512)
    monkeypatch.setattr("jtgpu.backends.gpu.batch.buffers.PINNED", 1 << 20)
    net, backend = several("alarm.net", [0, 0])
    states = evidence(net, 50_000, 9)[0]
    expected = backend.run(Table.of(states))
    take, asked = RowQueue.take, [0]

    def interrupted(self: RowQueue, *arguments: Any) -> Any:
        asked[0] += 1
        if asked[0] == 20:
            raise KeyboardInterrupt
        return take(self, *arguments)

    monkeypatch.setattr(RowQueue, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.run(Table.of(states))
    assert asked[0] < 48  # of some 50
    monkeypatch.setattr(RowQueue, "take", take)
    np.testing.assert_array_equal(backend.run(Table.of(states)).posterior, expected.posterior)
    assert not [t for t in threading.enumerate() if t.name.startswith("jtgpu-GPU")]
    backend.close()


@pytest.mark.alone
def test_memory_comes_back_when_a_tree_of_several_cards_is_closed() -> None:
    net = jtgpu.read(ROOT / "nets" / "alarm.net")

    def free() -> list[int]:
        found = []
        for n in device_numbers("all"):
            device = open_device(n)
            with device.active():
                found.append(device.free_memory())
        return found

    states = evidence(net, 4000, 10)[0]
    with net.compile("gpu", devices="all") as tree:
        tree.posteriors_batch(states, on_error="flag")
    before = free()
    for _ in range(3):
        with net.compile("gpu", devices="all") as tree:
            tree.posteriors_batch(states, on_error="flag")
            tree.posteriors({"HR": "NORMAL"})
    assert min(np.array(free()) - before) >= -(64 << 20)  # what the driver keeps in pools
    with pytest.raises(JtgpuError, match="closed"):
        tree.posteriors()


@pytest.mark.parametrize("devices", choices(), ids=str)
def test_trees_frames_and_threads(devices: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    rng = np.random.default_rng(11)
    columns = {
        v: pa.DictionaryArray.from_arrays(
            pa.array(rng.integers(0, len(net.states(v)), 20_000).astype(np.int8)), pa.array(net.states(v))
        )
        for v in net.variables[:6]
    }
    frame, targets = pa.table(columns), list(net.variables[-3:])
    with net.compile("gpu") as one, net.compile(devices=devices) as tree:
        assert tree.backend == "gpu"
        assert tree.device == one.device
        expected = one.predict_proba(frame, targets, on_error="flag")
        assert tree.predict_proba(frame, targets, on_error="flag").equals(expected)
        found: list[Any] = [None] * 6

        def ask(i: int) -> None:
            found[i] = tree.predict_proba(frame.slice(3000 * i, 3000), targets, on_error="flag")

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(found))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i, part in enumerate(found):
            assert part.equals(expected.slice(3000 * i, 3000))
        case = {"HR": "NORMAL"}
        assert tree.posteriors(case).log_evidence == one.posteriors(case).log_evidence
        with tree.session(case) as session:
            assert session.posteriors().log_evidence == one.posteriors(case).log_evidence


def test_single_cases_go_to_the_first_card_alone() -> None:
    net, backend = several("asia.net", [0, 0])
    assert isinstance(backend, MultiDevice)
    backend.run_case(Evidence.none(len(net)))
    first, second = (worker.object for worker in backend._pool.workers)
    assert second._made is None
    backend.run(Table.of(np.full((500, len(net)), -1, np.int32)))
    engines = [getattr(w.get(), "_engine", None) for w in (first, second)]
    assert engines[0] is not None
    assert engines[1] is None  # tables need nothing of what single cases do
    backend.close()


# Slices ---------------------------------------------------------------------------------------------------------


def grid(n: int) -> MarkovNetwork:
    """n x n binary variables, neighbours interact."""
    rng = np.random.default_rng(n)
    at = {(i, j): i * n + j for i in range(n) for j in range(n)}
    pairs = [(at[i, j], at[k]) for i, j in at for k in ((i + 1, j), (i, j + 1)) if k in at]
    return MarkovNetwork(
        {str(v): ["0", "1"] for v in at.values()}, [(list(map(str, p)), rng.uniform(0.2, 2, (2, 2))) for p in pairs]
    )


@pytest.mark.parametrize("devices", [None, *choices()], ids=str)
def test_slices_have_the_same_bits_on_any_cards(devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.backends.wrappers.cutset.MIN_WORK", 1)
    net = grid(7)
    plan = net.plan("min-fill", cache=False, slices=["24", "10", "38"])
    assert isinstance(plan, SlicedPlan)
    assert plan.n_slices == 8
    whole = net.plan("min-fill", cache=False).compile("reference")
    case = {"0": "1", "24": "0"}
    more = {} if devices is None else {"devices": devices}
    with plan.compile("gpu", devices=[0]) as one, plan.compile("gpu", **more) as tree:
        for given in ({}, case):
            expected, first, found = whole.posteriors(given), one.posteriors(given), tree.posteriors(given)
            assert found.log_evidence == first.log_evidence
            assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
            for v in net.variables:
                np.testing.assert_array_equal(found[v], first[v])
                np.testing.assert_allclose(found[v], expected[v], rtol=0, atol=1e-10)
        states = np.full((5, len(net)), -1)
        states[1, 24], states[2, 3], states[4, [10, 38]] = 1, 0, 1
        table = tree.posteriors_batch(states)
        np.testing.assert_array_equal(table.flat, one.posteriors_batch(states).flat)


@pytest.mark.alone
def test_a_plan_for_the_gpu_fits_the_gpu(gpu: Device) -> None:
    with gpu.active():
        free = gpu.free_memory()
    assert 0.9 * free < (backends.free_on_devices("gpu") or 0) <= 1.1 * free
    net = grid(10)
    whole = net.plan(backend="gpu").cost()
    assert whole == net.plan().cost()
    limit = whole.bytes // 2
    with pytest.raises(TableTooLarge):
        net.compile("gpu", memory_limit=limit, whole=True)
    with net.compile("gpu", slices="auto", memory_limit=limit, devices=[0, 0]) as tree:
        assert isinstance(tree.plan, SlicedPlan)
        expected = net.compile("cpu").posteriors({"3": "1"})
        assert tree.posteriors({"3": "1"}).log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)


def test_devices_that_are_not_there() -> None:
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    n = len(device_numbers("all"))
    with pytest.raises(BackendUnavailable, match=f"no CUDA device {n}"):
        net.compile("gpu", devices=[0, n])
    for wrong in ("both", [], [0.5], {"a": 1}, 0):
        with pytest.raises(ValueError, match="devices"):
            net.compile("gpu", devices=wrong)  # type: ignore[arg-type]
    with pytest.raises(ImpossibleEvidence), net.compile("gpu", devices=[0]) as tree:
        tree.posteriors({"lung": "yes", "either": "no"})
    assert device_numbers([0]) == [0]
    assert compiler.MEMORY_SHARE < 1
