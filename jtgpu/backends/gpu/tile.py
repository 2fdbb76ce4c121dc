"""How warps cover a contraction of a single case: tiles of outputs a lane, and lanes, warps and parts that share a sum.

Each engine of single cases has a time model of its own; the ways that are compared are listed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from .lower import OUT, A, B, Loop, mirrored

# The GPU that the engines' time models were fitted on: an NVIDIA H100 SXM5.

REFERENCE_SMS = 132  # its streaming multiprocessors: shares of a whole GPU are scaled by those of the GPU in use
WARPS = 8  # of a block of the level kernels
SECTOR = 32  # bytes of a memory sector
FULL_LINE = 8  # sectors of 32 neighbouring doubles, the unit of a load's cost
MIN_COST = 0.25  # of a load whose lanes all read the same sector


class Tiling(NamedTuple):
    """How warps cover a contraction."""

    shape: tuple[int, int]  # outputs of a lane along sides M (axes of A and the output) and N (of B and the output)
    unroll: int  # steps whose loads are issued together
    m_axis: int  # the loops of the sides; -1: none
    n_axis: int
    log_lanes: int  # log2 of the lanes that share a sum
    wide: bool  # whether the warps of a block share sums too
    splits: int  # parts into which a sum is divided: of blocks where `wide`, else of warps
    n_tiles: int  # of the whole contraction
    n_units: int  # warps' tasks, or blocks' where `wide`
    latency: float  # of the slowest unit, by the time model
    share: float  # of the whole device's time
    again: Tiling | None = None  # how a second contraction adds the parts of sums

    @property
    def sides(self) -> dict[int, int]:
        """Outputs of a tile along the loops of its sides."""
        return {self.m_axis: self.shape[0], self.n_axis: self.shape[1]}

    @property
    def whole_latency(self) -> float:
        """From the inputs to the output."""
        return self.latency + (self.again.latency if self.again else 0.0)

    def cost(self, weight: float) -> float:
        """The objective of the choice; `weight`: of the whole device's time against a unit's."""
        return self.whole_latency + weight * (self.share + (self.again.share if self.again else 0.0))


class TileWork(NamedTuple):
    """The work of one way to cover a contraction."""

    shape: tuple[int, int]
    unroll: int
    log_lanes: int
    wide: bool
    splits: int
    steps: int  # of a lane
    loads: float  # of a lane's step, in lines
    n_units: int
    n_out: int  # outputs of the contraction


class TimeModel(Protocol):
    """The time model of an engine."""

    shapes: Iterable[tuple[int, int, int]]  # a tile's sides, and the steps whose loads are issued together
    one_load: float  # lines that each output on side N costs where there is no B

    def shared(self, n_steps: int) -> list[tuple[int, bool, int]]:
        """Sums of so many steps that more than the lanes of a warp share: lanes' log2, `wide`, splits."""

    def times(self, work: TileWork) -> tuple[float, float]:
        """Latency and share."""

    def again(self, n_out: int, splits: int) -> Tiling | None:
        """How a second contraction adds the parts of sums; None: the first one does."""


class TiledStep(NamedTuple):
    """How a contraction is computed."""

    loops: tuple[Loop, ...]
    ins: tuple[int, ...]  # in the order A, B
    tiling: Tiling


def in_better_order(
    loops: tuple[Loop, ...], ins: tuple[int, ...], weight: float,
    best: Callable[[tuple[Loop, ...], bool, float], Tiling],
) -> TiledStep:  # fmt: skip
    """The best tiling, with the better of the two orders of the inputs."""
    two = len(ins) == 2
    choice = TiledStep(loops, ins, best(loops, two, weight))
    if two:
        other = TiledStep(mirrored(loops), ins[::-1], best(mirrored(loops), two, weight))
        if other.tiling.cost(weight) < choice.tiling.cost(weight):
            return other
    return choice


@lru_cache(maxsize=16384)
def candidates(loops: tuple[Loop, ...], two: bool, model: TimeModel) -> tuple[Tiling, ...]:
    """All tilings that are considered; `two`: whether there is a B."""
    n_out = math.prod(n for n, s in loops if s[OUT])
    n_steps = math.prod(n for n, s in loops if not s[OUT])
    sharings = [(log, False, 1) for log in range(6) if log == 0 or n_steps * 2 > 1 << log] + model.shared(n_steps)
    tilings: list[Tiling] = []
    for tm, tn, unroll in model.shapes:
        m, n = side_axis(loops, A, B, tm), side_axis(loops, B, A, tn)
        if (tm > 1 and (m < 0 or loops[m][0] < tm)) or (tn > 1 and (n < 0 or loops[n][0] < tn)):
            continue
        tiles = n_out
        for axis, t in ((m, tm), (n, tn)):
            if axis >= 0:
                tiles = tiles // loops[axis][0] * -(-loops[axis][0] // t)
        spread = sectors(loops, (m, tm), (n, tn))
        for log, wide, splits in sharings:
            steps = -(-n_steps // ((WARPS if wide else 1) * splits << log))
            loads = tm * spread[log][0] + tn * (spread[log][1] if two else model.one_load)
            units = -(-tiles // (32 >> log)) * splits
            times = model.times(TileWork((tm, tn), unroll, log, wide, splits, steps, loads, units, n_out))
            again = model.again(n_out, splits) if splits > 1 else None
            tilings.append(Tiling((tm, tn), unroll, m, n, log, wide, splits, tiles, units, *times, again))
    return tuple(tilings)


def side_axis(loops: Sequence[Loop], inside: int, outside: int, elements: int) -> int:
    """The axis for a side of a tile: the one that wastes fewest elements, then the slowest; -1 if there is none."""
    # inside, outside: The input that has the axis, and the one that does not
    # elements: Outputs of the tile along the side
    if elements == 1:
        return -1
    fits = [i for i, (_, s) in enumerate(loops) if s[OUT] and s[inside] and not s[outside]]
    return min(fits, key=lambda i: (-(-loops[i][0] // elements) * elements / loops[i][0], i), default=-1)


@lru_cache(maxsize=4096)
def sectors(
    loops: tuple[Loop, ...], m: tuple[int, int], n: tuple[int, int]
) -> tuple[tuple[float, float], ...]:
    """Cost of a warp's load of A and of B, 1 for 32 neighbouring doubles, if 2^log lanes share a sum, log = 0..5."""
    # m, n: (int, int): Axis and elements of each side of a tile; axis -1: none
    sides = dict((m, n))
    kept = [(-(-extent // sides.get(i, 1)), s) for i, (extent, s) in enumerate(loops) if s[OUT]]
    summed = [x for x in loops if not x[1][OUT]]
    offsets = [(_first_offsets(kept, t), _first_offsets(summed, t)) for t in (A, B)]
    made = []
    for log in range(6):
        touched = [
            {(x + y) * 8 // SECTOR for x in tiles[: 32 >> log] for y in steps[: 1 << log]}
            for tiles, steps in offsets
        ]
        made.append((max(len(touched[0]) / FULL_LINE, MIN_COST), max(len(touched[1]) / FULL_LINE, MIN_COST)))
    return tuple(made)


def _first_offsets(loops: Sequence[Loop], table: int) -> list[int]:
    """Offsets of the first 32 configurations, the last axis fastest."""
    at = [0]
    for n, s in reversed(loops):
        at = [x + i * s[table] for i in range(min(n, -(-32 // len(at)))) for x in at]
        if len(at) >= 32:
            break
    return at[:32]
