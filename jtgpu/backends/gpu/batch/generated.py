"""Many cases at once by kernels written for the network, a thread a case: see `jtgpu.backends.gpu.batch.partition`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ....device import nvcc as kernels
from ....device.context import Device
from ....device.driver import Arguments, Kernels, most_shared
from ....device.memory import Memory
from ....plans.plan import Plan
from ..program.structs import NONE
from .chunk import TRANSPOSING, Bound, Chunk, answers_to_rows, enter_evidence
from .codegen import LANE_THREADS, Part
from .live import Live
from .partition import lane_parts, lines_of

__all__ = ["LaneProgram", "lane_candidate"]

BLOCKS = 2  # of LANE_THREADS that an SM holds: all registers that a thread can have
RESERVED = 1024  # bytes of a block's shared memory
MOST_CASES = 1 << 18  # of a chunk
RANGE = 960.0  # powers of two that numbers may span: tables are not scaled
MOST_LINES = 5_500  # lines a processor: nvcc compiles them in less than 20 seconds


def lane_candidate(live: Live) -> bool:
    """Whether kernels written for a plan would pay and can be compiled soon enough."""
    if -live.lower > RANGE or live.upper > RANGE or not len(live.program.steps):
        return False
    return sum(lines_of(live)) <= MOST_LINES * (os.cpu_count() or 1)


class LaneProgram:
    """A plan and a model's numbers on one card, as kernels of their own. Used inside ``device.active()``.

    Parameters
    ----------
    plan : Plan
    live : Live
    device : Device
    memory : Memory
    stream
    weights : bool
        Whether some variables may have weights: other kernels, compiled when first asked for.

    Raises
    ------
    BackendUnavailable
        When nvcc is missing and the kernels are not in the cache.
    """

    kind = "lanes"

    def __init__(self, plan: Plan, live: Live, device: Device, memory: Memory, stream: Any, *, weights: bool):
        self.plan, self._memory = plan, memory
        self._lower, self._multiprocessors = live.lower, device.multiprocessors
        slots = max(0, (most_shared(device) // BLOCKS - RESERVED) // (8 * LANE_THREADS))
        self.parts, self.cells = lane_parts(plan, live, weights=weights, blocks=BLOCKS, slots=slots)
        self._transposing = Kernels(device, "batch/batch", TRANSPOSING)
        self._kernels: list[Kernels] = []
        try:
            for part, image in zip(self.parts, _compiled(self.parts, device.arch), strict=True):
                made = Kernels(device, "", ("batch_lane",), image)
                self._kernels.append(made)
                if part.shared:
                    made.allow_shared("batch_lane", part.shared)
                device.upload(made.symbol("constants"), part.factors, stream)
                stream.synchronize()
        except BaseException:
            self.close()
            raise

    @property
    def case_bytes(self) -> int:
        """Scratch memory of a case."""
        return 8 * self.cells

    @property
    def most_cases(self) -> int:
        """Of a chunk."""
        return MOST_CASES

    @property
    def wave(self) -> int:
        """Cases that the card has room for at a time: the rest of a chunk would have it nearly for itself."""
        return self._multiprocessors * BLOCKS * LANE_THREADS

    def takes(self, smallest: float) -> bool:
        """Whether weights so small (log2) leave every number in range."""
        return self._lower + smallest > -RANGE

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        """Memory that all chunks of a size use one after another."""
        blocks = -(-size // LANE_THREADS)
        return memory.empty(8 * self.cells * blocks * LANE_THREADS), 0

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        """See `Program.bind`."""
        column = np.full(self.plan.n_variables, NONE, np.uint32)
        at = 0
        for v in targets:
            column[v] = at
            at += int(self.plan.cardinality[v])
        words = [scratch[0], 0, chunk.state, chunk.weight, chunk.weight_row, memory.put(column, stream)]
        struct = np.array([*words, chunk.posterior, chunk.log_evidence, chunk.size | at << 32], np.uint64)
        evidence = enter_evidence(chunk, self.plan.n_variables)
        return Bound(evidence, struct, chunk.size, len(targets), answers_to_rows(chunk, at))

    def queue(self, bound: Bound, stream: Any) -> None:
        """Queue one chunk's kernels."""
        bound.evidence.queue(self._transposing, stream)
        blocks, struct = -(-bound.size // LANE_THREADS), Arguments(bound.struct)
        for part, made in zip(self.parts, self._kernels, strict=True):
            if bound.n_answers or not part.answers:
                made.launch("batch_lane", blocks, LANE_THREADS, stream, struct, shared=part.shared)
        if bound.rows is not None:
            bound.rows.queue(self._transposing, stream)

    def close(self) -> None:
        """Unload the kernels."""
        for made in (self._transposing, *self._kernels):
            made.close()


def _compiled(parts: Sequence[Part], arch: str) -> list[bytes]:
    """All parts, side by side on all processors; equal ones and those of earlier runs from the cache."""
    texts = [kernels.with_headers(part.source) for part in parts]
    with ThreadPoolExecutor(os.cpu_count() or 1, "jtgpu-nvcc") as pool:
        return list(pool.map(lambda text: kernels.compiled("batch/lane", text, arch), texts))
