"""Which axis a tile lies along, and how many memory sectors a warp's loads touch; for both engines' time models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..program.contractions import OUT, A, B, Loop
from ..program.layout import SECTOR

FULL_LINE = 8  # sectors of 32 neighbouring doubles, the unit of a load's cost
MIN_COST = 0.25  # of a load whose lanes all read the same sector


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
    loops: tuple[Loop, ...], m: tuple[int, int], n: tuple[int, int], cell_bytes: int = 8
) -> tuple[tuple[float, float], ...]:
    """Cost of a warp's load of A and of B, 1 for 32 neighbouring doubles, if 2^log lanes share a sum, log = 0..5."""
    # m, n: (int, int): Axis and elements of each side of a tile; axis -1: none
    sides = dict((m, n))
    kept = [(-(-extent // sides.get(i, 1)), s) for i, (extent, s) in enumerate(loops) if s[OUT]]
    summed = [x for x in loops if not x[1][OUT]]
    offsets = [(first_offsets(kept, t), first_offsets(summed, t)) for t in (A, B)]
    made = []
    for log in range(6):
        touched = [
            {(x + y) * cell_bytes // SECTOR for x in tiles[: 32 >> log] for y in steps[: 1 << log]}
            for tiles, steps in offsets
        ]
        made.append((max(len(touched[0]) / FULL_LINE, MIN_COST), max(len(touched[1]) / FULL_LINE, MIN_COST)))
    return tuple(made)


def first_offsets(loops: Sequence[Loop], table: int) -> list[int]:
    """Offsets of the first 32 configurations, the last axis fastest."""
    at = [0]
    for n, s in reversed(loops):
        at = [x + i * s[table] for i in range(min(n, -(-32 // len(at)))) for x in at]
        if len(at) >= 32:
            break
    return at[:32]
