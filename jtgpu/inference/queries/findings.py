"""Analysis of the findings: how much they conflict, and the effect of each one on a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...backends.table import Table
from ...errors import EvidenceError, ImpossibleEvidence
from ...util.arrays import Bools, Floats, Ints
from ...util.text_table import record_repr
from ..evidence import read_known
from ..evidence_table import BatchEvidence
from ..results.rankings import Ranking
from .information import TINY, kl_divergence

if TYPE_CHECKING:
    from ...backends.base import TableAnswer
    from ..compiled import CompiledModel
    from ..evidence import CaseEvidence, Findings


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

    __repr__ = record_repr


def hellinger(p: Floats, q: Floats) -> float:
    """Hellinger distance, 0 to 1: the square root of half the sum of (sqrt p - sqrt q)^2."""
    return min(1.0, float(np.sqrt(0.5 * np.square(np.sqrt(p) - np.sqrt(q)).sum())))


def _shift(p: Floats, q: Floats) -> float:
    return float(np.abs(p - q).max())


def conflict(
    self: CompiledModel, evidence: Findings, *, likelihood: Findings | None = None, do: Findings | None = None
) -> float:
    """Compute the conflict measure of the findings: ln(prod P(e_i) / P(e)).

    It is positive if the findings are less probable together than if they were independent (Jensen, Chamberlain,
    Nordahl, Jensen, Analysis in HUGIN of data conflict, UAI 1990).

    Parameters
    ----------
    evidence, likelihood, do : mapping
        See `posteriors`.
    """
    known = read_known(self.model, evidence, likelihood, None, do)
    case = as_table(known)
    n = len(findings_of(case))
    if not n:
        raise EvidenceError("the conflict measure requires at least one finding")
    included = np.vstack([np.zeros(n, np.bool_), np.ones(n, np.bool_), np.eye(n, dtype=np.bool_)])
    result = run_rows(self, subset_rows(case, np.zeros(n + 2, np.int64), included), [])
    _raise_if(self, known, bool(result.impossible[:2].any()))
    # the factors of a Markov network may have any sum: probabilities are relative to no evidence
    log_p = result.log_evidence - result.log_evidence[0]
    return float(log_p[2:].sum() - log_p[1])


def evidence_importance(
    self: CompiledModel, target: str | int, evidence: Findings, *, likelihood: Findings | None = None,
    do: Findings | None = None,
) -> Ranking[Importance]:  # fmt: skip
    """Compute the effect of each finding on the posterior of a target.

    Parameters
    ----------
    target : str or int
    evidence, likelihood, do : mapping
        See `posteriors`.

    Returns
    -------
    list of Importance
        For each finding, the posterior without it and with it alone, and their distances; most important first.
    """
    known = read_known(self.model, evidence, likelihood, None, do)
    model = self.model
    t = model.index(target)
    case = as_table(known)
    findings = findings_of(case)
    n = len(findings)
    if not n:
        raise EvidenceError("evidence_importance requires at least one finding")
    single = np.eye(n, dtype=np.bool_)
    included = np.vstack([np.ones(n, np.bool_), np.zeros(n, np.bool_), ~single, single])
    rows = subset_rows(case, np.zeros(len(included), np.int64), included)
    result = run_rows(self, rows, [t])
    _raise_if(self, known, bool(result.impossible[0]))
    posterior, prior = result.posterior[0], result.posterior[1]
    logs = log_small(self, rows, t, result)
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
                kl_without=kl_divergence(posterior, without, logs[2 + i]),
                hellinger_without=hellinger(posterior, without),
                shift_without=_shift(posterior, without),
                kl_alone=kl_divergence(alone, prior, logs[1]),
                hellinger_alone=hellinger(alone, prior),
                shift_alone=_shift(alone, prior),
            )
        )
    answers.sort(key=lambda a: (-a.kl_without, -a.kl_alone, model.index(a.variable)))
    return Ranking(answers, Importance, f"Importance of findings for {model.variables[t]}, most important first")


def as_table(known: CaseEvidence) -> BatchEvidence:
    """The evidence of one case as that of a table of one row, without soft evidence."""
    case = known.case
    likelihood = {v: w[None] for v, w in case.likelihood.items()}
    return BatchEvidence(case.state[None], likelihood, intervened=known.intervened)


def findings_of(known: BatchEvidence) -> list[int]:
    """Variables with evidence in the first case, interventions excluded; ascending."""
    observed = {*np.flatnonzero(known.states[0] >= 0).tolist(), *known.likelihood}
    return sorted(observed.difference(known.intervened))


def subset_rows(known: BatchEvidence, cases: Ints, included: Bools) -> BatchEvidence:
    """Some cases, each with a subset of its findings, whose pattern all of them share."""
    # cases: (R,) rows of `known`; interventions stay
    # included: (R, findings) in the order of `findings_of`
    states, weights = known.states[cases], {v: w[cases] for v, w in known.likelihood.items()}
    for i, v in enumerate(findings_of(known)):
        states[~included[:, i], v] = -1
        if v in weights:
            weights[v][~included[:, i]] = 1.0
    return replace(known, states=states, likelihood=weights)


def run_rows(tree: CompiledModel, rows: BatchEvidence, targets: list[int]) -> TableAnswer:
    """Results of cases without soft evidence."""
    backend = tree.intervened(rows.intervened).backend
    return backend.run(Table.of(rows.states, rows.likelihood, targets))


def log_small(tree: CompiledModel, rows: BatchEvidence, t: int, result: TableAnswer) -> Floats:
    """ln of the posteriors of t in the rows of a result that are too small for a number; -inf elsewhere."""
    small = np.full(result.posterior.shape, -np.inf)
    at, states = np.nonzero((result.posterior < TINY) & ~result.impossible[:, None])
    free = rows.states[at, t] < 0
    at, states = at[free], states[free]
    if len(at):
        observed = rows.states[at]
        observed[:, t] = states
        weights = {v: w[at] for v, w in rows.likelihood.items()}
        exact = run_rows(tree, replace(rows, states=observed, likelihood=weights), [])
        small[at, states] = exact.log_evidence - result.log_evidence[at]
    return small


def _raise_if(tree: CompiledModel, known: CaseEvidence, impossible: bool) -> None:
    """Raise `ImpossibleEvidence`, naming the evidence, if it is impossible."""
    if impossible:
        tree.answer(tree.intervened(known.intervened).backend.run_case, known.case, [])
        raise ImpossibleEvidence("the evidence has probability 0")
