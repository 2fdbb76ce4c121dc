"""Soft evidence by Jeffrey's rule: weights that give variables the probabilities they shall have.

With one such variable V, Q(x) = sum_s q(s) P(x | e, V = s). With several, Q is the distribution nearest to P(. | e), in
relative entropy KL(Q || P), that has all the marginals asked for. It is P(. | e) times a weight for each state of each
such variable, found by iterative proportional fitting: correct one variable at a time (Deming and Stephan, Annals of
Mathematical Statistics 11, 1940; Csiszar, Annals of Probability 3, 1975). The variable with the largest KL(q || P) goes
next: each step takes just that much off KL(Q || current), so the steps shrink to nothing wherever Q exists.

All rows of a table are fitted side by side; a single case is a table of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..backends.base import BatchResult, Evidence, Result
from ..errors import EvidenceError, ImpossibleEvidence
from .evidence import KnownCases

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.network import DiscreteModel

__all__ = ["Fit", "answer_cases", "fit_case", "fit_cases"]

TOLERANCE = 1e-12  # largest difference between a probability and what it shall be
WINDOW = 100  # propagations a variable after which the gap must have shrunk
SHRINK = 0.97  # to so much of it
MOST = 20_000  # propagations

# rows and weights of the soft variables in them -> what a backend says of these rows, targets: the soft variables
Ask = Callable[["NDArray[np.int64]", Mapping[int, "NDArray[np.float64]"]], BatchResult]


@dataclass
class Fit:
    """Where the fitting of B rows stands."""

    goal: NDArray[np.float64]  # (B, n) probabilities asked for, variable after variable; NaN where none
    first: NDArray[np.int64]  # (S,) where each variable's columns begin
    weights: NDArray[np.float64]  # (B, n) the largest of each row and variable is 1
    gap: NDArray[np.float64]  # (B,) largest difference of a probability
    impossible: NDArray[np.bool_]  # (B,) by what is observed alone, or a state that shall have a probability has none
    log_evidence: NDArray[np.float64]  # (B,) without soft evidence
    propagations: int = 0
    reasons: dict[int, tuple[int, int]] = field(default_factory=dict)  # row -> variable, state that it cannot have

    def step(self, rows: NDArray[np.int64], found: BatchResult) -> NDArray[np.int64]:
        """Take in what the present weights of some rows give, correct the worst variable of each; rows left to do."""
        begin = self.propagations == 0
        self.propagations += 1
        goal, now = self.goal[rows], found.posterior
        if begin:
            self.impossible[rows] = found.impossible
            self.log_evidence[rows] = found.log_evidence
        asked = goal > 0  # NaN: False
        lost = asked & (now <= 0) & ~found.impossible[:, None]
        for i in np.flatnonzero(lost.any(axis=1)).tolist():
            column = int(np.argmax(lost[i]))
            s = int(np.searchsorted(self.first, column, side="right")) - 1
            self.reasons[int(rows[i])] = s, column - int(self.first[s])
        self.impossible[rows] |= found.impossible | lost.any(axis=1)
        gaps = np.where(np.isnan(goal), 0.0, np.abs(now - goal))
        self.gap[rows] = gaps.max(axis=1)
        left = (self.gap[rows] > TOLERANCE) & ~self.impossible[rows]
        rows, goal, now, asked = rows[left], goal[left], now[left], asked[left]
        # states without probability weigh nothing, asked for or not
        ratio = np.divide(goal, now, out=np.zeros_like(goal), where=now > 0)
        # KL(q || p) = sum q (d - ln(1 + d)) with d = p/q - 1, and p where q is 0: near the end q ln(q/p) would be noise
        d = np.divide(now, goal, out=np.ones_like(now), where=asked) - 1.0
        apart = np.where(asked, goal * (d - np.log1p(d)), np.where(np.isnan(goal), 0.0, now))
        worst = np.add.reduceat(apart, self.first, axis=1).argmax(axis=1)
        ends = np.append(self.first[1:], goal.shape[1])
        for s in np.unique(worst).tolist():
            mine, block = rows[worst == s], slice(int(self.first[s]), int(ends[s]))
            corrected = self.weights[mine, block] * ratio[worst == s, block]
            self.weights[mine, block] = corrected / corrected.max(axis=1, keepdims=True)
        return rows


def fit_cases(ask: Ask, targets: Mapping[int, NDArray[np.float64]]) -> Fit:
    """Weights of B rows that bring soft evidence about.

    Parameters
    ----------
    ask : callable
    targets : mapping
        Variable to (B, card) probabilities, NaN in rows without; ascending.

    Raises
    ------
    EvidenceError
        Where fitting does not converge, which says that the marginals contradict each other (or nearly so).
    """
    cards = [t.shape[1] for t in targets.values()]
    first = np.cumsum([0, *cards])[:-1]
    goal = np.hstack(list(targets.values()))
    n = len(goal)
    fit = Fit(goal, first, np.ones(goal.shape), np.zeros(n), np.zeros(n, np.bool_), np.zeros(n))
    rows = np.arange(n)
    single = len(targets) == 1
    before = np.full(n, np.inf)
    window = WINDOW * len(cards)
    while len(rows):
        weights = {v: fit.weights[rows, a : a + c] for v, a, c in zip(targets, first.tolist(), cards, strict=True)}
        rows = fit.step(rows, ask(rows, weights))
        if single:
            break  # one correction of one variable is exact
        if fit.propagations % window == 0 or fit.propagations >= MOST:
            stuck = rows[fit.gap[rows] > SHRINK * before[rows]]
            if len(stuck) or fit.propagations >= MOST:
                row = int((stuck if len(stuck) else rows)[0])
                raise NoConvergence(row, fit.propagations, float(fit.gap[row]))
            before[rows] = fit.gap[rows]
    return fit


class NoConvergence(EvidenceError):
    """Soft evidence of which no distribution has all marginals, or one that is reached too slowly."""

    def __init__(self, row: int, propagations: int, gap: float, where: str = ""):
        self.row, self.propagations, self.gap = row, propagations, gap
        super().__init__(
            f"{where}the soft evidence does not converge: after {propagations} propagations a probability is still "
            f"{gap:.3g} from what it shall be; do the marginals contradict each other?"
        )


def fit_case(
    model: DiscreteModel,
    run: Callable[[Evidence, list[int]], Result],
    ptr: NDArray[np.int64],
    case: Evidence,
    soft: Mapping[int, NDArray[np.float64]],
) -> tuple[Evidence, float]:
    """One case with weights that bring soft evidence about, and ln P(evidence) without it.

    Parameters
    ----------
    model : DiscreteModel
    run : callable
        A backend's, or a session's.
    ptr : (V+1,)
        Bounds of the variables in an array of all posteriors.
    case : Evidence
    soft : mapping
        Variable to probabilities, ascending.

    Raises
    ------
    ImpossibleEvidence
        Naming a state that shall have a probability and cannot.
    EvidenceError
        See `fit_cases`.
    """
    targets = list(soft)
    columns = np.concatenate([np.arange(ptr[v], ptr[v + 1]) for v in targets])

    def weighed(weights: Mapping[int, NDArray[np.float64]]) -> Evidence:
        given = dict(case.likelihood)
        for v, w in weights.items():
            given[v] = given[v] * w[0] if v in given else w[0]
        return Evidence(case.state, given)

    def ask(_: NDArray[np.int64], weights: Mapping[int, NDArray[np.float64]]) -> BatchResult:
        found = run(weighed(weights), targets)
        return BatchResult(
            found.posterior[columns][None], np.array([found.log_evidence]), np.zeros(1, np.bool_)
        )

    fit = fit_cases(ask, {v: p[None] for v, p in soft.items()})
    if fit.impossible[0]:
        raise ImpossibleEvidence(_unattainable(model, targets, fit, 0))
    return weighed(_by_variable(fit, targets)), float(fit.log_evidence[0])


def answer_cases(
    model: DiscreteModel,
    run_batch: Callable[..., BatchResult],
    known: KnownCases,
    targets: list[int] | None,
) -> tuple[BatchResult, dict[int, str]]:
    """What `run_batch` says of a table with soft evidence, and why rows are impossible whose soft evidence is so.

    Raises
    ------
    EvidenceError
        Naming a case whose soft evidence does not converge.
    """
    variables = list(known.soft)

    def weighed(rows: NDArray[np.int64], weights: Mapping[int, NDArray[np.float64]]) -> dict[int, NDArray[np.float64]]:
        given = {v: np.ascontiguousarray(w[rows]) for v, w in known.likelihood.items()}
        for v, w in weights.items():
            given[v] = given[v] * w if v in given else np.ascontiguousarray(w)
        return given

    try:
        fit = fit_cases(lambda rows, w: run_batch(known.states[rows], weighed(rows, w), variables), known.soft)
    except NoConvergence as error:
        raise NoConvergence(error.row, error.propagations, error.gap, f"case {error.row}: ") from None
    rows = np.arange(len(known.states))
    found = run_batch(known.states, weighed(rows, _by_variable(fit, variables)), targets)
    impossible = found.impossible | fit.impossible
    posterior = np.where(impossible[:, None], 0.0, found.posterior)
    log_evidence = np.where(impossible, -np.inf, fit.log_evidence)
    reasons = {row: _unattainable(model, variables, fit, row) for row in fit.reasons}
    return BatchResult(posterior, log_evidence, impossible), reasons


def _unattainable(model: DiscreteModel, targets: list[int], fit: Fit, row: int) -> str:
    s, state = fit.reasons[row]
    v = targets[s]
    column = int(fit.first[s]) + state
    return (
        f"the soft evidence gives {model.variables[v]} = {model.states(v)[state]!r} the probability "
        f"{fit.goal[row, column]:.6g}, which has probability 0 given the rest"
    )


def _by_variable(fit: Fit, targets: list[int]) -> dict[int, NDArray[np.float64]]:
    ends = np.append(fit.first[1:], fit.goal.shape[1])
    return {v: fit.weights[:, a:b] for v, a, b in zip(targets, fit.first.tolist(), ends.tolist(), strict=True)}
