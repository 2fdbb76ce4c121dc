"""Memory of the chunks in flight: page-locked on the host, on the GPU, and the captured kernels of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels, loaded_kernels
from ....device.graph import Graph
from ....errors import TableTooLarge, format_bytes
from ..programs import Program
from .table import HostChunk, TableJob

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A chunk of a table on the GPU: where its evidence and answers are, and the kernels that transpose them.

GROUP = 32  # cases of a warp
THREADS = 256  # of a block
TILE = 32  # cells a side of what a block transposes
TRANSPOSING = ("batch_transpose", "batch_scatter", "batch_rows")  # kernels around those of a program


@dataclass(frozen=True)
class Chunk:
    """Addresses of a chunk's evidence and answers."""

    size: int  # cases, a multiple of GROUP
    n_weights: int
    states: int  # (size, V) int32; by columns (E, size) integers of `width` bytes
    weights: int  # (size, n_weights) float64
    state: int  # the states transposed, (V, size) int32
    weight: int  # the weights transposed, (n_weights, size)
    weight_row: int  # (V,) uint32, row of a variable's first weight; NONE: it has none
    posterior: int  # (n_out, size) float64
    rows: int  # (size, n_out) float64, the posteriors transposed; 0: not wanted
    log_evidence: int  # (size,) float64
    columns: int = 0  # by columns: (E,) uint32, the variables
    n_columns: int = 0
    width: int = 0  # 0: by rows


@dataclass(frozen=True)
class Launch:
    """A kernel of THREADS threads a block, and its parameters."""

    name: str
    struct: NDArray[np.uint64]
    n_blocks: int  # of a group of cases
    whole: int = 0  # blocks of a chunk, if they cannot be divided by groups

    def queue(self, kernels: Kernels, groups: int, stream: Any) -> None:
        """Queue it on a stream, for some groups of cases."""
        n_blocks = self.whole or self.n_blocks * groups
        if n_blocks:
            kernels.launch(self.name, n_blocks, THREADS, stream, Arguments(self.struct))


class Bound(NamedTuple):
    """The parameters of a chunk's kernels."""

    struct: NDArray[Any]
    n_answers: int


class TableProgram(Program, Protocol):
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


def enter_evidence(chunk: Chunk, n_variables: int) -> Launch:
    """The kernel that brings a chunk's evidence into case-minor order, (V, size)."""
    if chunk.width:
        counts = np.array([chunk.size, chunk.n_columns, chunk.width, 0], np.uint32)
        words = np.array([chunk.states, chunk.columns, chunk.state], np.uint64)
        struct = np.concatenate([words, counts.view(np.uint64)])
        return Launch("batch_scatter", struct, 0, -(-chunk.n_columns * chunk.size // (4 * THREADS)))
    counts = np.array([chunk.size, n_variables, chunk.n_weights, 0], np.uint32)
    words = np.array([chunk.states, chunk.weights, chunk.state, chunk.weight], np.uint64)
    struct = np.concatenate([words, counts.view(np.uint64)])
    tiles = -(-n_variables // TILE) + -(-chunk.n_weights // TILE)
    return Launch("batch_transpose", struct, tiles)


def answers_to_rows(chunk: Chunk, n_out: int) -> Launch | None:
    """The kernel that transposes a chunk's answers, if rows are wanted."""
    if not chunk.rows or not n_out:
        return None
    counts = np.array([chunk.size, n_out], np.uint32)
    struct = np.concatenate([np.array([chunk.posterior, chunk.rows], np.uint64), counts.view(np.uint64)])
    return Launch("batch_rows", struct, -(-n_out // TILE))


MEMORY_SHARE = 0.7  # of the GPU's free memory
SLOTS = 3  # chunks in flight: one is copied out by the host's threads, one is downloaded, one is computed
PINNED = 144 << 20  # most bytes of one chunk's answers, which are page-locked
PIPELINE = 4  # least chunks of a call, if each is still large
LARGE = 1 << 14  # cases of such a chunk


class ChunkKernels:
    """A chunk's kernels: a graph for the most cases that it has had, or queued one by one for fewer."""
    # queue: Queues the kernels of the first cases on the stream
    # case_us: Microseconds of a case of the last chunk

    def __init__(self, device: Device, queue: Callable[[int], None], stream: Any):
        self.queue, self._device, self._stream = queue, device, stream
        self.case_us = 0.0
        self._graph: Graph | None = None

    def _capture(self, n: int) -> Graph:
        self.close()
        start = time.perf_counter()
        self._graph = graph = self._device.capture(self._stream, partial(self.queue, n))
        self._n, self._us = n, 1e6 * (time.perf_counter() - start)
        return graph

    def launch(self, n: int) -> None:
        """Queue the kernels of the first n cases."""
        n = -(-n // GROUP) * GROUP
        graph = self._graph
        if graph is None or n > self._n:
            graph = self._capture(n)
        if (self._n - n) * self.case_us > self._us:  # queueing them is quicker than computing unused cases
            self.queue(n)
        else:
            graph.launch(self._stream)

    def close(self) -> None:
        """Destroy the graph."""
        if self._graph is not None:
            self._graph.close()
        self._graph = None


@dataclass(frozen=True)
class Slot:
    """One of the chunks in flight."""

    stream: Any
    start: Any  # events before and after the kernels
    stop: Any
    host: HostChunk
    chunk: Chunk
    kernels: ChunkKernels


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


class Buffers:
    """Chunks' memory, reused by calls of the same layout: allocating page-locked memory takes milliseconds.

    Used inside ``device.active()``.
    """
    # streams: One a chunk in flight
    # size: Most cases of a chunk

    def __init__(self, device: Device, streams: Sequence[Any]):
        self.device, self.streams = device, list(streams)
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
        self.drop()
        self._memory = Memory(self.device)
        try:
            self.size, self._is_full = self.chunk_size(program, table, n)
            self._slots = self._allocated(self._memory, program, table, n)
        except BaseException:
            self.drop()
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
            groups, rows = -(-n // GROUP), answers_to_rows(chunk, n_out)
            is_direct = program.is_direct or on_device
            if not is_direct:
                enter_evidence(chunk, n_variables).queue(around, groups, lane)
            program.queue(bound, lane, n)
            if rows is not None and not is_direct:
                rows.queue(around, groups, lane)

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

    def drop(self) -> None:
        """Free the memory."""
        self._slots, self._key = (), b""
        while self._kernels:
            self._kernels.pop().close()
        if self._memory is not None:
            self._memory.close()
        self._memory = None
