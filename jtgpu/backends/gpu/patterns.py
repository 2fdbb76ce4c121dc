"""Engines for evidence patterns that recur, on the GPU.

Time models are right to some 20 %, and a plan of the restricted model may have more levels than the usual one, so the
faster engine is found by measuring. The models select the engines that are built at all, and count what cases have
cost, so that the same query starts the planning whatever is measured.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendUnavailable, ImpossibleEvidence, JtgpuError, TableTooLarge
from ...plans.conditioning.restriction import Restriction
from ..base import BackendDefaults, BatchResult, Evidence, PlainSession, Result, Session
from ..wrappers.pattern_cache import Pattern, PatternBackend, PatternCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.context import Device
    from ...plans.plan import Plan
    from ..base import ColumnResult
    from .backend import Gpu
    from .single.levels.engine import CaseEngine
    from .single.pattern_configs import CutWay

__all__ = ["GpuPatternCache", "RestrictedBackend"]

# Nanoseconds: what it takes to plan anew for each variable, to lay engines out for each contraction of the usual plan,
# and at least; measured on one core. A case of less than WORTH would not gain what the detour takes.
PLANNING, BUILDING, STARTING = 1_000_000, 1_500_000, 200_000_000
WORTH = 45_000
PROMISED = 0.9  # share of the best measured time up to now that a model must promise before an engine is made
UNMEASURED = 0.7  # and where nothing can be measured: of the model's time, for good
KEPT = 0.95  # share of the best engine's time up to now that another may take, both measured


class RestrictedBackend(BackendDefaults):
    """An engine of what is left, asked about the network's own variables: `jtgpu.backends.wrappers.pattern_cache.PatternBackend`.

    Parameters
    ----------
    restriction : Restriction
    engine : CaseEngine
        Brings the observed states in by itself, and leaves zeros for the observed variables; closed with this one.
    """

    def __init__(self, restriction: Restriction, engine: CaseEngine):
        self.restriction, self.engine = restriction, engine
        self._ptr = np.concatenate([[0], np.cumsum(restriction.cardinality)]).astype(np.int64)
        self._hard = np.flatnonzero(restriction.observed)
        self._hard_cells = self._ptr[self._hard]

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) where each variable's cells begin in an answer."""
        return self._ptr

    def run(
        self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None
    ) -> Result:
        """See `jtgpu.backends.wrappers.pattern_cache.PatternBackend.run`; answers every variable whatever the targets."""
        shift = 0.0
        for v, weights in evidence.likelihood.items():
            if self.restriction.observed[v]:
                weight = float(weights[evidence.state[v]])
                if not weight > 0:
                    raise ImpossibleEvidence("the evidence has probability 0")
                shift += math.log(weight)
        found = self.engine.run(evidence)
        found.posterior[self._hard_cells + evidence.state[self._hard]] = 1.0
        return Result(found.posterior, found.log_evidence + shift)

    def work(self, targets: Sequence[int] | None = None) -> int:
        """Nanoseconds of a case, by the time model."""
        return self.engine.nanoseconds

    def memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes on the card."""
        return self.engine.n_bytes

    def close(self) -> None:
        """Give the card's memory back."""
        self.engine.close()


class GpuPatternCache(PatternCache):
    """`jtgpu.backends.wrappers.pattern_cache.PatternCache` around a `jtgpu.backends.gpu.backend.Gpu`: single cases and sessions. Tables of cases are
    answered by the usual plan, which every pattern shares.

    Parameters
    ----------
    plan : Plan
    factors : sequence of arrays
    backend : Gpu
        Of the plan and the factors; closed with this one.
    """

    background = True

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: Gpu):
        super().__init__(plan, factors, backend)
        self.gpu = backend
        self._case: int | None = None  # nanoseconds of one, by the model
        self._usual: float | None = None  # measured, the least that was; None: not yet, or it cannot be
        self._measuring = threading.Lock()

    def planning_cost(self) -> int:
        """See `PatternCache.planning_cost`."""
        return PLANNING * self._plan.n_variables + BUILDING * len(self._plan.op_out) + STARTING

    def min_cost(self) -> int:
        """See `PatternCache.min_cost`."""
        return WORTH

    def ways(self, seen: NDArray[np.bool_]) -> Iterator[tuple[Restriction, CutWay]]:
        """Engines that could answer cases that observe these variables, (V,) bool; the most promising first."""
        restriction = Restriction(self._plan.cardinality, self._plan.factor_scopes, seen)
        plans = restriction.plans(self._plan.elimination_order.tolist())
        return ((restriction, way) for way in self.gpu.cut_ways(plans, seen))

    def make(self, seen: NDArray[np.bool_]) -> RestrictedBackend:
        """See `PatternCache.make`; whether it is worth having or not."""
        restriction, way = next(self.ways(seen))
        return RestrictedBackend(restriction, way.make())

    def improve(
        self, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int
    ) -> tuple[PatternBackend | None, str]:
        """See `PatternCache.improve`: an engine that was measured to be quicker."""
        with self._measuring:
            measured = self._timed(seen) if self._usual is None else self._usual
        if measured is not None and measured < WORTH:
            return None, f"{measured / 1e3:.1f} us by the usual engine"
        usual, share = (work, UNMEASURED) if measured is None else (measured, PROMISED)
        # what the model is wrong about this network's plan by it should be wrong about what is left of it, too
        wrong = {self.gpu.kind: usual / max(work, 1)}
        new, least = None, float(usual)
        told: list[str] = []
        try:
            for restriction, way in self.ways(seen):
                promised = way.nanoseconds * wrong.get(way.like, 1.0)
                if promised > share * least:
                    told.append(f"{way.kind}: {promised / 1e3:.1f} us promised for {least / 1e3:.1f} us")
                    continue
                try:
                    other = RestrictedBackend(restriction, way.make())
                except (BackendUnavailable, TableTooLarge) as error:  # a card, or a share of one, that is none for it
                    told.append(f"{way.kind}: {error}")
                    continue
                taken, why = self._compared(seen, other, new)
                told.append(f"{way.kind}: {why}")
                if taken is not None:
                    new, least = other, taken
        except BaseException:
            if new is not None:
                new.close()
            raise
        which = "the usual engine" if new is None else "an engine of its own"
        logging.getLogger("jtgpu").info("an evidence pattern has %s: %s", which, "; ".join(told))
        return new, "; ".join(told)

    def _compared(self, seen: NDArray[np.bool_], other: RestrictedBackend, best: RestrictedBackend | None) -> tuple[float | None, str]:
        """Nanoseconds of an engine that is quicker than the best one up to now, which is closed then, or than the usual
        one; None where it is not, and then it is closed. And what was found.

        Both are measured now: what else the card and this process do makes both slow.
        """
        try:
            with self._measuring:
                before = self._timed(seen, best.engine if best is not None else None)
                taken = self._timed(seen, other.engine)
        except BaseException:
            other.close()
            raise
        if before is None or taken is None:
            found, why = float(other.work()), f"{other.work() / 1e3:.1f} us by the time model, not measured"
        else:
            found, why = taken, f"{taken / 1e3:.1f} us for {before / 1e3:.1f} us"
            if taken > KEPT * before:
                other.close()
                return None, why
        if best is not None:
            best.close()
        return found, why

    def _timed(self, seen: NDArray[np.bool_], engine: CaseEngine | None = None) -> float | None:
        """Nanoseconds of a case, measured: by the usual engine, of which the least is kept, or by another one. None
        where that fails, for example since there is no nvcc for the kernel that it takes."""
        try:
            found = self.gpu.timed(seen, engine)
        except JtgpuError:
            return None
        if engine is None:
            self._usual = found if self._usual is None else min(self._usual, found)
        return found

    def acquire(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, coming: int = 1) -> Pattern | None:
        """See `PatternCache.acquire`; an engine answers for all targets."""
        if self._case is None:
            self._case = self.gpu.work(seen)
        return super().acquire(seen, None, coming) if self._case >= WORTH else None

    def session(self) -> Session:
        """See `jtgpu.backends.base.Backend.session`: every query is one graph launch, whatever changed."""
        return PlainSession(self)

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`."""
        return self.gpu.run_batch(states, likelihood, targets)

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        """See `jtgpu.backends.base.Backend.run_columns`."""
        return self.gpu.run_columns(variables, codes, targets)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self.gpu.device
