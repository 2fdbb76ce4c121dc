"""`Ranking` and `Scores`: results with one row for each variable, best first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from .frames import make_frame, to_frame_method
from .printed import Printed

__all__ = ["Ranking", "Scores"]

T = TypeVar("T")


class Ranking(Printed, list[T]):
    """A list of records, best first, that prints as a table and converts to a data frame.

    The columns are the fields of the records, except arrays.

    Parameters
    ----------
    records : iterable of dataclass instances
    kind : type
        Class of the records.
    title : str
        First line of the printed table.
    """

    def __init__(self, records: Iterable[T], kind: type[T], title: str):
        super().__init__(records)
        self._kind, self._title_text = kind, title

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ([*self], self._kind, self._title_text)

    def _columns(self) -> dict[str, list[Any]]:
        found = {}
        for field in fields(self._kind):  # type: ignore[arg-type]
            cells = [getattr(record, field.name) for record in self]
            if not any(isinstance(cell, np.ndarray) for cell in cells):
                found[field.name] = [" or ".join(c) if isinstance(c, tuple) else c for c in cells]
        return found

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a row for each record.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; also any other one that narwhals supports. Default: pandas.
        """
        return make_frame(self._columns(), backend)

    def _title(self) -> str:
        return self._title_text

    def _table(self) -> tuple[list[str], list[Any], int]:
        columns = self._columns()
        return [name.replace("_", " ") for name in columns], [*columns.values()], 1


class Scores(Printed, dict[str, float]):
    """A dictionary from variable name to a number, best first, that prints as a table and converts to a data frame.

    Parameters
    ----------
    scores : mapping
    quantity : str
        Name of the number, which is the name of its column.
    """

    def __init__(self, scores: dict[str, float], quantity: str):
        super().__init__(scores)
        self._quantity = quantity

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self._quantity)

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a row for each variable; see `Ranking.to_frame`."""
        return make_frame({"variable": [*self], self._quantity: [*self.values()]}, backend)

    def _title(self) -> str:
        return f"{self._quantity.replace('_', ' ').capitalize()} of {len(self)} variables, in nats, largest first"

    def _table(self) -> tuple[list[str], list[Any], int]:
        return ["", ""], [[*self], [*self.values()]], 1
