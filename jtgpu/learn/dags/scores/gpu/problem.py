"""`Problem`: what all GPUs count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .....errors import ArgumentError
from ...count_modes import BY_CELLS, BY_FAMILY
from ..set_values import set_values
from .planes import Planes, planes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..coded import CodedTable
    from ..rules import CellFunctions, ScoreRule

MAX_PARENTS = 5
MAX_COMBOS = 384  # AND-combinations of a set, above which its rows are scanned


@dataclass
class Problem:
    """What all devices count."""

    coded: CodedTable
    rule: ScoreRule
    functions: CellFunctions
    max_parents: int
    max_cells: int
    order: NDArray[np.int64]  # the variables by ascending number of states
    cards: NDArray[np.int64]  # in this order
    planes: Planes
    small: list[NDArray[np.float64]]  # values of sets of 0 and 1 variables
    most_combos: int = MAX_COMBOS

    @property
    def n(self) -> int:
        return len(self.cards)

    @property
    def n_values(self) -> int:
        """Values of a set."""
        return 1 if self.functions.mode == BY_CELLS else len(self.functions.shapes)

    def value_bytes(self) -> int:
        """Bytes of the values of all sets."""
        return sum(8 * self.n_values * math.comb(self.n, size) for size in range(self.max_parents + 2))

    def is_scanned(self, size: int) -> bool:
        """Whether rows of some sets are scanned."""
        largest = [int(r) for r in self.cards[-size:]]
        combos = (largest[0] - 1) * (largest[1] - 1) * math.prod(largest[2:])
        return combos > self.most_combos or largest[0] > 8


def gpu_can_score(rule: ScoreRule, max_parents: int) -> bool:
    """Whether GPUs compute such scores."""
    return rule.name != "bds" and max_parents <= MAX_PARENTS


def make_problem(
    coded: CodedTable, rule: ScoreRule, functions: CellFunctions, max_parents: int, max_cells: int
) -> Problem:
    """Sort the variables, and make planes and the values of small sets."""
    # raises ArgumentError: If GPUs do not compute such scores.
    if functions.mode == BY_FAMILY:
        raise ArgumentError(f"GPUs do not compute {rule.name!r} scores; use backend='cpu'")
    if max_parents > MAX_PARENTS:
        raise ArgumentError(f"GPUs score families of at most {MAX_PARENTS} parents; use backend='cpu'")
    order = np.argsort(coded.cardinality, kind="stable")
    cards = coded.cardinality[order]
    planes = planes_of(coded.codes[order], cards, coded.weights)
    small = set_values(coded, functions, 0, ess=float(rule.ess), max_cells=max_cells)
    return Problem(coded, rule, functions, max_parents, max_cells, order, cards, planes, small)
