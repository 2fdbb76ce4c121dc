"""One case at a time as a kernel a level, queued as one graph: cuda/single/levels.cu.

Any network that fits the device. Tables are rescaled by powers of two, so P(e) may be as small
as it likes; but a number far below the largest one of its table is lost (`jtgpu.backends.gpu.host`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....device.context import Device
from ....device.driver import After, Arguments, Kernels
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
        self._kernels = Kernels(self.device, "single/levels", KERNELS)
        s, at = self.schedule, self._kernels.device_address
        self._state: NDArray[np.int32] = self.memory.host(self.plan.n_variables, np.int32)
        self._arena = self.put(np.zeros(s.n_cells))
        self._one = self._arena + 8 * int(s.table_cell[-1])
        self._pristine = self.memory.empty(8 * s.factor_cells)
        self._slots = self.memory.empty(SLOT.itemsize * s.n_tables)
        self._chunks = self.memory.empty(s.chunks.nbytes)
        self._dirty = self.memory.empty(4 * (len(s.chunks) + 1))
        counters = self.put(np.zeros(s.n_counters + 1, np.uint32))
        program = filled(
            struct("common/types.cuh", "Program"), arena=self._arena, slots=self._slots, ops=self.put(s.ops),
            digits=self.put(s.digits), steps=self.put(s.steps), tasks=self.put(s.tasks),
            scratch=self.memory.empty(8 * s.n_scratch), counters=counters,
        )  # fmt: skip
        evidence = filled(
            struct("single/levels.cu", "Entry"), chunks=self._chunks, known=self.put(s.known), pristine=self._pristine,
            state=at(self._state), weights=self._device_weights, dirty=self._dirty,
        )  # fmt: skip
        # the last table is the constant 1, whose slot never changes
        finish = filled(
            struct("single/levels.cu", "Finish"), answers=self.put(s.answers), roots=self.put(s.roots),
            posterior=at(self.posterior), root=at(self.root), exponent=at(self.exponent), chunks=self._chunks,
            n_answers=len(s.answers), n_roots=len(s.roots) // 2, n_factors=s.n_factors, n_tables=s.n_tables - 1,
            n_chunks=len(s.chunks),
        )  # fmt: skip
        calls = [("enter", len(s.chunks), Arguments(program, evidence))] if len(s.chunks) else []
        for level in s.levels:
            name = "level_heavy" if level.heavy else "level_light"
            calls.append((name, level.n_blocks, Arguments(program, level.first)))
        n_blocks = min(MAX_FINISH_BLOCKS, -(-max(len(s.answers) * 32, s.n_tables) // THREADS))
        calls.append(("finish", n_blocks, Arguments(program, finish)))
        self.calls = calls
        self._upload(self._factors)
        del self._factors
        self._graph = self.device.capture(self.stream, self.queue_kernels)

    def queue_kernels(self) -> None:
        """Queue one propagation, kernel by kernel."""
        assert self._kernels is not None
        for i, (name, n_blocks, arguments) in enumerate(self.calls):
            self._kernels.launch(name, n_blocks, THREADS, self.stream, arguments, early=i > 0)

    def _upload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Put the model's numbers where the kernels read them, as before the first run."""
        s = self.schedule
        pristine, slots = load_factors(self.plan, s, factors)
        chunks = chunks_with_tops(s, pristine)
        slots["top"][s.chunks["table"]] = 0
        self.upload(
            (self._arena, pristine), (self._pristine, pristine), (self._one, np.ones(1)),
            (self._slots, slots), (self._chunks, chunks),
            (self._dirty, np.zeros(len(s.chunks) + 1, np.uint32)),
        )  # fmt: skip

    @property
    def nanoseconds(self) -> int:
        return self.schedule.nanoseconds

    def queue(self) -> None:
        assert self._graph is not None
        self._graph.launch(self.stream)

    def _is_right(self) -> bool:
        """Whether no component of the last case is so improbable that numbers may have been lost."""
        host, roots = self._host, zip(self.root.tolist(), self.exponent.tolist(), strict=True)
        return host is None or all(root > 0 and host.is_right(math.log2(root) + e) for root, e in roots)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        with self.lock:
            self.check_open()
            with self.device.active():
                self._upload(factors)

    def _release(self) -> None:
        if self._graph is not None:
            self._graph.close()
        self._graph = None
        super()._release()
