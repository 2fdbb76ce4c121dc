"""Posteriors of all variables or of some targets: of one case, and of a table of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...backends.base import Evidence
from ...errors import ImpossibleEvidence
from ..compiled import CompiledModel
from ..evidence import Known, KnownCases
from ..interventions import Settled
from ..results.marginals import CasePosteriors, Posterior, Posteriors
from ..soft import answer_cases
from ..tables import at_row

__all__ = ["posterior", "posteriors", "posteriors_batch"]


def posteriors(
    model: CompiledModel, settled: Settled, targets: Sequence[int] | None, known: Known | None = None
) -> Posteriors:
    """See `jtgpu.JunctionTree.posteriors`; `known` is the evidence that `settled` comes from."""
    found = model.answer(settled.backend.run, settled.case, targets)
    log_evidence = found.log_evidence + settled.log_shift
    return Posteriors(model.model, found.posterior, model.plan.posterior_ptr, log_evidence, targets, known)


def posterior(model: CompiledModel, variable: str | int, settled: Settled) -> Posterior:
    """See `jtgpu.JunctionTree.posterior`."""
    return posteriors(model, settled, [model.model.index(variable)])[variable]


def posteriors_batch(
    model: CompiledModel, known: KnownCases, targets: list[int] | None, on_impossible: str
) -> CasePosteriors:
    """See `jtgpu.JunctionTree.posteriors_batch`."""
    backend = model.intervened(known.intervened).backend
    reasons: Mapping[int, str] = {}
    if known.soft:
        result, reasons = answer_cases(model.model, backend.run_batch, known, targets)
    else:
        result = backend.run_batch(known.states, known.likelihood, targets)
    if on_impossible == "error" and result.impossible.any():
        row = int(np.flatnonzero(result.impossible)[0])
        case = Evidence(known.states[row], {v: w[row] for v, w in known.likelihood.items()})
        raise ImpossibleEvidence(at_row(known.table, row, reasons.get(row) or model.impossible(case)))
    return CasePosteriors(model.model, result, targets, known.table)
