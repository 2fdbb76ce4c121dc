"""Tables of cases on the card: chunks that fit its memory, copies beside the work, equal rows answered once.

Three chunks are on their way at a time: one is copied out by the host's threads, one comes down, one is computed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Graph
from ....errors import BackendUnavailable, JtgpuError, TableTooLarge, format_bytes
from ....plans.plan import Plan
from ....util.rows import taken
from ...base import BatchResult, ColumnResult
from ...wrappers.row_queue import Deal
from ..program.layout import LEAST, smallest_entries
from ..single.levels.engine import Memory
from .cases import ColumnCases, Host, RowCases, TableCases, checked_columns
from .generated import LaneProgram, lane_candidate
from .live import live_program
from .records import GROUP, Chunk, TableProgram
from .rows import read_rows
from .shared import SharedTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BatchEngine", "Program", "chunk_size"]

Program = TableProgram | LaneProgram

MEMORY_SHARE = 0.7  # of what is free on the card
SLOTS = 3  # chunks on their way
PINNED = 144 << 20  # bytes of one chunk's answers that are page-locked at most
PIPELINE = 4  # chunks that a call is cut into at least where each is still large
LARGE = 1 << 14  # cases of such a chunk
DEAR = 200_000  # operations of a propagation from which on equal rows are always looked for
WRITTEN = 2_000_000  # operations of a propagation up to which kernels might be written for it
COPIERS = 16  # threads that copy answers out of page-locked memory


@dataclass(frozen=True)
class _Slot:
    """One of the chunks in flight: page-locked memory on the host, memory on the card, a stream."""

    stream: Any
    start: Any  # events round the kernels
    stop: Any
    host: Host
    chunk: Chunk
    graph: Graph  # of the kernels


@dataclass(frozen=True)
class _Buffers:
    """What a call needs, kept for the next one like it."""

    key: bytes  # targets, weighed variables and columns that it is laid out for
    size: int
    full: bool  # whether more cases would not have fitted
    slots: tuple[_Slot, ...]


def chunk_size(n: int, fits: int, wave: int) -> tuple[int, bool]:
    """Cases of each of the chunks that a card's n cases are cut into, and whether memory was what kept them so small.

    Kernels run over the whole of a chunk, however few cases are in it: so all chunks are of about the same size.

    Parameters
    ----------
    n : int
    fits : int
        Cases of the largest chunk that there is room for, a multiple of 32.
    wave : int
        Cases that the card answers at a time; chunks that are larger are multiples of it.
    """
    even = max(-(-n // PIPELINE), LARGE)  # several chunks, so that copies have work to hide behind
    wanted = -(-min(n, even) // GROUP) * GROUP
    unit = wave if min(fits, wanted) >= wave else GROUP
    most = min(fits, wanted) // unit * unit
    n_chunks = -(-n // most)
    return -(-n // n_chunks // unit) * unit, fits < wanted


class BatchEngine:
    """A plan and a model's numbers on one card, for tables of cases; keeps its chunks' memory from call to call.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
    device : Device
    real : {"float64", "float32"}
        What the tables of records are made of; kernels written for a network have float64 in any case, since they
        scale nothing. Answers are float64.

    Attributes
    ----------
    device_us : float
        Microseconds that the kernels of the last call took, copies left out.

    Raises
    ------
    TableTooLarge
        When not even 32 cases fit.
    """

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device, real: str = "float64"
    ):
        self.plan, self.device, self.real = plan, device, real
        self.lock = threading.Lock()
        self.device_us = 0.0
        self._open = True
        self._exact: BatchEngine | None = None
        self._buffers: _Buffers | None = None
        self._buffer_memory: Memory | None = None
        self._graphs: list[Graph] = []
        self._streams: list[Any] = []
        self._factors = list(factors)
        self._programs: dict[str, Program] = {}
        self._live = live_program(plan, factors) if plan.cost().flops <= WRITTEN else None
        self._written = self._live is not None and lane_candidate(self._live)
        self._copying: list[Future[None]] = []
        self._smallest = 0.0
        if real == "float32":
            self._smallest = float(smallest_entries(self._factors).min(initial=0.0))
            if self._smallest < LEAST:
                self.real = "float64"
        self._copiers = ThreadPoolExecutor(min(COPIERS, os.cpu_count() or 1), "jtgpu-copy")
        self._dear = plan.cost().flops >= DEAR
        with device.active():
            self._memory = Memory(device)
            try:
                self._streams = [device.stream() for _ in range(SLOTS)]
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
        return self.share_rows(states, likelihood, targets).alone(self)

    def share_rows(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None,
        targets: Sequence[int] | None,
    ) -> SharedTable[BatchResult]:
        """A table as `run` has it, to be answered by this card and others."""
        wanted = self._wanted(targets)
        rows = read_rows(states, likelihood, self.plan.cardinality, merge=self._dear)
        cases = RowCases(rows, int(self.plan.cardinality[wanted].sum()))

        def finish() -> BatchResult:
            posterior, log_evidence = cases.posterior, cases.log_evidence
            again = self._doubtful(log_evidence)
            if len(again):
                some = replace(
                    rows, states=rows.states[again], weights=rows.weights[again], log_scale=rows.log_scale[again]
                )
                part = RowCases(some, cases.n_out)
                self._precise().answer(part, wanted, Deal(part.n))
                posterior[again], log_evidence[again] = part.posterior, part.log_evidence
            impossible = np.isneginf(log_evidence)
            posterior[impossible] = 0.0
            log_evidence += rows.log_scale
            if targets is not None and len(wanted) < len(targets):  # a target that is asked for twice stands twice
                posterior = posterior[:, self._cells(wanted, targets)]
            if rows.place is not None:
                return BatchResult(taken(posterior, rows.place), log_evidence[rows.place], impossible[rows.place])
            return BatchResult(posterior, log_evidence, impossible)

        return SharedTable(cases, wanted, finish)

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        """See `jtgpu.backends.base.Backend.run_columns`."""
        return self.share_columns(variables, codes, targets).alone(self)

    def share_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None
    ) -> SharedTable[ColumnResult]:
        """A table as `run_columns` has it, to be answered by this card and others."""
        wanted = self._wanted(targets)
        with self.lock:
            if not self._open:
                raise JtgpuError("this backend is closed")
            codes = checked_columns(variables, codes, self.plan.cardinality, self._copiers.map)
        cases = ColumnCases(variables, codes, self.plan.n_variables, int(self.plan.cardinality[wanted].sum()))

        def finish() -> ColumnResult:
            posterior, impossible = cases.posterior, cases.impossible
            again = self._doubtful(cases.log_evidence)
            if len(again):
                some = np.ascontiguousarray(codes[:, again])
                part = ColumnCases(variables, some, self.plan.n_variables, cases.n_out)
                self._precise().answer(part, wanted, Deal(part.n))
                posterior[:, again], cases.log_evidence[again] = part.posterior, part.log_evidence
                impossible[again] = part.impossible
            if impossible.any():
                posterior[:, np.flatnonzero(impossible)] = 0.0
            if targets is not None and len(wanted) < len(targets):
                posterior = posterior[self._cells(wanted, targets)]
            return ColumnResult(posterior, cases.log_evidence, impossible)

        return SharedTable(cases, wanted, finish)

    def _doubtful(self, log_evidence: NDArray[np.float64]) -> NDArray[np.int64]:
        """Cases in which float32 may have lost what P(e) is made of: zero, or not what posteriors sum to."""
        if self.real == "float64":
            return np.zeros(0, np.int64)
        return np.flatnonzero(~np.isfinite(log_evidence))

    def _precise(self) -> BatchEngine:
        """The same in float64, made for the first case that float32 has no answer to."""
        with self.lock:
            if not self._open:
                raise JtgpuError("this backend is closed")
            if self._exact is None:
                with self.device.active():
                    self._drop_buffers()  # there may be no room for both
                self._exact = BatchEngine(self.plan, self._factors, self.device)
            return self._exact

    def _wanted(self, targets: Sequence[int] | None) -> list[int]:
        return list(range(self.plan.n_variables)) if targets is None else [int(v) for v in dict.fromkeys(targets)]

    def _cells(self, wanted: Sequence[int], targets: Sequence[int]) -> NDArray[np.int64]:
        """Where the answers of targets, some of them twice, stand among those that were computed."""
        card = self.plan.cardinality
        start = dict(zip(wanted, np.cumsum([0, *card[list(wanted)]]).tolist(), strict=False))
        return np.concatenate([np.arange(start[v], start[v] + card[v]) for v in targets])

    def answer(self, cases: TableCases, wanted: Sequence[int], deal: Deal) -> None:
        """See `jtgpu.backends.gpu.batch.shared.Answers`."""
        if self.real == "float32" and self._smallest + cases.smallest < LEAST:
            self._precise().answer(cases, wanted, deal)  # float32 does not hold such weights
            return
        with self.lock:
            if not self._open:
                raise JtgpuError("this backend is closed")
            self.device_us = 0.0
            if cases.n:
                with self.device.active():
                    self._run_chunks(cases, list(wanted), deal)

    def _run_chunks(self, cases: TableCases, targets: list[int], deal: Deal) -> None:
        seat = deal.seat()  # before anything that takes long: rows of a card that comes late are for it, if it comes
        program = self._program(weights=bool(cases.n_weights), smallest=cases.smallest)
        buffers = self._buffers_for(program, cases, targets, deal.share)
        waiting: deque[tuple[_Slot, int, int]] = deque()
        taken: deque[tuple[int, int]] = deque()  # rows that are not in the answers yet
        before: _Slot | None = None
        turns = cycle(buffers.slots)
        try:
            while True:
                # no more is taken than there is room for: it would lie here while another card has nothing to do
                rows = None if len(waiting) == len(buffers.slots) else deal.take(buffers.size, seat, not waiting)
                if rows is None:
                    if not waiting:
                        break
                    self._finish(*waiting.popleft(), cases)
                    taken.popleft()
                    continue
                taken.append(rows)
                slot = next(turns)
                self._send(slot, cases, *rows)
                if before is not None:  # the scratch memory is one for all chunks
                    slot.stream.wait_for_event(before.stop)
                slot.start.record(slot.stream)
                slot.graph.launch(slot.stream)
                slot.stop.record(slot.stream)
                self._fetch(slot, cases, rows[1] - rows[0])
                waiting.append((slot, *rows))
                before = slot
        except BaseException:
            self._calm_down()
            for rows in taken:
                deal.give_back(*rows)
            raise

    def _calm_down(self) -> None:
        """Wait for what a call that failed had begun: the next one uses the same memory. A card that failed has nothing
        to wait for."""
        wait(self._copying)
        with suppress(Exception):
            for stream in self._streams:
                stream.synchronize()

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
                self.plan, self._factors, self.device, self._memory, stream, self.real
            )
        return self._programs["tables"]

    @property
    def kind(self) -> str:
        """Which kernels answer cases without weights: ``"lanes"``, written for the network; ``"tables"``."""
        return next(iter(self._programs.values())).kind

    def _send(self, slot: _Slot, cases: TableCases, first: int, last: int) -> None:
        """Send a chunk's evidence up; what is left of the last group observes nothing."""
        used = -(-(last - first) // GROUP) * GROUP
        cases.fill(slot.host, first, last, slot.chunk.size if cases.width else used)
        states = slot.host.states if cases.width else slot.host.states[:used]
        if states.size:
            self.device.upload(slot.chunk.states, states, slot.stream)
        if slot.chunk.n_weights:
            self.device.upload(slot.chunk.weights, slot.host.weights[:used], slot.stream)

    def _fetch(self, slot: _Slot, cases: TableCases, n: int) -> None:
        """Have a chunk's answers come down once they are there."""
        if cases.n_out:
            posterior = slot.host.posterior if cases.width else slot.host.posterior[:n]
            self.device.download(posterior, slot.chunk.rows or slot.chunk.posterior, slot.stream)
        self.device.download(slot.host.log_evidence[:n], slot.chunk.log_evidence, slot.stream)

    def _finish(self, slot: _Slot, first: int, last: int, cases: TableCases) -> None:
        """Wait for a chunk and copy its answers out, on several threads: fresh memory is slow to touch."""
        slot.stream.synchronize()
        self.device_us += slot.stop.time_since(slot.start) * 1e3
        work = cases.copies(slot.host, first, last)
        if len(work) == 1:
            work[0]()
        else:
            self._copying = [self._copiers.submit(x) for x in work]
            for copied in self._copying:
                copied.result()

    def _buffers_for(self, program: Program, cases: TableCases, targets: list[int], n: int) -> _Buffers:
        """The last call's buffers where they fit this one, of which this card has about n cases: taking page-locked
        memory costs milliseconds."""
        layout = [id(program), cases.width, len(cases.columns), *cases.columns.tolist(), *targets]
        key, kept = np.array(layout, np.int64).tobytes() + cases.weight_row.tobytes(), self._buffers
        fits = kept is not None and kept.key == key and kept.size <= max(2 * n, GROUP)
        if kept is not None and fits and (kept.full or n <= 2 * PIPELINE * kept.size):
            return kept
        self._drop_buffers()
        self._buffer_memory = Memory(self.device)
        try:
            self._buffers = self._made(self._buffer_memory, key, program, cases, targets, n)
        except BaseException:
            self._drop_buffers()
            raise
        return self._buffers

    def _made(
        self, memory: Memory, key: bytes, program: Program, cases: TableCases, targets: list[int], n: int
    ) -> _Buffers:
        n_out, w, v = cases.n_out, cases.n_weights, self.plan.n_variables
        size, full = self._chunk(program, cases, n)
        stream = self._streams[0]
        scratch = program.scratch(memory, stream, size)
        if cases.width:  # what no column tells is never known
            state = memory.put(np.full((v, size), -1, np.int32), stream)
        else:
            state = memory.empty(4 * v * size)
        weight, weight_row = memory.empty(8 * w * size), memory.put(cases.weight_row, stream)
        columns = memory.put(cases.columns, stream)
        turned = 0 if cases.width else memory.empty(8 * n_out * size)  # answers before they are rows
        slots = []
        for lane in self._streams[: min(-(-n // size), SLOTS)]:
            chunk = Chunk(
                size, w, memory.empty(cases.state_bytes * size), memory.empty(8 * w * size), state, weight,
                turned or memory.empty(8 * n_out * size), memory.empty(8 * n_out * size) if turned else 0,
                memory.empty(8 * size), columns, len(cases.columns), cases.width,
            )  # fmt: skip
            bound = program.bind(chunk, scratch, targets, weight_row, memory, stream)
            graph = self.device.capture(lane, partial(program.queue, bound, lane))
            self._graphs.append(graph)
            start, stop = self.device.event(timing=True), self.device.event(timing=True)
            slots.append(_Slot(lane, start, stop, cases.host(size, memory.host), chunk, graph))
        return _Buffers(key, size, full, tuple(slots))

    def _drop_buffers(self) -> None:
        self._buffers = None
        while self._graphs:
            self._graphs.pop().close()
        if self._buffer_memory is not None:
            self._buffer_memory.close()
        self._buffer_memory = None

    def _chunk(self, program: Program, cases: TableCases, n: int) -> tuple[int, bool]:
        """Cases of a chunk of n: a multiple of 32 that fits the memory; whether memory was what kept it so small."""
        io = 8 * (cases.n_out + 1) + cases.state_bytes + 8 * cases.n_weights
        each = program.case_bytes + (SLOTS + 1) * io + 4 * self.plan.n_variables
        free = int(MEMORY_SHARE * self.device.free_memory())
        fits = min(free // each, program.most_cases, max(PINNED // io, GROUP)) // GROUP * GROUP
        if fits < GROUP:
            raise TableTooLarge(
                f"{GROUP} cases take {format_bytes(GROUP * each)} on the card, of which {format_bytes(free)} may be "
                "taken; run them one at a time",
                needed=GROUP * each,
                limit=free,
            )
        return chunk_size(n, fits, program.wave)

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
            if self._exact is not None:
                self._exact.close()
            self._copiers.shutdown()
            with self.device.active():
                self._calm_down()
                self._release()
