"""The E-step: expected counts and ln P of all rows under some CPTs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...backends.base import CountSums
from ...backends.make import make
from ...backends.table import Table
from ...backends.wrappers.questions import QuestionLimits
from ...columns.likelihoods import FIRST
from ...errors import ImpossibleEvidence, TableTooLarge
from ...inference.queries.counts import counting_backend
from ...plans.compiler import MAX_TABLE, MEMORY_SHARE, unplanned
from ...util import late_imports
from ...util.arguments import choice
from ...util.arrays import Bools, Floats, Ints
from ...util.options import Order
from ...util.system import free_memory
from .coded_cases import CodedCases, RowBlock
from .families import available_counts, family_scopes, network_of

BACKENDS = ("auto", "cpu", "gpu", "reference")
HELD_CELLS = 1 << 28  # cells of rows that are held together
MAX_LISTED = 20  # findings in a message

Tables = list[Floats]


class PassResult(NamedTuple):
    """Result of one pass."""

    sums: Tables  # expected counts; see `DensityFamily` for numbers
    log_likelihood: float
    impossible: list[Bools]  # rows of probability zero, block by block
    weight: float = 0.0  # of the possible rows: their number is the unit in which ln P is rounded


class Steps(Protocol):
    """The E-step of some cases, as EM runs it from several starts."""

    def evaluate(self, tables: Tables) -> PassResult:
        """Expected counts of all cases under some CPTs."""

    def complete_counts(self) -> Tables:
        """Counts of each family over the cases in which it is complete."""

    def error(self, evaluation: PassResult) -> ImpossibleEvidence | None:
        """The error for the first case of probability 0; None without one."""

    def leave_out(self, evaluation: PassResult) -> tuple[int, bool]:
        """Leave out the cases of probability 0: how many different ones, and whether others are left."""

    def close(self) -> None:
        """Free the memory."""


class Expectation:
    """Makes expected counts of rows. The plan and the programs are made once; every pass has other CPTs."""

    # tables: list of arrays: The first CPTs
    # backend: {"auto", "cpu", "gpu", "reference"}
    # order: See `jtgpu.BayesianNetwork.plan`
    # devices: "all" or sequence of int: GPUs, of ``"gpu"``
    # cluster: Where passes over all rows run
    # by_rows: Whether each row has a tree of its own, if that of the whole network does not fit

    def __init__(  # noqa: PLR0913
        self, cases: CodedCases, tables: Tables, backend: str = "auto", order: Order = "auto",
        threads: int | None = None, devices: Any = None, cluster: Any = None, *, by_rows: bool = False,
    ):  # fmt: skip
        name = choice("backend", backend, BACKENDS)
        self._cases, self._tables, self._cluster = cases, tables, cluster
        self._name = "cpu" if name == "auto" else name
        network = network_of(cases.model, tables)
        try:
            self._plan = network.plan(order).whole
            self._backend = counting_backend(self._name, self._plan, tables, threads, devices)
        except TableTooLarge:
            if not by_rows or name == "gpu" or cluster is not None:
                raise
            self._plan = unplanned(network)
            limits = QuestionLimits(int(MEMORY_SHARE * free_memory()), MAX_TABLE, network.variables)
            self._backend = make(self._name, self._plan, tables, limits=limits)
        self._held: list[list[list[Table[CountSums]]]] | None = None  # of each block and part; see `_hold`
        self._none_impossible: dict[int, Bools] = {}
        self._remote: Any = None

    def evaluate(self, tables: Tables) -> PassResult:
        """Expected counts of all rows under some CPTs."""
        if self._backend.capabilities.holds_cases and self._cluster is None:
            return self._evaluate_held(tables)
        total: Tables | None = None
        log_likelihood, impossible = 0.0, []
        parts = [[*block.parts()] for block in self._cases.blocks]
        if self._cluster is not None:
            parts_done = self._remotely(tables, parts)
        else:
            self._reload(tables)
            parts_done = ([*map(self._backend.run, self._pieces(p))] for block in parts for p in block)
        for block in parts:
            flags = [np.zeros(0, np.bool_)]
            for part in block:
                one = self._combined(part, next(parts_done))
                log_likelihood += one.log_likelihood
                total = one.sums if total is None else [a + b for a, b in zip(total, one.sums, strict=True)]
                flags.append(one.impossible[0])
            impossible.append(np.concatenate(flags))
        total = total or [np.zeros(t.shape) for t in tables]
        return PassResult(total, log_likelihood, impossible, float(total[0].sum()))

    def _evaluate_held(self, tables: Tables) -> PassResult:
        """The same with rows that stay in the memory of a device."""
        self._reload(tables)
        if self._held is None:
            self._hold()
        assert self._held is not None
        n = len(self._cases.model)
        counts = [np.zeros(t.shape) for t in tables[:n]]
        log_likelihood, impossible = 0.0, []
        for i, (block, parts) in enumerate(zip(self._cases.blocks, self._held, strict=True)):
            flags: list[Bools] = []
            for part, held in zip(block.parts(HELD_CELLS), parts, strict=True):
                sums = [*map(self._backend.run, held)]
                for one in sums:
                    counts = [a + b for a, b in zip(counts, one.families[:n], strict=True)]
                    log_likelihood += one.log_likelihood
                if any(one.n_impossible for one in sums):
                    flags.append(np.zeros(len(part.states), np.bool_))
                    for rows, one in zip(self._split(part), sums, strict=True):
                        flags[-1][rows] = one.impossible
                else:
                    flags.append(np.broadcast_to(np.False_, len(part.states)))
            impossible.append(self._joined(i, flags))
        return PassResult(counts, log_likelihood, impossible, float(counts[0].sum()))

    def _joined(self, block: int, flags: list[Bools]) -> Bools:
        """The flags of a block; where none is set, always the same array."""
        if any(f.strides != (0,) for f in flags):
            return np.concatenate(flags)
        n = sum(map(len, flags))
        if len(self._none_impossible.get(block, ())) != n or block not in self._none_impossible:
            self._none_impossible[block] = np.zeros(n, np.bool_)
        return self._none_impossible[block]

    def _hold(self) -> None:
        """Store all rows on the device."""
        self._held = []
        for block in self._cases.blocks:
            self._held.append([])
            for part in block.parts(HELD_CELLS):
                self._held[-1].append([])
                self._held[-1][-1] += map(self._backend.hold, self._pieces(part))

    def _release(self) -> None:
        """Free what `_hold` stored."""
        for held in (h for parts in self._held or () for part in parts for h in part):
            held.feed.close()
        self._held = None

    def _reload(self, tables: Tables) -> None:
        """Let the backend have some CPTs."""
        if tables is not self._tables:
            self._backend.reload([np.ascontiguousarray(t) for t in tables])
            self._tables = tables

    def evaluate_block(self, block: RowBlock, tables: Tables) -> PassResult:
        """Expected counts of some rows."""
        self._reload(tables)
        return self._combined(block, [*map(self._backend.run, self._pieces(block))])

    def complete_counts(self) -> Tables:
        """Counts of each family over the rows in which it is complete."""
        return available_counts(self._cases)

    def incomplete(self, members: Sequence[int], k: int) -> list[RowBlock] | None:
        """Rows that miss a part of the family of one of some variables, and may have its parents in configuration k."""
        blocks, scopes = [], family_scopes(self._cases.model)
        for part in (part for block in self._cases.blocks for part in block.parts()):
            incomplete = np.zeros(len(part.states), np.bool_)
            for scope in (scopes[v] for v in members):
                gaps = (part.states[:, scope] < 0).any(axis=1)
                shape = [int(self._cases.model.cardinality[u]) for u in scope[:-1]]
                for u, s in zip(scope, np.unravel_index(k, shape), strict=False):
                    gaps &= (part.states[:, u] < 0) | (part.states[:, u] == s)
                incomplete |= gaps
            if incomplete.any():
                blocks.append(RowBlock(part.states[incomplete], part.weights[incomplete], part.rows[incomplete]))
        return blocks or None

    def some(
        self, theta: Tables, members: Sequence[int], tables: Sequence[Floats], rows: list[RowBlock]
    ) -> Iterator[Tables]:
        """Expected counts of some rows, or of all that stay on a device or a cluster, with each of some tables."""
        for table in tables:
            there = [table if v in members else own for v, own in enumerate(theta)]
            if self._cluster is not None or self._backend.capabilities.holds_cases:
                yield self.evaluate(there).sums
                continue
            each = [self.evaluate_block(block, there).sums for block in rows]
            yield [np.sum(own, axis=0) for own in zip(*each, strict=True)]

    def each(self, theta: Tables) -> Iterator[tuple[float, Tables]]:
        """The weight of each row, and its own expected counts; equal rows are one."""
        for block in self._cases.blocks:
            for r in np.flatnonzero(block.weights > 0).tolist():
                own = RowBlock(block.states[r : r + 1], np.ones(1), block.rows[r : r + 1])
                yield float(block.weights[r]), self.evaluate_block(own, theta).sums

    def error(self, evaluation: PassResult) -> ImpossibleEvidence | None:
        """The error for the first row of probability 0."""
        return impossible_row(self._cases, evaluation)

    def leave_out(self, evaluation: PassResult) -> tuple[int, bool]:
        """Leave out the rows of probability 0."""
        n = self._cases.drop_rows(evaluation.impossible)
        self._rows_changed()
        return n, self._cases.total_weight > 0

    def _rows_changed(self) -> None:
        """Rows were left out, so devices and the workers of a cluster need them again."""
        self._release()
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    def _remotely(self, tables: Tables, parts: Sequence[Sequence[RowBlock]]) -> Iterator[list[CountSums]]:
        """Counts of the pieces of each part, on a cluster."""
        if self._remote is None:
            pieces = ([*self._pieces(p)] for block in parts for p in block)
            self._remote = late_imports.cluster().ClusterCounts(self._cluster, self._plan, tables, self._name, pieces)
        coming: Iterator[list[CountSums]] = self._remote.count(tables)
        return coming

    def _split(self, part: RowBlock) -> list[Ints | slice]:
        """The rows without and with likelihoods, each of which is counted in one call."""
        cells = self._cases.source.cells
        if cells:
            soft = (part.states <= FIRST).any(axis=1)
            if soft.any():
                return [np.flatnonzero(~soft), np.flatnonzero(soft)]
        return [slice(None)]

    def _pieces(self, part: RowBlock) -> Iterator[Table[CountSums]]:
        """The table of each call; states in the type in which they are stored."""
        for rows in self._split(part):
            states: NDArray[np.integer] = part.states[rows]
            likelihood: dict[int, Floats] = {}
            if not isinstance(rows, slice):
                assert self._cases.source.cells is not None
                states, likelihood = self._cases.source.cells.decode(states)
            yield Table.counts(states, np.ascontiguousarray(part.weights[rows]), likelihood)

    def _combined(self, part: RowBlock, counts: Sequence[CountSums]) -> PassResult:
        """The counts of the pieces of a part, added."""
        n = len(self._cases.model)
        log_evidence, dead = np.zeros(len(part.states)), np.zeros(len(part.states), np.bool_)
        total = counts[0].families[:n]
        for rows, one in zip(self._split(part), counts, strict=True):
            log_evidence[rows], dead[rows] = one.log_evidence, one.impossible
        for one in counts[1:]:
            total = [a + b for a, b in zip(total, one.families[:n], strict=True)]
        return PassResult(total, float((part.weights[~dead] * log_evidence[~dead]).sum()), [dead])

    def close(self) -> None:
        """Free the memory."""
        self._rows_changed()
        self._backend.close()


def impossible_row(cases: CodedCases, evaluation: PassResult) -> ImpossibleEvidence | None:
    """The error for the first row of probability zero, which names the row and its states; None without one."""
    first: tuple[int, RowBlock, int] | None = None
    for block, dead in zip(cases.blocks, evaluation.impossible, strict=True):
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
        '(on_error="flag" leaves such rows out; zeros="free" lets zeros of the network change)'
    )
