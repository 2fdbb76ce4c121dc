"""Expected counts of tables of cases on one GPU: kernels, scratch memory, and parts of tables that stay there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....errors import BackendUnavailable, TableTooLarge, format_bytes
from ....plans.plan import Plan
from ..batch.buffers import GROUP
from ..host import LN2, Host
from ..kernel_choice import KernelChoice, TableEngine
from ..lower import Lowered, count_program, flat_factors
from .chunk import EXTRA, CountKernels
from .generated import FamilyCells, GeneratedCounts, plan_generation
from .records import ChunkScratch, RecordCounts
from .warps import LEAST_CASES, MOST_CASES, PARTS, WarpCounts, WarpProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 10  # cases that are summed together, if their scratch memory is small enough
BLOCK_BYTES = 1 << 32
PART = 1 << 16  # most cases of a part of a table
PART_FLOPS = 1 << 36  # operations of a part above which it has fewer cases
MEMORY_SHARE = 0.7  # of the free memory that scratch memory may take
SCRATCH_BYTES = 8 << 30  # most scratch memory, if it holds a block of cases


def _contractions(plan: Plan) -> Lowered:
    """Those of a plan's expected counts, for the bound of what numbers that are lost change."""
    return count_program(plan, split=False).whole


class CountEngine(TableEngine[CountKernels]):
    """A plan and a model's numbers on one GPU, for expected counts; tables that are held are freed by their owners."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device):
        super().__init__(plan, factors, device, Host(plan, factors, _contractions))
        self._scratch: dict[int, ChunkScratch] = {}  # by the identity of the kernels
        self._compiles = True
        self.generation_number = 0  # of the kernels: rises when entries that were zero are not any more
        with device.active():
            self.stream = device.stream()
            self._memory = Memory(device)
        self._set_support()

    def _set_support(self) -> None:
        """Find the entries that may be other than zero, and forget kernels for others."""
        self.families = FamilyCells(self.plan, [f != 0 for f in flat_factors(self.plan, self.factors)])
        sparsity = plan_generation(self.plan, self.factors) if self._compiles else None

        def records() -> CountKernels:
            return RecordCounts(self.plan, self.factors, self.families, self.device, self._memory, self.stream)

        def generate(weights: bool) -> CountKernels:
            assert sparsity is not None
            around = (self.families, self.device, self._memory, self.stream)
            try:
                return GeneratedCounts(sparsity, *around, weights=weights)
            except BackendUnavailable:  # nor is there a compiler for other numbers
                self._compiles = False
                raise

        self.choice = KernelChoice(records, None if sparsity is None else generate)
        self.generation_number += 1

    @property
    def width(self) -> int:
        """Sums of a block of cases."""
        return len(self.families.place) + EXTRA

    def block(self, kernels: CountKernels) -> int:
        """Cases that are summed together: of a network, the same on every device."""
        block = BLOCK
        while block > GROUP and block * kernels.case_bytes > BLOCK_BYTES:
            block //= 2
        return block

    def part_of(self, n: int, *, warps: bool) -> int:
        """Cases of a part of a table of n cases."""
        part, flops = PART, max(self.plan.cost().flops, 1)
        while part > BLOCK and part * flops > PART_FLOPS:
            part //= 2
        return max(part, min(MOST_CASES, max(LEAST_CASES, -(-n // PARTS)))) if warps else part

    @cached_property
    def _warps(self) -> WarpProgram:
        return WarpProgram(self.plan)

    def by_warps(self, states: NDArray[Any]) -> bool:
        """Whether a table's cases observe so much that a warp a case counts them quickest."""
        return not self.choice.generates and self._warps.suits(states)

    def warps(self) -> CountKernels:
        """The kernels of a warp a case."""
        return self.choice.once(
            "warps",
            lambda: WarpCounts(self._warps, self.factors, self.families, self.device, self._memory, self.stream),
        )

    def least(self, kernels: CountKernels, smallest: float) -> float:
        """ln P(e) below which cases are lost: kernels without scaling notice it themselves."""
        if kernels.kind == "lanes" or self.host.is_exact(smallest):
            return -math.inf
        return LN2 * self.host.least(exactly=True)

    def scratch(self, kernels: CountKernels, n: int, n_weights: int) -> ChunkScratch:
        """Scratch memory for chunks of n cases, or fewer if there is not enough memory."""
        # raises TableTooLarge: If not even a block of cases fits.
        block = self.block(kernels)
        memory = self._scratch.pop(id(kernels), None)
        if memory is not None and memory.serves(min(n, kernels.most_cases), n_weights):
            self._scratch[id(kernels)] = memory
            return memory
        if memory is not None:
            memory.memory.close()
        each = kernels.case_bytes + 4 * self.plan.n_variables + 8 * n_weights + 8 * self.width // block + 8
        free = int(MEMORY_SHARE * self.device.free_memory())
        wanted = -(-min(n, max(kernels.most_cases, block)) // block) * block
        fits = max(min(free, SCRATCH_BYTES) // each, min(block, free // each)) // block * block
        if not fits:
            raise TableTooLarge(
                f"expected counts of {block} cases take {format_bytes(block * each)} of GPU memory, of which "
                f"{format_bytes(free)} may be allocated; use backend='cpu'",
                needed=block * each,
                limit=free,
            )
        size = min(wanted, fits)
        memory = self._scratch[id(kernels)] = ChunkScratch(
            self.device, self.stream, kernels, size, (self.plan.n_variables, n_weights, -(-size // block) * self.width),
            is_full=fits < wanted,
        )  # fmt: skip
        return memory

    def read(self, address: int, to: NDArray[np.float64]) -> NDArray[np.float64]:
        """Copy from the device, and wait."""
        self.device.download(to, address, self.stream)
        self.stream.synchronize()
        return to

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Replace the numbers. Kernels stay, unless entries that were zero are not any more."""
        with self.using():
            self.factors = list(factors)
            self.host.reload(factors)
            if self.families.are_all or self.families.covers(flat_factors(self.plan, factors)):
                for kernels in self.choice.made.values():
                    kernels.reload(factors, self.stream)
                return
            self._forget()
            self._memory = Memory(self.device)
            self._set_support()

    def _release(self) -> None:
        self._forget()
        del self.stream

    def _forget(self) -> None:
        """Free what belongs to the kernels."""
        self.stream.synchronize()
        while self._scratch:
            self._scratch.popitem()[1].memory.close()
        self.choice.close()
        self._memory.close()
