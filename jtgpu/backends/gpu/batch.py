"""Tables of cases on the card: chunks that fit its memory, copies beside the work, equal rows answered once."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendUnavailable, JtgpuError, TableTooLarge, format_bytes
from ...plan import Plan
from ..base import BatchResult
from ..device import Device, Graph
from .batch_lane import LaneProgram, lane_candidate
from .batch_live import live_program
from .batch_rows import Rows, read_rows
from .batch_tables import GROUP, Chunk, TableProgram
from .engine import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BatchEngine", "Program"]

Program = TableProgram | LaneProgram

MEMORY_SHARE = 0.7  # of what is free on the card
PINNED = 256 << 20  # bytes of one chunk's answers that are page-locked at most
PIPELINE = 4  # chunks that a call is cut into at least where each is still large
LARGE = 1 << 14  # cases of such a chunk
DEAR = 200_000  # operations of a propagation from which on equal rows are always looked for
WRITTEN = 2_000_000  # operations of a propagation up to which kernels might be written for it
COPIERS = 8  # threads that copy answers out of page-locked memory
COPY = 1 << 21  # bytes that one of them takes at a time


@dataclass(frozen=True)
class _Slot:
    """One of two chunks in flight: page-locked memory on the host, memory on the card, a stream."""

    stream: Any
    start: Any  # events round the kernels
    stop: Any
    states: NDArray[np.int32]  # (size, V)
    weights: NDArray[np.float64]  # (size, W)
    posterior: NDArray[np.float64]  # (size, n_out)
    log_evidence: NDArray[np.float64]  # (size,)
    chunk: Chunk
    graph: Graph  # of the kernels


@dataclass(frozen=True)
class _Buffers:
    """What a call needs, kept for the next one like it."""

    key: bytes  # targets and weighed variables that it is laid out for
    size: int
    full: bool  # whether more cases would not have fitted
    slots: tuple[_Slot, ...]


class BatchEngine:
    """A plan and a model's numbers on one card, for tables of cases; keeps its chunks' memory from call to call.

    Attributes
    ----------
    device_us : float
        Microseconds that the kernels of the last call took, copies left out.

    Raises
    ------
    TableTooLarge
        When not even 32 cases fit.
    """

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device):
        self.plan, self.device = plan, device
        self.lock = threading.Lock()
        self.device_us = 0.0
        self._open = True
        self._buffers: _Buffers | None = None
        self._buffer_memory: Memory | None = None
        self._graphs: list[Graph] = []
        self._streams: list[Any] = []
        self._factors = list(factors)
        self._programs: dict[str, Program] = {}
        self._live = live_program(plan, factors) if plan.cost().flops <= WRITTEN else None
        self._written = self._live is not None and lane_candidate(self._live)
        self._copiers = ThreadPoolExecutor(min(COPIERS, os.cpu_count() or 1), "jtgpu-copy")
        self._dear = plan.cost().flops >= DEAR
        with device.active():
            self._memory = Memory(device)
            try:
                self._streams = [device.stream(), device.stream()]
                self._program(weights=False, smallest=0.0)
            except BaseException:
                self._copiers.shutdown()
                self._release()
                raise

    def run(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`.

        Raises
        ------
        EvidenceError
            For weights of a wrong shape, negative or not finite.
        TableTooLarge
            When not even 32 cases fit the card.
        """
        wanted = list(range(self.plan.n_variables)) if targets is None else [int(v) for v in dict.fromkeys(targets)]
        rows = read_rows(states, likelihood, self.plan.cardinality, merge=self._dear)
        n, n_out = len(rows.states), int(self.plan.cardinality[wanted].sum())
        posterior, log_evidence = np.empty((n, n_out)), np.empty(n)
        with self.lock:
            if not self._open:
                raise JtgpuError("this backend is closed")
            self.device_us = 0.0
            if n:
                with self.device.active():
                    self._run_chunks(rows, wanted, posterior, log_evidence)
        impossible = np.isneginf(log_evidence)
        posterior[impossible] = 0.0
        log_evidence += rows.log_scale
        if targets is not None and len(wanted) < len(targets):  # a target that is asked for twice stands twice
            start = dict(zip(wanted, np.cumsum([0, *self.plan.cardinality[wanted]]).tolist(), strict=False))
            columns = [np.arange(start[v], start[v] + self.plan.cardinality[v]) for v in targets]
            posterior = posterior[:, np.concatenate(columns)]
        if rows.place is not None:
            return BatchResult(posterior[rows.place], log_evidence[rows.place], impossible[rows.place])
        return BatchResult(posterior, log_evidence, impossible)

    def _run_chunks(
        self, rows: Rows, targets: list[int], posterior: NDArray[np.float64], log_evidence: NDArray[np.float64]
    ) -> None:
        program = self._program(weights=bool(rows.weights.shape[1]), smallest=rows.smallest)
        buffers = self._buffers_for(program, rows, targets, posterior.shape[1])
        size = buffers.size
        waiting: list[tuple[_Slot, int, int]] = []
        before: _Slot | None = None
        for number, first in enumerate(range(0, len(rows.states), size)):
            slot = buffers.slots[number % len(buffers.slots)]
            if len(waiting) == len(buffers.slots):
                self._finish(*waiting.pop(0), posterior, log_evidence)
            last = min(first + size, len(rows.states))
            self._fill(slot, rows, first, last)
            if before is not None:  # the scratch memory is one for all chunks
                slot.stream.wait_for_event(before.stop)
            slot.start.record(slot.stream)
            slot.graph.launch(slot.stream)
            slot.stop.record(slot.stream)
            n = last - first
            if posterior.shape[1]:
                self.device.download(slot.posterior[:n], slot.chunk.posterior, slot.stream)
            self.device.download(slot.log_evidence[:n], slot.chunk.log_evidence, slot.stream)
            waiting.append((slot, first, last))
            before = slot
        for done in waiting:
            self._finish(*done, posterior, log_evidence)

    def _program(self, *, weights: bool, smallest: float) -> Program:
        """The kernels for a call: those written for the network where there are such and numbers stay in range."""
        name = "weighed" if weights else "plain"
        stream = self._streams[0]
        if self._written and self._live is not None and name not in self._programs:
            try:
                self._programs[name] = LaneProgram(
                    self.plan, self._live, self.device, self._memory, stream, weights=weights
                )
            except BackendUnavailable:  # no compiler: perhaps the others lie in the cache
                self._written = False
        found = self._programs.get(name)
        if found is not None and found.takes(smallest):
            return found
        if "tables" not in self._programs:
            self._programs["tables"] = TableProgram(
                self.plan, self._factors, self.device, self._memory, stream
            )
        return self._programs["tables"]

    @property
    def kind(self) -> str:
        """Which kernels answer cases without weights: ``"lanes"``, written for the network; ``"tables"``."""
        return next(iter(self._programs.values())).kind

    def _fill(self, slot: _Slot, rows: Rows, first: int, last: int) -> None:
        """Send a chunk's evidence up; what is left of the last group observes nothing."""
        n = last - first
        used = -(-n // GROUP) * GROUP
        slot.states[:n], slot.states[n:used] = rows.states[first:last], -1
        self.device.upload(slot.chunk.states, slot.states[:used], slot.stream)
        if slot.chunk.n_weights:
            slot.weights[:n], slot.weights[n:used] = rows.weights[first:last], 1.0
            self.device.upload(slot.chunk.weights, slot.weights[:used], slot.stream)

    def _finish(
        self, slot: _Slot, first: int, last: int, posterior: NDArray[np.float64], log_evidence: NDArray[np.float64]
    ) -> None:
        """Wait for a chunk and copy its answers out, on several threads: fresh memory is slow to touch."""
        slot.stream.synchronize()
        self.device_us += slot.stop.time_since(slot.start) * 1e3
        n = last - first
        log_evidence[first:last] = slot.log_evidence[:n]
        step = max(COPY // max(8 * posterior.shape[1], 1), 1)

        def copy(at: int) -> None:
            end = min(at + step, n)
            posterior[first + at : first + end] = slot.posterior[at:end]

        if n <= step:
            copy(0)
        else:
            list(self._copiers.map(copy, range(0, n, step)))

    def _buffers_for(self, program: Program, rows: Rows, targets: list[int], n_out: int) -> _Buffers:
        """The last call's buffers where they fit this one: taking page-locked memory costs milliseconds."""
        key = np.array([id(program), *targets], np.int64).tobytes() + rows.weight_row.tobytes()
        kept, n = self._buffers, len(rows.states)
        fits = kept is not None and kept.key == key and kept.size <= max(2 * n, GROUP)
        if kept is not None and fits and (kept.full or n <= PIPELINE * kept.size):
            return kept
        self._drop_buffers()
        self._buffer_memory = Memory(self.device)
        try:
            self._buffers = self._made(self._buffer_memory, key, program, rows, targets, n_out)
        except BaseException:
            self._drop_buffers()
            raise
        return self._buffers

    def _made(
        self, memory: Memory, key: bytes, program: Program, rows: Rows, targets: list[int], n_out: int
    ) -> _Buffers:
        n = len(rows.states)
        size, full = self._chunk(program, n, n_out, rows.weights.shape[1])
        stream, v, w = self._streams[0], self.plan.n_variables, rows.weights.shape[1]
        scratch = program.scratch(memory, stream, size)
        state, weight = memory.empty(4 * v * size), memory.empty(8 * w * size)
        weight_row = memory.put(rows.weight_row, stream)
        slots = []
        for lane in self._streams[: 1 if size >= n else 2]:
            chunk = Chunk(
                size, w, memory.empty(4 * v * size), memory.empty(8 * w * size), state, weight,
                memory.empty(8 * n_out * size), memory.empty(8 * size),
            )  # fmt: skip
            bound = program.bind(chunk, scratch, targets, weight_row, memory, stream)
            graph = self.device.capture(lane, partial(program.queue, bound, lane))
            self._graphs.append(graph)
            slots.append(
                _Slot(
                    stream=lane,
                    start=self.device.event(timing=True),
                    stop=self.device.event(timing=True),
                    states=_table(memory, size, v, np.int32),
                    weights=_table(memory, size, w, np.float64),
                    posterior=_table(memory, size, n_out, np.float64),
                    log_evidence=memory.host(size, np.float64)[:size],
                    chunk=chunk,
                    graph=graph,
                )
            )
        return _Buffers(key, size, full, tuple(slots))

    def _drop_buffers(self) -> None:
        self._buffers = None
        while self._graphs:
            self._graphs.pop().close()
        if self._buffer_memory is not None:
            self._buffer_memory.close()
        self._buffer_memory = None

    def _chunk(self, program: Program, n: int, n_out: int, n_weights: int) -> tuple[int, bool]:
        """Cases of a chunk: a multiple of 32 that fits the memory; whether memory was what kept it so small."""
        io = 8 * (n_out + 1) + 8 * self.plan.n_variables + 16 * n_weights
        each = program.case_bytes + 2 * io
        free = int(MEMORY_SHARE * self.device.free_memory())
        fits = min(free // each, program.most_cases, max(PINNED // io, GROUP)) // GROUP * GROUP
        if fits < GROUP:
            raise TableTooLarge(
                f"{GROUP} cases take {format_bytes(GROUP * each)} on the card, of which {format_bytes(free)} may be "
                "taken; run them one at a time",
                needed=GROUP * each,
                limit=free,
            )
        even = max(-(-n // PIPELINE), LARGE)  # several chunks, so that copies have work to hide behind
        wanted = -(-min(n, even) // GROUP) * GROUP
        return min(fits, wanted), fits < wanted

    def _release(self) -> None:
        self._drop_buffers()
        for program in self._programs.values():
            program.close()
        self._memory.close()
        self._programs = {}
        self._streams = []  # their end must come while the context is current

    def close(self) -> None:
        """Give the card's memory back; may be called twice."""
        with self.lock:
            if not self._open:
                return
            self._open = False
            self._copiers.shutdown()
            with self.device.active():
                for stream in self._streams:
                    stream.synchronize()
                self._release()


def _table(memory: Memory, rows: int, columns: int, dtype: Any) -> NDArray[Any]:
    """Page-locked (rows, columns)."""
    return memory.host(rows * columns, dtype)[: rows * columns].reshape(rows, columns)
