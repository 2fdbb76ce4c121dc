"""`score_cache`: fill the published table of scores, on the CPU or on GPUs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ArgumentError, TableTooLarge, format_bytes
from ...util.arguments import choice, whole_number
from ...util.system import free_memory, parse_bytes
from ..dags.count_modes import BY_FAMILY
from ..dags.scores.coded import code_table
from ..dags.scores.rules import ScoreRule
from ..dags.scores.set_values import MAX_CELLS
from .gpu import gpu_table
from .rows import aligned_rows
from .score_cache import FamilyScores, ScoreCache, table_bytes

MAX_PARENTS = 5


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
    """Compute the published table of scores."""
    # data: data frame, mapping of columns, list of mappings, (N, n) array, or path of a CSV or Parquet file
    # max_parents: Largest sets of parents, at most 5
    # stored_parents: Largest sets in the table; larger ones are scored on demand. Default: `max_parents`.
    # score, ess: See `jtgpu.learn.ScoreRule`; all but ``"bds"``
    # memory_limit: Of the table. Default: 80 % of the free memory.
    # backend: {"cpu", "gpu"}: ``"cpu"`` is a twin of the kernels, for comparison: the scores are equal to 1 ULP
    # devices: "all" or sequence of int: GPUs that share the table. Default: one.
    # raises DataError: If the data cannot be learned from.
    # raises TableTooLarge: If the table exceeds the memory limit, or a family has more than 1e6 cells (GPU: about
    #     50,000).
    # raises ArgumentError: If an option has no such value.
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
