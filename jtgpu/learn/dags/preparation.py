"""What structure searches and chains need first: scores of small families, and candidate parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, DataError
from ...util.arguments import having, whole_number
from .candidate_tables import MAX_CANDIDATES, choose_candidates, family_weights
from .constraints import Constraints
from .scores.gpu_problem import gpu_can_score
from .scores.rules import n_parent_sets
from .scores.score_table import ScoreTable, score_families

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...util.options import LearnBackend
    from .constraints import StructurePrior
    from .scores.coded import CodedTable
    from .scores.rules import ScoreRule

MAX_SCREENED = 30_000_000  # families that are scored to choose candidates
MAX_WIDE, MAX_WIDE_CELLS, MAX_WIDE_SIZE = 6_000_000, 500_000_000, 5  # families, cells of their tables, parents


def screened_size(n: int, max_parents: int) -> int:
    """Largest number of parents of the families that are scored to choose candidates."""
    few = min(max_parents, 3)
    while few > 1 and n * n_parent_sets(n, few) > MAX_SCREENED:
        few -= 1
    return few


def wide_size(card: NDArray[np.int64], max_parents: int) -> int:
    """Largest number of parents of the families that are scored to choose candidates and outer sets."""
    n, few = len(card), screened_size(len(card), max_parents)
    cells = [1.0, *[0.0] * (MAX_WIDE_SIZE + 1)]  # of all sets of 0, 1, 2, ... variables: elementary symmetric sums
    for r in card.tolist():
        for size in range(len(cells) - 1, 0, -1):
            cells[size] += r * cells[size - 1]
    while (
        few < min(max_parents, MAX_WIDE_SIZE)
        and n * n_parent_sets(n, few + 1) <= MAX_WIDE
        and cells[few + 2] <= MAX_WIDE_CELLS
    ):
        few += 1
    return few


def number_of_candidates(candidates: int | str, n: int, limit: int, default: int = MAX_CANDIDATES) -> int:
    """Number of candidate parents of each variable."""
    if candidates == "all":
        return n - 1
    if candidates != "auto":
        return min(whole_number("candidates", candidates, 1), n - 1)
    k = min(default, n - 1)
    while k > 1 and 8 * n * 2**k > limit // 2:
        k -= 1
    return k


def require_same(table: ScoreTable, coded: CodedTable, rule: ScoreRule) -> None:
    """Reject a score table of other data, or of another score."""
    having("table", table, "with_max_parents", "a ScoreTable, which jtgpu.learn.score_table makes")
    if table.digest != coded.digest:
        raise DataError("the score table was made from other data (rows, states, weights or names of columns)")
    if table.rule != rule:
        raise ArgumentError(f"the score table has the score {table.rule}, not {rule}")


def scores_up_to(  # noqa: PLR0913
    table: ScoreTable | None,
    coded: CodedTable,
    rule: ScoreRule,
    max_parents: int,
    limit: int,
    threads: int | None,
    backend: LearnBackend = "cpu",
    devices: Any = None,
) -> ScoreTable:
    """The scores of all families of up to so many parents, from a given table if it has them."""
    if table is None or table.max_parents < min(max_parents, len(coded.names) - 1):
        if backend == "gpu" and (coded.has_gaps or not gpu_can_score(rule, max_parents)):
            backend = "cpu"
        return score_families(
            coded, rule, max_parents, memory_limit=limit, threads=threads, backend=backend, devices=devices
        )
    return table.with_max_parents(max_parents)


def screened_candidates(
    scores: ScoreTable, prior: StructurePrior, constraints: Constraints, k: int
) -> NDArray[np.int64]:
    """Candidate parents by the scores of all small families."""
    # required arcs do not restrict the screening: a child may need more parents than are screened
    free = Constraints(constraints.forbidden, np.zeros_like(constraints.required), constraints.max_parents)
    return choose_candidates(family_weights(scores, prior, free), scores.max_parents, k, constraints)
