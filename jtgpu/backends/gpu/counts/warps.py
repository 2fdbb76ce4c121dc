"""Expected counts of tables most of whose cells are observed: a warp a case (cuda/batch/warps.cu).

`WarpProgram.suits` says for which tables this pays; cases that take too much are left to records.
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
from ..batch.buffers import GROUP, THREADS
from ..batch.warps import FEW, MOST_FEW, TABLE_BYTES, WARPS, Sizes, WarpSteps, cases_struct, numbers_of
from ..lower import CountProgram, count_program
from ..program.records import NONE
from .chunk import CountChunk, fold
from .generated import FamilyCells

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS, PRODUCTS, EACH = 1 << 16, 1 << 16, 128  # most of a case of a warp; more products for each contraction
MOST_CELLS, MOST_PRODUCTS = 1 << 20, 1 << 23  # of a case of a block
STEP, PRODUCT, DENSE = 2e-10, 5e-11, 6e-13  # seconds of a contraction, of a product, and of one by records, on an H100
GAIN = 1.5  # least one
SAMPLE = 64  # cases that say what a table's cases observe
LEAST_CASES, MOST_CASES = 1 << 12, 1 << 14  # of a part of a table
PARTS = 8  # of a table, if it has enough cases
BITS = 125  # of the sum of the absolute weights


class WarpProgram(WarpSteps):
    """The contractions of a plan's expected counts, without numbers."""

    def __init__(self, plan: Plan):
        self.program = program = count_program(plan, split=False)
        super().__init__(program.messages, program.messages.level)

    def suits(self, states: NDArray[Any]) -> bool:
        """Whether a table of cases is counted quicker this way than by records, judged by some of its cases."""
        if not self.supported or not len(states):
            return False
        missing = states[:: -(-len(states) // SAMPLE)].T < 0
        cells, products = self._cells.of(missing).sum(axis=0), self._products.of(missing).sum(axis=0)
        fits = (cells <= MOST_CELLS) & (products <= MOST_PRODUCTS)
        seconds = STEP * (len(self.steps) + 2 * self.plan.n_factors) + PRODUCT * products
        return bool((seconds + DENSE * self._whole * ~fits).mean() * GAIN <= DENSE * self._whole)

    @cached_property
    def _cells(self) -> Sizes:
        return Sizes(self.plan, [*(self.scopes[x.out] for x in self.steps), *self.scopes[: self.plan.n_factors]])

    @cached_property
    def _products(self) -> Sizes:
        return Sizes(self.plan, [*self.joint, *self.scopes[: self.plan.n_factors]])

    @cached_property
    def _whole(self) -> float:
        """Products of a case that observes nothing."""
        return float(self._products.of(np.ones((self.plan.n_variables, 1), np.bool_)).sum())


class WarpCounts:
    """A plan and a model's numbers on one GPU. Used inside ``device.active()``; see `CountKernels`."""

    kind = "warps"

    def __init__(
        self, program: WarpProgram, factors: Sequence[NDArray[np.float64]], families: FamilyCells, device: Device,
        memory: Memory, stream: Any,
    ):  # fmt: skip
        self._steps, self.plan, self.device, self._n_out = program, program.plan, device, len(families.place)
        self._count: CountProgram = program.program
        self._n_cells = int(program.cells[-1])
        roots = np.array(self._count.whole.roots, np.uint32)
        of_factors = zip(self._count.derivative, self._count.root, strict=True)
        steps, levels, *others = program.records((NONE if d == UNIT else d, roots[i]) for d, i in of_factors)
        self._n_levels = len(levels) - 1
        cards = self.plan.cardinality.astype(np.uint32)
        place = families.place.astype(np.uint32)
        records = (*numbers_of(self.plan, factors), steps, levels, *others, cards, roots)
        self._records = [memory.put(x, stream) for x in records]
        self._place, self._counts = memory.put(place, stream), memory.empty(16 * self._n_cells)
        self._kernels = Kernels(device, "batch/warps", ("count_cases", "count_large", "count_zero", "count_round"))
        self._summing = Kernels(device, "batch/counts", ("count_score", "count_fold"))

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        for address, array in zip(self._records, numbers_of(self.plan, factors), strict=False):
            self.device.upload(address, array, stream)
        stream.synchronize()

    @property
    def _n_tables(self) -> int:
        return len(self._count.whole.scopes) - self.plan.n_factors

    @property
    def case_bytes(self) -> int:
        return 8 * (CELLS + MOST_CELLS // FEW) + TABLE_BYTES * self._n_tables

    @property
    def most_cases(self) -> int:
        return MOST_CASES

    def takes(self, smallest: float) -> bool:
        """See `CountKernels.takes`: tables are scaled."""
        return True

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, ...]:
        few = max(min(size // FEW, MOST_FEW), 1)
        sizes = (8 * CELLS * size, 8 * MOST_CELLS * few, TABLE_BYTES * self._n_tables * size, 4 * size + 8)
        return few, *map(memory.empty, sizes)

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        count = self._count
        shift = BITS - int(np.frexp(chunk.magnitude)[1])
        few, cells, more_cells, tables, left = scratch

        def cases(name: str, grid: tuple[int, int], cases: int, cells: int, capacity: int, most_products: int) -> None:
            of = cases_struct(
                self._steps, self._records, (cells, tables), codes=chunk.codes, weights=chunk.weights,
                weight_row=chunk.weight_row, of_case=chunk.of_case, log_evidence=chunk.log_evidence,
                counts=self._counts, left=left, n=chunk.n, n_weights=chunk.n_weights, width=chunk.width,
                n_levels=self._n_levels, n_tables=self._n_tables, n_roots=len(count.whole.roots), capacity=capacity,
                most_products=most_products, shift=shift,
            )  # fmt: skip
            shared = 4 * cases * (self.plan.n_variables + 1)
            self._kernels.launch(name, *grid, stream, Arguments(of, least), shared=shared)

        least = np.array([chunk.least])
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
