"""Posteriors of many cases in one answer: one bad case harms no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence
from ...errors import ImpossibleEvidence, JtgpuError
from ...inference.evidence import read_findings
from ...inference.queries.scope import targets_of
from ...inference.tree import JunctionTree
from ...model.discrete import DiscreteModel
from ..problems import problem
from .bodies import Case
from .form import Form, by_state, check_size, known_of, with_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from . import replies

CHUNK = 4096  # cases that are computed at a time


def states_and_weights(
    n_variables: int, cases: Sequence[Evidence]
) -> tuple[NDArray[np.int32], dict[int, NDArray[np.float64]]]:
    """Cases as a table: states, (B, V), and likelihoods, (B, card), ones where a case has none."""
    parts = [case.state for case in cases]
    flat = np.concatenate(parts, dtype=np.int32) if parts else np.zeros(0, np.int32)
    states = flat.reshape(len(cases), n_variables)  # `np.stack` takes ten times as long
    weights: dict[int, NDArray[np.float64]] = {}
    for i, case in enumerate(cases):
        for v, vector in case.likelihood.items():
            if v not in weights:
                weights[v] = np.ones((len(cases), len(vector)))
            weights[v][i] = vector
    return states, weights


def spans(model: DiscreteModel, targets: Sequence[int] | None) -> dict[int, slice]:
    """Columns of each target in a table of posteriors."""
    found, first = {}, 0
    for v in range(len(model)) if targets is None else targets:
        end = first + int(model.cardinality[v])
        found[v] = slice(first, end)
        first = end
    return found


def answer_cases(tree: JunctionTree, cases: Sequence[Case], targets: Any, form: Form) -> list[replies.Result]:
    """Compute the posteriors of many cases."""
    # returns An answer or a problem for each case.
    # raises UnknownVariable: If there is no such target.
    # raises TableTooLarge: If the answer would have too many numbers.
    model = tree.model
    wanted = targets_of(model, targets)
    columns = spans(model, wanted)
    width = sum(s.stop - s.start for s in columns.values())
    check_size(len(cases) * width, f"{len(cases):,} cases of {width:,} states")
    names = [(model.variables[v], at, v) for v, at in columns.items()]
    found: list[Any] = [None] * len(cases)
    for first in range(0, len(cases), CHUNK):
        rows: list[int] = []
        known: list[Evidence] = []
        for i, case in enumerate(cases[first : first + CHUNK], first):
            try:
                if case.soft or case.do:
                    found[i] = _one(tree, case, wanted, form)
                    continue
                known.append(read_findings(model, case.evidence or {}, case.likelihood))
                rows.append(i)
            except JtgpuError as error:
                found[i] = {"error": problem(error, model, case)}
        if not rows:
            continue
        states, weights = states_and_weights(len(model), known)
        result = tree.intervened().backend.run_batch(states, weights, wanted)
        impossible, log_evidence = result.impossible.tolist(), result.log_evidence.tolist()
        for k, (i, flat) in enumerate(zip(rows, result.posterior.tolist(), strict=True)):
            if impossible[k]:
                refused = ImpossibleEvidence(tree.impossible(known[k]))
                found[i] = {"error": problem(refused, model, cases[i])}
                continue
            found[i] = {
                "log_evidence": log_evidence[k],
                "posteriors": {
                    name: with_labels(model, v, flat[at]) if form.labels else flat[at] for name, at, v in names
                },
            }
    return found


def _one(tree: JunctionTree, case: Case, targets: list[int] | None, form: Form) -> replies.Result:
    """A case with soft evidence or interventions."""
    found = tree.posteriors(**known_of(case), targets=targets)
    return {
        "log_evidence": found.log_evidence,
        "posteriors": {name: by_state(tree.model, p, form) for name, p in found.items()},
    }
