"""Cells of a table, as people and programs write them, as numbers of states: whole columns at a time.

Every *different* value of a column is looked up once, in Python; the cells themselves only go through a table of
numbers. One rule for files and frames, so that a table means the same wherever it comes from:

1. null, NaN and the words of `MISSING` are "not observed", unless such a word is a state of the variable;
2. a text is a state's name, as it is or without spaces round it;
3. where a state of the variable is called by a number ("0", "1.5"), numbers are names: 1, 1.0, "1" and "1.0" all mean
   the state "1", never the state number 1; True and False mean "1" and "0";
4. elsewhere a whole number, or the digits of one, is a state's number from 0, as everywhere in jtgpu, and the number
   -1 is "not observed";
5. True and False are states of that name, in any case of letters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EvidenceError, closest
from ..model.network import DiscreteModel
from .arrow import arrow, compute

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MISSING", "Categories", "Each", "Encoded", "Encoder", "Labels"]

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # `map`, or that of a pool of threads

# What R, pandas, SQL, Weka, Hugin and Netica write where nothing was observed.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "*")

NOTHING, REFUSED = -1, -2  # in place of a state's number
MOST_KEPT = 4096  # looked-up values of one variable that are remembered
MOST_SHOWN = 40  # characters of a cell in a message
EXACT = 2**53  # whole numbers below this are floats without rounding
PIECE = 1 << 20  # cells that one of several threads takes at a time
BLOCK = 1 << 16  # cells that are looked up at a time: they stay in the cache


class Labels:
    """What the cells of one variable's column may say.

    Parameters
    ----------
    model : DiscreteModel
    v : int
        The variable's number.
    missing : iterable of str
        Texts that mean "not observed" unless they are states.
    """

    def __init__(self, model: DiscreteModel, v: int, missing: Iterable[str] = MISSING):
        self.name = model.variables[v]
        self.states = model.states(v)
        self._missing = frozenset(missing)
        self._named = {s: i if self.states.count(s) == 1 else REFUSED for i, s in enumerate(self.states)}
        self._numbers: dict[float, int] = {}  # value of a label that is a number -> its state
        for i, label in enumerate(self.states):
            number = _number(label)
            if number is not None:
                self._numbers[number] = REFUSED if number in self._numbers else i
        self._found: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """Number of the state that a cell names; `NOTHING` or `REFUSED` (-1, -2)."""
        key = (type(value), value)
        try:
            found = self._found.get(key)
        except TypeError:  # nothing that can be a dictionary's key is a state
            return REFUSED
        if found is None:
            found = self._look_up(value)
            if len(self._found) < MOST_KEPT:
                self._found[key] = found
        return found

    def _look_up(self, value: Any) -> int:
        if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' own, which is not imported here
            return NOTHING
        if isinstance(value, (bool, np.bool_)):
            return self._truth(bool(value))
        if isinstance(value, (int, np.integer)):
            return self._whole(int(value))
        if isinstance(value, (float, np.floating)):
            value = float(value)
            if math.isnan(value):
                return NOTHING
            if value in self._numbers:
                return self._numbers[value]
            whole = value.is_integer() and abs(value) < EXACT
            return self._whole(int(value)) if whole else REFUSED
        return self._text(value if isinstance(value, str) else str(value))  # an interval, a date: by what it is called

    def _text(self, text: str) -> int:
        for candidate in (text, text.strip()):
            if candidate in self._named:
                return self._named[candidate]
            if candidate in self._missing:
                return NOTHING
        number = _number(text)
        if number is not None:
            if self._numbers:
                return self._numbers.get(number, REFUSED)
            digits = text.strip()
            return self._whole(int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 10 else REFUSED
        folded = text.strip().casefold()
        return self._truth(folded == "true") if folded in ("true", "false") else REFUSED

    def _whole(self, i: int) -> int:
        if self._numbers:
            return self._numbers.get(float(i), REFUSED) if abs(i) < EXACT else REFUSED
        return i if -1 <= i < len(self.states) else REFUSED

    def _truth(self, value: bool) -> int:
        found = [i for i, s in enumerate(self.states) if s.casefold() == str(value).casefold()]
        if found:
            return found[0] if len(found) == 1 else REFUSED
        return self._numbers.get(float(value), REFUSED)

    def why(self, value: Any) -> str:
        """Why a cell was refused, with the closest state."""
        text = value if isinstance(value, str) else str(value)
        shown = repr(value if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "...")
        if isinstance(value, str) and self.states.count(value.strip()) > 1:
            return f"{self.states.count(value.strip())} states are called {shown}; give the state's number instead"
        several = f"{', '.join(map(repr, self.states[:8]))}{', ...' if len(self.states) > 8 else ''}"
        hint = closest(text.strip(), self.states, 1)
        return f"{shown} is no state of this variable{hint or f' (its states: {several})'}"


class Categories:
    """A categorical column that Arrow has no type for: values of any kind, and which of them each cell is.

    Parameters
    ----------
    indices : (n,) array of int
        -1: null.
    values : list
    """

    def __init__(self, indices: NDArray[Any], values: list[Any]):
        self.indices, self.values = indices, values

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return Categories(self.indices[row], self.values)
        return self.values[self.indices[row]]


@dataclass
class Encoded:
    """Cells by numbers.

    Attributes
    ----------
    codes : (E, n) int8, int16 or int32
        State's number of each evidence variable in each row, -1 where it is not observed; rows that were refused: -1.
        The smallest type that every variable's states fit.
    refused : dict
        Row to why it cannot be understood, by ascending row.
    """

    codes: NDArray[Any]
    refused: dict[int, str] = field(default_factory=dict)


class Encoder:
    """Turns the columns of evidence variables into numbers of states.

    Parameters
    ----------
    model : DiscreteModel
    variables : sequence of int
        Evidence variables, in the order of the columns that `encode` is given.
    missing : iterable of str
        Texts that mean "not observed" unless they are states.
    """

    def __init__(self, model: DiscreteModel, variables: Sequence[int], missing: Iterable[str] = MISSING):
        missing = tuple(missing)
        self.labels = [Labels(model, v, missing) for v in variables]
        most = max((len(x.states) for x in self.labels), default=0)
        kinds = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))
        self.dtype = next(k for k in kinds if most <= np.iinfo(k).max)

    def encode(self, columns: Sequence[Any], n: int, each: Each = map) -> Encoded:
        """Encode columns of n cells.

        Parameters
        ----------
        columns : sequence of Arrow arrays (chunked or not), `Categories`, or lists of Python values
        n : int
        each : callable
            What maps a function over pieces of work: that of a pool has several threads encode.

        Raises
        ------
        EvidenceError
            For a column of a type that names no states at all: dates, lists, structures.
        """
        codes = np.empty((len(columns), n), self.dtype)
        step = n if each is map else PIECE
        pieces = [(j, at) for j in range(len(columns)) for at in range(0, n, max(step, 1))]

        def encode(piece: tuple[int, int]) -> bool:
            (j, at), column = piece, columns[piece[0]]
            part = column if step >= n else column[at : at + step]
            out = codes[j, at : at + step]
            return self._column(self.labels[j], part, out) and bool(out.min(initial=0) == REFUSED)

        bad = np.flatnonzero((codes == REFUSED).any(axis=0)) if any([*each(encode, pieces)]) else ()
        refused: dict[int, str] = {}
        for row in map(int, bad):
            j = int(np.flatnonzero(codes[:, row] == REFUSED)[0])
            refused[row] = f"column {self.labels[j].name!r}: {self.labels[j].why(_cell(columns[j], row))}"
            codes[:, row] = NOTHING
        return Encoded(codes, refused)

    def _column(self, labels: Labels, column: Any, out: NDArray[Any]) -> bool:
        """Number the cells of a column; whether some of them may have been refused."""
        if isinstance(column, list):
            out[:] = [labels.number(value) for value in column]
            return True
        if isinstance(column, Categories):
            return _look_up([*map(labels.number, column.values)], column.indices, out)
        at, doubtful = 0, False
        for piece in getattr(column, "chunks", [column]):
            doubtful |= self._piece(labels, piece, out[at : at + len(piece)])
            at += len(piece)
        return doubtful

    def _piece(self, labels: Labels, piece: Any, out: NDArray[Any]) -> bool:
        """Number one contiguous Arrow array."""
        pa = arrow()
        if pa.types.is_null(piece.type):
            out[:] = NOTHING
            return False
        if not pa.types.is_dictionary(piece.type):
            piece = _plain(labels, piece)
            if piece.type == pa.bool_():
                return _look_up([labels.number(False), labels.number(True)], _filled(piece.cast(pa.uint8()), 2), out)
            piece = piece.dictionary_encode()
        values = _plain(labels, piece.dictionary).to_pylist()
        indices = piece.indices
        if pa.types.is_signed_integer(indices.type):
            return _look_up([*map(labels.number, values)], _signed(indices), out)
        if indices.null_count:
            if len(values) > np.iinfo(indices.type.to_pandas_dtype()).max:
                indices = indices.cast(pa.int64())
            indices = compute().fill_null(indices, pa.scalar(len(values), indices.type))
        return _look_up([*map(labels.number, values)], indices.to_numpy(zero_copy_only=False), out)


def _look_up(states: list[int], indices: NDArray[Any], out: NDArray[Any]) -> bool:
    """Write the states of values by their indices, -1 and one behind the last: not observed; whether any is refused.

    Where values are numbered as states are, the usual case, they are only copied.
    """
    if states == [*range(len(states))] and indices.max(initial=0) < len(states):
        out[:] = indices  # -1 stays what it is: NOTHING
        return False
    found = np.array([*states, NOTHING], out.dtype)
    mode: Any = "wrap" if indices.dtype.kind == "i" else "clip"
    for at in range(0, len(indices), BLOCK):
        np.take(found, indices[at : at + BLOCK], out=out[at : at + BLOCK], mode=mode)
    return REFUSED in states


def _signed(piece: Any) -> NDArray[Any]:
    """An Arrow array of signed integers with -1 in place of null: ten times as fast as Arrow's own function."""
    if not piece.null_count:
        return np.asarray(piece.to_numpy(zero_copy_only=False))
    first, n = piece.offset, len(piece)
    valid, numbers = piece.buffers()
    whole = np.frombuffer(numbers, piece.type.to_pandas_dtype(), n, first * piece.type.bit_width // 8)
    bits = np.frombuffer(valid, np.uint8)[first // 8 : (first + n + 7) // 8]
    there = np.unpackbits(bits, bitorder="little")[first % 8 : first % 8 + n].view(np.int8)
    filled: NDArray[Any] = whole | (there - np.int8(1)).astype(whole.dtype, copy=False)
    return filled


def _filled(piece: Any, instead: int) -> NDArray[Any]:
    """An Arrow array of integers, with a number in place of null."""
    if piece.null_count:
        piece = compute().fill_null(piece, arrow().scalar(instead, piece.type))
    return np.asarray(piece.to_numpy(zero_copy_only=False))


def _plain(labels: Labels, piece: Any) -> Any:
    """The same values in a type that can be looked up; refuses types that name no states."""
    pa = arrow()
    t = pa.types
    kind = piece.type
    if t.is_string(kind) or t.is_large_string(kind) or t.is_integer(kind) or t.is_boolean(kind) or t.is_null(kind):
        return piece
    if t.is_float32(kind) or t.is_float64(kind):
        return piece
    try:
        if t.is_string_view(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
            return (piece.cast(pa.binary()) if t.is_fixed_size_binary(kind) else piece).cast(pa.large_string())
        if t.is_float16(kind) or t.is_decimal(kind):
            return piece.cast(pa.float64())
        if isinstance(piece, pa.ExtensionArray):
            return _plain(labels, piece.storage)
    except pa.ArrowInvalid as error:
        raise EvidenceError(f"column {labels.name!r} of type {kind} cannot be read as states: {error}") from None
    raise EvidenceError(
        f"column {labels.name!r} holds {kind}; states are given as text, whole numbers, booleans or categories"
    )


def _cell(column: Any, row: int) -> Any:
    """One cell as a Python value."""
    return column[row] if isinstance(column, (list, Categories)) else column[row].as_py()


def _number(text: str) -> float | None:
    """The finite number that a text is, if it is one. Only ASCII: float() takes digits of every script and ``1_0``."""
    text = text.strip()
    if not text or not text.isascii() or "_" in text or text[-1] not in "0123456789.":
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
