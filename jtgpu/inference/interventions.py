"""Interventions, do(v = x): they remove the arcs into v, without planning or compiling again.

The table of P(v | parents) is replaced by ones of the same shape, in a second backend of the same plan; v = x is then
observed. The product of the tables is that of the mutilated network (Pearl, Causality, section 3.2.3), for every x at
once, and for the probabilities of a stochastic intervention as weights. So one backend serves all interventions on one
set of variables, and each row of a table of cases may set them differently.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..backends.base import Backend, Evidence, Result, Table, TableAnswer
from ..columns import at_row
from ..errors import EvidenceError, ImpossibleEvidence, JtgpuError
from ..model.discrete import DiscreteModel
from ..model.noisy import is_noisy
from ..util.arrays import Bools, Floats, Ints
from ..util.system import new_lock
from .evidence_table import BatchEvidence, naming_rows

# Soft evidence (Jeffrey's rule): find likelihoods that give variables their required posteriors.
#
# With one such variable V, Q(x) = sum_s q(s) P(x | e, V = s). With several, Q is the distribution closest to P(. |
# e), in relative entropy KL(Q || P), that has all the required marginals. It is P(. | e) times a weight for each
# state of each such variable, found by iterative proportional fitting: correct one variable at a time (Deming and
# Stephan, Annals of Mathematical Statistics 11, 1940; Csiszar, Annals of Probability 3, 1975). The variable with the
# largest KL(q || P) is corrected next: each step reduces KL(Q || current) by exactly that, so the steps converge to
# zero whenever Q exists.
#
# All rows of a table are fitted together; a single case is a table of one row.

TOLERANCE = 1e-12  # largest accepted difference between a probability and its required value
WINDOW = 100  # propagations for each variable, after which the difference must have decreased ...
SHRINK = 0.97  # ... to this fraction of what it was
MAX_PROPAGATIONS = 20_000

# (rows, weights of the soft variables in these rows) -> posteriors of the soft variables in these rows
Run = Callable[[Ints, Mapping[int, Floats]], TableAnswer]


@dataclass
class SoftFit:
    """State of the fitting of B rows."""

    goal: Floats  # (B, n) required probabilities, one variable after the other; NaN: not required
    first: Ints  # (S,) first column of each variable
    weights: Floats  # (B, n) scaled so that the largest of each row and variable is 1
    gap: Floats  # (B,) largest difference between a probability and its required value
    impossible: Bools  # (B,) impossible evidence, or an impossible state with a required probability > 0
    log_evidence: Floats  # (B,) without soft evidence
    propagations: int = 0
    reasons: dict[int, tuple[int, int]] = field(default_factory=dict)  # row -> soft variable, its impossible state

    def step(self, rows: Ints, result: TableAnswer) -> Ints:
        """Correct the worst variable of each row."""
        # rows: (R,) array of int: Rows that were computed with their current weights
        # result: Their posteriors
        # returns array of int: Rows that have not converged yet.
        begin = self.propagations == 0
        self.propagations += 1
        goal, now = self.goal[rows], result.posterior
        if begin:
            self.impossible[rows] = result.impossible
            self.log_evidence[rows] = result.log_evidence
        required = goal > 0  # NaN: False
        lost = required & (now <= 0) & ~result.impossible[:, None]
        for i in np.flatnonzero(lost.any(axis=1)).tolist():
            column = int(np.argmax(lost[i]))
            s = int(np.searchsorted(self.first, column, side="right")) - 1
            self.reasons[int(rows[i])] = s, column - int(self.first[s])
        self.impossible[rows] |= result.impossible | lost.any(axis=1)
        gaps = np.where(np.isnan(goal), 0.0, np.abs(now - goal))
        self.gap[rows] = gaps.max(axis=1)
        left = (self.gap[rows] > TOLERANCE) & ~self.impossible[rows]
        rows, goal, now, required = rows[left], goal[left], now[left], required[left]
        # states of probability 0 have weight 0, required or not
        ratio = np.divide(goal, now, out=np.zeros_like(goal), where=now > 0)
        # KL(q || p) = sum q (d - ln(p/q)) with d = p/q - 1, and p where q is 0; log1p: accurate also if p is close to q
        with np.errstate(over="ignore"):  # where a required probability is close to 0
            quotient = np.minimum(np.divide(now, goal, out=np.ones_like(now), where=required), 1e300)
        d = quotient - 1.0
        log = np.where(quotient < 0.5, np.log(quotient), np.log1p(np.maximum(d, -0.5)))
        divergence = np.where(required, goal * (d - log), np.where(np.isnan(goal), 0.0, now))
        worst = np.add.reduceat(divergence, self.first, axis=1).argmax(axis=1)
        ends = np.append(self.first[1:], goal.shape[1])
        for s in np.unique(worst).tolist():
            mine, block = rows[worst == s], slice(int(self.first[s]), int(ends[s]))
            corrected = self.weights[mine, block] * ratio[worst == s, block]
            self.weights[mine, block] = corrected / corrected.max(axis=1, keepdims=True)
        return rows


def fit_cases(run: Run, targets: Mapping[int, Floats]) -> SoftFit:
    """Fit weights of B rows that give variables their required posteriors."""
    # targets: Variable to (B, card) probabilities, NaN in rows without soft evidence; ascending
    # raises EvidenceError: If fitting does not converge: the marginals contradict each other, or nearly so.
    cards = [t.shape[1] for t in targets.values()]
    first = np.cumsum([0, *cards])[:-1]
    goal = np.hstack(list(targets.values()))
    n = len(goal)
    fit = SoftFit(goal, first, np.ones(goal.shape), np.zeros(n), np.zeros(n, np.bool_), np.zeros(n))
    rows = np.arange(n)
    single = len(targets) == 1
    before = np.full(n, np.inf)
    window = WINDOW * len(cards)
    while len(rows):
        weights = {v: fit.weights[rows, a : a + c] for v, a, c in zip(targets, first.tolist(), cards, strict=True)}
        rows = fit.step(rows, run(rows, weights))
        if single:
            break  # for one variable, one correction is exact
        if fit.propagations % window == 0 or fit.propagations >= MAX_PROPAGATIONS:
            stuck = rows[fit.gap[rows] > SHRINK * before[rows]]
            if len(stuck) or fit.propagations >= MAX_PROPAGATIONS:
                row = int((stuck if len(stuck) else rows)[0])
                raise NoConvergence(row, fit.propagations, float(fit.gap[row]))
            before[rows] = fit.gap[rows]
    return fit


class NoConvergence(EvidenceError):
    """No distribution has all the required marginals, or fitting converges too slowly."""

    def __init__(self, row: int, propagations: int, gap: float, where: str = ""):
        self.row, self.propagations, self.gap = row, propagations, gap
        super().__init__(
            f"{where}the soft evidence does not converge: after {propagations} propagations, a posterior still differs "
            f"by {gap:.3g} from its required value; the required posteriors may contradict each other"
        )


def fit_case(
    model: DiscreteModel,
    run: Callable[[Evidence, list[int]], Result],
    ptr: Ints,
    case: Evidence,
    soft: Mapping[int, Floats],
) -> tuple[Evidence, float]:
    """Convert soft evidence of one case to likelihoods."""
    # run: Method ``run`` of a backend or a session
    # ptr: (V + 1,) array of int: Bounds of the variables in an array of all posteriors
    # soft: Variable to probabilities, ascending
    # returns The case with additional likelihoods.
    # returns ln P(evidence) without soft evidence.
    # raises ImpossibleEvidence: If a state must have a positive probability but is impossible; the message names it.
    # raises EvidenceError: See `fit_cases`.
    targets = list(soft)
    columns = np.concatenate([np.arange(ptr[v], ptr[v + 1]) for v in targets])

    def weighted(weights: Mapping[int, Floats]) -> Evidence:
        given = dict(case.likelihood)
        for v, w in weights.items():
            given[v] = given[v] * w[0] if v in given else w[0]
        return Evidence(case.state, given)

    def run_row(_: Ints, weights: Mapping[int, Floats]) -> TableAnswer:
        result = run(weighted(weights), targets)
        return TableAnswer(
            result.posterior[columns][None], np.array([result.log_evidence]), np.zeros(1, np.bool_)
        )

    fit = fit_cases(run_row, {v: p[None] for v, p in soft.items()})
    if fit.impossible[0]:
        raise ImpossibleEvidence(_impossible_state(model, targets, fit, 0))
    return weighted(_by_variable(fit, targets)), float(fit.log_evidence[0])


def answer_cases(
    model: DiscreteModel,
    backend: Backend,
    known: BatchEvidence,
    targets: list[int] | None,
) -> tuple[TableAnswer, dict[int, str]]:
    """Run a table of cases with soft evidence."""
    # returns dict of int to str: For each row whose soft evidence is impossible, the reason.
    # raises EvidenceError: If soft evidence does not converge; the message names the case.
    variables = list(known.soft)

    def weighted(rows: Ints, weights: Mapping[int, Floats]) -> dict[int, Floats]:
        given = {v: np.ascontiguousarray(w[rows]) for v, w in known.likelihood.items()}
        for v, w in weights.items():
            given[v] = given[v] * w if v in given else np.ascontiguousarray(w)
        return given

    def run(rows: Ints, weights: Mapping[int, Floats], wanted: list[int] | None) -> TableAnswer:
        with naming_rows(known.table, rows):
            return backend.run(Table.of(known.states[rows], weighted(rows, weights), wanted))

    try:
        fit = fit_cases(lambda rows, w: run(rows, w, variables), known.soft)
    except NoConvergence as error:
        raise NoConvergence(error.row, error.propagations, error.gap, at_row(known.table, error.row, "")) from None
    rows = np.arange(len(known.states))
    result = run(rows, _by_variable(fit, variables), targets)
    impossible = result.impossible | fit.impossible
    posterior = np.where(impossible[:, None], 0.0, result.posterior)
    log_evidence = np.where(impossible, -np.inf, fit.log_evidence)
    reasons = {row: _impossible_state(model, variables, fit, row) for row in fit.reasons}
    return TableAnswer(posterior, log_evidence, impossible), reasons


def _impossible_state(model: DiscreteModel, targets: list[int], fit: SoftFit, row: int) -> str:
    s, state = fit.reasons[row]
    v = targets[s]
    column = int(fit.first[s]) + state
    return (
        f"the soft evidence requires P({model.variables[v]} = {model.states(v)[state]!r}) = "
        f"{fit.goal[row, column]:.6g}, but this state is impossible given the other evidence"
    )


def _by_variable(fit: SoftFit, targets: list[int]) -> dict[int, Floats]:
    ends = np.append(fit.first[1:], fit.goal.shape[1])
    return {v: fit.weights[:, a:b] for v, a, b in zip(targets, fit.first.tolist(), ends.tolist(), strict=True)}


MAX_BACKENDS = 8  # in addition to the model's own one
MAX_IDLE = 1  # backends without a user that wait to be reloaded

Factors = Sequence[Floats]


class Intervened:
    """A backend of the plan, and the tables that it uses."""
    # factors: sequence of arrays: In the order of ``plan.factor_var``; ones for the variables that are set
    # release: Called with the backend when the last reference to this object is gone
    # origin: The method of a tree that makes this object, and its argument: what is pickled and copied

    origin: tuple[weakref.WeakMethod[Callable[[tuple[int, ...]], Intervened]], tuple[int, ...]] | None = None

    def __init__(self, backend: Backend, factors: Factors, release: Callable[[Backend], None] | None = None):
        self.backend, self.factors = backend, factors
        self._release = None if release is None else weakref.finalize(self, release, backend)

    def __reduce__(self) -> tuple[object, ...]:
        method = None if self.origin is None else self.origin[0]()
        if self.origin is None or method is None:
            raise JtgpuError("evidence is resolved for a tree that is gone: resolve it again")
        return method, (self.origin[1],)

    def close(self) -> None:
        """Close the backend now, unless it belongs to the model; queries that use it raise from then on."""
        if self._release is not None and self._release.detach() is not None:
            self.backend.close()


class Interventions:
    """Backends by the set of variables that are set, the last used ones.

    An idle backend is reloaded with other numbers; this is faster than creating a new one.
    """
    # prepare: Makes a backend from factors
    # factors: sequence of arrays: The model's; that of variable v is number v

    def __init__(self, prepare: Callable[[Factors], Backend], factors: Factors):
        self._prepare, self._factors = prepare, factors
        self._cached: OrderedDict[tuple[int, ...], Intervened] = OrderedDict()
        self._idle: deque[Backend] = deque()
        self._closed = False
        self._lock = new_lock()

    def get(self, variables: tuple[int, ...]) -> Intervened:
        """The backend without the arcs into these variables."""
        with self._lock:
            intervened = self._cached.get(variables)
            if intervened is None:
                factors: list[Any] = list(self._factors)
                for v in variables:
                    table = factors[v]
                    factors[v] = table.without_parents() if is_noisy(table) else np.ones(table.shape)
                while len(self._cached) >= MAX_BACKENDS:
                    self._cached.popitem(last=False)  # becomes idle with the last query or session that uses it
                intervened = self._cached[variables] = Intervened(self._backend(factors), factors, self._release)
            self._cached.move_to_end(variables)
            return intervened

    def _backend(self, factors: Factors) -> Backend:
        """An idle backend with new numbers, or a new one."""
        try:
            backend = self._idle.pop()
        except IndexError:
            return self._prepare(factors)
        try:
            backend.reload(factors)
        except BaseException:
            backend.close()
            raise
        return backend

    def _release(self, backend: Backend) -> None:
        """Called by any thread, also by the garbage collector of one that holds the lock, so without the lock."""
        if self._closed or len(self._idle) >= MAX_IDLE:
            backend.close()
        else:
            self._idle.append(backend)

    def close(self) -> None:
        """Close all backends."""
        self._closed = True
        with self._lock:
            for intervened in self._cached.values():
                intervened.close()
            self._cached.clear()
        while self._idle:
            self._idle.pop().close()


class ResolvedEvidence(NamedTuple):
    """Evidence of all kinds as one case that a backend answers: what every query starts from."""

    intervened: Intervened  # a reference keeps its backend open
    case: Evidence  # soft evidence is included as the weights that produce it
    log_shift: float  # to be added to the backend's log_evidence of `case`; 0 without soft evidence

    @property
    def backend(self) -> Backend:
        """The backend that answers the case."""
        return self.intervened.backend

    @property
    def factors(self) -> Factors:
        """The model's numbers, in the order of ``plan.factor_var``; ones for the variables that are set."""
        return self.intervened.factors
