"""How warps are laid over the contractions of the engine without levels, by a time model of its own.

A warp pays no launch, no barrier and no wait for a level there: it pays for instructions, loads, and one trip through
L2 for every batch of loads that waits for the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...program.contractions import OUT, A, B, Loop

__all__ = [
    "ENTER_SHARE",
    "HAND_OVER",
    "LONGER",
    "READY",
    "DataflowTiling",
    "Unit",
    "answer_unit",
    "dataflow_tiling",
    "enter_unit",
    "parts_of",
]

# Microseconds on an H100, from the time of every unit of Diabetes, Link and Munin4 (cuda/single/README.rst).
HAND_OVER = 0.65  # from a warp's last store to the same numbers in another warp's registers
READY = 0.3  # a warp before it looks for its inputs: record, digits, offsets of the first steps
FOLD = 0.035  # an exchange between lanes
EXTRA_LOAD = 0.01  # a step more in a batch
ISSUED = 5.4e5  # instructions of warps that the card issues
WARPS_THERE = 2112  # at a time
LOADED = 8e5  # doubles that it loads, neighbours in one sector
UNIT_CODE, STEP_CODE, LOAD_CODE, FOLD_CODE, STORE_CODE = 120, 10, 4, 12, 14  # instructions
# A tile, and the steps whose loads fly together: microseconds of a batch of loads after another, and from the last sum
# to the last store.
SHAPES = {
    (1, 1, 4): (0.45, 0.15),
    (4, 1, 2): (0.45, 0.20),
    (2, 2, 2): (0.45, 0.20),
    (4, 2, 2): (0.65, 0.40),
    (4, 4, 1): (0.80, 0.80),
}
LONGER = {(1, 1, 8): (0.50, 0.18), (2, 2, 4): (0.55, 0.25)}
BLOCK = 8  # outputs of a warp along a side, of a block for the tensor cores; four steps at once
# Blocks along the sides, fours of steps whose loads fly together.
BLOCKS = {(1, 1, 4): (0.50, 0.24), (1, 1, 8): (0.60, 0.28), (2, 1, 4): (0.55, 0.30), (2, 2, 2): (0.55, 0.40)}
BLOCK_STEPS = 4
LEAST_SIDE = 0.5  # of a block's outputs that an axis must have
MULTIPLY_CODE = 2
SPLITS = (1, 2, 4, 8, 16, 32, 64)
ENTER_SHARE = 4  # entries of a factor that a lane takes


@dataclass(frozen=True)
class Unit:
    """What a node of the graph of work costs: how many warps take part, how long one of them takes, and how much of
    the card all of them take, in microseconds."""

    n_units: int
    latency: float
    share: float


@dataclass(frozen=True)
class DataflowTiling:
    """How warps are laid over a contraction.

    Attributes
    ----------
    shape : (int, int)
        Outputs of a lane, or blocks of a warp, along sides M (axes of A and the output) and N (of B and the output).
    unroll : int
        Steps, or fours of steps, whose loads fly together.
    m_axis, n_axis : int
        The loops that the sides lie on; -1: none.
    log_lanes : int
        log2 of the lanes that share a sum.
    splits : int
        Parts that a sum is cut into, each another unit's; a second contraction adds them up.
    n_tiles : int
    unit : Unit
    again : DataflowTiling or None
        How the parts of a sum are added up.
    blocks : bool
        Whether a tile is blocks for the tensor cores, a warp's work.
    """

    shape: tuple[int, int]
    unroll: int
    m_axis: int
    n_axis: int
    log_lanes: int
    splits: int
    n_tiles: int
    unit: Unit
    again: DataflowTiling | None = None
    blocks: bool = False

    @property
    def sides(self) -> dict[int, int]:
        """Outputs of a tile along the loops that its sides lie on."""
        of = BLOCK if self.blocks else 1
        return {self.m_axis: of * self.shape[0], self.n_axis: of * self.shape[1]}

    @property
    def latency(self) -> float:
        """From the inputs to the output."""
        return self.unit.latency + (self.again.unit.latency if self.again else 0.0)

    @property
    def share(self) -> float:
        """Of the card, in microseconds."""
        return self.unit.share + (self.again.unit.share if self.again else 0.0)


def parts_of(n_out: int, splits: int) -> tuple[Loop, ...]:
    """The contraction that adds parts of sums up."""
    return ((splits, (0, n_out, 0)), (n_out, (1, 1, 0)))


def enter_unit(n_entries: int) -> Unit:
    """Evidence into a factor."""
    units = -(-n_entries // (32 * ENTER_SHARE))
    return Unit(units, 0.8, units * 150 / ISSUED)


def answer_unit() -> Unit:
    """A posterior, to the host."""
    return Unit(1, HAND_OVER + 0.3, 150 / ISSUED)


@lru_cache(maxsize=16384)
def dataflow_tiling(
    loops: tuple[Loop, ...], two: bool, weight: float, longer: bool = False, blocks: bool = False
) -> DataflowTiling:
    """The cheapest tiling: a unit's time, and `weight` times the share of the card; `longer`, `blocks`: batches of more
    loads, and blocks for the tensor cores, are among the choices."""
    choices = [t for t in _candidates(loops, two) if longer or (*t.shape, t.unroll) not in LONGER]
    if blocks and two:
        choices += _blocks(loops)
    return min(choices, key=lambda t: t.latency + weight * t.share)


@lru_cache(maxsize=16384)
def _candidates(loops: tuple[Loop, ...], two: bool) -> tuple[DataflowTiling, ...]:
    """All tilings worth a look."""
    n_out = math.prod(n for n, s in loops if s[OUT])
    n_steps = math.prod(n for n, s in loops if not s[OUT])
    found: list[DataflowTiling] = []
    for (tm, tn, unroll), (batch, tail) in (SHAPES | LONGER).items():
        m, n = _axis(loops, A, B, tm), _axis(loops, B, A, tn)
        if (tm > 1 and (m < 0 or loops[m][0] < tm)) or (tn > 1 and (n < 0 or loops[n][0] < tn)):
            continue
        tiles = n_out
        for axis, t in ((m, tm), (n, tn)):
            if axis >= 0:
                tiles = tiles // loops[axis][0] * -(-loops[axis][0] // t)
        sectors = _sectors(loops, m, n, tm, tn)
        for log, splits in _sharings(n_steps):
            steps = -(-n_steps // (splits << log))
            batches = -(-steps // unroll)
            loads = tm * sectors[log][0] + (tn * sectors[log][1] if two else 0.25 * tn)
            code = UNIT_CODE + batches * (STEP_CODE + unroll * ((tm + tn) * LOAD_CODE + tm * tn))
            code += FOLD_CODE * (tm * tn + log if log else 0) + STORE_CODE * tm * tn
            warps = -(-tiles // (32 >> log)) * splits
            latency = HAND_OVER + batch * (batches - 1) + tail + FOLD * log + EXTRA_LOAD * unroll
            share = warps * max(code / ISSUED, 32 * steps * loads / LOADED, (READY + latency) / WARPS_THERE)
            again = dataflow_tiling(parts_of(n_out, splits), False, 1.0) if splits > 1 else None
            unit = Unit(warps, latency, share)
            found.append(DataflowTiling((tm, tn), unroll, m, n, log, splits, tiles, unit, again))
    return tuple(found)


@lru_cache(maxsize=16384)
def _blocks(loops: tuple[Loop, ...]) -> tuple[DataflowTiling, ...]:
    """All ways of blocks for the tensor cores."""
    n_out = math.prod(n for n, s in loops if s[OUT])
    n_steps = math.prod(n for n, s in loops if not s[OUT])
    found: list[DataflowTiling] = []
    if n_steps < BLOCK_STEPS:
        return ()
    for (bm, bn, unroll), (batch, tail) in BLOCKS.items():
        m, n = _axis(loops, A, B, BLOCK * bm), _axis(loops, B, A, BLOCK * bn)
        if m < 0 or n < 0 or loops[m][0] < LEAST_SIDE * BLOCK * bm or loops[n][0] < LEAST_SIDE * BLOCK * bn:
            continue
        tiles = n_out
        for axis, outputs in ((m, BLOCK * bm), (n, BLOCK * bn)):
            tiles = tiles // loops[axis][0] * -(-loops[axis][0] // outputs)
        loads = bm * _block_sectors(loops, m, A) + bn * _block_sectors(loops, n, B)
        for splits in SPLITS:
            if splits > 1 and n_steps < 2 * BLOCK_STEPS * splits:
                break
            batches = -(-n_steps // (BLOCK_STEPS * splits * unroll))
            step = LOAD_CODE + (bm + bn) * LOAD_CODE + bm * bn * MULTIPLY_CODE
            code = UNIT_CODE + batches * (STEP_CODE + unroll * step) + 2 * STORE_CODE * bm * bn
            warps = tiles * splits
            latency = HAND_OVER + batch * (batches - 1) + tail
            loaded = 32 * unroll * batches * loads / LOADED
            share = warps * max(code / ISSUED, loaded, (READY + latency) / WARPS_THERE)
            again = dataflow_tiling(parts_of(n_out, splits), False, 1.0) if splits > 1 else None
            unit = Unit(warps, latency, share)
            found.append(DataflowTiling((bm, bn), unroll, m, n, 0, splits, tiles, unit, again, True))
    return tuple(found)


def _block_sectors(loops: tuple[Loop, ...], axis: int, table: int) -> float:
    """What a warp's load of a block of A or B costs, 1 for 32 neighbouring doubles."""
    n, s = loops[axis]
    steps = _first_offsets([x for x in loops if not x[1][OUT]], table)[:BLOCK_STEPS]
    return max(len({(i * s[table] + k) >> 2 for i in range(min(BLOCK, n)) for k in steps}) / 8, 0.25)


@lru_cache(maxsize=1024)
def _sharings(n_steps: int) -> tuple[tuple[int, int], ...]:
    """(log2 of the lanes, splits) worth a look for a sum of so many steps."""
    lanes = [(log, 1) for log in range(6) if log == 0 or n_steps * 2 > 1 << log]
    return (*lanes, *((5, s) for s in SPLITS if s > 1 and n_steps >= 4 * s << 5))


def _axis(loops: Sequence[Loop], inside: int, outside: int, elements: int) -> int:
    """The axis to lay a side's elements on: the one that wastes least, then the slowest."""
    if elements == 1:
        return -1
    fits = [i for i, (_, s) in enumerate(loops) if s[OUT] and s[inside] and not s[outside]]
    return min(fits, key=lambda i: (-(-loops[i][0] // elements) * elements / loops[i][0], i), default=-1)


@lru_cache(maxsize=4096)
def _sectors(loops: tuple[Loop, ...], m: int, n: int, tm: int, tn: int) -> tuple[tuple[float, float], ...]:
    """For 2^log lanes a sum, log = 0..5: what a warp's load of A and of B costs, 1 for 32 neighbouring doubles."""
    sides = {m: tm, n: tn}
    kept = [(-(-extent // sides.get(i, 1)), s) for i, (extent, s) in enumerate(loops) if s[OUT]]
    summed = [x for x in loops if not x[1][OUT]]
    place = [(_first_offsets(kept, t), _first_offsets(summed, t)) for t in (A, B)]
    made = []
    for log in range(6):
        cost = [
            max(len({(x + y) >> 2 for x in tiles[: 32 >> log] for y in steps[: 1 << log]}) / 8, 0.25)
            for tiles, steps in place
        ]
        made.append((cost[0], cost[1]))
    return tuple(made)


def _first_offsets(loops: Sequence[Loop], table: int) -> list[int]:
    """Offsets of the first 32 configurations, the last axis fastest."""
    at = [0]
    for n, s in reversed(loops):
        at = [x + i * s[table] for i in range(min(n, -(-32 // len(at)))) for x in at]
        if len(at) >= 32:
            break
    return at[:32]
