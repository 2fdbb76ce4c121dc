"""`Column`: the distinct cells of a column, and which of them each cell is; readers look up these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, EvidenceError, shown
from ..model.states import MAX_DIGITS, StateNumber
from ..util.cells import is_missing, is_unusable
from .arrow import arrow

DENSE, FEW = 1 << 16, 1 << 12  # range of whole numbers that are counted, not sorted; that are all looked up
# types whose values equal numbers, but mean something else
FINE = ("ns", "ps", "fs", "as")  # units of moments that Python does not have
SPECIAL: dict[type, type] = {bool: bool, np.bool_: bool, StateNumber: StateNumber}


class Column:
    """The distinct cells of a column, and which of them each cell is."""
    # index: (n,) array of int: Place of each cell in `cells`; -1: missing
    # cells: Of any type. Declared ones have the user's order, and not all of them need occur.
    # declared: Whether the user gave the cells: the categories of a data frame, the dictionary of an Arrow column

    __slots__ = ("cells", "declared", "index")

    def __init__(self, index: NDArray[Any], cells: list[Any], declared: bool = False):
        self.index, self.cells, self.declared = index, cells, declared

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return Column(self.index[row], self.cells, self.declared)
        return self.cells[self.index[row]]

    def used(self, is_missing: Callable[[Any], bool] = lambda _: False) -> tuple[list[int], list[Any], list[int]]:
        """Places of the cells that are declared or occur, without some, the cells, and how often each occurs."""
        counts = np.bincount(np.asarray(self.index, np.int64) + 1, minlength=len(self.cells) + 1)[1:].tolist()
        places = [i for i, n in enumerate(counts) if (n or self.declared) and not is_missing(self.cells[i])]
        return places, [self.cells[i] for i in places], [counts[i] for i in places]

    def tolist(self) -> list[Any]:
        """The cells of all rows, None where they are missing."""
        cells = [*self.cells, None]
        return [cells[i] for i in self.index.tolist()]


def is_declared(column: Any) -> bool:
    """Whether a column of any kind declares its cells, in order."""
    is_arrow = type(column).__module__.startswith("pyarrow")
    return column.declared if isinstance(column, Column) else is_arrow and arrow().types.is_dictionary(column.type)


def known_cells(name: str, column: object, row_name: Callable[[int], str] = "row {}".format) -> Column:
    """The distinct cells of a column that are not missing."""
    # raises DataError: If a cell is not a single value, or is infinite or complex; names the column, and the row by
    #     `row_name`.
    read = distinct(name, column)
    codes, cells = read.index.astype(np.int64, copy=False), read.cells
    place = np.cumsum([not is_missing(cell) for cell in cells], dtype=np.int64) - 1
    if len(place) and place[-1] < len(cells) - 1:
        missing = np.array([is_missing(cell) for cell in cells] + [True], np.bool_)  # the last one for code -1
        codes = np.where(missing[codes], -1, np.append(place, -1)[codes])
        cells = [cell for cell in cells if not is_missing(cell)]
    wrong = [i for i, cell in enumerate(cells) if is_unusable(cell) or getattr(cell, "__hash__", None) is None]
    if wrong and (hits := np.isin(codes, wrong)).any():
        row = int(np.argmax(hits))
        cell = cells[codes[row]]
        if not is_unusable(cell):
            raise DataError(f"{row_name(row)}, column {name!r}: {shown(cell)} is not a single value")
        what = "a complex number" if isinstance(cell, complex) else "infinite"
        raise DataError(f"{row_name(row)}, column {name!r}: the value {cell!r} is {what}")
    return Column(codes, cells, is_declared(column))


class _Places(dict[Any, int]):
    """The place of each distinct cell; a new one comes last, and NaN, which differs from itself, is None."""

    def __missing__(self, cell: object) -> int:
        if isinstance(cell, float) and cell != cell:
            return self[None]
        self[cell] = place = len(self)
        return place


def distinct(name: str, column: Any, *, occurring: bool = True) -> Column:
    """The distinct cells of a column of any kind, of which some may be missing ones."""
    # occurring: Whether each whole number must occur; False is quicker
    # raises DataError: If Arrow cannot tell its cells apart.
    # raises EvidenceError: If its bytes are no text.
    if isinstance(column, Column):
        return column
    if isinstance(column, list):
        return _of_cells(column)
    if not isinstance(column, np.ndarray):
        return _of_arrow(name, column)
    kind = column.dtype.kind
    most = min(len(column), DENSE if occurring else FEW)
    if kind in "iu" and most and (size := int(column.max()) - (least := int(column.min())) + 1) <= most:
        wide = column.astype(np.int64) if kind == "i" else column  # int8 could overflow
        offsets = (wide - wide.dtype.type(least)).astype(np.int64, copy=False)
        if not occurring:
            return Column(offsets, [*range(least, least + size)])
        occurs = np.bincount(offsets) > 0
        index = offsets if occurs.all() else (np.cumsum(occurs) - 1)[offsets]
        return Column(index, [i + least for i in np.flatnonzero(occurs).tolist()])
    if kind in "iufcbM":
        values, index = np.unique(column, return_inverse=True)
        if kind == "M":
            return Column(index.reshape(-1), _moments(values))
        return Column(index.reshape(-1), _shortest(values) if kind == "f" else values.tolist())
    try:
        return _of_cells((np.char.decode(column, "utf-8") if kind == "S" else column).tolist())
    except UnicodeDecodeError as error:
        raise EvidenceError(f"column {name!r} cannot be read as states: {error}") from None


def _of_cells(cells: list[Any]) -> Column:
    """See `distinct`; of a list. Where a cell cannot be hashed, each one is its own."""
    keys, places = cells, _Places()
    try:
        index = np.fromiter(map(places.__getitem__, keys), np.int32, len(cells))
        if not all(key is None or isinstance(key, str) for key in places) and _needs_types(cells):
            keys, places = [(SPECIAL.get(type(c)), c) for c in cells], _Places()  # True is not 1
            index = np.fromiter(map(places.__getitem__, keys), np.int32, len(cells))
    except TypeError:
        known = [None if is_missing(c) else c for c in cells]  # numpy.ma.masked cannot be hashed
        return Column(np.arange(len(cells)), cells) if [*map(id, known)] == [*map(id, cells)] else _of_cells(known)
    return Column(index, [*map(_shorter, (key[1] for key in places) if keys is not cells else places)])


def _needs_types(cells: Sequence[object]) -> bool:
    """Whether some cells may equal others of another type, and mean something else."""
    types = {*map(type, cells)} - {NoneType}
    return len(types) > 1 and not types.isdisjoint(SPECIAL)


def _of_arrow(name: str, column: Any) -> Column:
    """See `distinct`; of an Arrow array, chunked or not."""
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_null(column.type):
        return Column(np.full(len(column), -1, np.int8), [])
    if pa.types.is_float16(column.type):
        return distinct(name, column.to_numpy(zero_copy_only=False))
    if getattr(column.type, "extension_name", "") == "arrow.uuid":  # its storage is 16 bytes
        return _of_cells([None if x is None else str(x) for x in column.to_pylist()])
    declared = pa.types.is_dictionary(column.type)
    try:
        column = column if declared else _plain_type(column).dictionary_encode()
        values = _plain_type(column.dictionary)
        if pa.types.is_float32(values.type):
            cells = _shortest(values.to_numpy(zero_copy_only=False))
        elif pa.types.is_timestamp(values.type) and values.type.tz is None:
            cells = _moments(values.to_numpy(zero_copy_only=False))
        else:
            cells = [*map(_shorter, values.to_pylist())]
    except pa.ArrowNotImplementedError:
        raise DataError(f"column {name!r} has cells that are not single values") from None
    except (pa.ArrowInvalid, OverflowError) as error:  # no UTF-8; dates that Python does not have
        raise EvidenceError(f"column {name!r} of type {column.type} cannot be read as states: {error}") from None
    return Column(_signed(column.indices), cells, declared)


def _shortest(values: NDArray[Any]) -> list[float]:
    """Floats as those of Python; of few bits as their text reads: .1 of 32 bits is .1."""
    is_short = values.dtype.itemsize < 8 and len(values) <= DENSE
    return [float(str(v)) for v in values] if is_short else values.tolist()


def _moments(values: NDArray[Any]) -> list[Any]:
    """Different moments as those of Python, which end at microseconds; finer ones stay as they are."""
    coarse = values.astype("datetime64[us]") if np.datetime_data(values.dtype)[0] in FINE else values
    return values.tolist() if coarse is values else list(values) if (coarse != values).any() else coarse.tolist()


def _shorter(cell: object) -> Any:
    """A decimal number as an integer or a float that is the same number, if there is one; see `_shortest` of others."""
    if isinstance(cell, (np.float16, np.float32)):
        return float(str(cell))
    if not isinstance(cell, Decimal) or not cell.is_finite():
        return cell
    if cell.adjusted() < MAX_DIGITS and cell == cell.to_integral_value():
        return int(cell)
    return short if Decimal(repr(short := float(cell))) == cell else cell


def _plain_type(array: Any) -> Any:
    """The same cells in a type whose values are texts, numbers, truth values or moments of Python."""
    pa, kind = arrow(), array.type
    t = pa.types
    if t.is_timestamp(kind) and kind.tz is not None:
        return array.cast(pa.timestamp("us", kind.tz), safe=False)  # others become objects of pandas
    if t.is_string_view(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return (array.cast(pa.binary()) if t.is_fixed_size_binary(kind) else array).cast(pa.large_string())
    return _plain_type(array.storage) if isinstance(array, pa.ExtensionArray) else array


def _signed(array: Any) -> NDArray[Any]:
    """An Arrow array of integers with -1 in place of null; ten times as fast as Arrow's ``fill_null``."""
    if not arrow().types.is_signed_integer(array.type):
        array = array.cast(arrow().int64())
    if not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    first, n = array.offset, len(array)
    valid, numbers = array.buffers()
    whole = np.frombuffer(numbers, array.type.to_pandas_dtype(), n, first * array.type.bit_width // 8)
    bits = np.frombuffer(valid, np.uint8)[first // 8 : (first + n + 7) // 8]
    present = np.unpackbits(bits, bitorder="little")[first % 8 : first % 8 + n].view(np.int8)
    filled: NDArray[Any] = whole | (present - np.int8(1)).astype(whole.dtype, copy=False)
    return filled
