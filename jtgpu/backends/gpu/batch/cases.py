"""A call's cases and where their answers go: by rows, as `run_batch` has them, or by columns, as frames have them.

What `jtgpu.backends.gpu.batch.engine` asks of either: page-locked memory of the right shape, a chunk's evidence put there,
and the pieces of work that copy a chunk's answers out. Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....errors import EvidenceError
from .rows import NO_WEIGHTS, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CODES", "ColumnCases", "Host", "RowCases", "TableCases", "checked_columns"]

CODES = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))  # what columns of states may be
COPY = 1 << 22  # bytes that a thread copies at a time: each piece takes the interpreter's lock some times
CHECKED = 1 << 20  # states that a thread looks at at a time

Take = Callable[[int, Any], "NDArray[Any]"]  # (cells, dtype) of page-locked memory
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # `map`, or that of a pool of threads


@dataclass(frozen=True)
class Host:
    """Page-locked memory of one chunk."""

    states: NDArray[Any]
    weights: NDArray[np.float64]  # (size, W)
    posterior: NDArray[np.float64]
    log_evidence: NDArray[np.float64]  # (size,)


class TableCases(Protocol):
    """The cases of one call."""

    n: int
    n_out: int  # answers of a case
    weight_row: NDArray[np.uint32]  # (V,) see `Rows`
    n_weights: int
    smallest: float
    columns: NDArray[np.uint32]  # variables, where states come as columns
    width: int  # bytes of such a state; 0: rows

    @property
    def state_bytes(self) -> int:
        """What a case's states take on their way."""

    def host(self, size: int, take: Take) -> Host:
        """Memory for a chunk of so many cases."""

    def fill(self, host: Host, first: int, last: int, used: int) -> None:
        """Cases first to last, and behind them, up to `used`, cases in which nothing is known."""

    def copies(self, host: Host, first: int, last: int) -> list[Callable[[], None]]:
        """Work for several threads: the answers of cases first to last, copied out."""


def _table(take: Take, shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
    cells = shape[0] * shape[1]
    return take(cells, dtype)[:cells].reshape(shape)


class RowCases:
    """Cases by rows: states (n, V), answers (n, n_out)."""

    width = 0
    columns = np.zeros(0, np.uint32)

    def __init__(self, rows: Rows, n_out: int):
        self.rows, self.n, self.n_out = rows, len(rows.states), n_out
        self.weight_row, self.n_weights, self.smallest = rows.weight_row, rows.weights.shape[1], rows.smallest
        self.posterior, self.log_evidence = np.empty((self.n, n_out)), np.empty(self.n)

    @property
    def state_bytes(self) -> int:
        """See `TableCases`."""
        return 4 * int(self.rows.states.shape[1])

    def host(self, size: int, take: Take) -> Host:
        """See `TableCases`."""
        return Host(
            _table(take, (size, self.state_bytes // 4), np.int32),
            _table(take, (size, self.n_weights), np.float64),
            _table(take, (size, self.n_out), np.float64),
            take(size, np.float64)[:size],
        )

    def fill(self, host: Host, first: int, last: int, used: int) -> None:
        """See `TableCases`."""
        n = last - first
        host.states[:n], host.states[n:used] = self.rows.states[first:last], -1
        if self.n_weights:
            host.weights[:n], host.weights[n:used] = self.rows.weights[first:last], 1.0

    def copies(self, host: Host, first: int, last: int) -> list[Callable[[], None]]:
        """See `TableCases`."""
        n, step = last - first, max(COPY // max(8 * self.n_out, 1), 1)

        def copy(at: int) -> None:
            end = min(at + step, n)
            self.posterior[first + at : first + end] = host.posterior[at:end]
            self.log_evidence[first + at : first + end] = host.log_evidence[at:end]

        return [partial(copy, at) for at in range(0, n, step)]


class ColumnCases:
    """Cases by columns: states (E, n), answers (n_out, n), so that a column of a frame is one piece of memory."""

    n_weights, smallest = 0, 0.0

    def __init__(self, variables: Sequence[int], codes: NDArray[Any], n_variables: int, n_out: int):
        self.codes, self.n, self.n_out = codes, codes.shape[1], n_out
        self.columns, self.width = np.array(variables, np.uint32), codes.dtype.itemsize
        self.weight_row = np.full(n_variables, NO_WEIGHTS, np.uint32)
        self.posterior, self.log_evidence = np.empty((n_out, self.n)), np.empty(self.n)
        self.impossible = np.empty(self.n, np.bool_)

    @property
    def state_bytes(self) -> int:
        """See `TableCases`."""
        return len(self.columns) * self.width

    def host(self, size: int, take: Take) -> Host:
        """See `TableCases`."""
        return Host(
            _table(take, (len(self.columns), size), self.codes.dtype),
            np.zeros((size, 0)),
            _table(take, (self.n_out, size), np.float64),
            take(size, np.float64)[:size],
        )

    def fill(self, host: Host, first: int, last: int, used: int) -> None:
        """See `TableCases`."""
        n = last - first
        host.states[:, :n], host.states[:, n:used] = self.codes[:, first:last], -1

    def copies(self, host: Host, first: int, last: int) -> list[Callable[[], None]]:
        """See `TableCases`."""
        n = last - first
        step = max(COPY // (8 * n), 1)

        def copy(at: int) -> None:
            end = at + step
            self.posterior[at:end, first:last] = host.posterior[at:end, :n]

        def rest() -> None:
            self.log_evidence[first:last] = host.log_evidence[:n]
            np.isneginf(host.log_evidence[:n], out=self.impossible[first:last])

        return [rest, *(partial(copy, at) for at in range(0, self.n_out, step))]


def checked_columns(
    variables: Sequence[int], codes: NDArray[Any], cardinality: NDArray[np.int64], each: Each = map
) -> NDArray[Any]:
    """Columns of states as the kernels read them: (E, n) of int8, int16 or int32.

    Raises
    ------
    EvidenceError
        For an array of another shape or type, a variable that stands twice, a state that a variable does not have.
    """
    codes = np.asarray(codes)
    if codes.ndim != 2 or len(codes) != len(variables) or codes.dtype.kind not in "iu":
        raise EvidenceError(
            f"columns of states are integers of shape ({len(variables)}, B), not {codes.dtype} of shape {codes.shape}"
        )
    if len(set(variables)) < len(variables) or not set(variables) <= set(range(len(cardinality))):
        raise EvidenceError("columns of states belong to different variables of the model")
    pieces = [(j, at) for j in range(len(codes)) for at in range(0, codes.shape[1], CHECKED)]

    def wrong(piece: tuple[int, int]) -> bool:
        part = codes[piece[0], piece[1] : piece[1] + CHECKED]
        return bool(part.min() < -1 or part.max() >= cardinality[variables[piece[0]]])

    for (j, at), refused in zip(pieces, each(wrong, pieces), strict=True):
        if refused:
            v, part = variables[j], codes[j, at : at + CHECKED]
            row = int(np.flatnonzero((part < -1) | (part >= cardinality[v]))[0])
            raise EvidenceError(f"case {at + row}: variable {v} has {cardinality[v]} states, not a state {part[row]}")
    return codes if codes.dtype in CODES else codes.astype(np.int32)
