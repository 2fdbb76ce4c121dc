"""The arena of tables on the device: places, the factors' numbers and powers of two, evidence, answers.

Arrays only; knows no device. Used for single cases by the level engine, and for tables of cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import TableTooLarge
from ....plans.plan import Plan
from .records import ANSWER, CHECK, CHUNK, KNOWN, MAX_AXES, OUT, REALS, SLOT, A, B, Binary, Loop

if TYPE_CHECKING:
    from numpy.typing import NDArray

SECTOR = 32  # bytes of a memory sector
CHUNK_ENTRIES = 2048  # eight a thread; blocks that read the same state across the bus wait for each other
PLACE = 40  # of float32: a factor's largest entry is scaled to 2^39 to 2^40, see Range in types.cuh
MAX_CELLS = 2**32 - 2**20  # cells are numbered in 32 bits
MAX_TILES = 2**31 - 1
MIN_LOG2 = -126.0  # of the smallest number that float32 holds with all its digits


@dataclass(frozen=True)
class Places:
    """Places of T tables: the plan's, intermediate ones, and last the constant 1."""

    n_cells: int  # of the arena
    n_tables: int
    n_factors: int
    factor_cells: int  # the factors are the arena's first cells
    table_cell: NDArray[np.uint32]  # (T,)
    table_size: NDArray[np.int64]  # (T,)
    known: NDArray[Any]  # (K,) KNOWN: the axes of the evidence factors
    chunks: NDArray[Any]  # (C,) CHUNK: the entries of the evidence factors, a block's share each
    answers: NDArray[Any]  # (V,) ANSWER
    roots: NDArray[np.uint32]  # (2 * components,) cell and table of each P(e)
    checks: NDArray[Any]  # (V,) CHECK: each posterior's table, and the root to which it should sum
    real: str  # type of the arena


def make_places(plan: Plan, program: Binary, real: str = "float64") -> Places:
    """Places for the tables of a plan's contractions of two."""
    # raises TableTooLarge: If the cells cannot be numbered in 32 bits.
    if real not in REALS:
        raise ValueError(f"tables of {real!r}; there are {' and '.join(REALS)}")
    sizes = [plan.size(s) for s in program.scopes] + [1]
    cells, at = _cells(plan, sizes, np.dtype(real).itemsize)
    _check_cells(at, sizes)
    known, chunks = evidence_chunks(plan, cells, sizes)
    answers = [
        (cells[t], int(plan.cardinality[v]), int(plan.posterior_ptr[v]))
        for v, t in enumerate(plan.posterior_table.tolist())
    ]
    return Places(
        n_cells=at,
        n_tables=len(sizes),
        n_factors=plan.n_factors,
        factor_cells=max((cells[f] + sizes[f] for f in range(plan.n_factors)), default=0),
        table_cell=np.array(cells, np.uint32),
        table_size=np.array(sizes, np.int64),
        known=known,
        chunks=chunks,
        answers=np.array(answers, ANSWER),
        roots=np.array([x for t in plan.root_table.tolist() for x in (cells[t], t)], np.uint32),
        checks=_checks(plan),
        real=real,
    )


def _cells(plan: Plan, sizes: Sequence[int], cell_bytes: int) -> tuple[list[int], int]:
    """First cell of each table, at the start of a memory sector, and the number of all cells. In float64 the plan's
    tables keep its places."""
    alignment = SECTOR // cell_bytes
    cells = [int(x) for x in plan.table_off] if cell_bytes == 8 else []
    at = int(plan.arena_cells[0]) if cell_bytes == 8 else 0
    for n in sizes[len(cells) :]:
        cells.append(at)
        at += -(-n // alignment) * alignment
    return cells, at


def _checks(plan: Plan) -> NDArray[Any]:
    """The root to which each posterior sums: that of its component."""
    leader = list(range(len(plan.table_scopes)))

    def find(t: int) -> int:
        while leader[t] != t:
            leader[t] = leader[leader[t]]
            t = leader[t]
        return t

    for out, ins in zip(plan.op_out.tolist(), plan.op_inputs, strict=True):
        for t in ins:
            leader[find(t)] = find(out)
    root = {find(t): i for i, t in enumerate(plan.root_table.tolist())}
    return np.array([(t, root[find(t)]) for t in plan.posterior_table.tolist()], CHECK)


def _check_cells(n_cells: int, sizes: Sequence[int]) -> None:
    if n_cells > MAX_CELLS or max(sizes) > MAX_TILES:
        raise TableTooLarge(
            f"the GPU engine numbers cells in 32 bits; this plan has {n_cells:,} in all, {max(sizes):,} in one table",
            max(sizes),
            8 * n_cells,
            8 * MAX_CELLS,
        )


def evidence_chunks(plan: Plan, cells: Sequence[int], sizes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The factors that evidence is multiplied into, divided into chunks."""
    variables: dict[int, list[int]] = {}
    for v, f in enumerate(plan.evidence_factor.tolist()):
        variables.setdefault(f, []).append(v)
    known: list[tuple[int, ...]] = []
    chunks: list[tuple[int, ...]] = []
    for f, members in sorted(variables.items()):
        if len(members) > MAX_AXES:  # a table of 2^64 entries at least, unless variables have one state
            members = [v for v in members if plan.cardinality[v] > 1]
        scope = plan.table_scopes[f]
        first_known = len(known)
        for v in members:
            inner = plan.size(scope[scope.index(v) + 1 :])
            known.append((v, inner, int(plan.cardinality[v]), int(plan.posterior_ptr[v])))
        for start in range(0, sizes[f], CHUNK_ENTRIES):
            n = min(CHUNK_ENTRIES, sizes[f] - start)
            chunks.append((cells[f], start, n, f, first_known, len(members), 0, 0))
    return np.array(known, KNOWN), np.array(chunks, CHUNK)


def load_factors(
    plan: Plan, places: Places, factors: Sequence[NDArray[np.float64]]
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


def scaled_factors(
    plan: Plan, factors: Sequence[NDArray[np.float64]]
) -> Iterator[tuple[NDArray[np.float64], int]]:
    """Every factor in the plan's axis order, flat; and the exponent of the power of two that divides it: 0 unless its
    largest entry is far from 1."""
    for f, (table, scope) in enumerate(zip(factors, plan.factor_scopes, strict=True)):
        turned = np.transpose(table, [scope.index(v) for v in plan.table_scopes[f]]).ravel()
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


def chunks_with_tops(places: Places, pristine: NDArray[Any]) -> NDArray[Any]:
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


def reach(
    sizes: Sequence[int], program: Binary, loops: Sequence[tuple[Loop, ...]], factors: Sequence[Table],
    roots: Sequence[int], answers: Sequence[int],
) -> Reach:  # fmt: skip
    """One propagation without evidence, and its derivatives.

    Every entry, and every derivative of an answer with respect to an entry, is largest without evidence, since all of
    them are sums of products of factors' entries and of evidence's weights, which are at most 1.
    """
    # sizes: Of all tables
    # loops: sequence of tuples of Loop: Of every step
    # factors: In the axis order of the plan's tables
    # roots, answers: Tables of P(e), and of the other answers
    value: list[Table] = [np.asarray(x) for x in factors]
    value += [np.zeros(0)] * (len(sizes) - len(value))
    moves = [np.zeros(n) for n in sizes]
    n = 2 * sum(sizes)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for step, axes in zip(program.steps, loops, strict=True):
            tables = [(value[t], which) for t, which in zip(step.ins, (A, B), strict=False)]
            value[step.out] = _product(axes, tables, OUT)
            n += math.prod(extent for extent, _ in axes)
        for t in (*answers, *roots):
            moves[t][:] = 1.0
        for step, axes in zip(reversed(program.steps), reversed(loops), strict=True):
            for k, t in enumerate(step.ins):
                others = [(value[o], (A, B)[i]) for i, o in enumerate(step.ins) if i != k]
                moves[t] += _product(axes, [(moves[step.out], OUT), *others], (A, B)[k])
    tops = [float(x.max(initial=0.0)) for x in (*value, *moves)]
    most = max(tops) if all(x < math.inf for x in tops) else math.inf
    above = sum(max(0.0, math.log2(x)) for x in (float(value[t][0]) for t in roots) if 0 < x < math.inf)
    return Reach(most, max(1.0, *tops[len(value) :]), max(n, 1), above)


MOST_REACH = 2.0**500  # numbers above this may overflow with evidence


def least_root(plan: Plan, program: Binary, loops: Sequence[tuple[Loop, ...]], factors: Sequence[Table]) -> float:
    """log2 of the least P(e) for which doubles without scaling are right to 2^-43; inf if they may overflow.

    A product that is too small for a double has an error of at most 2^-1074; `reach` bounds how much such errors change
    an answer.
    """
    answers, roots = plan.posterior_table.tolist(), plan.root_table.tolist()
    bounds = reach([plan.size(s) for s in program.scopes], program, loops, factors, roots, answers)
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
