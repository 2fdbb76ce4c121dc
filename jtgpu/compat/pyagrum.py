"""pyAgrum's `LazyPropagation` over a junction tree of ours.

The network is compiled once, when the object is made. Inference is done when an answer is asked for, so targets and
`makeInference` are taken and not needed. Answers are pyAgrum's ``Tensor`` and ``Instantiation``; errors are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EvidenceError
from ..interop.pyagrum import from_pyagrum, module

__all__ = ["LazyPropagation"]


class LazyPropagation:
    """Exact inference in a network of pyAgrum's; see `pyagrum.LazyPropagation`.

    Parameters
    ----------
    bn : pyagrum.BayesNet
        What it holds when the object is made; later changes are not seen.
    backend : str
        As `jtgpu.BayesianNetwork.compile` takes it.
    **options
        Of `jtgpu.BayesianNetwork.plan`: ``order``, ``memory_limit`` ...
    """

    def __init__(self, bn: Any, backend: str = "auto", **options: Any):
        self._bn = bn
        self._net = from_pyagrum(bn)
        self._tree = self._net.compile(backend, **options)
        self._hard: dict[str, int] = {}
        self._soft: dict[str, NDArray[np.float64]] = {}
        self._answer: Any = None

    def BN(self) -> Any:
        """The network that was given."""
        return self._bn

    # Evidence -------------------------------------------------------------------------------------------------

    def addEvidence(self, variable: str | int, value: Any) -> None:
        """Observe a variable that is not observed yet: a state by number or label, or weights of all states.

        Raises
        ------
        EvidenceError
            For a variable that is observed, and for weights of a wrong number or all zero.
        UnknownVariable, UnknownState
        """
        v = self._name(variable)
        if self.hasEvidence(v):
            raise EvidenceError(f"there is evidence on {v!r} already: chgEvidence changes it")
        self._set(v, value)

    def chgEvidence(self, variable: str | int, value: Any) -> None:
        """Change the evidence on a variable that is observed. Raises as `addEvidence`, and where there is none."""
        v = self._name(variable)
        if not self.hasEvidence(v):
            raise EvidenceError(f"there is no evidence on {v!r}: addEvidence adds some")
        self._set(v, value)

    def setEvidence(self, evidence: Mapping[Any, Any]) -> None:
        """Forget all evidence and add this: variable to what `addEvidence` takes."""
        found = [(self._name(variable), value) for variable, value in evidence.items()]
        read = [(v, self._read(v, value)) for v, value in found]  # before anything is forgotten
        self.eraseAllEvidence()
        for v, (state, weights) in read:
            self._put(v, state, weights)

    def updateEvidence(self, evidence: Mapping[Any, Any]) -> None:
        """Add or change this evidence; what else is observed stays."""
        for v, (state, weights) in [(self._name(x), self._read(self._name(x), value)) for x, value in evidence.items()]:
            self._put(v, state, weights)

    def eraseEvidence(self, variable: str | int) -> None:
        """Forget the evidence on a variable, if there is any."""
        v = self._name(variable)
        self._hard.pop(v, None)
        self._soft.pop(v, None)
        self._answer = None

    def eraseAllEvidence(self) -> None:
        """Forget all evidence."""
        self._hard.clear()
        self._soft.clear()
        self._answer = None

    def hasEvidence(self, variable: str | int | None = None) -> bool:
        """Is a variable observed, or any?"""
        if variable is None:
            return bool(self._hard or self._soft)
        v = self._name(variable)
        return v in self._hard or v in self._soft

    def hasHardEvidence(self, variable: str | int) -> bool:
        """Is a variable's state observed?"""
        return self._name(variable) in self._hard

    def hasSoftEvidence(self, variable: str | int) -> bool:
        """Are there weights on a variable?"""
        return self._name(variable) in self._soft

    def nbrEvidence(self) -> int:
        """How many variables are observed."""
        return len(self._hard) + len(self._soft)

    def nbrHardEvidence(self) -> int:
        """How many variables' states are observed."""
        return len(self._hard)

    def nbrSoftEvidence(self) -> int:
        """On how many variables there are weights."""
        return len(self._soft)

    def _name(self, variable: str | int) -> str:
        # ids of pyAgrum's need not be 0, 1, 2 ...
        if isinstance(variable, (int, np.integer)) and not isinstance(variable, bool):
            ids = sorted(self._bn.nodes())
            if int(variable) in ids:
                return self._net.variables[ids.index(int(variable))]
        return self._net.variables[self._net.index(variable)]

    def _read(self, v: str, value: Any) -> tuple[int, NDArray[np.float64] | None]:
        if not isinstance(value, str) and np.ndim(value) > 0:
            weights = np.array(value, np.float64).ravel()
            card = len(self._net.states(v))
            if weights.size != card:
                raise EvidenceError(f"the weights of {v!r} are {weights.size}; it has {card} states")
            if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
                raise EvidenceError(f"the weights of {v!r} need finite numbers >= 0, one above 0")
            if np.count_nonzero(weights) == 1 and weights.max() == 1.0:
                return int(weights.argmax()), None
            return -1, weights
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return self._net.state_index(v, value), None

    def _set(self, v: str, value: Any) -> None:
        self._put(v, *self._read(v, value))

    def _put(self, v: str, state: int, weights: NDArray[np.float64] | None) -> None:
        self.eraseEvidence(v)
        if weights is None:
            self._hard[v] = state
        else:
            self._soft[v] = weights

    # Targets: every answer is there when it is asked for --------------------------------------------------------

    def makeInference(self) -> None:
        """Propagate now what `posterior` would propagate when asked."""
        self._posteriors()

    def addTarget(self, variable: str | int) -> None:
        """Taken and not needed; the variable is checked."""
        self._name(variable)

    def addJointTarget(self, variables: Iterable[str | int]) -> None:
        """Taken and not needed; the variables are checked."""
        for v in variables:
            self._name(v)

    def setTargets(self, variables: Iterable[str | int]) -> None:
        """Taken and not needed; the variables are checked."""
        self.addJointTarget(variables)

    def addAllTargets(self) -> None:
        """Taken and not needed."""

    def eraseAllTargets(self) -> None:
        """Taken and not needed."""

    # Answers --------------------------------------------------------------------------------------------------

    def _posteriors(self) -> Any:
        if self._answer is None:
            self._answer = self._tree.posteriors(self._hard, likelihood=self._soft)
        return self._answer

    def posterior(self, variable: str | int) -> Any:
        """P(variable | evidence), a ``Tensor``."""
        v = self._name(variable)
        return self._tensor([v], np.asarray(self._posteriors()[v]))

    def jointPosterior(self, variables: Iterable[str | int]) -> Any:
        """P(variables | evidence), a ``Tensor``; any variables, whether they were targets or not."""
        chosen = {self._name(v) for v in variables}
        names = [v for v in self._net.variables if v in chosen]
        return self._tensor(names, np.asarray(self._tree.joint(names, self._hard, likelihood=self._soft)))

    def evidenceProbability(self) -> float:
        """P(evidence); 0 only where it is smaller than any double. `logEvidence` is never so."""
        return math.exp(self.logEvidence())

    def logEvidence(self) -> float:
        """ln P(evidence); pyAgrum has no such question."""
        return float(self._posteriors().log_evidence)

    def H(self, variable: str | int) -> float:
        """Entropy of a variable's posterior in bits."""
        p = np.asarray(self._posteriors()[self._name(variable)])
        p = p[p > 0]
        return float(-(p * np.log2(p)).sum())

    def mpe(self) -> Any:
        """The most probable states of all variables together, an ``Instantiation``."""
        best = self._tree.mpe(self._hard, likelihood=self._soft).states
        gum = module()
        found = gum.Instantiation()
        for i, v, state in zip(sorted(self._bn.nodes()), self._net.variables, best.tolist(), strict=True):
            found.add(self._bn.variable(i))
            found.chgVal(v, state)
        return found

    def _tensor(self, names: list[str], table: NDArray[np.float64]) -> Any:
        gum = module()
        made = (getattr(gum, "Tensor", None) or gum.Potential)()
        for v in names:
            made.add(self._bn.variable(v))
        # the first variable fastest
        made.fillWith(np.ascontiguousarray(table.transpose()).ravel().tolist())
        return made
