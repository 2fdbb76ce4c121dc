"""How warps cover a contraction in the dataflow engine, by a time model of its own.

A warp pays no launch, no barrier and no wait for a level: it pays for instructions, loads, and one trip through L2 for
every batch of loads that depends on the one before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..lower import Loop
from ..tile import TileWork, Tiling, candidates

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
SPLITS = (2, 4, 8, 16, 32, 64)
ENTER_SHARE = 4  # entries of a factor that a lane computes


class Unit(NamedTuple):
    """Cost of a node of the work graph."""

    n_units: int  # warps
    latency: float  # microseconds of one of them
    share: float  # microseconds of the whole device's time


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


class DataflowModel:
    """The time model, in microseconds."""

    shapes = tuple(SHAPES | LONGER)
    one_load = 0.25

    def shared(self, n_steps: int) -> list[tuple[int, bool, int]]:
        return [(5, False, s) for s in SPLITS if n_steps >= 4 * s << 5]

    def times(self, work: TileWork) -> tuple[float, float]:
        (tm, tn), unroll, log = work.shape, work.unroll, work.log_lanes
        batch, tail = (SHAPES | LONGER)[tm, tn, unroll]
        batches = -(-work.steps // unroll)
        code = UNIT_CODE + batches * (STEP_CODE + unroll * ((tm + tn) * LOAD_CODE + tm * tn))
        code += FOLD_CODE * (tm * tn + log if log else 0) + STORE_CODE * tm * tn
        latency = HAND_OVER + batch * (batches - 1) + tail + FOLD * log + EXTRA_LOAD * unroll
        loaded = 32 * work.steps * work.loads / LOADED
        return latency, work.n_units * max(code / ISSUED, loaded, (READY + latency) / RESIDENT_WARPS)

    def again(self, n_out: int, splits: int) -> Tiling:
        return dataflow_tiling(parts_of(n_out, splits), False, 1.0)


MODEL = DataflowModel()


@lru_cache(maxsize=16384)
def dataflow_tiling(loops: tuple[Loop, ...], two: bool, weight: float, longer: bool = False) -> Tiling:
    """The cheapest tiling; `longer`: whether longer batches of loads are among the candidates."""
    choices = [t for t in candidates(loops, two, MODEL) if longer or (*t.shape, t.unroll) not in LONGER]
    return min(choices, key=lambda t: t.cost(weight))
