"""Contributions of findings to a posterior of a mixed network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EvidenceError
from ..inference.queries.contributions import QUANTITIES, check_target, finding_text, log_odds, state_of
from ..inference.results.contributions import Contributions, Explained, Sampling, attribute
from .evidence import read_case

if TYPE_CHECKING:
    from ..inference.evidence import Findings
    from ..util.arrays import Bools, Floats
    from ..util.options import Explained as Quantity

MAX_EXACT = 10  # findings: each subset of the observed numbers has components of its own


def contributions(  # noqa: PLR0913
    self: Any, target: str | int | None = None, evidence: Findings | None = None, *,
    of: Quantity | None = None, state: str | int | None = None, likelihood: Findings | None = None,
    do: Findings | None = None, max_exact: int = MAX_EXACT, permutations: int = 100, seed: int = 0,
) -> Contributions:  # fmt: skip
    """Compute what each finding, on states and on numbers, contributes; see `jtgpu.JunctionTree.contributions`.

    Parameters
    ----------
    target, evidence, state, likelihood, do, max_exact, permutations, seed
        See `jtgpu.JunctionTree.contributions`. Findings on numbers are values.
    of : {"probability", "log-odds", "log-evidence", "mean"}, optional
        Of a target that is a number the only choices are its posterior ``"mean"`` and ``"log-evidence"``, where a
        density counts instead of a probability. Default: ``"mean"`` of a number, else ``"probability"``.

    Returns
    -------
    Contributions
    """
    net, sampling = self.network, Sampling.of(max_exact, permutations, seed)
    is_number = target is not None and net.is_number(net.variables[net.index(target)])
    of = of or ("mean" if is_number else "probability")
    t = check_target(net, of, target, ("mean", "log-evidence") if is_number else QUANTITIES, state)
    case = read_case(net, evidence, likelihood, do)
    if case.bounds:
        name = net.numbers[next(iter(case.bounds))]
        raise EvidenceError(f"contributions take values of numbers, and no interval as of {name!r}")
    own, names = net.discrete, {}
    vectors = {v: np.eye(len(own.states(v)))[s] for v, s in enumerate(case.states[0].tolist()) if s >= 0}
    for v in sorted({*vectors, *case.likelihood}):
        if own.variables[v] not in case.do:
            names[own.variables[v]] = finding_text(own, v, vectors.get(v, case.likelihood.get(v, [np.zeros(0)])[0]))
    numbers = [g for g in np.flatnonzero(~np.isnan(case.values[0])).tolist() if g not in case.cut]
    states = [own.index(v) for v in names]
    names |= {net.numbers[g]: f"{case.values[0, g]:.6g}" for g in numbers}
    if not names:
        raise EvidenceError("contributions require at least one finding")
    name = "" if t < 0 else net.variables[t]
    if name in names and (is_number or case.states[0, own.index(name)] >= 0):
        raise EvidenceError(f"the target {name!r} is observed; leave it out of the evidence")
    posterior = self.posteriors(evidence, likelihood=likelihood, do=do, targets=[name] if name else ())
    s = -1 if is_number or t < 0 else state_of(own, own.index(name), state, posterior[name].probabilities)
    explained = Explained(of, name or None, own.states(name)[s] if s >= 0 else None)

    def quantity(included: Bools) -> Floats:
        n = len(included)
        rows = replace(
            case, states=np.tile(case.states, (n, 1)), values=np.tile(case.values, (n, 1)),
            likelihood={v: np.tile(w, (n, 1)) for v, w in case.likelihood.items()},
        )  # fmt: skip
        for v, used in zip(states, included.T, strict=False):
            rows.states[~used, v] = -1
            if v in rows.likelihood:
                rows.likelihood[v][~used] = 1.0
        rows.values[:, numbers] = np.where(included[:, len(states) :], rows.values[:, numbers], np.nan)
        discrete, wanted = ([name] if s >= 0 else []), ((net.numbers.index(name),) if is_number else ())
        answers = self.answerer.answer(rows, discrete, wanted)
        if of == "log-evidence":
            values = answers.log_evidence
        elif is_number:
            values = answers.numbers.mean[:, 0]
        else:
            p = answers.posteriors[name]
            values = p[:, s] if of == "probability" else log_odds(p, s, np.full(p.shape, -np.inf), explained)
        return np.asarray(values)[None]

    return Contributions(explained, names, attribute(np.ones(len(names), np.bool_), quantity, sampling))
