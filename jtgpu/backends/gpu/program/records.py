"""Records of contractions for the kernels of single cases: struct Op of cuda/common/types.cuh and its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .contractions import OUT, A, B, Loop, offsets
from .structs import DIGIT, INLINE_DIGITS, NONE, OP, STEP

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGIT_NAMES = [[f"digit{d}_{name}" for name in DIGIT.names or ()] for d in range(INLINE_DIGITS)]


class Tile(Protocol):
    """How threads cover a contraction, as far as its record describes it."""

    @property
    def sides(self) -> Mapping[int, int]:
        """Outputs of a tile along the loops on which its sides M and N lie."""

    @property
    def m_axis(self) -> int:
        """Loop of side M; -1: none."""

    @property
    def n_axis(self) -> int:
        """Loop of side N; -1: none."""

    @property
    def n_tiles(self) -> int:
        """Tiles of the whole contraction."""

    @property
    def log_lanes(self) -> int:
        """log2 of the lanes that share a sum."""

    @property
    def splits(self) -> int:
        """Parts into which a sum is divided."""


class RecordPool:
    """Digits and summed offsets that records refer to by position; equal lists are stored once."""

    def __init__(self) -> None:
        self._digits: list[tuple[int, ...]] = []
        self._steps: list[NDArray[Any]] = []
        self._n_steps = 0
        self._digits_at: dict[tuple[tuple[int, ...], ...], int] = {}
        self._steps_at: dict[tuple[Loop, ...], int] = {}

    def add_digits(self, digits: tuple[tuple[int, ...], ...]) -> int:
        """Position of a list of DIGIT rows."""
        if digits not in self._digits_at:
            self._digits_at[digits] = len(self._digits)
            self._digits += digits
        return self._digits_at[digits]

    def add_steps(self, summed: tuple[Loop, ...]) -> int:
        """Position of the offsets in A and B of every configuration of the summed loops."""
        key = tuple((n, (0, *s[1:])) for n, s in summed)
        if key not in self._steps_at:
            self._steps_at[key] = self._n_steps
            made = np.zeros(math.prod(n for n, _ in summed), STEP)
            made["a"], made["b"] = offsets(summed, A), offsets(summed, B)
            self._steps.append(made)
            self._n_steps += len(made)
        return self._steps_at[key]

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """All digits (D,) DIGIT and all offsets (K,) STEP."""
        steps = np.concatenate(self._steps) if self._steps else np.zeros(0, STEP)
        return np.array(self._digits, DIGIT), steps


def contraction_record(
    pool: RecordPool, loops: tuple[Loop, ...], tile: Tile, cells: Sequence[int], *, blocks: bool = False
) -> dict[str, int]:
    """Fields of a contraction's OP record, but for those that only one engine has."""
    # loops: tuple of Loop: Joint axes, slowest first
    # cells: (int, int, int): First cells of A, B and the output in the arena
    # blocks: Whether the outputs of a tile's side are neighbours, as in blocks for the tensor cores, and not a stride
    #     apart
    sides = tile.sides
    places: dict[int, int] = {}
    digits: list[tuple[int, ...]] = []
    for i in (i for i in reversed(range(len(loops))) if loops[i][1][OUT]):
        n, s = loops[i]
        extent = -(-n // sides[i]) if i in sides else n
        if extent > 1:
            places[i] = len(digits)
            step = sides[i] if i in sides and blocks else 1
            digits.append((extent, *reciprocal(extent), *(step * x for x in s)))
    summed = tuple(x for x in loops if not x[1][OUT])
    op = dict(zip(("a", "b", "out"), cells, strict=True))
    op |= {"n_tiles": tile.n_tiles, "n_steps": math.prod(n for n, _ in summed), "steps": pool.add_steps(summed)}
    op |= {"digits": pool.add_digits(tuple(digits[INLINE_DIGITS:])), "n_digits": len(digits)}
    op |= {"log_lanes": tile.log_lanes, "splits": tile.splits}
    for name, axis, table in (("m", tile.m_axis, A), ("n", tile.n_axis, B)):
        side = {"digit": NONE, "extent": 1, "step": 1, "stride": 0}
        if axis >= 0:
            n, strides = loops[axis]
            step = 1 if blocks else -(-n // sides[axis])
            side = {"digit": places.get(axis, NONE), "extent": n, "step": step, "stride": strides[table]}
            op[f"out_{name}"] = step * strides[OUT]
        op |= {f"{name}_{key}": value for key, value in side.items()}
    for d in range(INLINE_DIGITS):
        digit = digits[d] if d < len(digits) else (1, 0, 0, 0, 0, 0)
        op |= zip(DIGIT_NAMES[d], digit, strict=True)
    return op


def record_array(ops: Sequence[Mapping[str, int]]) -> NDArray[Any]:
    """(N,) OP of records as mappings; fields that a mapping does not name are 0."""
    made = np.zeros(len(ops), OP)
    for name in OP.names or ():
        made[name] = [op.get(name, 0) for op in ops]
    return made


def reciprocal(extent: int) -> tuple[int, int]:
    """Multiplier and shift that divide by a constant: ``n // extent == (n * multiplier >> 32) >> shift``.

    For 0 <= n < 2^31 and extent >= 2 (Granlund and Montgomery, "Division by invariant integers using
    multiplication", PLDI 1994).
    """
    log = (extent - 1).bit_length()
    return (1 << 31 + log) // extent + 1, log - 1
