"""`ScoreRule`: what a family of variables scores, by name and options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....errors import ArgumentError
from ....util.arguments import choice, number
from ....util.elementary import log
from ....util.loops import loops
from ..count_modes import BY_CELLS, BY_FAMILY, BY_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_counts = loops("jtgpu.learn.dags.loops.counts")

SCORES = ("bdeu", "bds", "k2", "bdj", "bic", "aic")
FUNCTION_BYTES = 64 << 20  # of tabulated functions; larger counts are computed when needed
MIN_TABULATED = 64
AVAILABLE = 3  # mode of data with missing cells: the scores by the rows in which a family is known
PSEUDO_COUNTS = {"k2": 1.0, "bdj": 0.5}


@dataclass(frozen=True)
class CellFunctions:
    """Functions of a count that are summed over the cells of a table.

    A function is ln Gamma(shape + count) - ln Gamma(shape), or count ln count if its shape is 0.
    """

    mode: int  # one of `jtgpu.learn.dags.count_modes`, or `AVAILABLE`
    shapes: NDArray[np.float64]  # (G,) float64
    # (G,) int64: Mode `BY_CELLS`: the number of cells of the tables that use a function, ascending
    products: NDArray[np.int64]
    # (A,) int64: For k2 and bdj: function 0 is that of the family's cells, function 1 + i that of a parent
    #     configuration of a child with ``arities[i]`` states
    arities: NDArray[np.int64]
    values: NDArray[np.float64]  # (G, F) float64: The functions of the counts 0 to F - 1

    def parent_row(self, r: int) -> int:
        """Which function of the parents' table is subtracted for a child of r states; -1 for a score by family."""
        if self.mode in (BY_FAMILY, AVAILABLE):
            return -1
        return 1 + int(np.searchsorted(self.arities, r)) if len(self.arities) else 0


@dataclass(frozen=True)
class ScoreRule:
    """A decomposable score of a family: a variable v with parents P.

    With r states of v, q configurations of P, counts n_jk of child state k under configuration j and n_j = sum_k n_jk:

    - ``"bdeu"``: Dirichlet prior of equivalent sample size `ess`, a_jk = ess / (q r) (Heckerman et al. 1995)
    - ``"bds"``: the same, but divided among the configurations that occur (Scutari 2016); not score-equivalent
    - ``"k2"``, ``"bdj"``: a_jk = 1 and 1/2; not score-equivalent
    - ``"bic"``, ``"aic"``: log-likelihood minus ln(N)/2, or 1, for each free parameter

    If cells are missing, ``"bic"`` takes the log-likelihood of the rows in which v and P are known, times N divided by
    the number of these rows (node-average likelihood, Balov 2013).

    Parameters
    ----------
    name : str
        One of `SCORES`.
    ess : float
        Equivalent sample size of ``"bdeu"`` and ``"bds"``.

    Raises
    ------
    ArgumentError
        If there is no score of that name, or `ess` is not a finite number above 0.
    """

    name: str = "bdeu"
    ess: float = 1.0

    def __post_init__(self) -> None:
        choice("score", self.name, SCORES)
        if math.isinf(number("ess", self.ess, above=0.0)):
            raise ArgumentError(f"ess must be finite, not {self.ess!r}")

    def penalty(self, n_cases: int) -> float:
        """What a free parameter costs."""
        if self.name == "bic":
            return log(n_cases) / 2.0
        return 1.0 if self.name == "aic" else 0.0

    def require_scorable(self, has_gaps: bool) -> None:
        """Reject data with missing cells, unless their score is BIC.

        Raises
        ------
        ArgumentError
        """
        if has_gaps and self.name != "bic":
            raise ArgumentError(
                f"missing='available' scores each family by the rows in which it is known: that requires score='bic', "
                f"not {self.name!r}"
            )

    def functions(
        self, card: NDArray[np.int64], size: int, max_cells: int, n_cases: int, has_gaps: bool = False
    ) -> CellFunctions:
        """Functions whose sums over the tables of sets of at most `size` variables give the scores.

        Parameters
        ----------
        card : (n,) ndarray of int64
            Numbers of states of all variables.
        size, max_cells : int
            Sets of more variables, and tables of more cells, are not counted.
        n_cases : int
            The largest count.
        has_gaps : bool
            Whether cells are missing.
        """
        if has_gaps:
            self.require_scorable(has_gaps)
            none = np.zeros(0, np.int64)
            return CellFunctions(AVAILABLE, np.array([self.penalty(n_cases)]), none, none, np.zeros((1, 0)))
        products = arities = np.zeros(0, np.int64)
        mode, shapes = BY_ROWS, np.zeros(1)
        if self.name == "bdeu":
            mode, products = BY_CELLS, np.array(sorted(_products(card, size, max_cells)), np.int64)
            shapes = self.ess / products
        elif self.name == "bds":
            mode, shapes = BY_FAMILY, np.zeros(0)
        elif self.name in PSEUDO_COUNTS:
            arities = np.unique(card)
            shapes = PSEUDO_COUNTS[self.name] * np.array([1, *arities], np.float64)
        n_tabulated = min(n_cases + 1, max(FUNCTION_BYTES // (8 * max(len(shapes), 1)), MIN_TABULATED))
        values = np.empty((len(shapes), n_tabulated))
        _counts.tabulate(shapes, 0, values)
        return CellFunctions(mode, shapes, products, arities, values)


def _products(card: NDArray[np.int64], size: int, max_cells: int) -> set[int]:
    """Numbers of cells of the tables of at most `size` variables, up to `max_cells`."""
    found: list[set[int]] = [{1}, *(set() for _ in range(size))]
    for r in card.tolist():
        for used in range(size, 0, -1):
            found[used] |= {p * r for p in found[used - 1] if p * r <= max_cells}
    return set().union(*found)
