"""Stepwise EM for rows that are passed once (Cappe and Moulines, JRSS B 71, 2009).

After each chunk of rows the average counts move towards those of the chunk, by a share that falls from chunk to chunk,
and the CPTs follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import DataError, ImpossibleEvidence
from .coded_cases import Block
from .em import Iteration
from .expectation import Evaluation
from .families import Sharing, log_score, maximise

if TYPE_CHECKING:
    from numpy.typing import NDArray

DELAY = 2  # added to the number of a chunk, so that the first ones do not replace everything

Tables = list["NDArray[np.float64]"]


class Passed(NamedTuple):
    """The result of one pass."""

    tables: Tables
    counts: Tables  # scaled to the weight of all rows
    history: tuple[Iteration, ...]
    log_likelihood: float  # sum over the chunks, each under the CPTs before it
    n_rows: int
    n_impossible: int
    interrupted: bool


def run_stepwise(  # noqa: PLR0913
    evaluate: Callable[[Block, Tables], Evaluation],
    chunks: Iterable[Block],
    tables: Tables,
    prior: Tables,
    sharing: Sharing,
    power: float,
    *,
    flag: bool = False,
    listener: Callable[[Iteration], None] = lambda _: None,
) -> Passed:
    """Pass over chunks of rows once."""
    # evaluate: The E-step for a chunk
    # tables: list of arrays: The CPTs to start from
    # power: Chunk k = 1, 2, ... has the share ``(k + 2) ** -power``; the first has all.
    # flag: Whether rows of probability zero are left out
    # listener: Called after each chunk
    average: Tables = []
    history: list[Iteration] = []
    weight = log_likelihood = 0.0
    n_rows = n_impossible = 0
    interrupted = False
    try:
        for k, block in enumerate(chunks):
            begun = time.perf_counter()
            total = float(block.weights.sum())
            n_rows += len(block.states)
            if not total > 0:
                continue
            found = evaluate(block, tables)
            dead = found.impossible[0] & (block.weights > 0)
            if dead.any() and not flag:
                row = int(block.rows[int(np.argmax(dead))])
                raise ImpossibleEvidence(f"row {row}: this row has probability 0 under the CPTs before its chunk")
            n_impossible += int(dead.sum())
            possible = total - float(block.weights[dead].sum())
            if not possible > 0:
                continue
            share = 1.0 if not average else (k + DELAY) ** -power
            each = [c / possible for c in found.counts]
            average = each if not average else [
                (1 - share) * a + share * e for a, e in zip(average, each, strict=True)
            ]  # fmt: skip
            weight += possible
            tables = maximise([weight * a for a in average], prior, sharing, tables)
            log_likelihood += found.log_likelihood
            objective = found.log_likelihood + log_score(prior, tables, [g[0] for g in sharing.groups])
            entry = Iteration(
                len(history) + 1, objective, found.log_likelihood, 0.0, time.perf_counter() - begun, False
            )
            history.append(entry)
            listener(entry)
    except KeyboardInterrupt:
        if not average:
            raise
        interrupted = True
    if not average:
        raise DataError("there are no rows to fit")
    counts = [weight * a for a in average]
    return Passed(tables, counts, tuple(history), log_likelihood, n_rows, n_impossible, interrupted)
