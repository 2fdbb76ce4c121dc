"""The published engine as its authors ran it: every message copies its tables to the device and back.

A *lane* is a stream with buffers for one message. A message's copies and kernels are queued on the lane of its target
clique, and only consumers of a result wait: a message on the CPU for an event, another lane's stream for the event of
the first lane. With cuBLAS, whose asum returns its result to the host, every message waits once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...device.context import Device, Launch, Memory
from ...device.nvcc import Blas
from ...errors import TableTooLarge, format_bytes
from ...util.arrays import Floats
from .host import Clock, HostEngine
from .indextables import IndexTable
from .launches import LaunchBook, Step, Task, partial_sums, scratch_cells
from .rules import Rules
from .schedule import Message, Schedule
from .timetable import NoTimer, PhaseTimer

_HOLD_NS = 150_000  # longer than the host takes to queue one message's kernels
_UNTIMED = NoTimer()


class HostTables(NamedTuple):
    """The host's tables of a run; page-locked, so that copies are asynchronous."""

    tables: list[IndexTable]  # list of IndexTable: Page-locked only with ``index_transfers="each"``
    # initial, work: (clique_off[-1],) float: Clique tables before evidence and during a run
    initial: NDArray[np.floating]
    work: NDArray[np.floating]
    separators: tuple[NDArray[np.floating], NDArray[np.floating]]  # pair of (separator_off[-1],) float arrays


class _Lane:
    """A stream and the device buffers of one message."""

    def __init__(self, device: Device, addresses: dict[str, int], blas: Blas | None, stream: Any):
        self.stream, self.blas = stream, blas
        self.clique = addresses["clique"]
        self.new, self.old = addresses["new"], addresses["old"]
        self.scratch, self.sums, self.index = addresses["scratch"], addresses["sums"], addresses["index"]
        self.event = device.event()
        self.new_holds = -1  # number of the message whose phi* is in `new`


_Key = tuple[int, int]  # a lane, and a shape's number or a table's entries


class _Steps(NamedTuple):
    """Launches of one message by lane and shape; of normalisations by lane and entries."""

    marginalise: dict[_Key, list[Step]]
    scatter: dict[_Key, list[Step]]
    normalise: dict[_Key, list[Step]]


class StreamedEngine(HostEngine):
    """`HostEngine` with large tables processed by the device; see the module."""
    # raises TableTooLarge: If the device's memory is too small; nothing stays allocated.

    def __init__(self, schedule: Schedule, host: HostTables, device: Device, rules: Rules, use_blas: bool):
        super().__init__(schedule, host.tables, host.initial, host.work, host.separators)
        self.device, self.rules, self.tables = device, rules, host.tables
        self._real = np.dtype(rules.dtype).itemsize
        self._entries = schedule.clique_entries
        self._memory = Memory(device)
        self._lanes: list[_Lane] = []
        self._book = LaunchBook(device, rules, host.tables[0].index.dtype.name if host.tables else "uint32")
        self._marginalise: dict[_Key, list[Launch]] = {}
        self._scatter: dict[_Key, list[Launch]] = {}
        self._scale: dict[_Key, list[Launch]] = {}
        n_cliques = len(self._entries)
        self._ready: list[Any] = [None] * n_cliques  # event after which a clique's host table is complete
        self._separator_ready: list[Any] = [None] * n_cliques
        self._table_event: list[Any] = []
        self._separator_event: list[Any] = []
        self._device_sums: Floats | None = None
        self._posteriors: NDArray[Any] | None = None
        try:
            self._prepare(use_blas)
        except BaseException:
            self.close()
            raise

    # Preparation -----------------------------------------------------------------------------------------------

    def _on_device(self, c: int) -> bool:
        return self._entries[c] >= self.rules.threshold

    def _prepare(self, use_blas: bool) -> None:
        messages = self.schedule.messages()
        used = {m.source_shape for m in messages if self._on_device(m.source)}
        used |= {m.target_shape for m in messages if self._on_device(m.target)}
        summed = {s.shape for s in self.schedule.posterior_source if s.entries >= self.rules.threshold}
        used |= summed
        self._lane_of: dict[int, int] = {}  # of each target clique, round robin
        for m in messages:
            if self._on_device(m.source) or self._on_device(m.target):
                self._lane_of.setdefault(m.target, len(self._lane_of) % self.rules.streams)
        index_start = self._send_index_tables(sorted(used))
        sizes = self._buffer_sizes(used)
        for _ in range(max(min(self.rules.streams, len(self._lane_of)), 1 if summed else 0)):
            self._lanes.append(self._make_lane(sizes, use_blas))
        planned = self._plan_launches(messages, index_start, summed)
        hold = self._book.hold(_HOLD_NS)
        self._book.send(self._lanes[0].stream if self._lanes else self.device.stream())
        for ready, steps in zip((self._marginalise, self._scatter, self._scale), planned, strict=True):
            ready.update((key, self._book.ready(written)) for key, written in steps.items())
        self.hold = self._book.ready(hold)[0]
        self._device_sums = self._memory.host(len(self.sums), np.float64)
        self._posteriors = self._memory.host(int(self.schedule.plan.posterior_ptr[-1]), self.rules.dtype)
        for _ in self._entries:
            self._table_event.append(self.device.event())
            self._separator_event.append(self.device.event())

    def _buffer_sizes(self, used: set[int]) -> dict[str, int]:
        """Bytes of each buffer of a lane, for the largest of the shapes `used`."""
        shapes = [self.schedule.shapes[s] for s in sorted(used)]
        travels = self.rules.index_transfers == "each"
        return {
            "clique": max((s.entries for s in shapes), default=0) * self._real,
            "new": max((s.n for s in shapes), default=0) * self._real,
            "old": max((s.n for s in shapes), default=0) * self._real,
            "scratch": max((scratch_cells(s.n, s.m, self.rules) for s in shapes), default=0) * self._real,
            "sums": 8 * (1 + partial_sums(max((s.entries for s in shapes), default=0))),
            "index": max((self.tables[s].index.nbytes for s in used), default=0) if travels else 0,
        }

    def _send_index_tables(self, numbers: list[int]) -> dict[int, int]:
        """Copy index tables to the device; the address of each, 0 if every message copies its own."""
        if self.rules.index_transfers == "each" or not numbers:
            return dict.fromkeys(numbers, 0)
        sizes = [-(-self.tables[s].index.nbytes // 256) * 256 for s in numbers]
        start = self._alloc(sum(sizes), "the index tables")
        stream, at = self.device.stream(), {}
        for number, size in zip(numbers, sizes, strict=True):
            self.device.upload(start, self.tables[number].index, stream)
            at[number] = start
            start += size
        stream.synchronize()
        return at

    def _alloc(self, n_bytes: int, what: str) -> int:
        free = self.device.free_memory()
        if n_bytes > free:
            raise TableTooLarge(
                f"{what} need {format_bytes(n_bytes)} on {self.device.name}, where {format_bytes(free)} are free",
                entries=max(self._entries, default=0),
                needed=n_bytes,
                limit=free,
            )
        return self._memory.empty(n_bytes)

    def _make_lane(self, sizes: dict[str, int], use_blas: bool) -> _Lane:
        aligned = {name: -(-size // 256) * 256 for name, size in sizes.items()}
        start = self._alloc(sum(aligned.values()), "the buffers of one stream")
        addresses = {}
        for name, size in aligned.items():
            addresses[name] = start
            start += size
        stream = self.device.stream()
        return _Lane(self.device, addresses, self.device.blas(stream, self.rules.dtype) if use_blas else None, stream)

    def _plan_launches(self, messages: list[Message], index_start: dict[int, int], summed: set[int]) -> _Steps:
        """Add every launch to the book; `summed` are the shapes of posteriors."""
        steps = _Steps({}, {}, {})

        def task(lane: int, shape: int) -> Task:
            it, size = self._lanes[lane], self.schedule.shapes[shape]
            index = index_start[shape] or it.index
            return Task(it.clique, index, it.new, it.old, size.n, size.m, it.scratch)

        for m in messages:
            lane = self._lane_of.get(m.target, -1)
            if self._on_device(m.source) and (lane, m.source_shape) not in steps.marginalise:
                steps.marginalise[lane, m.source_shape] = self._book.marginalise([task(lane, m.source_shape)])
            if self._on_device(m.target):
                if (lane, m.target_shape) not in steps.scatter:
                    one = [task(lane, m.target_shape)]
                    steps.scatter[lane, m.target_shape] = [*self._book.divide(one), *self._book.multiply(one)]
                entries = self._entries[m.target]
                if self._lanes[lane].blas is None and (lane, entries) not in steps.normalise:
                    it = self._lanes[lane]
                    steps.normalise[lane, entries] = self._book.normalise([(it.clique, entries, it.sums, 1)])
        for shape in sorted(summed):
            for lane in range(len(self._lanes)):
                if (lane, shape) not in steps.marginalise:
                    steps.marginalise[lane, shape] = self._book.marginalise([task(lane, shape)])
        return steps

    # One run ---------------------------------------------------------------------------------------------------

    def propagate(self, clock: Clock | None = None) -> None:
        """See `HostEngine.propagate`; returns when all tables are back on the host."""
        n = len(self._entries)
        self._ready, self._separator_ready = [None] * n, [None] * n
        assert self._device_sums is not None
        self._device_sums[:] = -1.0
        super().propagate(clock)
        for lane in self._lanes:
            lane.stream.synchronize()
        written = self._device_sums >= 0.0
        self.sums[written] = self._device_sums[written]

    def marginalise(self, message: Message, clock: Clock | None = None) -> None:
        """See `HostEngine.marginalise`; on the device from the threshold on."""
        if not self._on_device(message.source):
            _wait(self._ready, message.source)
            super().marginalise(message, clock)
            self._separator_ready[message.edge] = None
            return
        number = self._lane_of[message.target]
        lane = self._lanes[number]
        new = self.separator_pair(message)[0]
        timer = self._timer(lane, clock, "marginalise")
        self._follow(lane, self._ready[message.source])
        self._send_index(lane, message.source_shape)
        self.device.upload(lane.clique, self.psi[message.source], lane.stream)
        timer.kernels()
        for launch in self._marginalise[number, message.source_shape]:
            self.device.launch(launch, lane.stream)
        timer.done()
        self.device.download(new, lane.new, lane.stream)
        lane.new_holds = message.number
        if not self._on_device(message.target):  # otherwise the scattering follows on the same lane
            self._separator_ready[message.edge] = self._mark(lane, self._separator_event[message.edge])
        timer.end()

    def scatter(self, message: Message, clock: Clock | None = None) -> None:
        """See `HostEngine.scatter`; on the device from the threshold on."""
        c = message.target
        if not self._on_device(c):
            _wait(self._separator_ready, message.edge)
            _wait(self._ready, c)
            super().scatter(message, clock)
            return
        number = self._lane_of[c]
        lane = self._lanes[number]
        new, old = self.separator_pair(message)
        timer = self._timer(lane, clock, "scatter")
        self._follow(lane, self._ready[c])
        self._send_index(lane, message.target_shape)
        self.device.upload(lane.clique, self.psi[c], lane.stream)
        if lane.new_holds != message.number:  # it was marginalised on the CPU
            self.device.upload(lane.new, new, lane.stream)
        self.device.upload(lane.old, old, lane.stream)
        timer.kernels()
        for launch in self._scatter[number, message.target_shape]:
            self.device.launch(launch, lane.stream)
        timer.done()
        self._normalise_on_device(number, message)
        timer.back()
        self.psi[c] = self._work[c]
        self.device.download(self.psi[c], lane.clique, lane.stream)
        self._ready[c] = self._mark(lane, self._table_event[c])
        timer.end()

    def _timer(self, lane: _Lane, clock: Clock | None, phase: str) -> NoTimer:
        return _UNTIMED if clock is None else PhaseTimer(self.device, lane.stream, clock, phase, self.hold)

    def _normalise_on_device(self, number: int, message: Message) -> None:
        lane, entries = self._lanes[number], self._entries[message.target]
        if lane.blas is not None:
            self.sums[message.number] = lane.blas.normalise(lane.clique, entries)
            return
        for launch in self._scale[number, entries]:
            self.device.launch(launch, lane.stream)
        at = message.number
        assert self._device_sums is not None
        self.device.download(self._device_sums[at : at + 1], lane.sums, lane.stream)

    def _send_index(self, lane: _Lane, shape: int) -> None:
        if self.rules.index_transfers == "each":
            self.device.upload(lane.index, self.tables[shape].index, lane.stream)

    def _mark(self, lane: _Lane, event: Any) -> tuple[_Lane, Any]:
        event.record(lane.stream)
        return lane, event

    def _follow(self, lane: _Lane, mark: tuple[_Lane, Any] | None) -> None:
        """Let a lane's stream wait for another lane's event."""
        if mark is not None and mark[0] is not lane:
            lane.stream.wait_for_event(mark[1])

    def posteriors(self, targets: Sequence[int], out: Floats) -> None:
        """See `HostEngine.posteriors`; the device sums large tables, each copied once for all its variables."""
        schedule, ptr = self.schedule, self.schedule.plan.posterior_ptr
        large = [v for v in targets if schedule.posterior_source[v].entries >= self.rules.threshold]
        large.sort(key=lambda v: (schedule.posterior_source[v].clique, schedule.posterior_source[v].edge, v))
        posteriors = self._posteriors
        assert posteriors is not None
        present, number = (-1, -1), -1
        for v in large:
            source = schedule.posterior_source[v]
            if (source.clique, source.edge) != present:
                present, number = (source.clique, source.edge), (number + 1) % len(self._lanes)
                self.device.upload(self._lanes[number].clique, self.posterior_table(v), self._lanes[number].stream)
            lane = self._lanes[number]
            lane.new_holds = -1
            self._send_index(lane, source.shape)
            for launch in self._marginalise[number, source.shape]:
                self.device.launch(launch, lane.stream)
            self.device.download(posteriors[ptr[v] : ptr[v + 1]], lane.new, lane.stream)
        on_device = set(large)
        super().posteriors([v for v in targets if v not in on_device], out)
        for lane in self._lanes:
            lane.stream.synchronize()
        for v in large:
            out[ptr[v] : ptr[v + 1]] = posteriors[ptr[v] : ptr[v + 1]]

    def close(self) -> None:
        """Free device memory and page-locked buffers; inside ``device.active()``."""
        for lane in self._lanes:
            lane.stream.synchronize()
            if lane.blas is not None:
                lane.blas.close()
        self._lanes.clear()
        self._book.close()
        self._memory.close()
        self._device_sums = self._posteriors = None
        self._table_event.clear()
        self._separator_event.clear()
        self._ready, self._separator_ready = [], []


def _wait(marks: list[Any], at: int) -> None:
    """Wait until a host table is complete."""
    if marks[at] is not None:
        marks[at][1].synchronize()
        marks[at] = None
