"""Cells in lists and NumPy arrays as state numbers, without Arrow."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError, EvidenceError, shown
from ...util.arrays import Ints
from ...util.missing import is_missing, is_unusable
from .arrow import arrow, to_double
from .states import NOT_OBSERVED, REJECTED, StateLookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 16  # cells looked up at a time, so that they stay in the CPU cache
MAX_RANGE = 4096  # integers that a table of all their states may span

# values of these types that are equal mean the same state; 1 and True do not
COMPARABLE = {str, int, float, type(None)}


class CategoricalColumn:
    """A categorical column whose categories may be values of any type, which Arrow does not have."""
    # indices: (n,) array of int: -1: null

    def __init__(self, indices: NDArray[Any], values: list[Any]):
        self.indices, self.values = indices, values

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return CategoricalColumn(self.indices[row], self.values)
        return self.values[self.indices[row]]


def without_decimals(column: Any) -> Any:
    """A column of decimal numbers, as databases have them, as floats; other columns as they are."""
    if hasattr(column, "type"):  # Arrow
        return to_double(column) if str(column.type).startswith("decimal") else column
    if not isinstance(column, list) and not (isinstance(column, np.ndarray) and column.dtype == object):
        return column
    first = next((c for c in column if not is_missing(c)), None)
    if not isinstance(first, Decimal) or not all(is_missing(c) or isinstance(c, (Decimal, int, float)) for c in column):
        return column
    return np.array([np.nan if is_missing(c) else c for c in column], np.float64)


class _Found(dict[Any, int]):
    """States by value; a missing value is looked up."""

    def __init__(self, lookup: StateLookup):
        super().__init__()
        self._number = lookup.number

    def __missing__(self, value: Any) -> int:
        number = self._number(value)
        if number != REJECTED and value == value:  # NaN differs from itself and would be added again and again
            self[value] = number
        return number


def encode_list(lookup: StateLookup, cells: list[Any], out: NDArray[Any]) -> bool:
    """Encode a list of Python values into `out`; returns whether cells may have been rejected."""
    if {*map(type, cells)} <= COMPARABLE:
        out[:] = np.fromiter(map(_Found(lookup).__getitem__, cells), out.dtype, len(cells))
    else:
        out[:] = [lookup.number(value) for value in cells]
    return True


def encode_array(lookup: StateLookup, cells: NDArray[Any], out: NDArray[Any]) -> bool:
    """Encode a one-dimensional array into `out`; returns whether cells may have been rejected."""
    # raises EvidenceError: For a dtype that cannot name states: dates, complex numbers, structures.
    kind = cells.dtype.kind
    if kind in "iu":
        return _encode_integers(lookup, cells, out)
    if kind == "f":
        return _encode_floats(lookup, cells, out)
    if kind == "b":
        return look_up([lookup.number(False), lookup.number(True)], cells.view(np.uint8), out)
    if kind in "OUT":
        return encode_list(lookup, cells.tolist(), out)
    if kind == "M" and lookup.has_moments:
        values, indices = np.unique(cells, return_inverse=True)
        return look_up([*map(lookup.number, values)], indices.reshape(-1), out)
    if kind == "S":
        try:
            return encode_list(lookup, np.char.decode(cells, "utf-8").tolist(), out)
        except UnicodeDecodeError as error:
            raise EvidenceError(f"column {lookup.name!r} cannot be read as states: {error}") from None
    raise EvidenceError(
        f"column {lookup.name!r} has dtype {cells.dtype}; states must be text, integers, booleans or categories"
    )


def _encode_integers(lookup: StateLookup, cells: NDArray[Any], out: NDArray[Any]) -> bool:
    if not len(cells):
        return False
    low, high = int(cells.min()), int(cells.max())
    if lookup.numbers_are_states and low >= lookup.least and high < len(lookup.states):
        out[:] = cells
        return False
    if high - low < MAX_RANGE:
        wide = cells.astype(np.int64) if cells.dtype.kind == "i" else cells  # int8 could overflow
        return look_up([*map(lookup.number, range(low, high + 1))], wide - wide.dtype.type(low), out)
    return _encode_distinct(lookup, cells, out)


def _encode_floats(lookup: StateLookup, cells: NDArray[Any], out: NDArray[Any]) -> bool:
    if lookup.numbers_are_states:
        filled = np.where(np.isnan(cells), cells.dtype.type(NOT_OBSERVED), cells)
        in_range = (np.isnan(cells) | (filled >= lookup.least)) & (filled < len(lookup.states))
        if in_range.all() and (filled == np.floor(filled)).all():
            out[:] = filled
            return False
    return _encode_distinct(lookup, cells, out)


def _encode_distinct(lookup: StateLookup, cells: NDArray[Any], out: NDArray[Any]) -> bool:
    values, indices = np.unique(cells, return_inverse=True)
    return look_up([*map(lookup.number, values.tolist())], indices.reshape(-1), out)


def look_up(states: list[int], indices: NDArray[Any], out: NDArray[Any]) -> bool:
    """Write the states of values, given by index, to `out`; returns whether any is rejected.

    An index of -1 or ``len(states)`` means "not observed". Indices that are state numbers already, the common case, are
    copied.
    """
    if states == [*range(len(states))] and indices.max(initial=0) < len(states):
        out[:] = indices  # -1 is NOT_OBSERVED
        return False
    values = np.array([*states, NOT_OBSERVED], out.dtype)
    mode: Any = "wrap" if indices.dtype.kind == "i" else "clip"
    for at in range(0, len(indices), BLOCK):
        np.take(values, indices[at : at + BLOCK], out=out[at : at + BLOCK], mode=mode)
    return REJECTED in states


# The distinct values of a column, for tables whose states are not known yet.

DENSE = 1 << 16  # range of whole numbers that are counted, not sorted


def column_values(name: str, column: Any, row_name: Callable[[int], str] = "row {}".format) -> tuple[Ints, list[Any]]:
    """`distinct_values` of the column of a table."""
    # raises DataError: If a cell is not a single value, or is infinite or complex; names the column, and the row by
    #     `row_name`.
    try:
        codes, values = distinct_values(column)
    except TypeError:
        for row, value in enumerate(column if isinstance(column, (list, np.ndarray)) else ()):
            if getattr(value, "__hash__", None) is None:
                raise DataError(
                    f"{row_name(row)}, column {name!r}: {shown(value)} is not a single value"
                ) from None
        raise DataError(f"column {name!r} has cells that are not single values") from None
    unusable = [i for i, value in enumerate(values) if is_unusable(value)]
    if unusable and (hits := np.isin(codes, unusable)).any():
        row = int(np.argmax(hits))
        what = "a complex number" if isinstance(values[codes[row]], complex) else "infinite"
        raise DataError(f"{row_name(row)}, column {name!r}: the value {values[codes[row]]!r} is {what}")
    return codes, values


def distinct_values(column: Any) -> tuple[Ints, list[Any]]:
    """The distinct values of a column, and which of them each cell is."""
    # returns codes: (n,) ndarray of int64: Index of each cell's value; -1 if it is missing
    # returns values: Without missing values; in no particular order. Not all of them need occur.
    # raises TypeError: If a value is not hashable.
    if isinstance(column, CategoricalColumn):
        codes, values = np.asarray(column.indices, np.int64), column.values
    elif isinstance(column, np.ndarray) and column.dtype.kind in "iu" and _is_dense(column):
        return _dense(column)
    elif isinstance(column, np.ndarray) and column.dtype.kind in "iufcb":
        distinct, codes = np.unique(column, return_inverse=True)
        codes, values = codes.reshape(-1).astype(np.int64), distinct.tolist()
    elif isinstance(column, (list, np.ndarray)):
        cells = column if isinstance(column, list) else column.tolist()
        try:
            entries = dict.fromkeys(cells)
        except TypeError:  # numpy.ma.masked cannot be hashed
            cells = [None if is_missing(cell) else cell for cell in cells]
            entries = dict.fromkeys(cells)
        at: dict[Any, int] = {cell: i for i, cell in enumerate(entries)}
        codes, values = np.fromiter(map(at.__getitem__, cells), np.int64, len(cells)), [*at]
    else:
        codes, values = _of_arrow(column)
    number = np.cumsum([not is_missing(value) for value in values], dtype=np.int64) - 1
    if len(number) and number[-1] == len(values) - 1:
        return codes, values
    missing = np.array([is_missing(value) for value in values] + [True], np.bool_)  # the last one for code -1
    codes = np.where(missing[codes], -1, np.append(number, -1)[codes])
    return codes, [value for value in values if not is_missing(value)]


def _is_dense(column: NDArray[Any]) -> bool:
    """Whether whole numbers are in a range so small that they can be counted."""
    return len(column) > 0 and int(column.max()) - int(column.min()) < min(len(column), DENSE)


def _dense(column: NDArray[Any]) -> tuple[Ints, list[Any]]:
    least = int(column.min())
    offsets = (column - column.dtype.type(least)).astype(np.int64)
    occurs = np.bincount(offsets) > 0
    codes = offsets if occurs.all() else (np.cumsum(occurs) - 1)[offsets]
    return codes, (np.flatnonzero(occurs) + least).tolist()


def _of_arrow(column: Any) -> tuple[Ints, list[Any]]:
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        try:
            column = column.dictionary_encode()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise TypeError(f"columns of type {column.type} have no distinct values") from None
    codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, column.dictionary.to_pylist()
