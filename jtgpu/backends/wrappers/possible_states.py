"""A backend without a model's impossible states (`jtgpu.plans.reduction`), behind the interface of the whole model.

Observed states are renumbered, likelihoods lose the weights of impossible states, and answers get zeros for them. An
observation of an impossible state is evidence of probability zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plans.reduction import possible_states, restricted_plan
from ...util.system import new_lock
from ..base import Backend
from ..state_map import StateMap
from .delegating import DelegatingBackend
from .mapped import MappedBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ..base import Evidence, HeldCase
    from ..slices import SlicePasses

    Factors = Sequence[NDArray[np.float64]]
    Make = Callable[[Plan, Factors], Backend]
    States = Sequence[NDArray[np.bool_]]  # (card,) of each variable

LEAST_WORK = 200_000  # operations of a case from which impossible states are looked for
REQUIRED_GAIN = 0.9  # share of the work that may be left without them


def without_impossible_states(plan: Plan, factors: Factors, make: Make) -> Backend:
    """A backend that `make` makes: of the model without impossible states if that pays, else of the whole model."""
    if plan.cost().flops >= LEAST_WORK:
        possible = possible_states(plan.cardinality, plan.factor_scopes, factors)
        if possible is not None:
            smaller = restricted_plan(plan, np.array([states.sum() for states in possible], np.int64))
            if smaller.cost().flops <= REQUIRED_GAIN * plan.cost().flops:
                return PossibleStates(plan, smaller, factors, possible, make)
    return make(plan, factors)


def _restricted(plan: Plan, factors: Factors, possible: States) -> list[NDArray[np.float64]]:
    """The factors of the possible states; one without impossible states is not copied."""
    smaller = [not states.all() for states in possible]
    left = list(factors)
    for f, scope in enumerate(plan.factor_scopes):
        for axis, v in enumerate(scope):
            if smaller[v]:
                left[f] = left[f].compress(possible[v], axis=axis)
    return left


class PossibleStates(DelegatingBackend):
    """`Backend` of a model, around one of the model without impossible states. Thread-safe."""
    # smaller: The plan of these states
    # make: Makes another backend

    backend: MappedBackend

    def __init__(self, plan: Plan, smaller: Plan, factors: Factors, possible: States, make: Make):
        self._plan, self._possible, self._factors, self._make = plan, possible, factors, make
        self._whole: Backend | None = None
        self._lock = new_lock()
        super().__init__(self._mapped(smaller, factors))

    def _mapped(self, smaller: Plan, factors: Factors) -> MappedBackend:
        plan, inside = self._plan, [*self._possible]
        for scope in plan.sets:
            inside.append(reduce(np.logical_and.outer, [inside[v] for v in scope]).ravel())
        states = StateMap(
            np.arange(plan.n_variables + len(plan.sets)), plan.cards_with_sets,
            np.concatenate([np.zeros(0, np.bool_), *inside]), n_sets=len(plan.sets),
        )  # fmt: skip
        made = self._make(smaller, _restricted(plan, factors, self._possible))
        return MappedBackend(states, made, plan.factor_scopes)

    def hold_case(self, evidence: Evidence, targets: Sequence[int]) -> HeldCase:
        return self.backend.hold_case(evidence, targets)

    def slices(self, *plan: Any) -> SlicePasses | None:
        with self._lock:
            if self._whole is None:
                self._whole = self._make(self._plan, self._factors)
            return self._whole.slices(*plan)

    def reload(self, factors: Factors) -> None:
        possible = possible_states(self._plan.cardinality, self._plan.factor_scopes, factors)
        more = possible is None or any((new & ~old).any() for new, old in zip(possible, self._possible, strict=True))
        if more and any(not states.all() for states in self._possible):
            self._possible = [np.ones(n, np.bool_) for n in self._plan.cardinality.tolist()]
            self.backend = self._mapped(self._plan, factors)  # the one before stays open for queries that run
        self.backend.reload(_restricted(self._plan, factors, self._possible))
        with self._lock:
            self._factors = factors
            if self._whole is not None:
                self._whole.reload(factors)

    def close(self) -> None:
        self.backend.close()
        with self._lock:
            if self._whole is not None:
                self._whole.close()
