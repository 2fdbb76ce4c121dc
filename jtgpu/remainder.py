"""What is left of a network where some variables are observed in every case: the others, and a part of each factor.

An observed variable is no axis of anything any more. A factor is cut to the observed states; which states these are
differs from case to case, so the numbers do, but the shapes, and so a plan, depend on which variables are observed.
On a GPU, where the numbers are brought in anew for every case anyway.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .backends.base import BatchResult, CaseByCase, Evidence, PlainSession, Result, Session, columns_of
from .errors import ImpossibleEvidence, TableTooLarge
from .replanned import OfPattern, Pattern, Replanning

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .backends.base import ColumnResult
    from .backends.device import Device
    from .backends.gpu import Gpu
    from .backends.gpu.engine import CaseEngine
    from .plan import Plan

__all__ = ["GpuReplanning", "OnGpu", "Remainder"]

# Nanoseconds: what it takes to plan anew for each variable, to make an engine for each contraction of the usual plan,
# and at least; measured on one core. A case of less than WORTH would not gain what the detour takes.
PLANNING, BUILDING, STARTING = 1_000_000, 400_000, 200_000_000
WORTH = 45_000
GAIN = 0.7  # the time model is right to some 20 %
LEVEL = 2_000_000  # multiplications and additions that a card does while a level is handed over


class Remainder:
    """Which variables are left, and what of each factor.

    Parameters
    ----------
    cardinality : (V,) int64
    scopes : sequence of sequences of int
        Of the factors.
    seen : (V,) bool
        What is observed in every case.

    Attributes
    ----------
    kept : (W,) int64
        The variables that are left, ascending; number w of what is left is variable ``kept[w]``.
    scopes : list of list of int
        Of the factors, in numbers of what is left.
    """

    def __init__(self, cardinality: NDArray[np.int64], scopes: Sequence[Sequence[int]], seen: NDArray[np.bool_]):
        self.cardinality, self.seen = cardinality, seen
        self.kept = np.flatnonzero(~seen)
        number = {v: w for w, v in enumerate(self.kept.tolist())}
        self.scopes = [[number[v] for v in scope if not seen[v]] for scope in scopes]

    def plan(self, order: Sequence[int]) -> Plan:
        """A plan for what is left: of an order of its own, or of the one that the network has, which may be the less
        deep. Raises as `jtgpu.compiler.make_plan` does.

        Parameters
        ----------
        order : (V,) ints
            The network's elimination order.
        """
        from .network import Factor, MarkovNetwork

        cards = self.cardinality[self.kept].tolist()
        states = {str(w): list(map(str, range(n))) for w, n in enumerate(cards)}
        factors = [Factor(tuple(s), np.broadcast_to(1.0, [cards[w] for w in s])) for s in self.scopes]
        model = MarkovNetwork.of_checked(states, factors)
        number = {v: w for w, v in enumerate(self.kept.tolist())}
        made: list[Plan] = [model.plan(cache=False).plan]
        with contextlib.suppress(TableTooLarge):
            made.append(model.plan([number[v] for v in order if v in number]).plan)
        return min(made, key=lambda p: LEVEL * p.cost().program_levels + p.cost().flops)


class OnGpu(CaseByCase):
    """An engine of what is left, asked about the network's own variables: `jtgpu.replanned.OfPattern`.

    Parameters
    ----------
    remainder : Remainder
    engine : CaseEngine
        Brings the observed states in by itself; closed with this one.
    """

    def __init__(self, remainder: Remainder, engine: CaseEngine):
        self.remainder, self.engine = remainder, engine
        self._ptr = np.concatenate([[0], np.cumsum(remainder.cardinality)]).astype(np.int64)
        self._cells = columns_of(self._ptr, remainder.kept.tolist())
        self._hard = np.flatnonzero(remainder.seen)
        self._hard_cells = self._ptr[self._hard]

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) where each variable's cells begin in an answer."""
        return self._ptr

    def run(
        self, evidence: Evidence, targets: Sequence[int] | None = None, session: Session | None = None
    ) -> Result:
        """See `jtgpu.replanned.OfPattern.run`; answers every variable whatever the targets."""
        shift = 0.0
        for v, weights in evidence.likelihood.items():
            if self.remainder.seen[v]:
                weight = float(weights[evidence.state[v]])
                if not weight > 0:
                    raise ImpossibleEvidence("the evidence has probability 0")
                shift += math.log(weight)
        found = self.engine.run(evidence)
        posterior = np.zeros(int(self._ptr[-1]))
        posterior[self._cells] = found.posterior
        posterior[self._hard_cells + evidence.state[self._hard]] = 1.0
        return Result(posterior, found.log_evidence + shift)

    def work(self, targets: Sequence[int] | None = None) -> int:
        """Nanoseconds of a case, by the time model."""
        return self.engine.nanoseconds

    def memory(self, targets: Sequence[int] | None = None) -> int:
        """Bytes on the card."""
        return self.engine.n_bytes

    def close(self) -> None:
        """Give the card's memory back."""
        self.engine.close()


class GpuReplanning(Replanning):
    """`jtgpu.replanned.Replanning` around a `jtgpu.backends.gpu.Gpu`: single cases and sessions. Tables of cases are
    answered by the usual plan, which every pattern shares.

    Parameters
    ----------
    plan : Plan
    factors : sequence of arrays
    backend : Gpu
        Of the plan and the factors; closed with this one.
    """

    beside = True

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: Gpu):
        super().__init__(plan, factors, backend)
        self.gpu = backend
        self._case: int | None = None  # nanoseconds of one

    def planning_cost(self) -> int:
        """See `Replanning.planning_cost`."""
        return PLANNING * self._plan.n_variables + BUILDING * len(self._plan.op_out) + STARTING

    def worth(self) -> int:
        """See `Replanning.worth`."""
        return WORTH

    def gain(self) -> float:
        """See `Replanning.gain`."""
        return GAIN

    def make(self, seen: NDArray[np.bool_]) -> OfPattern:
        """See `Replanning.make`."""
        remainder = Remainder(self._plan.cardinality, self._plan.factor_scopes, seen)
        return OnGpu(remainder, self.gpu.without(remainder.plan(self._plan.elimination_order.tolist()), seen))

    def find(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, coming: int = 1) -> Pattern | None:
        """See `Replanning.find`; an engine answers for all targets."""
        if self._case is None:
            self._case = self.gpu.work(seen)
        return super().find(seen, None, coming) if self._case >= WORTH else None

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
        """See `jtgpu.backends.base.ColumnBackend.run_columns`."""
        return self.gpu.run_columns(variables, codes, targets)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self.gpu.device
