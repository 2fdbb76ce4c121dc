"""The published engine as its authors ran it: tables travel to the device and back for every message.

A *lane* is a stream with buffers for one message. A message's copies and kernels are queued on the lane of its target
clique and nothing waits but who needs the result: a CPU message waits for an event, another lane's stream for the
event of the lane before. With cuBLAS, whose asum hands its result to the host, every message waits once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device.context import Blas, Device, Launch
from ...errors import TableTooLarge, format_bytes
from .host import Clock, HostEngine, Message, Schedule
from .indextables import IndexTable
from .launches import LaunchBook, Rules, Step, Task, partial_sums, scratch_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EachEngine"]

_HOLD_NS = 150_000  # longer than the host takes to queue one message's kernels


class _Lane:
    """A stream and the device buffers of one message."""

    def __init__(self, device: Device, addresses: dict[str, int], blas: Blas | None, stream: Any):
        self.stream, self.blas = stream, blas
        self.clique = addresses["clique"]
        self.new, self.old = addresses["new"], addresses["old"]
        self.scratch, self.sums, self.index = addresses["scratch"], addresses["sums"], addresses["index"]
        self.event = device.event()
        self.holds_new_of = -1  # number of the message whose phi* lies in `new`


class EachEngine(HostEngine):
    """See the module. `initial`, `work`, `separators` and, for ``index_transfers="each"``, the index tables'
    buffer should be pinned.

    Raises
    ------
    TableTooLarge
        When the device has not the memory; nothing is left behind.
    """

    def __init__(
        self,
        schedule: Schedule,
        tables: Sequence[IndexTable],
        initial: NDArray[np.floating],
        work: NDArray[np.floating],
        separators: tuple[NDArray[np.floating], NDArray[np.floating]],
        device: Device,
        rules: Rules,
        use_blas: bool,
    ):
        super().__init__(schedule, tables, initial, work, separators)
        self.device, self.rules, self.tables = device, rules, tables
        self._real = np.dtype(rules.dtype).itemsize
        self._entries = schedule.clique_entries
        self._owned: list[Any] = []  # device memory, freed last first
        self._lanes: list[_Lane] = []
        self._book = LaunchBook(device, rules, tables[0].index.dtype.name if tables else "uint32")
        self._marginal: dict[tuple[int, int], list[Launch]] = {}
        self._scatter: dict[tuple[int, int], list[Launch]] = {}
        self._scale: dict[tuple[int, int], list[Launch]] = {}
        self.hold: Launch | None = None
        n_cliques = len(self._entries)
        self._ready: list[Any] = [None] * n_cliques  # event after which a clique's host table is whole
        self._separator_ready: list[Any] = [None] * n_cliques
        self._table_event: list[Any] = [None] * n_cliques
        self._separator_event: list[Any] = [None] * n_cliques
        self._device_sums = np.empty(0)
        try:
            self._prepare(use_blas)
        except BaseException:
            self.close()
            raise

    # Preparation -----------------------------------------------------------------------------------------------

    def _on_device(self, c: int) -> bool:
        return self._entries[c] >= self.rules.threshold

    def _prepare(self, use_blas: bool) -> None:
        schedule, threshold = self.schedule, self.rules.threshold
        messages = [m for sweep in (schedule.collect, schedule.distribute) for lv in sweep for r in lv for m in r]
        marginal = {m.source_shape for m in messages if self._on_device(m.source)}
        scattered = {m.target_shape for m in messages if self._on_device(m.target)}
        asked = {s.shape for s in schedule.posterior_source if s.entries >= threshold}
        shapes = [schedule.shapes[s] for s in sorted(marginal | scattered | asked)]
        targets: dict[int, int] = {}  # clique -> lane, in turn
        for m in messages:
            if self._on_device(m.source) or self._on_device(m.target):
                targets.setdefault(m.target, len(targets) % self.rules.streams)
        self._lane_of = targets
        n_lanes = max(min(self.rules.streams, len(targets)), 1 if asked else 0)
        index_start = self._send_index_tables(sorted(marginal | scattered | asked))
        sizes = {
            "clique": max((s.entries for s in shapes), default=0) * self._real,
            "new": max((s.n for s in shapes), default=0) * self._real,
            "old": max((s.n for s in shapes), default=0) * self._real,
            "scratch": max((scratch_cells(s.n, s.m, self.rules) for s in shapes), default=0) * self._real,
            "sums": 8 * (1 + partial_sums(max((s.entries for s in shapes), default=0))),
            "index": 0,
        }
        if self.rules.index_transfers == "each":
            sizes["index"] = max((self.tables[s].index.nbytes for s in marginal | scattered | asked), default=0)
        for _ in range(n_lanes):
            self._lanes.append(self._make_lane(sizes, use_blas))
        planned = self._plan_launches(messages, index_start, asked)
        hold = self._book.hold(_HOLD_NS)
        stream = self._lanes[0].stream if self._lanes else self.device.stream()
        self._book.send(stream)
        for ready, steps in zip((self._marginal, self._scatter, self._scale), planned, strict=True):
            ready.update((key, self._book.ready(found)) for key, found in steps.items())
        self.hold = self._book.ready(hold)[0]
        self._device_sums = self.device.pinned(len(self.sums), np.float64)
        self._posteriors = self.device.pinned(int(schedule.plan.posterior_ptr[-1]), self.rules.dtype)
        for c in range(len(self._entries)):
            self._table_event[c], self._separator_event[c] = self.device.event(), self.device.event()

    def _send_index_tables(self, numbers: list[int]) -> dict[int, int]:
        """Send index tables to stay, unless they are to travel; address of each, 0 for a traveller."""
        if self.rules.index_transfers == "each" or not numbers:
            return dict.fromkeys(numbers, 0)
        sizes = [-(-self.tables[s].index.nbytes // 256) * 256 for s in numbers]
        memory = self._alloc(sum(sizes), "the index tables")
        stream = self.device.stream()
        at, start = {}, int(memory)
        for number, size in zip(numbers, sizes, strict=True):
            self.device.upload(start, self.tables[number].index, stream)
            at[number] = start
            start += size
        stream.synchronize()
        return at

    def _alloc(self, n_bytes: int, what: str) -> Any:
        free = self.device.free_memory()
        if n_bytes > free:
            raise TableTooLarge(
                f"{what} need {format_bytes(n_bytes)} on {self.device.name}, where {format_bytes(free)} are free",
                entries=max(self._entries, default=0),
                needed=n_bytes,
                limit=free,
            )
        self._owned.append(self.device.alloc(n_bytes))
        return self._owned[-1]

    def _make_lane(self, sizes: dict[str, int], use_blas: bool) -> _Lane:
        aligned = {name: -(-size // 256) * 256 for name, size in sizes.items()}
        start = int(self._alloc(sum(aligned.values()), "the buffers of one stream"))
        addresses = {}
        for name, size in aligned.items():
            addresses[name] = start
            start += size
        stream = self.device.stream()
        return _Lane(self.device, addresses, self.device.blas(stream, self.rules.dtype) if use_blas else None, stream)

    def _plan_launches(
        self, messages: list[Message], index_start: dict[int, int], asked: set[int]
    ) -> tuple[dict[tuple[int, int], list[Step]], ...]:
        """Steps of marginalisations, scatterings and normalisations, by lane and shape (or entries)."""
        marginal: dict[tuple[int, int], list[Step]] = {}
        scatter: dict[tuple[int, int], list[Step]] = {}
        scale: dict[tuple[int, int], list[Step]] = {}

        def task(lane: int, shape: int) -> Task:
            it, found = self._lanes[lane], self.schedule.shapes[shape]
            index = index_start[shape] or it.index
            return Task(it.clique, index, it.new, it.old, found.n, found.m, it.scratch)

        for m in messages:
            lane = self._lane_of.get(m.target, -1)
            if self._on_device(m.source) and (lane, m.source_shape) not in marginal:
                marginal[lane, m.source_shape] = self._book.marginalise([task(lane, m.source_shape)])
            if self._on_device(m.target):
                if (lane, m.target_shape) not in scatter:
                    one = [task(lane, m.target_shape)]
                    scatter[lane, m.target_shape] = [*self._book.divide(one), *self._book.multiply(one)]
                entries = self._entries[m.target]
                if self._lanes[lane].blas is None and (lane, entries) not in scale:
                    it = self._lanes[lane]
                    scale[lane, entries] = self._book.normalise([(it.clique, entries, it.sums, 1)])
        for shape in sorted(asked):
            for lane in range(len(self._lanes)):
                if (lane, shape) not in marginal:
                    marginal[lane, shape] = self._book.marginalise([task(lane, shape)])
        return marginal, scatter, scale

    # One run ---------------------------------------------------------------------------------------------------

    def propagate(self, clock: Clock | None = None) -> None:
        """See `HostEngine.propagate`; returns when all tables are back on the host."""
        n = len(self._entries)
        self._ready, self._separator_ready = [None] * n, [None] * n
        self._device_sums[:] = -1.0
        super().propagate(clock)
        for lane in self._lanes:
            lane.stream.synchronize()
        told = self._device_sums >= 0.0
        self.sums[told] = self._device_sums[told]

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
        watch = _UNWATCHED if clock is None else _Watch(self, lane, clock, "marginalise")
        self._follow(lane, self._ready[message.source])
        self._send_index(lane, message.source_shape)
        self.device.upload(lane.clique, self.psi[message.source], lane.stream)
        watch.kernels()
        for launch in self._marginal[number, message.source_shape]:
            self.device.launch(launch, lane.stream)
        watch.done()
        self.device.download(new, lane.new, lane.stream)
        lane.holds_new_of = message.number
        if not self._on_device(message.target):  # else the scattering follows on the same lane
            self._separator_ready[message.edge] = self._mark(lane, self._separator_event[message.edge])
        watch.end()

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
        watch = _UNWATCHED if clock is None else _Watch(self, lane, clock, "scatter")
        self._follow(lane, self._ready[c])
        self._send_index(lane, message.target_shape)
        self.device.upload(lane.clique, self.psi[c], lane.stream)
        if lane.holds_new_of != message.number:  # it was marginalised on the CPU
            self.device.upload(lane.new, new, lane.stream)
        self.device.upload(lane.old, old, lane.stream)
        watch.kernels()
        for launch in self._scatter[number, message.target_shape]:
            self.device.launch(launch, lane.stream)
        watch.done()
        self._normalise(number, message)
        watch.back()
        self.psi[c] = self._work[c]
        self.device.download(self.psi[c], lane.clique, lane.stream)
        self._ready[c] = self._mark(lane, self._table_event[c])
        watch.end()

    def _normalise(self, number: int, message: Message) -> None:
        lane, entries = self._lanes[number], self._entries[message.target]
        if lane.blas is not None:
            self.sums[message.number] = lane.blas.normalise(lane.clique, entries)
            return
        for launch in self._scale[number, entries]:
            self.device.launch(launch, lane.stream)
        at = message.number
        self.device.download(self._device_sums[at : at + 1], lane.sums, lane.stream)

    def _send_index(self, lane: _Lane, shape: int) -> None:
        if self.rules.index_transfers == "each":
            self.device.upload(lane.index, self.tables[shape].index, lane.stream)

    def _mark(self, lane: _Lane, event: Any) -> tuple[_Lane, Any]:
        event.record(lane.stream)
        return lane, event

    def _follow(self, lane: _Lane, mark: tuple[_Lane, Any] | None) -> None:
        if mark is not None and mark[0] is not lane:
            lane.stream.wait_for_event(mark[1])

    def posteriors(self, targets: Sequence[int], out: NDArray[np.float64]) -> None:
        """See `HostEngine.posteriors`; sums over large tables run on the device, a table sent once for all of them."""
        schedule, ptr = self.schedule, self.schedule.plan.posterior_ptr
        large = [v for v in targets if schedule.posterior_source[v].entries >= self.rules.threshold]
        large.sort(key=lambda v: (schedule.posterior_source[v].clique, schedule.posterior_source[v].edge, v))
        held, number = (-1, -1), -1
        for v in large:
            source = schedule.posterior_source[v]
            if (source.clique, source.edge) != held:
                held, number = (source.clique, source.edge), (number + 1) % len(self._lanes)
                self.device.upload(self._lanes[number].clique, self.posterior_table(v), self._lanes[number].stream)
            lane = self._lanes[number]
            lane.holds_new_of = -1
            self._send_index(lane, source.shape)
            for launch in self._marginal[number, source.shape]:
                self.device.launch(launch, lane.stream)
            self.device.download(self._posteriors[ptr[v] : ptr[v + 1]], lane.new, lane.stream)
        on_device = set(large)
        super().posteriors([v for v in targets if v not in on_device], out)
        for lane in self._lanes:
            lane.stream.synchronize()
        for v in large:
            out[ptr[v] : ptr[v + 1]] = self._posteriors[ptr[v] : ptr[v + 1]]

    def close(self) -> None:
        """Free device memory and pinned buffers; inside ``device.active()``."""
        for lane in self._lanes:
            lane.stream.synchronize()
            if lane.blas is not None:
                lane.blas.close()
        self._lanes.clear()
        self._book.close()
        while self._owned:
            self._owned.pop().free()
        for name in ("_device_sums", "_posteriors"):
            array = getattr(self, name, None)
            if array is not None and array.base is not None:
                self.device.unpin(array)
            setattr(self, name, None)
        self._table_event.clear()
        self._separator_event.clear()
        self._ready, self._separator_ready = [], []


class _Unwatched:
    """Stands in for a `_Watch` where nothing is measured."""

    def kernels(self) -> None:
        """Copies to the device are queued; kernels follow."""

    def done(self) -> None:
        """The phase's kernels are queued; normalisation or copies back follow."""

    def back(self) -> None:
        """Normalisation is queued; copies back follow."""

    def end(self) -> None:
        """All is queued."""


_UNWATCHED = _Unwatched()


class _Watch(_Unwatched):
    """Times one message's phase with device events.

    Without transfers, a kernel that holds the stream lets the host queue all kernels before the first one starts.
    """

    def __init__(self, engine: EachEngine, lane: _Lane, clock: Clock, phase: str):
        self.engine, self.lane, self.clock, self.phase = engine, lane, clock, phase
        self.events: list[Any] = []
        lane.stream.synchronize()
        self._record()

    def _record(self) -> None:
        event = self.engine.device.event(timing=True)
        event.record(self.lane.stream)
        self.events.append(event)

    def kernels(self) -> None:
        """See `_Unwatched`."""
        if self.clock.kernels_only and self.engine.hold is not None:
            self.engine.device.launch(self.engine.hold, self.lane.stream)
        self._record()

    def done(self) -> None:
        """See `_Unwatched`."""
        self._record()

    def back(self) -> None:
        """See `_Unwatched`."""
        self._record()

    def end(self) -> None:
        """See `_Unwatched`; waits, and tells the clock."""
        self._record()
        self.events[-1].synchronize()
        first, begin, done, *rest, last = self.events
        kernels = done.time_since(begin) * 1e-3
        if rest:
            self.clock.add("normalise", rest[0].time_since(done) * 1e-3)
        back = last.time_since(rest[0] if rest else done) * 1e-3
        there = begin.time_since(first) * 1e-3
        self.clock.add(self.phase, kernels if self.clock.kernels_only else there + kernels + back)


def _wait(marks: list[Any], at: int) -> None:
    """Wait until a host table is whole."""
    if marks[at] is not None:
        marks[at][1].synchronize()
        marks[at] = None
