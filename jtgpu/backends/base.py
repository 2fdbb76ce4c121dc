"""The seam between what users hold and what computes: `Evidence` in, `Result` out, integers and floats only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from ..errors import ImpossibleEvidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..plans.plan import Plan

__all__ = [
    "Backend", "BatchResult", "CaseByCase", "ColumnBackend", "ColumnResult", "Evidence", "PlainSession", "Prepare",
    "Result", "Session", "columns_of",
]  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """One case: what is known of the variables of one model."""

    state: NDArray[np.int32]  # (V,) observed state of each variable, -1 = not observed
    likelihood: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # variable -> (card,) weights >= 0

    @classmethod
    def none(cls, n_variables: int) -> Evidence:
        """Nothing observed."""
        return cls(np.full(n_variables, -1, np.int32))

    def vectors(self, cardinality: NDArray[np.int64]) -> dict[int, NDArray[np.float64]]:
        """Everything known as one weight vector a variable (hard evidence one-hot), by ascending variable."""
        found = {int(v): np.asarray(w, np.float64) for v, w in self.likelihood.items()}
        for v in np.flatnonzero(self.state >= 0).tolist():
            hot = np.zeros(int(cardinality[v]))
            hot[self.state[v]] = 1.0
            found[v] = hot * found[v] if v in found else hot
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Result:
    """Posteriors of one case."""

    posterior: NDArray[np.float64]  # (sum of cardinalities,) variable after variable, each summing to 1
    log_evidence: float  # natural logarithm of P(e) (of the partition function for a Markov network)


@dataclass(frozen=True)
class BatchResult:
    """Posteriors of a table of B cases. A case whose evidence has probability zero is flagged, not fatal."""

    posterior: NDArray[np.float64]  # (B, sum of the targets' cardinalities), target after target; 0 if impossible
    log_evidence: NDArray[np.float64]  # (B,) natural logarithms of P(e); -inf if impossible
    impossible: NDArray[np.bool_]  # (B,)


@dataclass(frozen=True)
class ColumnResult:
    """A `BatchResult` by columns: each column of a frame is one piece of memory."""

    posterior: NDArray[np.float64]  # (sum of the targets' cardinalities, B), target after target; 0 if impossible
    log_evidence: NDArray[np.float64]  # (B,) natural logarithms of P(e); -inf if impossible
    impossible: NDArray[np.bool_]  # (B,)


class Session(Protocol):
    """Queries one after another whose evidence changes little; see `Backend.session`."""

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """As `Backend.run`."""

    def close(self) -> None:
        """Give the session's memory back. May be called twice."""


class Backend(Protocol):
    """A plan and a model's numbers, ready to run; made by a backend module's ``prepare``."""

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """Propagate one case.

        Parameters
        ----------
        evidence : Evidence
        targets : sequence of int, optional
            Variables whose posteriors are wanted; the others' cells of the result are then undefined. None: all.

        Raises
        ------
        ImpossibleEvidence
            When P(e) = 0.
        """

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """Answer B cases.

        Parameters
        ----------
        states : (B, V) int32
            Observed states, -1 = not observed.
        likelihood : mapping, optional
            Variable to weights >= 0, (B, card) float64; ones where a case has none.
        targets : sequence of int, optional
            Variables whose posteriors are wanted, in the order of the result's columns; None: all.
        """

    def session(self) -> Session:
        """A place where what a query has in common with earlier ones is not computed again."""

    def close(self) -> None:
        """Give memory back; the object answers no more. May be called twice."""


@runtime_checkable
class ColumnBackend(Protocol):
    """What a backend may offer besides: tables of cases as frames have them, with nothing turned round on the host."""

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        """Answer B cases; equal ones are not looked for.

        Parameters
        ----------
        variables : sequence of int
            The E variables that some case observes.
        codes : (E, B) array of int
            Observed states, -1 = not observed; int8 is the quickest.
        targets : sequence of int, optional
            See `Backend.run_batch`.

        Raises
        ------
        EvidenceError
            For an array of another shape, or a state that a variable does not have.
        """


class PlainSession:
    """A `Session` of a backend that begins every query anew."""

    def __init__(self, backend: Backend):
        self._backend = backend

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `Backend.run`."""
        return self._backend.run(evidence, targets)

    def close(self) -> None:
        """See `Session.close`."""


def columns_of(posterior_ptr: NDArray[np.int64], targets: Sequence[int] | None) -> NDArray[np.int64]:
    """Where the cells of a batch's answer, target after target, stand among the posteriors of all variables."""
    if targets is None:
        return np.arange(int(posterior_ptr[-1]))
    parts = [np.arange(posterior_ptr[v], posterior_ptr[v + 1]) for v in targets]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class CaseByCase:
    """What a backend that answers one case at a time says to tables of cases and to sessions; has a `_plan`."""

    _plan: Plan

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) where each variable's cells begin in an answer."""
        return self._plan.posterior_ptr

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `Backend.run`."""
        raise NotImplementedError

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `Backend.run_batch`."""
        columns = columns_of(self.posterior_ptr, targets)
        n = len(states)
        found = BatchResult(np.zeros((n, len(columns))), np.full(n, -np.inf), np.zeros(n, np.bool_))
        for i in range(n):
            weights = {v: w[i] for v, w in likelihood.items()} if likelihood else {}
            try:
                result = self.run(Evidence(states[i], weights), targets)
            except ImpossibleEvidence:
                found.impossible[i] = True
                continue
            found.posterior[i] = result.posterior[columns]
            found.log_evidence[i] = result.log_evidence
        return found

    def session(self) -> Session:
        """See `Backend.session`."""
        return PlainSession(self)

    def close(self) -> None:
        """See `Backend.close`."""


class Prepare(Protocol):
    """What a backend module's ``prepare`` looks like."""

    def __call__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Backend:
        """`factors`: the model's tables in the order and the axes of ``plan.factor_var``."""
