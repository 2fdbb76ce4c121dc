"""What an engine does: weights of rows against a fixed set of references."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows of a table as numbers and state codes, and how distances between them are computed.

MISSING, UNSEEN = -1, -2  # codes in place of a state's number


class Measure(NamedTuple):
    """How the distance of two rows follows from their columns."""

    metric: str  # ``"euclidean"``, ``"manhattan"``, ``"hamming"`` or ``"gower"``
    n_columns: int  # number of columns, over which ``"hamming"`` and ``"gower"`` are means
    # Whether cells of the table are missing and ignored: distances are means over the columns that both rows have
    has_holes: bool

    @property
    def is_squared(self) -> bool:
        """Whether keys are squared distances."""
        return self.metric == "euclidean"

    @property
    def is_share(self) -> bool:
        """Whether distances are means over columns."""
        return self.metric in ("hamming", "gower")


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows."""

    numbers: NDArray[np.float64]  # (N, A) ndarray of float64: Columns of numbers, scaled; NaN where missing
    # (N, D) ndarray of int32: States of the other columns; `MISSING`, or `UNSEEN` for a state that the table does not
    #     have
    codes: NDArray[np.int32]
    n_observed: NDArray[np.int64]  # (N,) ndarray of int64: Columns that are not missing

    def __len__(self) -> int:
        return len(self.n_observed)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Some rows."""
        return Rows(self.numbers[index], self.codes[index], self.n_observed[index])

    def divisors(self, measure: Measure) -> NDArray[np.float64]:
        """What the sum of a row's keys is divided by, (N,)."""
        if measure.is_share and not measure.has_holes:
            return self.n_observed.astype(np.float64)
        return np.ones(len(self))


class Ranking(NamedTuple):
    """References in groups, those that are probably outliers first; a group is consecutive in an order."""

    order: NDArray[np.integer[Any]]  # (N,)
    starts: NDArray[np.int64]  # (G,)
    sizes: NDArray[np.int64]  # (G,)
    bounds: NDArray[np.float64]  # (G,) descending: no weight of a group's rows is larger

    @classmethod
    def of_rows(cls, order: NDArray[np.int64]) -> Ranking:
        """Rows in an order, without bounds."""
        return cls(order, np.arange(len(order)), np.ones(len(order), np.int64), np.full(len(order), np.inf))

    def rows(self, first: int, last: int) -> NDArray[np.int64]:
        """The rows of groups first..last-1."""
        sizes = self.sizes[first:last]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found: NDArray[np.int64] = self.order[np.repeat(self.starts[first:last], sizes) + within].astype(np.int64)
        return found

    def part(self, i: int, n: int) -> Ranking:
        """Part i of n: every n-th group."""
        return Ranking(self.order, self.starts[i::n], self.sizes[i::n], self.bounds[i::n])


class Engine(ABC):
    """Computes weights of rows against at least k references."""

    batches = (32, 1 << 14)  # rows of the first and of the largest batch, between which the cut is raised
    _references: Rows

    @abstractmethod
    def ranking(self) -> Ranking:
        """All references, those that are probably outliers first."""

    @abstractmethod
    def similar(self) -> NDArray[np.int64]:
        """All references, similar ones close to each other."""

    @abstractmethod
    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        """Weights of rows, and how many distances were computed.

        A weight that is less than the row's cut is an upper bound; others are exact.
        """

    def search_own(
        self, index: NDArray[np.int64], cuts: NDArray[np.float64], threads: int | None
    ) -> tuple[NDArray[np.float64], int]:
        """`search` of some references."""
        return self.search(self._references.take(index), cuts, threads)

    def settled(self, other: Engine, threshold: float, threads: int | None) -> NDArray[np.bool_]:
        """References whose weight against those of another engine is certainly below a threshold; others may be."""
        return np.zeros(len(self._references), np.bool_)

    def close(self) -> None:  # noqa: B027 (optional)
        """Free the memory of devices."""
