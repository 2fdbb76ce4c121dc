"""The arena of tables on the device: places, the factors' numbers and powers of two, evidence, answers.

Arrays only; knows no device. Used for single cases by the level engine, and for tables of cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device.structs import struct
from ....errors import TableTooLarge
from ....plans.plan import Plan
from ..lower import OUT, A, B, Loop, Lowered, evidence_of, flat_factors, known_axes, placed
from ..tile import SECTOR
from .records import KNOWN, REALS, SLOT

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = struct("single/levels.cu", "Chunk")
CHUNK_ENTRIES = 2048  # eight a thread; blocks that read the same state across the bus wait for each other
PLACE = 40  # of float32: a factor's largest entry is scaled to 2^39 to 2^40, see Range in types.cuh
MAX_CELLS = 2**32 - 2**20  # cells are numbered in 32 bits
MAX_TILES = 2**31 - 1
MIN_LOG2 = -126.0  # of the smallest number that float32 holds with all its digits


@dataclass(frozen=True)
class TablePlaces:
    """Places of T tables: those of some contractions, and last the constant 1."""

    n_cells: int  # of the arena
    n_factors: int
    factor_cells: int  # the factors are the arena's first cells
    table_cell: NDArray[np.uint32]  # (T,)
    table_size: NDArray[np.int64]  # (T,)
    known: NDArray[Any]  # (K,) KNOWN: the axes of the evidence factors
    chunks: NDArray[Any]  # (C,) CHUNK: the entries of the evidence factors, a block's share each
    real: str  # type of the arena

    @property
    def n_tables(self) -> int:
        """T."""
        return len(self.table_cell)


def make_places(program: Lowered, real: str = "float64", *, factors_only: bool = False) -> TablePlaces:
    """Places for the tables of some contractions, each at the start of a memory sector; with `factors_only` for those
    that no case changes. In float64 the plan's tables keep its places."""
    # raises TableTooLarge: If the cells cannot be numbered in 32 bits.
    if real not in REALS:
        raise ValueError(f"tables of {real!r}; there are {' and '.join(REALS)}")
    plan, sizes, unit = program.plan, [*program.sizes, 1], SECTOR // np.dtype(real).itemsize
    if factors_only:
        cells, at = placed(sizes[: plan.n_factors], unit)
        cells, at = [*cells, *[0] * (len(sizes) - len(cells) - 1), at], at + 1
    elif real == "float64":
        more, end = placed(sizes[len(plan.table_off) :], unit)
        first = int(plan.arena_cells[0])
        cells, at = [*plan.table_off.tolist(), *(first + x for x in more)], first + end
    else:
        cells, at = placed(sizes, unit)
    if at > MAX_CELLS or max(sizes) > MAX_TILES:
        raise TableTooLarge(
            f"the GPU engine numbers cells in 32 bits; this plan has {at:,} in all, {max(sizes):,} in one table",
            max(sizes),
            8 * at,
            8 * MAX_CELLS,
        )
    known: list[tuple[int, ...]] = []
    chunks: list[tuple[int, ...]] = []
    for f, variables in evidence_of(plan).items():
        axes = known_axes(plan, f, variables)
        for start in range(0, sizes[f], CHUNK_ENTRIES):
            n = min(CHUNK_ENTRIES, sizes[f] - start)
            chunks.append((cells[f], start, n, f, len(known), len(axes), 0, 0))
        known += axes
    return TablePlaces(
        n_cells=at,
        n_factors=plan.n_factors,
        factor_cells=at - 1 if factors_only else max((cells[f] + sizes[f] for f in range(plan.n_factors)), default=0),
        table_cell=np.array(cells, np.uint32),
        table_size=np.array(sizes, np.int64),
        known=np.array(known, KNOWN),
        chunks=np.array(chunks, CHUNK),
        real=real,
    )


def load_factors(
    plan: Plan, places: TablePlaces, factors: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The factors as the arena holds them, and every table's slot before a run.

    A factor whose largest entry is far from 1 is divided by a power of two, which its slot stores. In float32 every
    factor is, so that as many small entries as possible are representable.
    """
    # returns pristine: (factor_cells,) float64 or float32
    # returns slots: (T,) SLOT
    pristine = np.zeros(places.factor_cells, places.real)
    slots = np.zeros(places.n_tables, SLOT)
    for f, (table, shift) in enumerate(scaled_factors(plan, factors)):
        cell = int(places.table_cell[f])
        if places.real == "float32":
            more = math.frexp(float(table.max(initial=0.0)))[1] - PLACE
            table, shift = np.ldexp(table, -more).astype(np.float32), shift + more
        pristine[cell : cell + len(table)] = table
        slots[f] = (word_of(table.max(initial=0.0)), shift)
    slots[-1] = (word_of(pristine.dtype.type(1.0)), 0)
    return pristine, slots


def scaled_factors(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Iterator[tuple[NDArray[np.float64], int]]:
    """Every factor in the plan's axis order, flat; and the exponent of the power of two that divides it: 0 unless its
    largest entry is far from 1."""
    for turned in flat_factors(plan, factors):
        top = float(turned.max(initial=0.0))
        shift = math.frexp(top)[1] if top > 0 and not 1e-30 < top < 1e30 else 0
        yield np.ldexp(turned, -shift), shift


def smallest_entries(factors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """log2 of every factor's smallest positive entry as scaled for float32; inf if there is none. Below `MIN_LOG2` it
    loses digits, which no comparison of answers can detect, since every P(e) lacks the same."""
    smallest = np.full(len(factors), math.inf)
    for f, table in enumerate(factors):
        positive = table[table > 0]
        if len(positive):
            smallest[f] = math.log2(float(positive.min())) - math.frexp(float(positive.max()))[1] + PLACE
    return smallest


def chunks_with_tops(places: TablePlaces, pristine: NDArray[Any]) -> NDArray[Any]:
    """The chunks with the largest entry of each."""
    made = places.chunks.copy()
    for chunk in made:
        first = int(chunk["cell"]) + int(chunk["from"])
        chunk["top"] = word_of(pristine[first : first + int(chunk["n"])].max(initial=0.0))
    return made


def word_of(x: Any) -> int:
    """The high word of a float64, all of a float32: word_of in types.cuh."""
    return int(x.view(np.int32)) if x.dtype == np.float32 else int(np.float64(x).view(np.int64) >> 32)


# How small P(e) may be for doubles without scaling to be reliable.

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Reach(NamedTuple):
    """How large numbers become without evidence, and what an answer changes by if one of them does."""

    most: float  # largest entry
    moved: float  # largest derivative of the sum of all answers by an entry, at least 1
    n: int  # entries and products
    roots: float  # log2 of the product of those P that are above 1


def reach(program: Lowered, factors: Sequence[Table]) -> Reach:
    """One propagation without evidence, and its derivatives.

    Every entry, and every derivative of an answer with respect to an entry, is largest without evidence, since all of
    them are sums of products of factors' entries and of evidence's weights, which are at most 1.
    """
    # factors: Flat, in the axis order of the plan's tables
    sizes, roots = program.sizes, program.roots
    value: list[Table] = [np.asarray(x) for x in factors]
    value += [np.zeros(0)] * (len(sizes) - len(value))
    moves = [np.zeros(n) for n in sizes]
    n = 2 * sum(sizes)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for step, axes in zip(program.steps, program.loops, strict=True):
            tables = [(value[t], which) for t, which in zip(step.ins, (A, B), strict=False)]
            value[step.out] = _product(axes, tables, OUT)
            n += math.prod(extent for extent, _ in axes)
        for t in (*program.answers, *roots):
            moves[t][:] = 1.0
        for step, axes in zip(reversed(program.steps), reversed(program.loops), strict=True):
            for k, t in enumerate(step.ins):
                others = [(value[o], (A, B)[i]) for i, o in enumerate(step.ins) if i != k]
                moves[t] += _product(axes, [(moves[step.out], OUT), *others], (A, B)[k])
    tops = [float(x.max(initial=0.0)) for x in (*value, *moves)]
    most = max(tops) if all(x < math.inf for x in tops) else math.inf
    above = sum(max(0.0, math.log2(x)) for x in (float(value[t][0]) for t in roots) if 0 < x < math.inf)
    return Reach(most, max(1.0, *tops[len(value) :]), max(n, 1), above)


MOST_REACH = 2.0**500  # numbers above this may overflow with evidence


def least_root(program: Lowered, factors: Sequence[Table]) -> float:
    """log2 of the least P(e) for which doubles without scaling are right to 2^-43; inf if they may overflow.

    A product that is too small for a double has an error of at most 2^-1074; `reach` bounds how much such errors change
    an answer.
    """
    bounds = reach(program, factors)
    if not bounds.most < MOST_REACH:
        return math.inf
    return -1074 + math.log2(bounds.moved) + math.log2(bounds.n) + 43


def _product(axes: tuple[Loop, ...], tables: Sequence[tuple[Table, int]], wanted: int) -> Table:
    """Tables multiplied and summed over the axes that the wanted one does not have; flat. What none of the tables has
    is no sum over equal numbers: every cell of the wanted table gets the number."""
    terms, shapes = [], []
    for table, which in tables:
        own = [i for i, (_, s) in enumerate(axes) if s[which]]
        terms.append("".join([_LETTERS[i] for i in own]))
        shapes.append(table.reshape([axes[i][0] for i in own]))
    there = set("".join(terms))
    out = [i for i, (_, s) in enumerate(axes) if s[wanted]]
    inside = [i for i in out if _LETTERS[i] in there]
    made = np.einsum(",".join(terms) + "->" + "".join([_LETTERS[i] for i in inside]), *shapes)
    if len(inside) < len(out):
        full = [axes[i][0] if _LETTERS[i] in there else 1 for i in out]
        made = np.broadcast_to(made.reshape(full), [axes[i][0] for i in out])
    return np.asarray(made, np.float64).reshape(-1)
