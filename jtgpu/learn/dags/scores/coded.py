"""`CodedTable`: a table of discrete data as state numbers, checked."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....columns.column import Column
from ....columns.schema import MAX_STATES, Schema
from ....errors import ArgumentError, DataError
from ....model.discrete import DiscreteModel
from ....model.states import REJECTED, StateLookup, StateValues
from ....util.arguments import described, several
from ....util.arrays import Bools, Ints
from ....util.calls import outside
from ....util.cells import MissingReport, few_left, is_na_word

NO_STATE = 255  # in place of the state of a missing cell
MISSING_CHOICES = ("error", "drop", "available")
DRAWN = ("augment", "em")  # how learning of graphs fills missing cells; their rows are kept
CONSTANT_CHOICES = ("error", "drop")
MAX_ROWS = 2**31 - 1  # sum of weights: counts are int32
MIN_EQUAL = 5  # rows in which two columns are equal
MAX_SHOWN = 40  # characters of a cell in a message


@dataclass(frozen=True)
class CodedTable:
    """A table of discrete data."""

    names: tuple[str, ...]  # Names of the n variables, in the order of the columns
    states: tuple[tuple[str, ...], ...]  # Names of the states of each variable, at least two and at most 255
    codes: NDArray[np.uint8]  # (n, N) state of each variable in each row; 255: missing
    weights: Ints | None = None  # (N,) how often each row occurs. None: once.
    dropped: int = 0  # number of rows that were left out, because cells are missing
    # Missing cells of the table, before rows were left out
    missing: MissingReport = field(default_factory=MissingReport)
    left_out: frozenset[str] = field(default=frozenset(), kw_only=True)  # constant columns
    interventions: Bools | None = field(default=None, kw_only=True)  # (n, N) variables that were set in each row

    @cached_property
    def cardinality(self) -> Ints:
        """Number of states of each variable, (n,)."""
        return np.array([len(s) for s in self.states], np.int64)

    @cached_property
    def n_cases(self) -> int:
        """Number of cases: rows, or the sum of their weights."""
        return self.codes.shape[1] if self.weights is None else int(self.weights.sum())

    def missing_lines(self) -> list[str]:
        """Lines of reports about missing cells; none if there are no such cells."""
        return self.missing.lines(self.dropped, self.codes.shape[1] + self.dropped)

    @cached_property
    def has_gaps(self) -> bool:
        """Whether cells are missing."""
        return bool((self.codes == NO_STATE).any())

    @cached_property
    def parts(self) -> list[tuple[CodedTable, list[int]]]:
        """The rows in which some variables were not set, which are the cases of their families, and these variables."""
        if self.interventions is None:
            return [(self, [*range(len(self.names))])]
        groups: dict[bytes, list[int]] = {}
        for v, rows in enumerate(self.interventions):
            groups.setdefault(rows.tobytes(), []).append(v)
        return [(self.rows(~self.interventions[members[0]]), members) for members in groups.values()]

    def rows(self, kept: Bools) -> CodedTable:
        """Some of the rows, as if nothing had been set in them."""
        weights = None if self.weights is None else self.weights[kept]
        return replace(self, codes=np.ascontiguousarray(self.codes[:, kept]), weights=weights, interventions=None)

    @cached_property
    def targets(self) -> Bools:
        """Distinct sets of variables that were set in a row, (K, n)."""
        rows = np.zeros((0, len(self.names)), np.bool_) if self.interventions is None else self.interventions.T
        return np.unique(rows, axis=0)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, states, rows, weights and interventions."""
        sha = hashlib.sha256(repr((self.names, self.states, self.codes.shape)).encode())
        sha.update(np.ascontiguousarray(self.codes).tobytes())
        if self.weights is not None:
            sha.update(np.ascontiguousarray(self.weights).tobytes())
        if self.interventions is not None:
            sha.update(b"interventions" + np.packbits(self.interventions).tobytes())
        return sha.hexdigest()


def declared_states(states: object) -> dict[str, list[str]]:
    """The names of declared states, by variable."""
    if states is None:
        return {}
    if isinstance(states, DiscreteModel):
        return {v: list(states.states(v)) for v in states.variables}
    if not isinstance(states, Mapping):
        raise ArgumentError(f"states must be a mapping such as {{'rain': ['no', 'yes']}}, not {described(states)}")
    for name, values in states.items():
        if several(values) is None:
            raise ArgumentError(f"states: {name!r} needs a list of names, not {described(values)}")
    return {name: [*map(str, values)] for name, values in states.items()}


def code_column(
    name: str, column: Column, declared: Mapping[str, list[str]], words: frozenset[str], schema: Schema
) -> tuple[NDArray[np.int16], tuple[str, ...]]:
    """The state of each row, -1 if missing, and the words that were read as missing. Adds the states to `schema`."""
    known = declared.get(name, ())
    absent = [is_na_word(v, words) and v.strip() not in known for v in column.cells]
    used = np.unique(column.index[column.index >= 0]).tolist() if any(absent) else []
    missing_words = tuple(sorted({column.cells[i].strip() for i in used if absent[i]} - {""}))
    if name in declared:
        return _by_declared_states(name, column, absent, declared[name], schema), missing_words
    places, cells, counts = column.used(lambda v: is_na_word(v, words))
    names = schema.add(name, cells, counts, len(column), declared=column.declared, words=missing_words)
    if name not in schema.states:
        return np.zeros(0, np.int16), ()
    place = {s: i for i, s in enumerate(schema.states[name])}
    numbers = np.full(len(column.cells) + 1, -1, np.int16)  # the last one for missing cells
    numbers[places] = [place[s] for s in names]
    return np.asarray(numbers[column.index]), missing_words


def _by_declared_states(
    name: str, column: Column, absent: list[bool], states: list[str], schema: Schema
) -> NDArray[np.int16]:
    if len(set(states)) < len(states):
        raise DataError(f"the states of column {name!r} are not distinct: {states}")
    if not schema.add(name, states, [1] * len(states), declared=True) or name not in schema.states:
        return np.zeros(0, np.int16)
    schema.states[name] = tuple(states)
    lookup = StateLookup(name, StateValues(states))
    numbers = [-1 if gone else lookup.number(v) for v, gone in zip(column.cells, absent, strict=True)]
    if REJECTED in numbers:
        bad = [i for i, x in enumerate(numbers) if x == REJECTED]
        rows = np.flatnonzero(np.isin(column.index, bad))
        if len(rows):
            value = column.cells[column.index[rows[0]]]
            raise DataError(f"row {rows[0]}: column {name!r}: {lookup.reason(value)}")
    return np.asarray(np.array([*numbers, -1], np.int16)[column.index])


def complete_rows(
    names: list[str], columns: list[NDArray[np.int16]], weights: Ints | None, missing: str, cells: MissingReport,
    has_numbers: bool = False,
) -> tuple[NDArray[np.uint8], Ints | None, int, Bools]:  # fmt: skip
    """States of the rows that are used, (n, N), their weights, the number of rows with gaps, and which are used."""
    gaps = [c < 0 for c in columns]
    if missing == "available" or missing in DRAWN:
        incomplete = np.logical_and.reduce(gaps)
    else:
        incomplete = np.logical_or.reduce(gaps)
    if incomplete.any() and missing != "available" and missing not in DRAWN:
        row = int(np.argmax(incomplete))
        column = next(name for name, gap in zip(names, gaps, strict=True) if gap[row])
        share = f"{int(incomplete.sum())} of {len(incomplete)} rows have missing cells"
        if missing == "error":
            keep = (
                ", missing='augment' (of probabilities) and missing='em' (of a graph) fill them in; "
                "missing='available' with score='bic' keeps them, but then directions that the data cannot tell may "
                "look certain"
            )
            raise DataError(
                f"row {row}: column {column!r} has a missing value ({'; '.join([share, *cells.lines()])}); "
                f"missing='drop' leaves the rows out{'' if has_numbers else keep}"
            )
        if incomplete.all():
            raise DataError(f"{share}; missing='drop' leaves none")
    whole = ~incomplete
    if missing == "drop" and (text := few_left(int(whole.sum()), len(whole), cells.cells)):
        hint = "" if has_numbers else ": missing='augment' (of probabilities) and missing='em' (of a graph) keep them"
        raise DataError(f"{text}{hint}")
    if weights is not None:
        whole &= weights > 0
        weights = weights[whole]
    codes = np.empty((len(columns), int(whole.sum())), np.uint8)
    for v, states in enumerate(columns):
        codes[v] = states if len(states) == codes.shape[1] else states[whole]  # -1 becomes 255
    return codes, weights, int(incomplete.sum()), whole


def require_free_rows(table: CodedTable) -> None:
    """Reject a variable that was set in every row."""
    for part, members in table.parts:
        if not part.codes.shape[1]:
            raise DataError(
                f"column {table.names[members[0]]!r} was set in every row, so that nothing is known of its parents; "
                "leave it out, or add rows in which it was observed"
            )


def whole_weights(weights: object, n_rows: int) -> Ints | None:
    """Weights as integers."""
    if weights is None:
        return None
    given = np.asarray(weights)
    if given.shape != (n_rows,) or given.dtype.kind not in "biuf":
        raise DataError(f"weights must be {n_rows} whole numbers >= 0, got shape {given.shape} of {given.dtype}")
    numbers = given.astype(np.float64)
    wrong = ~(np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"row {row}: the weight {given[row]} is not a whole number >= 0")
    if not numbers.any():
        raise DataError("all weights are zero")
    if numbers.sum() > MAX_ROWS:
        raise DataError(f"the weights add up to {numbers.sum():g}, more than {MAX_ROWS:,}")
    return given.astype(np.int64)


def warn_of_copies(table: CodedTable) -> None:
    """Warn of two columns that are equal up to the names of their states, unless that says nothing: of few rows."""
    seen: dict[bytes, str] = {}
    for name, column in zip(table.names, table.codes, strict=True):
        first = np.unique(column, return_index=True)
        if len(first[0]) < 2 or len(column) < MIN_EQUAL:
            continue
        order = np.empty(MAX_STATES + 1, np.uint8)
        order[first[0][np.argsort(first[1])]] = np.arange(len(first[0]))
        key = hashlib.sha256(order[column]).digest()
        if key in seen:
            warnings.warn(
                f"columns {seen[key]!r} and {name!r} are equal up to the names of their states: the posterior is "
                "divided between them; leave one out",
                stacklevel=outside(),
            )
        seen.setdefault(key, name)
