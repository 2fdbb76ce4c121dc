"""Tables of cases by kernels generated for the network, a thread a case (cuda/batch/lane.cuh)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ....device import nvcc
from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels
from ....errors import BackendUnavailable
from ....plans.plan import Plan
from ..program.records import NONE
from .buffers import GROUP, TRANSPOSING, Bound, Chunk, answers_to_rows, enter_evidence
from .codegen import LANE_THREADS, Kernel, generate_kernels
from .parts import code_lines
from .sparsity import Sparsity

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


class GeneratedProgram:
    """A plan and a model's numbers on one GPU, as generated kernels. Used inside ``device.active()``."""
    # weights: Whether some variables may have weights
    # raises BackendUnavailable: If nvcc is missing and the kernels are not in the cache, or if constant memory is too
    #     small.

    kind = "lanes"

    def __init__(self, plan: Plan, sparsity: Sparsity, device: Device, memory: Memory, stream: Any, *, weights: bool):
        self.plan, self._memory = plan, memory
        self._lower, self._multiprocessors = sparsity.lower, device.multiprocessors
        self.kernels, self.cells = generate_kernels(plan, sparsity, weights=weights, blocks=BLOCKS)
        if max(len(kernel.constants) for kernel in self.kernels) > MOST_CONSTANTS:
            raise BackendUnavailable("the generated kernels need more constants than a GPU has memory for")
        self._transposing = Kernels(device, "batch/batch", TRANSPOSING)
        self._loaded: list[Kernels] = []
        try:
            for kernel, image in zip(self.kernels, compile_kernels(self.kernels, device.arch), strict=True):
                made = Kernels(device, "", ("batch_lane",), image)
                self._loaded.append(made)
                device.upload(made.symbol("constants"), kernel.constants, stream)
                stream.synchronize()
        except BaseException:
            self.close()
            raise

    @property
    def case_bytes(self) -> int:
        return 8 * self.cells

    @property
    def most_cases(self) -> int:
        return MOST_CASES

    @property
    def wave(self) -> int:
        """Cases that run at the same time: a rest of a chunk would leave most of the GPU idle."""
        return self._multiprocessors * BLOCKS * LANE_THREADS

    def takes(self, smallest: float) -> bool:
        return self._lower + smallest > -RANGE

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        blocks = -(-size // LANE_THREADS)
        return memory.empty(8 * self.cells * blocks * LANE_THREADS), 0

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        column = np.full(self.plan.n_variables, NONE, np.uint32)
        at = 0
        for v in targets:
            column[v] = at
            at += int(self.plan.cardinality[v])
        words = [scratch[0], 0, chunk.state, chunk.weight, chunk.weight_row, memory.put(column, stream)]
        struct = np.array([*words, chunk.posterior, chunk.log_evidence, chunk.size | at << 32], np.uint64)
        evidence = enter_evidence(chunk, self.plan.n_variables)
        return Bound(evidence, struct, len(targets), answers_to_rows(chunk, at))

    def queue(self, bound: Bound, stream: Any, n: int) -> None:
        groups, blocks, struct = -(-n // GROUP), -(-n // LANE_THREADS), Arguments(bound.struct)
        bound.evidence.queue(self._transposing, groups, stream)
        for kernel, made in zip(self.kernels, self._loaded, strict=True):
            if bound.n_answers or not kernel.answers_only:
                made.launch("batch_lane", blocks, LANE_THREADS, stream, struct)
        if bound.rows is not None:
            bound.rows.queue(self._transposing, groups, stream)

    def close(self) -> None:
        for made in (self._transposing, *self._loaded):
            made.close()


def compile_kernels(kernels: Sequence[Kernel], arch: str) -> list[bytes]:
    """All kernels, compiled on all cores; equal ones and those of earlier runs from the cache."""
    texts = [nvcc.with_headers(kernel.source) for kernel in kernels]
    with ThreadPoolExecutor(os.cpu_count() or 1, "jtgpu-nvcc") as pool:
        return list(pool.map(lambda text: nvcc.compiled("batch/lane", text, arch), texts))
