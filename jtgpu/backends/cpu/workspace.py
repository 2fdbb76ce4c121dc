"""The memory of one query: the model's numbers, the tables, scratch memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...plans.arrays import POSTERIOR
from ...plans.program import Program
from ...util.loops import loops
from ..base import Evidence, slice_of
from ..reference import exponents_of
from .records import (
    ALIGNMENT,
    BUFFER,
    CONTRACT,
    FAR,
    LIST,
    OFFSETS,
    SCRATCH_FIELDS,
    WORK,
    ArenaLayout,
    ExtendedArena,
    ExtendedWeights,
)

_kernels = loops("jtgpu.backends.cpu.loops.kernels")

FEW = 64  # numbers of which Python finds the largest in less time than NumPy
LN2 = math.log(2.0)
FIRST_CELLS, MOST_DOUBLED = 1 << 14, 1 << 20  # of an arena: at least; up to which it grows by doubling
ROOM = 200  # log2: a table whose largest entry leaves 2**-ROOM .. 2**ROOM is scaled by a power of two


def aligned(cells: int) -> NDArray[np.float64]:
    """Memory of so many cells that begins at a cache line."""
    block = np.empty(cells + ALIGNMENT)
    skip = -block.ctypes.data // 8 % ALIGNMENT
    return block[skip : skip + cells]


def scaled_weights(
    evidence: Evidence, program: Program
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Likelihood vectors one after the other, each scaled to a largest entry in [0.5, 1).

    A weight on an observed variable is a number; those of a set are its cells that agree with the observed states.
    """
    # returns weight_ptr: (V,) int64: First number of each variable, by rank
    # returns log_scale: ln of what the vectors were divided by; -inf if the evidence is impossible; NaN if the vectors
    #     take `extended_weights`
    if not evidence.likelihood:
        return _NO_WEIGHTS, _NO_PTR, 0.0
    vectors = []
    n_plain, ptr = program.n_plain, np.zeros(program.n_variables, np.int64)
    at, log_scale = 0, math.nan if exponents_of(evidence) else 0.0
    for v, given in sorted(evidence.likelihood.items()):
        vector, state = np.asarray(given, np.float64), -1
        if v < n_plain:
            state = int(evidence.state[v])
        else:
            scope = program.weighed_scope(v)
            vector = np.ravel(vector.reshape(program.shape(scope))[slice_of(scope, evidence.state)])
        if state >= 0:
            top = float(vector[state])
        else:
            top = max(vector.tolist()) if len(vector) < FEW else float(vector.max())
        if not top > 0:
            return _NO_WEIGHTS, _NO_PTR, -math.inf
        if top >= 1.0 and loses_digits(vector, top):
            log_scale = math.nan
        if state >= 0:
            log_scale += math.log(top)
            continue
        shift = math.frexp(top)[1]
        log_scale += shift * LN2
        ptr[program.axis_rank[v]] = at
        vectors.append(vector * _POWERS[shift] if shift in _POWERS else np.ldexp(vector, -shift))
        at += len(vector)
    if len(vectors) == 1:
        return vectors[0], ptr, log_scale
    return (np.concatenate(vectors) if vectors else _NO_WEIGHTS), ptr, log_scale


def loses_digits(table: NDArray[np.float64], top: float) -> bool:
    """Whether a table that is divided by the power of two next to its largest entry gets subnormal entries."""
    least = table.min()
    return bool(least < TINY * top and ((table > 0.0) & (table < TINY * top)).any())


def extended_weights(evidence: Evidence, program: Program) -> tuple[ExtendedWeights, float]:
    """`scaled_weights` in extended numbers."""
    values, powers, first = [_NO_WEIGHTS], [_NO_PTR], np.zeros(program.n_variables, np.int64)
    at, log_scale = 1, 0.0
    for v, given in sorted(evidence.likelihood.items()):
        value, power = np.frexp(np.asarray(given, np.float64).ravel())
        power = power + exponents_of(evidence).get(v, 0)
        if v >= program.n_plain:
            cells = slice_of(program.weighed_scope(v), evidence.state)
            shape = program.shape(program.weighed_scope(v))
            value, power = value.reshape(shape)[cells].ravel(), power.reshape(shape)[cells].ravel()
        elif evidence.state[v] >= 0:
            s = int(evidence.state[v])
            log_scale += math.log(value[s]) + int(power[s]) * LN2 if value[s] > 0 else -math.inf
            continue
        first[program.axis_rank[v]] = at
        values.append(value)
        powers.append(power.astype(np.int64))
        at += len(value)
    return ExtendedWeights(np.concatenate(values), np.concatenate(powers), first), log_scale


TINY = 2.0**-1020
_NO_WEIGHTS, _NO_PTR = np.zeros(1), np.zeros(1, np.int64)
_POWERS = {k: np.array(2.0**-k) for k in range(-32, 33)}  # arrays without axes: NumPy takes less time than for numbers


class ModelNumbers:
    """A model's factors as every arena begins: the number 1, then the factors in axis order, each scaled."""
    # layout: Tables one after another, as closely as they fit; posteriors behind the factors
    # factor_cells: The arena's cells up to the end of the factors; the posteriors follow, variable after variable
    # exponent: (T + 1 + F,) int64: Of every table, of the number 1, and of every factor once it is restricted; those of
    #     the factors are set

    def __init__(self, program: Program, factors: Sequence[NDArray[np.float64]]):
        sizes = np.array([program.size(s) for s in program.factor_scopes], np.int64)
        padded = _padded(sizes)
        cell = ALIGNMENT + np.cumsum(padded) - padded
        self.factor_cells = ALIGNMENT + int(padded.sum())
        n_posteriors = int(program.posterior_ptr[-1]) if POSTERIOR in program.kinds else 0
        answer = self.factor_cells + program.posterior_ptr[:-1]
        first = self.factor_cells + int(_padded(np.int64(n_posteriors)))
        self.layout = ArenaLayout(cell, answer[program.by_rank], first, np.zeros(0, np.int64))
        self._program = program
        self.is_maximal = any(program.maximal)
        self.is_lossy = False  # whether the factors take extended numbers
        self.exponent, self._factors = self._scaled(factors)

    def with_factors(self, factors: Sequence[NDArray[np.float64]]) -> ModelNumbers:
        """Those of other factors of the model."""
        made = copy.copy(self)
        made.is_lossy = False
        made.exponent, made._factors = made._scaled(factors)
        return made

    def _scaled(
        self, factors: Sequence[NDArray[np.float64]]
    ) -> tuple[NDArray[np.int64], list[tuple[NDArray[np.float64], int]]]:
        """Exponents, and every factor as a view with its axes in order and its first cell."""
        program = self._program
        exponent = np.zeros(len(program.scopes) + 1 + program.n_factors, np.int64)
        views = []
        for f, (table, scope) in enumerate(zip(factors, program.factor_scopes, strict=True)):
            top = float(table.max())
            if top > 0 and not 2.0**-ROOM < top < 2.0**ROOM:
                if loses_digits(table, top):
                    self.is_lossy = True
                else:
                    exponent[f] = math.frexp(top)[1]
            view = np.transpose(table, [scope.index(v) for v in program.scopes[f]])
            views.append((view, int(self.layout.factor[f])))
        return exponent, views

    def fill(self, arena: NDArray[np.float64]) -> None:
        """Write the beginning of an arena."""
        arena[: self.factor_cells] = 0.0
        arena[0] = 1.0
        for (table, at), exponent in zip(self._factors, self.exponent.tolist(), strict=False):
            cells = arena[at : at + table.size].reshape(table.shape)
            if exponent:
                np.ldexp(table, -exponent, out=cells)
            else:
                cells[...] = table

    def fill_extended(self, t: ExtendedArena) -> None:
        """Write the beginning of an arena of extended numbers."""
        t.cell[: self.factor_cells], t.power[: self.factor_cells] = 0.0, 0
        t.cell[0], t.power[0] = 0.5, 1
        for table, at in self._factors:
            cells = slice(at, at + table.size)
            t.cell[cells].reshape(table.shape)[...], t.power[cells].reshape(table.shape)[...] = np.frexp(table)

    def factor_views(self, cells: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Every factor's part of an array that begins as an arena does, with the model's axes."""
        views = []
        for (table, at), scope, axes in zip(
            self._factors, self._program.factor_scopes, self._program.scopes, strict=False
        ):
            view = cells[at : at + table.size].reshape(table.shape)
            views.append(np.transpose(view, [axes.index(v) for v in scope]))
        return views

    def fixed_layout(self) -> tuple[ArenaLayout, int]:
        """A layout in which every table has the same cells in every program, and its arena's size."""
        n = self._program.n_factors
        sizes = _padded(np.array([self._program.size(s) for s in self._program.scopes], np.int64))
        sizes = np.concatenate([sizes[:n], sizes])
        sizes[n : 2 * n] = 0  # whole factors stand before the posteriors
        ends = self.layout.first + np.cumsum(sizes)
        return self.layout._replace(places=ends - sizes), int(ends[-1])


def _padded(cells: NDArray[np.int64] | np.int64) -> NDArray[np.int64]:
    return np.asarray(-(-cells // ALIGNMENT) * ALIGNMENT)


class KernelScratch:
    """Memory that `jtgpu.backends.cpu.loops.kernels.contract` needs besides an arena."""
    # maximal: Whether the program eliminates variables by maximum
    # block: `records.SCRATCH_FIELDS` addresses: of the compiled contraction, and of the parts of this block that
    #     follow; then numbers for loops, offsets of reduced cells, and a row of float64

    def __init__(self, maximal: bool = False) -> None:
        self._maximal = maximal
        self._work, self._row = 0, 0
        self._allocate(256, 1)

    def _allocate(self, work: int, row: int) -> None:
        self._work, self._row = work, row
        self.block = np.zeros(SCRATCH_FIELDS + work + 2 * LIST + row, np.int64)
        first = self.block.ctypes.data + 8 * SCRATCH_FIELDS
        self.block[CONTRACT] = _kernels.address("contract_sum")
        if self._maximal:
            self.block[CONTRACT + 1] = _kernels.address("contract_maximum")
        self.block[WORK], self.block[OFFSETS] = first, first + 8 * work
        self.block[BUFFER] = first + 8 * (work + 2 * LIST)

    def another_scratch(self) -> KernelScratch:
        """Scratch memory as large, for another thread."""
        other = KernelScratch(self._maximal)
        other._allocate(self._work, self._row)
        return other

    def fit(self, work: int, row: int) -> None:
        """Make room for a program: numbers for its loops, and cells of its longest row."""
        if self._work < work or self._row < row:
            self._allocate(max(work, self._work), max(row, self._row))


class ProgramSize(Protocol):
    """Sizes of a program, for `Workspace.fit_program`."""

    work: int  # numbers of scratch memory for its loops
    row: int  # cells of its longest row
    cells: int  # cells of the arena


class Workspace(KernelScratch):
    """An arena with a model's factors, and all else that one query at a time needs."""

    def __init__(self, numbers: ModelNumbers):
        super().__init__(numbers.is_maximal)
        self.numbers = numbers
        self.arena: NDArray[np.float64] = np.empty(0)
        self.exponent = numbers.exponent.copy()
        # of the backward pass
        self.tables: tuple[NDArray[np.float64], NDArray[np.int64]] = self.arena, _NO_POWER  # of the last run
        self._extended: ExtendedArena | None = None
        self.values: NDArray[np.float64] = np.zeros(1)
        self.places: NDArray[np.int64] = np.zeros(1, np.int64)

    def fit_program(self, cached: ProgramSize, cells: int = 0) -> None:
        """Make room for a program and so many cells; if the arena grows, what it held except the factors is lost."""
        if self._work < cached.work or self._row < cached.row:
            self.fit(cached.work, cached.row)
        if len(self.arena) < cached.cells or len(self.arena) < cells:
            self.fit_arena(max(cached.cells, cells))

    def fit_arena(self, cells: int) -> None:
        """Make the arena large enough. A small one at least doubles: each new pattern may need a few more cells."""
        old = len(self.arena)
        if old >= cells:
            return
        factors = self.arena[: self.numbers.factor_cells].copy()
        self.arena = np.empty(0)  # free the old one first
        self.arena = aligned(max(cells, min(2 * old, MOST_DOUBLED), FIRST_CELLS))
        if old:
            self.arena[: len(factors)] = factors
        else:
            self.numbers.fill(self.arena)

    def extended(self, cells: int) -> ExtendedArena:
        """An arena of extended numbers with room for a program."""
        t = self._extended
        if t is None or len(t.cell) < cells:
            t = ExtendedArena(np.empty(cells), np.empty(cells, np.int64), np.ldexp(1.0, -np.arange(FAR)))
            self.numbers.fill_extended(t)
            self._extended = t
        return t

    def use(self, numbers: ModelNumbers) -> None:
        """Take the numbers of another model of the same shape."""
        self.numbers = numbers
        self.exponent[:] = numbers.exponent
        self._extended = None
        if len(self.arena):
            numbers.fill(self.arena)

    def fit_steps(self, largest: int, most: int) -> None:
        """Make room for slices of the backward pass: cells of the largest, inputs or variables of a step."""
        if len(self.values) < largest:
            self.values = np.zeros(largest)
        if len(self.places) < most:
            self.places = np.zeros(most, np.int64)


_NO_POWER = np.zeros(0, np.int64)
