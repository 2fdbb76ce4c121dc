"""Expected counts by kernels generated for the network, a thread a case (cuda/batch/lane.cuh, cuda/batch/counts.cu).

The numbers of the factors are in constant memory: new numbers are an upload, never a compilation.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device
from ....device.driver import Arguments, Kernels
from ....device.memory import Memory
from ....errors import BackendUnavailable
from ....plans.plan import Plan
from ..batch.chunk import GROUP, THREADS
from ..batch.codegen import LANE_THREADS
from ..batch.generated import BLOCKS, MOST_CONSTANTS, MOST_LINES, compile_kernels
from ..batch.partition import code_lines
from ..batch.sparsity import Sparsity, find_sparsity, flat_factors
from ..program.structs import NONE
from .chunk import CODES_KERNELS, CountChunk, enter_codes, fold
from .codegen import generate_counting
from .program import CountProgram, FamilyCells, count_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

GENERATED_FLOPS = 2_000_000  # most operations of a propagation for which kernels may be generated
MOST_CASES = 1 << 16  # of a chunk
DIGITS = 64.0  # powers of two between the least number that is computed with all digits and what may be neglected
LOWEST, HIGHEST = -1022.0, 700.0  # powers of two that are left to numbers


class Generation:
    """What is generated for a network: its contractions, and the entries that matter."""

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
