"""Answers of cases as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns.arrow import arrow
from ..columns.likelihoods import FIRST
from ..util.arrays import Bools, Floats
from ..util.atomic_file import open_atomic
from .solver import AnsweredRows, CaseSolver
from .writing.formats import writer_for


def answer_table(
    solver: CaseSolver, rows: AnsweredRows, kept: Sequence[tuple[Any, Any]] = (), *, probabilities: bool = True
) -> Any:
    """The answers of n rows as an Arrow table."""
    # solver: The solver that answered the rows
    # rows: The cells of a flagged row are null
    # kept: sequence of (Arrow field, Arrow array): Columns that precede the answers
    # probabilities: Whether to include the columns of probabilities
    pa = arrow()
    query, answers = solver.query, rows.answers
    n = rows.codes.shape[1]
    flagged = np.zeros(n, np.bool_)
    flagged[list(rows.flagged)] = True
    mask = flagged if rows.flagged else None
    columns: list[Any] = []
    if query.labels:
        columns = _labels(solver, rows, mask)
    elif probabilities:
        columns = [pa.array(answers.expand(p), mask=mask) for p in np.ascontiguousarray(answers.posterior.T)]
    if query.log_evidence:
        columns.append(pa.array(answers.expand(answers.log_evidence), mask=mask))
    if query.conflict:
        columns.append(pa.array(_conflicts(solver, rows, flagged), mask=mask))
    if query.mpe:
        columns += _explanations(solver, rows, mask)
    if query.flag:
        errors: list[str | None] = [None] * n
        for row, reason in rows.flagged.items():
            errors[row] = reason
        columns.append(pa.array(errors, pa.string()) if rows.flagged else pa.nulls(n, pa.string()))
    skip = 0 if probabilities else answers.posterior.shape[1]
    schema = query.schema(solver.model, [(field.name, field.type) for field, _ in kept], skip)
    return pa.Table.from_arrays([array for _, array in kept] + columns, schema=schema)


def _labels(solver: CaseSolver, rows: AnsweredRows, mask: Bools | None) -> list[Any]:
    """Name of each target's most probable state, the first one if several are equally probable."""
    answers, targets = rows.answers, solver.query.targets
    bounds = np.cumsum([0, *(int(solver.model.cardinality[v]) for v in targets)])

    def label(i: int) -> Any:
        part = answers.posterior[:, bounds[i] : bounds[i + 1]]
        best = highest(part.T) if part.flags.f_contiguous else part.argmax(axis=1)
        return _state_names(solver, rows, targets[i], best, mask)

    return list(solver.each(label, range(len(targets))))


def _explanations(solver: CaseSolver, rows: AnsweredRows, mask: Bools | None) -> Iterator[Any]:
    """The states of the targets in the most probable explanations, and ln P of these."""
    answers = rows.answers
    assert answers.explanations is not None
    best = answers.explanations.states[:, list(solver.query.targets)]
    best = np.where(answers.impossible[:, None], 0, best)
    for v, states in zip(solver.query.targets, best.T, strict=True):
        yield _state_names(solver, rows, v, states, mask)
    yield arrow().array(answers.expand(answers.explanations.log_joint), mask=mask)


def _state_names(
    solver: CaseSolver, rows: AnsweredRows, v: int, states: NDArray[np.integer], mask: Bools | None
) -> Any:
    """Names of states of one variable, given by the numbers of the computed cases."""
    pa = arrow()
    indices = pa.array(rows.answers.expand(states.astype(np.int32)), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, pa.array(solver.model.states(v))).cast(pa.string())


def _conflicts(solver: CaseSolver, rows: AnsweredRows, flagged: Bools) -> Floats:
    """ln(prod P(e_i) / P(e)) of each case; see `jtgpu.JunctionTree.conflict`."""
    total = np.zeros(len(flagged))
    for v, log_prior, codes in zip(solver.query.evidence, solver.log_priors, rows.codes, strict=True):
        if codes.min(initial=0) <= FIRST:  # the code -2 - k is an index from the end
            with np.errstate(divide="ignore"):
                soft = np.log(rows.cells.vectors(v) @ np.exp(log_prior[:-1]))
            log_prior = np.concatenate([log_prior[:-1], soft[::-1], [0.0]])
        total += log_prior[codes]
    log_evidence = np.where(flagged, 0.0, rows.answers.expand(rows.answers.log_evidence))
    return np.where(flagged, 0.0, total) - log_evidence


def highest(columns: Floats) -> NDArray[np.int32]:
    """``columns.argmax(axis=0)`` in one pass over each column."""
    best, top = np.zeros(columns.shape[1], np.int32), columns[0].copy()
    for k, column in enumerate(columns[1:], 1):
        best[column > top] = k
        np.maximum(top, column, out=top)
    return best


def write_file(table: Any, path: str | Path) -> None:
    """Write an Arrow table as CSV, TSV or Parquet, by suffix; the file appears when it is complete."""
    writer = writer_for(Path(path))
    pieces, _ = writer.place(writer.encode(table), len(writer.start()))
    with open_atomic(path) as file:
        for piece in (writer.start(), *pieces, writer.end(table.schema)):
            file.write(piece)
