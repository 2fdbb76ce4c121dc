"""`JunctionTree`: what users hold. Names and labels in, labelled probabilities out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import backends
from .backends.base import Evidence
from .errors import EvidenceError, ImpossibleEvidence, JtgpuError
from .network import DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from .compiler import NetworkPlan

__all__ = ["JunctionTree", "Posterior", "Posteriors", "read_findings"]

Findings = Mapping[Any, Any]  # variable (name or number) -> state (name or number), or a set of states


class Posterior:
    """P(variable | evidence) with the states' names.

    ``numpy.asarray(p)`` gives the probabilities in the order of the states; ``p["yes"]`` and ``p[0]`` give one.
    """

    __slots__ = ("probabilities", "states", "variable")

    def __init__(self, variable: str, states: tuple[str, ...], probabilities: NDArray[np.float64]):
        self.variable = variable  # name
        self.states = states  # names, in order
        self.probabilities = probabilities  # (states,) float64, read-only, sums to 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if dtype is None or np.dtype(dtype) == self.probabilities.dtype:
            return self.probabilities.copy() if copy else self.probabilities
        return self.probabilities.astype(dtype)

    def __getitem__(self, state: str | int) -> float:
        """Probability of one state by name or number.

        Raises
        ------
        UnknownState
            A `KeyError` too; names the states there are.
        """
        if isinstance(state, str) and self.states.count(state) == 1:
            return float(self.probabilities[self.states.index(state)])
        model = DiscreteModel({self.variable: self.states})
        return float(self.probabilities[model.state_index(0, state)])

    def __iter__(self) -> Iterator[float]:
        return iter(self.probabilities.tolist())

    def __len__(self) -> int:
        return len(self.states)

    def as_dict(self) -> dict[str, float]:
        """State's name to probability; of states with equal names the last one stays."""
        return dict(zip(self.states, self.probabilities.tolist(), strict=True))

    @property
    def mode(self) -> str:
        """Name of the most probable state; the first of equals."""
        return self.states[int(self.probabilities.argmax())]

    def __repr__(self) -> str:
        inner = ", ".join(f"{s}: {p:.6g}" for s, p in zip(self.states, self.probabilities.tolist(), strict=True))
        return f"P({self.variable}) = {{{inner}}}"


class Posteriors(Mapping[str, Posterior]):
    """Posteriors of several variables: a mapping from name to `Posterior`, labelled only when looked at.

    Attributes
    ----------
    log_evidence : float
        Natural logarithm of the probability of the evidence (0 without evidence); for a Markov network of the
        partition function.
    """

    def __init__(
        self,
        model: DiscreteModel,
        flat: NDArray[np.float64],
        ptr: NDArray[np.int64],
        log_evidence: float,
        targets: Sequence[int] | None = None,
    ):
        flat.flags.writeable = False
        self._model, self._flat, self._ptr = model, flat, ptr
        self._targets = None if targets is None else dict.fromkeys(targets)
        self.log_evidence = log_evidence

    def __getitem__(self, variable: str | int) -> Posterior:
        v = self._model.index(variable)
        if self._targets is not None and v not in self._targets:
            raise KeyError(f"{self._model.variables[v]!r} was not among the targets of this query")
        return Posterior(
            self._model.variables[v], self._model.states(v), self._flat[self._ptr[v] : self._ptr[v + 1]]
        )

    def __iter__(self) -> Iterator[str]:
        ids: Iterable[int] = range(len(self._model)) if self._targets is None else self._targets
        return (self._model.variables[v] for v in ids)

    def __len__(self) -> int:
        return len(self._model) if self._targets is None else len(self._targets)

    def __repr__(self) -> str:
        return f"Posteriors of {len(self)} variables, log_evidence={self.log_evidence:.9g}"


def read_findings(model: DiscreteModel, findings: Findings | None, likelihood: Findings | None = None) -> Evidence:
    """Evidence by names as evidence by numbers.

    Parameters
    ----------
    model : DiscreteModel
    findings : mapping, optional
        Variable to a state, or to a set (list, tuple) of states of which one holds.
    likelihood : mapping, optional
        Variable to weights >= 0: an array in the order of the states, or a mapping from state to weight in which
        every state stands.

    Raises
    ------
    UnknownVariable, UnknownState
        With the closest names.
    EvidenceError
        For a value of another type, a wrong length, a negative weight, the same variable twice.
    ImpossibleEvidence
        For a set without states, or weights that are all zero.
    """
    state = np.full(len(model), -1, np.int32)
    weights: dict[int, NDArray[np.float64]] = {}
    for variable, value in _items(findings, "evidence"):
        v = model.index(variable)
        name = model.variables[v]
        if state[v] >= 0 or v in weights:
            raise EvidenceError(f"evidence names the variable {name!r} twice (by name and by number)")
        if isinstance(value, (AbstractSet, list, tuple)):
            chosen = sorted({model.state_index(v, s) for s in value})
            if not chosen:
                raise ImpossibleEvidence(f"the evidence on {name!r} is a set without states")
            if len(chosen) == 1:
                state[v] = chosen[0]
            else:
                weights[v] = np.zeros(int(model.cardinality[v]))
                weights[v][chosen] = 1.0
        elif value is None or (isinstance(value, float) and math.isnan(value)):
            raise EvidenceError(f"the evidence on {name!r} is {value!r}; leave out what is not observed")
        elif isinstance(value, Mapping) or np.ndim(value) > 0:
            raise EvidenceError(
                f"the evidence on {name!r} is {value!r}; weights are given as likelihood={{{name!r}: ...}}"
            )
        else:
            state[v] = model.state_index(v, value)
    soft: set[int] = set()
    for variable, value in _items(likelihood, "likelihood"):
        v = model.index(variable)
        if v in soft:
            raise EvidenceError(f"likelihood names the variable {model.variables[v]!r} twice (by name and by number)")
        soft.add(v)
        vector = _weights(model, v, value)
        weights[v] = weights[v] * vector if v in weights else vector
    return Evidence(state, weights)


def _items(given: Findings | None, what: str) -> Iterable[tuple[Any, Any]]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise EvidenceError(
            f"{what} maps variables to what is known of them; this is {type(given).__name__}: {given!r}"
        )
    return given.items()


def _weights(model: DiscreteModel, v: int, value: Mapping[Any, float] | ArrayLike) -> NDArray[np.float64]:
    name, card = model.variables[v], int(model.cardinality[v])
    if isinstance(value, Mapping):
        vector = np.full(card, np.nan)
        for s, w in value.items():
            vector[model.state_index(v, s)] = w
        if np.isnan(vector).any():
            missing = [model.states(v)[i] for i in np.flatnonzero(np.isnan(vector)).tolist()]
            raise EvidenceError(f"the likelihood of {name!r} has no weight for {', '.join(map(repr, missing))}")
    else:
        try:
            vector = np.array(value, np.float64)
        except (TypeError, ValueError):
            raise EvidenceError(f"the likelihood of {name!r} is no array of numbers: {value!r}") from None
    if vector.shape != (card,):
        raise EvidenceError(f"the likelihood of {name!r} has shape {vector.shape}; it has {card} states")
    if not np.isfinite(vector).all() or (vector < 0).any():
        raise EvidenceError(f"the likelihood of {name!r} needs finite weights >= 0, not {vector.tolist()}")
    if not vector.any():
        raise ImpossibleEvidence(f"the likelihood of {name!r} is zero in every state")
    return vector


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
            See `read_findings`.
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

    def _run(self, case: Evidence, targets: Sequence[int] | None) -> backends.Result:
        if self._backend is None:
            raise JtgpuError("this tree is closed")
        try:
            return self._backend.run(case, targets)
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
