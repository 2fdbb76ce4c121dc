"""Tables shared by several GPUs, on simulated devices: every row is answered once and in its place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import jtgpu
from jtgpu.backends.base import Capabilities
from jtgpu.backends.gpu.batch.chunk import Slot
from jtgpu.backends.gpu.batch.engine import BatchEngine
from jtgpu.backends.gpu.batch.table import TableJob
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers.devices import DevicePool, MultiDevice
from jtgpu.errors import BackendUnavailable, EvidenceError
from jtgpu.formats import bundled
from jtgpu.plans.plan import Plan

SIZE = 64  # cases of a chunk


class Stream:
    """Work that ends some time later."""

    until = 0.0

    def synchronize(self) -> None:
        time.sleep(max(self.until - time.perf_counter(), 0.0))

    def wait_for_event(self, event: Event) -> None:
        self.until = max(self.until, event.at)


class Event:
    at = 0.0

    def record(self, stream: Stream) -> None:
        self.at = stream.until

    def time_since(self, other: Event) -> float:
        return 1e3 * (self.at - other.at)


class Device:
    """What `BatchEngine` uses of a device; nothing is copied, since its memory is the host's."""

    name = "a device"

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def upload(self, address: int, array: NDArray[Any], stream: Stream) -> None:
        pass

    def download(self, array: NDArray[Any], address: int, stream: Stream) -> None:
        pass


class Engine(BatchEngine):
    """The engine without memory and kernels: an answer is computed from a case's states, and takes a while."""

    def __init__(self, plan: Plan, seconds: float = 0.0, fails: int = -1):
        self.plan, self.device, self._seconds, self._fails = plan, Device(), seconds, fails  # type: ignore[assignment]
        self.lock, self._is_open, self.device_us, self._worth = threading.RLock(), True, 0.0, 1.0
        self._copiers = ThreadPoolExecutor(2)
        self.real, self._exact, self._copying, self.streams = "float64", None, [], []
        self.host: Any = SimpleNamespace(is_exact=lambda *_: True)
        self._buffers: Any = SimpleNamespace(size=SIZE, slots=self.slots, fit=lambda *_: True)
        self.choice: Any = SimpleNamespace(of=lambda _: None)
        self.chunks: list[int] = []

    def slots(self, program: Any, table: TableJob, n: int) -> tuple[Slot, ...]:
        made = []
        for _ in range(3):
            host = table.host_chunk(SIZE, lambda cells, dtype: np.zeros(cells, dtype))
            chunk: Any = SimpleNamespace(
                size=SIZE, n_weights=host.weights.shape[1], states=0, weights=0, posterior=0, log_evidence=0, rows=0
            )
            stream = Stream()
            kernels: Any = SimpleNamespace(
                launch=lambda _, s=stream, host=host: self._launch(s, host, bool(table.width))
            )
            made.append(Slot(stream, Event(), Event(), host, chunk, kernels))
        return tuple(made)

    def _launch(self, stream: Stream, host: Any, by_columns: bool) -> None:
        self.chunks.append(1)
        if len(self.chunks) == self._fails:
            raise RuntimeError("an illegal memory access was encountered")
        states = host.states.T if by_columns else host.states
        sums = (states * np.arange(1, states.shape[1] + 1)).sum(axis=1).astype(float)
        answers = sums[:, None] + np.arange(host.posterior.shape[0 if by_columns else 1]) / 8
        host.posterior[:] = answers.T if by_columns else answers
        host.log_evidence[:] = np.where(sums % 7 == 0, -np.inf, -sums)
        stream.until = max(stream.until, time.perf_counter()) + self._seconds

    def close(self) -> None:
        self._copiers.shutdown()


class Worker:
    """A GPU as `MultiDevice` sees it."""

    capabilities = Capabilities(native_columns=True)

    def __init__(self, engine: Engine):
        self.share, self.answer, self.close = engine.share, engine.answer, engine.close


@pytest.fixture(scope="module")
def plan() -> Plan:
    found: Plan = jtgpu.read(bundled.benchmark_files(["asia"])[0]).plan().plan
    return found


def on_devices(
    plan: Plan, made: list[Engine], each: Sequence[dict[str, Any]], engine: Callable[..., Engine] = Engine
) -> MultiDevice:
    def prepare(plan: Plan, factors: Any, **options: Any) -> Any:
        made.append(engine(plan, **options))
        return Worker(made[-1])

    return DevicePool(prepare, [(f"GPU {i}", options) for i, options in enumerate(each)])(plan, [])


def a_table(plan: Plan, n: int) -> NDArray[np.int32]:
    return np.random.default_rng(n).integers(-1, plan.cardinality, (n, plan.n_variables)).astype(np.int32)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 32)


@pytest.mark.parametrize("n_devices", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 63, 64, 1000, 4097])
def test_rows_and_columns_are_answered_in_place(plan: Plan, n_devices: int, n: int) -> None:
    made: list[Engine] = []
    backend = on_devices(plan, made, [{"seconds": 1e-4}] * n_devices)
    assert backend.capabilities.native_columns
    states = a_table(plan, n)
    alone = Engine(plan).run(Table.of(states, None, [3, 0, 3]))
    found = backend.run(Table.of(states, None, [3, 0, 3]))
    assert found.impossible.any() or n < 63
    for field in ("posterior", "log_evidence", "impossible"):
        np.testing.assert_array_equal(getattr(found, field), getattr(alone, field))
    codes = np.ascontiguousarray(states[:, 2:5].T.astype(np.int8))
    table = Table.by_columns([2, 3, 4], codes, plan.n_variables, [1])
    by_columns, expected = backend.run(table), Engine(plan).run(table)
    for field in ("posterior", "log_evidence", "impossible"):
        np.testing.assert_array_equal(getattr(by_columns, field), getattr(expected, field))
    assert sum(len(e.chunks) for e in made) >= 2 * -(-n // SIZE)
    backend.close()


@pytest.mark.parametrize("fails", [1, 2, 5, 9])
def test_rows_of_a_failed_gpu_go_to_the_others(plan: Plan, fails: int) -> None:
    made: list[Engine] = []
    backend = on_devices(plan, made, [{"seconds": 1e-3}, {"fails": fails, "seconds": 1e-3}])
    states = a_table(plan, 3000)
    found, expected = backend.run(Table.of(states)), Engine(plan).run(Table.of(states))
    np.testing.assert_array_equal(found.posterior, expected.posterior)
    np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)
    assert len(made[1].chunks) == fails
    assert backend.capabilities.concurrent_tables == 3
    with pytest.raises(BackendUnavailable, match=r"illegal memory access.*GPU 1|GPU 1.*illegal memory access"):
        on_devices(plan, [], [{"fails": 1}, {"fails": fails}]).run(Table.of(a_table(plan, 5000)))


def test_a_table_of_another_shape_is_refused_before_any_gpu_works(plan: Plan) -> None:
    made: list[Engine] = []
    backend: Any = on_devices(plan, made, [{}, {}])
    with pytest.raises(EvidenceError, match="shape"):
        backend.run(Table.of(a_table(plan, 500)[:, 1:]))
    with pytest.raises(EvidenceError, match="shape"):
        backend.run(Table.by_columns([0, 1], np.zeros((3, 9), np.int8), plan.n_variables))
    assert not made[0].chunks


def test_gpus_share_the_work(plan: Plan) -> None:
    """An idle GPU takes the next chunk: a slower one answers fewer."""
    made: list[Engine] = []
    backend = on_devices(plan, made, [{"seconds": 2e-3}, {"seconds": 2e-3}, {"seconds": 12e-3}])
    backend.run(Table.of(a_table(plan, 100 * SIZE)))
    shares = [len(e.chunks) for e in made]
    assert sum(shares) >= 100
    assert shares[2] < min(shares[:2])
