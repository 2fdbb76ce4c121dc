"""`ArcTable` and records of arcs and parent sets: how posteriors over structures print and convert to frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArgumentError, UnknownVariable, closest
from ....inference.results.frames import make_frame, to_frame_method, unused_name
from ....inference.results.printed import Printed
from ....inference.results.rankings import Ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray


def variable_number(names: Sequence[str], name: str | int) -> int:
    """Number of a variable."""
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool) and 0 <= name < len(names):
        return int(name)
    if name in names:
        return list(names).index(str(name))
    raise UnknownVariable(f"there is no variable {name!r}{closest(str(name), names)}")


class ArcTable(Printed):
    """A number for each ordered pair of variables: ``table["rain", "wet"]`` is that of the arc from rain to wet.

    ``numpy.asarray(table)`` is an array [parent, child].

    Attributes
    ----------
    names : tuple of str
    values : (n, n) ndarray of float64
        Read-only.
    title : str
    """

    def __init__(self, names: Sequence[str], values: NDArray[np.float64], title: str):
        values.flags.writeable = False
        self.names, self.values, self.title = tuple(names), values, title

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype) if copy or dtype is not None else self.values

    def __getitem__(self, arc: tuple[str | int, str | int]) -> float:
        if len(arc) != 2:
            raise ArgumentError(f"expected [parent, child], got {arc!r}")
        u, v = (variable_number(self.names, x) for x in arc)
        return float(self.values[u, v])

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame: a row for each parent, with its name in the column ``parent``, and a column per child.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; also any other one that narwhals supports. Default: pandas.
        """
        columns: dict[str, Any] = {unused_name("parent", self.names): np.array(self.names, object)}
        return make_frame(columns | {v: self.values[:, i].copy() for i, v in enumerate(self.names)}, backend)

    def _title(self) -> str:
        return self.title

    def _table(self) -> tuple[list[str], list[Any], int]:
        columns = [[round(float(x), 3) for x in self.values[:, i]] for i in range(len(self.names))]
        texts = [[f"{x:.3f}" for x in column] for column in columns]
        return ["", *self.names], [[*self.names], *texts], 1


@dataclass(frozen=True)
class Arc:
    """An arc with its probability; unpacks as (parent, child, probability, mcse).

    Attributes
    ----------
    parent, child : str
    probability : float
    mcse : float
        Monte Carlo standard error of the probability; 0 if it is exact.
    """

    parent: str
    child: str
    probability: float
    mcse: float

    def __iter__(self) -> Iterator[Any]:
        return iter(astuple(self))


@dataclass(frozen=True)
class ParentSet:
    """A set of parents with its probability; unpacks as (parents, probability, mcse)."""

    parents: tuple[str, ...]
    probability: float
    mcse: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.parents, self.probability, self.mcse))


class ParentSets(Ranking[ParentSet]):
    """Parent sets of a variable, the most probable first."""

    def _columns(self) -> dict[str, list[Any]]:
        return {
            "parents": [", ".join(s.parents) or "(none)" for s in self],
            "probability": [s.probability for s in self],
            "mcse": [s.mcse for s in self],
        }
