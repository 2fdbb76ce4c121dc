"""Contributions of findings to a posterior: a table of cases with all subsets of the findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends.base import Evidence
from ...columns import at_row
from ...errors import ArgumentError, EvidenceError, ImpossibleEvidence
from ...model.discrete import DiscreteModel
from ...model.states import CodesByVariable, present_state
from ...plans.compiler import model_factors
from ...util.arguments import choice
from ...util.arrays import Bools, Floats
from ...util.elementary import exps, logs
from ...util.options import Explained as Quantity
from ...util.options import OnProblem
from ..compiled import CompiledModel
from ..evidence import Cases, Findings, read_known
from ..evidence_table import BatchEvidence, naming_rows, read_known_cases
from ..results.contributions import (
    MAX_EXACT,
    Attribution,
    CaseContributions,
    Contributions,
    Explained,
    Sampling,
    attribute,
)  # fmt: skip
from .findings import as_table, findings_of, log_small, run_rows, subset_rows
from .information import TINY
from .variable_elimination import ancestors

MAX_CELLS = 1 << 24  # of a table of cases that is passed at once
MAX_VALUES = 1 << 22  # of subsets of several cases
QUANTITIES = ("probability", "log-odds", "log-evidence")


def contributions(  # noqa: PLR0913
    self: CompiledModel, target: str | int | None = None, evidence: Findings | None = None, *,
    of: Quantity = "probability", state: str | int | None = None, likelihood: Findings | None = None,
    do: Findings | None = None, max_exact: int = MAX_EXACT, permutations: int = 500, seed: int = 0,
) -> Contributions:  # fmt: skip
    """Compute what each finding contributes to a posterior: its Shapley value over all subsets of the findings.

    The values sum to the difference of the quantities with and without the findings. A finding that no subset of the
    others connects with the target contributes 0.

    Parameters
    ----------
    target : str or int, optional
        Needed except for ``of="log-evidence"``.
    evidence, likelihood, do : mapping, optional
        See `posteriors`. Observations and likelihoods are findings; interventions hold in every subset.
    of : {"probability", "log-odds", "log-evidence"}
        The quantity: P(target = state | findings), ln(P / (1 - P)), or ln P(findings).
    state : str or int, optional
        State of the target. Default: of two states the one that stands for presence (``yes`` and not ``no``), or else
        the first one; of more the most probable one given the findings.
    max_exact : int
        Largest number of findings, at most 24, whose subsets are all computed; of more the values are estimates.
    permutations : int
        Orders of the findings, and as many reversed ones, for estimates.
    seed : int
        Of the orders.

    Returns
    -------
    Contributions

    Raises
    ------
    ImpossibleEvidence
        If the findings together have probability zero.
    EvidenceError
        If there are no findings, the target is observed, or a log-odds is infinite.

    Notes
    -----
    L. Shapley, A value for n-person games, 1953; S. Lundberg, S. Lee, A unified approach to interpreting model
    predictions, NeurIPS 2017. Estimates are means over antithetic permutations (Mitchell et al., JMLR 23, 2022).

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> why = tree.contributions("lung", {"xray": "yes", "smoke": "yes", "dysp": "no"})
    >>> round(why["smoke"], 4), round(why.pairs["xray", "smoke"], 4)
    (0.1054, 0.1358)
    """
    sampling = Sampling.of(max_exact, permutations, seed)
    known = read_known(self.model, evidence, likelihood, None, do)
    case, t = as_table(known), check_target(self.model, of, target, QUANTITIES, state)
    findings = findings_of(case)
    if not findings:
        raise EvidenceError("contributions require at least one finding")
    if t in findings and case.states[0, t] >= 0:
        raise EvidenceError(f"the target {self.model.variables[t]!r} is observed; leave it out of the evidence")
    run = self.intervened(known.intervened).backend.run_case
    result = self.answer(run, known.case, [] if t < 0 else [t])
    ptr, s = self.plan.posterior_ptr, -1
    if t >= 0:
        s = state_of(self.model, t, state, result.posterior[ptr[t] : ptr[t + 1]])
    vectors = known.case.vectors(self.model.cardinality)
    names = {self.model.variables[v]: finding_text(self.model, v, vectors[v]) for v in findings}
    attribution = _attributed(self, case, t, s, of, sampling)
    return Contributions(_explained(self.model, of, t, s), names, attribution)


def contributions_batch(  # noqa: PLR0913
    self: CompiledModel, cases: Cases, target: str | int | None = None, *, of: Quantity = "probability",
    state: str | int | None = None, likelihood: Mapping[Any, object] | None = None,
    do: Mapping[Any, object] | None = None, on_error: OnProblem = "error",
    codes: CodesByVariable | None = None, max_exact: int = MAX_EXACT,
    permutations: int = 500, seed: int = 0,
) -> CaseContributions:  # fmt: skip
    """Compute what each finding of B cases contributes to a posterior; see `contributions`.

    Parameters
    ----------
    cases, likelihood, do, on_error, codes
        See `posteriors_batch`. A column of the target is no finding.
    target, of, state, max_exact, permutations, seed
        See `contributions`; of more than two states, one must be given.

    Returns
    -------
    CaseContributions
    """
    sampling = Sampling.of(max_exact, permutations, seed)
    choice("on_error", on_error, ("error", "flag"))
    model, t = self.model, check_target(self.model, of, target, QUANTITIES, state)
    known = read_known_cases(model.with_codes(codes), cases, likelihood, None, do)
    states, s = known.states.copy(), -1
    if t >= 0:
        if state is None and len(model.states(t)) > 2:
            raise EvidenceError(f"name a state of {model.variables[t]!r}, such as state={model.states(t)[0]!r}")
        s = state_of(model, t, state)
        if t not in known.intervened:
            states[:, t] = -1
    known = replace(known, states=states)
    with naming_rows(known.table):
        impossible = run_rows(self, known, []).impossible if len(states) else np.zeros(0, np.bool_)
    if on_error == "error" and impossible.any():
        row = int(np.argmax(impossible))
        case = Evidence(states[row], {v: w[row] for v, w in known.likelihood.items()})
        raise ImpossibleEvidence(at_row(known.table, row, self.impossible(case)))
    observed = sorted({*np.flatnonzero((states >= 0).any(axis=0)).tolist(), *known.likelihood} - {*known.intervened})
    names = [model.variables[v] for v in observed]
    made = CaseContributions(_explained(model, of, t, s), names, len(states), impossible, known.table)
    possible = np.flatnonzero(~impossible)
    patterns, group = np.unique(states[possible] >= 0, axis=0, return_inverse=True)
    for g in range(len(patterns)):
        mine = possible[group.reshape(-1) == g]
        step = max(1, MAX_VALUES >> min(len(observed), sampling.max_exact))
        for rows in np.split(mine, range(step, len(mine), step)):
            part = replace(known, states=states[rows], likelihood={v: w[rows] for v, w in known.likelihood.items()})
            with naming_rows(known.table, rows):
                attribution = _attributed(self, part, t, s, of, sampling)
            made.base[rows], made.total[rows] = attribution.base, attribution.total
            for i, v in enumerate(findings_of(part)):
                made[model.variables[v]][rows] = attribution.values[:, i]
                made.errors[model.variables[v]][rows] = attribution.errors[:, i]
    return made


def _attributed(tree: CompiledModel, known: BatchEvidence, t: int, s: int, of: str, sampling: Sampling) -> Attribution:
    """Shapley values in cases that have findings on the same variables."""
    findings, n_cases = findings_of(known), len(known.states)
    near = _connected(tree.model, known, t) if t >= 0 else set(findings)

    def quantity(included: Bools) -> Floats:
        values = np.empty(n_cases * len(included))
        step = max(1, MAX_CELLS // len(tree.model))
        for first in range(0, len(values), step):
            cases, subsets = np.divmod(np.arange(first, min(first + step, len(values))), len(included))
            rows = subset_rows(known, cases, included[subsets])
            result = run_rows(tree, rows, [] if t < 0 else [t])
            if result.impossible.any():  # though all findings together are possible: probabilities too small
                raise ImpossibleEvidence("some subset of the findings has probability 0")
            part = slice(first, first + len(cases))
            if t < 0:
                values[part] = result.log_evidence
            elif of == "probability":
                values[part] = result.posterior[:, s]
            else:
                small = log_small(tree, rows, t, result)
                values[part] = log_odds(result.posterior, s, small, _explained(tree.model, of, t, s))
        return values.reshape(n_cases, -1)

    return attribute(np.array([v in near for v in findings], np.bool_), quantity, sampling)


def log_odds(p: Floats, s: int, small: Floats, what: Explained) -> Floats:
    """ln(P / (1 - P)) of state s in rows of posteriors; `small` has logarithms of those too small for a number."""
    log_p = np.where(p >= TINY, logs(np.maximum(p, TINY)), small)
    rest = np.delete(log_p, s, axis=1)
    top = rest.max(axis=1, keepdims=True, initial=-np.inf)
    if (np.minimum(top[:, 0], log_p[:, s]) == -np.inf).any():
        raise EvidenceError(f"the {what} are infinite given some subset of the findings; use of='probability'")
    return np.asarray(log_p[:, s] - top[:, 0] - logs(exps(rest - top).sum(axis=1)))


def _connected(model: DiscreteModel, known: BatchEvidence, t: int) -> set[int]:
    """Variables that are connected with t given some subset of the findings: a superset."""
    fixed = {v for v in known.intervened if known.states[0, v] >= 0}
    neighbours: list[set[int]] = [set() for _ in range(len(model))]
    relevant = ancestors(model, [t, *findings_of(known)]).difference(known.intervened)
    for f, factor in enumerate(model_factors(model)):
        scope = {*factor.scope} - fixed if f in relevant else ()
        for v in scope:
            neighbours[v].update(scope)
    reached = {t}
    for v in (queue := [t]):
        queue += sorted(neighbours[v] - reached)
        reached |= neighbours[v]
    return reached


def check_target(net: Any, of: str, target: str | int | None, quantities: Sequence[str], state: object) -> int:
    """The number of the target; -1 where the quantity has none."""
    if choice("of", of, quantities) in ("log-evidence", "mean") and state is not None:
        raise ArgumentError(f"of={of!r} takes no state")
    if of == "log-evidence":
        if target is not None:
            raise ArgumentError("of='log-evidence' divides ln P(findings) and takes no target")
        return -1
    if target is None:
        raise ArgumentError(f"of={of!r} needs a target, a variable")
    return int(net.index(target))


def state_of(model: DiscreteModel, t: int, state: str | int | None, posterior: Floats | None = None) -> int:
    """The state of the target whose probability is explained."""
    if state is not None:
        return int(model.state_index(t, state))
    if len(model.states(t)) > 2 and posterior is not None:
        return int(posterior.argmax())
    return present_state(model.states(t)) or 0


def _explained(model: DiscreteModel, of: str, t: int, s: int) -> Explained:
    return Explained(of) if t < 0 else Explained(of, model.variables[t], model.states(t)[s])


def finding_text(model: DiscreteModel, v: int, weights: Floats) -> str:
    """A finding in words: the states that it allows, or that it is a likelihood."""
    allowed = np.flatnonzero(weights)
    if len(np.unique(weights[allowed])) > 1:
        return "likelihood"
    return " or ".join(model.states(v)[i] for i in allowed.tolist())
