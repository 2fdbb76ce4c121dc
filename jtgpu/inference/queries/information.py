"""Information: entropies, what other variables say of a target, what to observe next, what each finding did.

Everything is read off tables of a few cases. I(T; X) for every X needs a case for each state t of T, since with
P(x | t, e) of all X it is sum_t P(t) KL(P(x | t) || P(x)). The expected entropy of T after observing X is
H(T) - I(T; X), so what to observe next is told by the same table. Natural logarithms throughout: nats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence
from ...errors import EvidenceError, ImpossibleEvidence
from .joint import joint
from .scope import scope_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.base import BatchResult
    from ..compiled import CompiledModel
    from ..evidence import Known
    from ..interventions import Settled

__all__ = [
    "Importance",
    "Observation",
    "conflict",
    "entropy",
    "evidence_importance",
    "hellinger",
    "kl_divergence",
    "mutual_information",
    "value_of_information",
]


@dataclass(frozen=True)
class Observation:
    """What observing a variable next would do for a target, on average over what may be seen.

    Attributes
    ----------
    variable : str
        What is observed.
    expected_entropy : float
        Of the target afterwards, nats.
    gain : float
        How much less than before: the mutual information.
    expected_accuracy : float
        Probability of the target's most probable state afterwards: the share of right guesses.
    """

    variable: str
    expected_entropy: float
    gain: float
    expected_accuracy: float


@dataclass(frozen=True)
class Importance:
    """What one finding does to a target's posterior P, left out and alone.

    Attributes
    ----------
    variable : str
        Of the finding.
    states : tuple of str
        What was found: the states that it leaves possible.
    without, alone : array
        The target's posterior without this finding, and with it alone; in the order of the states.
    kl_without : float
        KL(P || without), nats: what the finding adds to the others. 0: nothing.
    hellinger_without, shift_without : float
        Hellinger distance, 0 to 1, and largest difference of a probability between P and `without`.
    kl_alone, hellinger_alone, shift_alone : float
        The same between `alone` and the prior: KL(alone || prior).
    """

    variable: str
    states: tuple[str, ...]
    without: NDArray[np.float64]
    alone: NDArray[np.float64]
    kl_without: float
    hellinger_without: float
    shift_without: float
    kl_alone: float
    hellinger_alone: float
    shift_alone: float


def _entropy(p: NDArray[np.float64]) -> float:
    """-sum p ln p, 0 ln 0 = 0."""
    kept = p[p > 0]
    return max(0.0, -float((kept * np.log(kept)).sum()))


def kl_divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """KL(p || q) in nats; q is positive where p is."""
    at = p > 0
    return max(0.0, float((p[at] * np.log(p[at] / q[at])).sum()))


def hellinger(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Hellinger distance: sqrt of half the sum of (sqrt p - sqrt q)^2; 0 to 1."""
    return min(1.0, float(np.sqrt(0.5 * np.square(np.sqrt(p) - np.sqrt(q)).sum())))


def entropy(tree: CompiledModel, variables: str | int | Iterable[str | int], settled: Settled) -> float:
    """See `jtgpu.JunctionTree.entropy`."""
    scope = scope_of(tree.model, variables)
    if len(scope) > 1:
        return _entropy(joint(tree, scope, settled).probabilities)
    result = tree.answer(settled.backend.run, settled.case, scope)
    ptr = tree.plan.posterior_ptr
    return _entropy(result.posterior[ptr[scope[0]] : ptr[scope[0] + 1]])


# A target against others --------------------------------------------------------------------------------------------


class _Against:
    """P(t | e), and P(x | t, e) of other variables x for each state t that has a probability."""

    def __init__(self, tree: CompiledModel, target: int, others: list[int], settled: Settled):
        model, case = tree.model, settled.case
        card = int(model.cardinality[target])
        states = np.tile(case.state, (card, 1))
        if case.state[target] < 0:
            states[:, target] = np.arange(card)
        else:
            states = states[:1]
        weights = {v: np.tile(w, (len(states), 1)) for v, w in case.likelihood.items()}
        found = settled.backend.run_batch(np.ascontiguousarray(states, np.int32), weights, others)
        if found.impossible.all():
            tree.answer(settled.backend.run, case, [])  # raises, naming it
            raise ImpossibleEvidence("the evidence has probability 0")
        possible = ~found.impossible
        log_case = found.log_evidence[possible]
        self.p = np.exp(log_case - log_case.max())
        self.p /= self.p.sum()
        self.rows = found.posterior[possible]  # (T, sum of the others' states)
        ends = np.cumsum([0, *(int(model.cardinality[v]) for v in others)]).tolist()
        self.place = {v: slice(a, b) for v, a, b in zip(others, ends, ends[1:], strict=False)}

    def joint(self, v: int) -> NDArray[np.float64]:
        """(T, states) P(t, x | e)."""
        return np.asarray(self.p[:, None] * self.rows[:, self.place[v]])

    def information(self, v: int) -> float:
        """I(T; X | e)."""
        both = self.joint(v)
        apart = self.p[:, None] * both.sum(axis=0)
        return kl_divergence(both, apart)


def _others(tree: CompiledModel, target: int, given: Iterable[str | int] | None, settled: Settled) -> list[int]:
    model = tree.model
    if given is None:
        return [v for v in range(len(model)) if v != target]
    others = scope_of(model, given)
    if target in others:
        raise EvidenceError(f"the target {model.variables[target]!r} is one of the others")
    return others


def mutual_information(
    tree: CompiledModel, target: str | int, others: Iterable[str | int] | None, settled: Settled
) -> dict[str, float]:
    """See `jtgpu.JunctionTree.mutual_information`."""
    t = tree.model.index(target)
    scope = _others(tree, t, others, settled)
    against = _Against(tree, t, scope, settled)
    found = {v: against.information(v) for v in scope}
    return {tree.model.variables[v]: found[v] for v in sorted(found, key=lambda v: (-found[v], v))}


def value_of_information(
    tree: CompiledModel, target: str | int, candidates: Iterable[str | int] | None, settled: Settled
) -> list[Observation]:
    """See `jtgpu.JunctionTree.value_of_information`."""
    model = tree.model
    t = model.index(target)
    scope = _others(tree, t, candidates, settled)
    if candidates is None:
        scope = [v for v in scope if settled.case.state[v] < 0]
    against = _Against(tree, t, scope, settled)
    before = _entropy(against.p)
    found = []
    for v in scope:
        gain = min(against.information(v), before)
        accuracy = float(against.joint(v).max(axis=0).sum())
        found.append(Observation(model.variables[v], before - gain, gain, min(1.0, accuracy)))
    return sorted(found, key=lambda o: (-o.gain, model.index(o.variable)))


# Findings one by one ------------------------------------------------------------------------------------------------


def _tables_of_findings(
    tree: CompiledModel, known: Known, kept: NDArray[np.bool_], targets: list[int]
) -> tuple[BatchResult, list[int]]:
    """A case for each row of `kept` (rows, findings), with some findings of a case; the findings' variables.

    What variables are set to stays in every case.
    """
    case = known.case
    findings = [
        v for v in range(len(tree.model)) if (case.state[v] >= 0 or v in case.likelihood) and v not in known.intervened
    ]
    states = np.tile(case.state, (len(kept), 1))
    weights: dict[int, NDArray[np.float64]] = {v: np.tile(w, (len(kept), 1)) for v, w in case.likelihood.items()}
    for i, v in enumerate(findings):
        states[~kept[:, i], v] = -1
        if v in weights:
            weights[v][~kept[:, i]] = 1.0
    found = tree.intervened(known.intervened).backend.run_batch(np.ascontiguousarray(states, np.int32), weights, targets)
    return found, findings


def _n_findings(known: Known) -> int:
    case = known.case
    observed = {*np.flatnonzero(case.state >= 0).tolist(), *case.likelihood}
    return len(observed.difference(known.intervened))


def conflict(tree: CompiledModel, known: Known) -> float:
    """See `jtgpu.JunctionTree.conflict`."""
    n = _n_findings(known)
    if not n:
        raise EvidenceError("there is no evidence that could be in conflict")
    kept = np.vstack([np.zeros(n, np.bool_), np.ones(n, np.bool_), np.eye(n, dtype=np.bool_)])
    found, _ = _tables_of_findings(tree, known, kept, [])
    _refuse(tree, known, bool(found.impossible[:2].any()))
    # a Markov network's factors may sum to anything: what nothing is known of is what 1 means
    log_p = found.log_evidence - found.log_evidence[0]
    return float(log_p[2:].sum() - log_p[1])


def _refuse(tree: CompiledModel, known: Known, impossible: bool) -> None:
    if impossible:
        tree.answer(tree.intervened(known.intervened).backend.run, known.case, [])  # raises, naming it
        raise ImpossibleEvidence("the evidence has probability 0")


def evidence_importance(tree: CompiledModel, target: str | int, known: Known) -> list[Importance]:
    """See `jtgpu.JunctionTree.evidence_importance`."""
    model = tree.model
    t = model.index(target)
    n = _n_findings(known)
    if not n:
        raise EvidenceError("there is no evidence whose importance could be told")
    alone = np.eye(n, dtype=np.bool_)
    kept = np.vstack([np.ones(n, np.bool_), np.zeros(n, np.bool_), ~alone, alone])
    found, findings = _tables_of_findings(tree, known, kept, [t])
    _refuse(tree, known, bool(found.impossible[0]))
    posterior, prior = found.posterior[0], found.posterior[1]
    vectors: Mapping[int, Any] = Evidence(known.case.state, known.case.likelihood).vectors(model.cardinality)
    answers = []
    for i, v in enumerate(findings):
        without, only = found.posterior[2 + i].copy(), found.posterior[2 + n + i].copy()
        states = tuple(model.states(v)[k] for k in np.flatnonzero(vectors[v]).tolist())
        answers.append(
            Importance(
                model.variables[v], states, without, only,
                kl_divergence(posterior, without), hellinger(posterior, without), _shift(posterior, without),
                kl_divergence(only, prior), hellinger(only, prior), _shift(only, prior),
            )
        )  # fmt: skip
    return sorted(answers, key=lambda a: (-a.kl_without, -a.kl_alone, model.index(a.variable)))


def _shift(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    return float(np.abs(p - q).max())
