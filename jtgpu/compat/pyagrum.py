"""`LazyPropagation` of pyAgrum, computed on a junction tree.

The network is compiled once, on construction. Inference runs on demand; targets and `makeInference` are accepted but
not required. Results are ``Tensor`` and ``Instantiation`` objects of pyAgrum; errors are those of jtgpu.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import EvidenceError
from ..interop.pyagrum import from_pyagrum, module
from ..model.states import StateNumber
from ..util.arrays import Floats
from ..util.options import BackendName

__all__ = ["LazyPropagation"]


class LazyPropagation:
    """Exact inference in a pyAgrum network; a drop-in replacement for `pyagrum.LazyPropagation`.

    Parameters
    ----------
    bn : pyagrum.BayesNet
        Converted on construction; later changes have no effect.
    backend : str
        See `jtgpu.BayesianNetwork.compile`.
    **options
        See `jtgpu.BayesianNetwork.plan`: ``order``, ``memory_limit`` ...
    """

    def __init__(self, bn: Any, backend: BackendName = "auto", **options: Any):
        self._bn = bn
        self._net = from_pyagrum(bn)
        self._tree = self._net.compile(backend, **options)
        self._hard: dict[str, int] = {}
        self._soft: dict[str, Floats] = {}
        self._answer: Any = None

    def BN(self) -> Any:
        """The network given on construction."""
        return self._bn

    # Evidence -------------------------------------------------------------------------------------------------

    def addEvidence(self, variable: str | int, value: object) -> None:
        """Observe a variable: a state by number or label, or weights of all states.

        Raises
        ------
        EvidenceError
            If the variable already has evidence, or weights have the wrong length or are all zero.
        UnknownVariable, UnknownState
        """
        v = self._name(variable)
        if self.hasEvidence(v):
            raise EvidenceError(f"{v!r} already has evidence; use chgEvidence to change it")
        self._set(v, value)

    def chgEvidence(self, variable: str | int, value: object) -> None:
        """Change the evidence on a variable.

        Raises
        ------
        EvidenceError
            See `addEvidence`; also if the variable has no evidence.
        UnknownVariable, UnknownState
        """
        v = self._name(variable)
        if not self.hasEvidence(v):
            raise EvidenceError(f"{v!r} has no evidence; use addEvidence to add some")
        self._set(v, value)

    def setEvidence(self, evidence: Mapping[Any, object]) -> None:
        """Replace all evidence by a mapping from variables to values; see `addEvidence` for the values."""
        findings = [(self._name(variable), value) for variable, value in evidence.items()]
        read = [(v, self._read(v, value)) for v, value in findings]  # may raise, so before anything is removed
        self.eraseAllEvidence()
        for v, (state, weights) in read:
            self._put(v, state, weights)

    def updateEvidence(self, evidence: Mapping[Any, object]) -> None:
        """Add or change evidence; other evidence is kept."""
        for v, (state, weights) in [(self._name(x), self._read(self._name(x), value)) for x, value in evidence.items()]:
            self._put(v, state, weights)

    def eraseEvidence(self, variable: str | int) -> None:
        """Remove the evidence on a variable, if there is any."""
        v = self._name(variable)
        self._hard.pop(v, None)
        self._soft.pop(v, None)
        self._answer = None

    def eraseAllEvidence(self) -> None:
        """Remove all evidence."""
        self._hard.clear()
        self._soft.clear()
        self._answer = None

    def hasEvidence(self, variable: str | int | None = None) -> bool:
        """Whether a variable has evidence; without an argument, whether any variable has evidence."""
        if variable is None:
            return bool(self._hard or self._soft)
        v = self._name(variable)
        return v in self._hard or v in self._soft

    def hasHardEvidence(self, variable: str | int) -> bool:
        """Whether a variable's state is observed."""
        return self._name(variable) in self._hard

    def hasSoftEvidence(self, variable: str | int) -> bool:
        """Whether a variable has weights."""
        return self._name(variable) in self._soft

    def nbrEvidence(self) -> int:
        """Number of variables with evidence."""
        return len(self._hard) + len(self._soft)

    def nbrHardEvidence(self) -> int:
        """Number of variables whose state is observed."""
        return len(self._hard)

    def nbrSoftEvidence(self) -> int:
        """Number of variables with weights."""
        return len(self._soft)

    def _name(self, variable: str | int) -> str:
        # ids of pyAgrum need not be 0, 1, 2 ...
        if isinstance(variable, (int, np.integer)) and not isinstance(variable, bool):
            ids = sorted(self._bn.nodes())
            if int(variable) in ids:
                return self._net.variables[ids.index(int(variable))]
        return self._net.variables[self._net.index(variable)]

    def _read(self, v: str, value: Any) -> tuple[int, Floats | None]:
        if not isinstance(value, str) and np.ndim(value) > 0:
            weights = np.array(value, np.float64).ravel()
            card = len(self._net.states(v))
            if weights.size != card:
                raise EvidenceError(f"{v!r} has {card} states, but {weights.size} weights are given")
            if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
                raise EvidenceError(f"the weights of {v!r} must be finite and >= 0, and not all zero")
            if np.count_nonzero(weights) == 1 and weights.max() == 1.0:
                return StateNumber(weights.argmax()), None
            return -1, weights
        is_index = isinstance(value, (int, np.integer)) or (isinstance(value, float) and value.is_integer())
        if is_index and not isinstance(value, bool):  # in pyAgrum never the label of that number
            value = StateNumber(value)
        return self._net.state_index(v, value), None

    def _set(self, v: str, value: object) -> None:
        self._put(v, *self._read(v, value))

    def _put(self, v: str, state: int, weights: Floats | None) -> None:
        self.eraseEvidence(v)
        if weights is None:
            self._hard[v] = state
        else:
            self._soft[v] = weights

    # Targets, which have no effect --------------------------------------------------------

    def makeInference(self) -> None:
        """Run the inference for the current evidence."""
        self._posteriors()

    def addTarget(self, variable: str | int) -> None:
        """Check the variable; targets are not needed."""
        self._name(variable)

    def addJointTarget(self, variables: Iterable[str | int]) -> None:
        """Check the variables; targets are not needed."""
        for v in variables:
            self._name(v)

    def setTargets(self, variables: Iterable[str | int]) -> None:
        """Check the variables; targets are not needed."""
        self.addJointTarget(variables)

    def addAllTargets(self) -> None:
        """Do nothing; targets are not needed."""

    def eraseAllTargets(self) -> None:
        """Do nothing; targets are not needed."""

    # Answers --------------------------------------------------------------------------------------------------

    def _posteriors(self) -> Any:
        if self._answer is None:
            self._answer = self._tree.posteriors(self._hard, likelihood=self._soft)
        return self._answer

    def posterior(self, variable: str | int) -> Any:
        """Compute P(variable | evidence) as a ``Tensor``."""
        v = self._name(variable)
        return self._tensor([v], np.asarray(self._posteriors()[v]))

    def jointPosterior(self, variables: Iterable[str | int]) -> Any:
        """Compute P(variables | evidence) as a ``Tensor``; the variables need not be targets."""
        chosen = {self._name(v) for v in variables}
        names = [v for v in self._net.variables if v in chosen]
        return self._tensor(names, np.asarray(self._tree.joint(names, self._hard, likelihood=self._soft)))

    def evidenceProbability(self) -> float:
        """Compute P(evidence). It underflows to 0 if it is smaller than any double; `logEvidence` does not."""
        return math.exp(self.logEvidence())

    def logEvidence(self) -> float:
        """Compute ln P(evidence). This method is not part of pyAgrum's class."""
        return float(self._posteriors().log_evidence)

    def H(self, variable: str | int) -> float:
        """Compute the entropy of a variable's posterior, in bits."""
        p = np.asarray(self._posteriors()[self._name(variable)])
        p = p[p > 0]
        return float(-(p * np.log2(p)).sum())

    def mpe(self) -> Any:
        """Find the most probable configuration of all variables, as an ``Instantiation``."""
        best = self._tree.mpe(self._hard, likelihood=self._soft).states
        gum = module()
        instantiation = gum.Instantiation()
        for i, v, state in zip(sorted(self._bn.nodes()), self._net.variables, best.tolist(), strict=True):
            instantiation.add(self._bn.variable(i))
            instantiation.chgVal(v, state)
        return instantiation

    def _tensor(self, names: list[str], table: Floats) -> Any:
        gum = module()
        made = (getattr(gum, "Tensor", None) or gum.Potential)()
        for v in names:
            made.add(self._bn.variable(v))
        # the first variable fastest
        made.fillWith(np.ascontiguousarray(table.transpose()).ravel().tolist())
        return made
