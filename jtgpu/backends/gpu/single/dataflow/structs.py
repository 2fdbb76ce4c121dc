"""The records of flow.cu: those of contractions as types.cuh has them, others in the same places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...program.structs import DIGIT, INLINE_DIGITS, NONE, OP, STEP
from ...program.tiling import OUT, A, B, Loop, offsets
from .tiling import BLOCKS, LONGER, FlowTiling

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ALWAYS", "ANSWER_SHAPE", "AWAITED", "ENTER_SHAPE", "ROOT_SHAPE", "TENSOR", "RecordMaker"]

ENTER_SHAPE, ANSWER_SHAPE, ROOT_SHAPE = 0x80, 0x81, 0x82  # what a record is where it is no contraction's tile
LONG = 0x40  # added to a tile's shape where its batches of loads are the longer ones
TENSOR = 0x100  # and where it is blocks for the tensor cores
DIGIT_NAMES = [[f"digit{d}_{name}" for name in DIGIT.names or ()] for d in range(INLINE_DIGITS)]
ALWAYS, AWAITED = 0, 0xFFFFFFFF  # an input that never changes; one that is written in every run


def shape_of(tiling: FlowTiling) -> int:
    """A tile's name in the kernel: with or without longer batches of loads."""
    m, n = tiling.shape
    if tiling.blocks:
        shortest = min(unroll for *shape, unroll in BLOCKS if shape == [m, n])
        return TENSOR + m * 8 + n + LONG * (tiling.unroll > shortest)
    return m * 8 + n + LONG * ((m, n, tiling.unroll) in LONGER)


class RecordMaker:
    """Collects records, and makes those of contractions at the end: of several ways to lay the work out only one is
    taken. Equal lists of digits and of steps are kept once."""

    def __init__(self) -> None:
        self._ops: list[Callable[[], dict[str, int]]] = []
        self._digits: list[tuple[int, ...]] = []
        self._steps: list[NDArray[Any]] = []
        self._n_steps = 0
        self._digits_at: dict[tuple[tuple[int, ...], ...], int] = {}
        self._steps_at: dict[tuple[Loop, ...], int] = {}

    def contraction(
        self,
        loops: tuple[Loop, ...],
        tiling: FlowTiling,
        cells: tuple[int, int, int],
        awaited: tuple[int, int],
        apart: int = 0,
    ) -> int:
        """The record of a contraction, its number.

        Parameters
        ----------
        loops : tuple of Loop
        tiling : FlowTiling
        cells : (int, int, int)
            First cells of A, B and the output.
        awaited : (int, int)
            `ALWAYS` or `AWAITED`, for A and B.
        apart : int
            Cells from one part's sums to the next's.
        """
        return self._add(lambda: self._contraction(loops, tiling, cells, awaited, apart))

    def _contraction(
        self,
        loops: tuple[Loop, ...],
        tiling: FlowTiling,
        cells: tuple[int, int, int],
        awaited: tuple[int, int],
        apart: int,
    ) -> dict[str, int]:
        sides = tiling.sides
        places: dict[int, int] = {}
        digits: list[tuple[int, ...]] = []
        for i in (i for i in reversed(range(len(loops))) if loops[i][1][OUT]):
            n, s = loops[i]
            extent = -(-n // sides[i]) if i in sides else n
            if extent > 1:
                places[i] = len(digits)
                # a lane's outputs are a side's extent apart, a block's are neighbours
                step = sides[i] if i in sides and tiling.blocks else 1
                digits.append((extent, *_magic(extent), *(step * x for x in s)))
        summed = tuple(x for x in loops if not x[1][OUT])
        op = dict(zip(("a", "b", "out"), cells, strict=True))
        op |= {"slot_a": awaited[0], "slot_b": awaited[1]}
        op |= {"n_tiles": tiling.n_tiles, "n_steps": math.prod(n for n, _ in summed), "steps": self._summed(summed)}
        op |= {"digits": self._kept(tuple(digits[INLINE_DIGITS:])), "n_digits": len(digits)}
        op |= {"shape": shape_of(tiling), "log_lanes": tiling.log_lanes}
        op |= {"splits": tiling.splits, "scratch": apart}
        for name, axis, table in (("m", tiling.m_axis, A), ("n", tiling.n_axis, B)):
            side = {"digit": NONE, "extent": 1, "step": 1, "stride": 0}
            if axis >= 0:
                n, strides = loops[axis]
                step = 1 if tiling.blocks else -(-n // sides[axis])
                side = {"digit": places.get(axis, NONE), "extent": n, "step": step, "stride": strides[table]}
                op[f"out_{name}"] = step * strides[OUT]
            op |= {f"{name}_{key}": value for key, value in side.items()}
        for d in range(INLINE_DIGITS):
            digit = digits[d] if d < len(digits) else (1, 0, 0, 0, 0, 0)
            op |= zip(DIGIT_NAMES[d], digit, strict=True)
        return op

    def enter(self, pristine: int, cell: int, n: int, known: int, n_known: int, n_cut: int = 0) -> int:
        """The record of a factor that evidence is multiplied into, or that is cut to observed states: `n_cut` axes,
        after the others in ``known``."""
        op = {"a": pristine, "out": cell, "n_tiles": n, "steps": known, "n_steps": n_known, "shape": ENTER_SHAPE}
        return self._add(lambda: op | {"n_digits": n_cut})

    def answer(self, cell: int, awaited: int, card: int, at: int) -> int:
        """The record of a posterior."""
        op = {"a": cell, "slot_a": awaited, "n_tiles": card, "out": at, "shape": ANSWER_SHAPE}
        return self._add(lambda: op)

    def roots(self) -> int:
        """The record of P(e)."""
        return self._add(lambda: {"shape": ROOT_SHAPE})

    def finished(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """All records, digits and steps."""
        made = [make() for make in self._ops]
        ops = np.zeros(len(made), OP)
        for name in OP.names or ():
            ops[name] = [op.get(name, 0) for op in made]
        steps = np.concatenate(self._steps) if self._steps else np.zeros(0, STEP)
        return ops, np.array(self._digits, DIGIT), steps

    def _add(self, make: Callable[[], dict[str, int]]) -> int:
        self._ops.append(make)
        return len(self._ops) - 1

    def _kept(self, digits: tuple[tuple[int, ...], ...]) -> int:
        if digits not in self._digits_at:
            self._digits_at[digits] = len(self._digits)
            self._digits += digits
        return self._digits_at[digits]

    def _summed(self, summed: tuple[Loop, ...]) -> int:
        key = tuple((n, (0, *s[1:])) for n, s in summed)
        if key not in self._steps_at:
            self._steps_at[key] = self._n_steps
            made = np.zeros(math.prod(n for n, _ in summed), STEP)
            made["a"], made["b"] = offsets(summed, A), offsets(summed, B)
            self._steps.append(made)
            self._n_steps += len(made)
        return self._steps_at[key]


def _magic(extent: int) -> tuple[int, int]:
    """n // extent == (n * magic >> 32) >> shift for 0 <= n < 2^31 and extent >= 2 (Granlund and Montgomery 1994)."""
    log = (extent - 1).bit_length()
    return (1 << 31 + log) // extent + 1, log - 1
