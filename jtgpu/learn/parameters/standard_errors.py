"""Standard errors of CPT entries from the observed information.

The score of a row of data in a CPT row with entries theta is N / theta, with N the row's expected counts, up to a
multiple of (1, ..., 1), since the entries sum to 1. The information is the sum of the outer products of the scores
(Berndt, Hall, Hall, Hausman 1974; Louis, JRSS B 44, 1982), taken for each row of a CPT on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .coded_cases import Block, CodedCases
from .families import Sharing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .expectation import Evaluation

SINGULAR = 1e-9  # relative: information below this says nothing about a direction

Tables = list["NDArray[np.float64]"]


def standard_errors(
    cases: CodedCases, evaluate: Callable[[Block, Tables], Evaluation], tables: Tables, sharing: Sharing
) -> Tables:
    """Standard errors of every entry: 0 for fixed CPTs and entries of 0, infinite where the data say nothing."""
    # evaluate: The E-step for a block of rows
    # tables: list of arrays: The estimated CPTs
    information = {
        g[0]: np.zeros((tables[g[0]].size // tables[g[0]].shape[-1], *2 * (tables[g[0]].shape[-1],)))
        for g in sharing.groups
    }
    for block in cases.blocks:
        for part in block.parts():
            _add(part, evaluate, tables, sharing, information)
    found = [np.zeros(t.shape) for t in tables]
    for group in sharing.groups:
        rows = tables[group[0]].reshape(-1, tables[group[0]].shape[-1])
        errors = np.stack([_row_errors(theta, info) for theta, info in zip(rows, information[group[0]], strict=True)])
        for v in group:
            found[v] = errors.reshape(tables[v].shape)
    return found


def _add(
    block: Block,
    evaluate: Callable[[Block, Tables], Evaluation],
    tables: Tables,
    sharing: Sharing,
    information: dict[int, NDArray[np.float64]],
) -> None:
    """Add the outer products of the rows of a block."""
    for i in range(len(block.states)):
        weight = float(block.weights[i])
        if not weight > 0:
            continue
        row = Block(block.states[i : i + 1], np.ones(1), block.rows[i : i + 1])
        found = evaluate(row, tables)
        if found.impossible[0][0]:
            continue
        for group in sharing.groups:
            counts = found.counts[group[0]]
            for v in group[1:]:
                counts = counts + found.counts[v]
            flat = counts.reshape(-1, counts.shape[-1])
            theta = tables[group[0]].reshape(flat.shape)
            used = np.flatnonzero(flat.sum(axis=1) > 0)
            n, t = flat[used], theta[used]
            score = np.divide(n, t, out=np.zeros(n.shape), where=t > 0)
            information[group[0]][used] += weight * score[:, :, None] * score[:, None, :]


def _row_errors(theta: NDArray[np.float64], information: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard errors of the entries of one row, from the sum of the outer products of N / theta."""
    errors = np.zeros(len(theta))
    free = np.flatnonzero(theta > 0)
    if len(free) < 2:
        return errors
    # directions in which the entries change while their sum stays: an orthonormal basis
    basis = np.linalg.qr(np.column_stack([np.ones(len(free)), np.eye(len(free))[:, 1:]]))[0][:, 1:]
    inner = basis.T @ information[np.ix_(free, free)] @ basis
    values, vectors = np.linalg.eigh(inner)
    known = values > SINGULAR * max(float(values.max(initial=0.0)), 1e-300)
    along = basis @ vectors  # (free, directions)
    variance = (along[:, known] ** 2 / values[known]).sum(axis=1)
    unknown = (along[:, ~known] ** 2).sum(axis=1) > SINGULAR
    errors[free] = np.where(unknown, np.inf, np.sqrt(variance))
    return errors
