"""Posteriors of many cases in one answer: one bad case harms no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.base import Evidence
from ...errors import ArgumentError, ImpossibleEvidence, JtgpuError, TableTooLarge
from ...inference.evidence import read_findings
from ...inference.queries.posteriors import targets_of
from ...inference.results.marginals import Posterior
from ...inference.tree import JunctionTree
from ...model.discrete import DiscreteModel
from ..requests import problem
from .bodies import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from . import bodies as replies

# Conversions that several questions share: evidence of a body, distributions, and the size of an answer.

MAX_NUMBERS = 5_000_000  # numbers of an answer


class Form(NamedTuple):
    """How an answer is written."""

    labels: bool = False  # objects by the names of states in place of arrays
    digits: int | None = None  # significant digits


def known_of(case: Case, *, soft: bool = True) -> dict[str, Any]:
    """The evidence of a body as keywords of a query; those that are absent are left out."""
    # raises ArgumentError: If there is soft evidence and the query does not support it.
    found = {
        name: value
        for name, value in (
            ("evidence", case.evidence), ("likelihood", case.likelihood), ("soft", case.soft), ("do", case.do),
        )
        if value is not None
    }  # fmt: skip
    if not soft and "soft" in found:
        raise ArgumentError("this question does not support soft evidence; pass likelihood")
    return found


def by_state(model: DiscreteModel, posterior: Posterior, form: Form) -> list[float] | dict[str, float]:
    """A distribution: an array, or by the names of states."""
    values: list[float] = posterior.probabilities.tolist()
    return with_labels(model, model.index(posterior.variable), values) if form.labels else values


def with_labels(model: DiscreteModel, v: int, values: list[float]) -> dict[str, float]:
    """Numbers by the names of a variable's states."""
    # raises ArgumentError: If names are equal.
    names = model.states(v)
    if len(set(names)) < len(names):
        raise ArgumentError(f"labels=1: {model.variables[v]!r} has states with equal names; omit labels")
    return dict(zip(names, values, strict=True))


def check_size(numbers: int, what: str) -> None:
    """Raise `TableTooLarge` if an answer would have too many numbers."""
    if numbers > MAX_NUMBERS:
        raise TableTooLarge(
            f"this answer would have {numbers:,} numbers ({what}), more than the limit of {MAX_NUMBERS:,}",
            numbers, 8 * numbers, 8 * MAX_NUMBERS,
        )  # fmt: skip


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
