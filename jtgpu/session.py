"""`Session`: evidence that grows, changes and is taken back, with everything that stays the same computed once."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .answers import Posterior, Posteriors
from .errors import EvidenceError
from .evidence import Findings, read_findings

if TYPE_CHECKING:
    from .backends.base import Result
    from .backends.base import Session as BackendSession
    from .tree import JunctionTree

__all__ = ["Session"]


class Session:
    """Evidence that changes little by little; made by ``tree.session()``.

    Neither the network nor the tree is changed. A session holds the tables of one propagation; several sessions of
    one tree know nothing of each other.

    Examples
    --------
    >>> from jtgpu import BayesianNetwork
    >>> net = BayesianNetwork(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"wet": ["rain"]},
    ...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]},
    ... )
    >>> session = net.compile(backend="cpu").session()
    >>> session.observe("wet", "yes")
    >>> round(session.posterior("rain")["yes"], 6)
    0.666667
    >>> session.retract("wet")
    >>> round(session.posterior("rain")["yes"], 6)
    0.2
    """

    def __init__(
        self,
        tree: JunctionTree,
        backend: BackendSession,
        evidence: Findings | None = None,
        likelihood: Findings | None = None,
    ):
        self._tree, self._backend = tree, backend
        self._evidence: dict[str, Any] = {}
        self._likelihood: dict[str, Any] = {}
        self.set(evidence, likelihood=likelihood)

    # Evidence ---------------------------------------------------------------------------------------------------

    @property
    def evidence(self) -> dict[str, Any]:
        """What is observed now, by name; a copy."""
        return dict(self._evidence)

    @property
    def likelihood(self) -> dict[str, Any]:
        """Weights that are given now, by name; a copy."""
        return dict(self._likelihood)

    def set(self, evidence: Findings | None = None, *, likelihood: Findings | None = None) -> None:
        """Put this evidence in the place of all that was given before; see `jtgpu.JunctionTree.posteriors`.

        Raises
        ------
        UnknownVariable, UnknownState, EvidenceError
            And then nothing has changed.
        """
        model = self._tree.model
        read_findings(model, evidence, likelihood)
        self._evidence = {model.variables[model.index(v)]: s for v, s in (evidence or {}).items()}
        self._likelihood = {model.variables[model.index(v)]: w for v, w in (likelihood or {}).items()}

    def observe(self, variable: str | int, state: Any) -> None:
        """Add a finding, or change it: a state, or a set of states of which one holds."""
        name = self._name(variable)
        read_findings(self._tree.model, {name: state})
        self._evidence[name] = state

    def weigh(self, variable: str | int, weights: Any) -> None:
        """Add virtual evidence, P(observation | state), or change it."""
        name = self._name(variable)
        read_findings(self._tree.model, None, {name: weights})
        self._likelihood[name] = weights

    def retract(self, variable: str | int) -> None:
        """Take back what is known of a variable.

        Raises
        ------
        EvidenceError
            When nothing is.
        """
        name = self._name(variable)
        if name not in self._evidence and name not in self._likelihood:
            raise EvidenceError(f"there is no evidence on {name!r} to take back")
        self._evidence.pop(name, None)
        self._likelihood.pop(name, None)

    def clear(self) -> None:
        """Take back everything."""
        self.set()

    def _name(self, variable: str | int) -> str:
        model = self._tree.model
        return model.variables[model.index(variable)]

    # Queries ----------------------------------------------------------------------------------------------------

    def posteriors(self, *, targets: Iterable[str | int] | None = None) -> Posteriors:
        """Posterior of every variable, or of the targets; see `jtgpu.JunctionTree.posteriors`."""
        model = self._tree.model
        if isinstance(targets, str):
            targets = [targets]
        wanted = None if targets is None else [model.index(t) for t in targets]
        result = self._run(wanted)
        return Posteriors(model, result.posterior, self._tree.plan.plan.posterior_ptr, result.log_evidence, wanted)

    def posterior(self, variable: str | int) -> Posterior:
        """Posterior of one variable."""
        return self.posteriors(targets=[variable])[variable]

    def log_evidence(self) -> float:
        """ln P(evidence), natural logarithm. Impossible evidence is an error, never -inf."""
        return self._run([]).log_evidence

    def _run(self, targets: list[int] | None) -> Result:
        case = read_findings(self._tree.model, self._evidence, self._likelihood)
        return self._tree.answer(self._backend.run, case, targets)

    def close(self) -> None:
        """Give the session's memory back; the tree stays."""
        self._backend.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self._tree.model.name!r}, {len(self._evidence) + len(self._likelihood)} findings)"
