"""Records: a specialised program as the flat int64 arrays that the compiled loops read.

A *record* is one contraction: the fields of `RECORD_FIELDS` below, then its loops, (extent, stride of the output, of A,
of B) each: kept loops, then reduced loops, each slowest first, without the innermost, which is in the fields. With more
than two inputs A is the first; the others' (cell, exponent, row stride) stand between `FIRST_LOOP` and the loops, which
have a stride for every input. A small contraction has no loops: `LISTED` terms contribute to each cell of the output,
and in place of the loops stand the cells of the inputs, for one term after the other.

A *load* copies a factor, restricted to the observed states and multiplied with likelihood weights. Its fields are
followed by (variable, stride in the factor) for each observed variable, (extent, stride in the factor) for each loop,
and (variable, extent, inner cells) for each weight, inner cells 0 where it has a weight
for each cell. A *store* has the same form and is read the other way: the table
of a family is added to the factor's cells in an array of expected counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...plans.specialise import FlatProgram, large_outputs, pack
from ...util.loops import loops

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...util.array_types import Matrix

ALIGNMENT = 8  # cells: a cache line of float64

(
    LENGTH,  # numbers of the record
    INPUTS,  # tables multiplied, at least 2: a missing one is the number 1
    MAXIMAL,  # 1: variables are eliminated by maximum
    ANSWER,  # variable (POSTERIOR) or factor (FAMILY) whose distribution the output is, and is normalised; -1: neither
    OUT,  # first cell of the output
    OUT_EXP,  # place of its exponent
    SIZE,  # its cells
    BY_CASE,  # 1: the fastest axis of the output are the cases
    LISTED,  # terms that are listed for each cell of the output; 0: loops; SPARSE
    PACKED,  # 1: loops by products of matrices, see `loops.products`
    KEPT,  # loops over variables of the output
    REDUCED,  # loops over eliminated variables
    ROW,  # extent of the innermost loop
    ROW_OUT,  # its stride of the output: 1, or 0 where it is reduced
    A,  # first cell of the first input
    A_EXP,  # place of its exponent
    ROW_A,  # its stride along the row: 0 or 1
    B,
    B_EXP,
    ROW_B,
    FIRST_LOOP,
) = range(21)
# LISTED of a contraction whose non-zero terms are listed, see `zeros`. From FIRST_LOOP on: the number of groups and of
# terms; then for each group the terms of each of its cells and the number of cells; for each cell its place and its
# terms: the cell of A, and that of B times 2**32. Where the row is summed a group is one cell: its place, its terms
# in each of 8 lanes, and these, those of lane 0 at 0, 8, 16 ...; `NO_TERM` for what is missing.
SPARSE = -1
NO_TERM = 1 | 1 << 32  # cell 1 is zero in every arena

(
    LOAD_LENGTH,  # numbers of the load
    LOAD_OUT,  # first cell of the copy; of a store: first cell of the family's table, -1 where all is observed
    LOAD_OUT_EXP,  # place of its exponent; of a store: 1 where the fastest axis of the table are the cases
    LOAD_FACTOR,  # first cell of the factor
    LOAD_FACTOR_EXP,  # place of its exponent
    LOAD_CELLS,  # cells of the copy
    LOAD_OBSERVED,  # observed variables
    LOAD_LOOPS,  # loops
    LOAD_WEIGHTS,  # weights
    LOAD_FIELDS,
) = range(10)


# addresses at the beginning of `workspace.KernelScratch.block`; CONTRACT: of the compiled loops by sum; CONTRACT + 1:
# of those by maximum, 0 without a program that needs them
CONTRACT, _, WORK, OFFSETS, BUFFER, SCRATCH_FIELDS = range(6)
LIST = 2048  # offsets of reduced cells that a contraction lists at a time

IMPOSSIBLE = -math.inf  # ln P(e) of evidence that cannot be


# The *code* of a pattern: one array that has everything in it, so that deriving, caching and running it take one array.
# It begins with these numbers: where its parts end (each begins where the one before it ends, except the wanted tables
# and the answers), and sizes.
(
    END_ROOTS,
    FIRST_WANTED,
    END_WANTED,
    FIRST_ANSWER,
    END_ANSWERS,
    END_LOAD_PTR,
    END_RECORD_PTR,
    END_STORE_PTR,
    END_LOADS,
    END_RECORDS,
    END_STORES,
    CELLS,  # of the arena
    MOST_INPUTS,  # of a contraction
    LONGEST_ROW,  # cells of the longest row of a contraction of more than two tables
    TERMS,  # products that all contractions accumulate
    HEADER,
) = range(16)


class ArenaLayout(NamedTuple):
    """The cells of every arena of a backend that outlive a query."""

    factor: NDArray[np.int64]  # (F,) first cell of each factor
    answer: NDArray[np.int64]  # (V,) first cell of each posterior, by rank
    first: int  # first cell that a program may use
    # (F + T,) first cell of each restricted factor and of each table, the same in every program; empty: one after
    # another
    places: NDArray[np.int64]


class Records(NamedTuple):
    """The program of one pattern and one set of targets."""

    records: NDArray[np.int64]  # contractions one after the other
    record_ptr: NDArray[np.int64]  # (n+1,)
    loads: NDArray[np.int64]  # factors that are restricted or weighed first
    load_ptr: NDArray[np.int64]
    stores: NDArray[np.int64]  # families whose tables are added to expected counts
    store_ptr: NDArray[np.int64]
    roots: Matrix[np.int64]  # (components, 3) cell and exponent of the numbers whose product is P(e); whether by case
    wanted: Matrix[np.int64]  # (n, 3) the same of the wanted tables
    answers: Matrix[np.int64]  # (targets, 3) variable by rank, first cell of its posterior, whether by case
    counts: NDArray[np.int64]  # (4,) see the properties

    @classmethod
    def of(cls, code: NDArray[np.int64]) -> Records:
        """Views of the parts of a pattern's code."""
        c: list[int] = code[:HEADER].tolist()
        return cls(
            code[c[END_LOADS] : c[END_RECORDS]],
            code[c[END_LOAD_PTR] : c[END_RECORD_PTR]],
            code[c[END_STORE_PTR] : c[END_LOADS]],
            code[c[END_ANSWERS] : c[END_LOAD_PTR]],
            code[c[END_RECORDS] : c[END_STORES]],
            code[c[END_RECORD_PTR] : c[END_STORE_PTR]],
            code[HEADER : c[END_ROOTS]].reshape(-1, 3),
            code[c[FIRST_WANTED] : c[END_WANTED]].reshape(-1, 3),
            code[c[FIRST_ANSWER] : c[END_ANSWERS]].reshape(-1, 3),
            code[CELLS:HEADER],
        )

    def code(self) -> NDArray[np.int64]:
        """One array, of which `of` makes these again."""
        parts = (
            self.roots.ravel(), self.wanted.ravel(), self.answers.ravel(), self.load_ptr, self.record_ptr,
            self.store_ptr, self.loads, self.records, self.stores,
        )  # fmt: skip
        ends = np.cumsum([HEADER, *map(len, parts)])
        first = ends[[1, 2]]
        return np.concatenate([ends[1:2], first[:1], ends[2:3], first[1:], ends[3:], self.counts, *parts])

    @property
    def cells(self) -> int:
        """Cells of the arena."""
        return int(self.counts[0])

    @property
    def most_inputs(self) -> int:
        """Inputs of a contraction, at most."""
        return int(self.counts[1])

    @property
    def longest_row(self) -> int:
        """Cells of the longest row of a contraction of more than two tables."""
        return int(self.counts[2])

    @property
    def terms(self) -> int:
        """Products that all contractions accumulate."""
        return int(self.counts[3])

    @property
    def bytes(self) -> int:
        """Memory, about."""
        return 8 * (len(self.records) + len(self.loads) + len(self.stores)) + 1000


# A program run for many cases at once: every table that depends on the evidence has the cases as its fastest axis.
#
# A *lane* is one case. Every lane is scaled by its own powers of two, so a rare case next to a common one loses no
# digit, and a lane whose evidence has probability zero is marked and does not affect the others.

class LaneMemory(NamedTuple):
    """Memory that one thread writes while it runs lanes. L lanes, E exponents."""

    arena: NDArray[np.float64]
    exponent: Matrix[np.int64]  # (E, L) of the factors, and scratch memory for those of the tables
    scaled: NDArray[np.bool_]  # (E,) whether a row of `exponent` is set; a row that is not counts as zeros
    scratch: NDArray[np.int64]  # `workspace.KernelScratch.block`
    chunk: Matrix[np.int32]  # (L, V) observed states of the present cases, by rank
    dead: NDArray[np.bool_]  # (L,) lanes whose evidence has probability zero
    weights: NDArray[np.float64]  # likelihoods of the present cases, (states, L) a variable
    weight_ptr: NDArray[np.int64]  # (V,) first number of each variable in `weights`, by rank; -1: has none
    source: NDArray[np.int64]  # (L,) scratch memory
    top: NDArray[np.float64]  # (L,) scratch memory
    factor: NDArray[np.float64]  # (largest cardinality * L,) scratch memory


FAR = 1080  # log2 of how much larger a number is than another one that no longer changes it


class ExtendedArena(NamedTuple):
    """An arena in extended numbers, ``cell * 2**power``; see `loops.extended`."""

    cell: NDArray[np.float64]  # in [.5, 1), or 0
    power: NDArray[np.int64]  # 0 for a cell that is 0
    powers: NDArray[np.float64]  # (FAR,) 2**-i


class ExtendedWeights(NamedTuple):
    """Likelihoods in extended numbers."""

    value: NDArray[np.float64]  # variable after variable
    power: NDArray[np.int64]  # of each
    first: NDArray[np.int64]  # (V,) first number of each variable, by rank


class Cases(NamedTuple):
    """The rows of a table that run in one call. B rows in all."""

    rows: NDArray[np.int64]  # rows that this program answers
    states: Matrix[np.int32]  # (B, V) observed states, -1 = not observed
    by_rank: NDArray[np.int64]  # (V,) column of `states` of each rank
    weights: Matrix[np.float64]  # (B, W) likelihoods, variable after variable
    log_evidence: NDArray[np.float64]  # (B,) gets ln P(e)
    impossible: NDArray[np.bool_]  # (B,) gets whether P(e) = 0
    lost: NDArray[np.bool_]  # (B,) gets whether digits were lost, in the row or its neighbour; it runs again by itself


class PosteriorCells(NamedTuple):
    """Where posteriors are written to."""

    cells: Matrix[np.float64]  # (B, columns)
    place: NDArray[np.int64]  # (V,) first column of each variable by rank; -1: not wanted
    cards: NDArray[np.int64]  # (V,) cardinalities by rank
    hard: NDArray[np.int64]  # observed variables, by rank


class CountedCells(NamedTuple):
    """Where expected counts are added to."""

    cells: NDArray[np.float64]  # every factor's cells, as in an arena
    weights: NDArray[np.float64]  # (B,) weights of the rows


# From what remains of a program to the records that the CPU runs.
_loops = loops("jtgpu.backends.cpu.loops.lower")

ROOM = 1 << 18  # numbers of scratch memory at first
AVOIDED = 1 << 17  # cells of a table from which contractions may do without it, see `loops.reassociate`


class Lowering:
    """A program in the form in which patterns are lowered. Thread-safe."""
    # axis_rank: (V,) int64

    def __init__(self, program: FlatProgram, axis_rank: NDArray[np.int64]):
        self._image, self._axis_rank = pack(program), np.ascontiguousarray(axis_rank)
        lengths = (program.table_end - program.table_ptr + 1)[program.op_in]
        ptr = program.op_in_ptr.tolist()
        each = [(j - i, int(lengths[i:j].sum())) for i, j in pairwise(ptr)]
        self._most = max((k for k, _ in each), default=0) + 2
        self._widest = max((wide for _, wide in each), default=0) + 1
        self._large = large_outputs(program, AVOIDED) if (program.answers >= 0).any() else []
        self._rooms: list[NDArray[np.int64]] = []  # idle scratch memory

    def lower(
        self,
        layout: ArenaLayout,
        seen: NDArray[np.bool_],
        soft: tuple[int, ...] = (),
        targets: Sequence[int] | None = None,
        lanes: int = 1,
    ) -> NDArray[np.int64]:
        """The code of a pattern, see `records.Records`.

        With several lanes the program answers as many cases at once: every table that depends on the evidence has one
        more axis, its fastest, that runs over the cases; all others are made once for all.
        """
        # seen: (V,) bool: Observed variables, by number
        # soft: tuple of int: Variables with weights that are not observed
        # targets: sequence of int: Variables whose posteriors are wanted; those of observed ones are never made.
        #     Default: all.
        # lanes: Cases that the program answers at once
        sizes = np.array((self._most, self._widest, layout.first, lanes, AVOIDED, *self._large))
        wanted = _ALL if targets is None else np.array(targets, np.int64)
        weighed = np.array(soft, np.int64) if soft else _NONE
        try:
            room = self._rooms.pop()
        except IndexError:
            room = np.zeros(ROOM, np.int64)
        while True:
            begin, end = _loops.specialise(
                self._image, sizes, self._axis_rank, layout.factor, layout.answer, layout.places, seen, weighed, wanted,
                room,
            )  # fmt: skip
            if begin >= 0:
                break
            room = np.zeros(end, np.int64)
        code = room[begin:end].copy()
        self._rooms.append(room)
        return code

    def clear(self) -> None:
        """Free the scratch memory."""
        self._rooms.clear()


_ALL, _NONE = np.full(1, -1, np.int64), np.zeros(0, np.int64)
