"""A backend of a model around one of the model that a `jtgpu.backends.state_map.StateMap` leads to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ImpossibleEvidence
from ..base import Backend, BatchResult, ColumnResult, Counts, Evidence, Likelihood, PlainHeldCase, Result
from ..reference import ExtendedEvidence
from ..state_map import StateMap
from .delegating import DelegatingBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.conditioning import SplitModel
    from ..base import HeldCase, Session, Tables


def split_states(split: SplitModel, *, is_whole: bool = False) -> StateMap:
    """Cases of a model that observe all split variables as cases of the split one; `is_whole`: and no others."""
    inside = np.ones(int(split.cardinality.sum()), np.bool_)
    return StateMap(split.origin, split.cardinality, inside, split.observed, is_whole=is_whole)


class MappedBackend(DelegatingBackend):
    """`Backend` of the outer model of a map: observed states are renumbered, and answers get zeros for other states."""
    # scopes: Of the outer model's factors, for expected counts

    def __init__(self, states: StateMap, backend: Backend, scopes: Sequence[Sequence[int]] = ()):
        super().__init__(backend)
        self.states, self._scopes = states, scopes
        self._takes_codes = states.is_code and backend.takes_maps

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) first cell of each variable in a result."""
        return self.states.first[: len(self.states.first) - self.states.n_sets]

    @property
    def cell_ptr(self) -> NDArray[np.int64]:
        """(V+S+1,) first cell of each variable and each set variable in a result."""
        return self.states.first

    @property
    def tables(self) -> Tables:
        """This object."""
        return self

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        own = self.states
        if self._takes_codes and not evidence.likelihood:
            return self.backend.run_case(evidence, targets if own.is_identity else own.columns(targets).targets, own)
        return self.answer(self.backend.run_case, evidence, targets)

    def answer(
        self, run: Callable[[Evidence, Sequence[int] | None], Result], evidence: Evidence, targets: Sequence[int] | None
    ) -> Result:
        """The answer to a case by a function of the inner model: `run_case`, or `run` of a session."""
        states, case = self.states, self._case(evidence)
        if case is None:
            raise ImpossibleEvidence("the evidence has probability 0")
        result = run(case, targets if states.is_identity else states.columns(targets).targets)
        return Result(states.posterior(result.posterior, evidence.state), result.log_evidence)

    def _case(self, evidence: Evidence) -> Evidence | None:
        """A case of the inner model; None if it observes a state that it lacks."""
        states = self.states
        state = states.case(evidence.state)
        if state is None:
            return None
        if not evidence.likelihood:
            return Evidence(state)
        weights = states.weights(evidence.likelihood)
        if isinstance(evidence, ExtendedEvidence):
            powers = {int(states.inner[v]): x[states.states_inside[v]] for v, x in evidence.exponents.items()}
            return ExtendedEvidence(state, weights, powers)
        return Evidence(state, weights)

    def run_batch(
        self, states: NDArray[np.int32], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> BatchResult:
        return self._table(self.backend.tables.run_batch, states, likelihood, targets)

    def run_few(self, states: NDArray[np.int32], likelihood: Likelihood | None = None) -> BatchResult:
        return self._table(lambda cases, weights, _: self.backend.run_few(cases, weights), states, likelihood, None)

    def _table(
        self, run: Callable[..., BatchResult], states: NDArray[np.int32], likelihood: Likelihood | None,
        targets: Sequence[int] | None,
    ) -> BatchResult:  # fmt: skip
        columns = self.states.columns(targets)
        cases, wrong = self.states.rows(states)
        answer = run(cases, self.states.weights(likelihood), columns.targets)
        posterior = self.states.table(answer.posterior, columns, states, np.flatnonzero(~answer.impossible))
        if not len(wrong):
            return BatchResult(posterior, answer.log_evidence, answer.impossible)
        log_evidence, impossible = answer.log_evidence.copy(), answer.impossible.copy()
        posterior[wrong], log_evidence[wrong], impossible[wrong] = 0.0, -np.inf, True
        return BatchResult(posterior, log_evidence, impossible)

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        states = self.states
        numbers = np.stack([states.numbers[states.begin[v] + row] for v, row in zip(variables, codes, strict=True)])
        impossible = numbers < -1
        numbers[impossible] = -1
        answer = self.backend.tables.run_columns(variables, numbers.astype(codes.dtype), targets)
        columns = states.columns(targets)
        posterior = np.zeros((columns.width, codes.shape[1]))
        posterior[columns.kept] = answer.posterior
        wrong = impossible.any(axis=0)
        posterior[:, wrong] = 0.0
        log_evidence = np.where(wrong, -np.inf, answer.log_evidence)
        return ColumnResult(posterior, log_evidence, answer.impossible | wrong)

    def run_counts(
        self, states: NDArray[np.int32], weights: NDArray[np.float64] | None = None,
        likelihood: Likelihood | None = None,
    ) -> Counts:  # fmt: skip
        cases, wrong = self.states.rows(states)
        if len(wrong):
            weights = np.ones(len(states)) if weights is None else weights.copy()
            weights[wrong] = 0.0
        counts = self.backend.run_counts(cases, weights, self.states.weights(likelihood))
        families = []
        for scope, table in zip(self._scopes, counts.families, strict=True):
            families.append(np.zeros(self.states.cards[list(scope)].tolist()))
            families[-1][np.ix_(*(self.states.states_inside[v] for v in scope))] = table
        log_evidence, impossible = counts.log_evidence.copy(), counts.impossible.copy()
        log_evidence[wrong], impossible[wrong] = -np.inf, True
        return Counts(families, log_evidence, impossible)

    def session(self) -> Session:
        return _Session(self)

    def hold_case(self, evidence: Evidence, targets: Sequence[int]) -> HeldCase:
        case = self._case(evidence)
        if case is None:
            return PlainHeldCase(self, evidence, targets)
        return _HeldCase(self.states, self.backend.hold_case(case, targets))


class _Session:
    """A session of the inner model."""

    def __init__(self, mapped: MappedBackend):
        self._mapped, self._session = mapped, mapped.backend.session()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        return self._mapped.answer(self._session.run, evidence, targets)

    def close(self) -> None:
        self._session.close()


class _HeldCase:
    """A held case of the inner model."""

    def __init__(self, states: StateMap, case: HeldCase):
        self._states, self._case = states, case
        self._ruled_out: set[int] = set()  # variables whose weights are above 0 for other states alone

    def set(self, v: int, weights: NDArray[np.float64]) -> None:
        left = np.ravel(weights)[self._states.states_inside[v]]
        if left.any():
            self._ruled_out.discard(v)
            self._case.set(v, left)
        else:
            self._ruled_out.add(v)

    def run(self) -> float:
        return -math.inf if self._ruled_out else self._case.run()

    def cells(self, v: int) -> NDArray[np.float64]:
        inside = self._states.states_inside[v]
        cells = np.zeros(len(inside))
        cells[inside] = self._case.cells(v)
        return cells

    def close(self) -> None:
        self._case.close()
