"""Tables of cases by kernels generated for the network, a thread a case (cuda/batch/lane.cuh)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device import nvcc
from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels
from ....device.structs import filled, struct
from ....errors import BackendUnavailable
from ..lower import placed
from ..program.records import NONE
from .buffers import Bound, Chunk
from .codegen import LANE_THREADS, Kernel, generate_kernels
from .parts import code_lines
from .sparsity import Sparsity

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCKS = 2  # of LANE_THREADS an SM: its 64 Ki registers give a thread as many as it can address
MOST_CASES = 1 << 18  # of a chunk
RANGE = 960.0  # powers of two that numbers may span, since tables are not scaled
MOST_CONSTANTS = 8192  # doubles of constant memory, of every GPU
MOST_LINES = 5_500  # a host core, which compiles them in less than 20 seconds


def can_generate(sparsity: Sparsity) -> bool:
    """Whether a plan's kernels can be generated: numbers stay in a double's range, and they compile soon enough."""
    if -sparsity.lower > RANGE or sparsity.upper > RANGE or not len(sparsity.program.steps):
        return False
    return sum(code_lines(sparsity)) <= MOST_LINES * (os.cpu_count() or 1)


class LaneKernels:
    """Kernels generated for a network, on one GPU. Used inside ``device.active()``."""
    # made: Kernels and cells, of `jtgpu.backends.gpu.batch.codegen.write_kernels`
    # n_out: Numbers of a case besides these cells
    # raises BackendUnavailable: If nvcc is missing and the kernels are not in the cache, or if constant memory is too
    #     small.

    kind = "lanes"
    is_direct = False

    def __init__(
        self, sparsity: Sparsity, made: tuple[Sequence[Kernel], int], device: Device, stream: Any, n_out: int = 0
    ):
        self.plan, self.sparsity, self.device, self.n_out = sparsity.program.plan, sparsity, device, n_out
        self.kernels, self.cells = made
        self.case_bytes = 8 * (self.cells + n_out)
        if max(len(kernel.entries) for kernel in self.kernels) > MOST_CONSTANTS:
            raise BackendUnavailable("the generated kernels need more constants than a GPU has memory for")
        self._loaded: list[Kernels] = []
        try:
            for image in compile_kernels(self.kernels, device.arch):
                self._loaded.append(Kernels(device, "", ("batch_lane",), image))
            self.write(sparsity.factors, stream)
        except BaseException:
            self.close()
            raise

    def write(self, flat: Sequence[NDArray[Any]], stream: Any) -> None:
        """Write the constants; `flat`: the factors' entries."""
        for kernel, made in zip(self.kernels, self._loaded, strict=True):
            values = np.array([flat[f][c] for f, c in kernel.entries] or [0.0])
            self.device.upload(made.symbol("constants"), values, stream)
            stream.synchronize()

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        """Memory of the threads of so many cases, and of the numbers besides."""
        threads = -(-size // LANE_THREADS) * LANE_THREADS
        return memory.empty(8 * self.cells * threads), memory.empty(8 * self.n_out * size) if self.n_out else 0

    def queue_lanes(self, n: int, stream: Any, *structs: NDArray[Any], answers: bool = True) -> None:
        """Queue the kernels for n cases; without `answers` those alone that give ln P(e)."""
        for kernel, made in zip(self.kernels, self._loaded, strict=True):
            if answers or not kernel.answers_only:
                made.launch("batch_lane", -(-n // LANE_THREADS), LANE_THREADS, stream, Arguments(*structs))

    def close(self) -> None:
        """Unload the kernels."""
        for made in self._loaded:
            made.close()


class GeneratedProgram(LaneKernels):
    """A plan and a model's numbers on one GPU, as generated kernels. Used inside ``device.active()``."""
    # weights: Whether some variables may have weights
    # wave: Cases that run at the same time: a rest of a chunk would leave most of the GPU idle

    most_cases = MOST_CASES

    def __init__(self, sparsity: Sparsity, device: Device, stream: Any, *, weights: bool):
        self.wave = device.multiprocessors * BLOCKS * LANE_THREADS
        super().__init__(sparsity, generate_kernels(sparsity, weights=weights, blocks=BLOCKS), device, stream)

    def takes(self, smallest: float) -> bool:
        return self.sparsity.lower + smallest > -RANGE

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        column = np.full(self.plan.n_variables, NONE, np.uint32)
        column[list(targets)], n_out = placed(self.plan.cardinality[list(targets)].tolist())
        lane = lane_struct(chunk, scratch[0], memory.put(column, stream), chunk.posterior, n_out)
        return Bound(lane, len(targets))

    def queue(self, bound: Bound, stream: Any, n: int) -> None:
        self.queue_lanes(n, stream, bound.struct, answers=bool(bound.n_answers))


def lane_struct(chunk: Any, arena: int, column: int, posterior: int, n_out: int) -> NDArray[Any]:
    """struct Lane of a chunk, which has the addresses of the evidence and of ln P(e)."""
    return filled(
        struct("batch/lane.cuh", "Lane"), arena=arena, factors=0, state=chunk.state, weight=chunk.weight,
        weight_row=chunk.weight_row, column=column, posterior=posterior, log_evidence=chunk.log_evidence,
        n_cases=chunk.size, n_out=n_out,
    )  # fmt: skip


def compile_kernels(kernels: Sequence[Kernel], arch: str) -> list[bytes]:
    """All kernels, compiled on all cores; equal ones and those of earlier runs from the cache."""
    texts = [nvcc.with_headers(kernel.source) for kernel in kernels]
    with ThreadPoolExecutor(os.cpu_count() or 1, "jtgpu-nvcc") as pool:
        return list(pool.map(lambda text: nvcc.compiled("batch/lane", text, arch), texts))
