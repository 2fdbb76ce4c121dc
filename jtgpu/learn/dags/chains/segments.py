"""Lists of weighted sets in segments, in each of which weights are whole numbers of a common unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....util.elementary import exps, log

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
