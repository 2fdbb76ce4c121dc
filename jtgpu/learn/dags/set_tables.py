"""`SetTables` of candidate tables: what chains look up, and the draw of parent sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import TableTooLarge, format_bytes
from ...util.elementary import exps, log
from ...util.loops import loops
from ...util.system import cores
from .chain_records import SetTables
from .outer_sets import OuterSets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .candidate_tables import CandidateTables

# Lists of weighted sets in segments, in each of which weights are whole numbers of a common unit.

SPAN = 16.0  # ln of the ratio of weights in a segment, at most
LARGEST = 47.0 * log(2.0)  # ln of the largest whole number
MAX_SETS = 1 << 15  # of a segment, whose sum does not overflow


def padded(rows: Sequence[NDArray[Any]], filler: float) -> NDArray[Any]:
    """Rows of different lengths as one array."""
    found = np.full((len(rows), max(map(len, rows), default=0)), filler, rows[0].dtype)
    for i, row in enumerate(rows):
        found[i, : len(row)] = row
    return found


def _log_total(logs: NDArray[np.float64]) -> float:
    """ln of the sum of the exponentials of descending numbers."""
    return float(logs[0]) + log(math.fsum(exps(logs - logs[0])))


def segments(
    masks: Sequence[NDArray[np.int64]], log_weights: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Sort the sets of each variable by descending weight, and divide them into segments of similar weights."""
    # masks, log_weights: n ndarrays of int64 and float64: Finite ln weights
    # returns masks, counts, ends, units, totals: See ``outer_masks`` and so on of
    #     `jtgpu.learn.dags.chain_records.SetTables`
    of_masks, of_counts, of_ends, of_units, of_totals = [], [], [], [], []
    for own, weights in zip(masks, log_weights, strict=True):
        order = np.argsort(-weights, kind="stable")
        sets, logs = own[order], weights[order]
        ends, units, counts = [0], [], np.empty(len(logs), np.int64)
        while ends[-1] < len(logs):
            begin = ends[-1]
            end = min(int(np.searchsorted(-logs, SPAN - logs[begin], side="right")), begin + MAX_SETS)
            units.append(float(logs[begin]) - LARGEST)
            counts[begin:end] = np.rint(exps(logs[begin:end] - units[-1])).astype(np.int64)
            ends.append(end)
        totals = [_log_total(logs[begin:]) for begin in ends[:-1]]
        of_masks.append(sets)
        of_counts.append(counts)
        of_ends.append(np.array(ends, np.int64))
        of_units.append(np.array(units, np.float64))
        of_totals.append(np.array(totals, np.float64))
    width = max(map(len, of_units), default=0)
    ends_of = np.array([np.pad(ends, (0, width + 1 - len(ends)), mode="edge") for ends in of_ends], np.int64)
    return (
        padded(of_masks, 0), padded(of_counts, 0), ends_of.reshape(len(of_masks), width + 1), padded(of_units, 0.0),
        padded(of_totals, -np.inf),
    )  # fmt: skip


_draws = loops("jtgpu.learn.dags.loops.outer_sets")

ANY = -1  # in place of a set that a parent set must meet: no such condition


def table_bytes(n: int, k: int) -> int:
    """Memory of the tables of sums of n variables with k candidate parents each."""
    return 8 * n * (k + 2) << max(k - 1, 0)


def set_tables(
    tables: CandidateTables,
    outer: OuterSets | None = None,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> SetTables:
    """Compute the tables of sums."""
    # outer: Of the same candidates. Default: only candidates are possible parents.
    # raises TableTooLarge: If they exceed the memory limit; the message says how many candidates fit.
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
    log_factorials = np.cumsum([0.0, *(log(i) for i in range(1, n + 1))])
    if outer is None:
        outer = OuterSets(tables.candidates, [np.empty(0, np.int64)] * n, [np.empty(0)] * n)
    outer_masks, counts, ends, units, totals = segments(outer.masks, outer.log_weights)
    sums = tables.sums(threads)
    ratios = totals[:, 0] - sums[:, -1] if totals.shape[1] else np.full(n, -np.inf)
    return SetTables(
        np.ascontiguousarray(outer.parents), sums, tables.hits(threads), *sorted_sets(tables, outer), outer_masks,
        counts, ends, units, totals, ratios, log_factorials,
    )  # fmt: skip


def sorted_sets(
    tables: CandidateTables, outer: OuterSets | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The parent sets of each variable as bits of its possible parents, by descending weight, and the ln weights."""
    # returns masks, weights: (n, M) ndarray: -inf where a variable has fewer sets
    masks, weights = np.broadcast_to(tables.masks, tables.log_weights.shape), tables.log_weights
    if outer is not None:
        masks = np.concatenate([masks, padded(outer.masks, 0)], axis=1)
        weights = np.concatenate([weights, padded(outer.log_weights, -np.inf)], axis=1)
    order = np.argsort(-weights, axis=1, kind="stable")
    return np.take_along_axis(masks, order, axis=1), np.take_along_axis(weights, order, axis=1)


def draw_sets(
    masks: NDArray[np.int64],
    weights: NDArray[np.float64],
    before: NDArray[np.int64],
    met: NDArray[np.int64],
    log_totals: NDArray[np.float64],
    u: NDArray[np.float64],
    threads: int | None = None,
) -> NDArray[np.int64]:
    """Draw parent sets of all variables."""
    # masks, weights: (n, M) ndarray: See `sorted_sets`
    # before, met: (n, D) ndarray of int64: Each set is within the candidates `before` of its variable and has a member
    #     in `met`, unless that is `ANY`
    # log_totals: (n, D) ndarray of float64: ln of the total weight of these sets
    # u: (n, D) ndarray of float64: Uniform random numbers
    # returns (n, D) ndarray of int64: Bits of the candidates.
    found = np.empty_like(before)

    def draw(v: int) -> None:
        _draws.draw_sets(masks[v], weights[v], before[v], met[v], log_totals[v], u[v], found[v])

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        list(pool.map(draw, range(len(before))))
    return found
