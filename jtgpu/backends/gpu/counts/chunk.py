"""A chunk of a table whose expected counts are made on a GPU: where its evidence is, and the kernels around the
contractions (cuda/batch/counts.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....device.context import Memory
from ....device.driver import Arguments, Kernels
from ..batch.chunk import GROUP, THREADS
from ..batch.chunk import enter_codes as enter_codes
from ..kernel_choice import PlanKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

CODES_KERNELS = ("count_codes", "count_score", "count_fold")
EXTRA = 3  # sums behind the counts: ln P(e) times weight; impossible cases; lost cases
FOLD_THREADS = 128


@dataclass(frozen=True)
class CountChunk:
    """Addresses of a chunk's evidence and sums."""

    n: int  # cases
    size: int  # the same, rounded up to a multiple of GROUP
    block: int  # cases that are summed together; a multiple of GROUP
    width: int  # bytes of a state
    n_weights: int
    codes: int  # (n, V) integers of `width` bytes
    weights: int  # (n, n_weights) float64
    of_case: int  # (n,) float64, weights of the cases
    log_scale: int  # (n,) float64; 0: none
    log_evidence: int  # (size,) float64
    state: int  # (V, size) int32
    weight: int  # (n_weights, size) float64
    weight_row: int  # (V,) uint32
    partial: int  # (n_blocks, K + EXTRA) float64
    smallest: float  # lower bound of log2 of the product of a case's weights of states
    total: int  # (K + EXTRA,) float64
    magnitude: float  # sum of the absolute weights of the part's cases
    is_first: bool  # whether the chunk begins a part of the table, so that `total` is written and not added to
    least: float  # ln P(e) below which a case is lost: it gets NaN and adds nothing

    @property
    def n_blocks(self) -> int:
        """Blocks of cases."""
        return -(-self.size // self.block)

    def struct(self, cells: int, n_cells: int, columns: int, n_out: int) -> NDArray[np.uint64]:
        """struct Counting."""
        words = [cells, columns, self.of_case, self.log_scale, self.log_evidence, self.partial]
        counts = np.array([self.n, self.size, n_out, n_cells, self.block, 0], np.uint32)
        least = np.array([self.least]).view(np.uint64)
        return np.concatenate([np.array(words, np.uint64), least, counts.view(np.uint64)])


class CountKernels(PlanKernels, Protocol):
    """Kernels that count."""

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        """Replace the numbers; no entry may be other than zero that was zero when this was made."""

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, ...]:
        """Scratch memory that all chunks of at most a size use one after another."""

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        """Queue a chunk's kernels."""


def fold(kernels: Kernels, chunk: CountChunk, counting: NDArray[np.uint64], n_out: int, stream: Any) -> None:
    """Sum ln P(e), and add the sums of all blocks in their order."""
    kernels.launch("count_score", -(-chunk.n_blocks * GROUP // THREADS), THREADS, stream, Arguments(counting))
    pointers = (np.array([chunk.partial], np.uint64), np.array([chunk.total], np.uint64))
    width = n_out + EXTRA
    arguments = Arguments(*pointers, chunk.n_blocks, width, int(chunk.is_first))
    kernels.launch("count_fold", -(-width // FOLD_THREADS), FOLD_THREADS, stream, arguments)
