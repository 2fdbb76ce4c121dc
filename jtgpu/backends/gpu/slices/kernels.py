"""A program of a slice on a GPU: its lanes and threads, its arrays in device memory, and the kernels of slices.cu."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....device import nvcc
from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels, loaded_kernels, most_shared
from ....errors import BackendUnavailable
from .contractions import SliceMaker
from .fixed import MOST_THREADS, SM_BYTES, fixed_arrays
from .program import SliceArrays, SliceParts, Way, slice_arrays
from .sums import Wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERNELS = (
    "slices_start", "slices_added", "slices_forward_shared", "slices_forward_global", "slices_backward_shared",
    "slices_backward_global",
)  # fmt: skip
FIRST_LANES = 16  # more leave an SM with too few warps
ENOUGH_WORK = 1 << 20  # slices of all sequences for which compiling kernels takes less time than they save
MOST_OPS = 100  # contractions of a program for which they are compiled
SM_REGISTERS, MOST_BLOCKS = 65_536, 32  # of an SM
RECORD_THREADS = 768  # that keep an SM busy
GLOBAL_LANES = 8
BLOCKS_PER_SM = 3  # that share an SM's memory, where at least so many lanes fit:
ENOUGH_LANES = 4


class Programs(NamedTuple):
    """A program as records, and as code if that pays: with the same lanes and threads, for the same bits."""

    records: SliceArrays
    code: SliceArrays | None


def best_arrays(maker: SliceMaker, way: Way, wanted: Wanted, most: int) -> Programs:
    """The program with as many lanes as pay."""
    # most: Bytes of shared memory of a block
    parts = SliceParts.of(maker, way, split=True)
    if len(parts.main.steps) + len(parts.second.steps) <= MOST_OPS:
        code = fixed_arrays(parts, wanted)
        if code is not None and shared_bytes(code) <= most:
            return Programs(replace(slice_arrays(parts, wanted, code.lanes), threads=code.threads), code)
    parts = SliceParts.of(maker, way)
    lanes, share = FIRST_LANES, most // BLOCKS_PER_SM - 1024
    while lanes >= 2:
        made = _with_threads(slice_arrays(parts, wanted, lanes))
        if shared_bytes(made) <= (share if lanes > ENOUGH_LANES else most):
            return Programs(made, None)
        lanes //= 2
    return Programs(_with_threads(slice_arrays(parts, wanted, GLOBAL_LANES)), None)


def _with_threads(made: SliceArrays) -> SliceArrays:
    """Threads of a block: as many as keep an SM busy with the sequences that its memory holds."""
    blocks = max(SM_BYTES // (8 * made.n_cells), 1)
    threads = min(made.threads, RECORD_THREADS // blocks, MOST_THREADS)
    return replace(made, threads=max(threads + 31, 32) // 32 * 32)


def shared_bytes(made: SliceArrays) -> int:
    """Shared memory of a block with all tables."""
    return 8 * made.n_cells + sums_bytes(made)


def blocks_of(code: SliceArrays) -> int:
    """Blocks of an SM that have room and the registers that the code needs."""
    blocks = min(SM_BYTES // (shared_bytes(code) + 1024), MOST_BLOCKS)
    while blocks > 1 and SM_REGISTERS // (-(-blocks * code.threads // 128) * 128) < code.registers:
        blocks -= 1
    return max(blocks, 1)


def sums_bytes(made: SliceArrays) -> int:
    """Shared memory of a block whose tables are elsewhere."""
    return 16 * made.threads // 32 * made.lanes


class GpuProgram:
    """A program in the memory of a device."""

    def __init__(self, device: Device, made: Programs):
        self.device, records, code = device, made.records, made.code
        self.lanes, self.threads, self.n_cells = records.lanes, records.threads, records.n_cells
        self.is_shared = shared_bytes(records) <= most_shared(device) - 1024
        self.shared = shared_bytes(records) if self.is_shared else sums_bytes(records)
        self._code, self._fixed, self._lock = code, _NO_KERNELS, threading.Lock()
        with device.active():
            self.kernels: Kernels = loaded_kernels(device, "batch/slices", KERNELS)
            self._memory = Memory(device)
            try:
                self.struct = self._put(records)
                if code is not None:
                    self._code_struct = self._put(code)
            except BaseException:
                self._memory.close()
                raise

    def _put(self, made: SliceArrays) -> NDArray[np.uint64]:
        """The struct of a program whose arrays are copied to the device."""
        stream = self.device.stream()
        arrays = (made.ops, _padded(made.tiles), made.steps, made.items, made.observed, made.targets, made.pool)
        words = [self._memory.put(x, stream) for x in (*arrays, made.consts, made.values)]
        head = np.array([*words, 0], np.uint64)
        head[-1:] = np.array([made.least]).view(np.uint64)
        return np.concatenate([head, np.array(made.words, np.uint32).view(np.uint64)])

    def launch(
        self, way: str, sequences: NDArray[np.uint64], n: int, work: int, arenas: Callable[[int], int], stream: Any
    ) -> None:  # fmt: skip
        """Queue the kernel for n sequences."""
        # work: Slices of all sequences of the call
        # arenas: Gives so many bytes of memory
        if self._code is not None and work >= ENOUGH_WORK and (fixed := self._compiled(self._code)):
            shared = shared_bytes(self._code)
            fixed.allow_shared("slices_fixed", max(shared, 48 << 10))
            arguments = Arguments(self._code_struct, sequences, self._code.constants)
            fixed.launch("slices_fixed", n // self.lanes, self.threads, stream, arguments, shared=shared)
            return
        blocks = n // self.lanes
        if not self.is_shared:
            blocks = min(blocks, self.device.multiprocessors * 2)
            sequences[_ARENAS] = arenas(8 * self.n_cells * blocks)
        name = f"slices_{way}_{'shared' if self.is_shared else 'global'}"
        self.kernels.allow_shared(name, max(self.shared, 48 << 10))
        self.kernels.launch(name, blocks, self.threads, stream, Arguments(self.struct, sequences), shared=self.shared)

    def _compiled(self, code: SliceArrays) -> Kernels | None:
        """The kernel compiled for the program; None without a compiler. The bits are those of the records."""
        with self._lock:
            if self._fixed is _NO_KERNELS:
                text = nvcc.with_headers(f"#define BOUNDS {self.threads}, {blocks_of(code)}\n{code.source}")
                self._fixed = None
                with contextlib.suppress(BackendUnavailable):  # no compiler
                    image = nvcc.compiled("batch/slices", text, self.device.arch)
                    self._fixed = Kernels(self.device, "", ("slices_fixed",), image)
            compiled: Kernels | None = self._fixed
            return compiled

    def close(self) -> None:
        """Free the memory."""
        with self.device.active():
            self._memory.close()
            if self._fixed:
                self._fixed.close()


_NO_KERNELS: Any = False  # before they are compiled
_ARENAS = 15  # place of the address among those of struct Sequences


def _padded(tiles: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return tiles if len(tiles) else np.zeros((1, tiles.shape[1]), np.uint32)
