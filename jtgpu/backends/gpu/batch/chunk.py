"""A chunk of a table on the GPU: where its evidence and answers are, and the kernels that transpose them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....device.driver import Arguments, Kernels
from ....device.memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUP = 32  # cases of a warp
THREADS = 256  # of a block
TILE = 32  # cells a side of what a block transposes
TRANSPOSING = ("batch_transpose", "batch_scatter", "batch_rows")  # kernels that every program loads


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
    n_blocks: int

    def queue(self, kernels: Kernels, stream: Any) -> None:
        """Queue it on a stream."""
        if self.n_blocks:
            kernels.launch(self.name, self.n_blocks, THREADS, stream, Arguments(self.struct))


@dataclass(frozen=True)
class Bound:
    """The parameters of a chunk's kernels."""

    evidence: Launch
    struct: NDArray[np.uint64]
    size: int
    n_answers: int
    rows: Launch | None


class Program(Protocol):
    """A plan and a model's numbers on one GPU, as kernels for tables of cases."""

    kind: str

    @property
    def case_bytes(self) -> int:
        """Scratch memory of a case."""

    @property
    def most_cases(self) -> int:
        """Of a chunk."""

    @property
    def wave(self) -> int:
        """Cases that the GPU runs at the same time; a chunk is best a multiple of it."""

    def takes(self, smallest: float) -> bool:
        """Whether weights as small as this (log2) leave every number in range."""

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        """Scratch memory that all chunks of a size use one after another."""

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        """The kernels' parameters for a chunk; no target may be repeated."""

    def queue(self, bound: Bound, stream: Any) -> None:
        """Queue a chunk's kernels."""

    def close(self) -> None:
        """Unload the kernels."""


def enter_evidence(chunk: Chunk, n_variables: int) -> Launch:
    """The kernel that brings a chunk's evidence into case-minor order, (V, size)."""
    if chunk.width:
        counts = np.array([chunk.size, chunk.n_columns, chunk.width, 0], np.uint32)
        words = np.array([chunk.states, chunk.columns, chunk.state], np.uint64)
        struct = np.concatenate([words, counts.view(np.uint64)])
        return Launch("batch_scatter", struct, -(-chunk.n_columns * chunk.size // (4 * THREADS)))
    counts = np.array([chunk.size, n_variables, chunk.n_weights, 0], np.uint32)
    words = np.array([chunk.states, chunk.weights, chunk.state, chunk.weight], np.uint64)
    struct = np.concatenate([words, counts.view(np.uint64)])
    tiles = -(-n_variables // TILE) + -(-chunk.n_weights // TILE)
    return Launch("batch_transpose", struct, chunk.size // GROUP * tiles)


def answers_to_rows(chunk: Chunk, n_out: int) -> Launch | None:
    """The kernel that transposes a chunk's answers, if rows are wanted."""
    if not chunk.rows or not n_out:
        return None
    counts = np.array([chunk.size, n_out], np.uint32)
    struct = np.concatenate([np.array([chunk.posterior, chunk.rows], np.uint64), counts.view(np.uint64)])
    return Launch("batch_rows", struct, chunk.size // GROUP * -(-n_out // TILE))
