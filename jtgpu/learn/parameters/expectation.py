"""The E-step: expected counts and ln P of all rows under some CPTs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ImpossibleEvidence
from ...inference.queries.counts import counting_backend
from ...util import doors
from ...util.arguments import choice
from .coded_cases import Block, CodedCases
from .families import network_of
from .likelihood_cells import FIRST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.base import Counts
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
    cluster : str or jtgpu.cluster.Cluster, optional
        Where passes over all rows run.
    """

    def __init__(
        self, cases: CodedCases, tables: Tables, backend: str = "auto", order: Order = "auto",
        threads: int | None = None, cluster: Any = None,
    ):  # fmt: skip
        name = choice("backend", backend, BACKENDS)
        self._cases, self._tables, self._cluster = cases, tables, cluster
        self._plan = network_of(cases.model, tables).plan(order).whole
        self._name = "reference" if name == "reference" else "cpu"
        self._backend = counting_backend(self._name, self._plan, tables, threads)
        self._remote: Any = None

    def evaluate(self, tables: Tables) -> Evaluation:
        """Expected counts of all rows under some CPTs."""
        total: Tables | None = None
        log_likelihood, impossible = 0.0, []
        parts = [[*block.parts()] for block in self._cases.blocks]
        found = self._remotely(tables, parts) if self._cluster is not None else self._here(tables, parts)
        for block in parts:
            flags = [np.zeros(0, np.bool_)]
            for part in block:
                one = self._combined(part, next(found))
                log_likelihood += one.log_likelihood
                total = one.counts if total is None else [a + b for a, b in zip(total, one.counts, strict=True)]
                flags.append(one.impossible[0])
            impossible.append(np.concatenate(flags))
        return Evaluation(total or [np.zeros(t.shape) for t in tables], log_likelihood, impossible)

    def evaluate_block(self, block: Block, tables: Tables) -> Evaluation:
        """Expected counts of some rows."""
        return self._combined(block, next(self._here(tables, [[block]])))

    def rows_changed(self) -> None:
        """Tell that rows were left out, so that the workers of a cluster need the parts again."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    def _here(self, tables: Tables, parts: Sequence[Sequence[Block]]) -> Iterator[list[Counts]]:
        """Counts of the pieces of each part, in this process."""
        if tables is not self._tables:
            self._backend.reload([np.ascontiguousarray(t) for t in tables])
            self._tables = tables
        for part in (p for block in parts for p in block):
            yield [self._backend.run_counts(*piece) for piece in self._pieces(part)]

    def _remotely(self, tables: Tables, parts: Sequence[Sequence[Block]]) -> Iterator[list[Counts]]:
        """The same on a cluster."""
        if self._remote is None:
            pieces = ([*self._pieces(p)] for block in parts for p in block)
            self._remote = doors.cluster().ClusterCounts(self._cluster, self._plan, tables, self._name, pieces)
        found: Iterator[list[Counts]] = self._remote.count(tables)
        return found

    def _split(self, part: Block) -> list[NDArray[np.int64] | slice]:
        """The rows without and with likelihoods, each of which is counted in one call."""
        cells = self._cases.source.cells
        if cells:
            soft = (part.states <= FIRST).any(axis=1)
            if soft.any():
                return [np.flatnonzero(~soft), np.flatnonzero(soft)]
        return [slice(None)]

    def _pieces(self, part: Block) -> Iterator[Any]:
        """States, weights and likelihoods of each call."""
        for rows in self._split(part):
            states: NDArray[Any] = part.states[rows]
            likelihood: dict[int, NDArray[np.float64]] = {}
            if not isinstance(rows, slice):
                assert self._cases.source.cells is not None
                states, likelihood = self._cases.source.cells.decode(states)
            yield np.ascontiguousarray(states, np.int32), np.ascontiguousarray(part.weights[rows]), likelihood

    def _combined(self, part: Block, found: Sequence[Counts]) -> Evaluation:
        """The counts of the pieces of a part, added."""
        n = len(self._cases.model)
        log_evidence, dead = np.zeros(len(part.states)), np.zeros(len(part.states), np.bool_)
        total = found[0].families[:n]
        for rows, one in zip(self._split(part), found, strict=True):
            log_evidence[rows], dead[rows] = one.log_evidence, one.impossible
        for one in found[1:]:
            total = [a + b for a, b in zip(total, one.families[:n], strict=True)]
        return Evaluation(total, float((part.weights[~dead] * log_evidence[~dead]).sum()), [dead])

    def close(self) -> None:
        """Free the memory."""
        self._backend.close()
        self.rows_changed()


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
