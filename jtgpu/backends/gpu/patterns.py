"""Evidence patterns on a GPU: cases that observe the same variables get an engine without those variables.

A plan without the observed variables reads smaller tables. A case brings in all its numbers, so an engine for the
unobserved variables alone selects the part of each factor that belongs to the observed states. Which engine is
quicker is measured, since a plan without the observed variables may have more levels than the default one: the time
of a whole call, since that is what users wait for. The time model decides only which engines are worth making, and
counts what cases have cost, so that the same query of a sequence is always the first that a pattern's engine answers.
"""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...errors import BackendUnavailable, ImpossibleEvidence, TableTooLarge
from ...plans.conditioning import Restriction
from ..base import Backend, Evidence, PlainSession, Result, Session, Table
from ..reference import exponents_of
from ..wrappers.pattern import Pattern, PatternBackend
from ..wrappers.pattern_cache import PatternCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.context import Device
    from ...plans.plan import Plan
    from ..state_map import StateMap
    from .backend import Gpu
    from .case import CaseEngine
    from .select import RestrictedSchedule

A = TypeVar("A")

# Nanoseconds that an engine of a pattern costs, measured on one core: planning, for each variable; laying out, for each
# contraction of the default plan; and at least.
PLANNING, BUILDING, STARTING = 1_000_000, 1_500_000, 200_000_000
MIN_CASE = 45_000  # predicted nanoseconds of a case below which patterns are not counted
PREDICTED_SHARE = 0.9  # of the default engine's predicted time that another may take at most, or it is not made
CALL_SHARE = 0.95  # of the default engine's measured call that another's call may take at most
CALLS = 31  # of each engine, alternating, of which the medians are compared


class RestrictedBackend(Backend):
    """`jtgpu.backends.wrappers.pattern.PatternBackend` on a GPU: an engine of the unobserved variables."""
    # observed: (V,) bool
    # default: Answers cases for which the engine is not reliable
    # engine: Takes cases in the network's variables and leaves zeros for the observed ones; closed with this one
    # posterior_ptr: (V+1,) int64: First cell of each variable in an answer

    def __init__(
        self, observed: NDArray[np.bool_], default: Gpu, engine: CaseEngine, posterior_ptr: NDArray[np.int64]
    ):
        self.observed, self.engine, self._default, self._ptr = observed, engine, default, posterior_ptr
        self._hard = np.flatnonzero(observed)
        self._hard_cells = posterior_ptr[self._hard]

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) first cell of each variable in an answer."""
        return self._ptr

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        """See `Backend.run_case`; computes every variable whatever the targets."""
        result = self.try_run(evidence)
        return self._default.run_case(evidence) if result is None else result

    def try_run(self, evidence: Evidence) -> Result | None:
        if exponents_of(evidence):
            return None
        shift = 0.0
        for v, weights in evidence.likelihood.items():
            if self.observed[v]:
                weight = float(weights[evidence.state[v]])
                if not weight > 0:
                    raise ImpossibleEvidence("the evidence has probability 0")
                shift += math.log(weight)
        result = self.engine.run(evidence)
        if result is None:
            return None
        result.posterior[self._hard_cells + evidence.state[self._hard]] = 1.0
        return Result(result.posterior, result.log_evidence + shift) if shift else result

    def pattern_work(self, targets: Sequence[int] | None = None) -> int:
        """Predicted device nanoseconds of a case."""
        return self.engine.nanoseconds

    def pattern_memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes on the device."""
        return self.engine.n_bytes

    def close(self) -> None:
        """Free the device's memory."""
        self.engine.close()


class GpuPatternCache(PatternCache):
    """`jtgpu.backends.wrappers.pattern_cache.PatternCache` around a `Gpu`, for single cases and sessions."""
    # backend: Of the plan and the factors; closed with this one

    background = True

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: Gpu):
        super().__init__(plan, factors, backend)
        self.gpu = backend
        self._is_quick: bool | None = None  # whether a case by the default engine takes less than MIN_CASE

    def planning_cost(self) -> int:
        return PLANNING * self._plan.n_variables + BUILDING * len(self._plan.op_out) + STARTING

    def min_cost(self) -> int:
        return MIN_CASE

    def make(self, seen: NDArray[np.bool_]) -> RestrictedBackend:
        """See `PatternCache.make`, however quick it is."""
        # raises BackendUnavailable: If there is no dataflow engine for the unobserved variables.
        made = self.schedule(seen)
        if made is None:
            raise BackendUnavailable("the dataflow engine does not support what is left of the network")
        return self.backend_of(seen, made)

    def schedule(self, seen: NDArray[np.bool_]) -> RestrictedSchedule | None:
        """Plan for the unobserved variables and assign the work; None if the dataflow engine does not support it."""
        restriction = Restriction(self._plan.cardinality, self._plan.factor_scopes, seen)
        plans = restriction.plans(self._plan.elimination_order.tolist())
        return self.gpu.maker.restricted_schedule(plans, seen)

    def backend_of(self, seen: NDArray[np.bool_], made: RestrictedSchedule) -> RestrictedBackend:
        """The backend of a schedule."""
        return RestrictedBackend(seen, self.gpu, self.gpu.maker.restricted(made), self._plan.posterior_ptr)

    def improve(
        self, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int
    ) -> tuple[PatternBackend | None, str]:
        """See `PatternCache.improve`: an engine whose calls were measured to be quicker."""
        new, reason = self._improve(seen, work)
        which = "the usual engine" if new is None else "an engine of its own"
        logging.getLogger("jtgpu").info("an evidence pattern has %s: %s", which, reason)
        return new, reason

    def _improve(self, seen: NDArray[np.bool_], work: int) -> tuple[RestrictedBackend | None, str]:
        if self.gpu.kind != "dataflow":
            return None, "the usual engine runs a kernel a level"
        if seen.all():
            return None, "every variable is observed"
        made = self.schedule(seen)
        if made is None:
            return None, "the dataflow engine does not support what is left of the network"
        predicted = made[-1].microseconds
        if 1e3 * predicted > PREDICTED_SHARE * work:
            return None, f"{predicted:.1f} us predicted, {work / 1e3:.1f} us for the usual engine"
        try:
            new = self.backend_of(seen, made)
        except (BackendUnavailable, TableTooLarge) as error:  # a GPU, or a share of one, that is too small
            return None, str(error)
        try:
            case = Evidence(np.where(seen, 0, -1).astype(np.int32))
            default_us, new_us = call_microseconds(case, self.gpu.engine.run, new.try_run)
        except BaseException:
            new.close()
            raise
        reason = f"{new_us:.1f} us a call, {default_us:.1f} us by the usual engine"
        if new_us > CALL_SHARE * default_us:
            new.close()
            return None, reason
        return new, reason

    def acquire(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, coming: int = 1) -> Pattern | None:
        """As `PatternCache.acquire`, of all targets, which an engine computes anyway."""
        if self._is_quick is None:  # the predicted time is that of every pattern: nothing is counted for quick cases
            self._is_quick = self.gpu.work(seen) < MIN_CASE
        return None if self._is_quick else super().acquire(seen, None, coming)

    def session(self) -> Session:
        """A plain one: every query is one launch, whatever changed."""
        return PlainSession(self)

    def run(self, table: Table[A]) -> A:
        """By the GPU: an engine of a pattern answers a row a launch."""
        return self.gpu.run(table)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self.gpu.device


def call_microseconds(case: Evidence, *calls: Callable[[Evidence], Result | None]) -> list[float]:
    """Median wall time of each of several calls of a case, in microseconds. They alternate, so that whatever else the
    machine does slows all of them."""
    times: list[list[float]] = [[] for _ in calls]
    for i in range(CALLS + 3):  # the first ones warm up
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            with contextlib.suppress(ImpossibleEvidence):
                call(case)
            if i >= 3:
                taken.append((time.perf_counter() - start) * 1e6)
    return [statistics.median(taken) for taken in times]
