"""`JunctionTree`: what users hold. Names and labels in, labelled probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import backends
from .answers import CasePosteriors, Posterior, Posteriors
from .backends.base import Evidence
from .errors import ImpossibleEvidence, JtgpuError
from .evidence import Cases, Findings, read_cases, read_findings
from .network import DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .compiler import NetworkPlan
    from .session import Session

__all__ = ["JunctionTree"]


class JunctionTree:
    """A compiled model, ready for queries; made by ``net.compile()`` or ``plan.compile()``.

    Parameters
    ----------
    plan : NetworkPlan
    backend : str
        ``"reference"``, ``"cpu"``, ``"indexed"``, ``"gpu"``, or ``"auto"``: the GPU where there is one and it
        should be quicker for this plan, else the CPU.

    Examples
    --------
    >>> from jtgpu import BayesianNetwork
    >>> net = BayesianNetwork(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"wet": ["rain"]},
    ...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]},
    ... )
    >>> tree = net.compile(backend="reference")
    >>> round(tree.posterior("rain", evidence={"wet": "yes"})["yes"], 6)
    0.666667
    """

    def __init__(self, plan: NetworkPlan, backend: str = "auto", **options: Any):
        from .compiler import model_factors

        self._plan = plan
        self._model = plan.model
        self._name = backends.resolve(backend, plan.plan)
        factors = [f.table for f in model_factors(plan.model)]
        self._backend: backends.Backend | None = backends.get(self._name)(plan.plan, factors, **options)

    # What it is -----------------------------------------------------------------------------------------------

    @property
    def model(self) -> DiscreteModel:
        """The model that was compiled; never changed by queries."""
        return self._model

    @property
    def plan(self) -> NetworkPlan:
        """The plan that runs."""
        return self._plan

    @property
    def backend(self) -> str:
        """Name of the backend that runs."""
        return self._name

    @property
    def device(self) -> str:
        """Name of the GPU that the backend runs on; empty for the processor."""
        return str(getattr(getattr(self._backend, "device", None), "name", ""))

    def close(self) -> None:
        """Give the backend's memory back. Queries raise `JtgpuError` from then on."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def __enter__(self) -> JunctionTree:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"JunctionTree({self._model.name!r}, backend={self._name!r})"

    # Queries --------------------------------------------------------------------------------------------------

    def posteriors(
        self,
        evidence: Findings | None = None,
        *,
        likelihood: Findings | None = None,
        targets: Iterable[str | int] | None = None,
    ) -> Posteriors:
        """Posterior of every variable, or of the targets.

        Parameters
        ----------
        evidence : mapping, optional
            Variable to a state (name or number) or to a set of states of which one holds.
        likelihood : mapping, optional
            Virtual evidence: variable to P(observation | state), an array or a mapping from state to weight.
        targets : iterable, optional
            Variables whose posteriors are wanted; default: all.

        Returns
        -------
        Posteriors
            With ``.log_evidence``, natural logarithm.

        Raises
        ------
        ImpossibleEvidence
            When the evidence has probability zero, naming the evidence.
        UnknownVariable, UnknownState, EvidenceError
            See `jtgpu.evidence.read_findings`.
        """
        case = read_findings(self._model, evidence, likelihood)
        if isinstance(targets, str):
            targets = [targets]
        wanted = None if targets is None else [self._model.index(t) for t in targets]
        result = self._run(case, wanted)
        return Posteriors(self._model, result.posterior, self._plan.plan.posterior_ptr, result.log_evidence, wanted)

    def posterior(
        self, variable: str | int, evidence: Findings | None = None, *, likelihood: Findings | None = None
    ) -> Posterior:
        """Posterior of one variable; see `posteriors`."""
        return self.posteriors(evidence, likelihood=likelihood, targets=[variable])[variable]

    def log_evidence(self, evidence: Findings | None = None, *, likelihood: Findings | None = None) -> float:
        """ln P(evidence), natural logarithm; see `posteriors`. Impossible evidence is an error, never -inf."""
        return self._run(read_findings(self._model, evidence, likelihood), []).log_evidence

    def posteriors_batch(
        self,
        cases: Cases,
        *,
        likelihood: Mapping[Any, ArrayLike] | None = None,
        targets: Iterable[str | int] | None = None,
        on_impossible: str = "error",
    ) -> CasePosteriors:
        """Posteriors of B cases in one call.

        Parameters
        ----------
        cases : (B, V) array of int, or mapping
            Number of the observed state of each variable, in the model's order, -1 for what is not observed; or
            variable to B states (names or numbers; -1, None and NaN: not observed) for those that some case observes.
        likelihood : mapping, optional
            Variable to weights >= 0, (B, card), or (card,) for the same in every case.
        targets : iterable, optional
            Variables whose posteriors are wanted; default: all.
        on_impossible : str
            ``"error"``, or ``"flag"``: a case of probability zero is marked in ``.impossible``, its ``.log_evidence``
            is -inf and its posteriors are zeros.

        Raises
        ------
        ImpossibleEvidence
            Naming the first case of probability zero and its evidence, unless flagged.
        UnknownVariable, UnknownState, EvidenceError
            See `jtgpu.evidence.read_cases`.
        """
        if on_impossible not in ("error", "flag"):
            raise ValueError(f"on_impossible is 'error' or 'flag', not {on_impossible!r}")
        states, weights = read_cases(self._model, cases, likelihood)
        if isinstance(targets, str):
            targets = [targets]
        wanted = None if targets is None else list(dict.fromkeys(self._model.index(t) for t in targets))
        result = self._open().run_batch(states, weights, wanted)
        if on_impossible == "error" and result.impossible.any():
            row = int(np.flatnonzero(result.impossible)[0])
            case = Evidence(states[row], {v: w[row] for v, w in weights.items()})
            raise ImpossibleEvidence(f"case {row}: {self._impossible(case)}")
        return CasePosteriors(self._model, result.posterior, result.log_evidence, result.impossible, wanted)

    def session(
        self, evidence: Findings | None = None, *, likelihood: Findings | None = None
    ) -> Session:
        """Queries one after another in which little changes: what they have in common is computed once.

        Parameters
        ----------
        evidence, likelihood : mapping, optional
            What is known at the beginning; see `posteriors`.
        """
        from .session import Session

        return Session(self, self._open().session(), evidence, likelihood)

    def _open(self) -> backends.Backend:
        if self._backend is None:
            raise JtgpuError("this tree is closed")
        return self._backend

    def _run(self, case: Evidence, targets: Sequence[int] | None) -> backends.Result:
        return self.answer(self._open().run, case, targets)

    def answer(
        self, run: Callable[[Evidence, Sequence[int] | None], backends.Result], case: Evidence,
        targets: Sequence[int] | None,
    ) -> backends.Result:  # fmt: skip
        """What a backend or a session of it answers; impossible evidence is named."""
        try:
            return run(case, targets)
        except ImpossibleEvidence:
            raise ImpossibleEvidence(self._impossible(case)) from None

    def _impossible(self, case: Evidence) -> str:
        found = []
        for v, weights in case.vectors(self._model.cardinality).items():
            allowed = [self._model.states(v)[i] for i in np.flatnonzero(weights).tolist()]
            value = repr(allowed[0]) if len(allowed) == 1 else "one of " + ", ".join(map(repr, allowed))
            found.append(f"{self._model.variables[v]} = {value}")
        if not found:
            return f"the model {self._model.name!r} gives every configuration probability 0"
        more = f" and {len(found) - 20} more" if len(found) > 20 else ""
        return f"this evidence has probability 0: {'; '.join(found[:20])}{more}"
