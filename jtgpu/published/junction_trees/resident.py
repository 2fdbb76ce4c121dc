"""The published kernels with tables that stay on the device: only evidence and posteriors are copied.

All messages of a level share their launches, since they are independent; scatterings into the same clique run in
successive rounds. The launches are the same for every case, so they are recorded once as a CUDA graph.

Memory on the device, in cells of the tables' type:
    initial | clique tables before evidence, separators of ones
    work    | the same, during a run; copied from `initial` when a run starts
    other   | the second table of every separator; new and old swap with each sweep
    scratch | partial sums of one level's marginalisations
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...device.context import Device, Launch, Memory
from ...device.graph import Graph
from ...errors import BackendUnavailable, TableTooLarge, format_bytes
from ...util.arrays import Floats
from . import host as arithmetic
from .host import Clock
from .indextables import IndexTable
from .launches import LaunchBook, Step, Task, partial_sums, scratch_cells
from .rules import Findings, Rules
from .schedule import Message, Schedule

_HOLD_NS = 3_000_000  # while this runs, the host queues a chunk of stages
_CHUNK = 24  # stages; with their events, far fewer than the launches that a stream queues before the host waits


class _Stage(NamedTuple):
    """Work of one phase on one level: launches, then messages on the CPU."""

    phase: str
    steps: list[Step]
    on_host: list[Message]


class ResidentEngine:
    """The interface of `HostEngine`, on the device; see the module."""
    # raises TableTooLarge: If the device's memory is too small; nothing stays allocated.

    def __init__(
        self,
        schedule: Schedule,
        tables: Sequence[IndexTable],
        initial: NDArray[np.floating],
        device: Device,
        rules: Rules,
    ):
        self.schedule, self.tables, self.device, self.rules = schedule, tables, device, rules
        self._real = np.dtype(rules.dtype)
        self._index_type = tables[0].index.dtype.name if tables else "uint32"
        self._n_slots = schedule.n_messages + len(schedule.isolated_cliques)
        self.stream: Any = None
        self._memory = Memory(device)
        self._graph: Graph | None = None
        self._findings: Findings | None = None
        self._book = LaunchBook(device, rules, self._index_type)
        try:
            self._prepare(initial)
        except BaseException:
            self.close()
            raise

    # Preparation -----------------------------------------------------------------------------------------------

    def _prepare(self, initial: NDArray[np.floating]) -> None:
        schedule = self.schedule
        self._clique_cells, self._separator_cells = int(schedule.clique_off[-1]), int(schedule.separator_off[-1])
        summed = [s.shape for s in schedule.posterior_source]
        starts, index_bytes = self._index_layout()
        self._allocate(self._sizes(summed, index_bytes))
        self._index_at = [self._at["index"] + start for start in starts]
        self.stream = self.device.stream()
        self._findings = Findings(self.device, schedule, self._real, self._index_type, self._clique_at)
        self._send(initial)
        self._stages = self._plan_sweeps()
        self._posterior_steps = self._plan_posteriors(summed)
        hold = self._book.hold(_HOLD_NS)
        self._book.send(self.stream)
        self._launches = [self._book.ready(s.steps) for s in self._stages]
        self._posterior_launches = self._book.ready(self._posterior_steps)
        self._hold = self._book.ready(hold)
        self._sums = self._memory.host(self._n_slots, np.float64)
        self._posteriors = self._memory.host(int(schedule.plan.posterior_ptr[-1]), self._real)

    def _sizes(self, summed: list[int], index_bytes: int) -> dict[str, int]:
        """Bytes of each allocation; `summed` are the shapes of the posteriors."""
        schedule, real = self.schedule, self._real.itemsize
        levels = [[m for r in level for m in r] for sweep in (schedule.collect, schedule.distribute) for level in sweep]
        scratch = max((self._scratch_of([m.source_shape for m in lv])[-1] for lv in levels), default=0)
        scratch = max(scratch, self._scratch_of(summed)[-1])
        widest = max([*(len(lv) for lv in levels), len(schedule.isolated_cliques), 1])
        partials = max(
            [sum(partial_sums(schedule.clique_entries[m.target]) for m in lv) for lv in levels]
            + [sum(partial_sums(schedule.clique_entries[c]) for c in schedule.isolated_cliques), widest]
        )
        return {
            "initial": (self._clique_cells + self._separator_cells) * real,
            "work": (self._clique_cells + self._separator_cells) * real,
            "other": self._separator_cells * real,
            "scratch": scratch * real,
            "posterior": int(schedule.plan.posterior_ptr[-1]) * real,
            "sums": 8 * (self._n_slots + partials),
            "index": index_bytes,
        }

    def _allocate(self, sizes: dict[str, int]) -> None:
        self.n_bytes = sum(sizes.values())
        free = self.device.free_memory()
        if self.n_bytes > free:
            raise TableTooLarge(
                f"the tables need {format_bytes(self.n_bytes)} on {self.device.name} (index tables "
                f"{format_bytes(sizes['index'])}), where {format_bytes(free)} are free; transfers='each' needs the "
                "index tables and one clique at a time",
                entries=max(self.schedule.clique_entries, default=0),
                needed=self.n_bytes,
                limit=free,
            )
        self._at = {name: self._memory.empty(size) for name, size in sizes.items()}

    def _index_layout(self) -> tuple[list[int], int]:
        starts, end = [], 0
        for table in self.tables:
            starts.append(end)
            end += -(-table.index.nbytes // 256) * 256
        return starts, end

    def _send(self, initial: NDArray[np.floating]) -> None:
        self.device.upload(self._at["initial"], initial, self.stream)
        ones = np.ones(self._separator_cells, self._real)
        if ones.size:
            self.device.upload(self._at["initial"] + self._clique_cells * self._real.itemsize, ones, self.stream)
        for table, start in zip(self.tables, self._index_at, strict=True):
            self.device.upload(start, table.index, self.stream)
        self.stream.synchronize()

    def _scratch_of(self, shapes: Sequence[int]) -> list[int]:
        """The first scratch cell of each of several simultaneous marginalisations, and at the end the cells of all."""
        starts = [0]
        for s in shapes:
            shape = self.schedule.shapes[s]
            starts.append(starts[-1] + -(-scratch_cells(shape.n, shape.m, self.rules) // 32) * 32)
        return starts

    def _clique_at(self, c: int) -> int:
        return self._at["work"] + int(self.schedule.clique_off[c]) * self._real.itemsize

    def _separator_at(self, which: int, edge: int) -> int:
        base = self._at["other"] if which else self._at["work"] + self._clique_cells * self._real.itemsize
        return base + int(self.schedule.separator_off[edge]) * self._real.itemsize

    def _task(self, message: Message, clique: int, shape_number: int, scratch: int) -> Task:
        shape = self.schedule.shapes[shape_number]
        new, old = (1, 0) if message.collect else (0, 1)
        return Task(
            self._clique_at(clique), self._index_at[shape_number], self._separator_at(new, message.edge),
            self._separator_at(old, message.edge), shape.n, shape.m, scratch,
        )  # fmt: skip

    def _plan_sweeps(self) -> list[_Stage]:
        stages: list[_Stage] = []
        for sweep in (self.schedule.collect, self.schedule.distribute):
            for rounds in sweep:
                self._plan_level(rounds, stages)
        if self.schedule.isolated_cliques:
            slots = enumerate(self.schedule.isolated_cliques, self.schedule.n_messages)
            stages.append(_Stage("normalise", self._normalise([(c, slot) for slot, c in slots]), []))
        return stages

    def _plan_level(self, rounds: list[list[Message]], stages: list[_Stage]) -> None:
        entries, threshold = self.schedule.clique_entries, self.rules.threshold
        level = [m for r in rounds for m in r]
        large = [m for m in level if entries[m.source] >= threshold]
        starts = self._scratch_of([m.source_shape for m in large])
        tasks = [
            self._task(m, m.source, m.source_shape, self._at["scratch"] + start * self._real.itemsize)
            for m, start in zip(large, starts, strict=False)
        ]
        small = [m for m in level if entries[m.source] < threshold]
        stages.append(_Stage("marginalise", self._book.marginalise(tasks), small))
        for round_ in rounds:
            large = [m for m in round_ if entries[m.target] >= threshold]
            tasks = [self._task(m, m.target, m.target_shape, 0) for m in large]
            small = [m for m in round_ if entries[m.target] < threshold]
            steps = [*self._book.divide(tasks), *self._book.multiply(tasks)]
            stages.append(_Stage("scatter", steps, small))
            stages.append(_Stage("normalise", self._normalise([(m.target, m.number) for m in large]), []))

    def _normalise(self, tables: list[tuple[int, int]]) -> list[Step]:
        """Steps that normalise cliques' tables, each with the slot of its sum; partial sums follow the slots."""
        jobs, partial = [], self._n_slots
        for c, slot in tables:
            entries = self.schedule.clique_entries[c]
            jobs.append((self._clique_at(c), entries, self._at["sums"] + 8 * slot, partial - slot))
            partial += partial_sums(entries)
        return self._book.normalise(jobs)

    def _plan_posteriors(self, summed: list[int]) -> list[Step]:
        starts = self._scratch_of(summed)
        tasks = []
        for v, source in enumerate(self.schedule.posterior_source):
            shape = self.schedule.shapes[source.shape]
            table = self._clique_at(source.clique) if source.clique >= 0 else self._separator_at(0, source.edge)
            out = self._at["posterior"] + int(self.schedule.plan.posterior_ptr[v]) * self._real.itemsize
            scratch = self._at["scratch"] + starts[v] * self._real.itemsize
            tasks.append(Task(table, self._index_at[source.shape], out, 0, shape.n, shape.m, scratch))
        return self._book.marginalise(tasks)

    # One run ---------------------------------------------------------------------------------------------------

    def load(self, vectors: Mapping[int, Floats]) -> float:
        n_bytes = (self._clique_cells + self._separator_cells) * self._real.itemsize
        self.device.copy(self._at["work"], self._at["initial"], n_bytes, self.stream)
        assert self._findings is not None
        return self._findings.multiply(vectors, self.stream)

    def propagate(self, clock: Clock | None = None) -> None:
        """See `HostEngine.propagate`; returns when the device has finished."""
        if clock is not None:
            self._timed(clock)
        elif self._graphed():
            assert self._graph is not None
            self._graph.launch(self.stream)
        else:
            for stage, launches in zip(self._stages, self._launches, strict=True):
                self._run_stage(stage, launches)
        self.device.download(self._sums, self._at["sums"], self.stream)
        self.stream.synchronize()

    def _run_stage(self, stage: _Stage, launches: list[Launch]) -> None:
        for launch in launches:
            self.device.launch(launch, self.stream)
        for message in stage.on_host:
            (self._host_marginalise if stage.phase == "marginalise" else self._host_scatter)(message)

    def _graphed(self) -> bool:
        """Whether the sweeps run as a graph; the first call records it."""
        if not self.rules.graph or any(s.on_host for s in self._stages):
            return False
        if self._graph is None:
            try:
                self._graph = self.device.capture(self.stream, self._queue_all)
            except BackendUnavailable:
                self.rules = self.rules.replaced(graph=False)  # no cuda-bindings: launch one by one
                return False
        return True

    def _queue_all(self) -> None:
        for launches in self._launches:
            for launch in launches:
                self.device.launch(launch, self.stream)

    def _timed(self, clock: Clock) -> None:
        """Measure each stage between device events; the host queues chunks ahead, so that its own gaps do not count."""
        for first in range(0, len(self._stages), _CHUNK):
            marks: list[Any] = []
            self.stream.synchronize()
            on_host = any(s.on_host for s in self._stages[first : first + _CHUNK])
            if not on_host:
                self.device.launch(self._hold[0], self.stream)
            stages = self._stages[first : first + _CHUNK]
            marks.append(self._event())
            for stage, launches in zip(stages, self._launches[first : first + _CHUNK], strict=True):
                self._run_stage(stage, launches)
                marks.append(self._event())
            marks[-1].synchronize()
            for stage, start, end in zip(stages, marks, marks[1:], strict=False):
                clock.add(stage.phase, end.time_since(start) * 1e-3)

    def _event(self) -> Any:
        event = self.device.event(timing=True)
        event.record(self.stream)
        return event

    def log_evidence(self) -> float:
        half = self.schedule.n_messages // 2
        return arithmetic.log_of_sums(np.concatenate([self._sums[:half], self._sums[2 * half : self._n_slots]]))

    def posteriors(self, targets: Sequence[int], out: Floats) -> None:
        """See `HostEngine.posteriors`; all variables are summed in the same few launches."""
        for launch in self._posterior_launches:
            self.device.launch(launch, self.stream)
        self.device.download(self._posteriors, self._at["posterior"], self.stream)
        self.stream.synchronize()
        out[:] = self._posteriors[: len(out)]

    # Messages below the threshold ------------------------------------------------------------------------------

    def _fetch(self, address: int, cells: int) -> NDArray[np.floating]:
        array = np.empty(cells, self._real)
        self.device.download(array, address, self.stream)
        self.stream.synchronize()
        return array

    def _put(self, address: int, array: NDArray[Any]) -> None:
        self.device.upload(address, array, self.stream)
        self.stream.synchronize()

    def _host_marginalise(self, m: Message) -> None:
        psi = self._fetch(self._clique_at(m.source), self.schedule.clique_entries[m.source])
        new = np.empty(self.schedule.separator_entries[m.edge], self._real)
        arithmetic.marginalise(psi, self.tables[m.source_shape].inner, new)
        self._put(self._separator_at(1 if m.collect else 0, m.edge), new)

    def _host_scatter(self, m: Message) -> None:
        cells = self.schedule.separator_entries[m.edge]
        new_at, old_at = (self._separator_at(w, m.edge) for w in ((1, 0) if m.collect else (0, 1)))
        psi = self._fetch(self._clique_at(m.target), self.schedule.clique_entries[m.target])
        new, old = self._fetch(new_at, cells), self._fetch(old_at, cells)
        arithmetic.divide(new, old)
        arithmetic.multiply(psi, self.tables[m.target_shape].inner, old)
        total = float(np.add.reduce(psi, dtype=np.float64))
        if total > 0.0 and total != 1.0:
            psi /= self._real.type(total)
        self._put(self._at["sums"] + 8 * m.number, np.array([total]))
        self._put(self._clique_at(m.target), psi)

    def close(self) -> None:
        """Free everything; inside ``device.active()``."""
        if self.stream is not None:
            self.stream.synchronize()
        if self._graph is not None:
            self._graph.close()
        self._graph = None
        self._book.close()
        if self._findings is not None:
            self._findings.close()
        self._findings = None
        self._memory.close()
