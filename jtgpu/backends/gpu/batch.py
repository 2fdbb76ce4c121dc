"""Tables of cases: a lane a case, in chunks that fit the card."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import JtgpuError, TableTooLarge, format_bytes
from ...plan import Plan
from ..device import Device
from .driver import Arguments, Kernels
from .engine import Memory
from .records import ANSWER, CASE_FACTOR, OP, SLOT
from .schedule import Schedule, load_factors, make_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BatchEngine", "BatchLayout", "BatchResult", "batch_layout"]

THREADS = 256
GROUP = 32  # cases of a warp
MOST_CASES = 1 << 14  # of a chunk
MEMORY_SHARE = 0.7  # of what is free
MOST_BLOCKS = 2**31 - 1


@dataclass(frozen=True)
class BatchResult:
    """Answers to B cases."""

    posterior: NDArray[np.float64]  # (B, sum of the targets' cardinalities); zeros for an impossible case
    log_evidence: NDArray[np.float64]  # (B,) natural logarithm of P(e); -inf for an impossible case
    impossible: NDArray[np.bool_]  # (B,)


@dataclass(frozen=True)
class BatchLayout:
    """The schedule of a batch, with tables renumbered: only what differs between cases has cells for every case."""

    schedule: Schedule
    n_cells: int  # of one case
    ops: NDArray[Any]
    factors: NDArray[Any]  # evidence factors
    table_cell: NDArray[np.int64]  # (T,) in a case's arena; -1: shared by all cases
    roots: NDArray[np.uint32]  # (components, 3) cell, table, whether shared


def batch_layout(plan: Plan) -> BatchLayout:
    """What the batch kernels read, but for the answers that are wanted."""
    s = make_schedule(plan, "batch")
    where = np.full(s.n_tables, -1, np.int64)
    at = 0
    own = sorted({int(t) for t in plan.evidence_factor} | set(range(s.n_factors, s.n_tables - 1)))
    for t in own:
        where[t] = at
        at += int(s.table_size[t])
    ops = s.ops.copy()
    for side, bit in (("a", 1), ("b", 2)):
        table = ops[f"slot_{side}"]
        shared = where[table] < 0
        ops["pad"] |= np.where(shared, bit, 0).astype(np.uint32)
        ops[side] = np.where(shared, s.table_cell[table], where[table])
    # the single 1 lies behind the factors
    for side in ("a", "b"):
        ops[side][ops[f"slot_{side}"] == s.n_tables - 1] = s.factor_cells
    ops["out"] = where[ops["slot_out"]]
    first = s.chunks[s.chunks["from"] == 0]
    factors = np.zeros(len(first), CASE_FACTOR)
    for name in ("cell", "table", "known", "n_known"):
        factors[name] = first[name]
    factors["n"], factors["to"] = s.table_size[first["table"]], where[first["table"]]
    roots = [(int(s.table_cell[t]) if where[t] < 0 else where[t], t, where[t] < 0) for t in plan.root_table.tolist()]
    return BatchLayout(s, at, ops.astype(OP), factors, where, np.array(roots, np.uint32).reshape(-1, 3))


def answers_of(plan: Plan, layout: BatchLayout, targets: Sequence[int]) -> tuple[NDArray[Any], int]:
    """The posteriors that are wanted, one variable after another, and their cells in all."""
    made, at = [], 0
    for v in targets:
        card = int(plan.cardinality[v])
        made.append((int(layout.table_cell[plan.posterior_table[v]]), card, at))
        at += card
    return np.array(made, ANSWER), at


@dataclass(frozen=True)
class _Buffers:
    """A chunk's memory, on the card and page-locked on the host."""

    key: bytes  # the answers that it is laid out for
    size: int  # cases
    struct: NDArray[np.uint64]  # struct Batch
    state: NDArray[np.int32]  # (V, size)
    posterior: NDArray[np.float64]  # (size, n_out)
    log_evidence: NDArray[np.float64]  # (size,)
    d_state: int
    d_posterior: int
    d_log: int


class BatchEngine:
    """A plan and a model's numbers on one card, for tables of cases; keeps a chunk's memory from call to call.

    Raises
    ------
    TableTooLarge
        When not even 32 cases fit.
    """

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device):
        self.plan, self.device = plan, device
        self.layout = batch_layout(plan)
        self.lock = threading.Lock()
        self.device_us = 0.0  # of the last call: kernels alone, without copies
        self._open = True
        self._kernels: Kernels | None = None
        self._buffers: _Buffers | None = None
        self.stream: Any = None
        self._buffer_memory: Memory | None = None
        s = self.layout.schedule
        pristine, slots = load_factors(plan, s, factors)
        with device.active():
            self._memory = Memory(device)
            try:
                self._kernels = Kernels(device, "resident/batch", ("batch_enter", "batch_level", "batch_finish"))
                self.stream = device.stream()
                kept = (np.append(pristine, 1.0), slots.astype(SLOT), self.layout.ops, s.digits, s.steps, s.tasks)
                more = (self.layout.factors, s.known, self.layout.roots)
                self._records = [self._memory.put(x, self.stream) for x in (*kept, *more)]
            except BaseException:
                self._release()
                raise

    def run(self, states: NDArray[np.int32], targets: Sequence[int] | None = None) -> BatchResult:
        """Answer B cases.

        Parameters
        ----------
        states : (B, V) int32
            Observed states, -1 = not observed.
        targets : sequence of int, optional
            Variables whose posteriors are wanted, in this order; None: all.
        """
        wanted = range(self.plan.n_variables) if targets is None else list(targets)
        records, n_out = answers_of(self.plan, self.layout, wanted)
        n = len(states)
        result = BatchResult(np.zeros((n, n_out)), np.zeros(n), np.zeros(n, np.bool_))
        with self.lock:
            if not self._open:
                raise JtgpuError("this backend is closed")
            if not n:
                return result
            with self.device.active():
                self._run_chunks(states, records, n_out, result)
        result.impossible[:] = np.isneginf(result.log_evidence)
        result.posterior[result.impossible] = 0.0
        return result

    def _run_chunks(self, states: NDArray[np.int32], answers: NDArray[Any], n_out: int, result: BatchResult) -> None:
        buffers = self._buffers_for(len(states), answers, n_out)
        size, state = buffers.size, buffers.state
        self.device_us = 0.0
        start, stop = self.device.event(timing=True), self.device.event(timing=True)
        for first in range(0, len(states), size):
            here = states[first : first + size]
            state[:, : len(here)] = here.T
            state[:, len(here) :] = -1
            self.device.upload(buffers.d_state, state, self.stream)
            start.record(self.stream)
            self._queue(buffers.struct, size // GROUP, len(answers))
            stop.record(self.stream)
            self.device.download(buffers.posterior, buffers.d_posterior, self.stream)
            self.device.download(buffers.log_evidence, buffers.d_log, self.stream)
            self.stream.synchronize()
            self.device_us += stop.time_since(start) * 1e3
            result.posterior[first : first + len(here)] = buffers.posterior[: len(here)]
            result.log_evidence[first : first + len(here)] = buffers.log_evidence[: len(here)]

    def _buffers_for(self, n: int, answers: NDArray[Any], n_out: int) -> _Buffers:
        """The last call's buffers where they fit this one: taking page-locked memory costs milliseconds."""
        key = answers.tobytes()
        kept = self._buffers
        fits = kept is not None and kept.key == key and n <= 4 * kept.size and kept.size <= max(2 * n, GROUP)
        if kept is not None and fits:
            return kept
        self._drop_buffers()
        size = self._chunk(n, n_out)
        memory = Memory(self.device)
        self._buffer_memory = memory
        s = self.layout.schedule
        arena = memory.empty(8 * self.layout.n_cells * size)
        slots = memory.put(np.zeros((s.n_tables, size), SLOT), self.stream)
        d_state, d_answers = memory.empty(4 * self.plan.n_variables * size), memory.put(answers, self.stream)
        d_posterior, d_log = memory.empty(8 * n_out * size), memory.empty(8 * size)
        pristine, shared, ops, digits, steps, tasks, factors, known, roots = self._records
        words = [arena, pristine, slots, shared, ops, digits, steps, tasks, factors, known, d_state, d_answers]
        counts = [size, len(self.layout.factors), len(answers), len(self.layout.roots), n_out, s.n_tables]
        self._buffers = _Buffers(
            key=key,
            size=size,
            struct=np.concatenate(
                [np.array([*words, roots, d_posterior, d_log], np.uint64), np.array(counts, np.uint32).view(np.uint64)]
            ),
            state=memory.host(self.plan.n_variables * size, np.int32)[: self.plan.n_variables * size].reshape(-1, size),
            posterior=memory.host(n_out * size, np.float64)[: n_out * size].reshape(size, n_out),
            log_evidence=memory.host(size, np.float64),
            d_state=d_state,
            d_posterior=d_posterior,
            d_log=d_log,
        )
        return self._buffers

    def _drop_buffers(self) -> None:
        self._buffers = None
        if self._buffer_memory is not None:
            self._buffer_memory.close()
        self._buffer_memory = None

    def _queue(self, struct: NDArray[np.uint64], groups: int, n_answers: int) -> None:
        assert self._kernels is not None
        whole = Arguments(struct)

        def blocks(warps: int) -> int:
            return -(-warps * GROUP // THREADS)

        if len(self.layout.factors):
            self._kernels.launch("batch_enter", blocks(len(self.layout.factors) * groups), THREADS, self.stream, whole)
        for level in self.layout.schedule.levels:
            arguments = Arguments(struct, level.first, level.n_blocks)
            self._kernels.launch("batch_level", blocks(level.n_blocks * groups), THREADS, self.stream, arguments)
        self._kernels.launch("batch_finish", blocks((n_answers + 1) * groups), THREADS, self.stream, whole)

    def _chunk(self, n: int, n_out: int) -> int:
        """Cases of a chunk: a multiple of 32 that fits the memory and the number of blocks."""
        s = self.layout.schedule
        each = 8 * (self.layout.n_cells + s.n_tables + n_out + 1) + 4 * self.plan.n_variables
        free = int(MEMORY_SHARE * self.device.free_memory())
        fits = min(free // each, MOST_CASES) // GROUP * GROUP
        most_tiles = max((x.n_blocks for x in s.levels), default=1)
        fits = min(fits, MOST_BLOCKS // most_tiles // GROUP * GROUP)
        if fits < GROUP:
            raise TableTooLarge(
                f"{GROUP} cases take {format_bytes(GROUP * each)} on the card, of which {format_bytes(free)} may be "
                "taken; run them one at a time",
                needed=GROUP * each,
                limit=free,
            )
        return min(fits, -(-n // GROUP) * GROUP)

    def _release(self) -> None:
        self._drop_buffers()
        if self._kernels is not None:
            self._kernels.close()
        self._memory.close()
        self._kernels = None
        self.stream = None  # its end must come while the context is current

    def close(self) -> None:
        """Give the card's memory back; may be called twice."""
        with self.lock:
            if not self._open:
                return
            self._open = False
            with self.device.active():
                self.stream.synchronize()
                self._release()
