"""Records and constants that compiled loops of scores and of Markov chains take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...util.array_types import Cube, Matrix

# How `jtgpu.learn.dags.loops.counts.count_sets` evaluates the table of a set.

BY_CELLS = 0  # one value, by the function that belongs to the number of cells
BY_ROWS = 1  # one value by each function
BY_FAMILY = 2  # BDs scores with each member as the child
RUN = 64  # outer sets that chains test together
MAX_COMBOS = 256  # AND-combinations of a set, above which its rows are scanned

# Formulas of the score of a family, of `jtgpu.learn.dags.loops.scores.table_score`.

DIVIDED = 0  # Dirichlet prior whose equivalent sample size is divided among all cells
DIVIDED_OCCURRING = 1  # or among the cells of the configurations of the parents that occur
PER_CELL = 2  # Dirichlet prior of a pseudo-count for each cell
LIKELIHOOD = 3
TABULATED = 4  # a tabulated function of the counts of cells, minus one of the counts of configurations


class SetTables(NamedTuple):
    """Sums over the parent sets of each variable, and the sets themselves, by bits of its possible parents.

    The first k of the m possible parents of a variable are its candidates: the tables of sums have their sets. Outer
    sets have a member that is no candidate; they are lists in S segments of descending weight. In a segment, weights
    are whole numbers of a common unit, so a sum does not depend on the order of its terms.
    """

    candidates: Matrix[np.int64]  # (n, m) possible parents, in the order of their bits; -1 where there are fewer
    sums: Matrix[np.float64]  # (n, 2**k) ln of the total weight of the sets of candidates within each set
    hits: Cube[np.float64]  # (n, k, 2**(k - 1)) the same of the sets that contain a candidate; its bit is squeezed out
    masks: Matrix[np.int64]  # (n, M) all parent sets, by descending weight
    weights: Matrix[np.float64]  # (n, M) ln weights
    outer_masks: Matrix[np.int64]  # (n, O) outer sets, ascending in each segment
    outer_shared: Matrix[np.int64]  # (n, O / RUN) members that all of RUN neighbours have, so that chains skip these
    outer_counts: Matrix[np.int64]  # (n, O) weights in units of their segments
    outer_ends: Matrix[np.int64]  # (n, S + 1) where segments begin and end
    outer_units: Matrix[np.float64]  # (n, S) ln of the units
    outer_totals: Matrix[np.float64]  # (n, S) ln of the total weight of a segment and all later ones; -inf: none
    outer_ratios: NDArray[np.float64]  # (n,) ln of the weight of all outer sets relative to that of the others
    log_factorials: NDArray[np.float64]  # (n + 1,)


class Ladder(NamedTuple):
    """The levels of R replicas of a chain: at level i, the target is the posterior to the power betas[i]."""

    betas: NDArray[np.float64]  # (R,) descending from 1
    levels: NDArray[np.int64]  # (R,) of each replica; updated by the chain
    swaps: Matrix[np.float64]  # (R - 1, 2) attempts to exchange each pair of levels, and the sum of their probabilities
    every: int  # steps between two attempts: even pairs, then odd pairs
