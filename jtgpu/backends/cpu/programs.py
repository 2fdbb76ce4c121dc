"""Programs by pattern: derived once for each set of observed variables and targets, and cached."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plans.program import Program
from ...plans.specialise import FREE, HARD, SOFT, FlatProgram, conditional_heads, flatten
from ...util.loops import loops
from ...util.lru import LRU
from .backward import Steps, steps_of
from .lower import lower
from .parallel import Tasks, make_tasks
from .records import Layout, Records
from .zeros import without_zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .workspace import Numbers

_sweep = loops("jtgpu.backends.cpu.loops.sweep")

__all__ = ["CachedProgram", "ProgramCache"]

MOST_PROGRAMS = 256  # a table of cases with many missing cells has more patterns than will occur again
MOST_PROGRAM_BYTES = 64 << 20
FEW = 50_000  # terms below which it does not pay to look for zeros
LOOK = 40  # queries that take as long as looking for zeros
MOST_ROOM = 1 << 20  # numbers of scratch memory for deriving a program


class CachedProgram:
    """The records of a pattern, and what else a query of that pattern needs.

    Parameters
    ----------
    flat : FlatProgram
    records : Records
    pattern : (V,) uint8
        `FREE`, `HARD` or `SOFT` for each variable, by rank.
    wanted : (V,) bool
        Variables whose posteriors are wanted, by number.
    program : Program
    """

    def __init__(
        self,
        flat: FlatProgram,
        records: Records,
        pattern: NDArray[np.uint8],
        wanted: NDArray[np.bool_],
        program: Program,
    ):
        self.records = self._dense = records
        # as plain integers: every query reads them
        self.terms, self.bytes, self.cells = records.terms, records.bytes, records.cells
        self.row = records.longest_row
        self.work = 4 * records.most_inputs + 64 + self.row
        seen = (pattern == HARD)[program.axis_rank]
        self.hard = np.flatnonzero(seen)  # observed variables
        self.first = program.posterior_ptr[self.hard]  # the first cell of each among the posteriors
        self.blank = np.flatnonzero(~np.repeat(wanted & ~seen, program.cardinality))  # cells that are not written
        self.is_sparse = False  # whether the records leave out zeros
        self._flat, self._pattern = flat, pattern
        self._spent = 0  # terms of all queries so far
        self._tasks: tuple[int, Records, Tasks] | None = None
        self._hashes: tuple[Records, tuple[NDArray[np.uint64], NDArray[np.uint64]]] | None = None

    def tasks(self, records: Records, n_exponents: int, threads: int) -> Tasks:
        """The records, those of this program at some time, split for some threads."""
        found = self._tasks
        if found is None or found[0] != threads or found[1] is not records:
            self._tasks = found = threads, records, make_tasks(records, n_exponents, threads)
        return found[2]

    def leave_out_zeros(
        self, numbers: Numbers, cards: NDArray[np.int64], lanes: int = 1, runs: int = 1, cells: int = 0
    ) -> None:
        """Note that the program is about to run; leave out structural zeros once that pays.

        Parameters
        ----------
        numbers : Numbers
        cards : (V,) int64
            Cardinalities by rank.
        lanes, runs : int
            Cases that a run answers, and the number of runs.
        cells : int
            Of the arena, where the program's own count is not all of it.
        """
        self._spent += runs * self.terms
        if self.is_sparse or self.terms < FEW or self._spent < LOOK * self.terms:
            return
        self.is_sparse = True
        self.records = without_zeros(self.records, numbers, cards, lanes, cells)

    def hashes(self, records: Records) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Of the contractions and of the loads of `records`, those of this program at some time."""
        found = self._hashes
        if found is None or found[0] is not records:
            hashed = _sweep.hashes(records.records, records.record_ptr), _sweep.hashes(records.loads, records.load_ptr)
            self._hashes = found = records, hashed
        return found[1]

    @cached_property
    def slices(self) -> tuple[int, int]:
        """Cells of the largest slice of the backward pass, and most inputs or variables of a step."""
        largest, most, _, _ = self.steps.counts.tolist()
        return largest, most

    @cached_property
    def unshared_steps(self) -> Steps:
        """`steps` for samples of different cases."""
        return self.steps.unshared

    @cached_property
    def steps(self) -> Steps:
        """The backward pass; of a program by sum, or one that eliminates some variables by maximum."""
        return steps_of(self._flat, self._pattern, self._dense)


class ProgramCache:
    """Programs by pattern, targets and lanes. Thread-safe.

    Parameters
    ----------
    program : Program
    factors : sequence of arrays
        The model's tables: which of them are conditional densities, and which entries are zero.
    layout : Layout
    """

    def __init__(self, program: Program, factors: Sequence[NDArray[np.float64]], layout: Layout):
        self._program, self._layout = program, layout
        self._heads = self._find_heads(factors)
        self._support = [table > 0 for table in factors]
        self._flat = flatten(program, self._heads)
        self._cached: LRU[Any, CachedProgram] = LRU(MOST_PROGRAMS, MOST_PROGRAM_BYTES, lambda cached: cached.bytes)
        self._rooms: list[NDArray[np.int64]] = []  # idle scratch memory

    def _find_heads(self, factors: Sequence[NDArray[np.float64]]) -> list[int] | None:
        program = self._program
        return conditional_heads(factors, program.factor_scopes, program.n_variables) if program.may_prune else None

    def get(
        self,
        seen: NDArray[np.bool_],
        soft: tuple[int, ...] = (),
        targets: Sequence[int] | None = None,
        lanes: int = 1,
        layout: Layout | None = None,
    ) -> CachedProgram:
        """The program of a pattern.

        Parameters
        ----------
        seen : (V,) bool
            Observed variables.
        soft : tuple of int
            Variables with weights.
        targets : sequence of int, optional
            Variables whose posteriors are wanted. Default: all.
        lanes : int
            Cases that the program answers at once.
        layout : Layout, optional
            Another one than the usual, always the same.
        """
        key = (seen.tobytes(), soft, None if targets is None else tuple(targets), lanes, layout is None)
        cached = self._cached.get(key)
        if cached is None:
            cached = self._derive(seen, soft, targets, lanes, self._layout if layout is None else layout)
            cached = self._cached.add(key, cached)
        return cached

    def _derive(
        self,
        seen: NDArray[np.bool_],
        soft: tuple[int, ...],
        targets: Sequence[int] | None,
        lanes: int,
        layout: Layout,
    ) -> CachedProgram:
        program = self._program
        pattern = np.full(program.n_variables, FREE, np.uint8)
        pattern[seen] = HARD
        pattern[list(soft)] = SOFT
        pattern = pattern[program.by_rank]
        wanted = np.full(program.n_variables, targets is None)
        if targets is not None:
            wanted[list(targets)] = True
        try:
            room = self._rooms.pop()
        except IndexError:
            room = np.empty(MOST_ROOM, np.int64)
        records = lower(self._flat, layout, pattern, wanted[program.by_rank], lanes, room)
        self._rooms.append(room)
        return CachedProgram(self._flat, records, pattern, wanted, program)

    def serves(self, factors: Sequence[NDArray[np.float64]]) -> bool:
        """Whether the cached programs are right for other numbers: the same densities and the same zeros."""
        return self._heads == self._find_heads(factors) and all(
            np.array_equal(support, table > 0) for support, table in zip(self._support, factors, strict=True)
        )

    def clear(self) -> None:
        """Drop all programs."""
        self._cached.clear()
