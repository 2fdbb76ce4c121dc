"""The published table of scores: every family of at most k parents, float32, by its combinatorial index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..learn.dags.scores.ranks import binomial_table, n_parent_sets, parent_index
from ..learn.dags.scores.rules import CellFunctions, ScoreRule
from ..util.arrays import Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..learn.dags.scores.coded import CodedTable

# Parent sets by ranges of ranks: what the published system sends to its workers in place of sets.

class SetRange(NamedTuple):
    """Sets of `size` of the first `n_predecessors` variables of an order, ranks begin to end - 1, as parents."""

    child: int
    size: int
    n_predecessors: int
    begin: int
    end: int


def ranges_of_node(child: int, first_new: int, n_predecessors: int, max_parents: int) -> list[SetRange]:
    """The sets of a child's predecessors that contain one of position `first_new` or later; 0: all sets.

    In the combinatorial number system, the sets without these positions have the first ranks.
    """
    ranges = []
    for size in range(min(max_parents, n_predecessors) + 1):
        begin = math.comb(first_new, size) if first_new else 0
        if size == 0 and first_new:
            continue  # the empty set contains none
        ranges.append(SetRange(child, size, n_predecessors, begin, math.comb(n_predecessors, size)))
    return [r for r in ranges if r.end > r.begin]


def split(ranges: list[SetRange], most: int) -> list[SetRange]:
    """Divide ranges into ranges of at most `most` sets."""
    return [
        r._replace(begin=first, end=min(first + most, r.end)) for r in ranges for first in range(r.begin, r.end, most)
    ]


def members_of_ranks(begin: int, end: int, size: int, n: int) -> Ints:
    """Members, ascending, of the sets of `size` of n elements, by rank, (end - begin, size).

    The published search is linear, element by element; this one is binary, for all sets at once.
    """
    members = np.empty((end - begin, size), np.int64)
    left = np.arange(begin, end)
    columns = binomial_table(n, size)
    for j in range(size, 0, -1):
        largest = np.searchsorted(columns[:, j], left, side="right") - 1
        members[:, j - 1] = largest
        left -= columns[largest, j]
    return members


PUBLISHED_US = {3: 16.0, 4: 23.0}  # microseconds of a score in the published table of times
CHUNK = 1 << 22  # numbers of temporary arrays


def table_bytes(n: int, max_parents: int) -> int:
    """Bytes of the published table: one float32 for each family of n variables with at most `max_parents` parents."""
    return 4 * n * n_parent_sets(n, max_parents)


def published_seconds(n: int, max_parents: int) -> float:
    """Seconds that the published table of times lists for filling such a table, on a processor of 2010."""
    # raises ArgumentError: If `max_parents` is not 3 or 4, for which times were published.
    if max_parents not in PUBLISHED_US:
        raise ArgumentError(f"times were published for 3 and 4 parents, not {max_parents}")
    return 1e-6 * PUBLISHED_US[max_parents] * n * n_parent_sets(n, max_parents)


@dataclass(frozen=True)
class FamilyScores:
    """Data and functions from which a family is scored."""

    coded: CodedTable  # without weights
    rule: ScoreRule
    functions: CellFunctions
    rows: NDArray[np.uint16]  # (n, W) ndarray of uint16: See `aligned_rows`

    def scores(self, child: int, allowed: Sequence[int], size: int, begin: int, end: int) -> NDArray[np.float32]:
        """Scores of a child with the parent sets of a range of ranks: the twin of the GPU's kernels, in NumPy."""
        # allowed: sequence of int: The variables that ranks address
        # size, begin, end: Parents of a set; range of ranks
        # returns (end - begin,) ndarray of float32
        scores = np.empty(end - begin, np.float32)
        members = np.asarray(allowed, np.int64)[members_of_ranks(begin, end, size, len(allowed))]
        card, n_rows = self.coded.cardinality, self.coded.codes.shape[1]
        q = card[members].prod(axis=1)
        for n_configs in np.unique(q).tolist():
            same = np.flatnonzero(q == n_configs)
            step = max(CHUNK // max(n_rows, n_configs * int(card[child])), 1)
            for first in range(0, len(same), step):
                part = same[first : first + step]
                scores[part] = self._score_sets(child, members[part], n_configs)
        return scores

    def _score_sets(self, child: int, members: Ints, n_configs: int) -> Floats:
        """Scores with sets of equally many configurations."""
        card, n_rows = self.coded.cardinality, self.coded.codes.shape[1]
        r = int(card[child])
        cells = np.zeros((len(members), n_rows), np.int64)
        for parents in members.T:
            cells = cells * card[parents][:, None] + self.rows[parents, :n_rows]
        cells = cells * r + self.rows[child, :n_rows]
        cells += np.arange(len(members))[:, None] * (n_configs * r)
        counts = np.bincount(cells.ravel(), minlength=len(members) * n_configs * r).reshape(len(members), n_configs, r)
        f = self.functions
        of_cells = of_parents = 0
        if len(f.products):
            of_cells, of_parents = np.searchsorted(f.products, [n_configs * r, n_configs]).tolist()
        elif len(f.arities):
            of_parents = f.parent_row(r)
        score: Floats = f.values[of_cells][counts].sum(axis=(1, 2))
        score -= f.values[of_parents][counts.sum(axis=2)].sum(axis=1)
        return score - self.rule.penalty(n_rows) * n_configs * (r - 1)


@dataclass(frozen=True, eq=False)
class ScoreCache:
    """Scores of families, float32, by the published index."""

    families: FamilyScores
    max_parents: int  # largest sets of a chain
    stored_parents: int  # largest sets in the table. Larger ones are scored when a chain needs them.
    scores: NDArray[np.float32]  # (n * M,) ndarray of float32: By `jtgpu.learn.dags.scores.rules.parent_index`

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return self.families.coded.names

    def score(self, child: str, parents: Sequence[str] = ()) -> float:
        """Score of a family; computed if the table does not have it."""
        names = list(self.names)
        v, numbers = names.index(child), sorted(names.index(p) for p in parents)
        if len(numbers) > self.stored_parents:
            return float(self.families.scores(v, numbers, len(numbers), 0, 1)[0])
        return float(self.scores[parent_index(v, numbers, len(names), self.stored_parents)])

    def of_sets(self, child: int, members: Ints) -> NDArray[np.float32]:
        """Stored scores of a child with sets of parents, (K, l) in any order."""
        n, size = len(self.names), members.shape[1]
        squeezed = np.sort(members, axis=1)
        squeezed -= squeezed > child
        first = child * n_parent_sets(n, self.stored_parents) + (n_parent_sets(n, size - 1) if size else 0)
        columns = binomial_table(n, size + 1)
        rank = columns[squeezed, np.arange(1, size + 1)].sum(axis=1) if size else np.zeros(len(members), np.int64)
        values: NDArray[np.float32] = self.scores[first + rank]
        return values
