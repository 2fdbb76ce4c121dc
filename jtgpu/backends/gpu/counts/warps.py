"""Expected counts of tables most of whose cells are observed: a warp a case (cuda/batch/warps.cu).

An observed variable has one state, so a case's tables have no axis of it. With a tenth of the cells missing, networks
whose tables have 10 to 500 million products then need 2,000 to 20,000 a case. `WarpProgram.suits` says for which
tables this pays; cases that take too much are left to records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels
from ....plans.plan import Plan
from ....plans.program import UNIT
from ..batch.buffers import GROUP
from ..program.layout import scaled_factors
from ..program.records import NONE
from .chunk import CountChunk, fold
from .generated import CountProgram, FamilyCells, count_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

WARPS, THREADS = 4, 256  # cases of a block; threads of the other kernels' blocks
CELLS, PRODUCTS, EACH = 1 << 16, 1 << 16, 128  # most of a case of a warp; more products for each contraction
MOST_CELLS, MOST_PRODUCTS = 1 << 20, 1 << 23  # of a case of a block
FEW, MOST_FEW = 32, 256  # cases a piece of memory for such a case; most pieces
MOST_VARIABLES, MOST_STATES = 3000, 1 << 16
STEP, PRODUCT, DENSE = 2e-10, 5e-11, 6e-13  # seconds of a contraction, of a product, and of one by records, on an H100
GAIN = 1.5  # least one
SAMPLE = 64  # cases that say what a table's cases observe
UNITS = 64.0  # of log2 of a number of states: integers, so that sums of them are exact
LEAST_CASES, MOST_CASES = 1 << 12, 1 << 14  # of a part of a table
PARTS = 8  # of a table, if it has enough cases
IN_A, IN_B, IN_OUT, WEIGHED = 1 << 16, 1 << 17, 1 << 18, 1 << 19
BITS = 125  # of the sum of the absolute weights


class WarpProgram:
    """A plan's contractions, without numbers."""
    # cells: (F + 1,) first cell of each family

    def __init__(self, plan: Plan):
        self.plan = plan
        self.program = program = count_program(plan, split=False)
        scopes, n = program.binary.scopes, plan.n_factors
        self._joint = [tuple(sorted(set().union(*(scopes[t] for t in x.ins)))) for x in program.messages.steps]
        self.cells = np.cumsum([0, *(plan.size(scopes[f]) for f in range(n))])
        self.supported = bool(
            n and not plan.sets and plan.n_variables <= MOST_VARIABLES and 2 * self.cells[-1] < NONE
            and plan.cardinality.max(initial=1) < MOST_STATES
            and max(map(len, (*self._joint, *scopes[:n])), default=0) <= GROUP
        )  # fmt: skip

    def records(self) -> tuple[NDArray[Any], ...]:
        """Steps level by level, where levels begin, families, their axes, and axes of steps and families a lane."""
        plan, program, scopes, n = self.plan, self.program, self.program.binary.scopes, self.plan.n_factors
        roots = program.roots
        steps, level = program.messages.steps, np.array(program.messages.level, np.int64)
        order = np.argsort(level, kind="stable")
        first = np.flatnonzero(np.diff(level[order], prepend=-1, append=-1))
        made = np.array([(x.out, x.ins[0], x.ins[1] if len(x.ins) == 2 else NONE, 0) for x in steps], np.uint32)
        families = [
            (int(self.cells[f]), NONE if d == UNIT else d, roots[program.root[f]], len(scopes[f]))
            for f, d in enumerate(program.derivative)
        ]
        axes = np.zeros((len(steps) + n, GROUP, 2), np.uint32)
        axes[:, :, 0] = plan.n_variables  # a state that every case observes
        for i, k in enumerate(order.tolist()):
            inside = [scopes[t] for t in (*steps[k].ins, steps[k].out)]
            for lane, v in enumerate(sorted(self._joint[k], key=lambda v: int(plan.axis_rank[v]))):
                flags = [bit for bit, scope in zip((IN_A, IN_B)[: len(inside) - 1], inside, strict=False) if v in scope]
                axes[i, lane, 0] = v | sum(flags) | (IN_OUT if v in inside[-1] else 0)
        for f, d in enumerate(program.derivative):
            for lane, v in enumerate(scopes[f]):
                flags = [IN_A | IN_OUT, IN_B * (d != UNIT and v in scopes[d]), WEIGHED * (plan.evidence_factor[v] == f)]
                axes[len(steps) + f, lane] = v | int(sum(flags)), plan.size(scopes[f][lane + 1 :])
        most = max(map(len, scopes[:n]), default=0)
        by_axis = np.ascontiguousarray(axes[len(steps) :, :most].swapaxes(0, 1))
        return made.reshape(-1, 4)[order], first.astype(np.uint32), np.array(families, np.uint32), by_axis, axes

    def suits(self, states: NDArray[Any]) -> bool:
        """Whether a table of cases is counted quicker this way than by records, judged by some of its cases."""
        if not self.supported or not len(states):
            return False
        missing = states[:: -(-len(states) // SAMPLE)] < 0
        cells, products = self._cells.of(missing), self._products.of(missing)
        fits = (cells <= MOST_CELLS) & (products <= MOST_PRODUCTS)
        seconds = STEP * (len(self._joint) + 2 * self.plan.n_factors) + PRODUCT * products
        return bool((seconds + DENSE * self._whole * ~fits).mean() * GAIN <= DENSE * self._whole)

    @cached_property
    def _cells(self) -> Sizes:
        return Sizes(self.plan, [self.program.binary.scopes[x.out] for x in self.program.messages.steps])

    @cached_property
    def _products(self) -> Sizes:
        return Sizes(self.plan, self._joint)

    @cached_property
    def _whole(self) -> float:
        """Products of a case that observes nothing."""
        return float(self._products.of(np.ones((1, self.plan.n_variables), np.bool_))[0])


class Sizes:
    """Cells of some scopes and of all factors, without the variables that a case observes, rounded up a little."""

    def __init__(self, plan: Plan, scopes: Sequence[Sequence[int]]):
        scopes = [x for x in (*scopes, *plan.table_scopes[: plan.n_factors]) if x]
        self._logs = np.ceil(UNITS * np.log2(plan.cardinality)).astype(np.int32)
        self._first = np.cumsum([0, *map(len, scopes)])[:-1]
        self._variables = np.array([v for x in scopes for v in x], np.int64)

    def of(self, missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(n,) for cases of which (n, V) says what they do not observe."""
        logs = np.add.reduceat((missing * self._logs)[:, self._variables], self._first, axis=1)
        return np.asarray(np.exp2(logs / UNITS).sum(axis=1))


class WarpCounts:
    """A plan and a model's numbers on one GPU. Used inside ``device.active()``; see `CountKernels`."""

    kind = "warps"

    def __init__(
        self, program: WarpProgram, factors: Sequence[NDArray[np.float64]], families: FamilyCells, device: Device,
        memory: Memory, stream: Any,
    ):  # fmt: skip
        self.plan, self.device, self._n_out = program.plan, device, len(families.place)
        self._count: CountProgram = program.program
        self._n_cells = int(program.cells[-1])
        steps, levels, *others = program.records()
        self._n_levels = len(levels) - 1
        roots = np.array(self._count.roots, np.uint32)
        cards = self.plan.cardinality.astype(np.uint32)
        place = families.place.astype(np.uint32)
        self._numbers = [memory.put(x, stream) for x in self._numbers_of(factors)]
        self._records = [memory.put(x, stream) for x in (steps, levels, *others, cards, roots)]
        self._place, self._counts = memory.put(place, stream), memory.empty(16 * self._n_cells)
        self._kernels = Kernels(device, "batch/warps", ("count_cases", "count_large", "count_zero", "count_round"))
        self._summing = Kernels(device, "batch/counts", ("count_score", "count_fold"))

    def _numbers_of(self, factors: Sequence[NDArray[np.float64]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """All factors' cells, and the powers of two that multiply them."""
        scaled = list(scaled_factors(self.plan, factors))
        return np.concatenate([x for x, _ in scaled]), np.array([e for _, e in scaled], np.int32)

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        for address, array in zip(self._numbers, self._numbers_of(factors), strict=True):
            self.device.upload(address, array, stream)
        stream.synchronize()

    @property
    def _n_tables(self) -> int:
        return len(self._count.binary.scopes) - self.plan.n_factors

    @property
    def case_bytes(self) -> int:
        return 8 * (CELLS + MOST_CELLS // FEW) + 16 * self._n_tables

    @property
    def most_cases(self) -> int:
        return MOST_CASES

    def takes(self, smallest: float) -> bool:
        """See `CountKernels.takes`: tables are scaled."""
        return True

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, ...]:
        few = max(min(size // FEW, MOST_FEW), 1)
        sizes = (8 * CELLS * size, 8 * MOST_CELLS * few, 16 * self._n_tables * size, 4 * size + 8)
        return few, *map(memory.empty, sizes)

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        plan, count = self.plan, self._count
        shift = BITS - int(np.frexp(chunk.magnitude)[1])
        few, cells, more_cells, tables, left = scratch

        def cases(name: str, grid: tuple[int, int], cases: int, cells: int, capacity: int, most_products: int) -> None:
            words = [chunk.codes, chunk.weights, chunk.weight_row, chunk.of_case, chunk.log_evidence, *self._numbers]
            words += [*self._records, cells, tables, self._counts, left]
            numbers = [chunk.n, plan.n_variables, chunk.n_weights, chunk.width, plan.n_factors, count.n_messages]
            numbers += [self._n_levels, self._n_tables, len(count.roots), capacity, most_products, shift & NONE]
            struct = np.concatenate([np.array(words, np.uint64), np.array(numbers, np.uint32).view(np.uint64)])
            shared = 4 * cases * (plan.n_variables + 1)
            self._kernels.launch(name, *grid, stream, Arguments(struct), shared=shared)

        counts = np.array([self._counts], np.uint64)

        def call(name: str, n: int, *arguments: Any) -> None:
            self._kernels.launch(name, -(-n // THREADS), THREADS, stream, Arguments(*arguments))

        if chunk.is_first:
            call("count_zero", 2 * self._n_cells, counts, 2 * self._n_cells)
        most = PRODUCTS + EACH * count.n_messages
        call("count_zero", 1, np.array([left], np.uint64), 1)
        cases("count_cases", (-(-chunk.n // WARPS), WARPS * GROUP), WARPS, cells, CELLS, most)
        cases("count_large", (few, THREADS), 1, more_cells, MOST_CELLS, MOST_PRODUCTS)
        others = replace(chunk, total=chunk.total + 8 * self._n_out)
        fold(self._summing, others, others.struct(0, 0, 0, 0), 0, stream)
        where = (np.array([x], np.uint64) for x in (self._place, chunk.total))
        call("count_round", max(self._n_out, 1), counts, *where, self._n_out, shift & NONE)

    def close(self) -> None:
        self._kernels.close()
        self._summing.close()
