"""An evidence pattern's own engine without levels: a plan without the observed variables, run by `flow.cu`.

A unit that brings evidence into a factor begins where the observed states say, in the factor as it is kept whole
(`jtgpu.backends.gpu.single.levels.pattern.Whole`); every factor that is cut has such units, others as in
`jtgpu.backends.gpu.single.dataflow.engine`. The states are those of the network's own variables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .....device.context import Device
from .....plans.plan import Plan
from ....base import Evidence
from ...program.encoding import WEIGHTS
from ..levels.engine import CaseEngine
from ..levels.pattern import Whole, left_of
from .engine import FlowEngine
from .schedule import Flow

__all__ = ["CutFlow"]


class CutFlow(FlowEngine):
    """Cases that observe the same variables; asked with the network's own evidence. Its answers have zeros where the
    observed variables' would be.

    Parameters
    ----------
    plan : Plan
        Of what is left.
    whole : Whole
    flow : Flow
        Of the plan, made with `whole`.
    device : Device
    second : callable
        See `FlowEngine`; makes one that takes the network's own evidence, too.
    """

    kind = "cut flow"
    first = 0  # a state that every variable has

    def __init__(
        self, plan: Plan, whole: Whole, flow: Flow, device: Device, second: Callable[[], CaseEngine]
    ):
        self._whole = whole
        self._kept = np.flatnonzero(~whole.seen)
        self._number = {int(v): w for w, v in enumerate(self._kept)}
        self._asked_with = Evidence.none(len(whole.seen))
        super().__init__(plan, flow, device, second)

    def _answer_cells(self) -> int:
        return int(self._whole.posterior_ptr[-1])

    def write(self, evidence: Evidence) -> int:
        """See `CaseEngine.write`."""
        self._asked_with = evidence
        return super().write(left_of(evidence, self._kept, self._number))

    def _give(self) -> None:
        self._given[:] = self._asked_with.state
        for v in self._asked_with.likelihood:
            if v in self._number:
                self._given[v] = WEIGHTS
