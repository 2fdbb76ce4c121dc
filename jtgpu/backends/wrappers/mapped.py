"""A backend of a model around one of the model that a `jtgpu.backends.state_map.StateMap` leads to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from ...errors import ImpossibleEvidence
from ..base import Backend, Evidence, PlainHeldCase, Result
from ..reference import ExtendedEvidence
from ..state_map import StateMap
from ..table import COUNTS, ON_DEVICE, ROWS, CountSums, RowCases, Table, TableAnswer, refuse
from .delegating import DelegatingBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.conditioning import SplitModel
    from ..base import HeldCase, Session

A = TypeVar("A")


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

    def run(self, table: Table[A]) -> A:
        refuse(self, table, ON_DEVICE)
        states = table.feed.rows()
        cases, wrong = self.states.rows(states)
        inner = table._replace(feed=RowCases(cases), likelihood=self.states.weights(table.likelihood))
        if table.deliver is COUNTS:
            return cast("A", self._counted(cast("Table[CountSums]", inner), wrong))
        columns = self.states.columns(table.targets)
        part = self.backend.run(Table(inner.feed, ROWS, inner.likelihood, columns.targets, recurs=table.recurs))
        posterior = self.states.table(part.posterior, columns, states, np.flatnonzero(~part.impossible))
        answer = TableAnswer(posterior, part.log_evidence, part.impossible)
        if len(wrong):
            answer = TableAnswer(posterior, part.log_evidence.copy(), part.impossible.copy())
            answer.posterior[wrong], answer.log_evidence[wrong], answer.impossible[wrong] = 0.0, -np.inf, True
        return table.delivered(answer)

    def _counted(self, inner: Table[CountSums], wrong: NDArray[np.int64]) -> CountSums:
        """Counts of cases of the inner model; those that observe a state which it lacks add nothing."""
        weights = inner.weights_or_ones
        if len(wrong):
            weights = weights.copy()
            weights[wrong] = 0.0
        counts = self.backend.run(inner._replace(weights=weights))
        families = []
        for scope, table in zip(self._scopes, counts.families, strict=True):
            families.append(np.zeros(self.states.cards[list(scope)].tolist()))
            families[-1][np.ix_(*(self.states.states_inside[v] for v in scope))] = table
        log_evidence = counts.log_evidence
        if len(wrong):
            log_evidence = log_evidence.copy()
            log_evidence[wrong] = -np.inf
        return CountSums.of(families, log_evidence, weights)

    def hold(self, table: Table[CountSums]) -> Table[CountSums]:
        return table

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
