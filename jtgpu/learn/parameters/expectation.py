"""The E-step: expected counts and ln P of all rows under some CPTs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import ImpossibleEvidence
from ...inference.queries.counts import counting_backend
from ...util.arguments import choice
from .coded_cases import Block, CodedCases
from .families import network_of
from .likelihood_cells import FIRST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...util.options import Order

__all__ = ["Evaluation", "Expectation", "impossible_row"]

BACKENDS = ("auto", "cpu", "reference")
MAX_LISTED = 20  # findings in a message

Tables = list["NDArray[np.float64]"]


class Evaluation(NamedTuple):
    """What one pass over the rows has shown."""

    counts: Tables
    log_likelihood: float
    impossible: list[NDArray[np.bool_]]  # rows of probability zero, block by block


class Expectation:
    """Makes expected counts of rows. The plan and the programs are made once; every pass has other CPTs.

    Parameters
    ----------
    cases : CodedCases
    tables : list of arrays
        The first CPTs.
    backend : {"auto", "cpu", "reference"}
    order : str, path or sequence
        See `jtgpu.BayesianNetwork.plan`.
    threads : int, optional
    """

    def __init__(
        self, cases: CodedCases, tables: Tables, backend: str = "auto", order: Order = "auto",
        threads: int | None = None,
    ):  # fmt: skip
        name = choice("backend", backend, BACKENDS)
        self._cases, self._tables = cases, tables
        plan = network_of(cases.model, tables).plan(order).whole
        self._backend = counting_backend(name, plan, tables, threads)
        self._factors = [np.ascontiguousarray(t) for t in tables]

    def evaluate(self, tables: Tables) -> Evaluation:
        """Expected counts of all rows under some CPTs."""
        self._load(tables)
        total: Tables | None = None
        log_likelihood, impossible = 0.0, []
        for block in self._cases.blocks:
            parts = [self._count(part) for part in block.parts()]
            for counts, log_evidence, dead, weights in parts:
                log_likelihood += float((weights[~dead] * log_evidence[~dead]).sum())
                total = counts if total is None else [a + b for a, b in zip(total, counts, strict=True)]
            impossible.append(np.concatenate([p[2] for p in parts]) if parts else np.zeros(0, np.bool_))
        return Evaluation(total or [np.zeros(t.shape) for t in tables], log_likelihood, impossible)

    def evaluate_block(self, block: Block, tables: Tables) -> Evaluation:
        """Expected counts of some rows."""
        self._load(tables)
        counts, log_evidence, dead, weights = self._count(block)
        return Evaluation(counts, float((weights[~dead] * log_evidence[~dead]).sum()), [dead])

    def _load(self, tables: Tables) -> None:
        if tables is not self._tables:
            self._backend.reload([np.ascontiguousarray(t) for t in tables])
            self._tables = tables

    def _count(self, part: Block) -> tuple[Tables, NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
        n, cells = len(self._tables), self._cases.source.cells
        soft = np.zeros(len(part.states), np.bool_)
        if cells:
            soft |= (part.states <= FIRST).any(axis=1)
        if cells is None or not soft.any():
            found = self._backend.run_counts(np.ascontiguousarray(part.states, np.int32), part.weights)
            return found.families[:n], found.log_evidence, found.impossible, part.weights
        log_evidence, dead = np.zeros(len(soft)), np.zeros(len(soft), np.bool_)
        total: Tables = []
        for rows in (np.flatnonzero(~soft), np.flatnonzero(soft)):
            states, likelihood = cells.decode(part.states[rows])
            found = self._backend.run_counts(states, part.weights[rows], likelihood)
            log_evidence[rows], dead[rows] = found.log_evidence, found.impossible
            total = [a + b for a, b in zip(total, found.families[:n], strict=True)] if total else found.families[:n]
        return total, log_evidence, dead, part.weights

    def close(self) -> None:
        """Free the memory."""
        self._backend.close()


def impossible_row(cases: CodedCases, found: Evaluation) -> ImpossibleEvidence | None:
    """The error for the first row of probability zero, which names the row and its states; None without one."""
    first: tuple[int, Block, int] | None = None
    for block, dead in zip(cases.blocks, found.impossible, strict=True):
        at = np.flatnonzero(dead & (block.weights > 0))
        for i in at[np.argsort(block.rows[at])][:1].tolist():
            if first is None or block.rows[i] < first[0]:
                first = int(block.rows[i]), block, i
    if first is None:
        return None
    row, block, i = first
    model = cases.model
    states = [(v, int(s)) for v, s in enumerate(block.states[i]) if s >= 0]
    listed = "; ".join(f"{model.variables[v]} = {model.states(v)[s]!r}" for v, s in states[:MAX_LISTED])
    more = f" and {len(states) - MAX_LISTED} more" if len(states) > MAX_LISTED else ""
    return ImpossibleEvidence(
        f"{cases.source.row_name(row)}: this row has probability 0 at the start: {listed}{more} "
        '(on_impossible="flag" leaves such rows out; zeros="free" lets zeros of the network change)'
    )
