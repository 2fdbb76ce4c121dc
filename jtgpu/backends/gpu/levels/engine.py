"""One case at a time as a kernel a level, queued as one graph: cuda/single/levels.cu.

Any network that fits the device. Tables are rescaled by powers of two, so P(e) may be as small
as it likes; but a number far below the largest one of its table is lost (`jtgpu.backends.gpu.host`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....device.context import Device
from ....device.driver import After, Arguments
from ....device.graph import Graph
from ....device.structs import filled, struct
from ....plans.plan import Plan
from ...base import Evidence, Result
from ..case import CaseIO, device_times
from ..host import Host
from ..program.layout import chunks_with_tops, load_factors
from ..program.records import SLOT, log_evidence, write_evidence
from .schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

THREADS = 256  # of a block
MAX_FINISH_BLOCKS = 64
KERNELS = ("enter", "level_light", "level_heavy", "finish")


class Call(NamedTuple):
    """One kernel of a propagation."""

    name: str
    n_blocks: int
    arguments: Arguments


class LevelEngine:
    """`jtgpu.backends.gpu.case.CaseEngine` that runs a kernel a level."""
    # schedule: Of the plan
    # after: A stream of the user whose work precedes every case
    # host: Says for which cases answers are reliable. Default: for all
    # raises TableTooLarge: If the device has not enough memory. What was allocated is freed; the process stays usable.

    kind = "levels"
    log_least_root = -math.inf

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        schedule: Schedule,
        device: Device,
        after: After | None = None,
        host: Host | None = None,
    ):
        self.plan, self.schedule, self.device, self._host = plan, schedule, device, host
        self._weight_cell: list[int] = plan.posterior_ptr[:-1].tolist()
        self._graph: Graph | None = None
        with device.active():
            self.io = CaseIO(device, plan, int(plan.posterior_ptr[-1]), after)
            try:
                self._kernels = self.io.load_kernels("single/levels", KERNELS)
                self._state: NDArray[np.int32] = self.io.host(plan.n_variables, np.int32)
                self.calls = self._load()
                self._upload(factors)
                self._graph = device.capture(self.io.stream, self.queue)
            except BaseException:
                self._release()
                raise

    def _load(self) -> list[Call]:
        """Allocate everything and fix every kernel's parameters."""
        s, io = self.schedule, self.io
        self._arena = io.put(np.zeros(s.n_cells))
        self._one = self._arena + 8 * int(s.table_cell[-1])
        self._pristine = io.memory.empty(8 * s.factor_cells)
        self._slots = io.memory.empty(SLOT.itemsize * s.n_tables)
        self._chunks = io.memory.empty(s.chunks.nbytes)
        self._dirty = io.memory.empty(4 * (len(s.chunks) + 1))
        counters = io.put(np.zeros(s.n_counters + 1, np.uint32))
        at = self._kernels.device_address
        program = filled(
            struct("common/types.cuh", "Program"), arena=self._arena, slots=self._slots, ops=io.put(s.ops),
            digits=io.put(s.digits), steps=io.put(s.steps), tasks=io.put(s.tasks),
            scratch=io.memory.empty(8 * s.n_scratch), counters=counters,
        )  # fmt: skip
        evidence = filled(
            struct("single/levels.cu", "Entry"), chunks=self._chunks, known=io.put(s.known), pristine=self._pristine,
            state=at(self._state), weights=io.device_weights, dirty=self._dirty,
        )  # fmt: skip
        # the last table is the constant 1, whose slot never changes
        finish = filled(
            struct("single/levels.cu", "Finish"), answers=io.put(s.answers), roots=io.put(s.roots),
            posterior=at(io.posterior), root=at(io.root), exponent=at(io.exponent), chunks=self._chunks,
            n_answers=len(s.answers), n_roots=len(s.roots) // 2, n_factors=s.n_factors, n_tables=s.n_tables - 1,
            n_chunks=len(s.chunks),
        )  # fmt: skip
        calls = [Call("enter", len(s.chunks), Arguments(program, evidence))] if len(s.chunks) else []
        for level in s.levels:
            name = "level_heavy" if level.heavy else "level_light"
            calls.append(Call(name, level.n_blocks, Arguments(program, level.first)))
        n_blocks = min(MAX_FINISH_BLOCKS, -(-max(len(s.answers) * 32, s.n_tables) // THREADS))
        return [*calls, Call("finish", n_blocks, Arguments(program, finish))]

    def _upload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Put the model's numbers where the kernels read them, as before the first run."""
        s = self.schedule
        pristine, slots = load_factors(self.plan, s, factors)
        chunks = chunks_with_tops(s, pristine)
        slots["top"][s.chunks["table"]] = 0
        self.io.upload(
            (self._arena, pristine), (self._pristine, pristine), (self._one, np.ones(1)),
            (self._slots, slots), (self._chunks, chunks),
            (self._dirty, np.zeros(len(s.chunks) + 1, np.uint32)),
        )  # fmt: skip

    def queue(self) -> None:
        """Queue one propagation, kernel by kernel."""
        for i, (name, n_blocks, arguments) in enumerate(self.calls):
            self._kernels.launch(name, n_blocks, THREADS, self.io.stream, arguments, early=i > 0)

    @property
    def nanoseconds(self) -> int:
        return self.schedule.nanoseconds

    @property
    def n_bytes(self) -> int:
        return self.io.memory.n_bytes

    def run(self, evidence: Evidence) -> Result | None:
        io = self.io
        with io.lock:
            io.check_open()
            shift = write_evidence(evidence, self._weight_cell, self._state, io.weights)
            with self.device.active():
                if io.after is not None:
                    io.after.order(io.stream)
                if evidence.likelihood:
                    io.upload_weights()
                self._launch()
                io.stream.synchronize()
            if self._host is not None and not self._is_probable(self._host):
                return None
            return Result(io.posterior.copy(), log_evidence(io.root, io.exponent, shift))

    def _launch(self) -> None:
        """Queue one propagation as a graph."""
        assert self._graph is not None
        self._graph.launch(self.io.stream)

    def _is_probable(self, host: Host) -> bool:
        """Whether no component of the last case is so improbable that numbers may have been lost."""
        for root, e in zip(self.io.root.tolist(), self.io.exponent.tolist(), strict=True):
            if not root > 0 or not host.is_right(math.log2(root) + e):
                return False
        return True

    def measure(self, runs: int, cases: Sequence[Evidence]) -> list[float]:
        io = self.io

        def write(case: Evidence) -> None:
            write_evidence(case, self._weight_cell, self._state, io.weights)
            io.upload_weights()

        return device_times(io, runs, cases, write, self._launch)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        with self.io.lock:
            self.io.check_open()
            with self.device.active():
                self._upload(factors)

    def _release(self) -> None:
        if self._graph is not None:
            self._graph.close()
        self._graph = None
        self.io.release()

    def close(self) -> None:
        with self.io.lock:
            if self.io.is_open:
                self.io.is_open = False
                with self.device.active():
                    self.io.stream.synchronize()
                    self._release()
