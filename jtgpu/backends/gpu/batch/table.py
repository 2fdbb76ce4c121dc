"""The cases of one call and where their answers go, by rows or by columns; equal cases are answered once.

`jtgpu.backends.gpu.batch.engine` asks a table for page-locked memory of the right shape, has it send a chunk's evidence
and copy a chunk's answers out. `jtgpu.backends.gpu.batch.on_device` has tables whose answers stay on a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import EvidenceError
from ....plans.plan import Plan
from ....util.rows import find_equal_rows, take_columns, take_rows
from ...table import COLUMNS, ColumnCases, RowCases, Table, TableAnswer
from ..program.records import NONE
from .chunk import GROUP, HostChunk, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....device.context import Device
    from ...wrappers.row_queue import RowQueue
    from ..host import Host

CODES = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))  # types of columns that the kernels read
COPY = 1 << 22  # bytes that a thread copies at a time, since each piece takes the interpreter's lock

PinnedMemory = Callable[[int, Any], "NDArray[Any]"]  # (cells, dtype) -> page-locked array of at least so many cells


class Room(NamedTuple):
    """Cells and products that kernels of a warp a case have for a case; others are answered by a block each."""

    cells: int
    products: int


class TargetColumns(NamedTuple):
    """Variables whose posteriors a call wants, and the columns of its answers."""

    variables: list[int]  # each once
    n_out: int  # columns that the kernels write, a state each, variable after variable
    columns: NDArray[np.int64] | None  # where some targets are repeated: the column of each column of the result

    @classmethod
    def of(cls, plan: Plan, targets: Sequence[int] | None) -> TargetColumns:
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


_NONE = np.zeros(0)


class HostCases(NamedTuple):
    """Cases on the host, by rows or by columns."""

    states: NDArray[Any]  # (n, V) integers, -1 = not observed; by columns (E, n)
    weights: Weights
    given: Mapping[int, NDArray[np.float64]]  # variable to weights that have not been scaled, (n, card)
    variables: Sequence[int] | None = None  # those of the columns; None: by rows
    of_case: NDArray[np.float64] = _NONE  # (n,) weights of the cases, if these are counted

    @property
    def n(self) -> int:
        return int(self.states.shape[0 if self.variables is None else 1])

    def by_case(self, array: NDArray[Any]) -> NDArray[Any]:
        """States or answers, a case a row."""
        return array if self.variables is None else array.T

    def some(self, rows: NDArray[np.int64]) -> HostCases:
        """Some of the cases."""
        if self.variables is not None:
            return self._replace(states=take_columns(self.states, rows))
        w, given = self.weights, {v: x[rows] for v, x in self.given.items()}
        some = w._replace(values=w.values[rows], log_scale=w.log_scale[rows])
        of_case = self.of_case[rows] if len(self.of_case) else self.of_case
        return HostCases(take_rows(self.states, rows), some, given, None, of_case)

    def by_host(self, host: Host, targets: Sequence[int]) -> TableAnswer:
        """Answers as the kernels give them, computed on the host."""
        if self.variables is not None:
            codes = self.states.astype(np.int32, copy=False)
            return host.run(Table.by_columns(self.variables, codes, len(self.weights.first), targets))
        answered = host.run(Table.of(self.states, self.given, targets))
        return answered._replace(log_evidence=answered.log_evidence - self.weights.log_scale)


def read_rows(table: Table[Any], cardinality: NDArray[np.int64]) -> HostCases:
    """The cases of a table by rows, checked for shape; their states are not copied."""
    states = table.feed.states if isinstance(table.feed, RowCases) else table.feed.rows()
    if states.ndim != 2 or states.shape[1] != len(cardinality):
        raise EvidenceError(f"cases have shape {states.shape}, not (B, {len(cardinality)})")
    given = {int(v): np.ascontiguousarray(w, np.float64) for v, w in table.likelihood.items()}
    return HostCases(states, scale_weights(given, len(states), cardinality), given)


def read_columns(feed: ColumnCases) -> HostCases:
    """Cases by columns, checked for shape."""
    variables, codes = feed.variables, np.asarray(feed.codes)
    if codes.ndim != 2 or len(codes) != len(variables):
        raise EvidenceError(f"columns of states have shape {codes.shape}, not ({len(variables)}, B)")
    codes = codes if codes.dtype in CODES else codes.astype(np.int32)
    return HostCases(codes, scale_weights(None, 0, np.zeros(feed.n_variables, np.int64)), {}, variables)


class TableJob:
    """The cases of one call, answered by one GPU or by several of them together.

    Which kernels answer depends on the whole table, never on the GPU or on how rows are distributed, and each row is
    answered by itself: so results are bit-identical for any number of GPUs.
    """
    # asked: The table of the call
    # cases: Those to answer: equal ones are one
    # kind: (B,) int64: The case that answers each case of the call. Default: its own.

    # Answers a table by other kernels; given if float32 may lose P(e), or cases may be too large for a warp
    recompute: Callable[[TableJob], None] | None = None
    real = "float64"  # {"float64", "float32"}: of the tables that the kernels compute
    host: Host | None = None  # answers the cases in which numbers were lost; None: none can be
    by_warps = False  # whether each case is answered by a warp; or the cases are those which were too large for that
    room: Room | None = None  # of the kernels of a warp a case, if these answer
    on_device = False  # whether evidence and answers are there: see `jtgpu.backends.gpu.batch.on_device`

    def __init__(
        self, asked: Table[Any], cases: HostCases, targets: TargetColumns, kind: NDArray[np.int64] | None = None
    ):
        self.asked, self.cases, self.targets, self.kind = asked, cases, targets, kind
        self.n, self.weights = cases.n, cases.weights
        by_columns, states = cases.variables is not None, cases.states
        self.variables = np.array(() if cases.variables is None else cases.variables, np.uint32)  # by columns: (E,)
        self.width = states.itemsize if by_columns else 0  # bytes of a state in a column; 0 by rows
        self.state_bytes = len(states) * self.width if by_columns else 4 * states.shape[1]  # of a case's states
        shape = (self.n, targets.n_out)
        self.posterior = np.empty(shape[::-1] if by_columns else shape)
        self.log_evidence = np.empty(self.n)  # -inf or, if the kernels cannot answer, NaN

    @classmethod
    def read(cls, asked: Table[Any], targets: TargetColumns, cardinality: NDArray[np.int64], worth: float) -> TableJob:
        """The cases of a table; `worth`: see `find_equal_rows`."""
        if isinstance(asked.feed, ColumnCases) and asked.deliver is COLUMNS and not asked.likelihood:
            cases = read_columns(asked.feed)
        else:
            cases = read_rows(asked, cardinality)
            cases = cases._replace(states=np.ascontiguousarray(cases.states, np.int32))
        # weights before they are scaled: rows whose weights are proportional have other P(e)
        equal = find_equal_rows(cases.by_case(cases.states), *cases.given.values(), min_saving=worth)
        return cls(asked, cases, targets) if equal is None else cls(asked, cases.some(equal.first), targets, equal.kind)

    def observed(self, variables: Sequence[int]) -> NDArray[np.bool_]:
        """Whether each case observes each of these variables, (variables, n)."""
        seen, states = np.zeros((len(self.weights.first), self.n), np.bool_), self.cases.states
        if self.cases.variables is None:
            seen[:] = states.T >= 0
        else:
            seen[list(self.cases.variables)] = states >= 0
        return seen[list(variables)]

    # Chunks -------------------------------------------------------------------------------------------------------

    def host_chunk(self, size: int, pinned: PinnedMemory) -> HostChunk:
        """Memory for a chunk of so many cases."""

        def array(width: int, dtype: Any = np.float64, *, turned: bool = False) -> NDArray[Any]:
            cells = pinned(width * size, dtype)[: width * size]
            return cells.reshape((width, size) if turned else (size, width))

        by_columns, states = bool(self.width), self.cases.states
        n_weights = self.weights.values.shape[1]
        return HostChunk(
            array(len(states) if by_columns else states.shape[1], states.dtype, turned=by_columns),
            array(n_weights) if n_weights else np.zeros((size, 0)),
            array(self.targets.n_out, turned=by_columns), array(1)[:, 0],
        )  # fmt: skip

    def enter(self, slot: Slot, first: int, last: int, device: Device) -> None:
        """Queue the copy of a chunk's evidence, up to the end of a group of cases."""
        host, chunk = slot.host, slot.chunk
        used = chunk.size if self.width else -(-(last - first) // GROUP) * GROUP
        self.fill(host, first, last, used)
        states = host.states if self.width else host.states[:used]
        if states.size:
            device.upload(chunk.states, states, slot.stream)
        if host.weights.size:
            device.upload(chunk.weights, host.weights[:used], slot.stream)

    def fill(self, chunk: HostChunk, first: int, last: int, used: int) -> None:
        """Copy cases first to last in; behind them, up to `used`, the last one again: others may take longer."""
        n, to = last - first, self.cases.by_case(chunk.states)
        to[:n] = self.cases.by_case(self.cases.states)[first:last]
        to[n:used] = to[n - 1]
        if chunk.weights.size:
            chunk.weights[:n], chunk.weights[n:used] = self.weights.values[first:last], 1.0

    def leave(self, slot: Slot, first: int, last: int, device: Device) -> None:
        """Queue the copy of a chunk's answers to where they can be read."""
        host, chunk, n = slot.host, slot.chunk, last - first
        if self.targets.n_out:
            posterior = host.posterior if self.width else host.posterior[:n]
            device.download(posterior, chunk.rows or chunk.posterior, slot.stream)
        device.download(host.log_evidence[:n], chunk.log_evidence, slot.stream)

    def copies(self, chunk: HostChunk, first: int, last: int) -> list[Callable[[], None]]:
        """Tasks, for several threads, that copy the answers of cases first to last out."""
        rows, some = slice(first, last), slice(last - first)
        to, of = self.posterior, chunk.posterior
        to, of = (to[:, rows], of[:, some]) if self.width else (to[rows], of[some])
        step = max(COPY // max(8 * to.shape[1], 1), 1)
        pieces = [(self.log_evidence[rows], chunk.log_evidence[some])]
        pieces += [(to[at : at + step], of[at : at + step]) for at in range(0, len(to), step) if to.size]
        return [partial(np.copyto, *piece) for piece in pieces]

    # Answers ------------------------------------------------------------------------------------------------------

    def answer(self, worker: Any, rows: RowQueue) -> None:
        """See `jtgpu.backends.table.Job.answer`; the worker is a `BatchEngine` or its owner."""
        worker.answer(self, rows)

    def result(self) -> Any:
        """The answers of all cases, once every row of the queue is answered."""
        if self.recompute is not None:
            lost = np.flatnonzero(np.isnan(self.log_evidence) if self.by_warps else ~np.isfinite(self.log_evidence))
            if self.host is not None and self.real != "float64":
                lost = np.union1d(lost, self.host.lost(self.log_evidence, self.real))
            if len(lost):
                part = self.subset(lost)
                self.recompute(part)
                self._replace(lost, part)
        if self.host is not None:
            lost = self.host.lost(self.log_evidence)
            if len(lost):
                self._replace(lost, self.cases.some(lost).by_host(self.host, self.targets.variables))
        return self._expanded()

    def subset(self, rows: NDArray[np.int64]) -> TableJob:
        """Some of the cases as a table of their own."""
        return TableJob(self.asked, self.cases.some(rows), self.targets)

    def _replace(self, rows: NDArray[np.int64], other: TableJob | TableAnswer) -> None:
        by_case = self.cases.by_case
        by_case(self.posterior)[rows], self.log_evidence[rows] = by_case(other.posterior), other.log_evidence

    def _expanded(self) -> TableAnswer:
        """The answers of all cases, equal ones repeated."""
        posterior, log_evidence, kind, columns = self.posterior, self.log_evidence, self.kind, self.targets.columns
        impossible = np.isneginf(log_evidence)
        if impossible.any():
            self.cases.by_case(posterior)[impossible] = 0.0
        if not self.width:
            log_evidence += self.weights.log_scale
        if columns is not None:
            posterior = np.take(posterior, columns, axis=0 if self.width else 1)
        if kind is not None:
            posterior = take_columns(posterior, kind) if self.width else take_rows(posterior, kind)
            log_evidence, impossible = log_evidence[kind], impossible[kind]
        answer = TableAnswer(posterior, log_evidence, impossible)
        if self.width:
            return answer
        delivered: TableAnswer = self.asked.delivered(answer)
        return delivered
