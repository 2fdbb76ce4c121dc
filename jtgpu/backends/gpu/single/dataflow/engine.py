"""One case at a time without levels: one kernel, all of whose warps are on the card at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .....device.context import Device, Graph
from .....device.driver import Arguments, multiprocessors
from .....errors import BackendUnavailable, JtgpuError
from .....plans.plan import Plan
from ....base import Evidence, Result
from ..levels.engine import CaseEngine
from .schedule import FLOW_KERNELS, MOST_GIVEN, USUAL, Flow, FlowWay, make_flow
from .structs import TENSOR

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_FLOPS", "FlowEngine", "flow_engine", "levels_microseconds"]

MOST_FLOPS = 300_000_000  # operations of a propagation, from which on levels fill the card
LEVELS_US = (8.0, 2.4, 0.6e-6)  # microseconds of a kernel a level: in all, a level, an operation


class FlowEngine(CaseEngine):
    """For networks of many small contractions that wait for each other.

    Parameters
    ----------
    plan : Plan
    flow : Flow
    device : Device
    second : callable
        Makes the engine that answers cases whose P(e) is too small for unscaled doubles, or zero; called when the
        first of them comes.

    Raises
    ------
    BackendUnavailable
        On a card, or a share of one, that cannot hold all blocks at once.
    TableTooLarge
        When the card has not enough memory.
    """

    kind = "flow"
    file = "single/dataflow"
    names = FLOW_KERNELS
    first = -1  # state of all variables in the run that only shows that it can run

    def __init__(self, plan: Plan, flow: Flow, device: Device, second: Callable[[], CaseEngine]):
        self._flow = flow
        self._sign = 0
        self._torn = False  # whether an interrupt came where it is not known if a run was queued
        self._small = False  # whether the last case was too small
        super().__init__(plan, device, self._load, second)

    def _load(self) -> None:
        f, kernels, memory, stream = self._flow, self._kernels, self._memory, self.stream
        assert kernels is not None
        self._arena = arena = memory.empty(8 * f.n_cells)
        self._lay_out()
        at = kernels.device_address
        words = [arena, *(memory.put(x, stream) for x in (f.pristine, f.ops, f.digits, f.steps, f.tasks, f.starts))]
        words.append(memory.put(f.known, stream))
        self._d_weights = memory.empty(8 * int(self.plan.posterior_ptr[-1]))
        words += [self._d_weights, memory.put(f.roots, stream), at(self._posterior), at(self._root)]
        first = 8 * len(words)
        parameters = np.zeros(first + 8 + 2 * MOST_GIVEN, np.uint8)
        parameters[:first] = np.array(words, np.uint64).view(np.uint8)
        self._arguments = Arguments(parameters)
        kept = self._arguments.kept(0)
        self._numbers: NDArray[np.uint32] = kept[first : first + 8].view(np.uint32)
        self._numbers[1] = len(self.plan.root_table)
        self._given: NDArray[np.int16] = kept[first + 8 : first + 8 + 2 * f.n_given].view(np.int16)
        self._launch = kernels.ready(
            f.kernel, f.n_blocks, 32 * f.warps, stream, self._arguments, together=True
        )

    def _capture(self) -> Graph | None:
        self._given[:] = self.first
        self._start()  # fails here, not at the first case, where the card cannot hold all blocks
        self.stream.synchronize()
        return None

    def _lay_out(self) -> None:
        """The arena as it is before the first run."""
        cells = np.zeros(self._flow.n_cells)
        cells[: len(self._flow.arena)] = self._flow.arena
        self.device.upload(self._arena, cells, self.stream)
        self.stream.synchronize()
        self._sign = 0

    def _start(self) -> None:
        """One run: entries of the next have the other sign. A run with the sign of the one before would take that
        one's entries for its own."""
        if self._torn:
            self._lay_out()
        self._torn = True
        self._numbers[0] = self._sign ^ 0x80000000
        self._launch()
        self._sign ^= 0x80000000
        self._torn = False

    @property
    def uses_blocks(self) -> bool:
        """Whether some contraction runs on the tensor cores."""
        shapes = self._flow.ops["shape"]
        return bool(((shapes & TENSOR) > 0).any())

    @property
    def nanoseconds(self) -> int:
        """See `CaseEngine.nanoseconds`."""
        return round(1000 * self._flow.microseconds)

    def write(self, evidence: Evidence) -> int:
        """See `CaseEngine.write`."""
        more = super().write(evidence)
        self._give()
        return more + self._flow.exponent

    def _give(self) -> None:
        """Tell the next run the states."""
        self._given[:] = self._state

    def launch(self, evidence: Evidence) -> None:
        """See `CaseEngine.launch`; one kernel needs no graph."""
        if evidence.likelihood:
            self.device.upload(self._d_weights, self._weights, self.stream)
        self._start()

    def run(self, evidence: Evidence) -> Result:
        """See `CaseEngine.run`; after a case that was too small for this engine the other one is asked first."""
        if not self._small:
            return super().run(evidence)
        self._small = False
        found = self._other().run(evidence)
        self._small = found.log_evidence < math.log(self._flow.lowest)
        return found

    def trusted(self) -> bool:
        """See `CaseEngine.trusted`."""
        small = self._least_root() < self._flow.lowest
        self._small = small
        return not small


def levels_microseconds(plan: Plan) -> float:
    """What a kernel a level takes, without looking closely."""
    start, level, operation = LEVELS_US
    return start + level * plan.cost().program_levels + operation * plan.cost().flops


def flow_engine(
    plan: Plan,
    factors: Sequence[NDArray[np.float64]],
    device: Device,
    second: Callable[[], CaseEngine],
    *,
    forced: bool = False,
    way: FlowWay = USUAL,
) -> FlowEngine | None:
    """The engine without levels, where it can take the plan and should be quicker than a kernel a level.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
    device : Device
    second : callable
        See `FlowEngine`.
    forced : bool
        Whether quicker or not.
    way : FlowWay
        How the work is laid out.

    Raises
    ------
    JtgpuError
        When it is forced and cannot take the plan.
    """
    if device.capability >= (7, 0) and (forced or plan.cost().flops <= MOST_FLOPS):
        flow = make_flow(plan, factors, multiprocessors(device), way)
        if flow and (forced or flow.microseconds < levels_microseconds(plan)):
            try:
                return FlowEngine(plan, flow, device, second)
            except BackendUnavailable:  # a card, or a share of one, that cannot hold so many blocks together
                if forced:
                    raise
    if forced:
        raise JtgpuError("this network, or this card, is none for the GPU engine without levels")
    return None
