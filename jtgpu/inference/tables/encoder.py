"""Columns of cells as columns of state numbers.

Every distinct value of a column is looked up once, in Python; the cells themselves only index into a table of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...model.discrete import DiscreteModel
from ...util.rows import Each
from .arrow_cells import encode_arrow
from .plain_cells import CategoricalColumn, encode_array, encode_list, look_up
from .states import NOT_OBSERVED, REJECTED, StateLookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIECE = 1 << 20  # cells that one of several threads encodes at a time


@dataclass
class Encoded:
    """Cells as state numbers."""

    # (E, n) int8, int16 or int32: State of each evidence variable in each row; -1 if not observed, and in all of a
    #     rejected row. The smallest type that holds the states of every variable.
    codes: NDArray[Any]
    rejected: dict[int, str] = field(default_factory=dict)  # reason why a row cannot be encoded, by row, ascending


class Encoder:
    """Converts the columns of evidence variables to state numbers."""
    # variables: sequence of int: Evidence variables, in the order of the columns passed to `encode`
    # words: frozenset of str: Words that mean "not observed" unless they are states
    # by_index: Whether numbers are always numbers of states; see `StateLookup`

    def __init__(
        self,
        model: DiscreteModel,
        variables: Sequence[int],
        words: frozenset[str] = frozenset(),
        *,
        by_index: bool = False,
    ):
        self.lookups = [StateLookup(model, v, words, by_index=by_index) for v in variables]
        most = max((len(x.states) for x in self.lookups), default=0)
        kinds = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))
        self.dtype = next(k for k in kinds if most <= np.iinfo(k).max)

    def encode(
        self, columns: Sequence[Any], n: int, each: Each = map, *, first_only: bool = False
    ) -> Encoded:
        """Encode columns of n cells."""
        # columns: sequence of Arrow arrays (chunked or not), NumPy arrays, `CategoricalColumn`, or lists
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


def _encode_column(lookup: StateLookup, column: Any, out: NDArray[Any]) -> bool:
    """Encode a column into `out`; returns whether cells may have been rejected."""
    if isinstance(column, list):
        return encode_list(lookup, column, out)
    if isinstance(column, np.ndarray):
        return encode_array(lookup, column, out)
    if isinstance(column, CategoricalColumn):
        return look_up([*map(lookup.number, column.values)], column.indices, out)
    return encode_arrow(lookup, column, out)


def _cell(column: Any, row: int) -> Any:
    """One cell as a Python value."""
    if isinstance(column, np.ndarray):
        return column[row : row + 1].tolist()[0]
    return column[row] if isinstance(column, (list, CategoricalColumn)) else column[row].as_py()
