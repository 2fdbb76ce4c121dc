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
from ....device.driver import Arguments, loaded_kernels
from ....plans.plan import Plan
from ....plans.program import UNIT
from ..batch.buffers import THREADS
from ..batch.warps import TABLE_BYTES, CaseWarps, Sizes, WarpSteps
from ..lower import count_program
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
        by = zip(program.derivative, program.root, strict=True)
        self.families = [(NONE if d == UNIT else d, program.whole.roots[i]) for d, i in by]

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


class WarpCounts(CaseWarps):
    """Expected counts of a model on one GPU; see `CountKernels`."""

    def __init__(
        self, steps: WarpProgram, factors: Sequence[NDArray[np.float64]], families: FamilyCells, device: Device,
        memory: Memory, stream: Any,
    ):  # fmt: skip
        names = ("count_cases", "count_large", "count_zero", "count_round")
        super().__init__(steps, factors, "batch/warps", names, device, memory, stream)
        self._n_out, self._n_cells, self._n_messages = len(families.place), int(steps.cells[-1]), len(steps.steps)
        self.case_bytes, self.most_cases = self.bytes_of(CELLS, MOST_CELLS), MOST_CASES
        place = families.place.astype(np.uint32)
        self._place, self._counts = memory.put(place, stream), memory.empty(16 * self._n_cells)
        self._summing = loaded_kernels(device, "batch/counts", ("count_score", "count_fold"))

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, ...]:
        few, tables = self.few(size), TABLE_BYTES * len(self.steps.scopes)
        return few, *map(memory.empty, (8 * CELLS * size, 8 * MOST_CELLS * few, tables * size, 4 * size + 8))

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        shift = BITS - int(np.frexp(chunk.magnitude)[1])
        few, cells, more_cells, tables, left = scratch
        counts, place, total = (np.array([x], np.uint64) for x in (self._counts, self._place, chunk.total))

        def call(name: str, n: int, *arguments: Any) -> None:
            self._kernels.launch(name, -(-n // THREADS), THREADS, stream, Arguments(*arguments))

        if chunk.is_first:
            call("count_zero", 2 * self._n_cells, counts, 2 * self._n_cells)
        call("count_zero", 1, np.array([left], np.uint64), 1)
        of = self.cases(
            chunk, (cells, tables), codes=chunk.codes, of_case=chunk.of_case, counts=self._counts, left=left, n=chunk.n,
            n_levels=self._n_levels, capacity=CELLS, most_products=PRODUCTS + EACH * self._n_messages, shift=shift,
        )  # fmt: skip
        self.answer(of, (more_cells, MOST_CELLS, MOST_PRODUCTS), np.array([chunk.least]), few, stream)
        others = replace(chunk, total=chunk.total + 8 * self._n_out)
        fold(self._summing, others, others.struct(0, 0, 0, 0), 0, stream)
        call("count_round", max(self._n_out, 1), counts, place, total, self._n_out, shift & NONE)
