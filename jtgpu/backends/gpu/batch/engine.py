"""Tables of cases on one GPU: chunks that fit its memory, copies that overlap with kernels, equal cases merged."""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from ....device.context import Device, Memory
from ....errors import TableTooLarge
from ....plans.plan import Plan
from ...table import ON_DEVICE, DeviceAnswer, Table
from ...wrappers.row_queue import RowQueue
from ..host import Host
from ..kernel_choice import KernelChoice, TableEngine
from ..lower import lowered
from ..program.layout import MIN_LOG2, smallest_entries
from .buffers import SLOTS, ChunkBuffers, TableProgram
from .chunk import Slot
from .generated import GeneratedProgram, can_generate
from .on_device import DeviceJob, OnDevice
from .records import RecordProgram
from .sparsity import find_sparsity
from .table import Room, TableJob, TargetColumns, scale_weights
from .warps import WarpKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEARCH_FLOPS = 250_000  # of a propagation that takes as long as the search for equal rows takes for one row
GENERATED_FLOPS = 2_000_000  # most operations of a propagation for which kernels may be generated
A = TypeVar("A")
COPIERS = 16  # threads that copy answers out of page-locked memory
MOST_ROOMS = 8  # for which kernels of a warp a case are kept
LEAST = 8  # an eighth of a chunk that has memory enough


class RoomKernels(NamedTuple):
    """Kernels of a warp a case for one room, and their memory."""

    program: TableProgram
    buffers: ChunkBuffers
    memory: Memory  # of the records

    def close(self) -> None:
        for part in (self.buffers, self.program, self.memory):
            part.close()


class BatchEngine(TableEngine[TableProgram]):
    """A plan and a model's numbers on one GPU, for tables of cases; reuses its chunks' memory from call to call."""
    # real: {"float64", "float32"}: Type of the tables that kernels by records compute. Generated kernels scale nothing
    #     and always use float64. Answers are float64.
    # raises TableTooLarge: If the GPU has too little memory.

    _warps: WarpKernels | None = None

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device, real: str = "float64"
    ):
        super().__init__(plan, factors, device, Host(plan, factors))
        self.real = real
        self._exact: BatchEngine | None = None
        self.by_room: OrderedDict[Room, RoomKernels] = OrderedDict()  # those used last at the end
        flops = plan.cost().flops
        self._worth = SEARCH_FLOPS / max(flops, 1)  # least share of equal rows for which merging them pays
        sparsity = find_sparsity(lowered(plan), factors) if flops <= GENERATED_FLOPS else None

        def records() -> TableProgram:
            return RecordProgram(plan, self.factors, device, self._memory, self.streams[0], self.real)

        def generate(weights: bool) -> TableProgram:
            assert sparsity is not None
            return GeneratedProgram(sparsity, device, self.streams[0], weights=weights)

        generates = sparsity is not None and can_generate(sparsity)
        self.choice = KernelChoice(records, generate if generates else None)
        self._copying: list[Future[None]] = []
        self._smallest = 0.0
        if real == "float32":
            self._smallest = float(smallest_entries(self.factors).min(initial=0.0))
            if self._smallest < MIN_LOG2:
                self.real = "float64"
        self._copiers = ThreadPoolExecutor(min(COPIERS, os.cpu_count() or 1), "jtgpu-copy")
        self.streams: list[Any] = []
        self._buffers, self._device_buffers = (ChunkBuffers(device, self.streams) for _ in range(2))
        with device.active():
            self._memory = Memory(device)
            try:
                self.streams += [device.stream() for _ in range(SLOTS)]
                program = self.choice.of(scale_weights(None, 0, plan.cardinality))
                if isinstance(program, RecordProgram) and self.real == "float64":
                    self._warps = WarpKernels(program)
            except BaseException:
                self._release()
                raise

    def run(self, table: Table[A]) -> A:
        """Answer a table, as `jtgpu.backends.base.Backend.run` declares."""
        # raises TableTooLarge: If the answers, or not even 32 cases, fit the GPU's memory.
        if table.deliver is ON_DEVICE:
            return cast("A", self._run_on_device(table))
        job = self.share(table)
        self.answer(job, RowQueue(job.n))
        return cast("A", job.result())

    def _run_on_device(self, table: Table[Any]) -> DeviceAnswer:
        if self.real == "float32":
            return self._in_float64()._run_on_device(table)
        with self.using():
            with self._device_job(table) as job:
                if job.n:
                    self._run_chunks(job, RowQueue(job.n))
                answer = job.result()
            self.device_us = answer.device_us
        return answer

    def _device_job(self, table: Table[Any]) -> DeviceJob:
        targets = TargetColumns.of(self.plan, table.targets)
        with suppress(TableTooLarge):
            return DeviceJob(self._on_device, table, targets)
        self._drop_buffers()
        return DeviceJob(self._on_device, table, targets)

    @cached_property
    def _on_device(self) -> OnDevice:
        card, stream = self.plan.cardinality.astype(np.uint32), self.streams[0]
        records = (self._memory.put(x, stream) for x in (card, np.zeros(2, np.uint32)))
        return OnDevice(self.plan, self.device, stream, self.host, *records)

    def share(self, table: Table[Any]) -> TableJob:
        """A table, to be answered by this GPU and others."""
        job = TableJob.read(table, TargetColumns.of(self.plan, table.targets), self.plan.cardinality, self._worth)
        by_warps = self._warps is not None and self._warps.take(job)
        job.recompute, job.real = self._recompute if by_warps or self.real == "float32" else None, self.real
        job.host = None if self.host.is_exact(job.weights.smallest, self.real) else self.host
        return job

    def _recompute(self, table: TableJob) -> None:
        """Answer in float64 the cases in which float32 may have lost P(e), or those that are too large for a warp."""
        if self.real == "float32":
            self._in_float64().answer(table, RowQueue(table.n))
            return
        table.by_warps, before = True, self.device_us
        self.answer(table, RowQueue(table.n))
        self.device_us += before

    def _in_float64(self) -> BatchEngine:
        """The same engine in float64, made for the first case that float32 cannot answer."""
        with self.using():
            if self._exact is None:
                self._drop_buffers()  # there may be no room for both
                self._exact = BatchEngine(self.plan, self.factors, self.device)
            return self._exact

    def answer(self, table: TableJob, queue: RowQueue) -> None:
        if self.real == "float32" and self._smallest + table.weights.smallest < MIN_LOG2:
            self._in_float64().answer(table, queue)  # float32 cannot represent such weights
            return
        with self.using():
            self.device_us = 0.0
            if table.n:
                self._run_chunks(table, queue)

    def _run_chunks(self, table: TableJob, queue: RowQueue) -> None:
        lane = queue.join()  # first, since the rest may take long: a GPU that starts late still gets rows of its own
        slots = self._slots(table, queue.share)
        in_flight: deque[tuple[Slot, int, int]] = deque()
        before, n_chunks = None, 0
        try:
            while True:
                # rows are taken only when there is room for them, since another GPU may be idle
                if len(in_flight) < len(slots) and (rows := queue.take(slots[0].chunk.size, lane, not in_flight)):
                    slot = slots[n_chunks % len(slots)]
                    if not table.on_device:  # there, nothing waits for a chunk
                        in_flight.append((slot, *rows))
                    self._start(slot, table, *rows, before)
                    before, n_chunks = slot, n_chunks + 1
                elif in_flight:
                    self._finish(*in_flight[0], table)
                    in_flight.popleft()
                else:
                    break
        except BaseException:
            self._drain()
            for _, first, last in in_flight:
                queue.put_back(first, last)
            raise

    def _start(self, slot: Slot, table: TableJob, first: int, last: int, before: Slot | None) -> None:
        table.enter(slot, first, last, self.device)
        if before is not None:  # chunks share the scratch memory
            slot.stream.wait_for_event(before.stop)
        slot.start.record(slot.stream)
        (slot.kernels.queue if table.on_device else slot.kernels.launch)(last - first)
        slot.stop.record(slot.stream)
        table.leave(slot, first, last, self.device)

    def _slots(self, table: TableJob, n: int) -> tuple[Slot, ...]:
        """Memory for chunks of a table of which this GPU answers about n cases."""
        if table.room is None:
            program = self.choice.of(table.weights)
            buffers = self._device_buffers if table.on_device else self._buffers
        else:
            program, buffers, _ = self._of_room(table.room)
        if buffers.fit(program, table, n):
            return buffers.slots(program, table, n)
        if buffers is not self._buffers:  # the others keep their memory if enough is left
            with suppress(TableTooLarge):
                slots = buffers.slots(program, table, n)
                if LEAST * buffers.size >= min(n, program.most_cases):
                    return slots
        self._drop_buffers()
        return buffers.slots(program, table, n)

    def _of_room(self, room: Room) -> RoomKernels:
        assert self._warps is not None
        if room not in self.by_room:
            while len(self.by_room) >= MOST_ROOMS:
                self.by_room.popitem(last=False)[1].close()
            memory = Memory(self.device)
            try:
                program = self._warps.of_room(room, self.factors, self.device, memory, self.streams[0])
            except BaseException:
                memory.close()
                raise
            self.by_room[room] = RoomKernels(program, ChunkBuffers(self.device, self.streams), memory)
        self.by_room.move_to_end(room)
        return self.by_room[room]

    def _drain(self) -> None:
        """Wait for the work of a call that failed: the next call uses the same memory. A GPU that failed may refuse to
        be waited for."""
        wait(self._copying)
        with suppress(Exception):
            for stream in self.streams:
                stream.synchronize()

    def _finish(self, slot: Slot, first: int, last: int, table: TableJob) -> None:
        """Wait for a chunk and copy its answers out, on several threads: fresh memory is slow to touch."""
        slot.stream.synchronize()
        took = slot.stop.time_since(slot.start)
        slot.kernels.case_us = took * 1e3 / (last - first)
        self.device_us += took * 1e3
        work = table.copies(slot.host, first, last)
        if len(work) < 3:  # ln P(e) and one piece of the posteriors
            for copy in work:
                copy()
        else:
            self._copying = [self._copiers.submit(x) for x in work]
            for copied in self._copying:
                copied.result()

    def _drop_buffers(self) -> None:
        for buffers in (self._buffers, self._device_buffers, *(x.buffers for x in self.by_room.values())):
            buffers.close()

    def _release(self) -> None:
        if self._exact is not None:
            self._exact.close()
        self._copiers.shutdown()
        self._drain()
        self._drop_buffers()
        self.choice.close()
        while self.by_room:
            self.by_room.popitem()[1].close()
        self._memory.close()
        self.__dict__.pop("_on_device", None)  # which has a stream
        self.streams.clear()  # they must be destroyed while the context is current
