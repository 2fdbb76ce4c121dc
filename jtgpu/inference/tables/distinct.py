"""The distinct values of a column, for tables whose states are not known yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError, shown
from ...util.missing import is_missing, is_unusable
from .arrow import arrow
from .plain_cells import CategoricalColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

DENSE = 1 << 16  # range of whole numbers that are counted, not sorted


def column_values(
    name: str, column: Any, row_name: Callable[[int], str] = "row {}".format
) -> tuple[NDArray[np.int64], list[Any]]:
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
    if unusable and (found := np.isin(codes, unusable)).any():
        row = int(np.argmax(found))
        what = "a complex number" if isinstance(values[codes[row]], complex) else "infinite"
        raise DataError(f"{row_name(row)}, column {name!r}: the value {values[codes[row]]!r} is {what}")
    return codes, values


def distinct_values(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
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
            found = dict.fromkeys(cells)
        except TypeError:  # numpy.ma.masked cannot be hashed
            cells = [None if is_missing(cell) else cell for cell in cells]
            found = dict.fromkeys(cells)
        at: dict[Any, int] = {cell: i for i, cell in enumerate(found)}
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


def _dense(column: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    least = int(column.min())
    offsets = (column - column.dtype.type(least)).astype(np.int64)
    occurs = np.bincount(offsets) > 0
    codes = offsets if occurs.all() else (np.cumsum(occurs) - 1)[offsets]
    return codes, (np.flatnonzero(occurs) + least).tolist()


def _of_arrow(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
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
