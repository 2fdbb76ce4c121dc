"""Memory of the chunks in flight: page-locked on the host, on the GPU, and the captured kernels of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import loaded_kernels
from ....errors import TableTooLarge, format_bytes
from ..kernel_choice import PlanKernels
from .chunk import ENTERING, TRANSPOSING, ChunkKernels, Codes, Slot, answers_to_rows, enter_codes, enter_columns
from .chunk import GROUP as GROUP
from .chunk import THREADS as THREADS
from .chunk import Chunk as Chunk
from .table import TableJob

if TYPE_CHECKING:
    from numpy.typing import NDArray

class Bound(NamedTuple):
    """The parameters of a chunk's kernels."""

    struct: NDArray[Any]
    n_answers: int


class TableProgram(PlanKernels, Protocol):
    """Kernels that answer cases."""

    is_direct: bool  # whether kernels read evidence as it comes and write answers as they leave: nothing is transposed

    @property
    def wave(self) -> int:
        """Cases that the GPU runs at the same time; a chunk is best a multiple of it."""

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        """Scratch memory that all chunks of a size use one after another."""

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        """The kernels' parameters for a chunk, whose evidence is in case-minor order; no target may be repeated."""

    def queue(self, bound: Bound, stream: Any, n: int) -> None:
        """Queue the kernels of a chunk's first n cases, or of a few more."""


MEMORY_SHARE = 0.7  # of the GPU's free memory
SLOTS = 3  # chunks in flight: one is copied out by the host's threads, one is downloaded, one is computed
PINNED = 144 << 20  # most bytes of one chunk's answers, which are page-locked
PIPELINE = 4  # least chunks of a call, if each is still large
LARGE = 1 << 14  # cases of such a chunk


def chunk_size(n: int, fits: int, wave: int) -> tuple[int, bool]:
    """Cases of each chunk of a GPU's n cases, and whether memory limits it.

    Graphs of kernels run over a whole chunk, however few cases are in it: so all chunks are of about the same size.
    """
    # fits: Cases of the largest chunk that there is memory for, a multiple of 32
    # wave: Cases that the GPU runs at the same time; larger chunks are multiples of it
    even = max(-(-n // PIPELINE), LARGE)  # several chunks, so that copies overlap with kernels
    wanted = -(-min(n, even) // GROUP) * GROUP
    unit = wave if min(fits, wanted) >= wave else GROUP
    most = min(fits, wanted) // unit * unit
    n_chunks = -(-n // most)
    return -(-n // n_chunks // unit) * unit, fits < wanted


def _layout(program: TableProgram, table: TableJob) -> bytes:
    """Key of the slots: program, targets, weighted variables and columns."""
    layout = [id(program), table.width, len(table.variables), *table.variables.tolist(), *table.targets.variables]
    return np.array(layout, np.int64).tobytes() + table.weights.first.tobytes()


class ChunkBuffers:
    """Chunks' memory, reused by calls of the same layout: allocating page-locked memory takes milliseconds.

    Used inside ``device.active()``.
    """
    # streams: One a chunk in flight; the engine's, which destroys them
    # size: Most cases of a chunk

    def __init__(self, device: Device, streams: list[Any]):
        self.device, self.streams = device, streams
        self.size = 0
        self._slots: tuple[Slot, ...] = ()
        self._key = b""  # program, targets, weighted variables and columns of the layout
        self._is_full = False  # more cases would not have fitted
        self._kernels: list[ChunkKernels] = []
        self._memory: Memory | None = None

    def fit(self, program: TableProgram, table: TableJob, n: int) -> bool:
        """Whether the last call's slots fit a table of which this GPU answers about n cases."""
        is_large_enough = self._is_full or n <= 2 * PIPELINE * self.size
        is_small_enough = self.size <= max(2 * n, GROUP)
        return bool(self._slots) and self._key == _layout(program, table) and is_small_enough and is_large_enough

    def slots(self, program: TableProgram, table: TableJob, n: int) -> tuple[Slot, ...]:
        """Slots for a table of which this GPU answers about n cases: the last call's if they fit."""
        # raises TableTooLarge: If not even 32 cases fit.
        if self.fit(program, table, n):
            return self._slots
        self.close()
        self._memory = Memory(self.device)
        try:
            self.size, self._is_full = self.chunk_size(program, table, n)
            self._slots = self._allocated(self._memory, program, table, n)
        except BaseException:
            self.close()
            raise
        self._key = _layout(program, table)
        return self._slots

    def chunk_size(self, program: TableProgram, table: TableJob, n: int) -> tuple[int, bool]:
        """See `chunk_size`: of n cases in the memory that is free."""
        n_variables, n_weights = len(table.weights.first), table.weights.values.shape[1]
        io = 8 * (table.targets.n_out + 1) + table.state_bytes + 8 * n_weights
        each = program.case_bytes + (2 if table.on_device else SLOTS + 1) * io + 4 * n_variables
        free = int(MEMORY_SHARE * self.device.free_memory())
        most = program.most_cases if table.on_device else min(program.most_cases, max(PINNED // io, GROUP))
        fits = min(free // each, most) // GROUP * GROUP
        if fits < GROUP:
            raise TableTooLarge(
                f"{GROUP} cases take {format_bytes(GROUP * each)} of GPU memory, of which {format_bytes(free)} may be "
                "allocated; query them one at a time",
                needed=GROUP * each,
                limit=free,
            )
        return chunk_size(n, fits, program.wave)

    def _allocated(self, memory: Memory, program: TableProgram, table: TableJob, n: int) -> tuple[Slot, ...]:
        size, n_out, n_weights = self.size, table.targets.n_out, table.weights.values.shape[1]
        n_variables, stream, on_device = len(table.weights.first), self.streams[0], table.on_device
        around = loaded_kernels(self.device, "batch/batch", TRANSPOSING)  # not while kernels are captured
        entering = loaded_kernels(self.device, "batch/counts", ENTERING)
        scratch = program.scratch(memory, stream, size)
        if table.width:  # variables without a column are never observed
            state = memory.put(np.full((n_variables, size), -1, np.int32), stream)
        else:
            state = memory.empty(4 * n_variables * size)
        weight, weight_row = memory.empty(8 * n_weights * size), memory.put(table.weights.first, stream)
        columns = memory.put(table.variables, stream)
        # answers before they are transposed
        by_column = 0 if table.width or on_device else memory.empty(8 * n_out * size)

        def queue(bound: Bound, chunk: Chunk, lane: Any, n: int) -> None:
            if program.is_direct or on_device:
                program.queue(bound, lane, n)
                return
            if chunk.width:
                enter_columns(around, chunk, lane)
            else:
                rows = (chunk.states, chunk.weights, chunk.state, chunk.weight, n, size, n_weights, 4)
                enter_codes(entering, Codes(*rows), n_variables, lane)
            program.queue(bound, lane, n)
            answers_to_rows(around, chunk, n_out, n, lane)

        slots = []
        for lane in self.streams[: 1 if on_device else min(-(-n // size), SLOTS)]:
            states, weights = 0, 0
            if not on_device:
                states, weights = memory.empty(table.state_bytes * size), memory.empty(8 * n_weights * size)
            chunk = Chunk(
                size, n_weights, states, weights, state, weight, weight_row,
                by_column or memory.empty(8 * n_out * size), memory.empty(8 * n_out * size) if by_column else 0,
                memory.empty(8 * size), columns, len(table.variables), table.width,
            )  # fmt: skip
            bound = program.bind(chunk, scratch, table.targets.variables, memory, stream)
            kernels = ChunkKernels(self.device, partial(queue, bound, chunk, lane), lane)
            self._kernels.append(kernels)
            start, stop = self.device.event(timing=True), self.device.event(timing=True)
            slots.append(Slot(lane, start, stop, table.host_chunk(size, memory.host), chunk, kernels))
        return tuple(slots)

    def close(self) -> None:
        """Free the memory; the next call allocates it again."""
        self._slots, self._key = (), b""
        while self._kernels:
            self._kernels.pop().close()
        if self._memory is not None:
            self._memory.close()
        self._memory = None
