"""One case at a time as one kernel, all of whose warps are on the device at once: cuda/single/dataflow.cu."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....device.context import Device
from ....device.driver import After, Arguments, Kernels
from ....device.structs import filled, struct
from ....plans.plan import Plan
from ..case import CaseEngine
from .graph import RestrictedFactors
from .schedule import DataflowNumbers, DataflowSchedule, make_numbers
from .tiling import MAX_WARPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

class DataflowEngine(CaseEngine):
    """The engine of networks of many contractions that wait for each other."""
    # schedule: Of the plan
    # restricted: If the plan is one of the unobserved variables: what the schedule was made with. Cases are then given
    #     in the network's own variables, and answers have zeros for the observed ones.
    # raises BackendUnavailable: On a GPU, or a share of one, that cannot hold all blocks at once.

    kind = "dataflow"

    def __init__(
        self,
        plan: Plan,
        schedule: DataflowSchedule,
        device: Device,
        after: After | None = None,
        restricted: RestrictedFactors | None = None,
    ):
        self.schedule = schedule
        self._numbers: DataflowNumbers = schedule.numbers
        self.shift = schedule.numbers.exponent
        self._sign, self._unobserved = 0, -1
        self._is_clean = False  # False after an interrupt that came where it is unknown if a run was queued
        ptr, weight_cell = plan.posterior_ptr, plan.posterior_ptr[:-1].tolist()
        if restricted is not None:
            self._unobserved = 0  # states that every variable may have
            ptr, cells = restricted.posterior_ptr, np.full(len(restricted.observed), -1)
            cells[restricted.free] = weight_cell
            weight_cell = cells.tolist()
        super().__init__(plan, device, after, weight_cell, int(ptr[-1]))

    def _load(self) -> None:
        s = self.schedule
        self._kernels = kernels = Kernels(self.device, "single/dataflow", ["dataflow"])
        self._arena = self.memory.empty(8 * s.n_cells)
        self._pristine = self.put(s.numbers.pristine)
        parameters = filled(
            struct("single/dataflow.cu", "Dataflow"), arena=self._arena, pristine=self._pristine, ops=self.put(s.ops),
            digits=self.put(s.digits), steps=self.put(s.steps), tasks=self.put(s.tasks), starts=self.put(s.starts),
            known=self.put(s.known), weights=self._device_weights, roots=self.put(s.roots),
            posterior=kernels.device_address(self.posterior), root=kernels.device_address(self.root), sign=0,
            n_roots=len(self.plan.root_table), state=0,
        )  # fmt: skip
        arguments = Arguments(parameters)
        kept = arguments.kept(0)[0]
        self._run_sign: NDArray[np.uint32] = arguments.kept(0)["sign"]
        self._state: NDArray[np.int16] = kept["state"][: s.n_states]
        self._launch = kernels.ready("dataflow", (s.n_blocks, 32 * MAX_WARPS), self.stream, arguments, together=True)
        self._state[:] = self._unobserved
        self.queue()  # fails here, and not at the first case, if the device cannot hold all blocks
        self.stream.synchronize()

    @property
    def nanoseconds(self) -> int:
        return round(1000 * self.schedule.microseconds)

    @property
    def log_least_root(self) -> float:
        return math.log(self._numbers.least_root)

    def _is_right(self) -> bool:
        # there is often one component, for which NumPy's minimum would take microseconds
        return not min(self.root.tolist(), default=1.0) < self._numbers.least_root

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
        self.upload((self._arena, cells))
        self._sign = 0

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """See `CaseEngine.reload`; not for restricted factors.

        If doubles without scaling are not reliable for these numbers, no answer is from then on.
        """
        with self.lock:
            self.check_open()
            self._numbers = make_numbers(self.plan, self.schedule, factors)
            self.shift = self._numbers.exponent
            self._is_clean = False
            with self.device.active():
                self.upload((self._pristine, self._numbers.pristine))
