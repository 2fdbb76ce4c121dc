"""The interface between the core and the backends, which take integers and floats, never names, files or graphs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from ..errors import BackendUnavailable, ImpossibleEvidence
from .answers import Evidence, HeldCase, Result, Session, without_rounding
from .table import (
    COUNTS,
    ON_DEVICE,
    CountSums,
    DeviceAnswer,
    Job,
    Likelihood,
    Table,
    TableAnswer,
    refuse,
)  # fmt: skip

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..plans.plan import Plan
    from .slices import SlicePasses
    from .state_map import StateMap

A = TypeVar("A")

__all__ = [
    "Backend", "Capabilities", "CountSums", "DeviceAnswer", "Evidence", "HeldCase", "Job", "Likelihood",
    "PlainHeldCase", "PlainSession", "Prepare", "Result", "Session", "Table", "TableAnswer", "columns_of", "slice_of",
    "without_rounding",
]  # fmt: skip


@dataclass(frozen=True)
class Capabilities:
    """Properties of a backend that the core asks for; it never tests the backend's class."""

    device_name: str = ""  # of the GPU that runs single cases; empty for the CPU
    device_number: int | None = None  # of the GPU on which answers can stay; None: it is not supported
    concurrent_tables: int = 1  # tables of cases that can usefully be queried at the same time, from as many threads
    native_columns: bool = False  # whether tables by columns are at least as fast as by rows: none is transposed
    is_adaptive: bool = False  # whether the last digits may depend on earlier queries, as plans for patterns do
    holds_cases: bool = False  # whether `Backend.hold` is worth while for cases that are counted repeatedly


class Backend(ABC):
    """A plan and a model's numbers, ready to run; made by a backend module's ``prepare``. Thread-safe."""

    # A subclass has a plan and implements `run`. Tables are answered one case at a time unless it knows better.
    _plan: Plan

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) first cell of each variable in a result."""
        return self._plan.posterior_ptr

    @property
    def cell_ptr(self) -> NDArray[np.int64]:
        """(V+S+1,) first cell of each variable and each set variable in a result."""
        return np.concatenate([[0], np.cumsum(self._plan.cards_with_sets)])

    @property
    def capabilities(self) -> Capabilities:
        """Properties that the core asks for."""
        return Capabilities()

    takes_maps = False  # whether `run_case` takes a map of states

    @abstractmethod
    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        """Propagate one case."""
        # targets: variables whose posteriors are computed (default: all); the cells of the others are undefined
        # states: the case is one of the outer model of this map, without likelihoods; targets are of this model
        # raises ImpossibleEvidence: if P(e) = 0

    def run(self, table: Table[A]) -> A:
        """Answer a table of cases, trusted to be valid: `jtgpu.inference.evidence` checks what users give."""
        # raises BackendUnavailable: if it does not support what the table wants
        # raises EvidenceError, UnknownState: for cases on a device of a wrong shape, type or state
        refuse(self, table, ON_DEVICE, COUNTS)
        states, targets = table.feed.rows(), table.targets
        columns = columns_of(self.posterior_ptr if targets is None else self.cell_ptr, targets)
        answer = TableAnswer.impossible_cases(len(states), len(columns))
        for i, row in enumerate(states):
            try:
                result = self.run_case(Evidence(row, {v: w[i] for v, w in table.likelihood.items()}), targets)
            except ImpossibleEvidence:
                continue
            answer.posterior[i] = result.posterior[columns]
            answer.log_evidence[i], answer.impossible[i] = result.log_evidence, False
        return table.delivered(answer)

    def hold(self, table: Table[CountSums]) -> Table[CountSums]:
        """The same table, stored where that makes counting it repeatedly, with changing numbers, faster."""
        # its states have to stay unchanged until its feed is closed
        return table

    def share(self, table: Table[Any]) -> Job | None:
        """A table that several backends of this kind answer together; None if they do not."""
        return None

    def slices(self, *with_sets: Any) -> SlicePasses | None:
        """Compiled passes through slices of a dynamic network; None: not supported."""
        # with_sets: plan and factors, where those of this backend have no sets
        return None

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Cost of a case that observes these variables, (V,) bool: multiplications, or nanoseconds on a GPU."""
        return self._plan.cost().flops // 2

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of such a case."""
        return self._plan.cost().bytes

    def with_patterns(self, factors: Sequence[NDArray[np.float64]], again: Prepare) -> Backend:
        """This backend with plans of their own for evidence patterns that recur, if it supports them."""
        # factors: this backend's numbers; again: makes another backend of the same kind
        return self

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Replace the model's numbers, after the queries that run; sessions made before must not be used afterwards."""
        # factors: of the shapes that the backend was made of; the plan, compiled programs and device memory stay
        raise BackendUnavailable(f"the numbers of a {type(self).__name__} cannot be replaced")

    def session(self) -> Session:
        """A session: what a query has in common with earlier ones is not computed again."""
        return PlainSession(self)

    def hold_case(self, evidence: Evidence, targets: Sequence[int]) -> HeldCase:
        """One case whose weights change from run to run."""
        return PlainHeldCase(self, evidence, targets)

    def close(self) -> None:  # noqa: B027  (nothing to free)
        """Free all memory; later queries raise `JtgpuError`. May be called twice."""


def slice_of(scope: Sequence[int], state: NDArray[np.int32]) -> tuple[Any, ...]:
    """Index of the cells of a table that agree with the observed states."""
    return tuple(slice(None) if state[v] < 0 else int(state[v]) for v in scope)


class PlainSession:
    """A `Session` of a backend that starts every query from scratch."""

    def __init__(self, backend: Backend):
        self._backend = backend

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        return self._backend.run_case(evidence, targets)

    def close(self) -> None:
        """Free what the session holds."""


class PlainHeldCase:
    """A `HeldCase` that starts every run from scratch."""

    def __init__(self, backend: Backend, evidence: Evidence, targets: Sequence[int]):
        self._backend, self._state, self._targets = backend, evidence.state, targets
        self._weights = dict(evidence.likelihood)
        self._posterior, self._ptr = np.zeros(0), backend.cell_ptr

    def set(self, v: int, weights: NDArray[np.float64]) -> None:
        self._weights[v] = weights

    def run(self) -> float:
        try:
            result = self._backend.run_case(Evidence(self._state, self._weights), self._targets)
        except ImpossibleEvidence:
            return -math.inf
        self._posterior = result.posterior
        return result.log_evidence

    def cells(self, v: int) -> NDArray[np.float64]:
        return self._posterior[self._ptr[v] : self._ptr[v + 1]]

    def close(self) -> None:
        """Free what is held."""


def columns_of(posterior_ptr: NDArray[np.int64], targets: Sequence[int] | None) -> NDArray[np.int64]:
    """Positions of a batch result's columns, target after target, among the posteriors of all variables."""
    if targets is None:
        return np.arange(int(posterior_ptr[-1]))
    parts = [np.arange(posterior_ptr[v], posterior_ptr[v + 1]) for v in targets]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class Prepare(Protocol):
    """Signature of a backend module's ``prepare``."""

    def __call__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Backend:
        """`factors`: the model's tables in the order and with the axes of ``plan.factor_var``."""
