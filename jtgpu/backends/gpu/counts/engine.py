"""Expected counts of tables of cases on one GPU: kernels, scratch memory, and parts of tables that stay there."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....errors import BackendUnavailable, JtgpuError, TableTooLarge, format_bytes
from ....plans.plan import Plan
from ..batch.buffers import GROUP
from ..host import LN2, Host
from ..kernel_choice import KernelChoice
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


class CountEngine:
    """A plan and a model's numbers on one GPU, for expected counts. Thread-safe."""
    # device_us: Microseconds that the last pass over the cases took on the device, without the first copy of the cases

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device):
        self.plan, self.device = plan, device
        self.lock = threading.RLock()
        self.device_us = 0.0
        self._factors, self.host = list(factors), Host(plan, factors, _contractions)
        self._scratch: dict[int, ChunkScratch] = {}  # by the identity of the kernels
        self._is_open, self._compiles = True, True
        self.generation_number = 0  # of the kernels: rises when entries that were zero are not any more
        with device.active():
            self.stream = device.stream()
            self._memory = Memory(device)
        self._set_support()

    def _set_support(self) -> None:
        """Find the entries that may be other than zero, and forget kernels for others."""
        self.families = FamilyCells(self.plan, [f != 0 for f in flat_factors(self.plan, self._factors)])
        sparsity = plan_generation(self.plan, self._factors) if self._compiles else None

        def records() -> CountKernels:
            return RecordCounts(self.plan, self._factors, self.families, self.device, self._memory, self.stream)

        def generate(weights: bool) -> CountKernels:
            assert sparsity is not None
            around = (self.families, self.device, self._memory, self.stream)
            try:
                return GeneratedCounts(sparsity, *around, weights=weights)
            except BackendUnavailable:  # nor is there a compiler for other numbers
                self._compiles = False
                raise

        self.programs = KernelChoice(records, None if sparsity is None else generate)
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

    @property
    def part(self) -> int:
        """Cases of a part of a table."""
        part, flops = PART, max(self.plan.cost().flops, 1)
        while part > BLOCK and part * flops > PART_FLOPS:
            part //= 2
        return part

    def part_of(self, n: int, *, warps: bool) -> int:
        """Cases of a part of a table of n cases."""
        return max(self.part, min(MOST_CASES, max(LEAST_CASES, -(-n // PARTS)))) if warps else self.part

    def case_bytes(self, kernels: CountKernels, n_weights: int) -> int:
        """Scratch memory of a case."""
        each = 8 * self.width // self.block(kernels) + 8
        return kernels.case_bytes + 4 * self.plan.n_variables + 8 * n_weights + each

    @cached_property
    def _warps(self) -> WarpProgram:
        return WarpProgram(self.plan)

    def by_warps(self, states: NDArray[Any]) -> bool:
        """Whether a table's cases observe so much that a warp a case counts them quickest."""
        return not self.programs.generates and self._warps.suits(states)

    def warps(self) -> CountKernels:
        """The kernels of a warp a case."""
        return self.programs.once(
            "warps",
            lambda: WarpCounts(self._warps, self._factors, self.families, self.device, self._memory, self.stream),
        )

    def least(self, kernels: CountKernels, smallest: float) -> float:
        """ln P(e) below which cases are lost: kernels without scaling notice it themselves."""
        if kernels.kind == "lanes" or self.host.is_exact(smallest):
            return -math.inf
        return LN2 * self.host.least(exactly=True)

    @property
    def kind(self) -> str:
        """Kernels of the first table, see `PlanKernels.kind`; empty before it."""
        return self.programs.kind

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
        each = self.case_bytes(kernels, n_weights)
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

    def drop_scratch(self) -> None:
        """Free the scratch memory."""
        for scratch in self._scratch.values():
            scratch.memory.close()
        self._scratch = {}

    def read(self, address: int, to: NDArray[np.float64]) -> NDArray[np.float64]:
        """Copy from the device, and wait."""
        self.device.download(to, address, self.stream)
        self.stream.synchronize()
        return to

    @contextmanager
    def using(self) -> Iterator[None]:
        """A block that uses the device, one thread at a time."""
        with self.lock:
            if not self._is_open:
                raise JtgpuError("this backend is closed")
            with self.device.active():
                yield

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        """Replace the numbers. Kernels stay, unless entries that were zero are not any more."""
        with self.using():
            self._factors = list(factors)
            self.host.reload(factors)
            if self.families.are_all or self.families.covers(flat_factors(self.plan, factors)):
                for kernels in self.programs.made.values():
                    kernels.reload(factors, self.stream)
                return
            self._release()
            self._memory = Memory(self.device)
            self._set_support()

    def _release(self) -> None:
        self.stream.synchronize()
        self.drop_scratch()
        self.programs.close()
        self._memory.close()

    def close(self) -> None:
        """Free the device's memory; may be called twice. Tables that are held are freed by their owners."""
        with self.lock:
            if not self._is_open:
                return
            self._is_open = False
            self.host.close()
            with self.device.active():
                self._release()
                del self.stream
