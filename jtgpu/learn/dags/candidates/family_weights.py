"""ln weight of every family: its score, its prior, and -inf if the constraints exclude it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..scores.combinations import parent_members

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..constraints import Constraints
    from ..priors import StructurePrior
    from ..scores.score_table import ScoreTable


def unsqueeze(members: NDArray[np.int64], v: int) -> NDArray[np.int64]:
    """Members of parent sets of v as numbers of variables; -1 stays."""
    return members + (members >= v)


def family_weights(table: ScoreTable, prior: StructurePrior, constraints: Constraints) -> NDArray[np.float64]:
    """ln weights in the order of the table, (n, M)."""
    n = len(table.names)
    members = parent_members(n, table.max_parents)
    weights = np.empty_like(table.scores)
    for v in range(n):
        own = unsqueeze(members, v)
        weights[v] = table.scores[v] + prior.log_weights(v, own, n)
        weights[v, ~constraints.possible(v, own)] = -np.inf
    return weights
