"""A backend of a model without its impossible states (`jtgpu.plans.possible`), behind the interface of the whole model.

Observed states are renumbered, likelihoods lose the weights of impossible states, and answers get zeros for them. An
observation of an impossible state is evidence of probability zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ImpossibleEvidence
from ...plans.arrays import ranges
from ...plans.possible import possible_states, restricted_plan
from ...util.system import new_lock
from ..base import Backend, BatchResult, ColumnResult, Counts, Evidence, HeldCase, PlainHeldCase, Result
from ..reference import ExtendedEvidence
from ..state_map import StateMap
from .delegating import DelegatingBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ..base import Likelihood, Session, Tables
    from ..slices import SlicePasses

    Factors = Sequence[NDArray[np.float64]]
    Make = Callable[[Plan, Factors], Backend]

LEAST_WORK = 200_000  # operations of a case from which impossible states are looked for
REQUIRED_GAIN = 0.9  # share of the work that may be left without them


def without_impossible_states(plan: Plan, factors: Factors, make: Make) -> Backend:
    """A backend that `make` makes: of the model without impossible states if that pays, else of the whole model."""
    if plan.cost().flops >= LEAST_WORK:
        possible = possible_states(plan.cardinality, plan.factor_scopes, factors)
        if possible is not None:
            smaller = restricted_plan(plan, np.array([states.sum() for states in possible], np.int64))
            if smaller.cost().flops <= REQUIRED_GAIN * plan.cost().flops:
                return PossibleStates(plan, _Kept(plan, smaller, factors, possible, make), factors, make)
    return make(plan, factors)


class _Kept:
    """The possible states of one model, and a backend of these."""
    # possible: (card,) bool of each variable

    def __init__(
        self, plan: Plan, smaller: Plan, factors: Factors, possible: Sequence[NDArray[np.bool_]], make: Make
    ):
        self.plan, self.possible = plan, possible
        inside: list[NDArray[np.bool_]] = list(possible)  # of each variable and set variable
        for scope in plan.sets:
            table = np.ones((1,) * len(scope), np.bool_)
            for axis, v in enumerate(scope):
                table = table & possible[v].reshape([-1 if a == axis else 1 for a in range(len(scope))])
            inside.append(table.ravel())
        self.inside = inside
        self.is_smaller = smaller.cardinality < plan.cardinality
        self.changed = np.flatnonzero(self.is_smaller)
        states = StateMap(np.arange(plan.n_variables), plan.cardinality, np.concatenate([np.zeros(0, bool), *possible]))
        self.states = None if plan.sets else states
        # the number of state s of variable v is number[first[v] + s]; -1 stays -1
        self.first = states.first[:-1] + np.arange(1, plan.n_variables + 1)
        self.number = np.full(len(states.number) + plan.n_variables, -1, np.int32)
        self.number[ranges(self.first, self.first + plan.cardinality)] = states.number
        self.first_changed = self.first[self.changed]
        self.cells = np.flatnonzero(np.concatenate(inside))
        self.n_cells = sum(map(len, inside))
        self.n_own = int(plan.posterior_ptr[-1])  # without those of sets
        self.own_cells = self.cells[self.cells < self.n_own]
        self.backend = make(smaller, self.restricted(factors))

    @cached_property
    def scopes(self) -> list[tuple[NDArray[np.int64], ...]]:
        """Indices of the possible states' entries in each factor."""
        return [np.ix_(*(np.flatnonzero(self.possible[v]) for v in scope)) for scope in self.plan.factor_scopes]

    def restricted(self, factors: Factors) -> list[NDArray[np.float64]]:
        """The factors of the possible states; one without impossible states is not copied."""
        smaller = self.is_smaller.tolist()
        left = list(factors)
        for f, scope in enumerate(self.plan.factor_scopes):
            for axis, v in enumerate(scope):
                if smaller[v]:
                    left[f] = left[f].compress(self.possible[v], axis=axis)
        return left

    def evidence(self, evidence: Evidence) -> Evidence | None:
        """One case; None if it observes an impossible state."""
        state = evidence.state
        observed = state.take(self.changed)
        if observed.size and observed.max() >= 0:
            numbers = self.number.take(self.first_changed + observed)
            if numbers.min() < -1:
                return None
            state = state.copy()
            state[self.changed] = numbers
        elif not evidence.likelihood:
            return evidence
        weights = self.likelihood(evidence.likelihood)
        if isinstance(evidence, ExtendedEvidence):
            return ExtendedEvidence(state, weights, {v: x[self.inside[v]] for v, x in evidence.exponents.items()})
        return Evidence(state, weights)

    def likelihood(self, likelihood: Mapping[int, NDArray[np.float64]] | None) -> dict[int, NDArray[np.float64]]:
        """Weights of the possible states, of one case or many."""
        return {v: np.ascontiguousarray(np.asarray(w)[..., self.inside[v]]) for v, w in (likelihood or {}).items()}

    def table(self, states: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Cases, and those that observe an impossible state; in these it is not observed."""
        changed = self.changed
        numbers = self.number[self.first_changed + states[:, changed]]
        impossible = numbers < -1
        rows = np.flatnonzero(impossible.any(axis=1))
        if len(rows):
            numbers[impossible] = -1
        states = np.array(states, np.int32, order="C")
        states[:, changed] = numbers
        return states, rows

    def columns(self, targets: Sequence[int] | None) -> tuple[int, NDArray[np.int64]]:
        """Columns of an answer of the whole model, and places of the possible states among them."""
        if targets is None:
            return self.n_own, self.own_cells
        inside = [self.inside[v] for v in targets] or [np.zeros(0, np.bool_)]
        kept = np.concatenate(inside)
        return len(kept), np.flatnonzero(kept)


class PossibleStates(DelegatingBackend):
    """`Backend` of a model, around one of the model without impossible states. Thread-safe."""
    # kept: Of these factors
    # make: Makes another backend

    def __init__(self, plan: Plan, kept: _Kept, factors: Factors, make: Make):
        super().__init__(kept.backend)
        self._plan, self._kept, self._factors, self._make = plan, kept, factors, make
        self._whole: Backend | None = None
        self._lock = new_lock()

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) first cell of each variable in a result."""
        return self._plan.posterior_ptr

    @property
    def tables(self) -> Tables:
        """This object."""
        return self

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        kept = self._kept
        if kept.states is not None and not evidence.likelihood:
            result = kept.backend.run_mapped(kept.states, evidence, targets)
            if result is not None:
                return result
        return _run(kept, kept.backend, evidence, targets)

    def run_batch(
        self, states: NDArray[np.int32], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> BatchResult:
        kept = self._kept
        cases, rows = kept.table(states)
        answer = kept.backend.tables.run_batch(cases, kept.likelihood(likelihood), targets)
        return _expanded(kept, answer, rows, targets)

    def run_few(self, states: NDArray[np.int32], likelihood: Likelihood | None = None) -> BatchResult:
        kept = self._kept
        cases, rows = kept.table(states)
        return _expanded(kept, kept.backend.run_few(cases, kept.likelihood(likelihood)), rows, None)

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        kept = self._kept
        numbers = np.stack([kept.number[kept.first[v] + row] for v, row in zip(variables, codes, strict=True)])
        impossible = numbers < -1
        numbers[impossible] = -1
        answer = kept.backend.tables.run_columns(variables, numbers.astype(codes.dtype), targets)
        n, cells = kept.columns(targets)
        posterior = np.zeros((n, codes.shape[1]))
        posterior[cells] = answer.posterior
        wrong = impossible.any(axis=0)
        posterior[:, wrong] = 0.0
        log_evidence = np.where(wrong, -np.inf, answer.log_evidence)
        return ColumnResult(posterior, log_evidence, answer.impossible | wrong)

    def run_counts(
        self, states: NDArray[np.int32], weights: NDArray[np.float64] | None = None,
        likelihood: Likelihood | None = None,
    ) -> Counts:  # fmt: skip
        kept = self._kept
        cases, rows = kept.table(states)
        if len(rows):
            weights = np.ones(len(states)) if weights is None else weights.copy()
            weights[rows] = 0.0
        counts = kept.backend.run_counts(cases, weights, kept.likelihood(likelihood))
        families = []
        for scope, cells, table in zip(self._plan.factor_scopes, kept.scopes, counts.families, strict=True):
            families.append(np.zeros(self._plan.cardinality[list(scope)].tolist()))
            families[-1][cells] = table
        log_evidence, impossible = counts.log_evidence.copy(), counts.impossible.copy()
        log_evidence[rows], impossible[rows] = -np.inf, True
        return Counts(families, log_evidence, impossible)

    def slices(self, *plan: Any) -> SlicePasses | None:
        with self._lock:
            if self._whole is None:
                self._whole = self._make(self._plan, self._factors)
            return self._whole.slices(*plan)

    def reload(self, factors: Factors) -> None:
        kept = self._kept
        possible = possible_states(self._plan.cardinality, self._plan.factor_scopes, factors)
        if possible is None or any((new & ~old).any() for new, old in zip(possible, kept.possible, strict=True)):
            everything = [np.ones(n, np.bool_) for n in self._plan.cardinality.tolist()]
            if any(not states.all() for states in kept.possible):
                # the backend before stays open for queries that run
                self._kept = kept = _Kept(self._plan, self._plan, factors, everything, self._make)
                self.backend = kept.backend
        kept.backend.reload(kept.restricted(factors))
        with self._lock:
            self._factors = factors
            if self._whole is not None:
                self._whole.reload(factors)

    def session(self) -> Session:
        return _Session(self._kept)

    def hold_case(self, evidence: Evidence, targets: Sequence[int]) -> HeldCase:
        kept = self._kept
        case = kept.evidence(evidence)
        return PlainHeldCase(self, evidence, targets) if case is None else _HeldCase(kept, case, targets)

    def close(self) -> None:
        self.backend.close()
        with self._lock:
            if self._whole is not None:
                self._whole.close()


def _run(kept: _Kept, to: Backend | Session, evidence: Evidence, targets: Sequence[int] | None) -> Result:
    """The answer of a backend or a session of the possible states, with zeros for the others."""
    case = kept.evidence(evidence)
    if case is None:
        raise ImpossibleEvidence("the evidence has probability 0")
    result = to.run(case, targets)
    kept_cells = result.posterior
    own = len(kept_cells) < len(kept.cells)  # without sets
    posterior = np.zeros(kept.n_own if own else kept.n_cells)
    posterior[kept.own_cells if own else kept.cells] = kept_cells
    return Result(posterior, result.log_evidence)


def _expanded(
    kept: _Kept, answer: BatchResult, rows: NDArray[np.int64], targets: Sequence[int] | None
) -> BatchResult:
    """An answer with zeros for impossible states, and for the rows that observe one."""
    n, cells = kept.columns(targets)
    posterior = answer.posterior
    if len(cells) < n:
        posterior = np.zeros((len(posterior), n))
        posterior[:, cells] = answer.posterior
    if not len(rows):
        return BatchResult(posterior, answer.log_evidence, answer.impossible)
    log_evidence, impossible = answer.log_evidence.copy(), answer.impossible.copy()
    posterior[rows], log_evidence[rows], impossible[rows] = 0.0, -np.inf, True
    return BatchResult(posterior, log_evidence, impossible)


class _Session:
    """A session of the possible states."""

    def __init__(self, kept: _Kept):
        self._kept, self._session = kept, kept.backend.session()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        return _run(self._kept, self._session, evidence, targets)

    def close(self) -> None:
        self._session.close()


class _HeldCase:
    """A held case of the possible states."""

    def __init__(self, kept: _Kept, case: Evidence, targets: Sequence[int]):
        self._kept, self._case = kept, kept.backend.hold_case(case, targets)
        self._ruled_out: set[int] = set()  # variables whose weights are above 0 for impossible states alone

    def set(self, v: int, weights: NDArray[np.float64]) -> None:
        left = np.ravel(weights)[self._kept.inside[v]]
        if left.any():
            self._ruled_out.discard(v)
            self._case.set(v, left)
        else:
            self._ruled_out.add(v)

    def run(self) -> float:
        return -math.inf if self._ruled_out else self._case.run()

    def cells(self, v: int) -> NDArray[np.float64]:
        inside = self._kept.inside[v]
        cells = np.zeros(len(inside))
        cells[inside] = self._case.cells(v)
        return cells

    def close(self) -> None:
        self._case.close()
