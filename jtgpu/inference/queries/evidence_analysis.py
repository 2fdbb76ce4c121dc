"""Analysis of the findings: how much they conflict, and the effect of each one on a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EvidenceError, ImpossibleEvidence
from ..results.rankings import Ranking
from .information import kl_divergence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.base import BatchResult
    from ..compiled import CompiledModel
    from ..evidence import Known


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


def hellinger(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Hellinger distance, 0 to 1: the square root of half the sum of (sqrt p - sqrt q)^2."""
    return min(1.0, float(np.sqrt(0.5 * np.square(np.sqrt(p) - np.sqrt(q)).sum())))


def _shift(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    return float(np.abs(p - q).max())


def conflict(tree: CompiledModel, known: Known) -> float:
    n = len(_findings(tree, known))
    if not n:
        raise EvidenceError("the conflict measure requires at least one finding")
    included = np.vstack([np.zeros(n, np.bool_), np.ones(n, np.bool_), np.eye(n, dtype=np.bool_)])
    found = _run_subsets(tree, known, included, [])
    _raise_if(tree, known, bool(found.impossible[:2].any()))
    # the factors of a Markov network may have any sum: probabilities are relative to no evidence
    log_p = found.log_evidence - found.log_evidence[0]
    return float(log_p[2:].sum() - log_p[1])


def evidence_importance(tree: CompiledModel, target: str | int, known: Known) -> Ranking[Importance]:
    model = tree.model
    t = model.index(target)
    findings = _findings(tree, known)
    n = len(findings)
    if not n:
        raise EvidenceError("evidence_importance requires at least one finding")
    single = np.eye(n, dtype=np.bool_)
    included = np.vstack([np.ones(n, np.bool_), np.zeros(n, np.bool_), ~single, single])
    found = _run_subsets(tree, known, included, [t])
    _raise_if(tree, known, bool(found.impossible[0]))
    posterior, prior = found.posterior[0], found.posterior[1]
    vectors = known.case.vectors(model.cardinality)
    answers = []
    for i, v in enumerate(findings):
        without, alone = found.posterior[2 + i].copy(), found.posterior[2 + n + i].copy()
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


def _findings(tree: CompiledModel, known: Known) -> list[int]:
    """Variables with evidence, interventions excluded; ascending."""
    case = known.case
    return [
        v
        for v in range(len(tree.model))
        if (case.state[v] >= 0 or v in case.likelihood) and v not in known.intervened
    ]


def _run_subsets(
    tree: CompiledModel, known: Known, included: NDArray[np.bool_], targets: list[int]
) -> BatchResult:
    """Results of one case for each row of `included`, (rows, findings), with this subset of the findings.

    Interventions are part of every case.
    """
    case = known.case
    states = np.tile(case.state, (len(included), 1))
    weights: dict[int, NDArray[np.float64]] = {v: np.tile(w, (len(included), 1)) for v, w in case.likelihood.items()}
    for i, v in enumerate(_findings(tree, known)):
        states[~included[:, i], v] = -1
        if v in weights:
            weights[v][~included[:, i]] = 1.0
    backend = tree.intervened(known.intervened).backend
    return backend.run_batch(np.ascontiguousarray(states, np.int32), weights, targets)


def _raise_if(tree: CompiledModel, known: Known, impossible: bool) -> None:
    """Raise `ImpossibleEvidence`, naming the evidence, if it is impossible."""
    if impossible:
        tree.answer(tree.intervened(known.intervened).backend.run, known.case, [])
        raise ImpossibleEvidence("the evidence has probability 0")
