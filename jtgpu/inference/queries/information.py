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

from ...backends.table import Table
from ...errors import EvidenceError, ImpossibleEvidence
from ...util.arguments import choice
from ...util.arrays import Floats
from ...util.elementary import exps, logs
from ...util.text_table import record_repr
from ..results.rankings import Ranking, Scores
from .joint import joint_of
from .posteriors import scope_of

if TYPE_CHECKING:
    from typing import Unpack

    from ...util.options import InformationUnit
    from ..compiled import CompiledModel
    from ..evidence import EvidenceOptions, Findings
    from ..interventions import ResolvedEvidence

TINY = 2.0**-1022  # smaller products have lost digits, and change no sum
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

    __repr__ = record_repr


def kl_divergence(p: Floats, q: Floats, log_q: Floats) -> float:
    """KL(p || q) in nats. `log_q` must be finite where `p` is positive; it is read where `q` is too small."""
    ordinary, small = (p > 0) & (q >= TINY), (p > 0) & (q < TINY)
    far = float((p[small] * (logs(p[small]) - log_q[small])).sum()) if small.any() else 0.0
    return max(0.0, float((p[ordinary] * logs(p[ordinary] / q[ordinary])).sum()) + far)


def information_of(p: Floats, rows: Floats) -> float:
    """I(T; X) = sum_t,x P(t, x) ln(P(x | t) / P(x)) of P(t) and P(x | t): no product of marginals."""
    joint = p[:, None] * rows
    t, x = np.nonzero(joint >= TINY)
    return max(0.0, float((joint[t, x] * logs(rows[t, x] / joint.sum(axis=0)[x])).sum()))


def _entropy(p: Floats) -> float:
    """-sum p ln p, with 0 ln 0 = 0."""
    positive = p[p > 0]
    return max(0.0, -float((positive * logs(positive)).sum()))


def _in_unit(unit: str) -> float:
    """The factor from nats to a unit; 1 leaves every bit as it is."""
    return 1.0 if choice("unit", unit, ("nats", "bits")) == "nats" else BITS


def entropy(
    self: CompiledModel,
    variables: str | int | Iterable[str | int],
    evidence: Findings | None = None,
    *,
    unit: InformationUnit = "nats",
    **more: Unpack[EvidenceOptions],
) -> float:
    """Compute the entropy of the posterior of a variable, or of the joint posterior of several.

    Parameters
    ----------
    variables : str, int, or iterable of these
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    unit : {"nats", "bits"}

    Returns
    -------
    float
    """
    self = self.for_sets(more.get("likelihood"))
    resolved, factor, scope = self.resolve(evidence, **more), _in_unit(unit), scope_of(self.model, variables)
    if len(scope) > 1:
        return factor * _entropy(joint_of(self, scope, resolved).probabilities)
    result = self.answer(resolved.backend.run_case, resolved.case, scope)
    ptr = self.plan.posterior_ptr
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
        result = resolved.backend.run(Table.of(states, weights, others))
        if result.impossible.all():
            tree.answer(resolved.backend.run_case, case, [])  # raises and names the evidence
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
        return information_of(self.p, self._rows[:, self._columns[v]])


def _others(tree: CompiledModel, target: int, given: Iterable[str | int] | None) -> list[int]:
    model = tree.model
    if given is None:
        return [v for v in range(len(model)) if v != target]
    others = scope_of(model, given)
    if target in others:
        raise EvidenceError(f"the target {model.variables[target]!r} must not be among the other variables")
    return others


def mutual_information(
    self: CompiledModel, target: str | int, others: Iterable[str | int] | None = None,
    evidence: Findings | None = None, *, unit: InformationUnit = "nats", **more: Unpack[EvidenceOptions],
) -> Scores:  # fmt: skip
    """Compute I(target; X | evidence) for other variables X.

    The computation is one table of cases, with a case for each state of the target.

    Parameters
    ----------
    target : str or int
    others : iterable, optional
        The variables X. Default: all other variables.
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    unit : {"nats", "bits"}

    Returns
    -------
    dict of str to float
        Mutual information by variable name, largest first. Its attribute ``unit`` and the printed table name it.
    """
    self = self.for_sets(more.get("likelihood"))
    resolved, factor, t = self.resolve(evidence, **more), _in_unit(unit), self.model.index(target)
    scope = _others(self, t, others)
    table = _TargetAndOthers(self, t, scope, resolved)
    information = {v: table.information(v) for v in scope}
    order = sorted(information, key=lambda v: (-information[v], v))
    return Scores({self.model.variables[v]: factor * information[v] for v in order}, "mutual_information", unit)


def observation(variable: str, table: Floats, unit: InformationUnit) -> Observation:
    """The effect of observing a variable on a target, from their joint posterior: (target, variable)."""
    factor, p = _in_unit(unit), table.sum(axis=1)
    before = _entropy(p)
    gain = min(information_of(p, np.divide(table, p[:, None], out=np.zeros_like(table), where=p[:, None] > 0)), before)
    return Observation(variable, factor * (before - gain), factor * gain, min(1.0, float(table.max(axis=0).sum())))


def value_of_information(
    self: CompiledModel, target: str | int, candidates: Iterable[str | int] | None = None,
    evidence: Findings | None = None, *, unit: InformationUnit = "nats", **more: Unpack[EvidenceOptions],
) -> Ranking[Observation]:  # fmt: skip
    """Rank variables by the expected information that observing them gives about a target.

    Parameters
    ----------
    target : str or int
    candidates : iterable, optional
        Variables that could be observed. Default: all that are not observed yet.
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    unit : {"nats", "bits"}
        Of gains and entropies; ``jtgpu voi`` and the page have bits. The printed table names it.

    Returns
    -------
    list of Observation
        For each candidate, the expected entropy of the target after the observation, and the expected probability
        of the target's most probable state; best first.
    """
    self = self.for_sets(more.get("likelihood"))
    resolved, factor, model = self.resolve(evidence, **more), _in_unit(unit), self.model
    t = model.index(target)
    scope = _others(self, t, candidates)
    if candidates is None:
        scope = [v for v in scope if resolved.case.state[v] < 0]
    table = _TargetAndOthers(self, t, scope, resolved)
    before = _entropy(table.p)
    observations = []
    for v in scope:
        gain = min(table.information(v), before)
        left = factor * (before - gain)
        accuracy = float(table.joint(v).max(axis=0).sum())
        observations.append(Observation(model.variables[v], left, factor * gain, min(1.0, accuracy)))
    observations.sort(key=lambda o: (-o.gain, model.index(o.variable)))
    return Ranking(observations, Observation, f"Value of information about {model.variables[t]}, in {unit}, best first")
