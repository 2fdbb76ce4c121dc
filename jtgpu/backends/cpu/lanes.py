"""Cases side by side, in lanes: how many, their likelihoods, and the memory that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...plans.program import Program
from .costs import LANES, ROW_BY_ROW, Config
from .programs import CachedProgram
from .records import LaneMemory
from .workspace import ROOM, TINY, Workspace

CACHE = 1 << 20  # bytes
MOST_ARENA = 256 << 20  # bytes of one thread's tables; where eight cases take more, rows are answered one by one


def config_of(get: Callable[[int], CachedProgram], factor_cells: int) -> Config:
    """How rows of a pattern can be answered: with as many lanes as have tables that fit the cache, else eight; row by
    row where eight take too much memory."""
    # get: The program of so many lanes
    cells = get(1).records.cells - factor_cells
    lanes = next((n for n in LANES if 8 * n * cells <= CACHE), LANES[-1])
    if 8 * lanes * cells > MOST_ARENA:
        return ROW_BY_ROW
    return Config(lanes, max(8 * lanes * cells, 1), *get(lanes).times)


def _times_power(table: NDArray[np.float64], exponent: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each row times its power of two: by a product, many times as fast as ldexp, where the power is a number."""
    if not exponent.any():
        return table
    if len(exponent) and exponent.min() > -1000 and exponent.max() < 1000:
        return np.asarray(table * np.ldexp(1.0, exponent)[:, None])
    return np.ldexp(table, exponent[:, None])


def weight_columns(
    program: Program, likelihood: Mapping[int, NDArray[np.float64]], n: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """The likelihoods side by side, scaled by powers of two; first columns by rank (-1: none); and the scales.

    The scales are natural logarithms, one for each of n rows; then the rows whose likelihoods lose digits when scaled.
    """
    ptr = np.full(program.n_variables, -1, np.int64)
    log_scale, lost = np.zeros(n), np.zeros(n, np.bool_)
    parts, at = [], 0
    for v, w in likelihood.items():
        top = w.max(axis=1, initial=0.0)
        shift = np.where(top > 0, np.frexp(top)[1], 0)
        if v >= program.n_plain:  # many cells: only where needed
            shift[np.abs(shift) < ROOM // 2] = 0
        log_scale += shift * np.log(2.0)
        if (shift > 0).any():
            tiny = np.where(shift > 0, TINY * top, 0.0)[:, None]
            lost |= ((w > 0.0) & (w < tiny)).any(axis=1)
        ptr[program.axis_rank[v]] = at
        parts.append(_times_power(w, -shift))
        at += w.shape[1]
    if len(parts) == 1:
        return np.require(parts[0], requirements=["C", "W"]), ptr, log_scale, lost  # compiled loops take no other
    return (np.ascontiguousarray(np.hstack(parts)) if parts else np.zeros((n, 0))), ptr, log_scale, lost


def memory_of(
    space: Workspace, cached: CachedProgram, cards: NDArray[np.int64], weight_ptr: NDArray[np.int64], columns: int,
    lanes: int,
) -> LaneMemory:  # fmt: skip
    """A workspace with room for a program of so many lanes, whose weights have so many columns."""
    space.fit_program(cached)
    numbers = space.numbers
    exponent = np.zeros((len(numbers.exponent), lanes), np.int64)
    exponent[:] = numbers.exponent[:, None]
    ptr = np.where(weight_ptr >= 0, weight_ptr * lanes, -1)
    return LaneMemory(
        space.arena, exponent, numbers.exponent != 0, space.block, np.empty((lanes, len(cards)), np.int32),
        np.zeros(lanes, np.bool_), np.empty(max(columns * lanes, 1)), ptr, np.empty(lanes, np.int64),
        np.empty(lanes), np.empty(lanes * int(cards.max(initial=1))),
    )  # fmt: skip
