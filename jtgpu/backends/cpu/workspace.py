"""Scratch memory of one query at a time, and where a plan's numbers stand in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...plans.plan import Plan
from .kernels import LIST
from .records import ALIGNMENT, Layout, Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..base import Evidence

__all__ = ["ROOM", "Numbers", "Scratch", "Workspace", "aligned", "scaled_weights"]

ROOM = 200  # log2: a table whose largest entry leaves 2**-ROOM .. 2**ROOM is scaled by a power of two


def aligned(cells: int) -> NDArray[np.float64]:
    """Memory that begins with a cache line."""
    block = np.empty(cells + ALIGNMENT)
    skip = -block.ctypes.data // 8 % ALIGNMENT
    return block[skip : skip + cells]


def scaled_weights(
    evidence: Evidence, axis_rank: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Likelihood vectors one after the other, each scaled to a largest entry in [0.5, 1), where they begin by rank, and
    the logarithm of what was taken out; a weight on an observed variable is a number. -inf: nothing is left."""
    if not evidence.likelihood:
        return _NO_WEIGHTS, _NO_PTR, 0.0
    vectors = []
    ptr = np.zeros(len(axis_rank), np.int64)
    at, log_scale = 0, 0.0
    for v, given in sorted(evidence.likelihood.items()):
        vector = np.asarray(given, np.float64)
        state = int(evidence.state[v])
        top = float(vector.max(initial=0.0)) if state < 0 else float(vector[state])
        if not top > 0:
            return _NO_WEIGHTS, _NO_PTR, -math.inf
        if state >= 0:
            log_scale += math.log(top)
            continue
        shift = math.frexp(top)[1]
        log_scale += shift * math.log(2.0)
        ptr[axis_rank[v]] = at
        vectors.append(np.ldexp(vector, -shift))
        at += len(vector)
    return (np.concatenate(vectors) if vectors else _NO_WEIGHTS), ptr, log_scale


_NO_WEIGHTS, _NO_PTR = np.zeros(1), np.zeros(1, np.int64)


class Numbers:
    """A model's factors as every arena begins: the number 1, then the factors in axis order, each scaled.

    Attributes
    ----------
    layout : Layout
        Tables one after another, as closely as they fit; posteriors behind the factors.
    answers : int
        First cell of the posteriors, variable after variable; the factors end before it.
    exponent : (T + 1 + F,) int64
        Of every table, of the number 1, and of every factor once it is cut; those of the factors are filled in.
    """

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]]):
        sizes = np.array([plan.size(s) for s in plan.factor_scopes], np.int64)
        padded = _padded(sizes)
        cell = ALIGNMENT + np.cumsum(padded) - padded
        self.answers = ALIGNMENT + int(padded.sum())
        n_answers = int(plan.posterior_ptr[-1])
        answer = self.answers + plan.posterior_ptr[:-1]
        first = self.answers + int(_padded(np.int64(n_answers)))
        self.layout = Layout(cell, answer[np.argsort(plan.axis_rank)], first, np.zeros(0, np.int64))
        self.exponent = np.zeros(len(plan.table_off) + 1 + plan.n_factors, np.int64)
        self._factors: list[tuple[NDArray[np.float64], int]] = []  # axes in order, views of the model's; first cell
        for f, (table, scope) in enumerate(zip(factors, plan.factor_scopes, strict=True)):
            top = float(table.max())
            if top > 0 and not 2.0**-ROOM < top < 2.0**ROOM:
                self.exponent[f] = math.frexp(top)[1]
            turned = np.transpose(table, [scope.index(v) for v in plan.table_scopes[f]])
            self._factors.append((turned, int(cell[f])))

    def fill(self, arena: NDArray[np.float64]) -> None:
        """Write what every arena begins with."""
        arena[: self.answers] = 0.0
        arena[0] = 1.0
        for (table, at), exponent in zip(self._factors, self.exponent.tolist(), strict=False):
            cells = arena[at : at + table.size].reshape(table.shape)
            if exponent:
                np.ldexp(table, -exponent, out=cells)
            else:
                cells[...] = table

    def fixed_layout(self, plan: Plan) -> tuple[Layout, int]:
        """A layout in which every table has the same cells in every program, and its arena's size."""
        sizes = _padded(np.array([plan.size(s) for s in plan.table_scopes], np.int64))
        sizes = np.concatenate([sizes[: plan.n_factors], sizes])
        sizes[plan.n_factors : 2 * plan.n_factors] = 0  # whole factors stand before the posteriors
        ends = self.layout.first + np.cumsum(sizes)
        return self.layout._replace(places=ends - sizes), int(ends[-1])


def _padded(cells: NDArray[np.int64] | np.int64) -> NDArray[np.int64]:
    return np.asarray(-(-cells // ALIGNMENT) * ALIGNMENT)


class Scratch:
    """What `jtgpu.backends.cpu.kernels.contract` needs beside an arena."""

    def __init__(self) -> None:
        self.work = np.zeros(256, np.int64)
        self.offsets = np.zeros(2 * LIST, np.int64)
        self.buffer = np.zeros(1)

    def fit(self, program: Program) -> None:
        """Make room for a program."""
        _, inputs, row, _ = program.counts.tolist()
        if len(self.work) < 4 * inputs + 64 + row:
            self.work = np.zeros(4 * inputs + 64 + row, np.int64)
        if len(self.buffer) < row:
            self.buffer = np.zeros(row)

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """As the compiled functions take them."""
        return self.work, self.offsets, self.buffer


class Workspace(Scratch):
    """An arena with a model's factors, and all else that one query at a time needs."""

    def __init__(self, numbers: Numbers):
        super().__init__()
        self._numbers = numbers
        self.arena: NDArray[np.float64] = np.empty(0)
        self.exponent = numbers.exponent.copy()

    def fit_arena(self, cells: int) -> None:
        """Make the arena large enough; what it held but the factors is lost when it grows."""
        if len(self.arena) < cells:
            self.arena = np.empty(0)  # the old one goes before the new one comes
            self.arena = aligned(cells)
            self._numbers.fill(self.arena)
