"""An evidence pattern's own engine without levels: a plan without the observed variables, run by `flow.cu`.

A unit that brings evidence into a factor begins where the observed states say, in the factor as it is kept whole
(`jtgpu.backends.gpu.cut_engine.Whole`); every factor that is cut has such units, others as in
`jtgpu.backends.gpu.flow_engine`. The states are those of the network's own variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...plan import Plan
from ..base import Evidence
from ..device import Device
from .cut_engine import Whole, left_of
from .engine import CaseEngine
from .flow import Flow
from .flow_engine import FlowEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CutFlow"]


class CutFlow(FlowEngine):
    """Cases that observe the same variables; asked with the network's own evidence, answers for the variables left.

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
        self._kept = np.flatnonzero(~whole.seen)
        self._number = {int(v): w for w, v in enumerate(self._kept)}
        self._observed: NDArray[np.int32] = np.zeros(len(whole.seen), np.int32)
        super().__init__(plan, flow, device, second)

    def write(self, evidence: Evidence) -> int:
        """See `CaseEngine.write`."""
        self._observed = evidence.state
        return super().write(left_of(evidence, self._kept, self._number))

    def _give(self) -> None:
        self._given[:] = self._observed
        self._given[self._kept] = self._state
