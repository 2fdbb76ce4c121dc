"""One case at a time: the schedule on the card, a propagation as one graph launch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import JtgpuError
from ...plan import Plan
from ..base import Evidence, Result
from ..device import Device, Graph
from . import answers
from .driver import Arguments, Kernels
from .records import SLOT
from .schedule import Schedule, chunks_with_tops, load_factors

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CaseEngine", "Engine", "Memory"]

THREADS = 256
MOST_FINISH_BLOCKS = 64


class Memory:
    """Device memory and page-locked host memory of one engine, all given back by `close`."""

    def __init__(self, device: Device):
        self.device = device
        self._owned: list[Any] = []
        self._pinned: list[NDArray[Any]] = []

    def empty(self, n_bytes: int) -> int:
        """Address of fresh memory; raises `TableTooLarge` when there is none."""
        block = self.device.alloc(max(n_bytes, 16))
        self._owned.append(block)
        return int(block)

    def put(self, array: NDArray[Any], stream: Any) -> int:
        """Address of a copy of an array; the copy is done when this returns."""
        address = self.empty(array.nbytes)
        if array.nbytes:
            self.device.upload(address, np.ascontiguousarray(array), stream)
            stream.synchronize()
        return address

    def host(self, cells: int, dtype: Any) -> NDArray[Any]:
        """Page-locked host memory."""
        array = self.device.pinned(cells, dtype)
        array[:] = 0
        self._pinned.append(array)
        return array

    def close(self) -> None:
        """Give everything back."""
        for block in self._owned:
            block.free()
        for array in self._pinned:
            self.device.unpin(array)
        self._owned, self._pinned = [], []


class CaseEngine:
    """One case at a time, by one graph launch: what both single-case engines share.

    A subclass loads its kernels and its data in `_load` and queues one propagation in `queue`; evidence is left in,
    and answers are found in, page-locked host memory. `lock` orders threads.
    """

    kind = ""
    file = ""
    names: tuple[str, ...] = ()

    def __init__(self, plan: Plan, device: Device, load: Callable[[], None]):
        self.plan, self.device = plan, device
        self.lock = threading.Lock()
        self.stream: Any = None
        self._graph: Graph | None = None
        self._kernels: Kernels | None = None
        self._open = True
        with device.active():
            self._memory = Memory(device)
            try:
                self._kernels = Kernels(device, self.file, self.names)
                self.stream = device.stream()
                self._state = self._memory.host(plan.n_variables, np.int32)
                self._weights = self._memory.host(int(plan.posterior_ptr[-1]), np.float64)
                self._posterior = self._memory.host(int(plan.posterior_ptr[-1]), np.float64)
                self._root = self._memory.host(len(plan.root_table), np.float64)
                self._exponent = self._memory.host(len(plan.root_table), np.int32)
                load()
                self._graph = self._capture()
            except BaseException:
                self._release()
                raise

    def queue(self) -> None:
        """Queue one propagation, kernel by kernel."""
        raise NotImplementedError

    def _capture(self) -> Graph | None:
        return self.device.capture(self.stream, self.queue)

    def write(self, evidence: Evidence) -> int:
        """Put a case where the kernels read it; see `jtgpu.backends.gpu.answers.write_evidence`."""
        return answers.write_evidence(self.plan, evidence, self._state, self._weights)

    def launch(self, evidence: Evidence) -> None:
        """Queue one propagation of the case that was written, as a graph."""
        assert self._graph is not None
        self._graph.launch(self.stream)

    def run(self, evidence: Evidence) -> Result:
        """One case; raises `ImpossibleEvidence`."""
        with self.lock:
            self._check_open()
            more = self.write(evidence)
            with self.device.active():
                self.launch(evidence)
                self.stream.synchronize()
            log_evidence = answers.log_evidence(self._root, self._exponent, more)
            return Result(self._posterior.copy(), log_evidence)

    def _check_open(self) -> None:
        if not self._open:
            raise JtgpuError("this backend is closed")

    def measure(self, n: int, cases: Sequence[Evidence]) -> list[float]:
        """Device microseconds of `n` propagations, by events; the cases take turns."""
        with self.lock, self.device.active():
            start, stop = self.device.event(timing=True), self.device.event(timing=True)
            times = []
            for i in range(n):
                case = cases[i % len(cases)]
                self.write(case)
                start.record(self.stream)
                self.launch(case)
                stop.record(self.stream)
                stop.synchronize()
                times.append(stop.time_since(start) * 1e3)
            return times

    def _release(self) -> None:
        if self._graph is not None:
            self._graph.close()
        if self._kernels is not None:
            self._kernels.close()
        self._memory.close()
        self._graph = self._kernels = None
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


class Engine(CaseEngine):
    """A kernel a level, any network that fits the card.

    Raises
    ------
    TableTooLarge
        When the card has not enough memory; what was taken is given back and the process goes on.
    """

    kind = "levels"
    file = "resident/single"
    names = ("enter", "level_light", "level_heavy", "finish")

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], schedule: Schedule, device: Device):
        self.schedule = schedule
        super().__init__(plan, device, lambda: self._load(factors))

    def _load(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Upload everything and fix every kernel's parameters."""
        s, plan, memory, stream = self.schedule, self.plan, self._memory, self.stream
        pristine, slots = load_factors(plan, s, factors)
        arena = memory.put(np.zeros(s.n_cells), stream)  # lists leave out what is always zero
        d_pristine = memory.put(pristine, stream)
        self.device.copy(arena, d_pristine, pristine.nbytes, stream)
        self.device.upload(arena + 8 * int(s.table_cell[-1]), np.ones(1), stream)
        stream.synchronize()
        counters, dirty = (memory.put(np.zeros(n + 1, np.uint32), stream) for n in (s.n_counters, len(s.chunks)))
        self._d_weights = memory.empty(8 * int(plan.posterior_ptr[-1]))
        chunks = memory.put(chunks_with_tops(s, pristine), stream)
        slots["top"][s.chunks["table"]] = 0
        assert self._kernels is not None
        at = self._kernels.device_address
        program = _words(
            arena,
            memory.put(slots.astype(SLOT), stream),
            *(memory.put(x, stream) for x in (s.ops, s.digits, s.steps, s.tasks)),
            memory.empty(8 * s.n_scratch),
            counters,
            memory.put(s.rounds, stream),
            memory.put(s.rows, stream),
        )
        entry = _words(
            chunks,
            memory.put(s.known, stream),
            d_pristine,
            at(self._state),
            self._d_weights,
            dirty,
        )
        counts = [len(s.answers), len(plan.root_table), s.n_factors, s.n_tables, len(s.chunks), 0]
        finish = np.concatenate(
            [
                _words(
                    memory.put(s.answers, stream),
                    memory.put(s.roots, stream),
                    at(self._posterior),
                    at(self._root),
                    at(self._exponent),
                    chunks,
                ),
                np.array(counts, np.uint32).view(np.uint64),
            ]
        )
        self._calls: list[tuple[str, int, Arguments, bool]] = []
        if len(s.chunks):
            self._calls.append(("enter", len(s.chunks), Arguments(program, entry), False))
        for level in s.levels:
            name = "level_heavy" if level.heavy else "level_light"
            self._calls.append((name, level.n_blocks, Arguments(program, level.first), bool(self._calls)))
        n_blocks = min(MOST_FINISH_BLOCKS, -(-max(len(s.answers) * 32, s.n_tables) // THREADS))
        self._calls.append(("finish", n_blocks, Arguments(program, finish), bool(self._calls)))

    def launch(self, evidence: Evidence) -> None:
        """See `CaseEngine.launch`; weights are copied where there are any, most cases have none."""
        if evidence.likelihood:
            self.device.upload(self._d_weights, self._weights, self.stream)
        super().launch(evidence)

    def queue(self) -> None:
        """See `CaseEngine.queue`."""
        assert self._kernels is not None
        for name, n_blocks, arguments, early in self._calls:
            self._kernels.launch(name, n_blocks, THREADS, self.stream, arguments, early=early)


def _words(*addresses: int) -> NDArray[np.uint64]:
    return np.array(addresses, np.uint64)
