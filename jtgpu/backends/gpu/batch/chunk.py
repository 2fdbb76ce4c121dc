"""A chunk of a table: where its evidence and answers are, on the host and on a GPU, and how they get there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device.context import Device
from ....device.driver import Arguments, Kernels
from ....device.graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUP = 32  # cases of a warp
THREADS = 256  # of a block
TILE = 32  # cells a side of what a block transposes
TRANSPOSING = ("batch_scatter", "batch_rows")  # kernels around those of a program
ENTERING = ("count_codes", "count_finish")


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


class Codes(NamedTuple):
    """A chunk's evidence as rows, and where it goes in case-minor order: addresses."""

    codes: int  # (n, V) integers of `width` bytes
    weights: int  # (n, n_weights) float64
    state: int  # (V, size) int32
    weight: int  # (n_weights, size) float64
    n: int
    size: int
    n_weights: int
    width: int
    card: int = 0  # (V,) uint32; 0: states are not checked
    bad: int = 0  # one uint32


def enter_codes(kernels: Kernels, chunk: Any, n_variables: int, stream: Any) -> None:
    """Bring evidence by rows, of `Codes` or of a chunk that has their fields, into case-minor order."""
    checked = (chunk.card, chunk.bad) if isinstance(chunk, Codes) else (0, 0)
    words = np.array([chunk.codes, chunk.weights, chunk.state, chunk.weight, *checked], np.uint64)
    counts = np.array([chunk.n, chunk.size, n_variables, chunk.n_weights, chunk.width, 0], np.uint32)
    tiles = -(-n_variables // TILE) + -(-chunk.n_weights // TILE)
    arguments = Arguments(np.concatenate([words, counts.view(np.uint64)]))
    if tiles:
        kernels.launch("count_codes", -(-chunk.n // GROUP) * tiles, THREADS, stream, arguments)


def enter_columns(kernels: Kernels, chunk: Chunk, stream: Any) -> None:
    """Bring evidence by columns, of a whole chunk, into case-minor order."""
    counts = np.array([chunk.size, chunk.n_columns, chunk.width, 0], np.uint32)
    words = np.array([chunk.states, chunk.columns, chunk.state], np.uint64)
    arguments, cells = Arguments(np.concatenate([words, counts.view(np.uint64)])), chunk.n_columns * chunk.size
    if cells:
        kernels.launch("batch_scatter", -(-cells // (4 * THREADS)), THREADS, stream, arguments)


def answers_to_rows(kernels: Kernels, chunk: Chunk, n_out: int, n: int, stream: Any) -> None:
    """Transpose the answers of a chunk's first n cases, if rows are wanted."""
    counts = np.array([chunk.size, n_out], np.uint32)
    words = np.array([chunk.posterior, chunk.rows], np.uint64)
    arguments = Arguments(np.concatenate([words, counts.view(np.uint64)]))
    if chunk.rows and n_out:
        kernels.launch("batch_rows", -(-n_out // TILE) * -(-n // GROUP), THREADS, stream, arguments)


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
class HostChunk:
    """Page-locked memory of one chunk."""

    states: NDArray[Any]
    weights: NDArray[np.float64]  # (size, W)
    posterior: NDArray[np.float64]
    log_evidence: NDArray[np.float64]  # (size,)


@dataclass(frozen=True)
class Slot:
    """One of the chunks in flight."""

    stream: Any
    start: Any  # events before and after the kernels
    stop: Any
    host: HostChunk
    chunk: Chunk
    kernels: ChunkKernels
