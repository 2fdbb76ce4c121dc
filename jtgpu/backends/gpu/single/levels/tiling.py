"""How threads cover a contraction in the level engine: a tile of outputs a thread, lanes or warps that share a sum.

The choice follows a time model (`Tiling.cost`): how long the slowest thread of a contraction takes, and how much of
the whole GPU the contraction takes. Balancing by entries instead is wrong by factors of six (the blocks of a level
then run between 10,000 and 400,000 cycles).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ...program.contractions import OUT, A, B, Loop
from ...program.structs import WARPS
from ..memory_traffic import sectors, side_axis

# The time model, in nanoseconds on the reference device. Latency: one trip to L2 and back for each batch of unrolled
# steps, a shuffle for each exchange of `fold`. Share: loads, and threads' fixed work, divided by what the whole device
# does in a nanosecond. A block takes 3 us from its first instruction to its last however little it computes, and a
# multiprocessor holds 2 or 3, so a thread is expensive.
L2_TRIP = 330.0
INSTRUCTION = 1.5  # of a warp that has its scheduler almost to itself
LOAD_CODE, ADD_CODE, STORE_CODE, KEEP_CODE, FOLD_CODE = 6, 2, 10, 25, 12  # instructions for one of each
WIDE_STEP = 250.0  # more if the warps of a block share a sum
SPLIT_STEP = 1300.0  # more if blocks share a sum
LOAD_SHARE = 1 / 800  # a double loaded by a lane
THREAD_SHARE = {False: 1 / 34, True: 1 / 22}  # a thread's fixed work; of a tile of many registers
SHAPES = {(1, 1): 4, (4, 1): 2, (2, 2): 2, (4, 2): 2, (4, 4): 1}  # tile -> steps whose loads are issued together
HEAVY = frozenset([(4, 2), (4, 4)])  # tiles that take many registers
MIN_WIDE_LOG = 3  # log2 of the lanes that share a sum, from which on warps may share it
MAX_SPLITS = 64


@dataclass(frozen=True)
class Tiling:
    """How threads cover a contraction."""

    # (int, int): Outputs of a thread along sides M (axes of A and the output) and N (of B and the output)
    shape: tuple[int, int]
    # m_axis, n_axis: The loops of the sides; -1: none
    m_axis: int
    n_axis: int
    log_lanes: int  # log2 of the lanes that share a sum
    wide: bool  # whether the warps of a block share sums too
    splits: int  # blocks that share a sum
    n_tiles: int
    # latency, share: Nanoseconds of the slowest thread, and of the whole device's time
    latency: float
    share: float

    @property
    def sides(self) -> dict[int, int]:
        """Outputs of a tile along the loops of its sides."""
        return {self.m_axis: self.shape[0], self.n_axis: self.shape[1]}

    @property
    def n_units(self) -> int:
        """Warps' tasks, or blocks' where `wide`."""
        groups = -(-self.n_tiles // (32 >> self.log_lanes))
        return groups * self.splits if self.wide else groups

    def cost(self, weight: float = 1.0) -> float:
        """What the choice minimises."""
        return self.latency + weight * self.share


@lru_cache(maxsize=4096)
def best_tiling(
    loops: tuple[Loop, ...], two: bool, weight: float = 1.0, cell_bytes: int = 8
) -> Tiling:
    """The cheapest tiling of a contraction; `weight`: of the whole device's time against a thread's."""
    n_out = math.prod(n for n, s in loops if s[OUT])
    n_steps = math.prod(n for n, s in loops if not s[OUT])
    best: Tiling | None = None
    for (tm, tn), unroll in SHAPES.items():
        m, n = side_axis(loops, A, B, tm), side_axis(loops, B, A, tn)
        if (tm > 1 and (m < 0 or loops[m][0] < tm)) or (tn > 1 and (n < 0 or loops[n][0] < tn)):
            continue
        tiles = n_out
        for axis, t in ((m, tm), (n, tn)):
            if axis >= 0:
                tiles = tiles // loops[axis][0] * -(-loops[axis][0] // t)
        spread = sectors(loops, (m, tm), (n, tn), cell_bytes)
        for log, wide, splits in _sharings(n_steps):
            lanes = (1 << log) * (WARPS if wide else 1) * splits
            steps = -(-n_steps // lanes)
            if lanes > 1 and n_steps * 2 <= lanes:
                continue
            loads = tm * spread[log][0] + (tn * spread[log][1] if two else 0.0)
            code = steps * ((tm + tn) * LOAD_CODE + tm * tn * ADD_CODE)
            code += tm * tn * KEEP_CODE + (tm * tn + log) * FOLD_CODE if log else tm * tn * STORE_CODE
            latency = L2_TRIP * (1 + -(-steps // unroll)) + INSTRUCTION * code
            latency += WIDE_STEP * wide + SPLIT_STEP * (splits > 1)
            threads = -(-tiles // (32 >> log)) * 32 * (WARPS if wide else 1) * splits
            share = threads * (steps * loads * LOAD_SHARE + THREAD_SHARE[(tm, tn) in HEAVY]) + n_out * LOAD_SHARE
            made = Tiling((tm, tn), m, n, log, wide, splits, tiles, latency, share)
            if best is None or made.latency + weight * made.share < best.latency + weight * best.share:
                best = made
    assert best is not None  # (1, 1) always fits
    return best


@lru_cache(maxsize=1024)
def _sharings(n_steps: int) -> tuple[tuple[int, bool, int], ...]:
    """(log2 of the lanes, wide, splits) that are considered for a sum of so many steps."""
    made = [(log, False, 1) for log in range(6) if log == 0 or n_steps > 1 << (log - 1)]
    for log in range(MIN_WIDE_LOG, 6):
        splits = 1
        while splits <= MAX_SPLITS and n_steps >= (WARPS * splits) << log:
            made.append((log, True, splits))
            splits *= 2
    return tuple(made)
