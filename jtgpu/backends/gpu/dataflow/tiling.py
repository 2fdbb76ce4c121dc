"""How warps cover a contraction in the dataflow engine, by a time model of its own.

A warp pays no launch, no barrier and no wait for a level: it pays for instructions, loads, and one trip through L2 for
every batch of loads that depends on the one before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ..case import sectors, side_axis
from ..lower import OUT, A, B, Loop

MAX_WARPS = 16  # of a block, of which a multiprocessor holds one: MAX_WARPS of dataflow.cu
# Weight of the whole GPU's time against a contraction's own, on the critical path and elsewhere
CRITICAL_WEIGHT, OTHER_WEIGHT = 3.0, 8.0

# The time model, in microseconds on the reference device: fitted to the times of all units of Diabetes, Link, Munin4.
HAND_OVER = 0.65  # from a warp's last store until the numbers are in another warp's registers
READY = 0.3  # of a warp before it loads its inputs: record, digits, offsets of the first steps
FOLD = 0.035  # of an exchange between lanes
EXTRA_LOAD = 0.01  # of one more step in a batch
ISSUED = 5.4e5  # instructions of warps that the whole device issues
RESIDENT_WARPS = 2112  # of the whole device
LOADED = 8e5  # doubles that the whole device loads, neighbours in one sector
UNIT_CODE, STEP_CODE, LOAD_CODE, FOLD_CODE, STORE_CODE = 120, 10, 4, 12, 14  # instructions
# A tile's sides, and the steps whose loads are issued together: microseconds of each further batch of loads, and from
# the last sum to the last store.
SHAPES = {
    (1, 1, 4): (0.45, 0.15), (4, 1, 2): (0.45, 0.20), (2, 2, 2): (0.45, 0.20), (4, 2, 2): (0.65, 0.40),
    (4, 4, 1): (0.80, 0.80),
}  # fmt: skip
LONGER = {(1, 1, 8): (0.50, 0.18), (2, 2, 4): (0.55, 0.25)}  # longer batches of loads
SPLITS = (1, 2, 4, 8, 16, 32, 64)
ENTER_SHARE = 4  # entries of a factor that a lane computes


@dataclass(frozen=True)
class Unit:
    """Cost of a node of the work graph."""

    n_units: int  # warps
    latency: float  # microseconds of one of them
    share: float  # microseconds of the whole device's time


@dataclass(frozen=True)
class DataflowTiling:
    """How warps cover a contraction."""

    # (int, int): Outputs of a lane along sides M (axes of A and the output) and N (of B and the
    #     output)
    shape: tuple[int, int]
    unroll: int  # steps whose loads are issued together
    # m_axis, n_axis: The loops of the sides; -1: none
    m_axis: int
    n_axis: int
    log_lanes: int  # log2 of the lanes that share a sum
    splits: int  # parts into which a sum is divided, each a unit of its own; a second contraction adds them
    n_tiles: int
    unit: Unit
    again: DataflowTiling | None = None  # how the parts of a sum are added

    @property
    def sides(self) -> dict[int, int]:
        """Outputs of a tile along the loops of its sides."""
        return {self.m_axis: self.shape[0], self.n_axis: self.shape[1]}

    @property
    def latency(self) -> float:
        """Microseconds from the inputs to the output."""
        return self.unit.latency + (self.again.unit.latency if self.again else 0.0)

    @property
    def share(self) -> float:
        """Microseconds of the whole device's time."""
        return self.unit.share + (self.again.unit.share if self.again else 0.0)


def parts_of(n_out: int, splits: int) -> tuple[Loop, ...]:
    """The contraction that adds parts of sums."""
    return ((splits, (0, n_out, 0)), (n_out, (1, 1, 0)))


def enter_unit(n_entries: int) -> Unit:
    """Cost of an evidence factor."""
    units = -(-n_entries // (32 * ENTER_SHARE))
    return Unit(units, 0.8, units * 150 / ISSUED)


def answer_unit() -> Unit:
    """Cost of a posterior, written to the host."""
    return Unit(1, HAND_OVER + 0.3, 150 / ISSUED)


@lru_cache(maxsize=16384)
def dataflow_tiling(loops: tuple[Loop, ...], two: bool, weight: float, longer: bool = False) -> DataflowTiling:
    """The cheapest tiling: least sum of a unit's time and `weight` times the whole device's time.

    `longer`: whether longer batches of loads are among the candidates.
    """
    choices = [t for t in _candidates(loops, two) if longer or (*t.shape, t.unroll) not in LONGER]
    return min(choices, key=lambda t: t.latency + weight * t.share)


@lru_cache(maxsize=16384)
def _candidates(loops: tuple[Loop, ...], two: bool) -> tuple[DataflowTiling, ...]:
    """All tilings that are considered."""
    n_out = math.prod(n for n, s in loops if s[OUT])
    n_steps = math.prod(n for n, s in loops if not s[OUT])
    tilings: list[DataflowTiling] = []
    for (tm, tn, unroll), (batch, tail) in (SHAPES | LONGER).items():
        m, n = side_axis(loops, A, B, tm), side_axis(loops, B, A, tn)
        if (tm > 1 and (m < 0 or loops[m][0] < tm)) or (tn > 1 and (n < 0 or loops[n][0] < tn)):
            continue
        tiles = n_out
        for axis, t in ((m, tm), (n, tn)):
            if axis >= 0:
                tiles = tiles // loops[axis][0] * -(-loops[axis][0] // t)
        spread = sectors(loops, (m, tm), (n, tn))
        for log, splits in _sharings(n_steps):
            steps = -(-n_steps // (splits << log))
            batches = -(-steps // unroll)
            loads = tm * spread[log][0] + (tn * spread[log][1] if two else 0.25 * tn)
            code = UNIT_CODE + batches * (STEP_CODE + unroll * ((tm + tn) * LOAD_CODE + tm * tn))
            code += FOLD_CODE * (tm * tn + log if log else 0) + STORE_CODE * tm * tn
            warps = -(-tiles // (32 >> log)) * splits
            latency = HAND_OVER + batch * (batches - 1) + tail + FOLD * log + EXTRA_LOAD * unroll
            share = warps * max(code / ISSUED, 32 * steps * loads / LOADED, (READY + latency) / RESIDENT_WARPS)
            again = dataflow_tiling(parts_of(n_out, splits), False, 1.0) if splits > 1 else None
            unit = Unit(warps, latency, share)
            tilings.append(DataflowTiling((tm, tn), unroll, m, n, log, splits, tiles, unit, again))
    return tuple(tilings)


@lru_cache(maxsize=1024)
def _sharings(n_steps: int) -> tuple[tuple[int, int], ...]:
    """(log2 of the lanes, splits) that are considered for a sum of so many steps."""
    lanes = [(log, 1) for log in range(6) if log == 0 or n_steps * 2 > 1 << log]
    return (*lanes, *((5, s) for s in SPLITS if s > 1 and n_steps >= 4 * s << 5))
