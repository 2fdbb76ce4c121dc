"""`ScoreRule`: the scores of a family of variables, by name and options; `SCORES` registers their formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ....errors import ArgumentError
from ....util.arguments import choice, number
from ....util.arrays import Floats, Ints
from ....util.elementary import log
from ....util.loops import loops
from ..chain_records import BY_CELLS, BY_FAMILY, BY_ROWS, DIVIDED, DIVIDED_OCCURRING, LIKELIHOOD, PER_CELL, TABULATED

if TYPE_CHECKING:
    from collections.abc import Callable

_formulas = loops("jtgpu.learn.dags.loops.scores")

Score = Literal["bdeu", "bds", "k2", "bdj", "bic", "aic", "bge", "bic-cg", "given"]
# the counts of a family, (q, r), the child and its parents -> its ln score
ScoreFunction: TypeAlias = "Callable[[Ints, str, tuple[str, ...]], float]"
GIVEN = "given"  # the name of scores of a function or a file
FUNCTION_BYTES = 64 << 20  # of tabulated functions; larger counts are computed when needed
MIN_TABULATED = 64
AVAILABLE = 3  # mode of data with missing cells: the scores by the rows in which a family is known
NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class CellFunctions:
    """Functions of a count that are summed over the cells of a table.

    A function is ln Gamma(shape + count) - ln Gamma(shape), or count ln count if its shape is 0.
    """

    mode: int  # one of `jtgpu.learn.dags.chain_records`, or `AVAILABLE`
    shapes: Floats  # (G,); of functions that are tabulated for all counts: 0
    products: Ints  # (G,) mode `BY_CELLS`: number of cells of the tables that use a function, ascending
    # (A,) function 0 is that of the family's cells, function 1 + i that of a parent configuration of a child with
    # ``arities[i]`` states; empty if function 0 is that of both
    arities: Ints
    values: Floats  # (G, F) the functions of the counts 0 to F - 1

    def parent_row(self, r: int) -> int:
        """Which function of the parents' table is subtracted for a child of r states; -1 for a score by family."""
        if self.mode in (BY_FAMILY, AVAILABLE):
            return -1
        return 1 + int(np.searchsorted(self.arities, r)) if len(self.arities) else 0


# The scores. A new one is a class and an entry of `SCORES`; if it is no sum of functions of counts, a loop as well.


class StructureScore:
    """The formula of a decomposable score.

    The default is a sum of `of_cell` over the cells of a family's table, minus the sum of `of_parents` over the
    configurations of the parents, minus a penalty for each free parameter.
    """

    formula = TABULATED  # of `jtgpu.learn.dags.loops.scores.table_score`, for searches by single arcs
    runs_on_gpu = True
    takes_ess = False  # whether it has an equivalent sample size, which the CPTs of learned networks take too
    takes_gaps = False  # whether families can be scored by the rows in which they are known
    takes_numbers = False  # whether it is one of tables with numbers: see `numeric_scores`
    takes_states = True

    def penalty(self, n_cases: int) -> float:
        """Cost of a free parameter."""
        return 0.0

    def pseudo_counts(self, ess: float) -> float:
        """The number `a` of `table_score`."""
        return 0.0

    def of_cell(self, counts: Ints) -> Floats:
        """Function of the counts of cells."""
        raise NotImplementedError

    def of_parents(self, counts: Ints, r: int) -> Floats:
        """Function of the counts of the parents' configurations, for a child of r states."""
        raise NotImplementedError

    def functions(self, ess: float, card: Ints, size: int, max_cells: int, n_cases: int) -> CellFunctions:
        """Functions whose sums over the tables of sets of at most `size` variables give the scores."""
        arities, counts = np.unique(card), np.arange(n_cases + 1)
        values = np.stack([self.of_cell(counts), *(self.of_parents(counts, r) for r in arities.tolist())])
        return CellFunctions(BY_ROWS, np.zeros(len(values)), NONE, arities, values)


class BDeu(StructureScore):
    """Dirichlet prior whose equivalent sample size is divided among all cells."""

    formula, takes_ess = DIVIDED, True

    def pseudo_counts(self, ess: float) -> float:
        return ess

    def functions(self, ess: float, card: Ints, size: int, max_cells: int, n_cases: int) -> CellFunctions:
        products = np.array(sorted(_products(card, size, max_cells)), np.int64)
        return _gamma_functions(BY_CELLS, ess / products, n_cases, products=products)


class BDs(BDeu):
    """Dirichlet prior whose equivalent sample size is divided among the configurations that occur."""

    formula, runs_on_gpu = DIVIDED_OCCURRING, False

    def functions(self, ess: float, card: Ints, size: int, max_cells: int, n_cases: int) -> CellFunctions:
        return _gamma_functions(BY_FAMILY, np.zeros(0), n_cases)


class PseudoCount(StructureScore):
    """Dirichlet prior with the same pseudo-count for each cell."""

    formula = PER_CELL

    def __init__(self, a: float):
        self.a = a

    def pseudo_counts(self, ess: float) -> float:
        return self.a

    def functions(self, ess: float, card: Ints, size: int, max_cells: int, n_cases: int) -> CellFunctions:
        arities = np.unique(card)
        return _gamma_functions(BY_ROWS, self.a * np.array([1, *arities], np.float64), n_cases, arities=arities)


class AIC(StructureScore):
    """Log-likelihood minus 1 for each free parameter."""

    formula = LIKELIHOOD

    def penalty(self, n_cases: int) -> float:
        return 1.0

    def functions(self, ess: float, card: Ints, size: int, max_cells: int, n_cases: int) -> CellFunctions:
        return _gamma_functions(BY_ROWS, np.zeros(1), n_cases)


class BIC(AIC):
    """Log-likelihood minus ln(N)/2 for each free parameter."""

    takes_gaps = True

    def penalty(self, n_cases: int) -> float:
        return log(n_cases) / 2.0


# Scores of tables with numbers.


class BGe(StructureScore):
    """Marginal likelihood of jointly normal numbers; `numeric_scores.bge_scores` computes it."""

    takes_numbers, takes_states = True, False


class ConditionalGaussianBIC(StructureScore):
    """BIC of states, and of numbers given states and numbers; `numeric_scores.bic_cg_scores` computes it."""

    runs_on_gpu, takes_numbers = False, True


SCORES: dict[str, StructureScore] = {  # of tables of states
    "bdeu": BDeu(),
    "bds": BDs(),
    "k2": PseudoCount(1.0),
    "bdj": PseudoCount(0.5),
    "bic": BIC(),
    "aic": AIC(),
}
NUMERIC_SCORES: dict[str, StructureScore] = {"bge": BGe(), "bic-cg": ConditionalGaussianBIC()}


def _gamma_functions(
    mode: int, shapes: Floats, n_cases: int, products: Ints = NONE, arities: Ints = NONE
) -> CellFunctions:
    n_tabulated = min(n_cases + 1, max(FUNCTION_BYTES // (8 * max(len(shapes), 1)), MIN_TABULATED))
    return CellFunctions(mode, shapes, products, arities, _tabulated(shapes.tobytes(), n_tabulated))


@lru_cache(1)  # chains that fill gaps score tables of one size, a hundred times
def _tabulated(shapes: bytes, n: int) -> Floats:
    given = np.frombuffer(shapes)
    values = np.empty((len(given), n))
    _formulas.tabulate(given.copy(), 0, values)
    return values


def _products(card: Ints, size: int, max_cells: int) -> set[int]:
    """Numbers of cells of the tables of at most `size` variables, up to `max_cells`."""
    products: list[set[int]] = [{1}, *(set() for _ in range(size))]
    for r in card.tolist():
        for used in range(size, 0, -1):
            products[used] |= {p * r for p in products[used - 1] if p * r <= max_cells}
    return set().union(*products)


@dataclass(frozen=True)
class ScoreRule:
    """A decomposable score of a family: a variable v with parents P.

    With r states of v, q configurations of P, counts n_jk of child state k under configuration j and n_j = sum_k n_jk:

    - ``"bdeu"``: Dirichlet prior of equivalent sample size `ess`, a_jk = ess / (q r) (Heckerman et al. 1995)
    - ``"bds"``: the same, but divided among the configurations that occur (Scutari 2016); not score-equivalent
    - ``"k2"``, ``"bdj"``: a_jk = 1 and 1/2; not score-equivalent
    - ``"bic"``, ``"aic"``: log-likelihood minus ln(N)/2, or 1, for each free parameter
    - ``"bge"``: marginal likelihood of jointly normal numbers (Geiger and Heckerman 2002, corrected by Kuipers, Moffa
      and Heckerman 2014), scaled to mean 0 and standard deviation 1; prior mean 0 with the weight of one row, n + 2
      degrees of freedom, T = I / 2
    - ``"bic-cg"``: BIC of states and numbers; a number has a linear regression for each configuration of its parents
      with states, and -inf if one that occurs has fewer rows than numeric parents + 2, or no residual variance.
      Variables with states have no numeric parents
    - ``"given"``: those of a `ScoreTable` from a function or a file, which learning takes as ``Search(scores=...)``

    If cells are missing, ``"bic"`` takes the log-likelihood of the rows in which v and P are known, times N divided by
    the number of these rows (node-average likelihood, Balov 2013).

    Parameters
    ----------
    name : str
        One of these names.
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
        choice("score", self.name, (*SCORES, *NUMERIC_SCORES, GIVEN))
        if math.isinf(number("ess", self.ess, above=0.0)):
            raise ArgumentError(f"ess must be finite, not {self.ess!r}")

    @property
    def score(self) -> StructureScore:
        """The formula."""
        if self.name == GIVEN:
            raise ArgumentError(
                "scores of a function or a file are those of a table: pass Search(scores=...) with families "
                "of all parents that max_parents allows, and method='exact', 'order' or 'mcmc'"
            )
        return SCORES[self.name] if self.name in SCORES else NUMERIC_SCORES[self.name]

    @property
    def takes_numbers(self) -> bool:
        """Whether it is a score of tables with numbers."""
        return self.name != GIVEN and self.score.takes_numbers

    @property
    def network_ess(self) -> float:
        """Equivalent sample size of the CPTs of learned networks."""
        return self.ess if self.name != GIVEN and self.score.takes_ess else 1.0

    def penalty(self, n_cases: int) -> float:
        """Cost of a free parameter."""
        return self.score.penalty(n_cases)

    def require_scorable(self, has_gaps: bool) -> None:
        """Reject data with missing cells by an `ArgumentError`, unless their score is BIC."""
        if has_gaps and (self.name == GIVEN or not self.score.takes_gaps):
            raise ArgumentError(
                f"missing='available' scores each family by the rows in which it is known: that requires score='bic', "
                f"not {self.name!r}"
            )

    def functions(self, card: Ints, size: int, max_cells: int, n_cases: int, has_gaps: bool = False) -> CellFunctions:
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
            return CellFunctions(AVAILABLE, np.array([self.penalty(n_cases)]), NONE, NONE, np.zeros((1, 0)))
        return self.score.functions(self.ess, card, size, max_cells, n_cases)
