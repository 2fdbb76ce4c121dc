"""Where cases come from: a table in memory, or files that are read in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from ...columns import (
    Table,
    as_array,
    at_row,
    distinct,
    is_codes,
    is_tensor,
    known_cells,
    open_table,
    read_column,
)  # fmt: skip
from ...columns.coded import Encoder
from ...columns.column import Column
from ...columns.files import decimal_of, files_of, open_cases, require_columns
from ...columns.kinds import typed_words
from ...columns.likelihoods import LikelihoodCells
from ...columns.schema import Schema
from ...columns.source import CaseChunk, Source
from ...errors import ArgumentError, DataError, ParseError, UnknownState
from ...model.discrete import DiscreteModel
from ...options.tables import CsvDialect
from ...util.arrays import Floats
from ...util.cells import UNDECIDED, Marks, is_likelihood, is_na_word, na_words
from ...util.rows import extremes


@dataclass
class CodedChunk:
    """Some rows as state numbers."""

    codes: NDArray[Any]  # (E, n) int8, int16 or int32: State of each column's variable, -1 if missing
    weights: Floats | None  # (n,) float64: The cells of the column of weights; None without one
    # done, size: How much of the data has been read, of how much
    done: int
    size: int


class CaseSource(Protocol):
    """A table of cases."""

    title: str  # for messages: a path, or "the table"
    names: list[str]  # of the columns
    likelihood: Mapping[str, Any]  # given as arrays, by variable; of tables in memory
    cells: LikelihoodCells | None  # in the rows that `chunks` has returned
    na_found: dict[str, set[str]]  # words in these rows that were read as missing, by column

    def schema(self, columns: Sequence[str], bins: int | None = None) -> Schema:
        """The states of some columns, from their cells; `bins` intervals of columns of more different numbers."""

    def chunks(self, model: DiscreteModel, columns: Sequence[str], weights: str | None) -> Iterator[CodedChunk]:
        """The rows, coded, from the first one on; may be called several times."""

    def row_name(self, row: int) -> str:
        """Name of a row for messages."""


def open_source(
    cases: Any, variables: Sequence[str], dialect: CsvDialect | None = None, chunk: int = 100_000,
    na_values: Any = None, likelihood: Mapping[str, object] | None = None,
) -> CaseSource:  # fmt: skip
    """Open a table of cases: a table in memory, or a path or several paths of files."""
    # cases: table, path, or list of paths: A folder stands for the files in it with a suffix of cases, by name
    # variables: sequence of str: Names of variables, which show the delimiter of CSV files, and name the columns of an
    #     array
    # chunk: Rows that are read from a file at a time, about
    # na_values: str or iterable of str: See `jtgpu.util.cells.na_words`
    # likelihood: Likelihoods of the rows of a table in memory, by variable
    shell = DiscreteModel(dict.fromkeys(variables, ("",)))
    if files := files_of(cases, dialect):
        if likelihood:
            raise ArgumentError(
                "likelihood= needs a table in memory; in files, likelihoods are cells such as [0.4;0.8], with a weight "
                "for each state"
            )
        return FileSource([open_cases(f, shell, dialect) for f in files], files, chunk, na_values)
    if is_tensor(cases):
        cases = as_array(cases, "cases")
    table = open_table(shell if variables else None, cases)
    return TableSource(table, na_words(na_values, is_text=False), cases if is_codes(cases) else None, likelihood)


class TableSource:
    """A table in memory."""

    # words: frozenset of str: Those that mean a missing cell unless they are states
    # array: (n, V) ndarray of integers: The table itself, if it is one
    # likelihood: See `open_source`

    cells: LikelihoodCells | None = None

    def __init__(
        self, table: Table, words: frozenset[str], array: NDArray[Any] | None = None,
        likelihood: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        self.likelihood: Mapping[str, Any] = dict(likelihood or {})
        self._table, self._words, self._array = table, words, array
        self.names, self.title = table.names, "the table"
        self.na_found: dict[str, set[str]] = {}
        self._named: set[str] = set()  # columns of an array without names whose numbers are names of states

    def schema(self, columns: Sequence[str], bins: int | None = None) -> Schema:
        """See `CaseSource.schema`; remembers which columns of an array without names have names of states."""
        schema = Schema(bins=bins)
        for name in columns:
            column = read_column(name, self._table)
            _, cells, counts = column.used(
                lambda v: is_na_word(v, self._words) or is_likelihood(v) or (self._table.by_index and v == -1)
            )
            schema.add(name, cells, counts, declared=column.declared)
        if columns:
            require_rows(self._table.n, self.title)
        schema.settle()
        if self._table.by_index:
            self._named = {v for v, own in schema.states.items() if own != tuple(map(str, range(len(own))))}
        return schema

    def chunks(self, model: DiscreteModel, columns: Sequence[str], weights: str | None) -> Iterator[CodedChunk]:
        """See `CaseSource.chunks`; one chunk."""
        table = self._table
        self.cells = LikelihoodCells(model)
        if self._array is not None and not self._named and list(columns) == list(model.variables) and weights is None:
            low, high = extremes(self._array)
            if (low >= -1).all() and (high < model.cardinality).all():
                codes = self._array.astype(np.int8 if model.cardinality.max() <= 127 else np.int32, order="C")
                yield CodedChunk(codes.T, None, table.n, table.n)
                return
        variables = [model.index(c) for c in columns]
        named = [model.index(c) for c in columns if c in self._named]
        encoder = Encoder(model, variables, self._words, by_index=table.by_index, named=named)
        encoded = self.cells.encode(encoder, [*map(self._column, columns)], table.n, first_only=True)
        for row, reason in encoded.rejected.items():
            raise UnknownState(at_row(table, row, reason))
        _note_words(self, encoder)
        own = None if weights is None else _numbers(self, weights, table.column(weights), 0)
        yield CodedChunk(encoded.codes, own, table.n, table.n)

    def _column(self, name: str) -> Any:
        """A column; -1 is missing in an array without names of columns."""
        column = self._table.column(name)
        if name not in self._named:
            return column
        read = distinct(name, column)
        gone = [i for i, v in enumerate(read.cells) if v == -1]
        return Column(np.where(np.isin(read.index, gone), -1, read.index), read.cells)

    def row_name(self, row: int) -> str:
        return self._table.row_name(row)


class FileSource:
    """Files, one after the other."""

    cells: LikelihoodCells | None = None

    def __init__(self, sources: list[Source], files: list[Path], chunk: int, na_values: Any):
        self._sources, self._files, self._chunk = sources, files, chunk
        self._words = [na_words(na_values, is_text=is_text) for is_text in (False, True)]
        self.na_found: dict[str, set[str]] = {}
        self.likelihood: Mapping[str, Any] = {}
        self.names = list(sources[0].columns)
        self.title = str(files[0])
        for source, file in zip(sources, files, strict=True):
            require_columns(file, source.columns, files[0], self.names)
        self._size = sum(s.size for s in sources)
        self._declared = frozenset.intersection(*(s.declared for s in sources))

    def _loaded(self, columns: Sequence[str]) -> Iterator[tuple[CaseChunk, int, int]]:
        """Chunks, the number of their first row, and how much has been read."""
        row = before = 0
        for source in self._sources:
            for chunk in source.chunks(list(columns), [], self._chunk):
                chunk.load()
                if chunk.broken:
                    at, reason = min(chunk.broken.items())
                    file, line = chunk.locate(at)
                    raise ParseError(reason, file, line)
                yield chunk, row, before + chunk.done
                row += chunk.n
                chunk.drop()
            before += source.size

    def schema(self, columns: Sequence[str], bins: int | None = None) -> Schema:
        """See `CaseSource.schema`; reads the files once."""
        counters: dict[str, Counter[Any]] = {c: Counter() for c in columns}
        marks, n_rows = None, 0
        if columns:
            for chunk, first, _ in self._loaded(columns):
                n_rows = first + chunk.n
                words, marks = self._words[chunk.is_text], chunk.marks if chunk.is_text else marks
                for name, column in zip(columns, chunk.columns, strict=True):
                    known = known_cells(name, column, partial(_location, chunk))
                    _, cells, ns = known.used(lambda v, words=words: is_na_word(v, words) or is_likelihood(v))  # type: ignore[misc]
                    counters[name].update(dict(zip(cells, ns, strict=True)))
            require_rows(n_rows, self.title)
        if marks == UNDECIDED:
            marks = decimal_of(self.title, counters.items()), ""
        schema = Schema(bins=bins)
        for name, counts in counters.items():
            used = counts if marks is None else _typed(counts, marks)
            schema.add(name, [*used], [*used.values()], declared=name in self._declared)
        schema.settle()
        return schema

    def chunks(self, model: DiscreteModel, columns: Sequence[str], weights: str | None) -> Iterator[CodedChunk]:
        variables = [model.index(c) for c in columns]
        encoders = [Encoder(model, variables, words) for words in self._words]
        self.cells = LikelihoodCells(model)
        extra = [] if weights is None else [weights]
        for chunk, first, done in self._loaded([*columns, *extra]):
            encoder = encoders[chunk.is_text]
            encoder.read_as(chunk.marks)
            encoded = self.cells.encode(encoder, chunk.columns[: len(columns)], chunk.n, first_only=True)
            for row, reason in encoded.rejected.items():
                raise UnknownState(f"{_location(chunk, row)}: {reason}")
            _note_words(self, encoder)
            own = None if weights is None else _numbers(self, weights, chunk.columns[-1], first)
            yield CodedChunk(encoded.codes, own, done, self._size)

    def row_name(self, row: int) -> str:
        """See `CaseSource.row_name`: file and line; reads the files again up to the row."""
        for chunk, first, _ in self._loaded(self.names[:1]):
            if first <= row < first + chunk.n:
                return _location(chunk, row - first)
        return f"row {row}"


def require_rows(n: int, title: str) -> None:
    """Raise `DataError` for a table without rows."""
    if not n:
        raise DataError(f"{title} has no rows")


def _typed(counts: Counter[Any], marks: Marks) -> Counter[Any]:
    """The words of a column as what they are."""
    if not all(isinstance(word, str) for word in counts):
        return counts
    typed: Counter[Any] = Counter()
    for word, cell in zip(counts, typed_words([*counts], marks), strict=True):
        typed[cell] += counts[word]
    return typed


def _location(chunk: CaseChunk, row: int) -> str:
    """File and line of a row, for messages."""
    file, line = chunk.locate(row)
    return file if line is None else f"{file}:{line}"


def _note_words(source: TableSource | FileSource, encoder: Encoder) -> None:
    """Add the words that an encoder has read as missing."""
    for lookup in encoder.lookups:
        if lookup.na_found:
            source.na_found.setdefault(lookup.name, set()).update(lookup.na_found)


def _numbers(source: CaseSource, name: str, column: object, first: int) -> Floats:
    """Cells of a column as numbers."""
    read = distinct(name, column)
    codes, values = read.index, read.cells
    as_numbers = np.full(len(values) + 1, np.nan)
    for i, value in enumerate(values):
        try:
            as_numbers[i] = float(value)
        except (TypeError, ValueError, OverflowError):
            as_numbers[i] = np.nan
    numbers: Floats = as_numbers[codes]
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        row = int(bad[0])
        cell = repr(values[codes[row]]) if codes[row] >= 0 else "missing"
        _reject(source, first + row, f"column {name!r}: the weight is {cell}, not a finite number")
    return numbers


def _reject(source: CaseSource, row: int, reason: str) -> NoReturn:
    raise DataError(f"{source.row_name(row)}, {reason}")
