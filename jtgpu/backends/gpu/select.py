"""Which engine answers single cases: by name, or by a time model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import BackendUnavailable, JtgpuError
from ...plans.lowering import relowered
from ...plans.plan import Plan
from ...util.arguments import report
from .case import CaseEngine
from .dataflow.engine import DataflowEngine
from .dataflow.graph import RestrictedFactors
from .dataflow.schedule import DataflowSchedule, make_schedule
from .host import Host
from .levels.engine import LevelEngine
from .levels.schedule import make_schedule as make_level_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.context import Device
    from ...device.driver import After

ENGINES = ("dataflow", "levels")
MAX_GROWTH, SMALL_BYTES = 1.5, 1 << 28  # how much larger a balanced plan may be than the plan; or its bytes
LEVELS_US = (8.0, 2.4, 0.6e-6)  # microseconds on an H100 of a kernel a level: in all, a level, an operation
DATAFLOW_CAPABILITY = (7, 0)  # warps of a block that make progress independently


RestrictedSchedule = tuple[Plan, RestrictedFactors, DataflowSchedule]


class EngineMaker:
    """Makes engines for one plan on one device."""
    # after: A stream of the user whose work precedes every case

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: Device,
        after: After | None = None,
    ):
        self.plan, self.factors, self.device, self.after = plan, factors, device, after
        self.host = Host(plan, factors)

    def chosen(self, engine: str | None = None) -> CaseEngine:
        """The engine of this name, or the one that should be quickest."""
        # raises JtgpuError: If the network or the GPU does not support the named engine.
        report("preparing the GPU engine")
        plan = self._balanced()
        if engine != "levels":
            try:
                return self._dataflow(plan)
            except (BackendUnavailable, _Unsupported):  # a share of a GPU may hold too few blocks at once
                if engine is not None:
                    raise
        return self._levels(plan)

    def fallback(self) -> LevelEngine:
        """The engine for numbers for which doubles without scaling are not reliable."""
        return self._levels(self.plan)

    def _dataflow(self, plan: Plan) -> DataflowEngine:
        made = None
        if self.device.capability >= DATAFLOW_CAPABILITY:
            made = make_schedule(plan, self.factors, self.device.multiprocessors)
        if made is None:
            raise _Unsupported("the dataflow engine supports neither this network on this GPU nor its numbers")
        return DataflowEngine(plan, made, self.device, self.after)

    def _levels(self, plan: Plan) -> LevelEngine:
        schedule = make_level_schedule(plan, self.device.multiprocessors)
        return LevelEngine(plan, self.factors, schedule, self.device, self.after, self.host)

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Make engines of these numbers from now on."""
        self.factors = list(factors)
        self.host.reload(factors)

    def restricted_schedule(
        self, plans: Sequence[Plan], observed: NDArray[np.bool_]
    ) -> RestrictedSchedule | None:
        """The quickest schedule by the time model for cases that observe these variables; None if there is none."""
        # plans: sequence of Plan: Of the unobserved variables
        # observed: (V,) bool
        schedules: list[RestrictedSchedule] = []
        for plan in [*plans, *map(relowered, plans)]:
            restricted = RestrictedFactors(plan, self.factors, self.plan.factor_scopes, observed)
            made = make_schedule(plan, restricted.largest, self.device.multiprocessors, restricted=restricted)
            if made is not None:
                schedules.append((plan, restricted, made))
        return min(schedules, key=lambda x: x[2].microseconds, default=None)

    def restricted(self, made: RestrictedSchedule) -> DataflowEngine:
        """The engine of a restricted schedule."""
        plan, restricted, schedule = made
        return DataflowEngine(plan, schedule, self.device, self.after, restricted)

    def _balanced(self) -> Plan:
        """The plan, or the one of fewer levels where that should be quicker."""
        other = relowered(self.plan)
        fits = other.cost().bytes <= max(MAX_GROWTH * self.plan.cost().bytes, SMALL_BYTES)
        return other if fits and levels_microseconds(other) < levels_microseconds(self.plan) else self.plan


class _Unsupported(JtgpuError):
    """A network, or a GPU, that the dataflow engine does not support."""


def levels_microseconds(plan: Plan) -> float:
    """Roughly what a plan takes as a kernel a level."""
    start, level, operation = LEVELS_US
    return start + level * plan.cost().program_levels + operation * plan.cost().flops
