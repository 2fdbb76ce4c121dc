"""`SetTables` of candidate tables: what chains look up, and the draw of parent sets."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from ....errors import TableTooLarge, format_bytes
from ....util.loops import loops
from ....util.system import cores
from ..chain_records import SetTables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates.tables import CandidateTables

__all__ = ["ANY", "draw_sets", "set_tables", "sorted_sets", "table_bytes"]

_draws = loops("jtgpu.learn.dags.loops.draws")

ANY = -1  # in place of a set that a parent set must meet: no such condition


def table_bytes(n: int, k: int) -> int:
    """Memory of the tables of sums of n variables with k candidate parents each."""
    return 8 * n * (k + 2) << max(k - 1, 0)


def set_tables(tables: CandidateTables, *, memory_limit: int | None = None, threads: int | None = None) -> SetTables:
    """Compute the tables of sums.

    Raises
    ------
    TableTooLarge
        If they exceed the memory limit; the message says how many candidates fit.
    """
    n, k = tables.candidates.shape
    if memory_limit is not None and table_bytes(n, k) > memory_limit:
        fits = k
        while fits > 1 and table_bytes(n, fits) > memory_limit:
            fits -= 1
        raise TableTooLarge(
            f"the tables of {k} candidate parents of {n} variables need {format_bytes(table_bytes(n, k))}, more than "
            f"the limit of {format_bytes(memory_limit)}; candidates={fits} fits",
            n * (k + 2) << max(k - 1, 0),
            table_bytes(n, k),
            memory_limit,
        )
    log_factorials = np.array([math.lgamma(i + 1.0) for i in range(n + 1)])
    return SetTables(
        np.ascontiguousarray(tables.candidates),
        tables.sums(threads),
        tables.hits(threads),
        *sorted_sets(tables),
        log_factorials,
    )


def sorted_sets(tables: CandidateTables) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The parent sets of each variable as bits of its candidates, by descending weight, (n, M), and the ln weights."""
    order = np.argsort(-tables.log_weights, axis=1, kind="stable")
    weights = np.take_along_axis(tables.log_weights, order, axis=1)
    return np.ascontiguousarray(tables.masks[order]), np.ascontiguousarray(weights)


def draw_sets(
    masks: NDArray[np.int64],
    weights: NDArray[np.float64],
    before: NDArray[np.int64],
    met: NDArray[np.int64],
    log_totals: NDArray[np.float64],
    u: NDArray[np.float64],
    threads: int | None = None,
) -> NDArray[np.int64]:
    """Draw parent sets of all variables.

    Parameters
    ----------
    masks, weights : (n, M) ndarray
        See `sorted_sets`.
    before, met : (n, D) ndarray of int64
        Each set is within the candidates `before` of its variable and has a member in `met`, unless that is `ANY`.
    log_totals : (n, D) ndarray of float64
        ln of the total weight of these sets.
    u : (n, D) ndarray of float64
        Uniform random numbers.

    Returns
    -------
    (n, D) ndarray of int64
        Bits of the candidates.
    """
    found = np.empty_like(before)

    def draw(v: int) -> None:
        _draws.draw_sets(masks[v], weights[v], before[v], met[v], log_totals[v], u[v], found[v])

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        list(pool.map(draw, range(len(before))))
    return found
