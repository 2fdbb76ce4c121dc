"""A backend whose factors have no weights for each cell: queries with likelihoods or joints of sets run on another one.

On a GPU that is one of an extended plan, in which each set variable is an ordinary variable with a factor of zeros and
ones: 1 where its state is the configuration of the set. All kernels then serve sets too, at the price of tables that
have the square of a set's cells. Larger sets, and other backends, go to the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...errors import BackendUnavailable
from ...plans.clique_tree import interaction_graph
from ...plans.compiler import build_plan
from ...plans.plan import Plan
from ...util.system import new_lock
from ..base import Backend, Evidence, Result
from ..table import COUNTS, ON_DEVICE, CountSums, DeviceCases, RowCases, Table
from .delegating import DelegatingBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..base import Session
    from ..slices import SlicePasses
    from ..state_map import StateMap

    Factors = Sequence[NDArray[np.float64]]

A = TypeVar("A")
MOST_CELLS = 64  # of a set whose extended factor stays small


def is_extensible(plan: Plan) -> bool:
    """Whether all sets of a plan are small enough for `extended`."""
    return max(plan.size(scope) for scope in plan.sets) <= MOST_CELLS


def extended(plan: Plan) -> Plan:
    """The plan with set variables as ordinary variables, each in one factor with the variables of its set."""
    n, n_own = plan.n_variables, plan.n_factors - len(plan.sets)
    scopes = [*plan.factor_scopes[:n_own], *((*scope, n + i) for i, scope in enumerate(plan.sets))]
    cards = plan.cards_with_sets
    order = [*range(n, len(cards)), *plan.elimination_order.tolist()]
    return build_plan(cards, scopes, interaction_graph(len(cards), scopes), order)


def extended_factors(plan: Plan, factors: Factors) -> list[NDArray[np.float64]]:
    """The factors of the extended plan."""
    n_own = plan.n_factors - len(plan.sets)
    ones = [np.eye(f.size).reshape(*f.shape, f.size) for f in factors[n_own:]]
    return [*factors[:n_own], *ones]


class SetFallback(DelegatingBackend):
    """`Backend` of a plan with sets, around one of the plan without them. Thread-safe."""
    # plan: With sets
    # factors: Of the plan, ones for the sets
    # prepare: Makes the other backend, of the plan and these factors or, if `is_extended`, of the extended ones

    def __init__(
        self, backend: Backend, plan: Plan, factors: Factors, prepare: Callable[[Plan, Factors], Backend],
        is_extended: bool,
    ):  # fmt: skip
        super().__init__(backend)
        self._plan, self._factors, self._prepare, self._is_extended = plan, factors, prepare, is_extended
        self._other: Backend | None = None
        self._lock = new_lock()

    def takes(self, likelihood: Iterable[int] | None, targets: Iterable[int] | None) -> bool:
        """Whether the wrapped backend answers a query: it has no sets."""
        return all(v < self._plan.n_variables for v in (*(likelihood or ()), *(targets or ())))

    def other(self) -> Backend:
        """The backend for sets, made on first use."""
        with self._lock:
            if self._other is None:
                plan = extended(self._plan) if self._is_extended else self._plan
                self._other = self._prepare(plan, self._own(self._factors))
            return self._other

    def _own(self, factors: Factors) -> Factors:
        return extended_factors(self._plan, factors) if self._is_extended else factors

    def _states(self, states: NDArray[Any]) -> NDArray[Any]:
        """States as the other backend takes them: set variables are not observed."""
        if not self._is_extended:
            return states
        missing = np.full((*states.shape[:-1], len(self._plan.sets)), -1, states.dtype)
        return np.concatenate([states, missing], axis=-1)

    def _targets(self, targets: Sequence[int] | None) -> Sequence[int]:
        return range(self._plan.n_variables) if targets is None else targets

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) first cell of each variable in a result."""
        return self._plan.posterior_ptr

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        if self.takes(evidence.likelihood, targets):
            return self.backend.run_case(evidence, targets)
        case = Evidence(self._states(evidence.state), evidence.likelihood)
        return self.other().run_case(case, self._targets(targets))

    def run(self, table: Table[A]) -> A:
        if self.takes(table.likelihood, table.targets):
            return self.backend.run(table)
        if table.deliver is ON_DEVICE:
            self._check_on_device(table)
        answer: Any = self.other().run(self._widened(table))
        if table.deliver is not COUNTS or not self._is_extended:
            return cast("A", answer)
        n_own = self._plan.n_factors - len(self._plan.sets)
        families = list(answer.families[:n_own])
        for cells in answer.families[n_own:]:
            n = cells.shape[-1]
            families.append(np.diagonal(cells.reshape(n, n)).reshape(cells.shape[:-1]).copy())
        return cast("A", answer._replace(families=families))

    def _widened(self, table: Table[A]) -> Table[A]:
        """The table as the other backend takes it: set variables are not observed."""
        if table.deliver is not COUNTS:
            table = table._replace(targets=self._targets(table.targets))
        return table._replace(feed=RowCases(self._states(table.feed.rows()))) if self._is_extended else table

    def _check_on_device(self, table: Table[Any]) -> None:
        if not self._is_extended:
            raise BackendUnavailable(
                f"answers with likelihoods or joints of several variables stay on a device only on a GPU, and for sets "
                f"of up to {MOST_CELLS} configurations; use posteriors_batch"
            )
        if isinstance(table.feed, DeviceCases):
            raise BackendUnavailable(
                "with likelihoods or joints of several variables, cases on a device are not read; pass an array"
            )

    def hold(self, table: Table[CountSums]) -> Table[CountSums]:
        return self.backend.hold(table) if self.takes(table.likelihood, None) else table

    def slices(self, *_: Any) -> SlicePasses | None:
        return self.backend.slices(self._plan, self._factors)

    def reload(self, factors: Factors) -> None:
        self.backend.reload(factors)
        with self._lock:
            self._factors = factors
            if self._other is not None:
                self._other.reload(self._own(factors))

    def session(self) -> Session:
        return _Session(self)

    def close(self) -> None:
        self.backend.close()
        with self._lock:
            if self._other is not None:
                self._other.close()


class _Session:
    """A session of the wrapped backend; cases with sets are answered one by one."""

    def __init__(self, backend: SetFallback):
        self._backend, self._session = backend, backend.backend.session()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        plain = self._backend.takes(evidence.likelihood, targets)
        return (self._session.run if plain else self._backend.run_case)(evidence, targets)

    def close(self) -> None:
        self._session.close()
