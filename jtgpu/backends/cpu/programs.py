"""Programs by pattern: derived once for each set of observed variables and targets, and cached.

Tables that overwrite what is read no more, and contractions in an order in which large tables are soon read.

The tables of a wide network exceed the caches: written once and read much later, each passes memory twice. Where only
the answers of a run are read, contractions run depth first, and a large table takes the cells of the one that was read
for the last time most recently; a product cell by cell replaces its input. Every contraction does what it did before,
so the bits are the same.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...plans.program import Program
from ...plans.specialise import FREE, HARD, SOFT, FlatProgram, densities, flatten, without
from ...util.loops import loops
from ...util.lru import LRU
from .backward import BackwardSteps, steps_of
from .costs import Times, splittable, threads_of, times_of
from .parallel import Tasks, make_tasks
from .records import (
    ANSWER,
    CELLS,
    FIRST_LOOP,
    HEADER,
    INPUTS,
    LISTED,
    OUT,
    OUT_EXP,
    PACKED,
    REDUCED,
    ROW_A,
    ROW_B,
    ROW_OUT,
    SIZE,
    A,
    ArenaLayout,
    B,
    Lowering,
    Records,
)
from .workspace import KernelScratch, ModelNumbers, aligned

# Structural zeros: contractions most of whose terms are zero in every case, as lists of the other terms.
#
# Many networks are full of zeros: 1.5 % of water's terms remain, 15 % of mildew's. Which ones depends on the factors
# and on the pattern of a program, not on the observed states. So a program that runs repeatedly is run once with ones
# for numbers, and a contraction becomes a list where its remaining terms take less time one by one than all of them
# by vector instructions.

_loops = loops("jtgpu.backends.cpu.loops.zeros")

# Measured on a Xeon with AVX-512: a dense term takes 0.07 to 0.2 ns, a listed one 1.3 ns; of eight cases at once, 2 ns.
MOST_LEFT = 0.08  # share of the terms of a contraction up to which those left are listed
MOST_LEFT_OF_LANES = 0.08
FEWEST_TERMS = 200  # of a contraction that may become a list


def without_zeros(
    program: Records, numbers: ModelNumbers, cards: NDArray[np.int64], lanes: int, cells: int = 0
) -> Records:
    """A program whose contractions leave out what is zero in every case; the same one where that does not pay."""
    # numbers: The model's factors
    # cards: (V,) int64: Cardinalities by rank
    # lanes: Cases that the program answers at once
    # cells: Of the arena, where the program's own count is not all of it
    arena = aligned(max(program.cells, cells))
    numbers.fill(arena)
    factors = arena[: numbers.factor_cells]
    np.greater(factors, 0, out=factors, casting="unsafe")
    scratch = KernelScratch(numbers.is_maximal)
    scratch.fit(4 * program.most_inputs + 64 + program.longest_row, program.longest_row)
    _loops.support(arena, program, cards, lanes, scratch.block)
    records, record_ptr, changed = _loops.rewrite(
        arena, program.records, program.record_ptr, lanes, MOST_LEFT, MOST_LEFT_OF_LANES, FEWEST_TERMS
    )
    return program._replace(records=records, record_ptr=record_ptr) if changed else program


_sweep = loops("jtgpu.backends.cpu.loops.sweep")

MOST_PROGRAMS = 256  # a table of cases with many missing cells has more patterns than will occur again
MOST_PROGRAM_BYTES = 64 << 20
FEW = 50_000  # terms below which it does not pay to look for zeros
LOOK = 40  # queries that take as long as looking for zeros
MANY = 1_000_000_000  # terms of all queries from which tables may take the cells of others
OVERHEAD = 2000  # bytes of a program besides its code, about


class CachedProgram:
    """The code of a pattern, and what else a query of that pattern needs."""
    # source: What derived it
    # key: Of the pattern in that cache; see `ProgramCache.get`
    # code: See `records.Records`
    # flat: What it was lowered from

    def __init__(self, source: ProgramCache, key: tuple[Any, ...], code: NDArray[np.int64], flat: FlatProgram):
        self.code = self._dense = code
        # as plain integers: every query reads them
        sizes: list[int] = code[CELLS:HEADER].tolist()
        self.cells, most_inputs, self.row, self.terms = sizes
        self.work = 4 * most_inputs + 64 + self.row
        self.bytes = code.nbytes + OVERHEAD
        first = source.program.n_plain
        self.set_targets = [v for v in dict.fromkeys(key[2]) if v >= first] if key[2] and source.program.n_sets else []
        self.is_sparse = False  # whether the code leaves out zeros
        self.key = key
        self._program, self._flat = source.program, flat
        # weak: with a reference cycle, the memory of a tree that is not closed would wait for the garbage collector
        self._source = weakref.ref(source)
        self._spent = 0  # terms of all queries so far
        self._reused: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        self._records: Records | None = None
        self._tasks: tuple[int, Records, Tasks] | None = None
        self._splittable: tuple[Records, float] | None = None
        self._hashes: tuple[Records, tuple[NDArray[np.uint64], NDArray[np.uint64]]] | None = None

    @property
    def records(self) -> Records:
        """The parts of the code."""
        records = self._records
        if records is None:
            self._records = records = Records.of(self.code)
        return records

    @property
    def dense(self) -> Records:
        """The parts of the code before structural zeros were left out."""
        return Records.of(self._dense)

    @cached_property
    def times(self) -> Times:
        """Estimated time of a run, for tables of cases."""
        return times_of(self.dense, self.key[3])

    @cached_property
    def hard(self) -> NDArray[np.int64]:
        """Observed variables."""
        return np.flatnonzero(np.frombuffer(self.key[0], np.bool_))

    def threads(self, most: int) -> int:
        """Threads, at most so many, that pay for one case."""
        records, shared = self.records, self._splittable
        if shared is None or shared[0] is not records:
            self._splittable = shared = records, splittable(records)
        return threads_of(shared[1], most)

    def tasks(self, records: Records, n_exponents: int, threads: int) -> Tasks:
        """The records, those of this program at some time, split for some threads."""
        tasks = self._tasks
        if tasks is None or tasks[0] != threads or tasks[1] is not records:
            self._tasks = tasks = threads, records, make_tasks(records, n_exponents, threads)
        return tasks[2]

    def leave_out_zeros(
        self, numbers: ModelNumbers, cards: NDArray[np.int64], lanes: int = 1, runs: int = 1, cells: int = 0
    ) -> None:
        """Note that the program is about to run; leave out structural zeros once that pays."""
        # cards: (V,) int64: Cardinalities by rank
        # lanes, runs: Cases that a run answers, and the number of runs
        # cells: Of the arena, where the program's own count is not all of it
        self._spent += runs * self.terms
        if self.is_sparse or self.terms < FEW or self._spent < LOOK * self.terms:
            return
        self.is_sparse = True
        dense = self.dense
        records = without_zeros(dense, numbers, cards, lanes, cells)
        if records is not dense:
            self._records, self.code = None, records.code()
            self._grow(self.code.nbytes)

    def answering(self) -> NDArray[np.int64]:
        """The code for a run of which only the answers and P(e) are read; see `reuse`."""
        if self._spent < MANY:
            return self.code
        reused = self._reused
        if reused is None or reused[0] is not self.code:
            code, records = self.code, self.records
            made = reuse_cells(records)
            self._reused = reused = code, code if made is records else made.code()
            self._grow(0 if made is records else code.nbytes)
        return reused[1]

    def _grow(self, size: int) -> None:
        """Count bytes that were added after the cache took this program."""
        self.bytes += size
        source = self._source()
        if source is not None:
            source.recount(self)

    def hashes(self, records: Records) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Of the contractions and of the loads of `records`, those of this program at some time."""
        hashes = self._hashes
        if hashes is None or hashes[0] is not records:
            hashed = _sweep.hashes(records.records, records.record_ptr), _sweep.hashes(records.loads, records.load_ptr)
            self._hashes = hashes = records, hashed
        return hashes[1]

    @cached_property
    def slices(self) -> tuple[int, int]:
        """Cells of the largest slice of the backward pass, and most inputs or variables of a step."""
        largest, most, _, _ = self.steps.counts.tolist()
        return largest, most

    @cached_property
    def unshared_steps(self) -> BackwardSteps:
        """`steps` for samples of different cases."""
        steps = self.steps.unshared
        self._grow(steps.steps.nbytes)
        return steps

    @cached_property
    def steps(self) -> BackwardSteps:
        """The backward pass; of a program by sum, or one that eliminates some variables by maximum."""
        pattern = np.full(self._program.n_variables, FREE, np.uint8)
        pattern[self.hard] = HARD
        pattern[list(self.key[1])] = SOFT
        records, chosen = self.dense, bool(self._program.chosen)
        steps = steps_of(self._flat, pattern[self._program.by_rank], records, maximal_only=chosen)
        self._grow(steps.steps.nbytes + steps.step_ptr.nbytes)
        return steps


class _Form:
    """A program with the heads of its factors, as patterns are lowered from it."""

    def __init__(self, program: Program, heads: Sequence[int]):
        self.flat = flatten(program, heads)
        self.lowering = Lowering(self.flat, program.axis_rank)


class ProgramCache:
    """Programs by pattern, targets and lanes. Thread-safe."""
    # factors: sequence of arrays: The model's tables: which of them are conditional densities, and which entries are
    #     zero

    def __init__(self, program: Program, factors: Sequence[NDArray[np.float64]], layout: ArenaLayout):
        self.program, self._layout = program, layout
        self._heads = self._find_heads(factors)
        self._support = [table > 0 for table in factors]
        heads, loose = self._heads
        self._loose = sorted(loose)  # observed in all patterns of a split model; free ones in few other models
        self._observing = _Form(program, heads)
        self._form = _Form(program, without(heads, loose, program.factor_scopes)) if loose else self._observing
        self._cached: LRU[Any, CachedProgram] = LRU(MOST_PROGRAMS, MOST_PROGRAM_BYTES, lambda cached: cached.bytes)

    def _find_heads(self, factors: Sequence[NDArray[np.float64]]) -> tuple[list[int], frozenset[int]]:
        program = self.program
        if not program.may_prune:
            return [-1] * program.n_factors, frozenset()
        # the ones of a set are no density, and need no sums over each axis of a table that may be large
        n = program.n_factors - program.n_sets
        tables = [*factors[:n], *(np.full((1,) * table.ndim, 2.0) for table in factors[n:])]
        return densities(tables, program.factor_scopes, program.n_variables)

    def get(
        self,
        seen: NDArray[np.bool_],
        soft: tuple[int, ...] = (),
        targets: Sequence[int] | None = None,
        lanes: int = 1,
        layout: ArenaLayout | None = None,
    ) -> CachedProgram:
        """The program of a pattern."""
        # seen: (V,) bool: Observed variables
        # soft: tuple of int: Variables with weights
        # targets: sequence of int: Variables whose posteriors are wanted. Default: all.
        # lanes: Cases that the program answers at once
        # layout: Another one than the default, always the same
        if len(seen) < self.program.n_variables:  # without set variables
            seen = np.concatenate([seen, np.zeros(self.program.n_variables - len(seen), np.bool_)])
        key = (seen.tobytes(), soft, None if targets is None else tuple(targets), lanes, layout is None)
        cached = self._cached.get(key)
        if cached is None:
            form = self._observing if seen[self._loose].all() else self._form
            code = form.lowering.lower(self._layout if layout is None else layout, seen, soft, targets, lanes)
            cached = self._cached.add(key, CachedProgram(self, key, code, form.flat))
        return cached

    def recount(self, cached: CachedProgram) -> None:
        """Take note that a program occupies more memory than before."""
        if cached.key in self._cached:
            self._cached.put(cached.key, cached)

    def serves(self, factors: Sequence[NDArray[np.float64]]) -> bool:
        """Whether the cached programs are right for other numbers: the same densities and the same zeros."""
        return self._heads == self._find_heads(factors) and all(
            np.array_equal(support, table > 0) for support, table in zip(self._support, factors, strict=True)
        )

    @property
    def bytes(self) -> int:
        """Bytes that the cached programs occupy, about."""
        return self._cached.bytes

    def __len__(self) -> int:
        return len(self._cached)

    def clear(self) -> None:
        """Drop all programs and scratch memory."""
        self._cached.clear()
        self._observing.lowering.clear()
        self._form.lowering.clear()


LARGE = 1 << 13  # cells of a table that may move
LEAST = 1 << 18  # cells of all of them from which it pays: 2 MiB


class _Graph:
    """Contractions and the tables that they write and read, by the places of their exponents."""

    def __init__(self, records: Records):
        r, at = records.records, records.record_ptr[:-1]
        self.out: list[int] = r[at + OUT_EXP].tolist()
        self.cell, self.size = r[at + OUT].tolist(), (-(-r[at + SIZE] // 8) * 8).tolist()
        inputs, listed, answer = r[at + INPUTS].tolist(), r[at + LISTED].tolist(), r[at + ANSWER].tolist()
        self.fields = [[A, B, *range(FIRST_LOOP, FIRST_LOOP + 3 * (k - 2), 3)] for k in inputs]
        self.ins = [
            r[np.array(fields) + (first + 1)].tolist() for fields, first in zip(self.fields, at.tolist(), strict=True)
        ]
        maker = {t: i for i, t in enumerate(self.out)}
        self.readers: list[list[int]] = [[] for _ in self.out]  # of each contraction's table
        self.needs = [sorted({maker[t] for t in ins if t in maker}) for ins in self.ins]
        for i, needs in enumerate(self.needs):
            for j in needs:
                self.readers[j].append(i)
        fixed = {*records.roots[:, 1].tolist(), *records.wanted[:, 1].tolist()}
        self.moves = [
            size >= LARGE and answer[i] < 0 and listed[i] == 0 and self.out[i] not in fixed and bool(self.readers[i])
            for i, size in enumerate(self.size)
        ]
        for i, needs in enumerate(self.needs):
            if listed[i]:  # its terms are cells
                for j in needs:
                    self.moves[j] = False

        parts = pairwise(records.record_ptr.tolist())
        self.same = [self._same(r[first:end], i) for i, (first, end) in enumerate(parts)]

    def _same(self, record: NDArray[np.int64], i: int) -> int:
        """The contraction whose table this one multiplies cell by cell, and may replace; -1: none."""
        if not self.moves[i] or len(self.fields[i]) != 2 or record[PACKED] or record[REDUCED] or record[ROW_OUT] != 1:
            return -1
        strides = np.vstack([record[FIRST_LOOP:].reshape(-1, 4)[:, 1:], record[[ROW_OUT, ROW_A, ROW_B]]])
        for t, x in enumerate(self.ins[i]):
            j = next((j for j in self.needs[i] if self.out[j] == x), -1)
            if j >= 0 and self.moves[j] and (strides[:, 0] == strides[:, 1 + t]).all():
                return j
        return -1

    def order(self) -> list[int]:
        """The contractions, those first that read the latest large table and free as many cells as they take."""
        waiting, left = [len(needs) for needs in self.needs], [len(readers) for readers in self.readers]
        order: list[int] = []
        when: dict[int, int] = {}

        def key(i: int) -> tuple[bool, int, int, int]:
            read = [j for j in self.needs[i] if self.moves[j]]
            grows = self.moves[i] * self.size[i] - sum(self.size[j] for j in read if left[j] == 1)
            return grows > 0, -max((when[j] for j in read), default=-1), grows, i

        ready = [i for i, n in enumerate(waiting) if n == 0]
        large, small = [i for i in ready if self.moves[i]], [i for i in ready if not self.moves[i]]
        while small or large:
            best = min(map(key, large), default=(True, 0, 0, -1))
            if small and best[0]:
                i = heapq.heappop(small)
            else:
                i = best[3]
                large.remove(i)
            when[i] = len(order)
            order.append(i)
            for j in self.needs[i]:
                left[j] -= 1
            for j in self.readers[i]:
                waiting[j] -= 1
                if waiting[j] == 0 and (self.moves[j] or any(self.moves[k] for k in self.needs[j])):
                    large.append(j)
                elif waiting[j] == 0:
                    heapq.heappush(small, j)
        return order

    def places(self, order: Sequence[int], end: int) -> tuple[list[int], int]:
        """The first cell of each table, and the cells of the arena, `end` at least."""
        cell, left = list(self.cell), [len(readers) for readers in self.readers]
        unused: list[tuple[int, int]] = []  # (first cell, end) where large tables were before
        for i in sorted((i for i, moves in enumerate(self.moves) if moves), key=self.cell.__getitem__):
            _free(unused, self.cell[i], self.cell[i] + self.size[i])
        free: list[tuple[int, int]] = []  # the last one was read last
        for i in order:
            same = self.same[i]
            if same >= 0 and left[same] == 1:
                cell[i], left[same] = cell[same], 0
            elif self.moves[i]:
                cell[i] = _take(free, self.size[i])
                if cell[i] < 0:
                    cell[i] = _take(unused, self.size[i])
                if cell[i] < 0:
                    cell[i], end = end, end + self.size[i]
            for j in self.needs[i]:
                left[j] -= 1
                if left[j] == 0 and self.moves[j]:
                    _free(free, cell[j], cell[j] + self.size[j])
        return cell, end


def _take(parts: list[tuple[int, int]], size: int) -> int:
    """Take so many cells from the last part that is large enough; -1 if there is none."""
    for p in range(len(parts) - 1, -1, -1):
        first, end = parts[p]
        if end - first >= size:
            parts[p : p + 1] = [(first + size, end)] if end - first > size else []
            return first
    return -1


def _free(parts: list[tuple[int, int]], first: int, end: int) -> None:
    """Append a part, joined with its neighbours."""
    for part in [part for part in parts if part[0] == end or part[1] == first]:
        parts.remove(part)
        first, end = min(first, part[0]), max(end, part[1])
    parts.append((first, end))


def reuse_cells(records: Records) -> Records:
    """A program that leaves only answers and roots; the same one where that does not pay."""
    graph = _Graph(records)
    if sum(size for size, moves in zip(graph.size, graph.moves, strict=True) if moves) < LEAST:
        return records
    order = graph.order()
    cell, cells = graph.places(order, records.cells)
    if cells > records.cells:  # what is free is in pieces
        return records
    ptr, maker = records.record_ptr.tolist(), {t: i for i, t in enumerate(graph.out)}
    parts = []
    for i in order:
        record = records.records[ptr[i] : ptr[i + 1]].copy()
        record[OUT] = cell[i]
        for field, t in zip(graph.fields[i], graph.ins[i], strict=True):
            if t in maker:
                record[field] = cell[maker[t]]
        parts.append(record)
    return records._replace(records=np.concatenate(parts), record_ptr=np.cumsum([0, *map(len, parts)]))
