"""One case at a time as one kernel, all of whose warps are on the device at once: cuda/single/dataflow.cu."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....device.context import Device
from ....device.driver import After, Arguments
from ....device.structs import filled, struct
from ....plans.plan import Plan
from ...base import Evidence, Result
from ..case import CaseIO, device_times
from ..program.records import log_evidence, write_evidence
from .graph import RestrictedFactors
from .schedule import Numbers, Schedule, make_numbers
from .tiling import MAX_WARPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

class DataflowEngine:
    """`jtgpu.backends.gpu.case.CaseEngine` for networks of many contractions that wait for each other."""
    # schedule: Of the plan
    # after: A stream of the user whose work precedes every case
    # restricted: If the plan is one of the unobserved variables: what the schedule was made with. Cases are then given
    #     in the network's own variables, and answers have zeros for the observed ones.
    # raises BackendUnavailable: On a GPU, or a share of one, that cannot hold all blocks at once.
    # raises TableTooLarge: If the device has not enough memory.

    kind = "dataflow"

    def __init__(
        self,
        plan: Plan,
        schedule: Schedule,
        device: Device,
        after: After | None = None,
        restricted: RestrictedFactors | None = None,
    ):
        self.plan, self.schedule, self.device = plan, schedule, device
        self._numbers: Numbers = schedule.numbers
        self._sign = 0
        self._is_clean = False  # False after an interrupt that came where it is unknown if a run was queued
        ptr = plan.posterior_ptr
        self._weight_cell: list[int] = ptr[:-1].tolist()
        if restricted is not None:
            ptr = restricted.posterior_ptr
            cells = np.full(len(restricted.observed), -1)
            cells[restricted.free] = plan.posterior_ptr[:-1]
            self._weight_cell = cells.tolist()
        with device.active():
            self.io = CaseIO(device, plan, int(ptr[-1]), after)
            try:
                self._load()
                self._state[:] = -1 if restricted is None else 0  # states that every variable may have
                self.queue()  # fails here, and not at the first case, if the device cannot hold all blocks
                self.io.stream.synchronize()
            except BaseException:
                self.io.release()
                raise

    def _load(self) -> None:
        """Upload the schedule and fix the kernel's parameters: struct Dataflow of dataflow.cu."""
        s, io = self.schedule, self.io
        kernels = io.load_kernels("single/dataflow", ["dataflow"])
        self._arena = io.memory.empty(8 * s.n_cells)
        self._pristine = io.put(s.numbers.pristine)
        parameters = filled(
            struct("single/dataflow.cu", "Dataflow"), arena=self._arena, pristine=self._pristine, ops=io.put(s.ops),
            digits=io.put(s.digits), steps=io.put(s.steps), tasks=io.put(s.tasks), starts=io.put(s.starts),
            known=io.put(s.known), weights=io.device_weights, roots=io.put(s.roots),
            posterior=kernels.device_address(io.posterior), root=kernels.device_address(io.root), sign=0,
            n_roots=len(self.plan.root_table), state=0,
        )  # fmt: skip
        arguments = Arguments(parameters)
        kept = arguments.kept(0)[0]
        self._run_sign: NDArray[np.uint32] = arguments.kept(0)["sign"]
        self._state: NDArray[np.int16] = kept["state"][: s.n_states]
        self._launch = kernels.ready("dataflow", (s.n_blocks, 32 * MAX_WARPS), io.stream, arguments, together=True)

    @property
    def nanoseconds(self) -> int:
        return round(1000 * self.schedule.microseconds)

    @property
    def n_bytes(self) -> int:
        return self.io.memory.n_bytes

    @property
    def log_least_root(self) -> float:
        return math.log(self._numbers.least_root)

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
                self.queue()
                io.stream.synchronize()
            if io.least_root() < self._numbers.least_root:
                return None
            shift += self._numbers.exponent
            return Result(io.posterior.copy(), log_evidence(io.root, io.exponent, shift))

    def queue(self) -> None:
        """Queue one run. Entries have the other sign than in the run before: with the same sign, entries of that run
        would pass for this one's."""
        if not self._is_clean:
            self._initialise_arena()
        self._is_clean = False
        self._run_sign[0] = self._sign ^ 0x80000000
        self._launch()
        self._sign ^= 0x80000000
        self._is_clean = True

    def _initialise_arena(self) -> None:
        """Write the arena as it is before the first run."""
        cells = np.zeros(self.schedule.n_cells)
        cells[: len(self._numbers.arena)] = self._numbers.arena
        self.io.upload((self._arena, cells))
        self._sign = 0

    def measure(self, runs: int, cases: Sequence[Evidence]) -> list[float]:
        io = self.io

        def write(case: Evidence) -> None:
            write_evidence(case, self._weight_cell, self._state, io.weights)
            io.upload_weights()

        return device_times(io, runs, cases, write, self.queue)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """See `CaseEngine.reload`; not for restricted factors.

        If doubles without scaling are not reliable for these numbers, no answer is from then on.
        """
        with self.io.lock:
            self.io.check_open()
            self._numbers = make_numbers(self.plan, self.schedule, factors)
            self._is_clean = False
            with self.device.active():
                self.io.upload((self._pristine, self._numbers.pristine))

    def close(self) -> None:
        with self.io.lock:
            if self.io.is_open:
                self.io.is_open = False
                with self.device.active():
                    self.io.stream.synchronize()
                    self.io.release()
