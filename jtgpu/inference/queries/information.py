"""Information measures: entropy, mutual information, and which variable to observe next.

Everything is computed from tables of a few cases. I(T; X) for all X needs one case for each state t of T, since with
P(x | t, e) of all X it is sum_t P(t) KL(P(x | t) || P(x)). The expected entropy of T after observing X is
H(T) - I(T; X), so the value of information comes from the same table. Logarithms are natural: units are nats, unless
a caller wants bits, to which results are converted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EvidenceError, ImpossibleEvidence
from ...util.arguments import choice
from ...util.arrays import Bools, Floats
from ...util.elementary import exps, logs
from ..results.rankings import Ranking, Scores
from .joint import joint
from .posteriors import scope_of

if TYPE_CHECKING:
    from ...backends.base import BatchResult
    from ...util.options import InformationUnit
    from ..compiled import CompiledModel
    from ..evidence import CaseEvidence
    from ..interventions import ResolvedEvidence

BITS = 1.4426950408889634  # of a nat: 1 / ln 2


@dataclass(frozen=True)
class Observation:
    """Expected effect of observing a variable on a target, averaged over the states that may be observed.

    Attributes
    ----------
    variable : str
        The variable to observe.
    expected_entropy : float
        Expected entropy of the target after the observation, in nats, or in bits with ``unit="bits"``.
    gain : float
        Expected reduction of the entropy, which is the mutual information, in the same unit.
    expected_accuracy : float
        Expected probability of the target's most probable state after the observation.
    """

    variable: str
    expected_entropy: float
    gain: float
    expected_accuracy: float


def kl_divergence(p: Floats, q: Floats) -> float:
    """KL(p || q) in nats. `q` must be positive where `p` is."""
    at = p > 0
    return max(0.0, float((p[at] * logs(p[at] / q[at])).sum()))


def _entropy(p: Floats) -> float:
    """-sum p ln p, with 0 ln 0 = 0."""
    positive = p[p > 0]
    return max(0.0, -float((positive * logs(positive)).sum()))


def _in_unit(unit: str) -> float:
    """The factor from nats to a unit; 1 leaves every bit as it is."""
    return 1.0 if choice("unit", unit, ("nats", "bits")) == "nats" else BITS


def entropy(
    tree: CompiledModel, variables: str | int | Iterable[str | int], resolved: ResolvedEvidence,
    unit: InformationUnit = "nats",
) -> float:  # fmt: skip
    factor = _in_unit(unit)
    scope = scope_of(tree.model, variables)
    if len(scope) > 1:
        return factor * _entropy(joint(tree, scope, resolved).probabilities)
    result = tree.answer(resolved.backend.run, resolved.case, scope)
    ptr = tree.plan.posterior_ptr
    return factor * _entropy(result.posterior[ptr[scope[0]] : ptr[scope[0] + 1]])


class _TargetAndOthers:
    """P(t | e), and P(x | t, e) of other variables x for each possible state t of the target."""
    # p: (T,) ndarray of float64: P(t | e) of the possible states

    def __init__(self, tree: CompiledModel, target: int, others: list[int], resolved: ResolvedEvidence):
        model, case = tree.model, resolved.case
        card = int(model.cardinality[target])
        states = np.tile(case.state, (card, 1))
        if case.state[target] < 0:
            states[:, target] = np.arange(card)
        else:
            states = states[:1]
        weights = {v: np.tile(w, (len(states), 1)) for v, w in case.likelihood.items()}
        result = resolved.backend.run_batch(np.ascontiguousarray(states, np.int32), weights, others)
        if result.impossible.all():
            tree.answer(resolved.backend.run, case, [])  # raises and names the evidence
            raise ImpossibleEvidence("the evidence has probability 0")
        possible = ~result.impossible
        log_case = result.log_evidence[possible]
        self.p = exps(log_case - log_case.max())
        self.p /= self.p.sum()
        self._rows = result.posterior[possible]  # (T, sum of the others' cardinalities)
        ends = np.cumsum([0, *(int(model.cardinality[v]) for v in others)]).tolist()
        self._columns = {v: slice(a, b) for v, a, b in zip(others, ends, ends[1:], strict=False)}

    def joint(self, v: int) -> Floats:
        """(T, states) P(t, x | e)."""
        return np.asarray(self.p[:, None] * self._rows[:, self._columns[v]])

    def information(self, v: int) -> float:
        """I(T; X | e)."""
        both = self.joint(v)
        independent = self.p[:, None] * both.sum(axis=0)
        return kl_divergence(both, independent)


def _others(tree: CompiledModel, target: int, given: Iterable[str | int] | None) -> list[int]:
    model = tree.model
    if given is None:
        return [v for v in range(len(model)) if v != target]
    others = scope_of(model, given)
    if target in others:
        raise EvidenceError(f"the target {model.variables[target]!r} must not be among the other variables")
    return others


def mutual_information(
    tree: CompiledModel, target: str | int, others: Iterable[str | int] | None, resolved: ResolvedEvidence,
    unit: InformationUnit = "nats",
) -> Scores:  # fmt: skip
    factor = _in_unit(unit)
    t = tree.model.index(target)
    scope = _others(tree, t, others)
    table = _TargetAndOthers(tree, t, scope, resolved)
    information = {v: table.information(v) for v in scope}
    order = sorted(information, key=lambda v: (-information[v], v))
    return Scores({tree.model.variables[v]: factor * information[v] for v in order}, "mutual_information", unit)


def value_of_information(
    tree: CompiledModel, target: str | int, candidates: Iterable[str | int] | None, resolved: ResolvedEvidence,
    unit: InformationUnit = "nats",
) -> Ranking[Observation]:  # fmt: skip
    factor = _in_unit(unit)
    model = tree.model
    t = model.index(target)
    scope = _others(tree, t, candidates)
    if candidates is None:
        scope = [v for v in scope if resolved.case.state[v] < 0]
    table = _TargetAndOthers(tree, t, scope, resolved)
    before = _entropy(table.p)
    observations = []
    for v in scope:
        gain = min(table.information(v), before)
        left = factor * (before - gain)
        accuracy = float(table.joint(v).max(axis=0).sum())
        observations.append(Observation(model.variables[v], left, factor * gain, min(1.0, accuracy)))
    observations.sort(key=lambda o: (-o.gain, model.index(o.variable)))
    return Ranking(observations, Observation, f"Value of information about {model.variables[t]}, in {unit}, best first")


# Analysis of the findings: how much they conflict, and the effect of each one on a target.

@dataclass(frozen=True)
class Importance:
    """Effect of one finding on the posterior P of a target, without the finding and with this finding alone.

    Attributes
    ----------
    variable : str
        Variable of the finding.
    states : tuple of str
        States that the finding allows.
    without, alone : ndarray of float64
        Posterior of the target without this finding, and with this finding only; in the order of the states.
    kl_without : float
        KL(P || without), in nats: what the finding adds to the others.
    hellinger_without, shift_without : float
        Hellinger distance, 0 to 1, and largest absolute difference of a probability, between P and `without`.
    kl_alone, hellinger_alone, shift_alone : float
        The same measures between `alone` and the prior: KL(alone || prior).

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> print(tree.evidence_importance("lung", {"xray": "yes", "smoke": "no"}))
    Importance of findings for lung, most important first
    variable  states  kl without  hellinger without  ...  kl alone  hellinger alone  shift alone
    smoke     no        0.268155           0.272174  ...  0.029007         0.096486     0.045000
    xray      yes       0.254780           0.201973  ...  0.753501         0.375431     0.433711
    [2 rows x 7 columns; to_frame() has all of them]
    """

    variable: str
    states: tuple[str, ...]
    without: Floats
    alone: Floats
    kl_without: float
    hellinger_without: float
    shift_without: float
    kl_alone: float
    hellinger_alone: float
    shift_alone: float


def hellinger(p: Floats, q: Floats) -> float:
    """Hellinger distance, 0 to 1: the square root of half the sum of (sqrt p - sqrt q)^2."""
    return min(1.0, float(np.sqrt(0.5 * np.square(np.sqrt(p) - np.sqrt(q)).sum())))


def _shift(p: Floats, q: Floats) -> float:
    return float(np.abs(p - q).max())


def conflict(tree: CompiledModel, known: CaseEvidence) -> float:
    n = len(_findings(tree, known))
    if not n:
        raise EvidenceError("the conflict measure requires at least one finding")
    included = np.vstack([np.zeros(n, np.bool_), np.ones(n, np.bool_), np.eye(n, dtype=np.bool_)])
    result = _run_subsets(tree, known, included, [])
    _raise_if(tree, known, bool(result.impossible[:2].any()))
    # the factors of a Markov network may have any sum: probabilities are relative to no evidence
    log_p = result.log_evidence - result.log_evidence[0]
    return float(log_p[2:].sum() - log_p[1])


def evidence_importance(tree: CompiledModel, target: str | int, known: CaseEvidence) -> Ranking[Importance]:
    model = tree.model
    t = model.index(target)
    findings = _findings(tree, known)
    n = len(findings)
    if not n:
        raise EvidenceError("evidence_importance requires at least one finding")
    single = np.eye(n, dtype=np.bool_)
    included = np.vstack([np.ones(n, np.bool_), np.zeros(n, np.bool_), ~single, single])
    result = _run_subsets(tree, known, included, [t])
    _raise_if(tree, known, bool(result.impossible[0]))
    posterior, prior = result.posterior[0], result.posterior[1]
    vectors = known.case.vectors(model.cardinality)
    answers = []
    for i, v in enumerate(findings):
        without, alone = result.posterior[2 + i].copy(), result.posterior[2 + n + i].copy()
        answers.append(
            Importance(
                variable=model.variables[v],
                states=tuple(model.states(v)[k] for k in np.flatnonzero(vectors[v]).tolist()),
                without=without,
                alone=alone,
                kl_without=kl_divergence(posterior, without),
                hellinger_without=hellinger(posterior, without),
                shift_without=_shift(posterior, without),
                kl_alone=kl_divergence(alone, prior),
                hellinger_alone=hellinger(alone, prior),
                shift_alone=_shift(alone, prior),
            )
        )
    answers.sort(key=lambda a: (-a.kl_without, -a.kl_alone, model.index(a.variable)))
    return Ranking(answers, Importance, f"Importance of findings for {model.variables[t]}, most important first")


def _findings(tree: CompiledModel, known: CaseEvidence) -> list[int]:
    """Variables with evidence, interventions excluded; ascending."""
    case = known.case
    return [
        v
        for v in range(len(tree.model))
        if (case.state[v] >= 0 or v in case.likelihood) and v not in known.intervened
    ]


def _run_subsets(tree: CompiledModel, known: CaseEvidence, included: Bools, targets: list[int]) -> BatchResult:
    """Results of one case for each row of `included`, (rows, findings), with this subset of the findings.

    Interventions are part of every case.
    """
    case = known.case
    states = np.tile(case.state, (len(included), 1))
    weights: dict[int, Floats] = {v: np.tile(w, (len(included), 1)) for v, w in case.likelihood.items()}
    for i, v in enumerate(_findings(tree, known)):
        states[~included[:, i], v] = -1
        if v in weights:
            weights[v][~included[:, i]] = 1.0
    backend = tree.intervened(known.intervened).backend
    return backend.run_batch(np.ascontiguousarray(states, np.int32), weights, targets)


def _raise_if(tree: CompiledModel, known: CaseEvidence, impossible: bool) -> None:
    """Raise `ImpossibleEvidence`, naming the evidence, if it is impossible."""
    if impossible:
        tree.answer(tree.intervened(known.intervened).backend.run, known.case, [])
        raise ImpossibleEvidence("the evidence has probability 0")
