"""Records of contractions for the kernels of single cases: struct Op of cuda/common/types.cuh and its arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.structs import struct
from ..lower import OUT, A, B, Loop, offsets
from ..tile import Tiling

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE = 0xFFFFFFFF
REALS = ("float64", "float32")  # types of an arena
SLOT = struct("common/types.cuh", "Slot")
DIGIT = struct("common/types.cuh", "Digit")
STEP = np.dtype([("a", np.uint32), ("b", np.uint32)])  # a pair of offsets, uint2
TASK = struct("common/types.cuh", "Task")
OP = struct("common/types.cuh", "Op")
INLINE_DIGITS = OP["first"].shape[0]  # digits of a contraction that are part of its record
KNOWN = struct("single/levels.cu", "Known")


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


def contraction_record(pool: RecordPool, loops: tuple[Loop, ...], tile: Tiling, cells: Sequence[int]) -> dict[str, Any]:
    """Fields of a contraction's OP record, but for those that only one engine has."""
    # loops: tuple of Loop: Joint axes, slowest first
    # cells: (int, int, int): First cells of A, B and the output in the arena
    sides = tile.sides
    places: dict[int, int] = {}
    digits: list[tuple[int, ...]] = []
    for i in (i for i in reversed(range(len(loops))) if loops[i][1][OUT]):
        n, s = loops[i]
        extent = -(-n // sides[i]) if i in sides else n
        if extent > 1:
            places[i] = len(digits)
            digits.append((extent, *reciprocal(extent), *s))
    summed = tuple(x for x in loops if not x[1][OUT])
    op: dict[str, Any] = dict(zip(("a", "b", "out"), cells, strict=True))
    op |= {"n_tiles": tile.n_tiles, "n_steps": math.prod(n for n, _ in summed), "steps": pool.add_steps(summed)}
    op |= {"digits": pool.add_digits(tuple(digits[INLINE_DIGITS:])), "n_digits": len(digits)}
    op |= {"log_lanes": tile.log_lanes, "splits": tile.splits}
    for name, axis, table in (("m", tile.m_axis, A), ("n", tile.n_axis, B)):
        op[name] = (NONE, 1, 1, 0)
        if axis >= 0:
            n, strides = loops[axis]
            step = -(-n // sides[axis])
            op[name] = (places.get(axis, NONE), n, step, strides[table])
            op[f"out_{name}"] = step * strides[OUT]
    op["first"] = [*digits, *[(1, 0, 0, 0, 0, 0)] * INLINE_DIGITS][:INLINE_DIGITS]
    return op


def record_array(ops: Sequence[dict[str, Any]]) -> NDArray[Any]:
    """(N,) OP of records as mappings; fields that a mapping does not name are 0."""
    nothing: dict[str, Any] = dict.fromkeys(OP.names or (), 0)
    nothing |= {"m": (0,) * 4, "n": (0,) * 4, "first": [(0,) * 6] * INLINE_DIGITS}
    return np.array([tuple((nothing | op).values()) for op in ops], OP)


def reciprocal(extent: int) -> tuple[int, int]:
    """Multiplier and shift that divide by a constant: ``n // extent == (n * multiplier >> 32) >> shift``.

    For 0 <= n < 2^31 and extent >= 2 (Granlund and Montgomery, "Division by invariant integers using
    multiplication", PLDI 1994).
    """
    log = (extent - 1).bit_length()
    return (1 << 31 + log) // extent + 1, log - 1
