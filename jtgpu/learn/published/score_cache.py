"""The published table of scores: every family of at most k parents, float32, by its combinatorial index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, TableTooLarge, format_bytes
from ...util.arguments import choice, whole_number
from ...util.system import free_memory, parse_bytes
from ..dags.count_modes import BY_FAMILY
from ..dags.scores.coded import code_table
from ..dags.scores.combinations import binomial_table, n_parent_sets, parent_index
from ..dags.scores.rules import CellFunctions, ScoreRule
from ..dags.scores.set_values import MAX_CELLS
from .gpu import gpu_table
from .rows import aligned_rows
from .sets import members_of_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..dags.scores.coded import CodedTable

__all__ = ["FamilyScores", "ScoreCache", "published_seconds", "score_cache", "table_bytes"]

MAX_PARENTS = 5
PUBLISHED_US = {3: 16.0, 4: 23.0}  # microseconds of a score in the published table of times
CHUNK = 1 << 22  # numbers of temporary arrays


def table_bytes(n: int, max_parents: int) -> int:
    """Bytes of the published table: one float32 for each family of n variables with at most `max_parents` parents."""
    return 4 * n * n_parent_sets(n, max_parents)


def published_seconds(n: int, max_parents: int) -> float:
    """Seconds that the published table of times lists for filling such a table, on a processor of 2010.

    Raises
    ------
    ArgumentError
        If `max_parents` is not 3 or 4, for which times were published.
    """
    if max_parents not in PUBLISHED_US:
        raise ArgumentError(f"times were published for 3 and 4 parents, not {max_parents}")
    return 1e-6 * PUBLISHED_US[max_parents] * n * n_parent_sets(n, max_parents)


@dataclass(frozen=True)
class FamilyScores:
    """Data and functions from which a family is scored.

    Attributes
    ----------
    coded : CodedTable
        Without weights.
    rule : ScoreRule
    functions : CellFunctions
    rows : (n, W) ndarray of uint16
        See `aligned_rows`.
    """

    coded: CodedTable
    rule: ScoreRule
    functions: CellFunctions
    rows: NDArray[np.uint16]

    def scores(self, child: int, allowed: Sequence[int], size: int, begin: int, end: int) -> NDArray[np.float32]:
        """Scores of a child with the parent sets of a range of ranks: the twin of the GPU's kernels, in NumPy.

        Parameters
        ----------
        child : int
        allowed : sequence of int
            The variables that ranks address.
        size, begin, end : int
            Parents of a set; range of ranks.

        Returns
        -------
        (end - begin,) ndarray of float32
        """
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

    def _score_sets(self, child: int, members: NDArray[np.int64], n_configs: int) -> NDArray[np.float64]:
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
        found: NDArray[np.float64] = f.values[of_cells][counts].sum(axis=(1, 2))
        found -= f.values[of_parents][counts.sum(axis=2)].sum(axis=1)
        return found - self.rule.penalty(n_rows) * n_configs * (r - 1)


@dataclass(frozen=True, eq=False)
class ScoreCache:
    """Scores of families, float32, by the published index.

    Attributes
    ----------
    families : FamilyScores
    max_parents : int
        Largest sets of a chain.
    stored_parents : int
        Largest sets in the table. Larger ones are scored when a chain needs them.
    scores : (n * M,) ndarray of float32
        By `jtgpu.learn.dags.scores.combinations.parent_index`.
    """

    families: FamilyScores
    max_parents: int
    stored_parents: int
    scores: NDArray[np.float32]

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

    def of_sets(self, child: int, members: NDArray[np.int64]) -> NDArray[np.float32]:
        """Stored scores of a child with sets of parents, (K, l) in any order."""
        n, size = len(self.names), members.shape[1]
        squeezed = np.sort(members, axis=1)
        squeezed -= squeezed > child
        first = child * n_parent_sets(n, self.stored_parents) + (n_parent_sets(n, size - 1) if size else 0)
        columns = binomial_table(n, size + 1)
        rank = columns[squeezed, np.arange(1, size + 1)].sum(axis=1) if size else np.zeros(len(members), np.int64)
        found: NDArray[np.float32] = self.scores[first + rank]
        return found


def score_cache(  # noqa: PLR0913
    data: Any,
    max_parents: int = 3,
    *,
    stored_parents: int | None = None,
    score: str = "bdeu",
    ess: float = 1.0,
    memory_limit: int | str | None = None,
    backend: str = "cpu",
    devices: Any = None,
) -> ScoreCache:
    """Compute the published table of scores.

    Parameters
    ----------
    data : data frame, mapping of columns, list of mappings, (N, n) array, or path of a CSV or Parquet file
    max_parents : int
        Largest sets of parents, at most 5.
    stored_parents : int, optional
        Largest sets in the table; larger ones are scored on demand. Default: `max_parents`.
    score, ess
        See `jtgpu.learn.ScoreRule`; all but ``"bds"``.
    memory_limit : int or str, optional
        Of the table. Default: 80 % of the free memory.
    backend : {"cpu", "gpu"}
        ``"cpu"`` is a twin of the kernels, for comparison: the scores are equal to 1 ULP.
    devices : "all", int or sequence of int, optional
        GPUs that share the table. Default: one.

    Returns
    -------
    ScoreCache

    Raises
    ------
    DataError
        If the data cannot be learned from.
    TableTooLarge
        If the table exceeds the memory limit, or a family has more than 1e6 cells (GPU: about 50,000).
    ArgumentError
        If an option has no such value.
    """
    choice("backend", backend, ("cpu", "gpu"))
    coded = code_table(data)
    n, rule = len(coded.names), ScoreRule(score, ess)
    k = min(whole_number("max_parents", max_parents, 0, MAX_PARENTS), n - 1)
    stored = k if stored_parents is None else min(whole_number("stored_parents", stored_parents, 0, k), k)
    if coded.weights is not None:
        raise ArgumentError("the published system does not take weights")
    needed = table_bytes(n, stored)
    limit = int(0.8 * free_memory()) if memory_limit is None else parse_bytes(memory_limit)
    if needed > limit:
        raise TableTooLarge(
            f"the table of {needed // 4:,} scores needs {format_bytes(needed)}, more than the limit of "
            f"{format_bytes(limit)}; lower max_parents or stored_parents", needed // 4, needed, limit,
        )  # fmt: skip
    largest = int(np.prod(np.sort(coded.cardinality)[-k - 1 :].astype(np.float64)))
    if largest > MAX_CELLS:
        raise TableTooLarge(f"a family of {k} parents has {largest:,} cells, more than {MAX_CELLS:,}", largest)
    functions = rule.functions(coded.cardinality, k + 1, MAX_CELLS, coded.n_cases)
    if functions.mode == BY_FAMILY:
        raise ArgumentError(f"the published system does not compute {rule.name!r} scores")
    families = FamilyScores(coded, rule, functions, aligned_rows(coded.codes))
    if backend == "gpu":
        return ScoreCache(families, k, stored, gpu_table(families, stored, devices))
    parts = []
    for v in range(n):
        others = [u for u in range(n) if u != v]
        parts += [families.scores(v, others, size, 0, math.comb(n - 1, size)) for size in range(stored + 1)]
    return ScoreCache(families, k, stored, np.concatenate(parts))
