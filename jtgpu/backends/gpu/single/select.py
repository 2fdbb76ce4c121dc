"""Which engine answers single cases: by name, by a saved configuration, by a time model, or by measuring."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....errors import BackendUnavailable, JtgpuError
from ....plans.lowering import PRICE, relowered
from ....plans.plan import Plan
from ....util.progress import report
from ..program.layout import MIN_LOG2, smallest_entries
from .configs import Config, Trial, load_config, quickest, save_config
from .dataflow.engine import DataflowEngine
from .dataflow.restricted import RestrictedFactors
from .dataflow.schedule import Schedule, make_schedule
from .levels.engine import LevelEngine
from .levels.schedule import make_schedule as make_level_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....device.context import Device
    from ....device.driver import After
    from .case import CaseEngine

MAX_GROWTH, SMALL_BYTES = 1.5, 1 << 28  # how much larger a balanced plan may be than the plan; or its bytes
LEVELS_US = (8.0, 2.4, 0.6e-6)  # microseconds on an H100 of a kernel a level: in all, a level, an operation
DATAFLOW_CAPABILITY = (7, 0)  # warps of a block that make progress independently


RestrictedSchedule = tuple[Plan, RestrictedFactors, Schedule]


class EngineMaker:
    """Makes engines for one plan on one device."""
    # dtype: {"float64", "float32"}: float32 becomes float64 if it does not hold the factors' entries
    # after: A stream of the user whose work precedes every case

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: Device,
        dtype: str = "float64",
        after: After | None = None,
    ):
        self.plan, self.factors, self.device, self.dtype, self.after = plan, factors, device, dtype, after
        self._balanced: dict[float, Plan] = {0.0: plan}
        if dtype == "float32" and smallest_entries(factors).min(initial=0.0) < MIN_LOG2:
            self.dtype = "float64"

    def chosen(self, engine: str | None = None) -> CaseEngine:
        """The engine of this name, or the one of the saved configuration, or the one that should be quickest."""
        # raises JtgpuError: If the network or the GPU does not support the named engine.
        report("preparing the GPU engine")
        if self.dtype == "float32" or engine == "levels":
            return self.made(Config("levels", self._price()))
        if engine is not None:
            return self.made(Config(engine, self._price()))
        saved = load_config(self.device.name, self.plan, self.factors)
        for config in [*([saved] if saved is not None else []), Config("dataflow", self._price())]:
            # a saved configuration may be of a whole GPU where this is a share of one
            with contextlib.suppress(BackendUnavailable, _Unsupported):
                return self.made(config)
        return self.made(Config("levels", self._price()))

    def made(self, config: Config) -> CaseEngine:
        """The engine of a configuration."""
        # raises JtgpuError: If the network or the GPU does not support it.
        plan = self._lowered(config.price)
        if config.engine == "levels":
            schedule = make_level_schedule(plan, self.dtype, self.device.multiprocessors)
            return LevelEngine(plan, self.factors, schedule, self.device, self.after)
        made = None
        if self.device.capability >= DATAFLOW_CAPABILITY:
            made = make_schedule(plan, self.factors, self.device.multiprocessors, config.layout)
        if made is None:
            raise _Unsupported("the dataflow engine supports neither this network on this GPU nor its numbers")
        return DataflowEngine(plan, made, self.device, self.after)

    def fallback(self) -> LevelEngine:
        """The engine that gives a reliable answer to every case."""
        schedule = make_level_schedule(self.plan, "float64", self.device.multiprocessors)
        return LevelEngine(self.plan, self.factors, schedule, self.device, self.after)

    def restricted_schedule(
        self, plans: Sequence[Plan], observed: NDArray[np.bool_]
    ) -> RestrictedSchedule | None:
        """The quickest schedule by the time model for cases that observe these variables; None if there is none."""
        # plans: sequence of Plan: Of the unobserved variables
        # observed: (V,) bool
        found: list[RestrictedSchedule] = []
        for plan in [*plans, *map(relowered, plans)]:
            restricted = RestrictedFactors(plan, self.factors, self.plan.factor_scopes, observed)
            made = make_schedule(plan, restricted.largest, self.device.multiprocessors, restricted=restricted)
            if made is not None:
                found.append((plan, restricted, made))
        return min(found, key=lambda x: x[2].microseconds, default=None)

    def restricted(self, made: RestrictedSchedule) -> DataflowEngine:
        """The engine of a restricted schedule."""
        plan, restricted, schedule = made
        return DataflowEngine(plan, schedule, self.device, self.after, restricted)

    def tune(self) -> list[Trial]:
        """Measure which configuration is quickest, and save it; the trials, the quickest first."""
        # raises JtgpuError: If no engine supports the network.
        # raises OSError: If the configuration cannot be saved.
        found = quickest(self.made, self.plan.n_variables, report)
        if not found[0].microseconds < math.inf:
            raise JtgpuError(f"no engine can answer cases of this network on {self.device.name}")
        save_config(self.device.name, self.plan, self.factors, found)
        return found

    def _lowered(self, price: float) -> Plan:
        """The plan, or the one of fewer levels that a price gives."""
        if price not in self._balanced:
            self._balanced[price] = relowered(self.plan, price)
        return self._balanced[price]

    def _price(self) -> float:
        """The price of balancing with which the plan should be quicker; 0: as it is."""
        other = self._lowered(PRICE)
        fits = other.cost().bytes <= max(MAX_GROWTH * self.plan.cost().bytes, SMALL_BYTES)
        return PRICE if fits and levels_microseconds(other) < levels_microseconds(self.plan) else 0.0


class _Unsupported(JtgpuError):
    """A network, or a GPU, that the dataflow engine does not support."""


def levels_microseconds(plan: Plan) -> float:
    """Roughly what a plan takes as a kernel a level."""
    start, level, operation = LEVELS_US
    return start + level * plan.cost().program_levels + operation * plan.cost().flops


def tune(
    plan: Plan, factors: Sequence[NDArray[np.float64]], device: int | None = None
) -> tuple[str, list[Trial]]:
    """Name of a GPU, and the trials of `EngineMaker.tune` on it; see `NetworkPlan.tune`."""
    from ....device.context import open_device

    found = open_device(device)
    return found.name, EngineMaker(plan, factors, found).tune()
