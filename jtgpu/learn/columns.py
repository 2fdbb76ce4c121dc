"""Columns of values: read from tables of any kind, and converted to state numbers."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..columns import Table, open_data, read_column
from ..columns.column import Column
from ..columns.files import files_of, is_text_file, read_file
from ..errors import ArgumentError, DataError, EvidenceError, TableTooLarge, closest
from ..model.states import NOT_OBSERVED, REJECTED, StateLookup
from ..options.tables import CsvDialect
from ..util.arguments import described
from ..util.arrays import Bools, Floats, Ints
from ..util.calls import outside
from ..util.cells import is_missing, is_na_word, na_words

# CPTs from counts of complete cases.

MAX_ENTRIES = 100_000_000  # of a CPT
MANY_STATES = 255  # of a feature, above which there is a warning


def cpt_from_counts(family: list[Ints], cards: list[int], weights: Floats, pseudo_count: float) -> Floats:
    """P(child | parents) from the rows in which the whole family is observed."""
    # family: list of (n,) ndarray of int64: State numbers of the parents and of the child, in this order; -1: missing
    # cards: list of int: Their numbers of states
    # weights: (n,) ndarray of float64: Weight of each row
    # pseudo_count: Added to every count. If it is 0, rows of the CPT without counts are uniform.
    # raises TableTooLarge: If the CPT has more than 1e8 entries.
    size = math.prod(cards)
    if size > MAX_ENTRIES:
        raise TableTooLarge(
            f"a CPT would have {size:,} entries, more than the limit of {MAX_ENTRIES:,}; use fewer parents or states",
            size,
            8 * size,
            -1,
        )
    complete = np.logical_and.reduce([column >= 0 for column in family])
    at = np.ravel_multi_index([column[complete] for column in family], cards)
    table = np.bincount(at, weights[complete], minlength=size).reshape(cards) + pseudo_count
    sums = table.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(sums > 0, table / np.where(sums > 0, sums, 1.0), 1.0 / cards[-1]), np.float64)


def read_data(
    data: object, states: Mapping[str, Any] | None = None, na_values: Any = None, dialect: CsvDialect | None = None
) -> tuple[Table, frozenset[str]]:
    """A table or file, and the words for missing cells in its texts; CSV columns in `states` are text."""
    files = files_of(data, dialect)
    words = na_words(na_values, is_text=bool(files) and is_text_file(files[0], dialect))
    if files:
        data = read_file(*files, dialect=dialect, na_values=na_values, states=states, keep_words=True)
    return open_data(data), words


def read_interventions(
    given: object, table: Table, names: list[str], left_out: set[str], words: frozenset[str]
) -> Bools:
    """The variables that were set in each row, (n, N), from the name of a column, or rows by variable."""
    # names: of the n variables; those that are left out may be set, too
    number, chosen = {v: i for i, v in enumerate(names)}, np.zeros((len(names), table.n), np.bool_)

    def enter(name: str, rows: Any, where: str) -> None:
        if name in number:
            chosen[number[name], rows] = True
        elif name not in left_out:
            raise DataError(f"{where} names {name!r}, which is no variable{closest(name, names)}")

    if isinstance(given, str):
        column = read_column(given, table)
        for i, cell in enumerate(map(str, column.cells)):
            several = [cell] if cell in number else [*filter(None, map(str.strip, cell.split(";")))]
            rows = np.flatnonzero(column.index == i)
            if len(rows) and (cell in number or not is_na_word(cell, words)):
                for name in several:
                    enter(name, rows, f"row {rows[0]}: column {given!r}")
        return chosen
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"interventions must be the name of a column, or a mapping from variable to rows, not {described(given)}"
        )
    for name, rows in given.items():
        mask = np.asarray(rows)
        if mask.shape != (table.n,) or mask.dtype != np.bool_:
            raise DataError(
                f"interventions on {name!r} must be {table.n} truth values, one for each row, got shape "
                f"{mask.shape} of {mask.dtype}"
            )
        enter(name, mask, "interventions")
    return chosen


def class_column(y: object) -> NDArray[Any]:
    """The classes as an array, (n,)."""
    # raises DataError: If `y` has another shape, or a value that is missing, infinite or no class.
    classes = np.asarray(y)
    if y is None:
        raise DataError("the classifier requires y to be passed, but the target y is None")
    if classes.ndim == 2 and classes.shape[1] == 1:
        loaded = sys.modules.get("sklearn.exceptions")
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; pass y.ravel()",
            UserWarning if loaded is None else loaded.DataConversionWarning,
            stacklevel=outside(),
        )
        classes = classes[:, 0]
    if classes.ndim != 1:
        raise DataError(f"y has shape {classes.shape}, expected (n,): one class for each row")
    cells = y if isinstance(y, (list, tuple)) else classes.tolist() if classes.dtype.kind in "fOMm" else ()
    if any(map(is_missing, cells)):  # cells of a list itself: numpy.asarray(["a", nan]) has the text "nan"
        raise DataError("y has a missing value; remove rows without a class")
    if classes.dtype.kind == "c":
        raise DataError("Unknown label type: y holds complex numbers")
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise DataError("y contains infinity (inf); classes must be finite")
    if classes.dtype.kind == "f" and (classes != np.floor(classes)).any():
        raise DataError(
            "Unknown label type: y holds continuous numbers; discretise them, or pass them as text if they are classes"
        )
    return classes


def sample_weights(weights: ArrayLike | None, n: int, name: str = "weights") -> Floats:
    """Weights of n rows, (n,); ones by default."""
    # raises DataError: If the shape is wrong, a weight is negative or not finite, or all are 0.
    if weights is None:
        return np.ones(n)
    try:
        vector = np.asarray(weights)
        if vector.dtype.kind not in "biufO":
            raise TypeError
        vector = vector.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{name} must be {n} finite numbers >= 0, not {described(weights)}") from None
    if vector.shape != (n,):
        raise DataError(f"{name} must be {n} finite numbers >= 0, got an array of shape {vector.shape}")
    bad = np.flatnonzero(~((vector >= 0) & (vector < np.inf)))
    if len(bad):
        raise DataError(f"{name}: that of row {bad[0]} is {vector[bad[0]]:g}, expected a finite number >= 0")
    if not vector.any():
        raise DataError(f"{name} must have a weight above zero; all are 0")
    return vector


def warn_of_many(name: str, n_states: int) -> None:
    """A warning about a feature each of whose many values is a state: mostly a column of measurements."""
    if n_states > MANY_STATES:
        warnings.warn(
            f"column {name!r} has {n_states:,} values, each of which is a state; make intervals with "
            "jtgpu.learn.Discretiser, or leave it out",
            stacklevel=outside(),
        )


def state_numbers(column: Column, lookup: StateLookup, unknown: str) -> Ints:
    """The state of each cell of a column, -1 if it is missing."""
    # unknown: {"error", "missing"}: How values that are no states are treated
    states = np.array([*map(lookup.number, column.cells), NOT_OBSERVED], np.int64)  # the last one for missing cells
    numbers = states[column.index]
    if unknown == "error" and (numbers == REJECTED).any():
        row = int(np.argmax(numbers == REJECTED))
        value = column[row]
        raise EvidenceError(
            f"row {row}, column {lookup.name!r}: unknown value {value!r}{closest(str(value), lookup.states)}"
            ' (unknown="missing" treats it as missing)'
        )
    return np.where(numbers == REJECTED, NOT_OBSERVED, numbers)
