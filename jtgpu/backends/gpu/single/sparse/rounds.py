"""Lists of products dealt out to lanes: an output's list over 2^log lanes, 32 lanes a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["Rounds", "lanes_of", "rounds_of"]


@dataclass(frozen=True)
class Rounds:
    """R rounds of a warp for J outputs with K products in all, numbered output after output.

    Attributes
    ----------
    log : (R,) ints
        log2 of the lanes that share an output.
    n_rows : (R,) ints
        The most products of a lane.
    out_round, out_lane : (J,) ints
        Where each output is: its first lane.
    round, row, lane : (K,) ints
        Where each product goes.
    """

    log: Ints
    n_rows: Ints
    out_round: Ints
    out_lane: Ints
    round: Ints
    row: Ints
    lane: Ints


def lanes_of(count: Ints, most: int) -> tuple[Ints, Ints]:
    """For outputs with lists so long: log2 of the lanes that share each, so that a lane has `most` products or 32
    lanes share; and the most products of a lane."""
    log = np.zeros(len(count), np.int64)
    while (long := (count > most << log) & (log < 5)).any():
        log[long] += 1
    return log, -(-count // (1 << log))


def rounds_of(count: Ints, most: int) -> Rounds:
    """Deal lists out, in rounds of like lengths; see `lanes_of`."""
    log, per_lane = lanes_of(count, most)
    order = np.lexsort((np.arange(len(count)), -per_lane, -log))
    out_round, out_lane = np.zeros(len(count), np.int64), np.zeros(len(count), np.int64)
    n_rounds = 0
    for size in range(5, -1, -1):
        group = order[log[order] == size]
        place = np.arange(len(group))
        out_round[group] = n_rounds + (place >> 5 - size)
        out_lane[group] = (place & (32 >> size) - 1) << size
        n_rounds += -(-len(group) // (32 >> size))
    round_log, n_rows = np.zeros(n_rounds, np.int64), np.zeros(n_rounds, np.int64)
    round_log[out_round] = log
    np.maximum.at(n_rows, out_round, per_lane)
    output = np.repeat(np.arange(len(count)), count)
    k = np.arange(len(output)) - (np.cumsum(count) - count)[output]
    sizes = log[output]
    lane = out_lane[output] + (k & (1 << sizes) - 1)
    return Rounds(round_log, n_rows, out_round, out_lane, out_round[output], k >> sizes, lane)
