"""Most probable explanations: the most probable configuration of all variables given the evidence, and the k best.

A sweep by maximum towards the root, then states chosen from the root on, each from the slice of a table at the states
chosen before (Dawid, Applications of a general propagation algorithm for probabilistic expert systems, Statistics and
Computing 2, 1992): so the answer is one configuration and no medley of several, whatever the ties. Of equally probable
states the first is taken. The largest state of each variable by itself, which is what posteriors give, need not be
possible together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...backends.base import Evidence
from ...errors import ImpossibleEvidence
from ...model.network import DiscreteModel
from ..evidence import KnownCases
from .messages import CaseStates, messages_of, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..compiled import CompiledModel
    from ..interventions import Settled

__all__ = ["CaseExplanations", "Explanation", "mpe", "mpe_batch"]


class Explanation(Mapping[str, str]):
    """One configuration: a mapping from a variable's name to the name of its state.

    Attributes
    ----------
    states : (V,) int32
        Numbers of the states, in the model's order; -1 for variables that were not asked for.
    log_joint : float
        ln P(configuration, evidence), natural logarithm; for a Markov network not normalised.
    ranked : tuple of Explanation
        All that were asked for, most probable first; this one is among them.
    """

    def __init__(
        self,
        model: DiscreteModel,
        states: NDArray[np.int32],
        log_joint: float,
        log_evidence: Callable[[], float],
        variables: Sequence[int] | None = None,
    ):
        states.flags.writeable = False
        self._model = model
        self._variables = None if variables is None else dict.fromkeys(variables)
        self.states = states
        self.log_joint = log_joint
        self.ranked: tuple[Explanation, ...] = (self,)
        self._ask = log_evidence

    @property
    def log_evidence(self) -> float:
        """ln P(evidence); computed when it is asked for, while the tree is open."""
        return self._ask()

    @property
    def log_posterior(self) -> float:
        """ln P(configuration | evidence); see `log_evidence`."""
        return min(self.log_joint - self.log_evidence, 0.0)  # not 1e-16 above 1

    @property
    def probability(self) -> float:
        """P(configuration | evidence)."""
        return math.exp(self.log_posterior)

    def __getitem__(self, variable: str | int) -> str:
        v = self._model.index(variable)
        if self._variables is not None and v not in self._variables:
            raise KeyError(f"{self._model.variables[v]!r} was not among the variables of this question")
        return self._model.states(v)[int(self.states[v])]

    def __iter__(self) -> Iterator[str]:
        if self._variables is None:
            return iter(self._model.variables)
        return (self._model.variables[v] for v in self._variables)

    def __len__(self) -> int:
        return len(self._model) if self._variables is None else len(self._variables)

    def __repr__(self) -> str:
        shown = ", ".join(f"{v}={s}" for v, s in list(self.items())[:6])
        more = f", ... ({len(self)} in all)" if len(self) > 6 else ""
        return f"Explanation({shown}{more}; log_joint={self.log_joint:.9g})"


class CaseExplanations(CaseStates):
    """Most probable explanations of a table of B cases; see `CaseStates`.

    Attributes
    ----------
    log_joint : (B,) float64
        ln P(configuration, case); -inf for an impossible case.
    impossible : (B,) bool
    """

    def __init__(self, model: DiscreteModel, states: NDArray[np.int32], log_joint: NDArray[np.float64]):
        super().__init__(model, states)
        self.log_joint = log_joint
        self.impossible = np.isneginf(log_joint)


class _Once:
    """A number that is computed when it is first asked for."""

    def __init__(self, ask: Callable[[], float]):
        self._ask: Callable[[], float] | None = ask
        self._found = 0.0

    def __call__(self) -> float:
        if self._ask is not None:
            self._found, self._ask = self._ask(), None
        return self._found



def explanations(
    model: DiscreteModel,
    states: NDArray[np.int32],
    log_joint: NDArray[np.float64],
    log_evidence: Callable[[], float],
    variables: Sequence[int] | None = None,
) -> Explanation:
    """Configurations, best first, as what users hold: the first one."""
    once = _Once(log_evidence)
    # two whose logarithms differ in the last digit may have come reversed
    order = np.argsort(-log_joint, kind="stable")
    found = tuple(Explanation(model, states[i].copy(), float(log_joint[i]), once, variables) for i in order)
    for one in found:
        one.ranked = found
    return found[0]


def mpe(tree: CompiledModel, settled: Settled, k: int) -> Explanation:
    """See `jtgpu.JunctionTree.mpe`."""
    if k < 1:
        raise ValueError(f"k is the number of explanations, 1 or more, not {k!r}")
    sweep = messages_of(tree, settled.factors).maximal()
    best = named(tree, settled.case, lambda: sweep.best(settled.case, k))
    log_joint = sweep.score(best.states, settled.case) + settled.log_shift
    return explanations(tree.model, best.states, log_joint, evidence_of(tree, settled))


def evidence_of(tree: CompiledModel, settled: Settled) -> Callable[[], float]:
    """What tells ln P(evidence)."""
    return lambda: tree.answer(settled.backend.run, settled.case, []).log_evidence + settled.log_shift


def mpe_batch(tree: CompiledModel, known: KnownCases, on_impossible: str) -> CaseExplanations:
    """See `jtgpu.JunctionTree.mpe_batch`."""
    sweep = messages_of(tree, tree.intervened(known.cut).factors).maximal()
    best = sweep.best_rows(known.states, known.likelihood)
    impossible = np.isneginf(best.log_value)
    refuse(tree, known, impossible, on_impossible)
    return CaseExplanations(tree.model, best.states, best.log_value)


def refuse(tree: CompiledModel, known: KnownCases, impossible: NDArray[np.bool_], on_impossible: str) -> None:
    """Raise what names the first impossible case of a table, unless these are flagged."""
    if on_impossible not in ("error", "flag"):
        raise ValueError(f"on_impossible is 'error' or 'flag', not {on_impossible!r}")
    if on_impossible == "flag" or not impossible.any():
        return
    row = int(np.argmax(impossible))

    def fail() -> None:
        raise ImpossibleEvidence("the evidence has probability 0")

    try:
        named(tree, Evidence(known.states[row], {v: w[row] for v, w in known.likelihood.items()}), fail)
    except ImpossibleEvidence as error:
        raise ImpossibleEvidence(f"case {row}: {error}") from None
