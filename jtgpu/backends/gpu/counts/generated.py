"""Expected counts by kernels generated for the network, a thread a case (cuda/batch/lane.cuh, cuda/batch/counts.cu).

The numbers of the factors are in constant memory: new numbers are an upload, never a compilation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, loaded_kernels
from ....device.structs import filled, struct
from ....plans.plan import Plan
from ..batch.buffers import GROUP, THREADS
from ..batch.codegen import Kernel, LaneScratch, LaneWriter, write_kernels
from ..batch.generated import BLOCKS, MOST_CONSTANTS, MOST_LINES, LaneKernels, lane_struct
from ..batch.parts import code_lines
from ..batch.sparsity import Sparsity, find_sparsity
from ..lower import count_program, flat_factors
from ..program.records import NONE
from .chunk import CODES_KERNELS, CountChunk, enter_codes, fold

if TYPE_CHECKING:
    from numpy.typing import NDArray

class FamilyCells:
    """The cells of all families one after the other, axes in the plan's order, and those that may be other than zero.
    """
    # support: sequence of (cells,) arrays of bool: Entries of each factor that are not zero
    # place: (K,) int64: Where each cell that may be other than zero is among all cells
    # first: (F + 1,) int64: The first of the K cells of each family

    def __init__(self, plan: Plan, support: Sequence[NDArray[np.bool_]]):
        self.plan, self.support = plan, list(support)
        self.place = np.flatnonzero(np.concatenate([*self.support, np.zeros(0, np.bool_)]))
        self.first = np.cumsum([0, *(int(s.sum()) for s in self.support)])
        self.are_all = len(self.place) == sum(map(len, self.support))

    def covers(self, flat: Sequence[NDArray[np.float64]]) -> bool:
        """Whether factors have no other entries than these."""
        return not any((x[~s] != 0).any() for x, s in zip(flat, self.support, strict=True))

    def spread(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of the K cells among all cells, and what follows them."""
        n = len(self.place)
        if self.are_all:
            return sums
        spread_sums = np.zeros(sum(len(s) for s in self.support) + len(sums) - n)
        spread_sums[self.place] = sums[:n]
        spread_sums[len(spread_sums) - (len(sums) - n) :] = sums[n:]
        return spread_sums


# Text of generated kernels that count: a thread a case, each family's distribution as columns of numbers.
#
# See `jtgpu.backends.gpu.batch.codegen` for the contractions, which are written the same way.

class CountWriter(LaneWriter):
    """Writes the lines of one kernel that counts."""

    parameters = "Lane b, Weighted c"

    def __init__(
        self, sparsity: Sparsity, columns: dict[int, NDArray[np.int64]], scratch: LaneScratch, *, weights: bool
    ):
        super().__init__(sparsity, scratch, weights=weights)
        self._columns = columns

    def total(self) -> None:
        """ln P(e), and what the products of each component are multiplied by: 0 for an impossible or a lost case."""
        self.lines.append("double total = 0.0; bool good = true;")
        for i, t in enumerate(self.roots):
            value = self.entry(t, 0) if self.sparsity.nonzero[t][0] else "0.0"
            self.lines.append(f"const double root{i} = {value}; total += log_of(root{i}); good &= root{i} >= c.least;")
        self.lines.append("const double weight = good && at < c.n ? c.of_case[at] : 0.0;")
        self.lines.append("b.log_evidence[at] = good ? total : c.is_exact ? -INFINITY : NAN;")
        for i in range(len(self.roots)):
            self.lines.append(f"const double inverse{i} = good ? weight / root{i} : 0.0;")
            self._save(f"inverse{i}")

    def answer(self, table: int, component: int) -> None:
        """Store a family."""
        inverse, columns = self._load(f"inverse{component}"), self._columns[table]
        for c, column in zip(np.flatnonzero(columns >= 0).tolist(), columns[columns >= 0].tolist(), strict=True):
            value = f"{self.entry(table, c)} * {inverse}" if self.sparsity.nonzero[table][c] else "0.0"
            self.lines.append(f"row[{column} * (u64)b.n_cases] = {value};")


def generate_counting(
    sparsity: Sparsity, families: FamilyCells, *, weights: bool, blocks: int
) -> tuple[list[Kernel], int]:
    """The kernels of a count program, and the scratch memory of a thread, in doubles; see
    `jtgpu.backends.gpu.batch.codegen.generate_kernels`."""
    columns = {}
    for f, table in enumerate(sparsity.program.answers):
        of = np.full(len(families.support[f]), -1, np.int64)
        of[families.support[f]] = np.arange(families.first[f], families.first[f + 1])
        columns[table] = of
    return write_kernels(partial(CountWriter, sparsity, columns, weights=weights), sparsity, blocks)


GENERATED_FLOPS = 2_000_000  # most operations of a propagation for which kernels may be generated
MOST_CASES = 1 << 16  # of a chunk
DIGITS = 64.0  # powers of two between the least number that is computed with all digits and what may be neglected
LOWEST, HIGHEST = -1022.0, 700.0  # powers of two that are left to numbers


def plan_generation(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Sparsity | None:
    """The contractions for which kernels can be generated; None if they are too many, or numbers too large."""
    if plan.cost().flops > GENERATED_FLOPS or not plan.n_factors:
        return None
    sparsity = find_sparsity(count_program(plan, split=False).whole, factors)
    if sparsity.upper > HIGHEST or sum(code_lines(sparsity)) > MOST_LINES * (os.cpu_count() or 1):
        return None
    if sum(int(np.count_nonzero(f)) for f in sparsity.factors) > MOST_CONSTANTS:
        return None
    return sparsity


class GeneratedCounts(LaneKernels):
    """A plan and a model's numbers on one GPU, as generated kernels. Used inside ``device.active()``; see
    `CountKernels`.

    Numbers are not scaled. A case whose P(e) is so small that terms of it may have been lost gets NaN for ln P(e) and
    adds nothing; records count it.
    """

    most_cases = MOST_CASES

    def __init__(
        self, sparsity: Sparsity, families: FamilyCells, device: Device, memory: Memory, stream: Any, *, weights: bool
    ):
        made = generate_counting(sparsity, families, weights=weights, blocks=BLOCKS)
        super().__init__(sparsity, made, device, stream, len(families.place))
        self._column = memory.put(np.full(self.plan.n_variables, NONE, np.uint32), stream)
        self._around = loaded_kernels(device, "batch/counts", (*CODES_KERNELS, "count_columns"))

    def write(self, flat: Sequence[NDArray[np.float64]], stream: Any) -> None:
        """Write the constants, and find the range of the numbers."""
        super().write(flat, stream)
        bounds = replace(self.sparsity, factors=tuple(flat))
        self._lower, self._upper = bounds.lower, bounds.upper
        self._least = 2.0 ** min(LOWEST + DIGITS + self._upper, 0.0)

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        self.write(flat_factors(self.plan, factors), stream)

    def takes(self, smallest: float) -> bool:
        return smallest > LOWEST / 2 and self._upper <= HIGHEST

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        lane = lane_struct(chunk, scratch[0], self._column, scratch[1], self.n_out)
        is_exact = self._lower + chunk.smallest > LOWEST + DIGITS  # nothing can be lost
        least = 5e-324 if is_exact else self._least
        of = struct("batch/lane.cuh", "Weighted")
        weighted = filled(of, of_case=chunk.of_case, least=least, n=chunk.n, is_exact=is_exact)
        counting = chunk.struct(0, 0, scratch[1], self.n_out)
        enter_codes(self._around, chunk, self.plan.n_variables, stream)
        self.queue_lanes(chunk.size, stream, lane, weighted)
        threads = self.n_out * chunk.n_blocks * GROUP
        self._around.launch("count_columns", -(-threads // THREADS), THREADS, stream, Arguments(counting))
        fold(self._around, chunk, counting, self.n_out, stream)
