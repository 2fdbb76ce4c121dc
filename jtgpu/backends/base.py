"""The interface between the core and the backends, which take integers and floats, never names, files or graphs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import BackendUnavailable, ImpossibleEvidence
from .answers import (
    BatchResult,
    ColumnResult,
    Counts,
    CountSums,
    DeviceResult,
    Evidence,
    HeldCase,
    HeldCases,
    Likelihood,
    Result,
    Session,
    without_rounding,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..plans.plan import Plan
    from .slices import SlicePasses
    from .state_map import StateMap

__all__ = [
    "Backend", "BatchResult", "Capabilities", "ColumnResult", "CountSums", "Counts", "DeviceResult",
    "Evidence", "HeldCase", "HeldCases", "Likelihood", "PlainHeldCase", "PlainSession", "Prepare", "Result", "Session",
    "Tables", "columns_of", "slice_of", "without_rounding",
]  # fmt: skip


@dataclass(frozen=True)
class Capabilities:
    """Properties of a backend that the core asks for; it never tests the backend's class."""

    device_name: str = ""  # of the GPU that runs single cases; empty for the CPU
    device_number: int | None = None  # of the GPU that `Backend.run_device` uses; None: it is not supported
    concurrent_tables: int = 1  # tables of cases that can usefully be queried at the same time, from as many threads
    native_columns: bool = False  # whether `run_columns` is at least as fast as `run_batch`: no table is transposed
    is_adaptive: bool = False  # whether the last digits may depend on earlier queries, as plans for patterns do
    holds_cases: bool = False  # whether `hold_cases` is supported, and worth while for cases counted repeatedly
    shares_tables: bool = False  # whether several of its kind answer a table together: `share`, `hold_share`


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

    @property
    def tables(self) -> Tables:
        """The object that answers tables of cases: this one, or an engine of its own."""
        return self

    takes_maps = False  # whether `run_case` takes a map of states

    @abstractmethod
    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        """Propagate one case."""
        # targets: variables whose posteriors are computed (default: all); the cells of the others are undefined
        # states: the case is one of the outer model of this map, without likelihoods; targets are of this model
        # raises ImpossibleEvidence: if P(e) = 0

    def run_batch(
        self, states: NDArray[np.int32], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> BatchResult:
        """Propagate B cases, trusted to be valid: `jtgpu.inference.evidence` checks what users give."""
        # states: (B, V), -1 = not observed
        # targets: variables whose posteriors are computed, in the order of the result's columns; default: all
        columns = columns_of(self.posterior_ptr if targets is None else self.cell_ptr, targets)
        n = len(states)
        answer = BatchResult(np.zeros((n, len(columns))), np.full(n, -np.inf), np.zeros(n, np.bool_))
        for i in range(n):
            weights = {v: w[i] for v, w in likelihood.items()} if likelihood else {}
            try:
                result = self.run_case(Evidence(states[i], weights), targets)
            except ImpossibleEvidence:
                answer.impossible[i] = True
                continue
            answer.posterior[i] = result.posterior[columns]
            answer.log_evidence[i] = result.log_evidence
        return answer

    def run_few(self, states: NDArray[np.int32], likelihood: Likelihood | None = None) -> BatchResult:
        """`run_batch`, but for the last digits, of a few cases whose patterns will not recur, as a server gets them."""
        return self.run_batch(states, likelihood)

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        """Propagate B cases given and answered column by column, as data frames store them."""
        # variables: the E variables that some case observes
        # codes: (E, B), -1 = not observed, trusted to be valid; int8 is fastest
        states = np.full((codes.shape[1], len(self.posterior_ptr) - 1), -1, np.int32)
        states[:, list(variables)] = codes.T
        answer = self.run_batch(states, None, targets)
        return ColumnResult(np.ascontiguousarray(answer.posterior.T), answer.log_evidence, answer.impossible)

    def run_device(
        self, states: Any, likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> DeviceResult:
        """Propagate B cases and leave the answers on the device; arguments as of `run_batch`."""
        # states: or a tensor on the device, (B, V) signed integers, which is not copied if it is contiguous
        # raises EvidenceError: if it is on another device or of a wrong shape or type; UnknownState: for a wrong state
        raise BackendUnavailable(f"{type(self).__name__} does not leave answers on a device; use backend='gpu'")

    def run_counts(
        self, states: NDArray[np.int32], weights: NDArray[np.float64] | None = None,
        likelihood: Likelihood | None = None,
    ) -> Counts:  # fmt: skip
        """Expected counts of every family, summed over a table of cases."""
        # weights: (B,) finite weights of the cases, of any sign; default: ones
        raise BackendUnavailable(f"{type(self).__name__} does not support expected counts; use backend='cpu'")

    def hold_cases(
        self, states: NDArray[Any], weights: NDArray[np.float64] | None = None, likelihood: Likelihood | None = None
    ) -> HeldCases:
        """Store a table of cases for expected counts with changing numbers; arguments as of `run_counts`."""
        # states: of any signed integer type; they have to stay unchanged while the cases are held
        raise BackendUnavailable(f"{type(self).__name__} does not hold cases; use run_counts")

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


class Tables(Protocol):
    """A backend, or an engine of it, that answers tables of cases; see `Backend`."""

    def run_batch(
        self, states: NDArray[np.int32], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> BatchResult: ...

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult: ...


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
