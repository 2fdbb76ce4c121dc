"""One case at a time: the schedule on the card, a propagation as one graph launch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .....device.context import Device, Graph, Launch
from .....device.driver import After, Arguments, Kernels
from .....device.job import JOB as HELD
from .....errors import JtgpuError
from .....plans.plan import Plan
from ....base import Evidence, Result
from ...program import encoding as answers
from ...program.layout import LEAST, chunks_with_tops, load_factors, smallest_entries
from ...program.structs import JOB, SLOT
from ..specialised.build import Progress, build, built_slab
from ..specialised.slab_code import THREADS as SLAB_THREADS
from .schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CaseEngine", "Engine", "Memory", "level_nanoseconds"]

THREADS = 256
MOST_FINISH_BLOCKS = 64
HOLD_NS = 40_000  # that a stream is kept busy while a measured propagation is queued
FAINT = -700  # log2 of P(e) over all factors' largest entries: below, a slab may have lost what it is made of
LEVEL_NS, START_NS = 1200.0, 6000.0  # what the schedule's time model leaves out: of a level, and of all


class Call(NamedTuple):
    """One kernel of a propagation."""

    name: str
    n_blocks: int
    kernels: Kernels
    arguments: Arguments
    n_threads: int = THREADS
    shared: int = 0  # bytes


class Memory:
    """Device memory and page-locked host memory of one engine, all given back by `close`."""

    def __init__(self, device: Device):
        self.device = device
        self.n_bytes = 0  # on the device
        self._owned: list[Any] = []
        self._pinned: list[NDArray[Any]] = []

    def empty(self, n_bytes: int) -> int:
        """Address of fresh memory; raises `TableTooLarge` when there is none."""
        block = self.device.alloc(max(n_bytes, 16))
        self._owned.append(block)
        self.n_bytes += max(n_bytes, 16)
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

    Parameters
    ----------
    plan : Plan
    device : Device
    load : callable
        The subclass's.
    second : callable, optional
        Makes the engine that is asked where this one does not trust its answer; called when the first such case comes.
    """

    kind = ""
    file = ""
    names: tuple[str, ...] = ()
    real = "float64"  # what it computes with
    after: After | None = None  # a stream of the user's whose work comes first

    def __init__(
        self, plan: Plan, device: Device, load: Callable[[], None], second: Callable[[], CaseEngine] | None = None
    ):
        self.plan, self.device = plan, device
        self._second = second
        self._asked: CaseEngine | None = None
        self._asking = threading.Lock()
        self.lock = threading.Lock()
        self.stream: Any = None
        self._graph: Graph | None = None
        self._kernels: Kernels | None = None
        self._open = True
        with device.active():
            self._memory = Memory(device)
            try:
                self._kernels = Kernels(device, self.file, self.names, real=self.real)
                self.stream = device.stream()
                self._state = self._memory.host(plan.n_variables, np.int32)
                self._weights = self._memory.host(int(plan.posterior_ptr[-1]), np.float64)
                self._posterior = self._memory.host(self._answer_cells(), np.float64)
                self._root = self._memory.host(len(plan.root_table), np.float64)
                self._exponent = self._memory.host(len(plan.root_table), np.int32)
                load()
                self._graph = self._capture()
            except BaseException:
                self._release()
                raise

    @property
    def n_bytes(self) -> int:
        """Memory on the card, in bytes."""
        return self._memory.n_bytes

    @property
    def nanoseconds(self) -> int:
        """What a propagation should take, by the time model; the same for the same plan and numbers."""
        return 0

    def _answer_cells(self) -> int:
        """How many numbers an answer has."""
        return int(self.plan.posterior_ptr[-1])

    def queue(self) -> None:
        """Queue one propagation, kernel by kernel."""
        raise NotImplementedError

    def _capture(self) -> Graph | None:
        return self.device.capture(self.stream, self.queue)

    def write(self, evidence: Evidence) -> int:
        """Put a case where the kernels read it; see `jtgpu.backends.gpu.program.encoding.write_evidence`."""
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
                if self.after is not None:
                    self.after.order(self.stream)
                self.launch(evidence)
                self.stream.synchronize()
            if self._second is None or self.trusted():
                log_evidence = answers.log_evidence(self._root, self._exponent, more)
                return Result(self._posterior.copy(), log_evidence)
        return self._other().run(evidence)

    def trusted(self) -> bool:
        """Whether the last case's answers are right; where not, the second engine is asked."""
        return True

    def _least_root(self) -> float:
        """The least P(e) of a component; one number most often, of which NumPy's minimum would take microseconds."""
        return min(self._root.tolist(), default=1.0)

    def _other(self) -> CaseEngine:
        with self._asking:
            self._check_open()
            if self._asked is None:
                assert self._second is not None
                self._asked = self._second()
                self._asked.after = self.after
            return self._asked

    def _check_open(self) -> None:
        if not self._open:
            raise JtgpuError("this backend is closed")

    def measure(self, n: int, cases: Sequence[Evidence]) -> list[float]:
        """Device microseconds of `n` propagations, by events; the cases take turns. The stream is held while one is
        queued, so that the host's part in a launch is not among them."""
        with self.lock, self.device.active():
            self._check_open()
            start, stop = self.device.event(timing=True), self.device.event(timing=True)
            job = np.zeros(1, HELD)
            job["total"] = HOLD_NS
            block = self.device.alloc(job.nbytes)
            times = []
            try:
                self.device.upload(int(block), job, self.stream)
                hold = Launch(self.device.function("common/hold", "hold"), (1, 1, 1), (1, 1, 1), int(block), 0)
                for i in range(n):
                    case = cases[i % len(cases)]
                    self.write(case)
                    self.device.launch(hold, self.stream)
                    start.record(self.stream)
                    self.launch(case)
                    stop.record(self.stream)
                    stop.synchronize()
                    times.append(stop.time_since(start) * 1e3)
            finally:
                self.stream.synchronize()
                block.free()
                del start, stop  # their end must come while the context is current
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
        with self._asking:
            if self._asked is not None:
                self._asked.close()


class Engine(CaseEngine):
    """A kernel a level, any network that fits the card; in the schedule's float64 or float32.

    Raises
    ------
    TableTooLarge
        When the card has not enough memory; what was taken is given back and the process goes on.
    """

    kind = "levels"
    file = "single/levels"
    names: tuple[str, ...] = ("enter", "level_light", "level_heavy", "finish")
    entered = "enter"  # the kernel that brings the evidence in

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        schedule: Schedule,
        device: Device,
        second: Callable[[], CaseEngine] | None = None,
        progress: Progress | None = None,
    ):
        self.schedule, self.real = schedule, schedule.real
        self._progress = progress
        self._shaped: list[Kernels] = []
        self._smallest = smallest_entries(self._whole_factors(factors)) if self.real == "float32" else None
        self._tiny = False  # whether the last case had numbers that float32 does not hold
        self._largest = sum(math.log2(top) for f in factors if (top := float(np.max(f, initial=0.0))) > 0)
        super().__init__(plan, device, lambda: self._load(factors), second)

    def _load(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Upload everything and fix every kernel's parameters."""
        s, plan, memory, stream = self.schedule, self.plan, self._memory, self.stream
        self._doubt = memory.host(1, np.int32)
        pristine, slots = load_factors(plan, s, factors)
        cell = pristine.itemsize
        arena = memory.put(np.zeros(s.n_cells, s.real), stream)  # lists leave out what is always zero
        d_pristine = memory.put(pristine, stream)
        self.device.copy(arena, d_pristine, pristine.nbytes, stream)
        self.device.upload(arena + cell * int(s.table_cell[-1]), np.ones(1, s.real), stream)
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
            memory.empty(cell * s.n_scratch),
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
        # the last table is the single 1, whose slot stays as it is
        counts = [len(s.answers), len(plan.root_table), s.n_factors, s.n_tables - 1, len(s.chunks), 0]
        finish = np.concatenate(
            [
                _words(
                    memory.put(s.answers, stream),
                    memory.put(s.roots, stream),
                    at(self._posterior),
                    at(self._root),
                    at(self._exponent),
                    chunks,
                    memory.put(s.checks, stream),
                    at(self._doubt),
                    memory.put(s.slab.least(s.n_tables), stream) if s.slab is not None else 0,
                ),
                np.array(counts, np.uint32).view(np.uint64),
            ]
        )
        calls: list[Call] = []
        if len(s.chunks):
            calls.append(Call(self.entered, len(s.chunks), self._kernels, self._entry(program, entry, slots)))
        calls += self._level_calls(program)
        n_blocks = min(MOST_FINISH_BLOCKS, -(-max(len(s.answers) * 32, s.n_tables) // THREADS))
        calls.append(Call("finish", n_blocks, self._kernels, Arguments(program, finish)))
        self._calls = calls

    def _level_calls(self, program: NDArray[np.uint64]) -> list[Call]:
        s = self.schedule
        assert self._kernels is not None
        calls: list[Call] = []
        shaped = s.shaped
        jobs = 0
        if shaped is not None:
            for image in build(shaped.kernels, self.device.arch, s.real, self._progress):
                self._shaped.append(Kernels(self.device, "", ("level_shaped",), image))
            jobs = self._memory.put(shaped.jobs, self.stream)
        for i, level in enumerate(s.levels):
            if i == s.before_slab:
                calls += self._slab_calls(program)
            mine = shaped.levels[i] if shaped is not None else None
            if mine is None:
                name = "level_heavy" if level.heavy else "level_light"
                calls.append(Call(name, level.n_blocks, self._kernels, Arguments(program, level.first)))
                continue
            at = _words(jobs + mine.first * JOB.itemsize)
            arguments = Arguments(program, at, mine.n_blocks, level.first)
            n_blocks = mine.n_blocks + level.n_blocks
            calls.append(Call("level_shaped", n_blocks, self._shaped[mine.kernel], arguments))
        return calls + (self._slab_calls(program) if s.before_slab == len(s.levels) else [])

    def _slab_calls(self, program: NDArray[np.uint64]) -> list[Call]:
        slab, memory = self.schedule.slab, self._memory
        if slab is None:
            return []
        first, flags, runs, outputs, of_block, places, lists = (memory.put(x, self.stream) for x in slab.arrays)
        sums = memory.empty(8 * slab.n_sums)
        image = built_slab(slab.source, self.device.arch)
        made = Kernels(self.device, "", ("slab", "slab_sum"), image)
        self._shaped.append(made)
        made.allow_shared("slab", slab.shared_bytes)
        slices = Arguments(program, _words(first, flags, runs, sums))
        added = Arguments(program, _words(outputs, of_block, places, lists, sums))
        return [
            Call("slab", slab.n_blocks, made, slices, SLAB_THREADS, slab.shared_bytes),
            Call("slab_sum", slab.n_sum_blocks, made, added),
        ]

    def _entry(self, program: NDArray[np.uint64], entry: NDArray[np.uint64], slots: NDArray[Any]) -> Arguments:
        """Parameters of the kernel that brings the evidence in; `slots`: of the tables as they were loaded."""
        return Arguments(program, entry)

    @property
    def nanoseconds(self) -> int:
        """See `CaseEngine.nanoseconds`."""
        return level_nanoseconds(self.schedule)

    def _whole_factors(self, factors: Sequence[NDArray[np.float64]]) -> Sequence[NDArray[np.float64]]:
        """The factors with all that any case takes of them."""
        return factors

    def write(self, evidence: Evidence) -> int:
        """See `CaseEngine.write`."""
        more = super().write(evidence)
        if self._smallest is not None:
            low, ptr = self._smallest.copy(), self.plan.posterior_ptr
            for v in evidence.likelihood:
                given = self._weights[ptr[v] : ptr[v + 1]]
                low[self.plan.evidence_factor[v]] += np.log2(given[given > 0].min())
            self._tiny = bool(low.min(initial=0.0) < LEAST)
        return more

    def launch(self, evidence: Evidence) -> None:
        """See `CaseEngine.launch`; weights are copied where there are any, most cases have none."""
        if evidence.likelihood:
            self.device.upload(self._d_weights, self._weights, self.stream)
        self._doubt[0] = 0
        super().launch(evidence)

    def trusted(self) -> bool:
        """See `CaseEngine.trusted`: not where float32 or a slab lost what P(e) is made of, nor where P(e) is zero."""
        if self._tiny or self._doubt[0] or not self._least_root() > 0:
            return False
        if self.schedule.slab is None:
            return True
        roots = zip(self._root.tolist(), self._exponent.tolist(), strict=True)
        return bool(sum(math.frexp(root)[1] + e for root, e in roots) - self._largest > FAINT)

    def queue(self) -> None:
        """See `CaseEngine.queue`."""
        for i, (name, n_blocks, kernels, arguments, n_threads, shared) in enumerate(self._calls):
            kernels.launch(name, n_blocks, n_threads, self.stream, arguments, shared=shared, early=i > 0)

    def _release(self) -> None:
        for made in self._shaped:
            made.close()
        self._shaped = []
        super()._release()


def level_nanoseconds(schedule: Schedule) -> int:
    """What a propagation should take as a kernel a level."""
    slab = schedule.slab.nanoseconds if schedule.slab is not None else 0.0
    return round(START_NS + slab + sum(LEVEL_NS + level.floor for level in schedule.levels))


def _words(*addresses: int) -> NDArray[np.uint64]:
    return np.array(addresses, np.uint64)
