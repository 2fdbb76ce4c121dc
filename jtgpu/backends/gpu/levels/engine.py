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
from ..case import CaseEngine
from ..host import Host
from ..program.layout import chunks_with_tops, load_factors
from ..program.records import SLOT
from .schedule import LevelSchedule

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


class LevelEngine(CaseEngine):
    """The engine that runs a kernel a level."""
    # schedule: Of the plan
    # host: Says for which cases answers are reliable. Default: for all

    kind = "levels"
    log_least_root = -math.inf

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        schedule: LevelSchedule,
        device: Device,
        after: After | None = None,
        host: Host | None = None,
    ):
        self.schedule, self._host, self._factors = schedule, host, factors
        self._graph: Graph | None = None
        super().__init__(plan, device, after, plan.posterior_ptr[:-1].tolist(), int(plan.posterior_ptr[-1]))

    def _load(self) -> None:
        self._kernels = self.io.load_kernels("single/levels", KERNELS)
        self._state: NDArray[np.int32] = self.io.host(self.plan.n_variables, np.int32)
        self.calls = self._calls()
        self._upload(self._factors)
        del self._factors
        self._graph = self.device.capture(self.io.stream, self.queue_kernels)

    def _calls(self) -> list[Call]:
        """All kernels and their parameters."""
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

    def queue_kernels(self) -> None:
        """Queue one propagation, kernel by kernel."""
        for i, (name, n_blocks, arguments) in enumerate(self.calls):
            self._kernels.launch(name, n_blocks, THREADS, self.io.stream, arguments, early=i > 0)

    @property
    def nanoseconds(self) -> int:
        return self.schedule.nanoseconds

    def queue(self) -> None:
        assert self._graph is not None
        self._graph.launch(self.io.stream)

    def _is_right(self) -> bool:
        """Whether no component of the last case is so improbable that numbers may have been lost."""
        host, roots = self._host, zip(self.io.root.tolist(), self.io.exponent.tolist(), strict=True)
        return host is None or all(root > 0 and host.is_right(math.log2(root) + e) for root, e in roots)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        with self.io.lock:
            self.io.check_open()
            with self.device.active():
                self._upload(factors)

    def _release(self) -> None:
        if self._graph is not None:
            self._graph.close()
        self._graph = None
        super()._release()
