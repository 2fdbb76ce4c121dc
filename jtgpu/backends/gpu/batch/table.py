"""The cases of one call and where their answers go, by rows or by columns; equal cases are answered once.

`jtgpu.backends.gpu.batch.engine` asks a table for page-locked memory of the right shape, has it copy a chunk's evidence
there and a chunk's answers out of it. Host memory only; knows no device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ....errors import EvidenceError
from ....plans.plan import Plan
from ....util.rows import find_equal_rows, take_columns, take_rows
from ...table import ColumnCases, Table, TableAnswer
from ...wrappers.row_queue import RowQueue
from ..program.records import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....device.lending import Lender
    from ..host import Host

CODES = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))  # types of columns that the kernels read
COPY = 1 << 22  # bytes that a thread copies at a time, since each piece takes the interpreter's lock

PinnedMemory = Callable[[int, Any], "NDArray[Any]"]  # (cells, dtype) -> page-locked array of at least so many cells


class Room(NamedTuple):
    """Cells and products that kernels of a warp a case have for a case; others are answered by a block each."""

    cells: int
    products: int


class Targets(NamedTuple):
    """Variables whose posteriors a call wants, and the columns of its answers."""

    variables: list[int]  # each once
    n_out: int  # columns that the kernels write, a state each, variable after variable
    columns: NDArray[np.int64] | None  # where some targets are repeated: the column of each column of the result

    @classmethod
    def of(cls, plan: Plan, targets: Sequence[int] | None) -> Targets:
        """None: all variables."""
        if targets is None:
            return cls(list(range(plan.n_variables)), int(plan.posterior_ptr[-1]), None)
        variables = [int(v) for v in dict.fromkeys(targets)]
        card = plan.cardinality
        ends = np.cumsum([0, *card[variables]]).tolist()
        columns = None
        if len(variables) < len(targets):
            first = dict(zip(variables, ends, strict=False))
            columns = np.concatenate([np.arange(first[v], first[v] + card[v]) for v in targets])
        return cls(variables, ends[-1], columns)


class Weights(NamedTuple):
    """Weights of all weighted variables side by side, each row's of a variable scaled by a power of two."""

    values: NDArray[np.float64]  # (n, W), the largest of a variable and row in [0.5, 1)
    first: NDArray[np.uint32]  # (V,) column of a variable's first weight; NONE: it has none
    log_scale: NDArray[np.float64]  # (n,) natural logarithm of the powers of two
    smallest: float  # lower bound of log2 of the product of a row's weights > 0, one a variable; 0 without weights


def scale_weights(
    likelihood: Mapping[int, NDArray[np.float64]] | None, n: int, cardinality: NDArray[np.int64]
) -> Weights:
    """Weights as the kernels read them."""
    # likelihood: Variable to finite weights >= 0, (n, card)
    # cardinality: (V,)
    first = np.full(len(cardinality), NONE, np.uint32)
    log_scale, smallest, width = np.zeros(n), 0.0, 0
    parts: list[NDArray[np.float64]] = []
    for v, given in sorted((likelihood or {}).items()):
        table = np.asarray(given, np.float64)
        top = table.max(axis=1, initial=0.0)
        shift = np.where(top > 0, np.frexp(top)[1], 0)
        log_scale += shift * np.log(2.0)
        parts.append(np.ldexp(table, -shift[:, None]))
        positive = parts[-1][parts[-1] > 0]
        if len(positive) < np.count_nonzero(table):
            smallest = -math.inf  # one is too small for a number
        smallest += float(np.log2(positive.min())) if len(positive) else 0.0
        first[v] = width
        width += int(cardinality[v])
    values = np.ascontiguousarray(np.hstack(parts)) if parts else np.zeros((n, 0))
    return Weights(values, first, log_scale, smallest)


@dataclass(frozen=True)
class HostChunk:
    """Page-locked memory of one chunk."""

    states: NDArray[Any]
    weights: NDArray[np.float64]  # (size, W)
    posterior: NDArray[np.float64]
    log_evidence: NDArray[np.float64]  # (size,)


class TableWorker(Protocol):
    """A worker that answers chunks of a table: a `jtgpu.backends.gpu.batch.engine.BatchEngine`, or its owner."""

    def answer(self, table: TableJob, queue: RowQueue) -> None:
        """Answer chunks from the queue until it is empty; on an error, return the rows that were not answered."""


class TableJob(ABC):
    """The cases of one call, answered by one GPU or by several of them together.

    Which kernels answer depends on the whole table, never on the GPU or on how rows are distributed, and each row is
    answered by itself: so results are bit-identical for any number of GPUs.
    """

    n: int  # cases to answer: equal ones are one
    targets: Targets
    weights: Weights
    variables: NDArray[np.uint32]  # (E,) uint32: Variables of the columns of states; empty if states come as rows
    width: int  # bytes of a state in a column; 0 if states come as rows
    posterior: NDArray[np.float64]  # by rows (n, n_out), by columns (n_out, n)
    log_evidence: NDArray[np.float64]  # (n,) float64: Written by the kernels; -inf or, if they cannot answer, NaN
    # Answers a table by other kernels; given if float32 may lose P(e), or cases may be too large for a warp
    recompute: Callable[[TableJob], None] | None = None
    real = "float64"  # {"float64", "float32"}: of the tables that the kernels compute
    host: Host | None = None  # answers the cases in which numbers were lost; None: none can be
    by_warps = False  # whether each case is answered by a warp; or the cases are those which were too large for that
    room: Room | None = None  # of the kernels of a warp a case, if these answer
    lent = False  # whether the device writes the answers where the caller gets them

    @abstractmethod
    def observed(self, variables: Sequence[int]) -> NDArray[np.bool_]:
        """Whether each case observes each of these variables, (variables, n)."""

    def answer(self, worker: TableWorker, queue: RowQueue) -> None:
        worker.answer(self, queue)

    def result(self) -> TableAnswer:
        """The answers of all cases, once every row of the queue is answered."""
        if self.recompute is not None:
            lost = np.flatnonzero(np.isnan(self.log_evidence) if self.by_warps else ~np.isfinite(self.log_evidence))
            if self.host is not None and self.real != "float64":
                lost = np.union1d(lost, self.host.lost(self.log_evidence, self.real))
            if len(lost):
                part = self.subset(lost)
                self.recompute(part)
                self.replace(lost, part)
        if self.host is not None:
            lost = self.host.lost(self.log_evidence)
            if len(lost):
                self.replace(lost, self.by_host(self.host, lost))
        return self.expanded()

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes of a case's states on their way to the GPU."""

    @abstractmethod
    def host_chunk(self, size: int, pinned: PinnedMemory) -> HostChunk:
        """Memory for a chunk of so many cases."""

    @abstractmethod
    def fill(self, chunk: HostChunk, first: int, last: int, used: int) -> None:
        """Copy cases first to last in; behind them, up to `used`, the last one again: others may take longer."""

    @abstractmethod
    def copies(self, chunk: HostChunk, first: int, last: int) -> list[Callable[[], None]]:
        """Tasks, for several threads, that copy the answers of cases first to last out."""

    @abstractmethod
    def subset(self, rows: NDArray[np.int64]) -> TableJob:
        """Some of the cases as a table of their own."""

    @abstractmethod
    def by_host(self, host: Host, rows: NDArray[np.int64]) -> Any:
        """Some of the cases, answered by the host."""

    @abstractmethod
    def replace(self, rows: NDArray[np.int64], other: Any) -> None:
        """Take the answers of `subset(rows)`, or `by_host`."""

    @abstractmethod
    def expanded(self) -> TableAnswer:
        """The answers of all cases, equal ones repeated."""


def _pinned(pinned: PinnedMemory, shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
    cells = shape[0] * shape[1]
    return pinned(cells, dtype)[:cells].reshape(shape)


class RowJob(TableJob):
    """Cases by rows."""
    # states: (n, V) int32
    # kind: (B,) int64: The row that answers each case. Default: its own.
    # asked, own: The table of the call, and its rows that are the cases

    width = 0
    variables = np.zeros(0, np.uint32)

    def __init__(
        self, asked: Table[Any], states: NDArray[np.int32], weights: Weights, targets: Targets,
        kind: NDArray[np.int64] | None = None, own: NDArray[np.int64] | slice = slice(None),
    ):  # fmt: skip
        self._asked, self._own = asked, own
        self.states, self.weights, self.targets, self.kind = states, weights, targets, kind
        self.n = len(states)
        self.posterior, self.log_evidence = np.empty((self.n, targets.n_out)), np.empty(self.n)

    @classmethod
    def read(cls, asked: Table[Any], targets: Targets, cardinality: NDArray[np.int64], worth: float) -> RowJob:
        """The cases of a table; `worth`: see `find_equal_rows`."""
        states, given = asked.feed.rows(), asked.likelihood
        if states.ndim != 2 or states.shape[1] != len(cardinality):
            raise EvidenceError(f"cases have shape {states.shape}, not (B, {len(cardinality)})")
        weights = scale_weights(given, len(states), cardinality)
        # before they are scaled: rows whose weights are proportional have other P(e)
        parts = [np.ascontiguousarray(w, np.float64) for w in given.values()]
        equal = find_equal_rows(states, *parts, min_saving=worth)
        made = cls(asked, states, weights, targets)
        return made if equal is None else made.subset(equal.first, equal.kind)

    @property
    def state_bytes(self) -> int:
        return 4 * int(self.states.shape[1])

    def lend(self, lender: Lender) -> None:
        """Take memory for the answers which the device writes, if there is any."""
        lent = lender.lend(self.posterior.size)
        if lent is not None:
            self.posterior, self.lent = lent.reshape(self.posterior.shape), True

    def host_chunk(self, size: int, pinned: PinnedMemory) -> HostChunk:
        return HostChunk(
            _pinned(pinned, (size, self.states.shape[1]), np.int32),
            _pinned(pinned, (size, self.weights.values.shape[1]), np.float64),
            _pinned(pinned, (0 if self.lent else size, self.targets.n_out), np.float64),
            pinned(size, np.float64)[:size],
        )

    def observed(self, variables: Sequence[int]) -> NDArray[np.bool_]:
        return np.ascontiguousarray((self.states[:, variables] >= 0).T)

    def fill(self, chunk: HostChunk, first: int, last: int, used: int) -> None:
        n, rows = last - first, slice(first, last)
        chunk.states[:n] = self.states[rows]
        chunk.states[n:used] = chunk.states[n - 1]
        if chunk.weights.size:
            chunk.weights[:n], chunk.weights[n:used] = self.weights.values[rows], 1.0

    def copies(self, chunk: HostChunk, first: int, last: int) -> list[Callable[[], None]]:
        n, step = last - first, max(COPY // max(8 * self.targets.n_out, 1), 1)

        def copy(at: int) -> None:
            end = min(at + step, n)
            rows = slice(first + at, first + end)
            self.posterior[rows], self.log_evidence[rows] = chunk.posterior[at:end], chunk.log_evidence[at:end]

        if self.lent:
            self.log_evidence[first:last] = chunk.log_evidence[:n]
        return [] if self.lent else [partial(copy, at) for at in range(0, n, step)]

    def subset(self, rows: NDArray[np.int64], kind: NDArray[np.int64] | None = None) -> RowJob:
        w = self.weights
        some = w._replace(values=w.values[rows], log_scale=w.log_scale[rows])
        return RowJob(self._asked, take_rows(self.states, rows), some, self.targets, kind, self._rows(rows))

    def _rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where some of the cases are in the table of the call."""
        return rows if isinstance(self._own, slice) else self._own[rows]

    def by_host(self, host: Host, rows: NDArray[np.int64]) -> TableAnswer:
        own = self._rows(rows)
        likelihood = {v: np.asarray(w, np.float64)[own] for v, w in self._asked.likelihood.items()}
        answered = host.run(Table.of(self.states[rows], likelihood, self.targets.variables))
        return answered._replace(log_evidence=answered.log_evidence - self.weights.log_scale[rows])

    def replace(self, rows: NDArray[np.int64], other: RowJob | TableAnswer) -> None:
        self.posterior[rows], self.log_evidence[rows] = other.posterior, other.log_evidence

    def expanded(self) -> TableAnswer:
        posterior, log_evidence, kind = self.posterior, self.log_evidence, self.kind
        impossible = np.isneginf(log_evidence)
        posterior[impossible] = 0.0
        log_evidence += self.weights.log_scale
        if self.targets.columns is not None:
            posterior = posterior[:, self.targets.columns]
        answer = TableAnswer(posterior, log_evidence, impossible)
        if kind is not None:
            answer = TableAnswer(take_rows(posterior, kind), log_evidence[kind], impossible[kind])
        delivered: TableAnswer = self._asked.delivered(answer)
        return delivered


class ColumnJob(TableJob):
    """Cases by columns: each column of a frame is one piece of memory."""
    # codes: (E, n) array of int
    # kind: (B,) int64: The column of `codes` that answers each case. Default: its own.

    def __init__(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Targets, n_variables: int,
        kind: NDArray[np.int64] | None = None,
    ):  # fmt: skip
        self.codes, self.targets, self.kind, self.n = codes, targets, kind, codes.shape[1]
        self.variables, self.width = np.array(variables, np.uint32), codes.dtype.itemsize
        self.weights = scale_weights(None, 0, np.zeros(n_variables, np.int64))
        self.posterior, self.log_evidence = np.empty((targets.n_out, self.n)), np.empty(self.n)
        self.impossible = np.empty(self.n, np.bool_)

    @classmethod
    def read(cls, feed: ColumnCases, targets: Targets, worth: float) -> ColumnJob:
        """The cases of a table; `worth`: see `find_equal_rows`."""
        variables, codes, n_variables = feed.variables, np.asarray(feed.codes), feed.n_variables
        if codes.ndim != 2 or len(codes) != len(variables):
            raise EvidenceError(f"columns of states have shape {codes.shape}, not ({len(variables)}, B)")
        codes = codes if codes.dtype in CODES else codes.astype(np.int32)
        equal = find_equal_rows(codes.T, min_saving=worth)
        if equal is None:
            return cls(variables, codes, targets, n_variables)
        return cls(variables, take_columns(codes, equal.first), targets, n_variables, equal.kind)

    @property
    def state_bytes(self) -> int:
        return len(self.variables) * self.width

    def host_chunk(self, size: int, pinned: PinnedMemory) -> HostChunk:
        return HostChunk(
            _pinned(pinned, (len(self.variables), size), self.codes.dtype),
            np.zeros((size, 0)),
            _pinned(pinned, (self.targets.n_out, size), np.float64),
            pinned(size, np.float64)[:size],
        )

    def observed(self, variables: Sequence[int]) -> NDArray[np.bool_]:
        made = np.zeros((len(variables), self.n), np.bool_)
        column = {v: i for i, v in enumerate(self.variables.tolist())}
        for out, v in zip(made, variables, strict=True):
            if v in column:
                np.greater_equal(self.codes[column[v]], 0, out=out)
        return made

    def fill(self, chunk: HostChunk, first: int, last: int, used: int) -> None:
        n = last - first
        chunk.states[:, :n] = self.codes[:, first:last]
        chunk.states[:, n:used] = chunk.states[:, n - 1 : n]

    def copies(self, chunk: HostChunk, first: int, last: int) -> list[Callable[[], None]]:
        n, rows = last - first, slice(first, last)
        step = max(COPY // (8 * n), 1)

        def copy(at: int) -> None:
            end = at + step
            self.posterior[at:end, rows] = chunk.posterior[at:end, :n]

        def rest() -> None:
            self.log_evidence[rows] = chunk.log_evidence[:n]
            self.impossible[rows] = np.isneginf(chunk.log_evidence[:n])

        return [rest, *(partial(copy, at) for at in range(0, self.targets.n_out, step))]

    def subset(self, rows: NDArray[np.int64]) -> ColumnJob:
        codes, n_variables = take_columns(self.codes, rows), len(self.weights.first)
        return ColumnJob(self.variables.tolist(), codes, self.targets, n_variables)

    def by_host(self, host: Host, rows: NDArray[np.int64]) -> TableAnswer:
        codes = np.ascontiguousarray(self.codes[:, rows], np.int32)
        variables, n_variables = self.variables.tolist(), len(self.weights.first)
        return host.run(Table.by_columns(variables, codes, n_variables, self.targets.variables))

    def replace(self, rows: NDArray[np.int64], other: ColumnJob | TableAnswer) -> None:
        self.posterior[:, rows], self.log_evidence[rows] = other.posterior, other.log_evidence
        self.impossible[rows] = other.impossible

    def expanded(self) -> TableAnswer:
        posterior, log_evidence, impossible, kind = self.posterior, self.log_evidence, self.impossible, self.kind
        if impossible.any():
            posterior[:, np.flatnonzero(impossible)] = 0.0
        if self.targets.columns is not None:
            posterior = posterior[self.targets.columns]
        if kind is None:
            return TableAnswer(posterior, log_evidence, impossible)
        return TableAnswer(take_columns(posterior, kind), log_evidence[kind], impossible[kind])
