"""The columns of a table that are evidence: those with the name of a variable."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EvidenceError
from ..model.discrete import DiscreteModel
from ..model.states import NOT_OBSERVED, REJECTED, StateLookup, StateValues
from ..util.cells import Marks
from ..util.rows import Mapper
from .arrow import arrow
from .column import Column, distinct

# Columns of cells as columns of state numbers.
#
# Every distinct value of a column is looked up once, in Python; the cells themselves only index into a table of
# numbers.

BLOCK = 1 << 16  # cells looked up at a time, so that they stay in the CPU cache
PIECE = 1 << 20  # cells that one of several threads encodes at a time


@dataclass
class Encoded:
    """Cells as state numbers."""

    # (E, n) int8, int16 or int32: State of each evidence variable in each row; -1 if not observed, and in all of a
    #     rejected row. The smallest type that holds the states of every variable.
    codes: NDArray[np.integer]
    rejected: dict[int, str] = field(default_factory=dict)  # reason why a row cannot be encoded, by row, ascending


class Encoder:
    """Converts the columns of evidence variables to state numbers."""
    # variables: sequence of int: Evidence variables, in the order of the columns passed to `encode`
    # words: frozenset of str: Words that mean "not observed" unless they are states
    # by_index: Whether numbers are always numbers of states, except for `named` variables; see `StateLookup`

    def __init__(
        self,
        model: DiscreteModel,
        variables: Sequence[int],
        words: frozenset[str] = frozenset(),
        *,
        by_index: bool = False,
        named: Collection[int] = (),
    ):
        def values(v: int) -> StateValues:
            return StateValues(model.states(v), "index") if by_index and v not in named else model.state_values(v)

        self.variables = variables
        self.lookups = [StateLookup(model.variables[v], values(v), words) for v in variables]
        most = max((len(x.states) for x in self.lookups), default=0)
        kinds = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))
        self.dtype = next(k for k in kinds if most <= np.iinfo(k).max)

    def read_as(self, marks: Marks) -> None:
        """Read numerals in texts with the marks of decimals and thousands of a file."""
        for lookup in self.lookups:
            lookup.read_as(marks)

    def encode(self, columns: Sequence[Any], n: int, each: Mapper = map, *, first_only: bool = False) -> Encoded:
        """Encode columns of n cells."""
        # columns: sequence of Arrow arrays (chunked or not), NumPy arrays, `Column`, or lists
        # each: Maps a function over pieces of work: `map`, or the method of a thread pool
        # first_only: Whether only the first rejected row is needed
        # raises EvidenceError: For a column whose type cannot name states: dates, lists, structures.
        codes = np.empty((len(columns), n), self.dtype)
        step = n if each is map else PIECE
        pieces = [(j, at) for j in range(len(columns)) for at in range(0, n, max(step, 1))]

        def encode(piece: tuple[int, int]) -> bool:
            (j, at), column = piece, columns[piece[0]]
            part = column if step >= n else column[at : at + step]
            out = codes[j, at : at + step]
            return _encode_column(self.lookups[j], part, out) and bool(out.min(initial=0) == REJECTED)

        bad = np.flatnonzero((codes == REJECTED).any(axis=0)) if any([*each(encode, pieces)]) else ()
        rejected: dict[int, str] = {}
        for row in map(int, bad[:1] if first_only else bad):
            j = int(np.flatnonzero(codes[:, row] == REJECTED)[0])
            rejected[row] = f"column {self.lookups[j].name!r}: {self.lookups[j].reason(_cell(columns[j], row))}"
            codes[:, row] = NOT_OBSERVED
        return Encoded(codes, rejected)


def _encode_column(lookup: StateLookup, column: object, out: NDArray[np.generic]) -> bool:
    """Encode a column into `out`; returns whether cells may have been rejected."""
    if isinstance(column, np.ndarray) and lookup.numbers_are_states and _copy_numbers(lookup, column, out):
        return False
    _reject_type(lookup, column)
    at, rejected = 0, False
    for piece in getattr(column, "chunks", [column]):
        read = distinct(lookup.name, piece, occurring=False)
        rejected |= _look_up([*map(lookup.number, read.cells)], read.index, out[at : at + len(piece)])
        at += len(piece)
    return rejected


def _copy_numbers(lookup: StateLookup, cells: NDArray[Any], out: NDArray[Any]) -> bool:
    """Copy numbers of states; False if not all cells are such."""
    if cells.dtype.kind == "f":
        cells = np.where(np.isnan(cells), cells.dtype.type(NOT_OBSERVED), cells)
        in_range = ((cells == NOT_OBSERVED) | (cells >= lookup.least)) & (cells < len(lookup.states))
        whole = in_range.all() and (cells == np.floor(cells)).all()
    else:
        whole = cells.dtype.kind in "iu" and len(cells) > 0
        whole = whole and cells.min() >= lookup.least and cells.max() < len(lookup.states)
    if whole:
        out[:] = cells
    return bool(whole)


def _reject_type(lookup: StateLookup, column: object) -> None:
    """Raise `EvidenceError` for a column of a type that cannot name states."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind in ("iufbOUTSM" if lookup.has_moments else "iufbOUTS"):
            return
        kind = f"dtype {column.dtype}"
    elif hasattr(column, "type"):
        t, value = arrow().types, column.type
        while t.is_dictionary(value) or hasattr(value, "storage_type"):
            value = value.value_type if t.is_dictionary(value) else value.storage_type
        if not (t.is_nested(value) or t.is_temporal(value)) or (
            lookup.has_moments and (t.is_date(value) or t.is_timestamp(value))
        ):
            return
        kind = f"type {column.type}"
    else:
        return
    raise EvidenceError(f"column {lookup.name!r} has {kind}; states must be text, integers, booleans or categories")


def _look_up(states: list[int], indices: NDArray[Any], out: NDArray[Any]) -> bool:
    """Write the states of cells, given by place, to `out`; returns whether any is rejected."""
    if states == [*range(len(states))] and indices.max(initial=0) < len(states):  # the common case
        out[:] = indices  # -1 is NOT_OBSERVED
        return False
    values = np.array([*states, NOT_OBSERVED], out.dtype)
    for at in range(0, len(indices), BLOCK):
        np.take(values, indices[at : at + BLOCK], out=out[at : at + BLOCK], mode="wrap")
    return REJECTED in states


def _cell(column: Any, row: int) -> Any:
    """One cell as a Python value."""
    if isinstance(column, np.ndarray):
        return column[row : row + 1].tolist()[0]
    return column[row] if isinstance(column, (list, Column)) else column[row].as_py()
