"""Expected counts by kernels generated for the network, a thread a case (cuda/batch/lane.cuh, cuda/batch/counts.cu).

The numbers of the factors are in constant memory: new numbers are an upload, never a compilation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels
from ....errors import BackendUnavailable
from ....plans.plan import Plan
from ....plans.program import UNIT, derivative_program
from ..batch.buffers import GROUP, THREADS
from ..batch.codegen import LANE_THREADS, Kernel, Scratch, Writer, write_kernels
from ..batch.generated import BLOCKS, MOST_CONSTANTS, MOST_LINES, compile_kernels
from ..batch.parts import code_lines
from ..batch.records import split_sums
from ..batch.sparsity import Sparsity, find_sparsity, flat_factors
from ..program.records import NONE, Binary, Step, binary_steps, levels_of
from .chunk import CODES_KERNELS, CountChunk, enter_codes, fold

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The contractions of expected counts: messages to the roots, derivatives of P(e), and each factor times its own.
#
# Arrays only; knows no device.

@dataclass(frozen=True)
class CountProgram:
    """Contractions of at most two tables; tables 0..F-1 are the factors."""

    binary: Binary  # messages and derivatives, then the products of the families
    n_messages: int  # steps before these products
    roots: tuple[int, ...]  # tables of P(e), one a component
    root: tuple[int, ...]  # (F,) component of each factor, as a place among the roots
    derivative: tuple[int, ...]  # (F,) table of the derivative by each factor; UNIT for the number 1
    family: tuple[int, ...]  # (F,) table of the product of both

    @property
    def messages(self) -> Binary:
        """The steps without the products of the families."""
        n = self.n_messages
        return Binary(self.binary.steps[:n], self.binary.scopes, self.binary.level[:n])


def count_program(plan: Plan, *, split: bool) -> CountProgram:
    """The contractions of a plan's expected counts; `split`: without long sums."""
    base = derivative_program(plan)
    number: dict[int, int] = {f: f for f in range(plan.n_factors)}
    for out in base.outs:
        number[out] = len(number)
    scopes = [base.scopes[t] for t in number]
    contractions = [
        Step(number[out], tuple(number[t] for t in ins), False) for out, ins in zip(base.outs, base.ins, strict=True)
    ]
    binary = binary_steps(plan, scopes, contractions)
    if split:
        binary = split_sums(plan, binary)
    derivative = tuple(UNIT if t == UNIT else number[t] for t in base.factor_derivative)
    steps, all_scopes = list(binary.steps), list(binary.scopes)
    for f, d in enumerate(derivative):
        steps.append(Step(len(all_scopes), (f,) if d == UNIT else (f, d), False))
        all_scopes.append(all_scopes[f])
    family = tuple(range(len(binary.scopes), len(all_scopes)))
    whole = Binary(tuple(steps), tuple(all_scopes), levels_of(plan, steps))
    roots = tuple(number[t] for t in base.roots)
    return CountProgram(whole, len(binary.steps), roots, base.factor_root, derivative, family)


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

class CountWriter(Writer):
    """Writes the lines of one kernel that counts."""

    parameters = "Lane b, Weighted c"

    def __init__(
        self, plan: Plan, sparsity: Sparsity, columns: dict[int, NDArray[np.int64]], scratch: Scratch,
        roots: Sequence[int], *, weights: bool,
    ):  # fmt: skip
        super().__init__(plan, sparsity, scratch, roots, weights=weights)
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
    plan: Plan, sparsity: Sparsity, program: CountProgram, families: FamilyCells, *, weights: bool, blocks: int
) -> tuple[list[Kernel], int]:
    """The kernels of a count program, and the scratch memory of a thread, in doubles; see
    `jtgpu.backends.gpu.batch.codegen.generate_kernels`."""
    columns = {}
    for f, table in enumerate(program.family):
        of = np.full(len(families.support[f]), -1, np.int64)
        of[families.support[f]] = np.arange(families.first[f], families.first[f + 1])
        columns[table] = of
    home = dict(zip(program.family, program.root, strict=True))
    make = partial(CountWriter, plan, sparsity, columns, weights=weights)
    return write_kernels(make, sparsity, program.roots, home, blocks)


GENERATED_FLOPS = 2_000_000  # most operations of a propagation for which kernels may be generated
MOST_CASES = 1 << 16  # of a chunk
DIGITS = 64.0  # powers of two between the least number that is computed with all digits and what may be neglected
LOWEST, HIGHEST = -1022.0, 700.0  # powers of two that are left to numbers


class Generation:
    """Input of the generators for a network: its contractions, and the entries that matter."""

    def __init__(self, program: CountProgram, sparsity: Sparsity):
        self.program, self.sparsity = program, sparsity


def plan_generation(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Generation | None:
    """The contractions for which kernels can be generated; None if they are too many, or numbers too large."""
    if plan.cost().flops > GENERATED_FLOPS or not plan.n_factors:
        return None
    program = count_program(plan, split=False)
    sparsity = find_sparsity(plan, factors, program.binary, [*program.roots, *program.family])
    if sparsity.upper > HIGHEST or sum(code_lines(sparsity)) > MOST_LINES * (os.cpu_count() or 1):
        return None
    if sum(int(np.count_nonzero(f)) for f in sparsity.factors) > MOST_CONSTANTS:
        return None
    return Generation(program, sparsity)


class GeneratedCounts:
    """A plan and a model's numbers on one GPU, as generated kernels. Used inside ``device.active()``; see
    `CountKernels`.

    Numbers are not scaled. A case whose P(e) is so small that terms of it may have been lost gets NaN for ln P(e) and
    adds nothing; records count it.
    """
    # raises BackendUnavailable: If nvcc is missing and the kernels are not in the cache.

    kind = "lanes"

    def __init__(
        self, plan: Plan, generation: Generation, families: FamilyCells, device: Device, memory: Memory, stream: Any,
        *, weights: bool,
    ):  # fmt: skip
        self.plan, self.device = plan, device
        self._sparsity, self._n_out = generation.sparsity, len(families.place)
        self.kernels, self.cells = generate_counting(
            plan, generation.sparsity, generation.program, families, weights=weights, blocks=BLOCKS
        )
        if max(len(kernel.constants) for kernel in self.kernels) > MOST_CONSTANTS:
            raise BackendUnavailable("the generated kernels need more constants than a GPU has memory for")
        self._column = memory.put(np.full(plan.n_variables, NONE, np.uint32), stream)
        self._summing = Kernels(device, "batch/counts", (*CODES_KERNELS, "count_columns"))
        self._loaded: list[Kernels] = []
        try:
            for image in compile_kernels(self.kernels, device.arch):
                self._loaded.append(Kernels(device, "", ("batch_lane",), image))
            self._load(generation.sparsity.factors, stream)
        except BaseException:
            self.close()
            raise

    def _load(self, flat: Sequence[NDArray[np.float64]], stream: Any) -> None:
        """Write the constants, and find the range of the numbers."""
        for kernel, made in zip(self.kernels, self._loaded, strict=True):
            values = np.array([flat[f][c] for f, c in kernel.entries] or [0.0])
            self.device.upload(made.symbol("constants"), values, stream)
            stream.synchronize()
        bounds = Sparsity(
            self._sparsity.program, self._sparsity.loops, tuple(flat), self._sparsity.nonzero, self._sparsity.needed,
            self._sparsity.count,
        )  # fmt: skip
        self._lower, self._upper = bounds.lower, bounds.upper
        self._least = 2.0 ** min(LOWEST + DIGITS + self._upper, 0.0)

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        self._load(flat_factors(self.plan, factors), stream)

    @property
    def case_bytes(self) -> int:
        return 8 * (self.cells + self._n_out)

    @property
    def most_cases(self) -> int:
        return MOST_CASES

    def takes(self, smallest: float) -> bool:
        return smallest > LOWEST / 2 and self._upper <= HIGHEST

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, ...]:
        blocks = -(-size // LANE_THREADS)
        return memory.empty(8 * self.cells * blocks * LANE_THREADS), memory.empty(8 * self._n_out * size)

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        words = [scratch[0], 0, chunk.state, chunk.weight, chunk.weight_row, self._column, scratch[1]]
        lane = np.array([*words, chunk.log_evidence, chunk.size | self._n_out << 32], np.uint64)
        is_exact = self._lower + chunk.smallest > LOWEST + DIGITS  # nothing can be lost
        least = np.array([5e-324 if is_exact else self._least]).view(np.uint64)
        weighted = np.array([chunk.of_case, least[0], chunk.n | int(is_exact) << 32], np.uint64)
        counting = chunk.struct(0, 0, scratch[1], self._n_out)
        enter_codes(self._summing, chunk, self.plan.n_variables, stream)
        for made in self._loaded:
            blocks = -(-chunk.size // LANE_THREADS)
            made.launch("batch_lane", blocks, LANE_THREADS, stream, Arguments(lane, weighted))
        threads = self._n_out * chunk.n_blocks * GROUP
        self._summing.launch("count_columns", -(-threads // THREADS), THREADS, stream, Arguments(counting))
        fold(self._summing, chunk, counting, self._n_out, stream)

    def close(self) -> None:
        for made in (self._summing, *self._loaded):
            made.close()
