"""The columns of a table that are evidence: those with the name of a variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EvidenceError, UnknownVariable, closest, shown
from ...model.discrete import DiscreteModel
from ...model.state_values import Marks
from ...util.rows import Mapper
from .arrow import arrow, compute, to_double
from .plain_cells import CategoricalColumn, encode_array, encode_list, look_up
from .states import NOT_OBSERVED, REJECTED, StateLookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Arrow arrays of cells as state numbers.

def encode_arrow(lookup: StateLookup, column: Any, out: NDArray[Any]) -> bool:
    """Encode an Arrow array, chunked or not, into `out`; returns whether cells may have been rejected."""
    # raises EvidenceError: For a type that cannot name states: dates, lists, structures.
    at, rejected = 0, False
    for piece in getattr(column, "chunks", [column]):
        rejected |= _encode_piece(lookup, piece, out[at : at + len(piece)])
        at += len(piece)
    return rejected


def _encode_piece(lookup: StateLookup, piece: Any, out: NDArray[Any]) -> bool:
    """Encode one contiguous array."""
    pa = arrow()
    if pa.types.is_null(piece.type):
        out[:] = NOT_OBSERVED
        return False
    if not pa.types.is_dictionary(piece.type):
        piece = _as_plain_type(lookup, piece)
        if piece.type == pa.bool_():
            return look_up([lookup.number(False), lookup.number(True)], _filled(piece.cast(pa.uint8()), 2), out)
        piece = piece.dictionary_encode()
    values = _as_plain_type(lookup, piece.dictionary).to_pylist()
    indices = piece.indices
    if pa.types.is_signed_integer(indices.type):
        return look_up([*map(lookup.number, values)], _signed(indices), out)
    if indices.null_count:
        if len(values) > np.iinfo(indices.type.to_pandas_dtype()).max:
            indices = indices.cast(pa.int64())
        indices = compute().fill_null(indices, pa.scalar(len(values), indices.type))
    return look_up([*map(lookup.number, values)], indices.to_numpy(zero_copy_only=False), out)


def _signed(piece: Any) -> NDArray[Any]:
    """An Arrow array of signed integers with -1 in place of null; ten times as fast as Arrow's ``fill_null``."""
    if not piece.null_count:
        return np.asarray(piece.to_numpy(zero_copy_only=False))
    first, n = piece.offset, len(piece)
    valid, numbers = piece.buffers()
    whole = np.frombuffer(numbers, piece.type.to_pandas_dtype(), n, first * piece.type.bit_width // 8)
    bits = np.frombuffer(valid, np.uint8)[first // 8 : (first + n + 7) // 8]
    present = np.unpackbits(bits, bitorder="little")[first % 8 : first % 8 + n].view(np.int8)
    filled: NDArray[Any] = whole | (present - np.int8(1)).astype(whole.dtype, copy=False)
    return filled


def _filled(piece: Any, value: int) -> NDArray[Any]:
    """An Arrow array of integers with a number in place of null."""
    if piece.null_count:
        piece = compute().fill_null(piece, arrow().scalar(value, piece.type))
    return np.asarray(piece.to_numpy(zero_copy_only=False))


def _as_plain_type(lookup: StateLookup, piece: Any) -> Any:
    """The same values in a type that can be looked up; raises for types that cannot name states."""
    pa = arrow()
    t = pa.types
    kind = piece.type
    if t.is_string(kind) or t.is_large_string(kind) or t.is_integer(kind) or t.is_boolean(kind) or t.is_null(kind):
        return piece
    if t.is_float32(kind) or t.is_float64(kind) or (lookup.has_moments and t.is_date(kind)):
        return piece
    if lookup.has_moments and t.is_timestamp(kind):
        return piece.cast(pa.timestamp("us", kind.tz), safe=False)  # others become objects of pandas
    try:
        if t.is_string_view(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
            return (piece.cast(pa.binary()) if t.is_fixed_size_binary(kind) else piece).cast(pa.large_string())
        if t.is_float16(kind) or t.is_decimal(kind):
            return to_double(piece)
        if isinstance(piece, pa.ExtensionArray):
            return _as_plain_type(lookup, piece.storage)
    except pa.ArrowInvalid as error:
        raise EvidenceError(f"column {lookup.name!r} of type {kind} cannot be read as states: {error}") from None
    raise EvidenceError(
        f"column {lookup.name!r} has type {kind}; states must be text, integers, booleans or categories"
    )


# Columns of cells as columns of state numbers.
#
# Every distinct value of a column is looked up once, in Python; the cells themselves only index into a table of
# numbers.

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

    def read_as(self, marks: Marks) -> None:
        """Read numerals in texts with the marks of decimals and thousands of a file."""
        for lookup in self.lookups:
            lookup.read_as(marks)

    def encode(self, columns: Sequence[Any], n: int, each: Mapper = map, *, first_only: bool = False) -> Encoded:
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


MIN_LENGTH = 4  # characters of names that may be misspelled
MAX_LENGTH = 200  # characters of the names of variables that are compared
MIN_SUBSTITUTED = 5  # and of those in which one character may differ


def evidence_columns(
    model: DiscreteModel, columns: Sequence[str], targets: Collection[int] = (), *, source: str = "the table"
) -> list[str]:
    """The columns that are variables, in the order of the table.

    Columns that are not variables are ignored, but a column whose name is almost that of a variable is an error: one
    that differs in case, spaces, punctuation, or in one letter.
    """
    # columns: sequence of str: Names of the table's columns
    # targets: collection of int: Variables whose columns are not evidence
    # source: Name of the table in messages
    # raises UnknownVariable: If no column is a variable, or a name is almost that of a variable.
    # raises EvidenceError: If the only columns that are variables are targets, or a column occurs twice.
    excluded = {model.variables[v] for v in targets}
    variables = set(model.variables)
    names = [c for c in columns if c in variables and c not in excluded]
    _reject_misspelled(model, columns, source)
    if not names and columns:
        raise _no_evidence(model, columns, bool(excluded & set(columns)), source)
    reject_repeated(names, columns, source)
    return names


def reject_repeated(names: Sequence[str], columns: Sequence[str], source: str) -> None:
    """Raise `EvidenceError` if one of some names is that of several columns."""
    if len(set(columns)) == len(columns):
        return
    count = Counter(columns)
    for name in names:
        if count[name] > 1:
            raise EvidenceError(f"{source} has {count[name]} columns named {name!r}")


def _no_evidence(model: DiscreteModel, columns: Sequence[str], are_targets: bool, source: str) -> EvidenceError:
    """The error for a table without a column of evidence."""
    if are_targets:
        return EvidenceError(
            f"{source} has no evidence: its only columns that are variables are the targets; pass evidence_columns to "
            "use them as evidence"
        )
    some = _some(columns)
    hint = closest(columns[0], model.variables)
    of = repr(model.name) if model.name else f"the network ({_some(model.variables)})"
    return UnknownVariable(f"no column of {source} is a variable of {of}: {some}{hint}")


def _some(names: Sequence[str]) -> str:
    """The first names of a list, for a message."""
    return ", ".join(map(shown, list(names)[:5])) + (", ..." if len(names) > 5 else "")


def _reject_misspelled(model: DiscreteModel, columns: Sequence[str], source: str) -> None:
    """Raise for a column whose name is almost that of a variable without a column."""
    known = set(columns)
    other = [c for c in known.difference(model.variables) if c]
    if not other:
        return
    meant: dict[str, list[str]] = {}  # folded names of variables, and these without one letter -> the variables
    longest = 0  # the work for a name is quadratic in its length
    for v in model.variables:
        if v not in known and len(v) <= MAX_LENGTH:
            longest = max(longest, len(_folded(v)))
            for key in _keys(_folded(v)):
                meant.setdefault(key, []).append(v)
    at = {c: i for i, c in enumerate(columns)}
    for name in sorted(other, key=at.__getitem__):
        folded = _folded(name)
        if len(folded) > longest + 1:
            continue
        for v in dict.fromkeys(v for key in _keys(folded) for v in meant.get(key, ())):
            if _is_almost(folded, _folded(v)):
                raise UnknownVariable(
                    f"{source} has a column {name!r}, but the variable is named {v!r}: rename the column, or drop it"
                )


def _keys(name: str) -> Iterator[str]:
    """A name, and the name without each of its characters: names that differ in one letter share a key."""
    yield name
    if len(name) >= MIN_LENGTH - 1:
        for i in range(len(name)):
            yield name[:i] + name[i + 1 :]


def _is_almost(a: str, b: str) -> bool:
    """Whether two folded names are equal, or differ by one letter added, missing or changed, or by a swap of two.

    Names that differ in a digit are different: x1 and x2, x1 and x11.
    """
    if a == b:
        return True
    short, long = sorted((a, b), key=len)
    if len(long) < MIN_LENGTH or len(long) - len(short) > 1:
        return False
    i = next((i for i, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    if len(short) < len(long):
        return short[i:] == long[i + 1 :] and not long[i].isdigit()
    if short[i : i + 2].isdigit() or long[i : i + 2].isdigit() or short[i].isdigit() or long[i].isdigit():
        return False
    swapped = short[i + 1 : i + 2] == long[i] and short[i] == long[i + 1 : i + 2] and short[i + 2 :] == long[i + 2 :]
    return swapped or (len(long) >= MIN_SUBSTITUTED and short[i + 1 :] == long[i + 1 :])


def _folded(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum()) or name
