"""Posteriors of all variables or of some targets: of one case, and of a table of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from ...backends.base import Evidence
from ...errors import BackendUnavailable, ImpossibleEvidence
from ..compiled import CompiledModel
from ..evidence import Cases, Known, KnownCases, read_known_cases
from ..evidence.case_table import weight_rows
from ..evidence.values import by_number
from ..interventions import Settled
from ..results.device import DevicePosteriors
from ..results.marginals import CasePosteriors, Posterior, Posteriors
from ..soft import answer_cases
from ..tables import at_row, is_on_device


def posteriors(
    model: CompiledModel, settled: Settled, targets: Sequence[int] | None, known: Known | None = None
) -> Posteriors:
    """See `jtgpu.JunctionTree.posteriors`; `known` is the evidence that `settled` comes from."""
    found = model.answer(settled.backend.run, settled.case, targets)
    log_evidence = found.log_evidence + settled.log_shift
    return Posteriors(model.model, found.posterior, model.plan.posterior_ptr, log_evidence, targets, known)


def posterior(model: CompiledModel, variable: str | int, settled: Settled) -> Posterior:
    return posteriors(model, settled, [model.model.index(variable)])[variable]


def posteriors_batch(
    model: CompiledModel, known: KnownCases, targets: list[int] | None, on_impossible: str
) -> CasePosteriors:
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


def posteriors_on_device(
    model: CompiledModel, cases: Cases, likelihood: Mapping[Any, Any] | None, targets: list[int] | None
) -> DevicePosteriors:
    backend = model.intervened().backend
    if backend.device_number is None:
        raise BackendUnavailable(
            "answers stay on a device only with backend='gpu', on one GPU; this tree has "
            + (f"backend={model.backend!r}" if model.backend != "gpu" else "several GPUs, or slices")
        )
    if is_on_device(cases):
        n = int(cast(Any, cases).shape[0])
        rows = by_number(model.model, likelihood, "likelihood")
        weights = {v: weight_rows(model.model, v, value, n) for v, value in rows}
        result = backend.run_device(cases, weights, targets)
    else:
        known = read_known_cases(model.model, cases, likelihood)
        result = backend.run_device(known.states, known.likelihood, targets)
    return DevicePosteriors(model.model, result, targets)
