"""Several GPUs end a table at the same time: the real row queue and chunks, on devices with simulated clocks."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.batch.buffers import SLOTS, chunk_size
from jtgpu.backends.gpu.batch.chunk import Slot
from jtgpu.backends.gpu.batch.table import TableJob
from jtgpu.backends.table import Table
from jtgpu.formats import bundled
from jtgpu.plans.plan import Plan
from tests.backends.gpu.test_shared_tables import Engine, Event, a_table, on_devices
from tests.support.examples import slow

COPIED = 0.1  # time of copying a chunk out, as a share of its kernels' time


class Clock:
    """Simulated time: it advances when all threads wait for it.

    Parameters
    ----------
    n : int
        Threads: time stands still until all of them wait.
    """

    def __init__(self, n: int):
        self.now = 0.0
        self._running = n
        self._until: list[float] = []
        self._change = threading.Condition()

    def wait(self, until: float) -> None:
        with self._change:
            if until <= self.now:
                return
            self._until.append(until)
            self._leave()
            assert self._change.wait_for(lambda: self.now >= until, 60)

    def leave(self) -> None:
        with self._change:
            self._leave()

    def _leave(self) -> None:
        self._running -= 1
        if not self._running and self._until:
            self.now = min(self._until)
            self._running = self._until.count(self.now)
            self._until = [t for t in self._until if t > self.now]
            self._change.notify_all()


class Stream:
    """Work on a device of that clock."""

    def __init__(self, clock: Clock):
        self.clock, self.until = clock, 0.0

    def synchronize(self) -> None:
        self.clock.wait(self.until)

    def wait_for_event(self, event: Event) -> None:
        self.until = max(self.until, event.at)


class Timed(Engine):
    """A GPU that takes a second for each case of a chunk, whether it is used or not.

    Parameters
    ----------
    fits, wave : int
        See `chunk_size`.
    each : float
        Seconds a case.
    late : float
        Seconds until the GPU is ready.
    """

    def __init__(self, plan: Plan, clock: Clock, fits: int, wave: int = 32, each: float = 1.0, late: float = 0.0):
        super().__init__(plan)
        self._clock, self._fits, self._wave, self._each, self._late = clock, fits, wave, each, late
        self._size = 0

    def answer(self, *arguments: Any) -> None:
        try:
            super().answer(*arguments)
        finally:
            self._clock.leave()

    def slots(self, program: Any, table: TableJob, n: int) -> tuple[Slot, ...]:
        self._clock.wait(self._late)
        self._size = self._buffers.size = size = chunk_size(n, self._fits, self._wave)[0]
        made = []
        for _ in range(min(-(-n // size), SLOTS)):
            host = table.host_chunk(size, lambda cells, dtype: np.zeros(cells, dtype))
            chunk: Any = SimpleNamespace(size=size, n_weights=0, states=0, posterior=0, log_evidence=0, rows=0)
            stream = Stream(self._clock)
            kernels: Any = SimpleNamespace(launch=lambda _, s=stream, host=host: self._launch(s, host, False))
            made.append(Slot(stream, Event(), Event(), host, chunk, kernels))
        return tuple(made)

    def _launch(self, stream: Any, host: Any, by_columns: bool) -> None:
        super()._launch(SimpleNamespace(until=0.0), host, by_columns)  # type: ignore[arg-type]
        stream.until = max(stream.until, self._clock.now) + self._each * self._size

    def _finish(self, slot: Any, first: int, last: int, table: TableJob) -> None:
        super()._finish(slot, first, last, table)
        self._clock.wait(self._clock.now + COPIED * self._each * (last - first))


@pytest.fixture(scope="module")
def plan() -> Plan:
    found: Plan = jtgpu.read(bundled.benchmark_files(["asia"])[0]).plan().plan
    return found


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.backends.wrappers.devices.MIN_ROWS", 32)


def seconds(plan: Plan, n: int, each: list[dict[str, Any]]) -> float:
    """Simulated seconds of a table of n cases on such GPUs."""
    clock, made = Clock(len(each)), []  # type: ignore[var-annotated]

    def engine(plan: Plan, **options: Any) -> Timed:
        return Timed(plan, clock, **options)

    backend = on_devices(plan, made, each, engine)
    states = a_table(plan, n)
    found = backend.run(Table.of(states, None, [1]))
    np.testing.assert_array_equal(found.log_evidence, Engine(plan).run(Table.of(states, None, [1])).log_evidence)
    assert len(made) == len(each)
    backend.close()
    return clock.now


# cases, and those of the largest chunk: tables that take a second on one GPU, and some in between
TABLES = {"link": (12_288, 4128), "munin2": (65_536, 3200), "pigs": (262_144, 12_192), "few": (20_000, 16_384)}


@pytest.mark.parametrize("n_gpus", [2, *slow(4, 8)])
@pytest.mark.parametrize("table", TABLES)
def test_equal_gpus_end_together(plan: Plan, table: str, n_gpus: int) -> None:
    n, fits = TABLES[table]
    alone, found = (seconds(plan, n, [{"fits": fits}] * k) for k in (1, n_gpus))
    assert alone / found / n_gpus >= 0.9
    assert alone <= (1.1 + COPIED) * n  # and one GPU alone wastes no time


@pytest.mark.slow
def test_waves_are_distributed_evenly(plan: Plan) -> None:
    alone, found = (seconds(plan, 500_000, [{"fits": 1 << 16, "wave": 8192}] * k) for k in (1, 4))
    assert alone / found / 4 >= 0.85  # 61 waves


def test_a_slow_gpu_and_a_late_one_are_helped(plan: Plan) -> None:
    n = 65_536
    usual: dict[str, Any] = {"fits": 800}  # three chunks are in flight: of many, not of a few
    slow = seconds(plan, n, [usual, usual, usual, usual | {"each": 2.0}])
    assert slow <= 1.25 * n / 3.5
    late = seconds(plan, n, [usual, usual, usual, usual | {"late": n / 8}])
    assert late <= 1.25 * (n + n / 8) / 4
    absent = seconds(plan, n, [usual, usual, usual, usual | {"late": float(n)}])
    assert absent <= 1.01 * n
