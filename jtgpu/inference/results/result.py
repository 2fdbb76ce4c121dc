"""`Result`: how results print, convert to data frames and show in notebooks, the same for all of them.

A class has a title and columns. ``print(result)`` and the prompt show the title, which says what the result is, and the
columns as an aligned table, as much as fits a page; `jtgpu.util.text_table` sets the limits. ``to_frame()`` has all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, cast, overload

import numpy as np

from ...columns import Table
from ...model.discrete import DiscreteModel, Labels
from ...util import late_imports
from ...util.arguments import check_keywords_of
from ...util.equality import ByValue
from ...util.text_table import LazySequence, abridged, display_width, format_cell, format_table, justified, shown_rows
from .frames import make_frame

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from numpy.typing import NDArray

T = TypeVar("T")

HINT = "to_frame() has all of them"
MAX_STATE = 16  # columns of text that the name of a state takes next to its number
MAX_STATES = 30  # states of a variable that may fit into a line


class _ToFrame(Protocol):
    @overload
    def __call__(self, backend: Literal["pandas"] | None = None) -> pandas.DataFrame: ...
    @overload
    def __call__(self, backend: Literal["polars"]) -> polars.DataFrame: ...
    @overload
    def __call__(self, backend: Literal["pyarrow"]) -> pyarrow.Table: ...
    @overload
    def __call__(self, backend: str) -> Any: ...


class _ToFrameMethod(Protocol):
    def __get__(self, instance: object, owner: type | None = None) -> _ToFrame: ...


def to_frame_method(method: Callable[..., object]) -> _ToFrameMethod:
    """Type a method ``to_frame(backend=None)`` by the library that is named; pandas is the default."""
    return cast(_ToFrameMethod, check_keywords_of()(method))


class Columns(NamedTuple):
    """A table as it is printed."""

    names: Sequence[str]  # if all are empty, there is no line of headers
    cells: Sequence[Any]  # of each column; only those that are shown are read, masked ones are empty
    keys: int = 1  # leading columns that name the rows; always shown


class Result(ByValue, late_imports.Shown, ABC):
    """A result that prints as a title and a table, and converts to a data frame."""

    __slots__ = ()
    _picture: ClassVar[str] = "table"  # what a notebook shows: a key of `jtgpu.draw.html.PICTURES`

    @abstractmethod
    def _title(self) -> str:
        """The kind of result, in one line."""

    @abstractmethod
    def _columns(self) -> dict[str, Any]:
        """The columns of the data frame."""

    def _table(self) -> Columns:
        """The printed table. Default: that of the data frame."""
        columns = self._columns()
        return Columns([*columns], [*columns.values()])

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return the result as a data frame.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; also any other one that narwhals supports. Default: pandas.
        """
        return make_frame(self._columns(), backend)

    def __str__(self) -> str:
        names, cells, keys = self._table()
        table = format_table(names, cells, fixed=keys, hint=HINT) if cells else ""
        return "\n".join(filter(None, (self._title(), table)))

    def __repr__(self) -> str:
        return str(self)

    def _compared(self) -> list[Any]:
        return [*super()._compared(), self._columns()]


class CaseResult(Result):
    """A result with a row for each case of a table."""

    _cases: Table | None
    _is_filled_in: ClassVar[bool] = False  # whether it is the table of the cases without its missing cells

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a row for each case. If the cases were a pandas frame, it has their index.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; also any other one that narwhals supports. Default: the library of the table of
            cases, or pandas if that was not a data frame.
        """
        columns, cases = self._columns(), self._cases
        if self._is_filled_in and cases is not None:
            columns = {v: columns[v] if v in columns else cases.carried(v) for v in cases.names} | columns
        return make_frame(columns, backend, cases=cases)

    def _table(self) -> Columns:
        columns = self._columns()
        n = len(next(iter(columns.values()), ()))
        return Columns(["", *columns], [row_labels(n, self._cases), *columns.values()])


class ByVariable(Mapping[str, T]):
    """A part for each of some variables of a model, by name or number."""

    _model: DiscreteModel
    _labels: Labels  # of the model
    _targets: Collection[int] | None  # numbers of the variables; None: all
    _argument: ClassVar[str] = "targets"  # of the query, which names them

    @abstractmethod
    def _part(self, v: int) -> T:
        """The part of a variable."""

    def __getitem__(self, variable: str | int) -> T:
        v = self._labels[0].get(variable) if type(variable) is str else None
        if v is None:
            v = self._model.index(variable)
        if self._targets is not None and v not in self._targets:
            raise _not_among(self._labels.variables[v], self._argument)
        return self._part(v)

    def __iter__(self) -> Iterator[str]:
        names = self._labels.variables
        return iter(names) if self._targets is None else (names[v] for v in self._targets)

    def __len__(self) -> int:
        return len(self._model if self._targets is None else self._targets)


class ByName(Mapping[str, T]):
    """Parts of a result by name, such as those of the targets of a query."""

    _parts: Mapping[str, T]
    _argument: ClassVar[str] = ""  # of the query, which names them

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            raise _not_among(name, self._argument) if self._argument else KeyError(name)
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def _not_among(name: str, argument: str) -> KeyError:
    return KeyError(f"{name!r} is not among the {argument} of this query; add it to {argument}=")


def row_labels(n: int, cases: Table | None) -> Sequence[Any]:
    """Names of the rows of a table of n cases: the index of a pandas frame, or their numbers."""
    if cases is None or cases.index is None:
        return range(n)
    index = cases.index
    return LazySequence(n, lambda i: str(index[i]))


def state_columns(
    n: int, states: Callable[[int], Sequence[str]], numbers: Callable[[int], NDArray[np.float64]]
) -> list[Sequence[Any]]:
    """Columns of a table whose rows have different states: a cell holds the name of a state and its number."""
    # n: Number of rows
    # states, numbers: Names of the states of a row, and their numbers. Only rows that are shown are read.
    rows = {i: (states(i), numbers(i)) for i in shown_rows(n)}
    columns: list[Sequence[Any]] = []
    for k in range(min(max((len(names) for names, _ in rows.values()), default=0), MAX_STATES)):
        having = [i for i, (names, _) in rows.items() if k < len(names)]
        labels = [abridged(rows[i][0][k], MAX_STATE) for i in having]
        width = max(map(display_width, labels))
        cells = {
            i: f"{justified(label, width)} {format_cell(rows[i][1][k])}"
            for i, label in zip(having, labels, strict=True)
        }
        columns.append(LazySequence(n, cells.get))
    return columns


def as_array(array: NDArray[Any], dtype: Any, copy: bool | None) -> NDArray[Any]:
    """`array` as ``__array__`` must return it: the array itself, unless another dtype or a copy is requested."""
    if dtype is None or np.dtype(dtype) == array.dtype:
        return array.copy() if copy else array
    return array.astype(dtype)
