"""A program of a slice on a GPU: its lanes and threads, its arrays in device memory, and the kernels of slices.cu."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device import nvcc
from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels, loaded_kernels, most_shared
from ....errors import BackendUnavailable
from .contractions import SliceMaker
from .program import SliceArrays, Way, slice_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERNELS = ("slices_forward_shared", "slices_forward_global", "slices_backward_shared", "slices_backward_global")
MOST_LANES = 32
FIRST_LANES = 16  # more leave an SM with too few warps
ENOUGH_WORK = 1 << 20  # slices of all sequences for which compiling kernels takes less time than they save
MOST_OPS = 100  # contractions of a program for which they are compiled
MOST_THREADS = 256
SM_REGISTERS, LEAST_REGISTERS = 65_536, 64  # of an SM; of a thread, where kernels are compiled for a program
SM_BYTES, SM_THREADS = 232_448, 768  # shared memory of an SM; threads that keep it busy
GLOBAL_LANES = 8
BLOCKS_PER_SM = 3  # that share an SM's memory, where at least so many lanes fit:
ENOUGH_LANES = 4


def best_arrays(maker: SliceMaker, way: Way, pairs: Sequence[Any], most: int) -> SliceArrays:
    """The program with as many lanes as pay."""
    lanes, share = FIRST_LANES, most // BLOCKS_PER_SM - 1024
    while lanes >= 2:
        made = slice_arrays(maker, way, pairs, lanes)
        if shared_bytes(made) <= (share if lanes > ENOUGH_LANES else most):
            return made
        lanes //= 2
    return slice_arrays(maker, way, pairs, GLOBAL_LANES)


def threads_of(made: SliceArrays) -> int:
    """Threads of a block: as many as keep an SM busy with the sequences that its memory holds."""
    blocks = max(SM_BYTES // (8 * made.n_cells), 1)
    threads = min(made.most_tiles * made.lanes // 2, SM_THREADS // blocks, MOST_THREADS)
    return max(threads + 31, 32) // 32 * 32


def shared_bytes(made: SliceArrays) -> int:
    """Shared memory of a block with all tables."""
    return 8 * made.n_cells + _sums_bytes(made)


def _sums_bytes(made: SliceArrays) -> int:
    return 16 * threads_of(made) // 32 * made.lanes


class GpuProgram:
    """A program in the memory of a device."""

    def __init__(self, device: Device, made: SliceArrays):
        self.device, self.lanes, self.n_cells = device, made.lanes, made.n_cells
        self.threads, self.is_shared = threads_of(made), shared_bytes(made) <= most_shared(device) - 1024
        self.shared = shared_bytes(made) if self.is_shared else _sums_bytes(made)
        self._source = made.source if len(made.ops) <= MOST_OPS else ""
        self._fixed: Kernels | None = None
        blocks = min(SM_BYTES // (self.shared + 1024), SM_REGISTERS // (LEAST_REGISTERS * self.threads))
        self._bounds = f"{self.threads}, {max(blocks, 1)}"
        self._lock = threading.Lock()
        with device.active():
            self.kernels: Kernels = loaded_kernels(device, "batch/slices", KERNELS)
            self._memory = Memory(device)
            stream = device.stream()
            arrays = (made.ops, _padded(made.tiles), made.steps, made.items, made.observed, made.targets, made.pool)
            try:
                words = [self._memory.put(x, stream) for x in (*arrays, made.consts, made.values)]
            except BaseException:
                self._memory.close()
                raise
            del stream
        head = np.array([*words, 0], np.uint64)
        head[-1:] = np.array([made.least]).view(np.uint64)
        self.struct = np.concatenate([head, np.array(made.words, np.uint32).view(np.uint64)])

    def launch(
        self, way: str, sequences: NDArray[np.uint64], n: int, slices: int, arenas: Callable[[int], int], stream: Any
    ) -> None:  # fmt: skip
        """Queue the kernel for n sequences and some slices; `arenas`: gives so many bytes of memory."""
        blocks = n // self.lanes
        if not self.is_shared:
            blocks = min(blocks, self.device.multiprocessors * 2)
            sequences[_ARENAS] = arenas(8 * self.n_cells * blocks)
        kernels, name = self._fixed_kernels(n * slices), "slices_fixed"
        if kernels is None:
            kernels, name = self.kernels, f"slices_{way}_{'shared' if self.is_shared else 'global'}"
        kernels.allow_shared(name, max(self.shared, 48 << 10))
        arguments = Arguments(self.struct, sequences)
        kernels.launch(name, blocks, self.threads, stream, arguments, shared=self.shared)

    def _fixed_kernels(self, work: int) -> Kernels | None:
        """The kernel compiled for the program, if there is one that pays for so many slices; the bits are the same."""
        with self._lock:
            if self._fixed is None and self._source and self.is_shared and work >= ENOUGH_WORK:
                text, self._source = nvcc.with_headers(f"#define BOUNDS {self._bounds}\n{self._source}"), ""
                with contextlib.suppress(BackendUnavailable):  # no compiler
                    image = nvcc.compiled("batch/slices", text, self.device.arch)
                    self._fixed = Kernels(self.device, "", ("slices_fixed",), image)
            return self._fixed if work >= ENOUGH_WORK else None

    def close(self) -> None:
        """Free the memory."""
        with self.device.active():
            self._memory.close()
            if self._fixed is not None:
                self._fixed.close()


_ARENAS = 13  # place of the address among those of struct Sequences


def _padded(tiles: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return tiles if len(tiles) else np.zeros((1, tiles.shape[1]), np.uint32)
