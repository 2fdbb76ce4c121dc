"""`Printed`: how results print, the same for all of them.

``print(result)`` and the prompt show one line that says what the result is, and its numbers as an aligned table, as
much as fits a page; `jtgpu.util.text_table` sets the limits. ``to_frame()`` has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from ...util import doors
from ...util.monospace import abridged, display_width, justified
from ...util.text_table import format_cell, format_table, shown_rows
from ..tables import Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HINT = "to_frame() has all of them"
MAX_STATE = 16  # columns of text that the name of a state takes next to its number
MAX_STATES = 30  # states of a variable that may fit into a line


class Lazy(Sequence[Any]):
    """A column whose cells are computed when they are read."""
    # n: Number of cells
    # cell: The cell of a row

    def __init__(self, n: int, cell: Callable[[int], Any]):
        self._n, self._cell = n, cell

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self._cell(i) for i in range(*row.indices(self._n))]
        return self._cell(row)

    def __iter__(self) -> Iterator[Any]:
        return map(self._cell, range(self._n))


class Printed:
    """A result that prints as a title and a table."""

    __slots__ = ()

    def _title(self) -> str:
        """What the result is, in one line."""
        raise NotImplementedError

    def _table(self) -> tuple[list[str], list[Any], int]:
        """Names and columns of the table, and how many columns are always shown."""
        raise NotImplementedError

    def __str__(self) -> str:
        names, columns, fixed = self._table()
        table = format_table(names, columns, fixed=fixed, hint=HINT) if columns else ""
        return f"{self._title()}\n{table}" if table else self._title()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return doors.html(self)


def row_labels(n: int, cases: Table | None) -> Sequence[Any]:
    """What names the rows of a table of n cases: the index of a pandas frame, or their numbers."""
    if cases is None or cases.index is None:
        return range(n)
    index = cases.index
    return Lazy(n, lambda i: str(index[i]))


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
        columns.append(Lazy(n, cells.get))
    return columns
