"""Score tables on a cluster: each worker counts a range of the largest sets, and all sets that are smaller."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....util import doors
from .rules import binomial_table
from .set_values import set_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .coded import CodedTable
    from .rules import CellFunctions

PARTS = 4  # of each worker
MIN_SETS = 1000  # of a part


class _Job(NamedTuple):
    """What a worker needs; sent once."""

    table: CodedTable
    functions: CellFunctions
    max_parents: int
    ess: float
    max_cells: int


def set_values_on(  # noqa: PLR0913
    cluster: Any,
    table: CodedTable,
    functions: CellFunctions,
    max_parents: int,
    *,
    ess: float,
    max_cells: int,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> list[NDArray[np.float64]]:
    """`set_values`, bit-identical: the sets of ``max_parents + 1`` variables are counted on a cluster."""
    # table, functions, max_parents, ess, max_cells, memory_limit, threads: See `set_values`; the last two are those of
    #     this process, which counts the smaller sets
    options: dict[str, Any] = {
        "ess": ess, "max_cells": max_cells, "memory_limit": memory_limit, "threads": threads,
    }  # fmt: skip
    if max_parents == 0:
        return set_values(table, functions, 0, **options)
    n, size = len(table.names), max_parents + 1
    n_sets = math.comb(n, size)

    def divide(n_workers: int) -> list[tuple[int, int]]:
        n_parts = max(min(PARTS * n_workers, n_sets // MIN_SETS), 1)
        ends = sorted({_first_prefix(n_sets * i // n_parts, n, size) for i in range(1, n_parts)} - {0})
        last = math.comb(n, max_parents)
        return list(zip([0, *ends], [*ends, last], strict=True))

    job = _Job(table, functions, max_parents, ess, max_cells)
    parts = list(doors.cluster().run_tasks(cluster, _count_part, job, divide, "cpu"))
    return [*set_values(table, functions, max_parents - 1, **options), np.concatenate(parts, axis=1)]


def _first_prefix(column: int, n: int, size: int) -> int:
    """Rank of the larger members of the set with a rank."""
    binomials, rank, c = binomial_table(n, size), 0, n
    for j in range(size, 0, -1):
        c -= 1
        while binomials[c, j] > column:
            c -= 1
        column -= int(binomials[c, j])
        rank += int(binomials[c, j - 1]) if j > 1 else 0
    return rank


def _count_part(job: _Job, prefixes: tuple[int, int], threads: int) -> NDArray[np.float64]:
    """The task of a worker."""
    table = job.table
    codes = np.array(table.codes)  # arrays of the object store are read-only, which compiled loops do not take
    weights = None if table.weights is None else np.array(table.weights)
    f = job.functions
    functions = replace(
        f, shapes=np.array(f.shapes), products=np.array(f.products), arities=np.array(f.arities),
        values=np.array(f.values),
    )  # fmt: skip
    found = set_values(
        replace(table, codes=codes, weights=weights), functions, job.max_parents, ess=job.ess,
        max_cells=job.max_cells, threads=threads, prefixes=prefixes,
    )  # fmt: skip
    return found[-1]
